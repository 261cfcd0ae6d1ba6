//! Opens a database: recognises our own files and reads the first values from them. `upgrade`
//! applies a schema.

use super::connection::connect;
use super::upgrade::{self, APPLICATION_ID, FORMAT};
use super::{Options, Role, acknowledged, checkpoint, erasure, usage};
use crate::Error;
use crate::migrate;
use crate::usage::UsedInAll;
use model::Timestamp;
use model::evolve::Stored;
use model::version::Versions;
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use std::path::Path;

/// What was found in, or written into, the file.
pub struct Opened {
    pub writer: Connection,
    pub stored: Stored,
    pub cursor_key: [u8; 32],
    pub epoch: u32,
    pub usage: UsedInAll,
    pub newest: i64,
    pub search_position: i64,
}

/// Opens or makes the database and brings it to the schema.
pub fn open(path: &Path, versions: &Versions, options: &Options) -> Result<Opened, Error> {
    acknowledged::refuse_missing(path)?;
    let mut writer = connect(path).map_err(|error| foreign(path, error))?;
    let stored = recognise(&writer, path)?;
    match stored {
        Some(_) => {
            acknowledged::refuse_shortened(&writer, path)?;
            extend(&writer)?;
        }
        None => acknowledged::refuse_emptied(path, "has no tables")?,
    }
    let stored = match (stored, options.role) {
        (Some(stored), Role::Tool) => stored,
        (stored, _) => {
            let stored = upgrade::apply(&mut writer, stored, versions, options)?;
            upgrade::clean_up(&mut writer, versions, stored)?
        }
    };
    let value = |name: &str| format!("SELECT value FROM meta WHERE name = '{name}'");
    let cursor_key = writer.query_row(&value("cursor_key"), [], |row| row.get(0))?;
    let epoch = epoch(&writer)?;
    let search_position = writer.query_row(&value("search_position"), [], |row| row.get(0))?;
    let newest = super::log::newest(&writer)?.0;
    let usage = match options.role {
        Role::Server => usage::in_all(&writer)?,
        Role::Tool => UsedInAll { since: Timestamp(0), subjects: Vec::new() },
    };
    Ok(Opened { writer, stored, cursor_key, epoch, usage, newest, search_position })
}

/// The number of this log; made when it is first asked for.
fn epoch(writer: &Connection) -> Result<u32, rusqlite::Error> {
    const MADE: &str =
        "INSERT OR IGNORE INTO meta VALUES ('epoch', abs(random() % 4294967295) + 1)";
    const KEPT: &str = "SELECT value FROM meta WHERE name = 'epoch'";
    if let Some(kept) = writer.query_row(KEPT, [], |row| row.get(0)).optional()? {
        return Ok(kept);
    }
    writer.execute(MADE, [])?;
    writer.query_row(KEPT, [], |row| row.get(0))
}

/// Tells our database from a new one, a foreign one and a damaged one, before anything is written.
fn recognise(writer: &Connection, path: &Path) -> Result<Option<Stored>, Error> {
    let is_new = !has_our_tables(writer, path)?;
    // Durable: the log file is synced before a commit is answered. Checkpoints have their own
    // thread, so a commit never waits for one.
    writer.pragma_update(None, "journal_mode", "WAL")?;
    writer.pragma_update(None, "synchronous", "FULL")?;
    writer.pragma_update(None, "wal_autocheckpoint", 0)?;
    writer.pragma_update(None, "journal_size_limit", checkpoint::Sizes::of(path).kept as i64)?;
    match is_new {
        true => Ok(None),
        false => stored(writer, path),
    }
}

/// The same, of a file that must have tables, without changing how it is written.
pub fn recognised(connection: &Connection, path: &Path) -> Result<Stored, Error> {
    if has_our_tables(connection, path)?
        && let Some(stored) = stored(connection, path)?
    {
        return Ok(stored);
    }
    refuse(path, "has no tables: start `restive serve` first.")
}

/// Whether there are tables; foreign and newer ones are refused.
fn has_our_tables(connection: &Connection, path: &Path) -> Result<bool, Error> {
    let number = |name: &str| -> Result<i32, Error> {
        connection
            .pragma_query_value(None, name, |row| row.get(0))
            .map_err(|error| foreign(path, error))
    };
    let (application, format) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables > 0 && application != APPLICATION_ID {
        return refuse(path, "is a database of another program. Choose another data directory.");
    }
    if format > FORMAT {
        return refuse(path, "was written by a newer release. Use that release, or a backup.");
    }
    Ok(tables > 0)
}

/// The description of the tables, from the file.
pub fn stored(connection: &Connection, path: &Path) -> Result<Option<Stored>, Error> {
    let value = |name: &str| -> Result<Option<String>, Error> {
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let found = connection.query_row(sql, [name], |row| row.get(0)).optional();
        found.map_err(|error| foreign(path, error))
    };
    if value(migrate::MARK)?.is_some() {
        return Err(Error::Refused(vec![migrate::unfinished(&path.display().to_string())]));
    }
    let text = value("schema")?;
    match text.map(|text| serde_json::from_str(&text)) {
        Some(Ok(stored)) => Ok(Some(stored)),
        _ => refuse(path, "has no readable description of its tables. Restore a backup."),
    }
}

/// Adds the columns of formats 3 and 4; nothing else changes. A table that is missing is created
/// whole, later.
fn extend(connection: &Connection) -> Result<(), rusqlite::Error> {
    for (table, column, kind) in [
        ("log", "hidden", "TEXT"),
        ("remembered", "api_version", "TEXT"),
        ("remembered", "hidden", "TEXT"),
        ("positions", "paused", "INTEGER"),
        ("erasing", "attempt", "INTEGER NOT NULL DEFAULT 0"),
        ("erasing", "told", "INTEGER NOT NULL DEFAULT 0"),
    ] {
        let known = "SELECT count(*), coalesce(sum(name = ?2), 0) FROM pragma_table_info(?1)";
        let (columns, found): (i64, i64) =
            connection.query_row(known, [table, column], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if columns > 0 && found == 0 {
            connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))?;
        }
    }
    // Every read of the log looks into it.
    connection.execute_batch(erasure::PENDING)
}

fn refuse<T>(path: &Path, reason: &str) -> Result<T, Error> {
    Err(Error::Refused(vec![format!("{} {reason}", path.display())]))
}

fn foreign(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::Refused(vec![format!(
            "{} is not a database. Choose another data directory.",
            path.display()
        )]),
        Some(ErrorCode::DatabaseCorrupt) => Error::Refused(vec![format!(
            "{} is damaged ({error}). Restore a backup.",
            path.display()
        )]),
        Some(ErrorCode::CannotOpen) => Error::Refused(vec![format!(
            "{} cannot be opened: does its directory exist, and may this user write there?",
            path.display()
        )]),
        _ => Error::from(error),
    }
}
