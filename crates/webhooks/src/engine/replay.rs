//! Replays in flight: a few per scope at a time, each with its own small window next to the queue
//! of its endpoint. They never count for or against the endpoint.

use super::tasks::{TaskResult, fenced};
use super::{Engine, Requester, head};
use crate::attempt::Trigger;
use crate::evaluation_time::EvaluationTime;
use crate::limits::Limits;
use crate::pace::Readiness;
use crate::prepared::{self, FILTER_OF_ERASED, Loaded, Prepared};
use crate::queue::{Job, Known};
use crate::replay::{Found, Replay, Stage, Step, is_open, known, means};
use crate::send::Finished;
use crate::settle::{Mark, Owner};
use crate::store_retry::until_answered;
use crate::timers::Alarm;
use model::event::Event;
use model::schema::Builtin;
use model::version::Versions;
use model::webhook::Endpoint;
use model::write::{Change, Committed, Precondition, Response, Write};
use model::{Record, Scope};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use store::{Delivery, EventPage, Status, Store};
use tokio::time::Instant;
use wire::Share;

/// What a replay does with an event.
enum Verdict {
    Ignore,
    Send,
    /// The filter cannot judge it, for this reason.
    Skip(String),
}

impl Engine {
    pub(super) fn heard_of_replay(&mut self, event: &Event) {
        if !self.buckets.serves(event.scope) {
            return;
        }
        match event.kind.rsplit('.').next() {
            // The event contains the whole record, and has its number.
            Some("created") => {
                let record = Record {
                    id: event.record.clone(),
                    number: event.seq,
                    version: event.seq,
                    updated: event.created,
                    body: event.object.clone(),
                    hidden: event.hidden.clone(),
                };
                self.note_replay(event.scope, &record);
            }
            Some("updated") => {}
            // What is in flight still lands and is recorded.
            _ => {
                if let Some(number) = self.replays.named(event.scope, &event.record) {
                    self.replays.remove(number);
                }
            }
        }
    }

    /// A client made a replay.
    fn note_replay(&mut self, scope: Scope, record: &Record) {
        if let Some(replay) = Replay::read(scope, record) {
            self.add_replay(record.number, replay);
        }
    }

    /// A replay from before a start, or from another node.
    pub(super) fn load_replay(&mut self, scope: Scope, record: &Record) {
        if let Some(mut replay) = Replay::read(scope, record) {
            replay.empty(self.clock.now);
            self.add_replay(record.number, replay);
        }
    }

    fn add_replay(&mut self, number: i64, mut replay: Replay) {
        self.opened += 1;
        replay.opened = self.opened;
        self.replays.add(number, replay);
    }

    pub(super) fn wake_replay(&mut self, number: i64) {
        self.replays.touch(number);
    }

    pub(super) fn advance_replays(&mut self) {
        while let Some(number) = self.replays.pop_ready() {
            self.advance_replay(number);
        }
    }

    fn advance_replay(&mut self, number: i64) {
        let Some(replay) = self.replays.get(number) else { return };
        if self.buckets.is_leaving(replay.scope) {
            return;
        }
        let place = self.names.get(&(replay.scope, replay.endpoint.clone()));
        let Some(queue) = place.and_then(|place| self.queues.get(place)) else {
            // Without its endpoint it ends, even if its turn has not come.
            self.replays.begin(number);
            if let Some(replay) = self.replays.get_mut(number)
                && !matches!(replay.stage, Stage::Ended(..))
            {
                replay.fail("the endpoint does not exist any more");
            }
            self.save_replay(number);
            return;
        };
        let endpoint = queue.endpoint.clone();
        match replay.stage {
            Stage::Waiting => {}
            Stage::Bounds | Stage::Counting => self.want_for_replay(number),
            Stage::Ended(..) => self.save_replay(number),
            Stage::Sending => {
                self.send_replay(number, &endpoint);
                self.want_for_replay(number);
            }
        }
    }

