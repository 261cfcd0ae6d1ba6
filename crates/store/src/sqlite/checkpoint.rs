//! Checkpoints, on a thread and a connection of their own: pages move from the log file into the
//! database without holding up a commit or a read. The same thread keeps the mark of what was
//! acknowledged. Knows the files and the readers at rest.

use super::acknowledged::{Mark, MarkFile};
use super::shared::Shared;
use super::{Role, connection, tail};
use crate::{Error, Repeats};
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How often the thread looks at the log file.
const LOOK: Duration = Duration::from_millis(100);
/// Growth of the log file that is worth a checkpoint.
pub const WORTH_BYTES: u64 = 4 << 20;
/// From here on commits are made to wait for a moment, so that the file starts anew.
const LARGE_BYTES: u64 = 32 << 20;
/// From here on long reads wait, too: one account that always has one under way must not make the
/// file grow for ever. In this crate's own tests it is less than the limit before it, so that they
/// see what this one does.
const HUGE_BYTES: u64 = if cfg!(test) { WORTH_BYTES } else { 128 << 20 };
/// After that was in vain, since another process reads, long reads are left alone for this long.
const LEAVE_ALONE: Duration = Duration::from_secs(30);
/// That moment: a long reader (a backup) must not turn it into seconds.
const STALL: Duration = Duration::from_millis(20);
/// Tries to begin the file again while long reads wait, of `STALL` each.
const RESTARTS: usize = 20;
/// The mark of what was acknowledged is written this often at most: it costs a sync.
const MARK: Duration = Duration::from_secs(1);

/// Ends its thread when dropped.
pub struct Checkpoints {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// A tool beside the server makes one at its end, for there may be no server; two that make
    /// them all the time would only be in each other's way.
    pub fn start(shared: &Arc<Shared>, role: Role) -> Result<Checkpoints, Error> {
        let connection = connection::connect(&shared.path)?;
        connection.pragma_update(None, "cache_size", -256)?;
        connection.busy_timeout(STALL)?;
        let mut thread = Thread {
            connection,
            done_at: None,
            mark_file: match role {
                Role::Server => Some(MarkFile::open(&shared.path)?),
                Role::Tool => None,
            },
            marked: Instant::now(),
            hold_after: Instant::now(),
            repeats: Repeats::new(),
            shared: shared.clone(),
        };
        thread.mark();
        let (stop, stopped) = sync_channel::<()>(0);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || {
                while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    thread.look();
                }
                thread.end();
            })
            .map_err(|error| Error::Failed(Box::new(error)))?;
        Ok(Checkpoints { stop: Some(stop), thread: Some(thread) })
    }
}

struct Thread {
    connection: Connection,
    /// Size and time of the log file when all of it was in the database.
    done_at: Option<(u64, Option<SystemTime>)>,
    /// `None` in a tool.
    mark_file: Option<MarkFile>,
    marked: Instant,
    /// No long read is made to wait before this.
    hold_after: Instant,
    repeats: Repeats,
    shared: Arc<Shared>,
}

impl Thread {
    fn look(&mut self) {
        if self.mark_file.is_none() {
            return;
        }
        if self.marked.elapsed() >= MARK {
            self.mark();
        }
        let Ok(file) = std::fs::metadata(tail::log_file(&self.shared.path)) else { return };
        let stamp = Some((file.len(), file.modified().ok()));
        if file.len() < WORTH_BYTES || self.done_at == stamp {
            return;
        }
        if file.len() > HUGE_BYTES && Instant::now() >= self.hold_after {
            self.start_anew();
        }
        let connection = &self.connection;
        let done = self.shared.readers.without_rest(|| {
            let done = checkpoint(connection, "PASSIVE");
            if file.len() > LARGE_BYTES {
                // What keeps it from starting anew now is tried again at the next look.
                let _ = checkpoint(connection, "RESTART");
            }
            done
        });
        // It made the file as short as the database was; a commit meanwhile may need more.
        if self.shared.room.ensure(connection).is_err() {
            tracing::debug!("no room in advance for the next checkpoint");
        }
        self.report(&done);
        self.done_at = stamp.filter(|_| matches!(done, Ok(Moved { whole: true, .. })));
    }

    /// Moves everything into the database while nobody reads for long, so that the next commit
    /// begins at the start of the log file.
    fn start_anew(&mut self) {
        let (connection, readers) = (&self.connection, &self.shared.readers);
        let restart = || matches!(checkpoint(connection, "RESTART"), Ok(Moved { busy: false, .. }));
        // A writer that commits without a pause may be in the way of a single try.
        let restarts = || readers.without_rest(|| (0..RESTARTS).any(|_| restart()));
        if readers.without_long_reads(restarts) != Some(true) {
            self.hold_after = Instant::now() + LEAVE_ALONE;
        }
    }

