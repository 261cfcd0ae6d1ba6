//! Read-only connections and the threads for reads that may take long. Short reads borrow a
//! connection on the thread that asks; the rest queues here, each with a deadline. Knows no table.

use super::open;
use crate::{BoxFuture, Error};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
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
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub fn new(path: PathBuf) -> Pool {
        Pool { path, idle: Mutex::new(Vec::with_capacity(IDLE_CONNECTIONS)) }
    }

    /// Runs a read on a borrowed connection.
    pub fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let connection = self.take()?;
        let result = read(&connection);
        self.give_back(connection);
        result
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
        let mut connection = self.take()?;
        connection.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
        let result = read(&connection);
        connection.progress_handler(0, None::<fn() -> bool>)?;
        self.give_back(connection);
        result
    }

    fn take(&self) -> Result<Connection, Error> {
        let idle = self.idle.lock().pop();
        match idle {
            Some(connection) => Ok(connection),
            None => open::reader(&self.path),
        }
    }

    fn give_back(&self, connection: Connection) {
        // One that is still inside a transaction failed half-way; it would hold back the log file.
        if !connection.is_autocommit() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(connection);
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