    /// Puts a replay in line for the store, if it has something to ask.
    fn want_for_replay(&mut self, number: i64) {
        let Some(replay) = self.replays.get_mut(number) else { return };
        if replay.asking || replay.waiting || !replay.needs_store(self.limits.replay_window) {
            return;
        }
        let place = self.names.get(&(replay.scope, replay.endpoint.clone()));
        let queue = place.and_then(|place| self.queues.get(place));
        let paused = queue.and_then(|queue| queue.sending.pace.paused_until(self.clock.now));
        if let Some(until) = paused.filter(|_| replay.stage == Stage::Sending) {
            // What cannot be sent is not loaded: others need the room.
            self.timers.set(until, Alarm::Replay(number));
            return;
        }
        if let Some(at) = queue.and_then(|queue| queue.evaluation_wait(&self.evaluation_time)) {
            self.timers.set(at, Alarm::Replay(number));
            return;
        }
        replay.waiting = true;
        self.asks.push(replay.scope.account_number(), Requester::Replay(number));
    }

    fn send_replay(&mut self, number: i64, endpoint: &Endpoint) {
        let now = self.clock.now;
        while self.has_capacity() {
            let Some(replay) = self.replays.get_mut(number) else { return };
            let Some(queue) = self.queues.get_mut(&endpoint.number) else { return };
            if let Some(at) = queue.conversion_wait(&self.evaluation_time) {
                self.timers.set(at, Alarm::Replay(number));
                return;
            }
            // What the endpoint has set for itself holds here, too.
            if let Readiness::Until(at) = queue.sending.pace.allows(now) {
                if queue.sending.pace.paused_until(now).is_some() {
                    replay.give_back();
                }
                self.timers.set(at, Alarm::Replay(number));
                return;
            }
            if !queue.sending.has_slot(&queue.endpoint) {
                break;
            }
            let account = queue.account();
            if self.slots.room(account) == 0 {
                break;
            }
            match replay.next(self.limits.replay_window, endpoint.ordered, now) {
                Ok(job) => {
                    queue.sending.pace.spend(now);
                    queue.sending.replaying += 1;
                    replay.in_flight += 1;
                    let owner = Owner::Replay { number, endpoint: endpoint.number };
                    let place = self.slots.take(account, 1);
                    self.sends.launch(owner, job, &queue.sending.post, &self.clock, place);
                }
                Err(None) => return,
                Err(Some(at)) => {
                    self.timers.set(at, Alarm::Replay(number));
                    return;
                }
            }
        }
        // Another request must finish first.
        self.timers.set(self.clock.now + self.limits.store_wait, Alarm::Replay(number));
    }

    pub(super) fn ask_for_replay(&mut self, number: i64, reserved: Share<i64>) {
        let Some(replay) = self.replays.get_mut(number) else { return };
        replay.waiting = false;
        let place = self.names.get(&(replay.scope, replay.endpoint.clone()));
        let queue = place.and_then(|place| self.queues.get(place));
        let window = self.limits.replay_window;
        let (Some(queue), true) = (queue, replay.needs_store(window)) else {
            self.replays.touch(number);
            return;
        };
        let endpoint = queue.endpoint.clone();
        let opened = replay.opened;
        replay.asking = true;
        self.asking += 1;
        let (store, limits) = (self.store.clone(), self.limits.clone());
        if replay.stage == Stage::Bounds {
            let (since, until) = (replay.since, replay.until);
            self.tasks.run(async move {
                let newest = *store.position().borrow();
                let first = match since {
                    Some(since) => until_answered("the log", &limits, || store.before(since)).await,
                    None => 0,
                };
                let last = match until {
                    Some(until) => until_answered("the log", &limits, || store.before(until)).await,
                    None => newest,
                };
                let step = Step::Bounds { first, last: last.min(newest) };
                TaskResult::Replay { number, opened, step, reserved: None }
            });
            return;
        }
        let sending = replay.stage == Stage::Sending;
        let most = if sending { replay.wanted(window) } else { limits.batch };
        let times = endpoint.filter.is_some().then(|| self.evaluation_time.clone());
        let walk = Walk {
            store,
            times,
            limits,
            scope: replay.scope,
            endpoint: endpoint.number,
            after: replay.cursor,
            last: replay.last,
            most,
            bytes: reserved.amount() / Prepared::BYTES_FACTOR,
            known: sending || replay.without_success,
            without_success: replay.without_success,
        };
        let meant = self.meaning(number, &endpoint);
        self.tasks.run(async move {
            let after = walk.after;
            let (events, cursor) = walk.run(meant).await;
            let step = match sending {
                true => Step::Read { events, after, cursor },
                false => Step::Counted { count: events.len(), cursor },
            };
            TaskResult::Replay { number, opened, step, reserved: Some(reserved) }
        });
    }

