//! A durable queue of events in a SQLite file, for receivers of webhooks.
//!
//! - [`Inbox::accept`] returns once the event is on the disk; concurrent calls share one
//!   sync. A known id is stored once.
//! - Workers take events with [`Inbox::next`], or [`Inbox::work`] runs a function on threads. A
//!   failed event is tried again with growing pauses; after the last attempt it is a dead letter.
//! - A crash while a handler runs repeats the call: at least once. [`Inbox::open_with`] runs a
//!   function inside the transaction that marks the event: its effects in the same file happen
//!   exactly once.
//! - One process at a time hands out the events of a file. Another one that opens it stores, lists
//!   and retries events, and continues when the first one has closed it or ended.
//! - Events of one resource are handed out one at a time. If a newer state of the resource was
//!   processed before, the event is marked or skipped ([`OutOfOrder`]).
//!
//! ```
//! use restive_kit::event::Received;
//! use restive_kit::inbox::{Accepted, Inbox, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let inbox = Inbox::open(&folder.path().join("inbox.db"), Options::default())?;
//! let event = Received::read(br#"{"id":"evt_1","type":"order.created"}"#.to_vec(), None)?;
//! assert_eq!(inbox.accept_blocking(event.clone())?, Accepted::New);
//! assert_eq!(inbox.accept_blocking(event)?, Accepted::Known);
//!
//! let lease = inbox.next_blocking(None).expect("an event is due");
//! assert_eq!(lease.id, "evt_1");
//! lease.done_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod clock;
mod file;
mod lease;
mod options;
mod processing;
mod queue;
mod scan;
mod slot;
mod sync;
mod watch;
mod workers;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::apply::{Failure, Handler};
pub use self::lease::{Event, Lease, Next};
pub use self::options::{Options, OutOfOrder, Retry};
pub use self::workers::Workers;
pub use rusqlite;

use self::queue::{Accept, Job, Queue};
use self::slot::{Wait, slot};
use crate::event::Received;

/// A durable queue. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Inbox {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Arc<Queue>,
    accept_within: Duration,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// What became of an accepted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It is stored and will be processed.
    New,
    /// It was received before. Nothing is to be done.
    Known,
    /// Its id was received before, with another body. It is recorded and will not be processed.
    Conflict,
}

/// Why the inbox cannot do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// SQLite or the disk. Nothing was stored.
    Storage(rusqlite::Error),
    /// The same, for all events of one batch. They may be stored; a later try tells.
    Batch(String),
    /// Too many events wait to be stored. A later try helps.
    Full,
    /// The disk was too slow. The event may be stored or not; a later try tells.
    Late,
    /// The inbox was closed, or failed while it did this. What was to be stored may be stored.
    Closed,
    /// The file is not an inbox.
    Foreign(&'static str),
    /// A thread could not be started.
    Thread(std::io::Error),
}

/// The state of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Waits for its next attempt.
    Pending = 0,
    Processed = 1,
    /// Failed too often. Stays until it is retried or dropped.
    Dead = 2,
    /// Not processed: a newer state of its resource was.
    Stale = 3,
    /// Given up by the operator.
    Dropped = 4,
}

impl State {
    fn from_number(number: i64) -> Self {
        match number {
            0 => Self::Pending,
            1 => Self::Processed,
            2 => Self::Dead,
            3 => Self::Stale,
            _ => Self::Dropped,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Pending => "pending",
            Self::Processed => "processed",
            Self::Dead => "dead",
            Self::Stale => "stale",
            Self::Dropped => "dropped",
        })
    }
}

/// Counts of an inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    pub pending: i64,
    /// Pending ones that were tried before.
    pub retrying: i64,
    pub dead: i64,
    /// Within the retention.
    pub processed: i64,
    /// Stale or dropped, within the retention.
    pub skipped: i64,
    /// Bodies that came with the id of another event; the newest 1,000.
    pub conflicts: i64,
    pub oldest_pending: Duration,
}

/// Which events [`Inbox::list`] returns, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub state: Option<State>,
    pub id: Option<String>,
    pub limit: u32,
}

/// One event of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    pub id: String,
    pub kind: Option<String>,
    pub resource: Option<String>,
    pub state: State,
    pub attempts: u32,
    /// Milliseconds since 1970.
    pub received_ms: i64,
    /// Of the next attempt, or when it ended.
    pub due_ms: i64,
    /// Of the last attempt.
    pub error: Option<String>,
}

