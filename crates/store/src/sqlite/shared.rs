//! What the threads of one store have in common: the schema, where the tables are, and the figures
//! that answer without a query. Holds no connection but the readers' pool.

use super::layout::Table;
use super::readers::Pool;
use super::room::Room;
use crate::usage::UsedInAll;
use crate::{Error, Figures, Watchdog};
use model::version::Versions;
use model::{CollectionIx, Schema, Scope, Timestamp};
use parking_lot::{Mutex, RwLock};
use rusqlite::ErrorCode;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::watch;

/// Tells the time; tests give their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Entries of the collection sequences before they are forgotten and the floor is raised.
const COLLECTION_SEQS: usize = 100_000;

pub struct Shared {
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
    /// The age of remembered answers goes by this one: it runs on evenly when the clock is set.
    pub steady: Clock,
    pub readers: Pool,
    /// Sequence of the newest durable event.
    pub newest: watch::Sender<i64>,
    /// Counts commits that may have set a timer.
    pub timers: watch::Sender<u64>,
    /// Grows with each settlement; starts at the time of opening, so that it never repeats.
    pub settled: watch::Sender<u64>,
    /// Counts wishes for a delivery to be tried again.
    pub nudged: watch::Sender<u64>,
    pub seqs: CollectionSeqs,
    pub key_generation: AtomicU64,
    /// The last scope whose timers had their turn.
    pub timer_turn: AtomicI64,
    /// Sequence up to which the search indexes have read the log.
    pub search_position: AtomicI64,
    /// The last commit failed; health tries one before it answers.
    pub unwell: AtomicBool,
    pub watchdog: Arc<Watchdog>,
    /// When something was last erased, in this process.
    pub erased_at: Mutex<Option<Instant>>,
    #[cfg(test)]
    pub faults: super::faults::Faults,
    pub counters: Counters,
    /// Last, so that it is closed after every connection.
    pub room: Room,
}

#[derive(Default)]
pub struct Counters {
    pub commits: AtomicU64,
    pub writes: AtomicU64,
    pub queue: AtomicU64,
    pub batch_sizes: [AtomicU64; 9],
    pub timers_failed: AtomicU64,
}

/// Device and number: what a file is beside its name.
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

    pub fn newest(&self) -> i64 {
        *self.newest.borrow()
    }

    pub fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        let searched = self.tables.iter().any(|table| table.search.is_some());
        let lag = self.newest() - self.search_position.load(Ordering::Acquire);
        Figures {
            commits: read(&self.counters.commits),
            writes: read(&self.counters.writes),
            queue: read(&self.counters.queue),
            search_lag: if searched { lag.max(0) } else { 0 },
            database_bytes: bytes,
            timers_failed: read(&self.counters.timers_failed),
            batch_sizes: std::array::from_fn(|place| read(&self.counters.batch_sizes[place])),
        }
    }
}

/// Sequence of the last change per scope and collection. What is not in the map has not changed
/// since the floor.
pub struct CollectionSeqs(RwLock<Changes>);

struct Changes {
    floor: i64,
    last: HashMap<(Scope, CollectionIx), i64>,
}

impl CollectionSeqs {
    pub fn new(floor: i64) -> CollectionSeqs {
        CollectionSeqs(RwLock::new(Changes { floor, last: HashMap::new() }))
    }

    pub fn of(&self, scope: Scope, collection: CollectionIx) -> i64 {
        let changes = self.0.read();
        changes.last.get(&(scope, collection)).copied().unwrap_or(changes.floor)
    }

    pub fn record(&self, touched: &[(Scope, CollectionIx, i64)]) {
        let mut changes = self.0.write();
        for &(scope, collection, seq) in touched {
            let known = changes.last.contains_key(&(scope, collection));
            if changes.last.len() >= COLLECTION_SEQS && !known {
                // Whoever is forgotten counts as changed just now.
                changes.last.clear();
                changes.floor = changes.floor.max(seq);
            }
            changes.last.insert((scope, collection), seq);
        }
    }

    /// Somebody else wrote: anything may have changed up to `seq`.
    pub fn forget(&self, seq: i64) {
        let mut changes = self.0.write();
        changes.last.clear();
        changes.floor = changes.floor.max(seq);
    }
}

/// What the database said, in terms of who can do something about it.
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        /// Writing, syncing (a file, a folder), truncating, and growing the shared memory.
        const WRITING: [i32; 5] = [778, 1034, 1290, 1546, 4874];
        let Some(inner) = error.sqlite_error() else { return Error::Failed(Box::new(error)) };
        match (inner.code, inner.extended_code) {
            (ErrorCode::DiskFull, _) => Error::Full,
            (ErrorCode::OperationInterrupted, _) => Error::Timeout,
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Error::Busy,
            // A quota, a limit on file sizes and a broken disk all are failed writes to the
            // database. The system's own code tells them apart: the call that failed set it a
            // moment ago on this thread, and nothing failed since.
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