    /// Returns a function that decides what the replay does with an event.
    fn meaning(&self, number: i64, endpoint: &Rc<Endpoint>) -> impl Fn(&Event) -> Verdict + use<> {
        let types = self.replays.get(number).and_then(|replay| replay.types.clone());
        let (endpoint, versions) = (endpoint.clone(), self.versions.clone());
        let (internal, times) = (self.internal.clone(), self.evaluation_time.clone());
        let loaded = self.loaded.clone();
        let account = endpoint.scope.account_number();
        let version = self.pins.version(&versions, &endpoint);
        let view = versions.get(version).cloned();
        move |event| {
            let meant = !internal.contains(&event.collection)
                && !head::is_ping(versions.kept(), event)
                && view.as_ref().is_some_and(|view| view.shows_events_of(&event.collection))
                && means(types.as_deref(), &endpoint, &event.kind);
            if !meant {
                return Verdict::Ignore;
            }
            if endpoint.filter.is_none() {
                return Verdict::Send;
            }
            if loaded.is_blank(event) {
                return Verdict::Skip(FILTER_OF_ERASED.to_owned());
            }
            match times.measure(account, || passes(&versions, &endpoint, version, event)) {
                Ok(true) => Verdict::Send,
                Ok(false) => Verdict::Ignore,
                Err(fault) => Verdict::Skip(fault),
            }
        }
    }

    pub(super) fn replay_went_on(
        &mut self,
        (number, opened): (i64, u64),
        step: Step,
        reserved: Option<Share<i64>>,
    ) {
        // From here on each event is charged by itself.
        drop(reserved);
        let is_current = self.replays.get(number).is_some_and(|replay| replay.opened == opened);
        match step {
            Step::Saved { record, written } => {
                self.changing -= 1;
                if !is_current {
                    return;
                }
                self.replay_saved(number, record.as_ref(), written);
                return;
            }
            Step::Bounds { .. } | Step::Counted { .. } | Step::Read { .. } => self.asking -= 1,
        }
        let Some(replay) = self.replays.get_mut(number).filter(|_| is_current) else { return };
        replay.asking = false;
        replay.reserve = 0;
        match step {
            Step::Saved { .. } => {}
            Step::Bounds { first, last } => replay.bounded(first, last),
            Step::Counted { count, cursor } => replay.count(count, cursor),
            // It gave events back in the meantime, which come first.
            Step::Read { after, .. } if after != replay.cursor => {}
            Step::Read { events, cursor, .. } => {
                let skips = load(replay, events, cursor, &self.loaded);
                self.skip_in_replay(number, skips);
            }
        }
        let ended = |replay: &Replay| matches!(replay.stage, Stage::Ended(..));
        if self.replays.get(number).is_some_and(ended) {
            self.save_replay(number);
        }
        self.replays.touch(number);
    }

    /// Records the deliveries that are not made because the filter cannot judge the events.
    fn skip_in_replay(&mut self, number: i64, skips: Vec<Skip>) {
        let Some(replay) = self.replays.get(number) else { return };
        let name = (replay.scope, replay.endpoint.clone());
        // Without its endpoint the replay fails at its next turn.
        let Some(endpoint) = self.names.get(&name).copied() else { return };
        for Skip { seq, known, fault } in skips {
            self.unfiltered(Owner::Replay { number, endpoint }, seq, known.as_ref(), &fault);
        }
    }

