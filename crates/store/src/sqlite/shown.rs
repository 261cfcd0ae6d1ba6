//! What older versions show, as a function of the database: lists of theirs ask about each row what
//! cannot be said of its columns.

use model::CollectionIx;
use model::record::Scalar;
use model::version::Versions;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error};
use serde_json::Value;
use std::sync::Arc;

/// Version, collection and field by their places and name, and the value of the column; answers
/// with the JSON text of what is shown.
const NAME: &str = "shown";

/// Makes the function known to a connection.
pub fn teach(connection: &Connection, versions: &Arc<Versions>) -> Result<(), Error> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    let versions = Arc::clone(versions);
    connection.create_scalar_function(NAME, 4, flags, move |context| shown(&versions, context))
}

/// The condition that a column is shown as one of these values.
pub fn condition(
    collection: CollectionIx,
    version: usize,
    field: &str,
    column: &str,
    values: &[Value],
) -> (String, Vec<Scalar>) {
    let marks = vec!["?"; values.len()].join(", ");
    let text = format!("{NAME}(?, ?, ?, {column}) IN ({marks})");
    let place = |place: usize| Scalar::Integer(i64::try_from(place).unwrap_or(i64::MAX));
    let mut bound = vec![place(version), place(collection), Scalar::Text(field.to_owned())];
    bound.extend(values.iter().map(|value| Scalar::Text(value.to_string())));
    (text, bound)
}

fn shown(versions: &Versions, context: &Context<'_>) -> Result<Option<String>, Error> {
    let place = |argument| context.get::<i64>(argument).map(|place| place as usize);
    let (version, collection) = (place(0)?, place(1)?);
    let field: String = context.get(2)?;
    let kept = match context.get_raw(3) {
        ValueRef::Null | ValueRef::Blob(_) => Scalar::Null,
        ValueRef::Integer(whole) => Scalar::Integer(whole),
        ValueRef::Real(number) => Scalar::Number(number),
        ValueRef::Text(text) => Scalar::Text(String::from_utf8_lossy(text).into_owned()),
    };
    Ok(versions.shown(version, collection, &field, &kept).map(|value| value.to_string()))
}
