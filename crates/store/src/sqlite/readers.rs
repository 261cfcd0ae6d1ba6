//! Read-only connections and the threads for reads that may take long. Short reads borrow a
//! connection on the thread that asks; the rest queues here, each with a deadline: one queue per
//! account, served in turns, and no account ever has all threads. Knows no table.

use super::connection;
use super::fair::{FairQueue, Tenant};
use super::slots::Slots;
use crate::{BoxFuture, Error};
use model::Scope;
use parking_lot::{Condvar, Mutex, RwLock};
use rusqlite::Connection;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Connections kept for the next reader; each holds its page cache.
const IDLE_CONNECTIONS: usize = 6;
/// Threads for long reads. One account has at most half of them, two have at most five sixths: a
/// third account finds a free one.
const THREADS: usize = 6;
/// Long reads that run at the same time, a slice each: more would only take the cores from the
/// short ones.
const RUNNING: usize = 2;
/// Threads for long reads of the service itself, and those that run at the same time. They are its
/// own: timers and webhooks of everybody wait for these reads, and the database cannot interrupt
/// every read of an account (a search between two matches).
const SERVICE_THREADS: usize = 2;
const SERVICE_RUNNING: usize = 1;
/// How long a read runs before another one has its turn: about as long as a short read takes.
const SLICE: Duration = Duration::from_millis(1);
/// Long reads that may wait; half of them may be of one account.
const QUEUE: usize = 256;
/// How long a read may take, the wait included.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Steps of the database's machine between two looks at the clock: some tens of microseconds.
const STEPS: i32 = 5_000;

/// Connections that are open and idle.
pub struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Reader>>,
    /// Grows after every commit.
    changes: AtomicU64,
    /// While set, no connection rests inside a transaction.
    restless: AtomicBool,
    /// Whether connections may rest at all.
    rests: bool,
    /// Read-locked by every long read.
    long: RwLock<()>,
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
    pub fn new(path: PathBuf, rests: bool) -> Pool {
        let idle = Mutex::new(Vec::with_capacity(IDLE_CONNECTIONS));
        let (changes, restless) = (AtomicU64::new(0), AtomicBool::new(!rests));
        Pool { path, idle, changes, restless, rests, long: RwLock::new(()) }
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

    /// Runs a read in slices; it is interrupted at the deadline.
    fn until<T>(
        &self,
        deadline: Instant,
        (slots, tenant): (&Arc<Slots>, Tenant),
        read: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // First: one that waits here needs no slot, and those that end need theirs.
        let _long = self.long.read();
        let slot = Arc::new(slots.enter(tenant));
        if Instant::now() >= deadline {
            return Err(Error::Timeout);
        }
        let mut reader = self.take()?;
        reader.end()?;
        let (turn, mut end) = (AssertUnwindSafe(slot.clone()), Instant::now() + SLICE);
        let look = move || {
            let now = Instant::now();
            if now >= end {
                turn.pass();
                end = Instant::now() + SLICE;
            } else {
                // Short reads and the writer have the same cores.
                std::thread::yield_now();
            }
            now >= deadline
        };
        reader.connection.progress_handler(STEPS, Some(look))?;
        let result = read(&reader.connection);
        reader.connection.progress_handler(0, None::<fn() -> bool>)?;
        self.give_back(reader);
        drop(slot);
        result
    }

    /// Runs something that long reads would hold up: waits for those under way, and none begins
    /// meanwhile. `None` when one did not end in time.
    pub fn without_long_reads<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let alone = self.long.try_write_for(DEADLINE)?;
        let done = work();
        drop(alone);
        Some(done)
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
        let connection = connection::reader(&self.path)?;
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

type Job = Box<dyn FnOnce(&Pool, &Arc<Slots>) + Send>;

/// The threads for long reads; they end when this is dropped.
pub struct Readers {
    accounts: Arc<Work>,
    service: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
}

struct Work {
    state: Mutex<State>,
    /// Something was queued, or a thread has become free.
    ready: Condvar,
    slots: Arc<Slots>,
}

struct State {
    waiting: FairQueue<Job>,
    /// Threads that work for somebody.
    busy: HashMap<Tenant, usize>,
    idle: usize,
    closed: bool,
}

impl State {
    /// The next read whose account may have a thread: it may hold as many as it leaves idle.
    fn next(&mut self) -> Option<(Tenant, Job)> {
        let State { waiting, busy, idle, .. } = self;
        let left = idle.saturating_sub(1);
        let may =
            |tenant| tenant == Tenant::Service || busy.get(&tenant).is_none_or(|held| *held < left);
        let (tenant, job) = waiting.next(may)?;
        *busy.entry(tenant).or_default() += 1;
        *idle = left;
        Some((tenant, job))
    }

    fn done(&mut self, tenant: Tenant) {
        self.idle += 1;
        if let Some(held) = self.busy.get_mut(&tenant) {
            *held -= 1;
            if *held == 0 {
                self.busy.remove(&tenant);
            }
        }
    }
}

impl Readers {
    pub fn start(shared: &Arc<super::shared::Shared>) -> Result<Readers, Error> {
        let accounts = Work::new(THREADS, RUNNING);
        let service = Work::new(SERVICE_THREADS, SERVICE_RUNNING);
        let mut threads = Vec::new();
        let of_accounts = std::iter::repeat_n(&accounts, THREADS);
        for work in of_accounts.chain(std::iter::repeat_n(&service, SERVICE_THREADS)) {
            let (work, shared) = (work.clone(), shared.clone());
            let thread = std::thread::Builder::new()
                .name("store-read".into())
                .spawn(move || work.run(&shared.readers))
                .map_err(|error| Error::Failed(Box::new(error)))?;
            threads.push(thread);
        }
        Ok(Readers { accounts, service, threads })
    }

    /// Queues a read of the service itself; `Busy` when too many wait.
    pub fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        self.queue(Tenant::Service, read)
    }

    /// Queues a read of an account; `Busy` when too many of its own wait.
    pub fn run_for<T: Send + 'static>(
        &self,
        scope: Scope,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        self.queue(Tenant::from(scope), read)
    }

    fn queue<T: Send + 'static>(
        &self,
        tenant: Tenant,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let deadline = Instant::now() + DEADLINE;
        let (answer, result) = oneshot::channel();
        let job: Job = Box::new(move |pool, slots| {
            if !answer.is_closed() {
                let _ = answer.send(pool.until(deadline, (slots, tenant), read));
            }
        });
        let work = match tenant {
            Tenant::Service => &self.service,
            Tenant::Account(_) => &self.accounts,
        };
        let queued = work.state.lock().waiting.push(tenant, job);
        work.ready.notify_one();
        Box::pin(async move {
            match queued {
                true => result
                    .await
                    .unwrap_or_else(|_| Err(Error::Failed("the read was abandoned".into()))),
                false => Err(Error::Busy),
            }
        })
    }
}