    /// The end in good order leaves everything in one file. Closing would not do it: the last
    /// connections to close may only read.
    fn end(&mut self) {
        let connection = &self.connection;
        let done = self.shared.readers.without_rest(|| checkpoint(connection, "TRUNCATE"));
        self.report(&done);
        self.mark();
    }

    /// Keeps what is durable by now.
    fn mark(&mut self) {
        self.marked = Instant::now();
        let Some(mark_file) = &mut self.mark_file else { return };
        let mark = Mark { epoch: self.shared.epoch, seq: self.shared.state.newest() };
        if let Err(error) = mark_file.keep(mark)
            && let Some(times) = self.repeats.note(&format!("mark: {error}"))
        {
            tracing::warn!(%error, times, "what was acknowledged could not be written down");
        }
    }

    fn report(&self, done: &Result<Moved, Error>) {
        match done {
            Ok(_) => {
                self.repeats.clear();
            }
            Err(error) => {
                if let Some(times) = self.repeats.note(&error.to_string()) {
                    tracing::warn!(%error, times, "a checkpoint failed");
                }
            }
        }
    }
}

/// What a checkpoint did.
struct Moved {
    /// Frames in the log file.
    frames: i64,
    /// All of them are in the database.
    whole: bool,
    /// Somebody else was in the way.
    busy: bool,
}

fn checkpoint(connection: &Connection, mode: &str) -> Result<Moved, Error> {
    Ok(connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (busy, frames, moved): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Moved { frames, whole: frames == moved, busy: busy != 0 })
    })?)
}

/// For the writer on a full disk: moves everything into the database, so that the next commit
/// begins at the start of the log file. Whether it will, and did not before.
pub fn restart(connection: &Connection, shared: &Shared) -> bool {
    let done = shared.readers.without_rest(|| {
        connection.busy_timeout(STALL)?;
        let done = checkpoint(connection, "RESTART");
        connection.busy_timeout(connection::BUSY)?;
        done
    });
    matches!(done, Ok(Moved { frames: 1.., whole: true, busy: false }))
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testbed::{Bed, HERE, within};
    use super::*;
    use serde_json::json;
    use std::io::Read as _;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// How long a read takes at the least: many commits.
    const READ: Duration = Duration::from_millis(100);
    /// How long a read waits for the next one to begin.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// Reads for as long as no later read has begun, so that there is always one.
    fn read(connection: &Connection, begun: &AtomicU64) -> Result<(), Error> {
        connection.execute_batch("BEGIN; SELECT count(*) FROM log")?;
        let (number, start) = (begun.fetch_add(1, Ordering::SeqCst) + 1, Instant::now());
        let last = || begun.load(Ordering::SeqCst) == number;
        while start.elapsed() < READ || last() && start.elapsed() < PATIENCE {
            // waits for: the next read
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(connection.execute_batch("COMMIT")?)
    }

    /// One account that always has a long read under way: the log file starts again all the same.
    #[tokio::test]
    async fn the_log_file_starts_again_although_long_reads_never_pause() {
        let bed = Bed::new("[collections.notes.fields]\ntext = 'string'\n");
        let (ended, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let reader = || {
            let (store, ended, begun) = (bed.store.clone(), ended.clone(), begun.clone());
            async move {
                while !ended.load(Ordering::SeqCst) {
                    let begun = begun.clone();
                    let _ = store.readers.run_for(HERE, move |c| read(c, &begun)).await;
                }
            }
        };
        let readers: Vec<_> = (0..3).map(|_| tokio::spawn(reader())).collect();
        let note = |bytes: usize| bed.create(HERE, "notes", json!({ "text": "x".repeat(bytes) }));
        let file = tail::log_file(&bed.store.shared.path);
        while std::fs::metadata(&file).unwrap().len() <= HUGE_BYTES {
            within(bed.put(note(100 << 10))).await;
        }
        // A log file that starts again has other salts in its head.
        let salts = || {
            let mut head = [0; 24];
            std::fs::File::open(&file).unwrap().read_exact(&mut head).unwrap();
            head[16..].to_vec()
        };
        let before = salts();
        let starts_again = async {
            // Without a pause, so that no checkpoint finds all of it in the database.
            while salts() == before {
                for task in bed.spawn((0..16).map(|_| note(10)).collect()) {
                    task.await.unwrap().unwrap().unwrap();
                }
            }
        };
        within(starts_again).await;
        ended.store(true, Ordering::SeqCst);
        for reader in readers {
            within(reader).await.unwrap();
        }
    }
}
