//! The one thread that writes. It takes what waits, applies it in one transaction and commits.
//! Receipts are synced and answered by another thread (`sync`): in the meantime the next batch is
//! applied. Results of attempts are synced at once. Between batches it hands out events that are
//! due, runs the handler of the inbox if it has one, and removes what is too old.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::apply::panic_reason;
use super::clock::Clock;
use super::file::{self, Stored};
use super::lease::{Claimed, Outcome};
use super::processing::Processing;
use super::queue::{COLLECTED, Finish, Job, Question, Queue};
use super::scan::{Scan, Taken};
use super::slot::Answer;
use super::sync::{Receipt, Syncs};
use super::{Accepted, Error, Failure, Handler, Options, OutOfOrder, State, watch};

/// Jobs in one commit. More would make everyone wait for the slowest.
const BATCH: usize = 256;
/// Events that the handler of the inbox gets in one commit. A quarter of a batch: receipts wait for
/// it.
const APPLY_BATCH: usize = 64;
/// While events come close together, a batch waits so long for more of them: a commit and its sync
/// cost far more than an event. An event that comes alone does not wait.
const COLLECT: Duration = Duration::from_micros(250);
/// After a batch that waited in vain, so many do not wait: all that comes at a time was there.
const IN_VAIN: u32 = 15;
/// How often an idle writer looks for changes of other processes.
const LOOK: Duration = Duration::from_millis(250);
/// The shortest pause before an attempt.
const SOON: Duration = Duration::from_millis(1);
/// After a failure to write: a full disk must not be tried a thousand times a second.
const PAUSE: Duration = Duration::from_secs(1);
/// How often old rows are looked for, while none are found.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// Another process may open the file with other waits, such as `restive receive retry`: events that
/// are due within a day stay as they are.
const LEAST_LATEST_DUE: Duration = Duration::from_secs(24 * 3600);
/// How often the open time is stored. Less would sync the disk of an idle inbox more often; what a
/// kill loses only keeps ids longer.
const STORE_OPEN_TIME_MS: i64 = 10 * 60 * 1000;

pub(super) fn start(
    path: &Path,
    file: Connection,
    options: Options,
    handler: Option<Handler>,
) -> Result<(Arc<Queue>, Vec<JoinHandle<()>>), Error> {
    let newest = file::newest_time(&file)?;
    let clock = Clock::starting_at(newest.unwrap_or_default());
    let open_time = clock.of_open_time(file::open_time(&file)?, newest);
    let now = clock.now_ms();
    file::limit_due(&file, now, now.saturating_add(latest_due_ms(&options)))?;
    let queue = Arc::new(Queue::new(options.max_waiting));
    let (syncs, syncing) = Syncs::start(path).map_err(Error::Thread)?;
    let mut writer = Writer {
        syncs,
        is_full: true,
        is_crowded: false,
        hurries: 0,
        data_version: file::data_version(&file)?,
        file,
        clock,
        open_time_stored: i64::MIN,
        open_time,
        options,
        handler,
        queue: queue.clone(),
        leased: HashSet::new(),
        busy: HashMap::new(),
        processing: Processing::new(path),
        uncounted: HashSet::new(),
        unwritten: Vec::new(),
        scan: Scan::new(),
        next_due: Some(0),
        not_before: Instant::now(),
        clean_up_at: Instant::now(),
    };
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.into()).spawn(run).map_err(Error::Thread)
    };
    let watched = queue.clone();
    let threads = vec![
        spawn("inbox-writer", Box::new(move || writer.run()))?,
        spawn("inbox-watch", Box::new(move || watch::run(&watched)))?,
        syncing,
    ];
    Ok((queue, threads))
}

/// How far ahead an event can be due. Twice the longest wait: a tenth is added to it.
fn latest_due_ms(options: &Options) -> i64 {
    let wait = options.retry.longest.saturating_mul(2).max(LEAST_LATEST_DUE);
    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)
}

