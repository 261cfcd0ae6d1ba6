//! Read-only connections and the threads for reads that may take long. Short reads borrow a
//! connection on the thread that asks; the rest queues here, each with a deadline. Knows no table.

use super::{open, shown};
use crate::{BoxFuture, Error};
use model::version::Versions;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Connections kept for the next reader; each holds its page cache.
const IDLE_CONNECTIONS: usize = 6;
/// Threads for long reads: more would only take the cores from the short ones.
const THREADS: usize = 2;
/// Long reads that may wait.
const QUEUE: usize = 256;
/// How long a read may take, the wait included.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Steps of the database's machine between two looks at the clock: some tens of microseconds.
const STEPS: i32 = 5_000;

/// Connections that are open and idle.
pub struct Pool {
    path: PathBuf,
    /// For what lists of older versions ask.
    versions: Arc<Versions>,
    idle: Mutex<Vec<Reader>>,
    /// Grows after every commit.
    changes: AtomicU64,
    /// While set, no connection rests inside a transaction.
    restless: AtomicBool,
    /// Whether connections may rest at all.
    rests: bool,
}

/// A connection at rest. It stays inside its read transaction as long as nothing is committed:
/// beginning and ending one takes two locks of the file system, as long as the read itself.
struct Reader {
    connection: Connection,
    /// The count of changes when its transaction began; `None` outside of one.
    since: Option<u64>,
}

impl Reader {
    /// Leaves the transaction, so that the next read sees the newest state.
    fn end(&mut self) -> Result<(), Error> {
        if self.since.take().is_some() {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }
}

impl Pool {
    /// Connections of a process beside the server do not rest (`rests`): the server, whose
    /// checkpoints they would hold up, cannot ask them to leave.
    pub fn new(path: PathBuf, versions: Arc<Versions>, rests: bool) -> Pool {
        let idle = Mutex::new(Vec::with_capacity(IDLE_CONNECTIONS));
        let (changes, restless) = (AtomicU64::new(0), AtomicBool::new(!rests));
        Pool { path, versions, idle, changes, restless, rests }
    }

    /// To be called after every commit, before anyone can learn of it: reads that begin from now on
    /// see it.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Runs a short read on a borrowed connection. Sees all that this process has committed.
    pub fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let mut reader = self.take()?;
        let changes = self.changes.load(Ordering::Acquire);
        if reader.since != Some(changes) {
            reader.end()?;
            reader.connection.prepare_cached("BEGIN")?.execute([])?;
            reader.since = Some(changes);
        }
        let result = read(&reader.connection)?;
        self.give_back(reader);
        Ok(result)
    }

    /// Like `with`, and sees what other processes have committed up to now as well.
    pub fn fresh<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let mut reader = self.take()?;
        reader.end()?;
        let result = read(&reader.connection)?;
        self.give_back(reader);
        Ok(result)
    }

    /// Runs a read that is interrupted at the deadline.
    fn until<T>(
        &self,
        deadline: Instant,
        read: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if Instant::now() >= deadline {
            return Err(Error::Timeout);
        }
        let mut reader = self.take()?;
        reader.end()?;
        reader.connection.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
        let result = read(&reader.connection);
        reader.connection.progress_handler(0, None::<fn() -> bool>)?;
        self.give_back(reader);
        result
    }

    /// Runs something that transactions at rest would hold up: none rests meanwhile.
    pub fn without_rest<T>(&self, work: impl FnOnce() -> T) -> T {
        self.restless.store(true, Ordering::SeqCst);
        self.idle.lock().retain_mut(|reader| reader.end().is_ok());
        let done = work();
        self.restless.store(!self.rests, Ordering::SeqCst);
        done
    }

    fn take(&self) -> Result<Reader, Error> {
        let idle = self.idle.lock().pop();
        if let Some(reader) = idle {
            return Ok(reader);
        }
        let connection = open::reader(&self.path)?;
        shown::teach(&connection, &self.versions)?;
        Ok(Reader { connection, since: None })
    }

    fn give_back(&self, mut reader: Reader) {
        // Looked at under the lock, which `without_rest` takes after setting it.
        let mut idle = self.idle.lock();
        if self.restless.load(Ordering::SeqCst) && reader.end().is_err() {
            return;
        }
        // One that is inside a transaction it should not be in failed half-way: it is dropped.
        if reader.since.is_none() && !reader.connection.is_autocommit() {
            return;
        }
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(reader);
        }
    }
}

type Job = Box<dyn FnOnce(&Pool) + Send>;

/// The threads for long reads; they end when this is dropped.
pub struct Readers {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub fn start(shared: &Arc<super::shared::Shared>) -> Result<Readers, Error> {
        let (jobs, queue) = sync_channel::<Job>(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (queue, shared) = (queue.clone(), shared.clone());
            let thread = std::thread::Builder::new()
                .name("store-read".into())
                .spawn(move || work(&queue, &shared.readers))
                .map_err(|error| Error::Failed(Box::new(error)))?;
            threads.push(thread);
        }
        Ok(Readers { jobs: Some(jobs), threads })
    }

    /// Queues a read; `Busy` when too many wait.
    pub fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let deadline = Instant::now() + DEADLINE;
        let (answer, result) = oneshot::channel();
        let job: Job = Box::new(move |pool| {
            if !answer.is_closed() {
                let _ = answer.send(pool.until(deadline, read));
            }
        });
        let sent = match &self.jobs {
            Some(jobs) => jobs.try_send(job),
            None => return Box::pin(async { Err(Error::Failed("the store is closed".into())) }),
        };
        Box::pin(async move {
            match sent {
                Ok(()) => result
                    .await
                    .unwrap_or_else(|_| Err(Error::Failed("the read was abandoned".into()))),
                Err(TrySendError::Full(_)) => Err(Error::Busy),
                Err(TrySendError::Disconnected(_)) => {
                    Err(Error::Failed("the readers have ended".into()))
                }
            }
        })
    }
}

fn work(queue: &Mutex<Receiver<Job>>, pool: &Pool) {
    loop {
        let job = queue.lock().recv();
        match job {
            // A read that panics drops its answer, which tells the caller; the thread goes on.
            Ok(job) => {
                let run = std::panic::AssertUnwindSafe(|| job(pool));
                if std::panic::catch_unwind(run).is_err() {
                    tracing::error!("a read panicked");
                }
            }
            Err(_) => return,
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
