//! Looks into a database file without changing it, for commands next to no server: whether it is
//! damaged, and whether a schema can be served from it.

use super::layout::{self, quote};
use super::{connection, open, upgrade};
use crate::Error;
use crate::upgrade::ServedSchema;
use model::Schema;
use model::version::Versions;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::de::IgnoredAny;
use std::path::Path;
use std::sync::Arc;

/// How thoroughly the pages of a file are checked. The rows are always read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every page once.
    Quick,
    /// Also whether the indexes have what the tables have.
    Whole,
}

/// Columns of records and events that hold JSON.
const JSON: [&str; 4] = ["body", "hidden", "object", "previous"];

/// The first damage that is found in a file; `None` if there is none. Enough to refuse the file.
pub fn damage(path: &Path, depth: Depth) -> Result<Option<String>, Error> {
    let found = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        let name = match depth {
            Depth::Quick => "quick_check",
            Depth::Whole => "integrity_check",
        };
        let sql = format!("PRAGMA {name}(1)");
        match connection.query_row(&sql, [], |row| row.get::<_, String>(0))? {
            text if text == "ok" => in_contents(&connection),
            text => Ok(Some(text)),
        }
    };
    match found() {
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        found => Ok(found?),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Damage of a bit within a value, and triggers, of which a database of ours has none.
fn in_contents(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    let named = |sql: &str| -> Result<Vec<String>, rusqlite::Error> {
        connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    if let Some(name) = named("SELECT name FROM sqlite_schema WHERE type = 'trigger'")?.first() {
        return Ok(Some(format!("it has a trigger, `{name}`, that restive did not make")));
    }
    for table in named("SELECT name FROM pragma_table_list WHERE type = 'table'")? {
        if let Some(damage) = in_table(connection, &table)? {
            return Ok(Some(damage));
        }
    }
    Ok(None)
}

fn in_table(connection: &Connection, table: &str) -> Result<Option<String>, rusqlite::Error> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {}", quote(table)))?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let has_json = table == "log" || table.starts_with(&layout::table_name(""));
    let is_json: Vec<bool> =
        names.iter().map(|name| has_json && JSON.contains(&name.as_str())).collect();
    let mut rows = statement.query([])?;
    let mut number = 0;
    while let Some(row) = rows.next()? {
        number += 1;
        for (place, name) in names.iter().enumerate() {
            let ValueRef::Text(bytes) = row.get_ref(place)? else { continue };
            if let Some(reason) = fault(bytes, is_json[place]) {
                let found = format!("`{name}` of row {number} of the table `{table}`: {reason}");
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Refuses a schema that a server would refuse over this data.
pub fn review(path: &Path, schema: &Arc<Schema>, edition: &ServedSchema) -> Result<(), Error> {
    let connection = connection::reader(path)?;
    match open::stored(&connection, path)? {
        Some(stored) => upgrade::review(&connection, &stored, &Versions::new(schema), edition),
        None => Ok(()),
    }
}

fn fault(text: &[u8], is_json: bool) -> Option<String> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return Some(error.to_string()),
    };
    if !is_json {
        return None;
    }
    serde_json::from_str::<IgnoredAny>(text).err().map(|error| error.to_string())
}
