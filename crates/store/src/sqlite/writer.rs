//! The one thread that writes. It drains its queue, applies all of it in one transaction, commits
//! durably, then answers everyone: while the disk syncs, the next batch gathers. No timer, no lock.
//! Between batches it feeds the search indexes and notices what other processes wrote.

use super::apply::{self, Outcome, Turn};
use super::retention::Expiry;
use super::shared::Shared;
use super::{idempotency, log, outbox, retention, search, usage};
use crate::usage::Used;
use crate::{Error, Expired, Settlement};
use model::{Timestamp, Write};
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Writes in one commit. More would make everyone wait for the slowest (notes: 1024 in flight gave
/// half the rate of 256).
const BATCH: usize = 256;
/// Writes that may wait.
const QUEUE: usize = 4096;
/// How long the queue must be empty before the search indexes are fed unasked.
const QUIET: Duration = Duration::from_millis(20);
/// How often an idle writer looks for commits of other processes.
const LOOK: Duration = Duration::from_millis(100);
/// After a failure: a full disk must not be tried, and logged, fifty times a second.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// Events the search may lag behind before it is fed between busy batches.
const SEARCH_LAG: i64 = 2_000;
/// How often expired idempotency rows are looked for, while none are found.
const EXPIRY: Duration = Duration::from_secs(60);

/// What is still to be delivered is looked for this often while events are removed; it only grows.
const NEEDED_FOR: Duration = Duration::from_secs(10);

enum Job {
    Write(Box<Write>, oneshot::Sender<Outcome>),
    /// What became of deliveries.
    Settle(Box<Settlement>, oneshot::Sender<Result<(), Error>>),
    /// Remove events from before a moment, and from before another what was not delivered; so many
    /// at most.
    Expire(Timestamp, Timestamp, usize, oneshot::Sender<Result<Expired, Error>>),
    /// Requests by account and version that were added.
    Usage(Vec<Used>, oneshot::Sender<Result<(), Error>>),
    /// Tell me when the search indexes have read the log up to here.
    Search(i64, oneshot::Sender<Result<(), Error>>),
    /// Does a commit work?
    Probe(oneshot::Sender<Result<(), Error>>),
}

/// The way to the writer; its thread ends when this is dropped.
pub struct Handle {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Handle {
    pub fn start(connection: Connection, shared: Arc<Shared>) -> Result<Handle, Error> {
        let (jobs, queue) = sync_channel(QUEUE);
        let mut writer = Writer {
            connection,
            shared: shared.clone(),
            queue,
            searches: Vec::new(),
            data_version: 0,
            expiry: Instant::now(),
            needed: None,
            feed_after: Instant::now(),
        };
        writer.data_version = writer.read_data_version()?;
        let thread = std::thread::Builder::new()
            .name("store-write".into())
            .spawn(move || writer.run())
            .map_err(|error| Error::Failed(Box::new(error)))?;
        Ok(Handle { jobs: Some(jobs), thread: Some(thread), shared })
    }

    pub async fn write(&self, write: Write) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        self.shared.counters.queue.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.send(Job::Write(Box::new(write), answer)) {
            self.shared.counters.queue.fetch_sub(1, Ordering::Relaxed);
            return Err(error);
        }
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }

    pub async fn settle(&self, settlement: Settlement) -> Result<(), Error> {
        let (answer, settled) = oneshot::channel();
        self.send(Job::Settle(Box::new(settlement), answer))?;
        settled.await.unwrap_or_else(|_| Err(ended()))
    }

    pub async fn expire(
        &self,
        moment: Timestamp,
        backlog: Timestamp,
        max: usize,
    ) -> Result<Expired, Error> {
        let (answer, expired) = oneshot::channel();
        self.send(Job::Expire(moment, backlog, max, answer))?;
        expired.await.unwrap_or_else(|_| Err(ended()))
    }

    pub async fn add_usage(&self, added: Vec<Used>) -> Result<(), Error> {
        let (answer, kept) = oneshot::channel();
        self.send(Job::Usage(added, answer))?;
        kept.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Waits until the search indexes contain everything up to `seq`.
    pub async fn search_reaches(&self, seq: i64) -> Result<(), Error> {
        if self.shared.search_position.load(Ordering::Acquire) >= seq {
            return Ok(());
        }
        let (answer, reached) = oneshot::channel();
        self.send(Job::Search(seq, answer))?;
        reached.await.unwrap_or_else(|_| Err(ended()))
    }

    pub async fn probe(&self) -> Result<(), Error> {
        let (answer, works) = oneshot::channel();
        self.send(Job::Probe(answer))?;
        works.await.unwrap_or_else(|_| Err(ended()))
    }

    fn send(&self, job: Job) -> Result<(), Error> {
        match self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => Err(Error::Busy),
            Some(Err(TrySendError::Disconnected(_))) | None => Err(ended()),
        }
    }
}

fn ended() -> Error {
    Error::Failed("the writer has ended".into())
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Writer {
    connection: Connection,
    shared: Arc<Shared>,
    queue: Receiver<Job>,
    /// Searches that wait for the indexes to reach a sequence.
    searches: Vec<(i64, oneshot::Sender<Result<(), Error>>)>,
    data_version: i64,
    expiry: Instant,
    /// The first event that is still to be delivered, as of a moment.
    needed: Option<(Instant, i64)>,
    /// No feeding unasked before this.
    feed_after: Instant,
}

/// Whoever waits for what.
type Waiting<T, A> = Vec<(Box<T>, oneshot::Sender<A>)>;

/// What is committed together, with those who wait for it.
#[derive(Default)]
struct Batch {
    writes: Waiting<Write, Outcome>,
    settlements: Waiting<Settlement, Result<(), Error>>,
}

impl Batch {
    fn len(&self) -> usize {
        self.writes.len() + self.settlements.len()
    }
}

impl Writer {
    fn run(mut self) {
        let mut batch = Batch::default();
        loop {
            let behind = search::lag(&self.shared) > 0;
            let wait = match (self.searches.is_empty(), behind) {
                (false, _) => Duration::ZERO,
                (true, true) => QUIET,
                (true, false) => LOOK,
            };
            let first = self.queue.recv_timeout(wait);
            let idle = matches!(first, Err(RecvTimeoutError::Timeout));
            match first {
                Ok(job) => self.take(job, &mut batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while batch.len() < BATCH {
                let Ok(job) = self.queue.try_recv() else { break };
                self.take(job, &mut batch);
            }
            if batch.len() == 0 {
                self.notice_others();
            } else {
                self.commit(&mut batch);
            }
            let lag = search::lag(&self.shared);
            let unasked = (idle || lag > SEARCH_LAG) && Instant::now() >= self.feed_after;
            if lag > 0 && (unasked || !self.searches.is_empty()) {
                self.feed_search();
            }
            self.answer_searches();
        }
    }

    fn take(&mut self, job: Job, batch: &mut Batch) {
        match job {
            Job::Write(write, answer) => {
                self.shared.counters.queue.fetch_sub(1, Ordering::Relaxed);
                batch.writes.push((write, answer));
            }
            Job::Settle(settlement, answer) => batch.settlements.push((settlement, answer)),
            Job::Expire(moment, backlog, max, answer) => {
                let known = self.needed.filter(|(at, _)| at.elapsed() < NEEDED_FOR);
                let expired = self.alone(|connection, shared| {
                    let needed = match known {
                        Some((_, needed)) => needed,
                        None => retention::needed(connection, shared)?,
                    };
                    let searched = search::done_to(shared);
                    let expiry = Expiry { moment, backlog, searched, max, needed };
                    Ok((retention::expire(connection, shared, &expiry)?, needed))
                });
                if let (None, Ok((_, needed))) = (known, &expired) {
                    self.needed = Some((Instant::now(), *needed));
                }
                let _ = answer.send(expired.map(|(expired, _)| expired));
            }
            Job::Usage(added, answer) => {
                let kept = self.alone(|connection, _| usage::add(connection, &added));
                let _ = answer.send(kept);
            }
            Job::Search(seq, answer) => self.searches.push((seq, answer)),
            Job::Probe(answer) => {
                let works = self.probe();
                let _ = answer.send(works);
            }
        }
    }

    /// Commits a batch and answers everyone in it.
    fn commit(&mut self, batch: &mut Batch) {
        let Batch { writes, settlements } = std::mem::take(batch);
        let wishes: Vec<&Write> = writes.iter().map(|(write, _)| &**write).collect();
        let settled: Vec<&Settlement> = settlements.iter().map(|(s, _)| &**s).collect();
        let whole = self.transact(&wishes, &settled);
        // One write that the database cannot take must not spoil the others: each alone.
        let single = wishes.len() + settled.len() == 1;
        let apart = !single && matches!(whole, Err(Error::Failed(_)));
        let outcomes: Vec<Outcome> = match &whole {
            Err(_) if apart => wishes.into_iter().map(|write| self.write_alone(write)).collect(),
            Err(error) => wishes.iter().map(|_| Err(same(error))).collect(),
            Ok(_) => Vec::new(),
        };
        let answers: Vec<Result<(), Error>> = match &whole {
            Ok(_) => settled.iter().map(|_| Ok(())).collect(),
            Err(_) if apart => {
                settled.into_iter().map(|s| self.transact(&[], &[s]).map(drop)).collect()
            }
            Err(error) => settled.iter().map(|_| Err(same(error))).collect(),
        };
        for ((_, answer), outcome) in writes.into_iter().zip(whole.unwrap_or(outcomes)) {
            let _ = answer.send(outcome);
        }
        for ((_, answer), settled) in settlements.into_iter().zip(answers) {
            let _ = answer.send(settled);
        }
    }

    fn write_alone(&mut self, write: &Write) -> Outcome {
        match self.transact(&[write], &[]) {
            Ok(mut outcomes) => outcomes.pop().unwrap_or_else(|| Err(ended())),
            Err(error) => Err(error),
        }
    }

    /// Something that is no write and no event, in a transaction of its own.
    fn alone<T>(
        &mut self,
        work: impl FnOnce(&Connection, &Shared) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.shared.check_file()?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = work(&self.connection, &self.shared);
        let ended = match &done {
            Ok(_) => self.connection.execute_batch("COMMIT"),
            Err(_) => self.connection.execute_batch("ROLLBACK"),
        };
        self.shared.readers.changed();
        done.and_then(|done| Ok(ended.map(|()| done)?))
    }

    /// One transaction over several writes: all that succeed are durable when this returns.
    fn transact(
        &mut self,
        writes: &[&Write],
        settlements: &[&Settlement],
    ) -> Result<Vec<Outcome>, Error> {
        let result = self.try_transact(writes, settlements);
        if let Err(error) = &result {
            if !self.connection.is_autocommit() {
                // Fails only if the database ended the transaction by itself, which is as good.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            tracing::error!(%error, writes = writes.len(), "a commit failed; nothing was kept");
        }
        self.shared.unwell.store(result.is_err(), Ordering::Release);
        result
    }

    fn try_transact(
        &mut self,
        writes: &[&Write],
        settlements: &[&Settlement],
    ) -> Result<Vec<Outcome>, Error> {
        self.shared.check_file()?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let foreign = self.others_wrote()?;
        let (newest, newest_time) = log::newest(&self.connection)?;
        if foreign {
            // Durable already, whatever becomes of ours.
            self.adopt(newest);
        }
        let mut turn = Turn {
            connection: &self.connection,
            shared: &self.shared,
            next_seq: newest + 1,
            newest_time,
            touched: Vec::with_capacity(writes.len()),
            nudged: false,
        };
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            outcomes.push(apply::apply(&mut turn, write)?);
            // A batch is milliseconds of work: whoever reads on this core need not wait for all of
            // it.
            std::thread::yield_now();
        }
        for settlement in settlements {
            outbox::settle(&self.connection, settlement)?;
        }
        let Turn { nudged, touched, .. } = turn;
        let (last, now) = (turn.next_seq - 1, turn.newest_time);
        if Instant::now() >= self.expiry && !idempotency::expire(&self.connection, Timestamp(now))?
        {
            self.expiry = Instant::now() + EXPIRY;
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.publish(last, &touched, writes.len());
        if !settlements.is_empty() {
            self.shared.settled.send_modify(|count| *count += 1);
        }
        if nudged {
            self.shared.nudged.send_modify(|count| *count += 1);
        }
        Ok(outcomes)
    }

    /// What is durable becomes known: first the sequences, then the wake-up.
    fn publish(
        &self,
        last: i64,
        touched: &[(model::Scope, model::CollectionIx, i64)],
        writes: usize,
    ) {
        let counters = &self.shared.counters;
        // First of all: whoever learns of this commit below must find it when reading.
        self.shared.readers.changed();
        counters.commits.fetch_add(1, Ordering::Relaxed);
        counters.writes.fetch_add(writes as u64, Ordering::Relaxed);
        let class = writes.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(counter) = counters.batch_sizes.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if touched.is_empty() {
            return;
        }
        self.shared.seqs.record(touched);
        let keys = |ix: usize| {
            let collection = &self.shared.schema.collections[ix];
            collection.internal && matches!(&*collection.name, "keys" | "accounts")
        };
        if touched.iter().any(|(_, ix, _)| keys(*ix)) {
            self.shared.key_generation.fetch_add(1, Ordering::AcqRel);
        }
        let timed = |ix: usize| !self.shared.schema.collections[ix].timed.is_empty();
        if touched.iter().any(|(_, ix, _)| timed(*ix)) {
            self.shared.timers.send_modify(|count| *count += 1);
        }
        self.shared.newest.send_replace(last);
    }

    /// Another process may have committed: take over what it wrote.
    fn adopt(&self, newest: i64) {
        self.shared.readers.changed();
        self.shared.seqs.forget(newest);
        self.shared.key_generation.fetch_add(1, Ordering::AcqRel);
        self.shared.nudged.send_modify(|count| *count += 1);
        self.shared.newest.send_if_modified(|known| {
            let grew = newest > *known;
            *known = newest.max(*known);
            grew
        });
    }

    fn notice_others(&mut self) {
        let looked = self.others_wrote().and_then(|foreign| match foreign {
            true => Ok(Some(log::newest(&self.connection)?.0)),
            false => Ok(None),
        });
        match looked {
            Ok(Some(newest)) => self.adopt(newest),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot look for commits of other processes"),
        }
    }

    /// The number changes only for commits of other connections; no other one of ours writes.
    fn others_wrote(&mut self) -> Result<bool, Error> {
        let version = self.read_data_version()?;
        let foreign = version != self.data_version;
        self.data_version = version;
        Ok(foreign)
    }

    fn read_data_version(&self) -> Result<i64, Error> {
        let mut statement = self.connection.prepare_cached("PRAGMA data_version")?;
        Ok(statement.query_row([], |row| row.get(0))?)
    }

    fn feed_search(&mut self) {
        if let Err(error) = search::feed(&self.connection, &self.shared) {
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            tracing::error!(%error, "the search index could not be fed");
            self.feed_after = Instant::now() + FEED_PAUSE;
            for (_, answer) in self.searches.drain(..) {
                let _ = answer.send(Err(same(&error)));
            }
        }
    }

    fn answer_searches(&mut self) {
        let reached = self.shared.search_position.load(Ordering::Acquire);
        for place in (0..self.searches.len()).rev() {
            if self.searches[place].0 <= reached {
                let (_, answer) = self.searches.swap_remove(place);
                let _ = answer.send(Ok(()));
            }
        }
    }

    /// After a failed commit: does one work again?
    fn probe(&mut self) -> Result<(), Error> {
        if self.shared.unwell.load(Ordering::Acquire) {
            self.connection
                .execute("INSERT OR REPLACE INTO meta VALUES ('probe', randomblob(8))", [])?;
            self.shared.unwell.store(false, Ordering::Release);
        }
        Ok(())
    }
}

/// Errors are not `Clone`, and everyone of a batch is told the same.
fn same(error: &Error) -> Error {
    match error {
        Error::Full => Error::Full,
        Error::Busy => Error::Busy,
        Error::Timeout => Error::Timeout,
        Error::SnapshotTooOld => Error::SnapshotTooOld,
        Error::Refused(reasons) => Error::Refused(reasons.clone()),
        Error::Failed(source) => Error::Failed(source.to_string().into()),
    }
}
