//! The end of the log file after a COMMIT that failed. The frames of the transaction may stand
//! there complete: the database does not count them, but the next process that opens the file
//! would. They are cut off before the caller learns that the write was refused.

use super::connection;
use crate::Error;
use rusqlite::Connection;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Sizes of the log file's parts (sqlite.org/fileformat2.html, section 4.1).
pub const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// The log file of a database.
pub fn log_file(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// A file next to the database, whose name begins with the database's.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Cuts the log file behind its newest commit and syncs it. When this returns `Ok`, nothing of a
/// failed transaction is left. `writer` must be outside of a transaction.
pub fn cut(writer: &Connection, path: &Path) -> Result<(), Error> {
    // With the write lock, no other process appends to the file.
    writer.execute_batch("BEGIN IMMEDIATE")?;
    let done = cut_locked(path);
    // A transaction that changed nothing leaves nothing, however it ends.
    let _ = writer.execute_batch("ROLLBACK");
    done
}

fn cut_locked(path: &Path) -> Result<(), Error> {
    // A connection of its own: one inside a transaction cannot ask.
    let connection = connection::connect(path)?;
    let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    // Reads a page, so that the connection knows its log file.
    connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    let frames: i64 = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1))?;
    let end = match u64::try_from(frames) {
        Ok(0) => 0,
        Ok(frames) => HEADER_BYTES + frames * (FRAME_HEADER_BYTES + u64::from(page_bytes)),
        Err(_) => return Err(Error::Failed("the length of the log file is unknown".into())),
    };
    // Closing this is harmless: the database holds its locks on other files.
    let file = match File::options().write(true).open(log_file(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && end == 0 => return Ok(()),
        other => other?,
    };
    if file.metadata()?.len() > end {
        file.set_len(end)?;
    }
    file.sync_all()?;
    Ok(())
}