impl Inbox {
    /// Opens or creates the file. Its folder must exist.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        Self::start(path, options, None)
    }

    /// The same, with a function that processes every event inside the transaction that marks it
    /// processed: what it writes to this file happens exactly once. It runs on the thread that
    /// stores events, so it must be short.
    ///
    /// ```
    /// use restive_kit::inbox::{Failure, Inbox, Options};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("inbox.db");
    /// let inbox = Inbox::open_with(&path, Options::default(), |database, event| {
    ///     database.execute_batch("CREATE TABLE IF NOT EXISTS orders (event TEXT)")?;
    ///     database.execute("INSERT INTO orders VALUES (?1)", [&event.id])?;
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with<F>(path: &Path, options: Options, handler: F) -> Result<Self, Error>
    where
        F: FnMut(&rusqlite::Connection, &Event) -> Result<(), Failure> + Send + 'static,
    {
        Self::start(path, options, Some(Box::new(handler)))
    }

    fn start(path: &Path, options: Options, handler: Option<Handler>) -> Result<Self, Error> {
        let file = file::open(path)?;
        let accept_within = options.accept_within;
        let (queue, threads) = writer::start(path, file, options, handler)?;
        Ok(Self { inner: Arc::new(Inner { queue, accept_within, threads }) })
    }

    /// Stores an event; returns when it is durable.
    pub async fn accept(&self, event: Received) -> Result<Accepted, Error> {
        self.begin_accept(event, true)?.await.unwrap_or(Err(Error::Closed))
    }

    /// The same for an event from another source than a delivery, such as a list of events of the
    /// provider: only its id is compared, since its body may be written in another way.
    pub async fn accept_listed(&self, event: Received) -> Result<Accepted, Error> {
        self.begin_accept(event, false)?.await.unwrap_or(Err(Error::Closed))
    }

    pub fn accept_blocking(&self, event: Received) -> Result<Accepted, Error> {
        let wait = self.begin_accept(event, true)?;
        wait.block_until(None).unwrap_or(Err(Error::Closed))
    }

    fn begin_accept(
        &self,
        event: Received,
        check_digest: bool,
    ) -> Result<Wait<Result<Accepted, Error>>, Error> {
        let (answer, wait) = slot();
        let deadline = Instant::now() + self.inner.accept_within;
        let accept = Accept { event, check_digest, deadline, answer };
        self.inner.queue.push_accept(accept)?;
        Ok(wait)
    }

    /// The next event that is due, as soon as there is one. The future may be dropped. Dropping the
    /// lease without a result counts as a failure.
    pub fn next(&self) -> Next {
        Next::new(self.inner.queue.clone())
    }

    /// The same on a thread that may block. None if no event is due before the deadline, or the
    /// inbox was closed.
    pub fn next_blocking(&self, deadline: Option<Instant>) -> Option<Lease> {
        self.next().block_until(deadline)
    }

    /// Runs a function for every event, on this many threads. A panic counts as a failure.
    pub fn work<F>(&self, threads: usize, handler: F) -> Result<Workers, Error>
    where
        F: Fn(&Event) -> Result<(), Failure> + Send + Sync + 'static,
    {
        Workers::start(self.clone(), threads, Arc::new(handler))
    }

    pub async fn stats(&self) -> Result<Stats, Error> {
        self.ask(file::stats).await
    }

    pub async fn list(&self, filter: Filter) -> Result<Vec<Listed>, Error> {
        self.ask(move |file, _| file::list(file, &filter)).await
    }

    /// The body of an event that is not processed.
    pub async fn body(&self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        let id = id.to_owned();
        self.ask(move |file, _| file::body(file, &id)).await
    }

    /// Has an event tried now, pending or dead. False if there is none with this id.
    pub async fn retry(&self, id: &str) -> Result<bool, Error> {
        let id = id.to_owned();
        Ok(self.ask(move |file, _| file::retry(file, Some(&id))).await? > 0)
    }

    /// Has all dead letters tried now. Returns how many there are.
    pub async fn retry_dead(&self) -> Result<usize, Error> {
        self.ask(|file, _| file::retry(file, None)).await
    }

    /// Gives up an event that is pending or dead. Its id stays known, so that it is not accepted
    /// again. False if there is none.
    pub async fn give_up(&self, id: &str) -> Result<bool, Error> {
        let id = id.to_owned();
        Ok(self.ask(move |file, now| file::drop_event(file, &id, now)).await? > 0)
    }

    /// A position that a follower has stored under this name.
    pub async fn position(&self, name: &str) -> Result<Option<String>, Error> {
        let name = name.to_owned();
        self.ask(move |file, _| file::position(file, &name)).await
    }

    /// Stores a position durably. Names that begin with `inbox.` are those of the inbox itself.
    pub async fn set_position(&self, name: &str, value: &str) -> Result<(), Error> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.ask(move |file, _| file::set_position(file, &name, &value)).await
    }

    /// Stops: what waits to be stored is stored, events in progress may still be finished, and no
    /// further event is handed out.
    pub fn close(&self) {
        self.inner.queue.close();
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&rusqlite::Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, wait) = slot();
        let job = Job::Ask(Box::new(move |file, now| {
            let _ = answer.send(question(file, now).map_err(Error::Storage));
        }));
        self.inner.queue.push(job)?;
        wait.await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.end();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by the thread itself, in a function of the caller.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(error) => write!(out, "the inbox cannot be read or written: {error}"),
            Self::Batch(error) => write!(out, "the inbox cannot be written: {error}"),
            Self::Full => write!(out, "too many events wait to be stored"),
            Self::Late => write!(out, "the disk did not store the event in time"),
            Self::Closed => write!(out, "the inbox is closed"),
            Self::Foreign(what) => write!(out, "the file {what}"),
            Self::Thread(error) => write!(out, "a thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_panics_is_answered_with_closed_and_the_next_one_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let inbox = Inbox::open(&folder.path().join("inbox.db"), Options::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let panicking = inbox.ask::<()>(|_, _| panic!("a question of this test"));
            let asked = tokio::time::timeout(Duration::from_secs(30), panicking).await;
            assert!(matches!(asked, Ok(Err(Error::Closed))), "{asked:?}");
            assert_eq!(inbox.stats().await.unwrap(), Stats::default());
        });
    }
}