struct Writer {
    file: Connection,
    syncs: Syncs,
    /// Whether SQLite syncs each commit.
    is_full: bool,
    /// Whether the last batch had several jobs.
    is_crowded: bool,
    /// So many batches do not wait for more.
    hurries: u32,
    clock: Clock,
    /// For the retention.
    open_time: Clock,
    open_time_stored: i64,
    options: Options,
    handler: Option<Handler>,
    queue: Arc<Queue>,
    /// Whether this process hands out the events of the file.
    processing: Processing,
    /// Events in the hands of workers.
    leased: HashSet<i64>,
    /// Their resources.
    busy: HashMap<String, i64>,
    /// Events whose last attempt succeeded, but the disk did not store that: the next attempt has
    /// the same number. Otherwise a broken disk would make dead letters of them.
    uncounted: HashSet<i64>,
    /// Results that the disk did not store yet.
    unwritten: Vec<Finish>,
    scan: Scan,
    /// When the next event may be due; none if no event is pending that may be handed out.
    next_due: Option<i64>,
    /// Nothing is handed out before: the last write failed.
    not_before: Instant,
    clean_up_at: Instant,
    data_version: i64,
}

/// What became of the transaction in which a handler ran.
enum Applied {
    Whole,
    /// The handler, or SQLite on its behalf, committed it or rolled it back.
    TransactionEnded,
}

/// At its end, also by a panic.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

impl Writer {
    fn run(&mut self) {
        while let Some(jobs) = self.take() {
            self.is_crowded = jobs.len() > 1;
            let (batch, questions) = split(jobs);
            if !batch.is_empty() {
                self.commit(batch);
            }
            for question in questions {
                let now = self.clock.now_ms();
                // A question that panics, or cannot be made durable, answers nobody: the asker is
                // told that it is closed.
                if self.synced(true).is_ok() {
                    let _ = catch_unwind(AssertUnwindSafe(|| question(&self.file, now)));
                }
                self.look_again();
            }
            self.look_elsewhere();
            if self.not_before <= Instant::now() {
                self.write_again();
            }
            if self.not_before <= Instant::now()
                && (self.apply().is_err() || self.hand_out().is_err())
            {
                self.not_before = Instant::now() + PAUSE;
                // What was due before is due still.
                self.look_again();
            }
            self.clean_up();
            self.leave();
        }
        self.write_again();
        // If it fails, ids are kept longer.
        let _ = file::set_open_time(&self.file, self.open_time.now_ms());
    }

    /// Once the inbox was closed and nothing is in progress, another process may go on.
    fn leave(&mut self) {
        let is_idle = self.leased.is_empty() && self.unwritten.is_empty();
        if self.processing.is_held() && is_idle && self.queue.lock().closed {
            self.processing.release();
        }
    }

    /// The jobs that wait, or none of them if an event may be due. None at the end.
    fn take(&mut self) -> Option<Vec<Job>> {
        let queue = self.queue.clone();
        let mut waiting = queue.lock();
        loop {
            let here = waiting.jobs.len();
            if self.is_crowded && (1..COLLECTED).contains(&here) {
                self.is_crowded = false;
                if self.hurries > 0 {
                    self.hurries -= 1;
                } else {
                    let waited = queue.changed.wait_timeout(waiting, COLLECT);
                    let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    waiting = next;
                    let in_vain = timeout.timed_out() && waiting.jobs.len() == here;
                    self.hurries = if in_vain { IN_VAIN } else { 0 };
                }
            }
            if !waiting.jobs.is_empty() {
                let count = waiting.jobs.len().min(BATCH);
                let jobs: Vec<Job> = waiting.jobs.drain(..count).collect();
                waiting.committing.retain(|(_, answer)| answer.is_waited_for());
                let accepts = jobs.iter().filter_map(|job| match job {
                    Job::Accept(accept) => Some((accept.deadline, accept.answer.clone())),
                    _ => None,
                });
                waiting.committing.extend(accepts);
                return Some(jobs);
            }
            if waiting.ended {
                return None;
            }
            let wants = !waiting.claims.is_empty() || self.handler.is_some();
            let wait = self.wait(wants && !waiting.closed);
            if wait.is_zero() {
                return Some(Vec::new());
            }
            let waited = queue.changed.wait_timeout(waiting, wait);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            waiting = next;
            if timeout.timed_out() && waiting.jobs.is_empty() {
                return Some(Vec::new());
            }
        }
    }

