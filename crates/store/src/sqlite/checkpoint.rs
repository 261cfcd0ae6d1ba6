//! Checkpoints, on a thread and a connection of their own: pages move from the log file into the
//! database without holding up a commit or a read. The same thread keeps the mark of what was
//! acknowledged. Knows the files and the readers at rest.

use super::acknowledged::{Mark, MarkFile};
use super::shared::Shared;
use super::{Role, connection};
use crate::{Error, Repeats};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the thread looks at the log file.
const LOOK: Duration = Duration::from_millis(100);
/// Sizes for a disk with less free space than this are small.
const ROOMY_BYTES: u64 = 1 << 30;
/// What a checkpoint that holds up commits may have to move: some milliseconds.
const REST_BYTES: u64 = 4 << 20;
/// How many checkpoints before it try to leave no more than that while a writer goes on.
const APPROACHES: usize = 4;
/// After that was in vain, since another process reads, long reads are left alone for this long.
const LEAVE_ALONE: Duration = Duration::from_secs(30);
/// How long commits wait so that the file starts again: a long reader (a backup) must not turn it
/// into seconds.
const STALL: Duration = Duration::from_millis(20);
/// Tries of the writer to make room on a full disk, of `STALL` each.
const ROOM_TRIES: usize = 5;
/// Tries to begin the file again while long reads wait, of `STALL` each.
const RESTARTS: usize = 20;
/// The mark of what was acknowledged is written this often at most: it costs a sync.
const MARK: Duration = Duration::from_secs(1);

/// Sizes of the log file, in bytes.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// What is not in the database yet and worth a checkpoint. Each one competes with commits for
    /// the disk, so they are few where there is room.
    worth: u64,
    /// From here on commits wait for a moment, so that the file starts again.
    large: u64,
    /// From here on long reads wait, too: one account that always has one under way must not make
    /// the file grow for ever. In this crate's own tests it is less than the size before it, so
    /// that they see what this one does.
    huge: u64,
    /// A file that starts again is cut to this. Where there is room, it keeps its length: a cut
    /// takes longer than many commits, and each commit that makes the file longer writes the
    /// length, too.
    pub kept: u64,
}

impl Sizes {
    const SMALL: Sizes =
        Sizes { worth: 4 << 20, large: 8 << 20, huge: Sizes::huge(128 << 20), kept: 4 << 20 };
    const ROOMY: Sizes =
        Sizes { worth: 16 << 20, large: 64 << 20, huge: Sizes::huge(192 << 20), kept: 64 << 20 };

    const fn huge(bytes: u64) -> u64 {
        if cfg!(test) { 4 << 20 } else { bytes }
    }

    /// For a database in this file.
    pub fn of(path: &Path) -> Sizes {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match rustix::fs::statvfs(folder.unwrap_or(Path::new("."))) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOMY_BYTES => Sizes::ROOMY,
            _ => Sizes::SMALL,
        }
    }
}

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
        // Reads a page, so that the connection knows its log file.
        connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
        let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let mut thread = Thread {
            connection,
            page_bytes: page_bytes.into(),
            sizes: Sizes::of(&shared.path),
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
    page_bytes: u64,
    sizes: Sizes,
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
        let Ok(log) = checkpoint(&self.connection, "NOOP") else { return };
        let (length, left) = (log.frames * self.page_bytes, log.left() * self.page_bytes);
        let starts_again = length >= self.sizes.large.min(self.sizes.huge);
        if left == 0 || left < self.sizes.worth && !starts_again {
            return;
        }
        if length >= self.sizes.huge && Instant::now() >= self.hold_after {
            self.start_anew();
        }
        let done = self.shared.readers.without_rest(|| self.approach(length >= self.sizes.large));
        // It made the file as short as the database was; a commit meanwhile may need more.
        if self.shared.room.ensure(&self.connection).is_err() {
            tracing::debug!("no room in advance for the next checkpoint");
        }
        self.report(&done);
    }

    /// Moves pages while commits go on. If the log file is to start again, commits wait for the
    /// last pages only: what they wait for is small.
    fn approach(&self, starts_again: bool) -> Result<Moved, Error> {
        let mut done = checkpoint(&self.connection, "PASSIVE")?;
        if starts_again {
            for _ in 1..APPROACHES {
                let log = checkpoint(&self.connection, "NOOP")?;
                if log.left() * self.page_bytes <= REST_BYTES {
                    break;
                }
                done = checkpoint(&self.connection, "PASSIVE")?;
            }
            // What keeps it from starting anew now is tried again at the next look.
            let _ = checkpoint(&self.connection, "RESTART");
        }
        Ok(done)
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
    frames: u64,
    /// How many of them are in the database.
    moved: u64,
    /// Somebody else was in the way.
    busy: bool,
}

impl Moved {
    /// How many frames are not in the database yet.
    fn left(&self) -> u64 {
        self.frames.saturating_sub(self.moved)
    }
}

fn checkpoint(connection: &Connection, mode: &str) -> Result<Moved, Error> {
    Ok(connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (busy, frames, moved): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        // Both are -1 where no log file is known yet.
        let count = |frames| u64::try_from(frames).unwrap_or(0);
        Ok(Moved { frames: count(frames), moved: count(moved), busy: busy != 0 })
    })?)
}

/// Moves into the database what no reader keeps from it.
pub fn passive(connection: &Connection) -> Result<(), Error> {
    checkpoint(connection, "PASSIVE").map(drop)
}

/// For the writer on a full disk: moves everything into the database, so that the next commit
/// begins at the start of the log file. Whether it will, and did not before.
pub fn restart(connection: &Connection, shared: &Shared) -> bool {
    let done = shared.readers.without_rest(|| {
        connection.busy_timeout(STALL)?;
        let mut done = checkpoint(connection, "RESTART");
        // The checkpoint of the other thread may be under way: it makes room, too.
        for _ in 1..ROOM_TRIES {
            if !matches!(&done, Ok(Moved { busy: true, .. })) {
                break;
            }
            std::thread::sleep(STALL);
            done = checkpoint(connection, "RESTART");
        }
        connection.busy_timeout(connection::BUSY)?;
        done
    });
    matches!(done, Ok(log) if log.frames > 0 && log.left() == 0 && !log.busy)
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
    use super::super::tail;
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
        while std::fs::metadata(&file).unwrap().len() <= Sizes::ROOMY.huge {
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
