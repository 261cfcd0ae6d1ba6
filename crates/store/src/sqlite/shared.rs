//! What the threads of one SQLite store share: where the tables and the files are. Holds no
//! connection but the readers' pool.

use super::layout::Table;
use super::readers::Pool;
use super::room::Room;
use crate::Error;
use crate::state::{Clock, State};
use crate::usage::UsedInAll;
use model::Schema;
use model::version::Versions;
use parking_lot::Mutex;
use rusqlite::ErrorCode;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Instant;

pub struct Shared {
    pub state: Arc<State>,
    pub path: PathBuf,
    /// Which file was opened there.
    pub file: FileId,
    pub schema: Arc<Schema>,
    pub versions: Arc<Versions>,
    pub tables: Vec<Table>,
    pub cursor_key: [u8; 32],
    pub epoch: u32,
    /// As it was when the file was opened.
    pub usage: UsedInAll,
    pub clock: Clock,
    pub readers: Pool,
    /// The last scope whose timers had their turn.
    pub timer_turn: AtomicI64,
    /// When something was last erased, in this process.
    pub erased_at: Mutex<Option<Instant>>,
    /// Writes that are loaded at once: tests compare the result with that of one by one.
    #[cfg(test)]
    pub loaded_at_once: std::sync::atomic::AtomicUsize,
    /// Last, so that it is closed after every connection.
    pub room: Room,
}

/// Device and number: the identity of a file apart from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    pub fn of(path: &Path) -> Result<FileId, Error> {
        let file = std::fs::metadata(path)?;
        Ok(FileId(file.dev(), file.ino()))
    }
}

impl Shared {
    /// A database that was deleted or replaced would still take writes, and lose them at the end of
    /// the process.
    pub fn check_file(&self) -> Result<(), Error> {
        match FileId::of(&self.path) {
            Ok(now) if now == self.file => Ok(()),
            _ => Err(Error::Failed("the database file was removed or replaced".into())),
        }
    }

    pub fn database_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }
}

/// An error of the database, by what helps.
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        /// Writing, syncing (a file, a folder), truncating, and growing the shared memory.
        const WRITING: [i32; 5] = [778, 1034, 1290, 1546, 4874];
        let Some(inner) = error.sqlite_error() else { return Error::Failed(Box::new(error)) };
        match (inner.code, inner.extended_code) {
            (ErrorCode::DiskFull, _) => Error::Full,
            (ErrorCode::OperationInterrupted, _) => Error::Timeout,
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Error::Busy,
            // For the database, a quota, a limit on file sizes and a broken disk are all failed
            // writes. The error code of the system distinguishes them: the failed call has just set
            // it on this thread.
            (ErrorCode::CannotOpen, _) => by_cause(io::Error::last_os_error(), error),
            (_, code) if WRITING.contains(&code) => by_cause(io::Error::last_os_error(), error),
            _ => Error::Failed(Box::new(error)),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        let cause = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::from(error.kind()),
        };
        by_cause(cause, error)
    }
}

/// No room and no descriptors pass; everything else is a failure.
fn by_cause(cause: io::Error, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match (cause.kind(), cause.raw_os_error()) {
        (
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge,
            _,
        ) => Error::Full,
        (_, Some(ENFILE | EMFILE)) => Error::Busy,
        _ => Error::Failed(Box::new(error)),
    }
}
