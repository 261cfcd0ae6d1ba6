//! Makes commits durable in a thread of its own: while the disk syncs one batch, the writer applies
//! the next. A receipt is answered after the sync that follows its commit. SQLite's log file is
//! what is synced; a checkpoint syncs it, too, before it moves anything.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::slot::Answer;
use super::{Accepted, Error};

/// Batches that wait for a sync. Beyond it the writer waits, and its next batch grows: each commit
/// costs pages of its own.
const MAX_BATCHES: usize = 1;

/// A receipt that is committed, with its answer.
pub(super) type Receipt = (Answer<Result<Accepted, Error>>, Accepted);

/// The way to the thread. When it is dropped, the thread ends after the last batch.
pub(super) struct Syncs(Arc<Shared>);

struct Shared {
    log: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Vec<Receipt>>,
    is_syncing: bool,
    /// Why a sync failed. The kernel may report a lost write only once, so later syncs of the same
    /// file prove nothing.
    failed: Option<String>,
    ended: bool,
}

impl Syncs {
    /// For the database at this path.
    pub fn start(database: &Path) -> io::Result<(Syncs, JoinHandle<()>)> {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { log: log.into(), state, changed });
        let owned = shared.clone();
        let thread = std::thread::Builder::new().name("inbox-sync".into());
        let thread = thread.spawn(move || owned.run())?;
        Ok((Syncs(shared), thread))
    }

    /// Answers these receipts when they are durable.
    pub fn push(&self, receipts: Vec<Receipt>) {
        let mut state = self.0.lock();
        while state.batches.len() >= MAX_BATCHES {
            state = self.0.wait(state);
        }
        state.batches.push_back(receipts);
        self.0.changed.notify_all();
    }

    /// Waits until every batch is durable, or a sync has failed.
    pub fn settle(&self) {
        let mut state = self.0.lock();
        while state.is_syncing || !state.batches.is_empty() {
            state = self.0.wait(state);
        }
    }

    /// Whether a sync failed since the last call of `mended`.
    pub fn has_failed(&self) -> bool {
        self.0.lock().failed.is_some()
    }

    /// Everything in the log was written and synced elsewhere.
    pub fn mended(&self) {
        self.0.lock().failed = None;
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut log = None;
        while let Some(batches) = self.take() {
            let synced = self.sync(&mut log);
            let failure = {
                let mut state = self.lock();
                state.is_syncing = false;
                if let Err(error) = synced {
                    state.failed = Some(format!("the disk did not store the events: {error}"));
                }
                self.changed.notify_all();
                state.failed.clone()
            };
            for (answer, accepted) in batches.into_iter().flatten() {
                let _ = answer.send(match &failure {
                    None => Ok(accepted),
                    Some(reason) => Err(Error::Batch(reason.clone())),
                });
            }
        }
    }

    /// All batches that wait. None at the end.
    fn take(&self) -> Option<VecDeque<Vec<Receipt>>> {
        let mut state = self.lock();
        while state.batches.is_empty() {
            if state.ended {
                return None;
            }
            state = self.wait(state);
        }
        state.is_syncing = true;
        let batches = std::mem::take(&mut state.batches);
        self.changed.notify_all();
        Some(batches)
    }

    /// The file exists since the first commit, and stays as long as the writer has the database
    /// open.
    fn sync(&self, log: &mut Option<File>) -> io::Result<()> {
        let file = match log {
            Some(file) => file,
            None => log.insert(OpenOptions::new().write(true).open(&self.log)?),
        };
        file.sync_data()
    }
}