    /// How long there is nothing to do, if nothing comes.
    fn wait(&self, wants_events: bool) -> Duration {
        let paused = self.not_before.saturating_duration_since(Instant::now());
        let due = match self.next_due {
            Some(due) if wants_events => {
                let left = due.saturating_sub(self.clock.now_ms()).max(0);
                Duration::from_millis(u64::try_from(left).unwrap_or_default()).max(paused)
            }
            _ => LOOK,
        };
        due.min(LOOK)
    }

    /// Another process may have made events due.
    fn look_elsewhere(&mut self) {
        if let Ok(version) = file::data_version(&self.file)
            && version != self.data_version
        {
            self.data_version = version;
            self.look_again();
        }
    }

    /// Looks at all pending events again: one that was passed may be due, or free.
    fn look_again(&mut self) {
        self.scan = Scan::new();
        self.next_due = Some(0);
    }

    fn commit(&mut self, batch: Vec<Job>) {
        let now = self.clock.now_ms();
        let is_full = batch.iter().any(|job| !matches!(job, Job::Accept(_)));
        let applied = self.mend().and_then(|()| self.synced(is_full)).and_then(|()| {
            self.transaction(|writer| {
                batch.iter().map(|job| writer.apply_job(job, now)).collect::<Result<Vec<_>, _>>()
            })
        });
        match applied {
            Ok(results) => {
                let mut receipts = Vec::with_capacity(batch.len());
                for (job, stored) in batch.into_iter().zip(results) {
                    receipts.extend(self.answer(job, stored));
                }
                if is_full {
                    // The sync of the commit covered them.
                    for (answer, accepted) in receipts {
                        let _ = answer.send(Ok(accepted));
                    }
                } else {
                    self.syncs.push(receipts);
                }
            }
            Err(error) => {
                self.not_before = Instant::now() + PAUSE;
                let reason = error.to_string();
                for job in batch {
                    self.refuse(job, &reason);
                }
            }
        }
    }

    /// Writes the results that the disk did not store.
    fn write_again(&mut self) {
        if !self.unwritten.is_empty() {
            let again = std::mem::take(&mut self.unwritten).into_iter().map(Job::Finish).collect();
            self.commit(again);
        }
    }

