//! The one thread that writes. It takes a batch from the queues of all accounts in turns, applies
//! it in one transaction, commits durably, then answers every caller: while the disk syncs, the
//! next batch gathers. Between batches it feeds the search indexes, continues erasures and notices
//! what other processes wrote. A panic fails only the write that caused it; the thread goes on.
//! Knows no database: a `Backend` has the transactions.

mod backend;
mod expiring;
mod handle;
mod pace;
mod queue;
mod turns;

pub use backend::{Backend, Foreign};
pub use expiring::{Expiry, Slice};
pub use handle::Handle;
pub use turns::Turns;

use crate::commit::{self, Commit, Effect, WriteResult};
use crate::fair::Tenant;
use crate::state::State;
use crate::{Error, Heartbeat, Repeats, Settlement, UnknownTimer};
use expiring::Expiring;
use model::Write;
use pace::Pace;
use queue::{Job, Queue};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Writes in one commit. More would make everyone wait for the slowest (notes: 1024 in flight gave
/// half the rate of 256).
const BATCH: usize = 256;
/// Writes that may wait; half of them may be of one account.
const QUEUE: usize = 8192;
/// How long the queue must be empty before the search indexes are fed unasked.
const QUIET: Duration = Duration::from_millis(20);
/// How often an idle writer looks for commits of other processes.
const LOOK: Duration = Duration::from_millis(100);
/// After a failure: a full disk must not be tried, and logged, fifty times a second.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// Events the search may lag behind before it is fed between busy batches.
const SEARCH_LAG: i64 = 2_000;
/// How long a search waits for the indexes: another account may have written more than they read in
/// this time. Then it is answered from what they have, and says so.
const SEARCH_WAIT: Duration = Duration::from_secs(2);
/// Written to see whether a full disk has room again: as much as a few writes need.
const PROBE_BYTES: i64 = 64 << 10;
/// Between two slices of an erasure, while no writes come.
const ERASURE_PAUSE: Duration = Duration::from_millis(1);
/// Between two parts of one event that is removed in parts: other writes come in between.
const PART_PAUSE: Duration = Duration::from_millis(3);
/// How often expired idempotency rows are looked for, while none are found.
const EXPIRY: Duration = Duration::from_secs(60);
/// Between two slices of them at least; as long as the last one took, if that is longer. So writes
/// have half of the time or more.
const EXPIRY_PAUSE: Duration = Duration::from_millis(5);

struct Writer<B> {
    backend: B,
    state: Arc<State>,
    queue: Arc<Queue>,
    /// Searches that wait for the indexes to reach a sequence.
    searches: Vec<(i64, oneshot::Sender<bool>)>,
    expiry: Instant,
    expiring: Expiring,
    /// No feeding before this: the last attempt failed.
    feed_after: Instant,
    /// Failures of commits.
    failures: Repeats,
    /// Failures to feed the search index.
    feeds: Repeats,
    /// Whether an erasure may be unfinished, whose turn it is, and no slice before this.
    erasing: bool,
    turns: Turns,
    erase_after: Instant,
    serves: bool,
    /// The part of the transaction that is in progress: if it fails, that is the cause.
    stage: Stage,
    /// Whether the last transaction failed by a panic.
    panicked: bool,
    pace: Pace,
    heartbeat: Heartbeat,
    search_heartbeat: Heartbeat,
}

/// A part of a transaction, by its place in the batch.
#[derive(Clone, Copy)]
enum Stage {
    Write(usize),
    Settlement(usize),
    Elsewhere,
}

/// A job with the way to answer its caller.
struct Waiting<T, A> {
    tenant: Tenant,
    job: Box<T>,
    answer: oneshot::Sender<A>,
}

/// Jobs that are committed together.
#[derive(Default)]
struct Batch {
    writes: Vec<Waiting<Write, WriteResult>>,
    settlements: Vec<Waiting<Settlement, Result<(), Error>>>,
}

impl Batch {
    fn len(&self) -> usize {
        self.writes.len() + self.settlements.len()
    }
}

impl<B: Backend> Writer<B> {
    fn new(backend: B, queue: Arc<Queue>, state: Arc<State>, serves: bool) -> Writer<B> {
        Writer {
            backend,
            queue,
            searches: Vec::new(),
            expiry: Instant::now(),
            expiring: Expiring::new(),
            feed_after: Instant::now(),
            failures: Repeats::new(),
            feeds: Repeats::new(),
            // What the last process left unfinished goes on.
            erasing: serves,
            turns: Turns::new(),
            erase_after: Instant::now(),
            serves,
            stage: Stage::Elsewhere,
            panicked: false,
            pace: Pace::new(),
            heartbeat: state.watchdog.watch("writer"),
            search_heartbeat: state.watchdog.watch("search"),
            state,
        }
    }

    fn run(mut self) {
        while let Some(jobs) = self.queue.take(BATCH, self.wait_time()) {
            self.heartbeat.beat();
            // Callers whose jobs are lost by a panic get an error: their channels are dropped.
            if catch_unwind(AssertUnwindSafe(|| self.step(jobs))).is_err() {
                tracing::error!("the writer panicked between two commits; it goes on");
                self.backend.leave();
            }
        }
    }

    /// How long to wait for a job before something else is to be done.
    fn wait_time(&self) -> Duration {
        let behind = self.state.search_lag() > 0;
        match (self.searches.is_empty(), behind) {
            (false, _) => Duration::ZERO,
            _ if self.erases() => ERASURE_PAUSE,
            (true, true) => QUIET,
            (true, false) => LOOK,
        }
        .min(self.until_expiry())
    }

    /// How long until expired responses are looked for.
    fn until_expiry(&self) -> Duration {
        match self.serves {
            true => self.expiry.saturating_duration_since(Instant::now()),
            false => EXPIRY,
        }
    }

    fn step(&mut self, jobs: Vec<(Tenant, Job)>) {
        let idle = jobs.is_empty();
        let mut batch = Batch::default();
        for (tenant, job) in jobs {
            self.take(tenant, job, &mut batch);
        }
        if batch.len() == 0 {
            self.notice_others();
        } else {
            self.commit(batch);
        }
        if self.erases() {
            self.continue_erasure();
        }
        if self.until_expiry().is_zero() {
            self.expire_keys();
        }
        let lag = self.state.search_lag();
        let wanted = idle || lag > SEARCH_LAG || !self.searches.is_empty();
        if lag > 0 && wanted && Instant::now() >= self.feed_after {
            self.search_heartbeat.beat();
            self.feed_search();
            self.search_heartbeat.rest();
        }
        self.answer_searches();
    }

    /// Whether a slice of an erasure is due.
    fn erases(&self) -> bool {
        self.erasing && self.serves && Instant::now() >= self.erase_after
    }

    fn continue_erasure(&mut self) {
        static FAILURES: Repeats = Repeats::new();
        let mut turns = std::mem::replace(&mut self.turns, Turns::new());
        let left = self.alone(|backend| backend.erase(&mut turns));
        // No read returns what is still to be erased, so one that fails can wait.
        let goes_on = match left {
            Ok(left) => {
                self.erasing = left;
                !left || turns.is_taken()
            }
            Err(error) => {
                if let Some(times) = FAILURES.note(&error.to_string()) {
                    tracing::error!(%error, times, "an erasure cannot go on now");
                }
                turns.failed() && matches!(error, Error::Failed(_))
            }
        };
        if !goes_on {
            self.erase_after = Instant::now() + FEED_PAUSE;
        }
        self.turns = turns;
    }

    fn take(&mut self, tenant: Tenant, job: Job, batch: &mut Batch) {
        match job {
            Job::Write(job, answer) => {
                self.state.counters.queue.fetch_sub(1, Ordering::Relaxed);
                batch.writes.push(Waiting { tenant, job, answer });
            }
            Job::Settle(job, answer) => batch.settlements.push(Waiting { tenant, job, answer }),
            Job::Expire(moment, backlog, max, answer) => {
                let _ = answer.send(self.expire(moment, backlog, max));
            }
            Job::SetAside(unknown, answer) => {
                let _ = answer.send(self.set_aside(&unknown));
            }
            Job::Usage(added, answer) => {
                #[cfg(test)]
                let state = self.state.clone();
                let _ = answer.send(self.alone(|backend| {
                    #[cfg(test)]
                    state.faults.strike("usage");
                    backend.add_usage(&added)
                }));
            }
            Job::Search(seq, answer) => self.searches.push((seq, answer)),
            Job::Probe(answer) => {
                let works = self.probe();
                let _ = answer.send(works);
            }
        }
    }

    /// Commits the part of a batch that has its turn.
    fn commit(&mut self, batch: Batch) {
        let Batch { writes, settlements } = batch;
        let writes = self.without_slow(writes);
        self.commit_all(Batch { writes, settlements });
    }

    /// Commits a batch and answers everyone in it. One write that fails must not spoil the others:
    /// it is tried alone, and so are the next ones of its account, later.
    fn commit_all(&mut self, batch: Batch) {
        let Batch { mut writes, mut settlements } = batch;
        while !(writes.is_empty() && settlements.is_empty()) {
            self.heartbeat.beat();
            let written: Vec<&Write> = writes.iter().map(|waiting| &*waiting.job).collect();
            let settled: Vec<&Settlement> = settlements.iter().map(|w| &*w.job).collect();
            let single = written.len() + settled.len() == 1;
            match self.transact(&written, &settled) {
                Ok(outcomes) => {
                    self.put_back(writes.split_off(outcomes.len()), &writes);
                    answer(writes, outcomes);
                    let done = settlements.iter().map(|_| Ok(())).collect();
                    return answer(settlements, done);
                }
                Err(Error::Failed(_)) if !single && !self.backend.failed_at_end() => {
                    match self.stage {
                        Stage::Write(place) => writes = self.without(writes, place),
                        Stage::Settlement(place) => {
                            let failed = settlements.remove(place);
                            let done = self.transact(&[], &[&failed.job]).map(drop);
                            let _ = failed.answer.send(done);
                        }
                        Stage::Elsewhere => return self.in_halves(writes, settlements),
                    }
                }
                Err(error) => {
                    if let ([failed], Error::Failed(_)) = (&writes[..], &error) {
                        self.pace.separate(failed.tenant);
                    }
                    let outcomes = writes.iter().map(|_| Err(same(&error))).collect();
                    let done = settlements.iter().map(|_| Err(same(&error))).collect();
                    answer(writes, outcomes);
                    return answer(settlements, done);
                }
            }
        }
    }

    /// The batch without the account of the write that failed: that write is tried alone, the
    /// account's others wait for the next batch.
    fn without(
        &mut self,
        writes: Vec<Waiting<Write, WriteResult>>,
        place: usize,
    ) -> Vec<Waiting<Write, WriteResult>> {
        let tenant = writes[place].tenant;
        let (mut left, mut others) = (Vec::new(), Vec::new());
        for (at, waiting) in writes.into_iter().enumerate() {
            if at == place {
                let outcome = self.write_alone(&waiting.job);
                let _ = waiting.answer.send(outcome);
            } else if waiting.tenant == tenant {
                others.push(waiting);
            } else {
                left.push(waiting);
            }
        }
        self.requeue(others, &HashSet::from([tenant]));
        left
    }

    /// Nobody knows which of several has failed: each half is tried, so that a few commits are
    /// enough for all others.
    fn in_halves(
        &mut self,
        mut writes: Vec<Waiting<Write, WriteResult>>,
        mut settlements: Vec<Waiting<Settlement, Result<(), Error>>>,
    ) {
        let mut second = Batch::default();
        if writes.is_empty() {
            second.settlements = settlements.split_off(settlements.len().div_ceil(2));
        } else if settlements.is_empty() {
            second.writes = writes.split_off(writes.len().div_ceil(2));
        } else {
            second.settlements = std::mem::take(&mut settlements);
        }
        for half in [Batch { writes, settlements }, second] {
            self.commit_all(half);
        }
    }

    /// Writes that a batch had no time for go back to the head of their queues.
    fn put_back(
        &self,
        later: Vec<Waiting<Write, WriteResult>>,
        served: &[Waiting<Write, WriteResult>],
    ) {
        if !later.is_empty() {
            self.requeue(later, &served.iter().map(|waiting| waiting.tenant).collect());
        }
    }

    /// The part of a batch that is committed now: the first write alone if its account is slow,
    /// otherwise all writes of accounts that are not. The others wait for the next batch.
    fn without_slow(
        &self,
        writes: Vec<Waiting<Write, WriteResult>>,
    ) -> Vec<Waiting<Write, WriteResult>> {
        let is_slow = |waiting: &Waiting<_, _>| self.pace.is_slow(waiting.tenant);
        let Some(first) = writes.first().filter(|_| writes.iter().any(is_slow)) else {
            return writes;
        };
        // Nobody else waits: the time of a batch is limit enough.
        if writes.iter().all(|waiting| waiting.tenant == first.tenant) {
            return writes;
        }
        let (now, later): (Vec<_>, Vec<_>) = match is_slow(first) {
            true => {
                let mut writes = writes;
                let later = writes.split_off(1);
                (writes, later)
            }
            false => writes.into_iter().partition(|waiting| !is_slow(waiting)),
        };
        self.put_back(later, &now);
        now
    }

    fn requeue(&self, writes: Vec<Waiting<Write, WriteResult>>, served: &HashSet<Tenant>) {
        self.state.counters.queue.fetch_add(writes.len() as u64, Ordering::Relaxed);
        let job = |Waiting { tenant, job, answer }| (tenant, Job::Write(job, answer));
        self.queue.put_back(writes.into_iter().map(job).collect(), served);
    }

    fn write_alone(&mut self, write: &Write) -> WriteResult {
        match self.transact(&[write], &[]) {
            Ok(mut outcomes) => outcomes.pop().unwrap_or_else(|| Err(ended())),
            Err(error) => Err(error),
        }
    }

    /// Something that is no write and no event, in a transaction of its own. A disk that has no
    /// room for it gets a second chance: this may be what frees pages.
    fn alone<T>(&mut self, mut work: impl FnMut(&mut B) -> Result<T, Error>) -> Result<T, Error> {
        if self.state.failing.load(Ordering::Acquire) {
            self.backend.make_room();
        }
        let mut done = self.attempt_alone(&mut work);
        if let Err(error) = &done
            && self.backend.recovers(error)
        {
            done = self.attempt_alone(&mut work);
        }
        if done.is_err() {
            self.state.failing.store(true, Ordering::Release);
        }
        done
    }

    fn attempt_alone<T>(
        &mut self,
        work: &mut impl FnMut(&mut B) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let backend = &mut self.backend;
        backend.prepare()?;
        let done = backend.begin(false).and_then(|()| guarded(|| work(backend)));
        let done = done.and_then(|done| {
            backend.end()?;
            Ok(done)
        });
        backend.changed();
        done.map_err(|error| backend.roll_back(error))
    }

    /// One transaction over several writes: all that succeed are durable when this returns.
    fn transact(
        &mut self,
        writes: &[&Write],
        settlements: &[&Settlement],
    ) -> Result<Vec<WriteResult>, Error> {
        let mut result = self.attempt(writes, settlements);
        if let Err(error) = &result
            && self.backend.recovers(error)
        {
            result = self.attempt(writes, settlements);
        }
        self.report(&result);
        // A settlement may fit where a write does not: it proves nothing.
        if result.is_err() || !writes.is_empty() {
            self.state.failing.store(result.is_err(), Ordering::Release);
        }
        if let ([write], true) = (writes, self.panicked)
            && let Some(Effect::SetTimerAside(timer)) =
                commit::timer_set_aside(&self.state.schema, write)
            && let Err(error) = self.set_aside(&[timer])
        {
            tracing::error!(%error, "a timer cannot be set aside");
        }
        result
    }

    fn set_aside(&mut self, timers: &[UnknownTimer]) -> Result<(), Error> {
        self.alone(|backend| backend.set_aside(timers))?;
        timers.iter().for_each(UnknownTimer::report);
        let counters = &self.state.counters;
        counters.timers_failed.fetch_add(timers.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn attempt(
        &mut self,
        writes: &[&Write],
        settlements: &[&Settlement],
    ) -> Result<Vec<WriteResult>, Error> {
        (self.stage, self.panicked) = (Stage::Elsewhere, false);
        self.backend.prepare()?;
        let work = AssertUnwindSafe(|| self.try_transact(writes, settlements));
        let caught = catch_unwind(work);
        self.panicked = caught.is_err();
        let result = caught.unwrap_or_else(|_| Err(panicked()));
        result.map_err(|error| self.backend.roll_back(error))
    }

    /// Applies the writes, fewer than all of them when the time is up, and the settlements.
    fn try_transact(
        &mut self,
        writes: &[&Write],
        settlements: &[&Settlement],
    ) -> Result<Vec<WriteResult>, Error> {
        let appends = !writes.is_empty();
        self.backend.begin(appends)?;
        let foreign = self.backend.others_committed(appends)?;
        let newest = self.backend.newest()?;
        if let Foreign::Anything = foreign {
            // Durable already, whatever becomes of ours.
            self.adopt(newest.0);
        }
        let State { schema, versions, steady, .. } = &*self.state;
        let rows = self.backend.rows();
        let mut commit = Commit::new(rows, schema, versions, newest, steady());
        commit.limit(Pace::limits());
        let outcomes = self.pace.apply(&mut commit, writes, &mut self.stage)?;
        let progress = commit.finish();
        for (place, settlement) in settlements.iter().enumerate() {
            self.stage = Stage::Settlement(place);
            #[cfg(test)]
            self.state.faults.strike("settle");
            self.backend.settle(settlement)?;
        }
        self.stage = Stage::Elsewhere;
        self.erasing |= progress.erases || foreign.erases();
        self.backend.end()?;
        // It is durable: nothing that fails from here on may have it written once more.
        let _ = guarded(|| {
            #[cfg(test)]
            self.state.faults.strike("publish");
            // First: a caller that learns of this commit below must find it when it reads.
            self.backend.changed();
            self.state.publish(&progress, outcomes.len());
            if !progress.touched.is_empty() {
                self.backend.committed(progress.next_seq - 1);
            }
            Ok(())
        });
        // A requested retry changes a delivery, as a settlement does, and has no event either.
        if !settlements.is_empty() || progress.retry_requested {
            self.state.settled.send_modify(|count| *count += 1);
        }
        if progress.retry_requested {
            // An event that was done with is needed again.
            self.expiring.forget_needed();
            self.state.retry_requests.send_modify(|count| *count += 1);
        }
        Ok(outcomes)
    }

    /// Removes some expired responses, never in the transaction of a write.
    fn expire_keys(&mut self) {
        let (began, now) = (Instant::now(), (self.state.steady)());
        let pause = match self.alone(|backend| backend.expire_keys(now)) {
            Ok(true) => began.elapsed().max(EXPIRY_PAUSE),
            Ok(false) => EXPIRY,
            Err(error) => {
                tracing::error!(%error, "expired idempotency keys cannot be removed");
                EXPIRY
            }
        };
        self.expiry = Instant::now() + pause;
    }

    /// Another process has committed: take over what it wrote.
    fn adopt(&self, newest: i64) {
        self.backend.changed();
        self.state.adopt(newest);
    }

    fn notice_others(&mut self) {
        let looked = self.backend.others_committed(false).and_then(|foreign| {
            self.erasing |= foreign.erases();
            match foreign {
                Foreign::Anything => Ok(Some(self.backend.newest()?.0)),
                Foreign::Nothing | Foreign::Known { .. } => Ok(None),
            }
        });
        match looked {
            Ok(Some(newest)) => self.adopt(newest),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot look for commits of other processes"),
        }
    }

    /// Logs that commits fail, or work again.
    fn report<T>(&self, result: &Result<T, Error>) {
        match result {
            Ok(_) => {
                if let Some(unlogged) = self.failures.clear() {
                    tracing::info!(unlogged, "commits work again");
                }
            }
            Err(error) => {
                if let Some(times) = self.failures.note(&error.to_string()) {
                    tracing::error!(%error, times, "a commit failed");
                }
            }
        }
    }

    fn feed_search(&mut self) {
        #[cfg(test)]
        let state = self.state.clone();
        let fed = self.attempt_alone(&mut |backend: &mut B| {
            #[cfg(test)]
            state.faults.strike("search");
            backend.index()
        });
        match fed {
            Ok(reached) => self.state.search_position.store(reached, Ordering::Release),
            Err(error) => {
                if let Some(times) = self.feeds.note("failed") {
                    tracing::error!(%error, times, "the search index could not be fed");
                }
                self.state.failing.store(true, Ordering::Release);
                self.feed_after = Instant::now() + FEED_PAUSE;
            }
        }
    }

    fn answer_searches(&mut self) {
        let reached = self.state.search_position.load(Ordering::Acquire);
        // Those that did not wait any longer must not have the indexes fed before everything else.
        self.searches.retain(|(_, answer)| !answer.is_closed());
        for place in (0..self.searches.len()).rev() {
            if self.searches[place].0 <= reached {
                let (_, answer) = self.searches.swap_remove(place);
                let _ = answer.send(true);
            }
        }
        // Reads go on while nothing can be written.
        if Instant::now() < self.feed_after {
            for (_, answer) in self.searches.drain(..) {
                let _ = answer.send(false);
            }
        }
    }

    /// After a failed commit: does one work again?
    fn probe(&mut self) -> Result<(), Error> {
        if !self.state.failing.load(Ordering::Acquire) {
            return Ok(());
        }
        for bytes in [PROBE_BYTES, 8] {
            self.alone(|backend| backend.probe(bytes))?;
        }
        self.state.failing.store(false, Ordering::Release);
        Ok(())
    }
}

fn answer<T, A>(waiting: Vec<Waiting<T, A>>, answers: Vec<A>) {
    for (waiting, answer) in waiting.into_iter().zip(answers) {
        let _ = waiting.answer.send(answer);
    }
}

fn ended() -> Error {
    Error::Failed("the writer has ended".into())
}

/// A panic becomes an error.
fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("the writer panicked; it goes on");
        Err(panicked())
    })
}

fn panicked() -> Error {
    Error::Failed("a panic, which is logged above".into())
}

/// Errors are not `Clone`, and every caller of a batch gets the same.
fn same(error: &Error) -> Error {
    match error {
        Error::Full => Error::Full,
        Error::Busy => Error::Busy,
        Error::Unavailable(source) => Error::Unavailable(source.to_string().into()),
        Error::Outdated => Error::Outdated,
        Error::Timeout => Error::Timeout,
        Error::SnapshotTooOld => Error::SnapshotTooOld,
        Error::TooLarge => Error::TooLarge,
        Error::LeaseLost => Error::LeaseLost,
        Error::Refused(reasons) => Error::Refused(reasons.clone()),
        Error::Unknown(source) => Error::Unknown(source.to_string().into()),
        Error::Failed(source) => Error::Failed(source.to_string().into()),
    }
}