    pub(super) fn finished_in_replay(&mut self, number: i64, endpoint: i64, finished: Finished) {
        if let Some(replay) = self.replays.get_mut(number) {
            replay.in_flight -= 1;
        }
        self.replays.touch(number);
        let Some(queue) = self.queues.get_mut(&endpoint) else { return };
        queue.sending.replaying = queue.sending.replaying.saturating_sub(1);
        let settings = queue.endpoint.clone();
        let verdict = self.conclude(&settings, finished);
        if let (Some(queue), Some(pause)) = (self.queues.get_mut(&endpoint), verdict.pause) {
            queue.sending.pace.pause(pause, self.clock.now);
            queue.give_back();
            // A restart keeps it.
            self.settler.pause(endpoint, self.clock.steady.plus(pause));
        }
        // A failed replay does not count against the endpoint, but a request to disable it does.
        if let Some(reason) = verdict.disable {
            self.disable(endpoint, reason.to_owned());
        }
        self.touch(endpoint);
        self.replays.touch(number);
    }

    pub(super) fn settled_in_replay(&mut self, number: i64, endpoint: i64, mark: &Mark) {
        // No retry follows any more that later events of the record would wait for.
        if let (Some(queue), Status::Succeeded) = (self.queues.get_mut(&endpoint), mark.status)
            && let Some(record) = &mark.record
        {
            queue.intake.order.settled(record, mark.seq);
            self.touch(endpoint);
        }
        if let Some(replay) = self.replays.get_mut(number) {
            replay.finish(mark.seq, mark.record.as_deref(), mark.status == Status::Succeeded);
            self.replays.touch(number);
        }
    }

    pub(super) fn save_replays(&mut self) {
        for number in self.replays.under_way() {
            self.save_replay(number);
        }
    }

    fn save_replay(&mut self, number: i64) {
        let Some(replay) = self.replays.get_mut(number) else { return };
        if replay.saving || !replay.dirty {
            return;
        }
        replay.saving = true;
        self.changes.push(replay.scope.account_number(), Requester::Replay(number));
    }

    pub(super) fn write_replay(&mut self, number: i64) {
        let Some(replay) = self.replays.get_mut(number) else { return };
        replay.dirty = false;
        let opened = replay.opened;
        self.changing += 1;
        let write = Write {
            scope: replay.scope,
            collection: self.schema.own(Builtin::Replay),
            id: Some(replay.id.clone()),
            parent: None,
            change: Change::Assign { fields: replay.fields(), event: None },
            // A concurrent cancellation wins.
            view: None,
            precondition: Precondition::Versions(vec![replay.version]),
            idempotency: None,
            cause: self.buckets.cause(replay.scope),
            now: self.clock.wall,
            entropy: self.ids.entropy(),
        };
        let (store, limits) = (self.store.clone(), self.limits.clone());
        self.tasks.run(async move {
            let (record, written) = save(&*store, &limits, write).await;
            let step = Step::Saved { record, written };
            TaskResult::Replay { number, opened, step, reserved: None }
        });
    }

    fn replay_saved(&mut self, number: i64, record: Option<&Record>, written: bool) {
        let Some(replay) = self.replays.get_mut(number) else { return };
        replay.saving = false;
        let fields = record.map(Record::fields).unwrap_or_default();
        let status = fields.get("status").and_then(serde_json::Value::as_str);
        let Some(record) = record.filter(|_| is_open(status)) else {
            self.replays.remove(number);
            return;
        };
        replay.version = record.version;
        replay.dirty |= !written;
        let leaves = self.buckets.is_leaving(replay.scope);
        if matches!(replay.stage, Stage::Ended(..)) || !self.is_running() || leaves {
            self.save_replay(number);
        }
    }
}

/// A delivery that a replay does not make.
struct Skip {
    seq: i64,
    known: Option<Known>,
    fault: String,
}

/// Loads what was read, as far as there is room; the rest is read again. Returns what is not sent.
fn load(replay: &mut Replay, events: Vec<Found>, cursor: i64, loaded: &Loaded) -> Vec<Skip> {
    let (mut jobs, mut skips) = (Vec::with_capacity(events.len()), Vec::new());
    for Found { event, delivery, fault } in events {
        let (seq, weight) = (event.seq, prepared::weigh(&event));
        if let Some(fault) = fault {
            if replay.skip(seq) {
                skips.push(Skip { seq, known: delivery.map(known), fault });
            }
            continue;
        }
        let Some(event) = Prepared::new(Rc::new(event), 1, loaded) else {
            replay.reserve = weight;
            replay.load(jobs, seq - 1);
            return skips;
        };
        let known = delivery.map(known);
        jobs.push(Job { event, known, trigger: Trigger::Replay, counts: false });
    }
    replay.load(jobs, cursor);
    skips
}