impl Work {
    fn new(threads: usize, running: usize) -> Arc<Work> {
        let waiting = FairQueue::new(QUEUE);
        let state = State { waiting, busy: HashMap::new(), idle: threads, closed: false };
        let (state, ready) = (Mutex::new(state), Condvar::new());
        Arc::new(Work { state, ready, slots: Slots::new(running) })
    }

    fn run(&self, pool: &Pool) {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return;
            }
            let Some((tenant, job)) = state.next() else {
                self.ready.wait(&mut state);
                continue;
            };
            drop(state);
            // A read that panics drops its answer, which tells the caller; the thread goes on.
            if catch_unwind(AssertUnwindSafe(|| job(pool, &self.slots))).is_err() {
                tracing::error!("a read panicked");
            }
            state = self.state.lock();
            state.done(tenant);
            if !state.waiting.is_empty() {
                // Others may have more threads now.
                self.ready.notify_all();
            }
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for work in [&self.accounts, &self.service] {
            work.state.lock().closed = true;
            work.ready.notify_all();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testbed::{Bed, within};
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn reads_of_accounts_that_cannot_be_interrupted_do_not_delay_the_service() {
        let bed = Bed::new("[collections.books.fields]\ntitle = 'string'\n");
        let (running, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut reads = Vec::new();
        for account in 10..10 + THREADS as i64 {
            let (running, over) = (running.clone(), over.clone());
            reads.push(bed.store.readers.run_for(Scope::new(account, true), move |_| {
                running.fetch_add(1, Ordering::SeqCst);
                while !over.load(Ordering::SeqCst) && Instant::now() < deadline {
                    std::thread::yield_now();
                }
                Ok(())
            }));
        }
        while running.load(Ordering::SeqCst) < RUNNING {
            assert!(Instant::now() < deadline, "the reads never begin");
            tokio::task::yield_now().await;
        }
        let answer = within(bed.store.readers.run(|_| Ok(7))).await;
        over.store(true, Ordering::SeqCst);
        assert_eq!(answer.unwrap(), 7);
        for read in reads {
            let _ = within(read).await;
        }
    }
}
