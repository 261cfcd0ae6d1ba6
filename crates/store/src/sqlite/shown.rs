//! What older versions show, as a function of the database: lists of theirs ask about each row what
//! cannot be said of its columns.

use super::read;
use model::CollectionIx;
use model::query::Shown;
use model::record::Scalar;
use model::version::Versions;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Error};
use std::sync::Arc;

/// Version, collection and field by their places and name, and the value of the column; answers
/// with what is shown, as a column of the version would keep it.
const NAME: &str = "shown";
/// The same with the record, shown and hidden, in place of a column.
const OF_RECORD: &str = "shown_of";

/// Makes the function known to a connection.
pub fn teach(connection: &Connection, versions: &Arc<Versions>) -> Result<(), Error> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    let (of_column, of_record) = (Arc::clone(versions), Arc::clone(versions));
    connection.create_scalar_function(NAME, 4, flags, move |context| shown(&of_column, context))?;
    connection
        .create_scalar_function(OF_RECORD, 5, flags, move |context| shown_of(&of_record, context))
}

/// What a version shows of a column, or of the record, as if it were a column itself.
pub fn column(collection: CollectionIx, by: &Shown, column: &str) -> String {
    let Shown { version, field, whole } = by;
    match whole {
        true => format!("{OF_RECORD}({version}, {collection}, '{field}', t.body, t.hidden)"),
        false => format!("{NAME}({version}, {collection}, '{field}', {column})"),
    }
}

fn shown(versions: &Versions, context: &Context<'_>) -> Result<Value, Error> {
    let place = |argument| context.get::<i64>(argument).map(|place| place as usize);
    let (version, collection) = (place(0)?, place(1)?);
    let field: String = context.get(2)?;
    let kept = read::scalar_of(context.get_raw(3));
    Ok(value_of(versions.shown(version, collection, &field, &kept)))
}

fn shown_of(versions: &Versions, context: &Context<'_>) -> Result<Value, Error> {
    let place = |argument| context.get::<i64>(argument).map(|place| place as usize);
    let (version, collection) = (place(0)?, place(1)?);
    let (field, body): (String, String) = (context.get(2)?, context.get(3)?);
    let hidden: Option<String> = context.get(4)?;
    Ok(value_of(versions.shown_of(version, collection, &field, &body, hidden.as_deref())))
}

fn value_of(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Integer(whole) => Value::Integer(whole),
        Scalar::Number(number) => Value::Real(number),
        Scalar::Text(text) => Value::Text(text),
    }
}
