//! What older versions show, as a function of the database: lists of theirs ask about each row what
//! cannot be said of its columns.

use super::read;
use model::CollectionIx;
use model::record::Scalar;
use model::version::Versions;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Error};
use std::sync::Arc;

/// Version, collection and field by their places and name, and the value of the column; answers
/// with what is shown, as a column of the version would keep it.
const NAME: &str = "shown";

/// Makes the function known to a connection.
pub fn teach(connection: &Connection, versions: &Arc<Versions>) -> Result<(), Error> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    let versions = Arc::clone(versions);
    connection.create_scalar_function(NAME, 4, flags, move |context| shown(&versions, context))
}

/// What a version shows of a column, as if it were a column itself.
pub fn column(collection: CollectionIx, version: usize, field: &str, column: &str) -> String {
    format!("{NAME}({version}, {collection}, '{field}', {column})")
}

fn shown(versions: &Versions, context: &Context<'_>) -> Result<Value, Error> {
    let place = |argument| context.get::<i64>(argument).map(|place| place as usize);
    let (version, collection) = (place(0)?, place(1)?);
    let field: String = context.get(2)?;
    let kept = read::scalar_of(context.get_raw(3));
    Ok(match versions.shown(version, collection, &field, &kept) {
        Scalar::Null => Value::Null,
        Scalar::Integer(whole) => Value::Integer(whole),
        Scalar::Number(number) => Value::Real(number),
        Scalar::Text(text) => Value::Text(text),
    })
}
