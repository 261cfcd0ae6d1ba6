//! Looks into a database file without changing it, for commands next to no server: whether it is
//! damaged, and whether a schema can be served from it.

use super::{connection, open, upgrade};
use crate::Error;
use crate::upgrade::ServedSchema;
use model::Schema;
use model::version::Versions;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;
use std::sync::Arc;

/// How thoroughly a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every page once.
    Quick,
    /// Also whether the indexes have what the tables have.
    Whole,
}

/// The damage that the database finds in a file; `None` if there is none.
pub fn damage(path: &Path, depth: Depth) -> Result<Option<String>, Error> {
    let found = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        let name = match depth {
            Depth::Quick => "quick_check",
            Depth::Whole => "integrity_check",
        };
        // The first finding is enough to refuse the file.
        connection.query_row(&format!("PRAGMA {name}(1)"), [], |row| row.get::<_, String>(0))
    };
    match found() {
        Ok(text) if text == "ok" => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Refuses a schema that a server would refuse over this data.
pub fn review(path: &Path, schema: &Arc<Schema>, edition: &ServedSchema) -> Result<(), Error> {
    let connection = connection::reader(path)?;
    match open::stored(&connection, path)? {
        Some(stored) => upgrade::review(&connection, &stored, &Versions::new(schema), edition),
        None => Ok(()),
    }
}
