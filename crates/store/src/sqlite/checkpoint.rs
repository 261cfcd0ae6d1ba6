//! Checkpoints, on a thread and a connection of their own: pages move from the log file into the
//! database without holding up a commit or a read. Knows the file and the readers at rest.

use super::shared::Shared;
use super::{Role, open};
use crate::Error;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread looks at the log file.
const LOOK: Duration = Duration::from_millis(100);
/// Growth of the log file that is worth a checkpoint.
pub const WORTH_BYTES: u64 = 4 << 20;
/// From here on commits are made to wait for a moment, so that the file starts anew.
const LARGE_BYTES: u64 = 32 << 20;
/// That moment: a long reader (a backup) must not turn it into seconds.
const STALL: Duration = Duration::from_millis(20);

/// Ends its thread when dropped.
pub struct Checkpoints {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// A tool beside the server makes one at its end, for there may be no server; two that make
    /// them all the time would only be in each other's way.
    pub fn start(shared: &Arc<Shared>, role: Role) -> Result<Checkpoints, Error> {
        let connection = open::connect(&shared.path)?;
        connection.pragma_update(None, "cache_size", -256)?;
        connection.busy_timeout(STALL)?;
        let log = log_file(&shared.path);
        let shared = shared.clone();
        let (stop, stopped) = sync_channel::<()>(0);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || {
                let mut done_at = None;
                while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    let Ok(file) = std::fs::metadata(&log) else { continue };
                    let stamp = Some((file.len(), file.modified().ok()));
                    if role == Role::Tool || file.len() < WORTH_BYTES || done_at == stamp {
                        continue;
                    }
                    let whole = shared.readers.without_rest(|| {
                        let whole = checkpoint(&connection, "PASSIVE");
                        if file.len() > LARGE_BYTES {
                            checkpoint(&connection, "RESTART");
                        }
                        whole
                    });
                    done_at = stamp.filter(|_| whole);
                }
                // The end in good order leaves everything in one file. Closing would not do it: the
                // last connections to close may only read.
                shared.readers.without_rest(|| checkpoint(&connection, "TRUNCATE"));
            })
            .map_err(|error| Error::Failed(Box::new(error)))?;
        Ok(Checkpoints { stop: Some(stop), thread: Some(thread) })
    }
}

/// Whether everything in the log file is in the database now.
fn checkpoint(connection: &Connection, mode: &str) -> bool {
    let done = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
    });
    done.unwrap_or_else(|error| {
        tracing::warn!(%error, "a checkpoint failed");
        false
    })
}

fn log_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