/// Writes the record of a replay, unless it changed in the meantime. Returns the current record.
async fn save(store: &dyn Store, limits: &Limits, write: Write) -> (Option<Record>, bool) {
    match until_answered("a replay", limits, || fenced(store, write.clone())).await {
        Some(Ok(
            Committed::Fresh(Response::Updated(record))
            | Committed::Unchanged(Response::Updated(record)),
        )) => (Some(record), true),
        _ => {
            let id = write.id.clone().unwrap_or_default();
            let ask = || store.record(write.scope, write.collection, None, &id);
            (until_answered("a replay", limits, ask).await, false)
        }
    }
}

/// Whether the endpoint's filter lets the event pass, or why the filter cannot judge it.
fn passes(
    versions: &Versions,
    endpoint: &Endpoint,
    version: usize,
    event: &Event,
) -> Result<bool, String> {
    let envelope = versions.envelope(event, version, 1);
    let envelope = serde_json::from_str(&envelope).map_err(|error| error.to_string())?;
    endpoint.passes(&envelope)
}

/// One stretch of the log, with what became of its events at the endpoint.
struct Walk {
    store: Arc<dyn Store>,
    /// Where there is a filter, whose time is measured.
    times: Option<Rc<EvaluationTime>>,
    limits: Rc<Limits>,
    scope: Scope,
    endpoint: i64,
    after: i64,
    last: i64,
    most: usize,
    bytes: usize,
    /// Whether to look for deliveries at all.
    known: bool,
    without_success: bool,
}

impl Walk {
    /// The events that are meant, and how far they were looked at: a filter that took too long
    /// already looks at the others later.
    fn meant(
        &self,
        events: Vec<Event>,
        cursor: i64,
        meant: impl Fn(&Event) -> Verdict,
    ) -> (Vec<Found>, i64) {
        let account = self.scope.account_number();
        let (mut wanted, mut seen) = (Vec::new(), None);
        for event in events.into_iter().take_while(|event| event.seq <= self.last) {
            let waits = |times: &Rc<EvaluationTime>| times.wait(account, Instant::now()).is_some();
            if let Some(seen) = seen.filter(|_| self.times.as_ref().is_some_and(waits)) {
                return (wanted, seen);
            }
            seen = Some(event.seq);
            let fault = match meant(&event) {
                Verdict::Ignore => continue,
                Verdict::Send => None,
                Verdict::Skip(fault) => Some(fault),
            };
            wanted.push(Found { event, delivery: None, fault });
        }
        (wanted, cursor)
    }

    async fn run(self, meant: impl Fn(&Event) -> Verdict) -> (Vec<Found>, i64) {
        let ask = || self.store.events_within(Some(self.scope), self.after, self.most, self.bytes);
        let EventPage { events, more } = until_answered("the log", &self.limits, ask).await;
        let cursor = match events.last() {
            Some(last) if more => last.seq.min(self.last),
            _ => self.last,
        };
        let (mut wanted, cursor) = self.meant(events, cursor, meant);
        if self.known && !wanted.is_empty() {
            let seqs: Vec<i64> = wanted.iter().map(|found| found.event.seq).collect();
            let ask = || self.store.deliveries(self.endpoint, &seqs);
            let deliveries = until_answered("deliveries", &self.limits, ask).await;
            let mut known: HashMap<i64, Delivery> =
                deliveries.into_iter().map(|delivery| (delivery.event, delivery)).collect();
            for found in &mut wanted {
                found.delivery = known.remove(&found.event.seq);
            }
        }
        let succeeded = |found: &Found| {
            found.delivery.as_ref().is_some_and(|delivery| delivery.status == Status::Succeeded)
        };
        wanted.retain(|found| !self.without_success || !succeeded(found));
        (wanted, cursor)
    }
}
