//! Room for checkpoints. A commit that makes the database larger grows only the log file; the
//! database file grows at the next checkpoint. On a disk that has become full in between, that
//! checkpoint would fail for ever, and with it every write. So the room is allocated in the
//! database file before the commit: a checkpoint then writes only where there is room, and the log
//! file can start again from its beginning, which needs none either.

use crate::Error;
use rusqlite::Connection;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Allocated at once, if there is so much: a small commit adds one page or two.
const STEP_BYTES: u64 = 256 << 10;
/// The log file keeps this much room: the deletes that make a full disk usable again need some.
const LOG_BYTES: u64 = 512 << 10;

/// The database file. Stays open as long as the database is: closing any handle of a file lets go
/// of all locks that the process has on it.
pub struct Room {
    file: Option<File>,
    page_bytes: u64,
    /// The file system allocates nothing in advance.
    unsupported: AtomicBool,
}

impl Room {
    pub fn of(path: &Path, connection: &Connection) -> Result<Room, Error> {
        let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let file = Some(File::options().write(true).open(path)?);
        let page_bytes = page_bytes.into();
        Ok(Room { file, page_bytes, unsupported: AtomicBool::new(false) })
    }

    /// For a tool, which makes few and small commits.
    pub fn none() -> Room {
        Room { file: None, page_bytes: 0, unsupported: AtomicBool::new(true) }
    }

    /// Makes the database file as long as the transaction of this connection needs it.
    pub fn ensure(&self, connection: &Connection) -> Result<(), Error> {
        let Some(file) = self.file.as_ref().filter(|_| !self.unsupported.load(Ordering::Relaxed))
        else {
            return Ok(());
        };
        let mut statement = connection.prepare_cached("PRAGMA page_count")?;
        let pages: u32 = statement.query_row([], |row| row.get(0))?;
        let needed = u64::from(pages) * self.page_bytes;
        let length = file.metadata()?.len();
        if needed <= length {
            return Ok(());
        }
        let allocate = |bytes| fallocate(file, FallocateFlags::empty(), length, bytes);
        let exact = needed - length;
        let done = match allocate(exact.max(STEP_BYTES)) {
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => allocate(exact),
            other => other,
        };
        match done {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.unsupported.store(true, Ordering::Relaxed);
                Ok(())
            }
            // Interrupted by a signal: tried again with the next commit.
            Err(Errno::INTR) => Ok(()),
            other => Ok(other.map_err(std::io::Error::from)?),
        }
    }

    /// Allocates a little room for the log file without making it longer.
    pub fn reserve_log(&self, log: &Path) {
        if self.file.is_none() || self.unsupported.load(Ordering::Relaxed) {
            return;
        }
        // Without it everything works but writes on a disk that is full to the last byte.
        if let Ok(file) = File::options().write(true).open(log) {
            let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, LOG_BYTES);
        }
    }
}
