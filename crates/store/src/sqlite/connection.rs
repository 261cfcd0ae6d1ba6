//! Connections to the database file, with their settings. Knows no table.

use crate::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// Another process (a command next to the server) holds the lock for one commit at most.
pub const BUSY: Duration = Duration::from_secs(5);
const WRITER_CACHE_KIB: i32 = 16 * 1024;
const READER_CACHE_KIB: i32 = 4 * 1024;
/// Statements kept ready per connection. A writer uses some ten per collection; a reader sees the
/// combinations of filters and sorts that clients think of.
const WRITER_STATEMENTS: usize = 512;
const READER_STATEMENTS: usize = 128;

/// A connection that may only read.
pub fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(READER_STATEMENTS);
    plan_once(&connection)?;
    Ok(connection)
}

/// A connection that may write; makes the file if there is none.
pub fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.set_prepared_statement_cache_capacity(WRITER_STATEMENTS);
    plan_once(&connection)?;
    Ok(connection)
}

/// Without this every new value of a `LIMIT ?` plans its statement again: a fifth of a list's time.
fn plan_once(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}