    /// After a sync that failed: the log may have lost pages that can still be read. They are
    /// durable again when all of them were moved into the database.
    fn mend(&self) -> rusqlite::Result<()> {
        if self.syncs.has_failed() {
            self.syncs.settle();
            if !file::move_log(&self.file)? {
                let text = "another process reads the log, which is to be written again";
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, Some(text.into())));
            }
            self.syncs.mended();
        }
        Ok(())
    }

    /// Whether the next commits are synced by SQLite.
    fn synced(&mut self, is_full: bool) -> rusqlite::Result<()> {
        if self.is_full != is_full {
            file::set_synchronous(&self.file, is_full)?;
            self.is_full = is_full;
        }
        Ok(())
    }

    fn apply_job(&self, job: &Job, now: i64) -> rusqlite::Result<Option<Stored>> {
        match job {
            Job::Accept(accept) => {
                let stored = file::store(&self.file, &accept.event, now, accept.check_digest);
                return stored.map(Some);
            }
            Job::Finish(finish) => self.record(finish, now)?,
            Job::Ask(_) => {}
        }
        Ok(None)
    }

    /// Writes the result of an attempt.
    fn record(&self, finish: &Finish, now: i64) -> rusqlite::Result<()> {
        match &finish.outcome {
            Outcome::Released => file::release(&self.file, finish.number),
            Outcome::Failed(failure) => self.record_failure(finish, failure, now),
            Outcome::Done => {
                file::end(&self.file, finish.number, State::Processed, now, None)?;
                if let (Some(resource), Some(revision)) = (&finish.resource, &finish.revision) {
                    let newest = file::newest_revision(&self.file, resource)?;
                    file::remember(&self.file, resource, revision, newest.as_deref(), now)?;
                }
                Ok(())
            }
        }
    }

    fn record_failure(&self, finish: &Finish, failure: &Failure, now: i64) -> rusqlite::Result<()> {
        let retry = &self.options.retry;
        if finish.attempt >= retry.max_attempts {
            let error = Some(failure.reason.as_str());
            return file::end(&self.file, finish.number, State::Dead, now, error);
        }
        let asked = failure.retry_after.unwrap_or_default().min(retry.longest);
        // Later than now, so that the scan finds it ahead of its place.
        let wait = retry.wait(finish.attempt, finish.number).max(asked).max(SOON);
        let due = now.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        file::postpone(&self.file, finish.number, due, &failure.reason)
    }

    /// Returns a receipt that is to be answered when it is durable.
    fn answer(&mut self, job: Job, stored: Option<Stored>) -> Option<Receipt> {
        match job {
            Job::Accept(accept) => {
                let accepted = match stored {
                    Some(Stored::Known) => Accepted::Known,
                    Some(Stored::Conflict) => Accepted::Conflict,
                    Some(Stored::New) | None => {
                        self.next_due = Some(0);
                        Accepted::New
                    }
                };
                return Some((accept.answer, accepted));
            }
            Job::Finish(finish) => {
                self.free(finish.number, finish.resource.as_deref());
                if matches!(finish.outcome, Outcome::Released) {
                    self.look_again();
                }
                if let Some(answer) = finish.answer {
                    let _ = answer.send(Ok(()));
                }
            }
            Job::Ask(_) => {}
        }
        None
    }

    /// The batch was not written.
    fn refuse(&mut self, job: Job, reason: &str) {
        match job {
            Job::Accept(accept) => {
                let _ = accept.answer.send(Err(Error::Batch(reason.to_owned())));
            }
            Job::Finish(mut finish) => {
                if let Some(answer) = finish.answer.take() {
                    let _ = answer.send(Err(Error::Batch(reason.to_owned())));
                }
                // The event stays with its worker, so that its handler is not called again.
                self.unwritten.push(finish);
            }
            Job::Ask(_) => {}
        }
    }

    fn free(&mut self, number: i64, resource: Option<&str>) {
        self.leased.remove(&number);
        if let Some(resource) = resource {
            self.busy.remove(resource);
        }
        self.next_due = Some(0);
    }

    fn transaction<T>(
        &mut self,
        run: impl FnOnce(&Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.file.execute_batch("BEGIN IMMEDIATE")?;
        let done = run(self).and_then(|value| {
            self.file.execute_batch("COMMIT")?;
            Ok(value)
        });
        if done.is_err() && !self.file.is_autocommit() {
            let _ = self.file.execute_batch("ROLLBACK");
        }
        done
    }

    /// Gives events that are due to the workers that wait.
    fn hand_out(&mut self) -> rusqlite::Result<()> {
        let wanted = {
            let mut waiting = self.queue.lock();
            waiting.claims.retain(Answer::is_waited_for);
            waiting.claims.len()
        };
        if wanted == 0 || self.next_due.is_none_or(|due| due > self.clock.now_ms()) {
            return Ok(());
        }
        for claimed in self.claim(wanted.min(BATCH))? {
            let claim = self.queue.lock().claims.pop_front();
            let sent = match claim {
                Some(claim) => claim.send(Some(claimed)),
                None => Err(Some(claimed)),
            };
            if let Err(Some(claimed)) = sent {
                self.free(claimed.number, claimed.event.resource.as_deref());
                // Otherwise one attempt more is counted.
                let _ = file::release(&self.file, claimed.number);
                self.look_again();
            }
        }
        Ok(())
    }

    /// Takes events that are due, and counts their attempts. This is not synced: after a power
    /// loss an attempt may not be counted, but after the end of the process it is.
    fn claim(&mut self, wanted: usize) -> rusqlite::Result<Vec<Claimed>> {
        if !self.processing.is_ours() {
            // Not at once: another process may go on for long.
            self.not_before = Instant::now() + LOOK;
            return Ok(Vec::new());
        }
        // Only what is durable is processed: the provider may send the rest again.
        self.syncs.settle();
        self.mend()?;
        let now = self.clock.now_ms();
        let taken = Taken { events: &self.leased, resources: &self.busy };
        let (picked, next_due) = self.scan.pick(&self.file, &taken, wanted, now)?;
        self.next_due = next_due;
        if picked.is_empty() {
            return Ok(Vec::new());
        }
        self.synced(false)?;
        let claimed = self.transaction(|writer| {
            let mut claimed = Vec::with_capacity(picked.len());
            for number in &picked {
                if let Some(one) = writer.begin(*number, now)? {
                    claimed.push(one);
                }
            }
            Ok(claimed)
        });
        let claimed = claimed?;
        for number in &picked {
            self.uncounted.remove(number);
        }
        if claimed.len() < picked.len() {
            // One that was not handed out may have kept others of its resource back.
            self.next_due = Some(0);
        }
        for one in &claimed {
            self.leased.insert(one.number);
            if let Some(resource) = &one.event.resource {
                self.busy.insert(resource.clone(), one.number);
            }
        }
        Ok(claimed)
    }

    /// Counts an attempt. None if the event is not handed out.
    fn begin(&self, number: i64, now: i64) -> rusqlite::Result<Option<Claimed>> {
        if self.uncounted.contains(&number) {
            file::release(&self.file, number)?;
        }
        let Some(loaded) = file::load(&self.file, number)? else { return Ok(None) };
        if loaded.attempts >= self.options.retry.max_attempts {
            let error = "the process ended while it handled this event, each time";
            file::end(&self.file, number, State::Dead, now, Some(error))?;
            return Ok(None);
        }
        let claimed = Claimed::new(loaded);
        if claimed.event.is_stale && self.options.out_of_order == OutOfOrder::Skip {
            let error = "a newer state of the resource was processed before";
            file::end(&self.file, number, State::Stale, now, Some(error))?;
            return Ok(None);
        }
        file::begin(&self.file, number)?;
        Ok(Some(claimed))
    }

    /// Runs the handler of the inbox for events that are due: their effects, and that they are
    /// processed, are one transaction.
    fn apply(&mut self) -> rusqlite::Result<()> {
        let Some(mut handler) = self.handler.take() else { return Ok(()) };
        let is_due = self.next_due.is_some_and(|due| due <= self.clock.now_ms());
        let is_due = is_due && !self.queue.lock().closed;
        let done = if is_due { self.apply_with(&mut handler) } else { Ok(()) };
        self.handler = Some(handler);
        done
    }

    fn apply_with(&mut self, handler: &mut Handler) -> rusqlite::Result<()> {
        let claimed = self.claim(APPLY_BATCH)?;
        let done = match self.apply_all(handler, &claimed) {
            Err(error) if is_constraint(&error) => self.apply_each(handler, &claimed),
            done => done,
        };
        for one in &claimed {
            self.free(one.number, one.event.resource.as_deref());
        }
        done
    }

    /// In one transaction.
    fn apply_all(&mut self, handler: &mut Handler, claimed: &[Claimed]) -> rusqlite::Result<()> {
        self.synced(true)?;
        let now = self.clock.now_ms();
        let mut applied = false;
        let done = self.transaction(|writer| {
            for (place, one) in claimed.iter().enumerate() {
                if let Applied::TransactionEnded = writer.apply_one(handler, one, now)? {
                    return Ok(Some(place));
                }
            }
            applied = true;
            Ok(None)
        });
        match &done {
            // Those before it may have lost their effects and marks, and those after it wait.
            Ok(Some(ended)) => {
                let pending =
                    |one: &&Claimed| matches!(file::load(&self.file, one.number), Ok(Some(_)));
                let (before, after) = claimed.split_at(*ended);
                let others = before.iter().chain(after.iter().skip(1)).filter(pending);
                self.uncounted.extend(others.map(|one| one.number));
                self.look_again();
            }
            // No handler failed: the disk did not store what they did.
            Err(error) if applied && !is_constraint(error) => {
                self.uncounted.extend(claimed.iter().map(|one| one.number));
            }
            _ => {}
        }
        done.map(drop)
    }

    /// After a commit that a constraint refused, such as a deferred foreign key: each event in a
    /// transaction of its own, so that only those fail whose handler broke it.
    fn apply_each(&mut self, handler: &mut Handler, claimed: &[Claimed]) -> rusqlite::Result<()> {
        for (index, one) in claimed.iter().enumerate() {
            let done = match self.apply_all(handler, std::slice::from_ref(one)) {
                Err(error) if is_constraint(&error) => self.refuse_effects(one, &error),
                done => done,
            };
            if done.is_err() {
                // Their handlers did not fail.
                self.uncounted.extend(claimed.iter().skip(index + 1).map(|one| one.number));
                return done;
            }
        }
        Ok(())
    }

    /// The effects of a handler could not be committed: its attempt has failed.
    fn refuse_effects(&mut self, one: &Claimed, error: &rusqlite::Error) -> rusqlite::Result<()> {
        let now = self.clock.now_ms();
        let failure = Failure::new(format!("the effects could not be committed: {error}"));
        let finish = Finish::new(one, Outcome::Failed(failure), None);
        self.synced(true)?;
        self.transaction(|writer| writer.record(&finish, now))
    }

    fn apply_one(
        &self,
        handler: &mut Handler,
        claimed: &Claimed,
        now: i64,
    ) -> rusqlite::Result<Applied> {
        // Another process, or an operator, may have ended it since it was taken.
        if file::load(&self.file, claimed.number)?.is_none() {
            return Ok(Applied::Whole);
        }
        self.file.execute_batch("SAVEPOINT handler")?;
        let call = || handler(&self.file, &claimed.event);
        let result = catch_unwind(AssertUnwindSafe(call))
            .unwrap_or_else(|panic| Err(Failure::new(panic_reason(&*panic))));
        if self.file.is_autocommit() {
            // The handler ended our transaction, so what it did may be committed without the mark.
            self.file.execute_batch("BEGIN IMMEDIATE; SAVEPOINT handler")?;
            let failure = Failure::new("the handler ended the transaction of the inbox");
            self.record(&Finish::new(claimed, Outcome::Failed(failure), None), now)?;
            self.file.execute_batch("RELEASE handler")?;
            return Ok(Applied::TransactionEnded);
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(failure) => {
                self.file.execute_batch("ROLLBACK TO handler")?;
                Outcome::Failed(failure)
            }
        };
        self.record(&Finish::new(claimed, outcome, None), now)?;
        self.file.execute_batch("RELEASE handler")?;
        Ok(Applied::Whole)
    }

    fn clean_up(&mut self) {
        if Instant::now() < self.clean_up_at {
            return;
        }
        let retention = i64::try_from(self.options.retention.as_millis()).unwrap_or(i64::MAX);
        let now = self.open_time.now_ms();
        let before = now.saturating_sub(retention);
        let is_stored = now.saturating_sub(self.open_time_stored) < STORE_OPEN_TIME_MS;
        let more = self.transaction(|writer| {
            if !is_stored {
                file::set_open_time(&writer.file, now)?;
            }
            file::clean_up(&writer.file, before)
        });
        if more.is_ok() && !is_stored {
            self.open_time_stored = now;
        }
        let pause = if matches!(more, Ok(true)) { Duration::ZERO } else { CLEAN_UP };
        self.clean_up_at = Instant::now() + pause;
    }
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

fn split(jobs: Vec<Job>) -> (Vec<Job>, Vec<Question>) {
    let (mut batch, mut questions) = (Vec::with_capacity(jobs.len()), Vec::new());
    for job in jobs {
        match job {
            Job::Ask(question) => questions.push(question),
            other => batch.push(other),
        }
    }
    (batch, questions)
}
