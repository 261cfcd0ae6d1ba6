//! The actor: everything it holds, its loop, and who comes next. The parts of its work stand in the
//! other files of this folder. Nothing here waits: futures are polled, and what they bring is
//! handled at once.
//!
//! Progress. A queue is looked at (`step`) only after something about it has changed. Each look
//! sends or records something, or ends with the queue waiting for exactly one of: a response, an
//! answer of the store, a timer, room in a budget. Room comes back only when something that was
//! sent or asked for ends, and the engine looks at those that wait for room then. So every pass
//! sends, waits or ends, and no queue is looked at again without a change. A pass is bounded
//! (`Limits::steps`), and after it the engine looks at responses, timers and the signal to stop.

mod tasks;
mod ask;
mod start;
mod buckets;
mod head;
mod read;
mod search;
mod retry;
mod finish;
mod endpoint_record;
mod stop;
mod replay;

use crate::clock::Clock;
use crate::evaluation_time::EvaluationTime;
use crate::fair::FairQueue;
use crate::ids::Ids;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::pins::Pins;
use crate::prepared::Loaded;
use crate::queue::{EndpointQueue, Next};
use crate::replays::Replays;
use crate::send::Sends;
use crate::settle::{Owner, Settler};
use crate::subscriptions::Subscriptions;
use crate::timers::{Alarm, Timers};
use crate::{Outside, Parts};
use buckets::Buckets;
use head::Head;
use model::version::Versions;
use model::{Schema, Scope};
use search::Searches;
use std::collections::{HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use stop::{Phase, StopProgress};
use store::{Heartbeat, Store};
use tasks::{TaskResult, Tasks};
use wire::Budget;

/// Passes before the engine returns to its runtime, whatever is left to do.
const PASSES: usize = 16;

pub(crate) struct Engine {
    schema: Arc<Schema>,
    versions: Arc<Versions>,
    pins: Pins,
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    limits: Rc<Limits>,
    metrics: Arc<Metrics>,
    /// Names of collections whose events stay inside.
    internal: HashSet<String>,
    clock: Clock,
    ids: Ids,
    loaded: Loaded,
    queues: HashMap<i64, EndpointQueue>,
    /// Endpoints by their ids.
    names: HashMap<(Scope, String), i64>,
    subscriptions: Subscriptions,
    head: Head,
    replays: Replays,
    sends: Sends,
    tasks: Tasks,
    searches: Searches,
    settler: Settler,
    journal: Journal,
    timers: Timers,
    /// Lanes to look at, account by account.
    ready: FairQueue<i64>,
    /// Those that want to ask the store something.
    asks: FairQueue<Requester>,
    /// Those that want to write their record.
    changes: FairQueue<Requester>,
    /// Queues that wait because their account has too much in flight.
    blocked: FairQueue<i64>,
    /// What filters took, by account.
    evaluation_time: Rc<EvaluationTime>,
    /// Requests in flight, by account.
    slots: Arc<Budget<i64>>,
    /// Questions and writes in flight.
    asking: usize,
    changing: usize,
    /// The head's position as the store has it.
    stored_head: Option<i64>,
    /// The store is being asked how long retries have waited.
    asking_ages: bool,
    /// The store is being asked for manual retries; and again after that.
    asking_for_asked: bool,
    asked_again: bool,
    heartbeat: Heartbeat,
    phase: Phase,
    buckets: Buckets,
    /// Counts queues and replays that were opened: a result of an earlier one of the same number is
    /// not meant for the current one.
    opened: u64,
}

/// Who waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Queue(i64),
    Replay(i64),
}

pub(crate) async fn run(parts: Parts, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let started = {
        let mut start = pin!(Engine::start(parts));
        poll_fn(|cx| match stop.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => start.as_mut().poll(cx).map(Some),
        })
        .await
    };
    let Some(mut engine) = started else { return };
    poll_fn(|cx| {
        if engine.is_running() && stop.as_mut().poll(cx).is_ready() {
            engine.drain();
        }
        engine.poll(cx)
    })
    .await;
}

impl Engine {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..PASSES {
            self.heartbeat.beat();
            self.clock.read(&*self.outside);
            self.follow_buckets();
            let mut moved = self.pump();
            // As many as a pass may begin: what comes faster waits for the next one.
            for _ in 0..self.limits.steps {
                let Poll::Ready(Some(finished)) = self.sends.poll(cx) else { break };
                self.finished(finished);
                moved = true;
            }
            for _ in 0..self.limits.steps {
                let Poll::Ready(Some(result)) = self.tasks.poll(cx) else { break };
                self.done(result);
                moved = true;
            }
            for _ in 0..self.limits.steps {
                let Poll::Ready(alarm) = self.timers.poll(cx, self.clock.now) else { break };
                self.rang(alarm);
                moved = true;
            }
            match self.wind_up() {
                StopProgress::Over => return Poll::Ready(()),
                StopProgress::Moved => moved = true,
                StopProgress::Still => {}
            }
            if !moved {
                self.count();
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Starts the work that can be started, a bounded part of it. Returns whether more may be left.
    fn pump(&mut self) -> bool {
        self.journal.flush();
        let mut more = false;
        if self.is_running() {
            self.advance_head();
            self.advance_replays();
            let mut steps = 0;
            while self.has_capacity() && steps < self.limits.steps {
                let Some((number, ())) = self.ready.pop_with(|_, _| Some(())) else { break };
                steps += 1;
                if self.step(number) {
                    // Its next turn comes after everybody else's.
                    let account = self.queues.get(&number).map(EndpointQueue::account);
                    self.ready.push(account.unwrap_or_default(), number);
                }
            }
            more = steps == self.limits.steps && !self.ready.is_empty();
            self.serve_asks();
            self.serve_searches();
        } else if self.is_looking() {
            self.advance_head();
            self.serve_searches();
        }
        self.serve_changes();
        self.settle();
        more
    }

    fn has_capacity(&self) -> bool {
        self.settler.unsettled() < self.limits.unsettled
    }

    /// Does one thing for a queue. Says whether there may be more.
    fn step(&mut self, number: i64) -> bool {
        let now = self.clock.now;
        let Some(queue) = self.queues.get_mut(&number) else { return false };
        let account = queue.account();
        if self.buckets.is_leaving(queue.endpoint.scope) {
            queue.ready = false;
            return false;
        }
        if let Some(at) = queue.conversion_wait(&self.evaluation_time) {
            queue.ready = false;
            self.timers.set(at, Alarm::Queue(number));
            self.want(number);
            return false;
        }
        match queue.next(now, self.slots.room(account), &self.limits) {
            Next::Send(job) => {
                queue.sending.in_flight += 1;
                let place = self.slots.take(account, 1);
                self.sends.launch(
                    Owner::Queue(number),
                    job,
                    &queue.sending.post,
                    &self.clock,
                    place,
                );
                true
            }
            Next::Skip(job) => {
                self.skip(number, job);
                true
            }
            Next::Wait(at) => {
                queue.ready = false;
                if let Some(at) = at {
                    self.timers.set(at, Alarm::Queue(number));
                }
                self.want(number);
                false
            }
            Next::NoSlot => {
                queue.ready = false;
                if !std::mem::replace(&mut queue.sending.blocked, true) {
                    self.blocked.push(account, number);
                }
                self.want(number);
                false
            }
        }
    }

    /// A request ended: those get their turn that waited for its place.
    pub(super) fn wake_blocked(&mut self) {
        let places = self.slots.clone();
        let free = |account: i64, _: &i64| (places.room(account) > 0).then_some(());
        // One that is gone or has nothing to send must not use up the turn of the others.
        for _ in 0..self.limits.steps {
            let Some((number, ())) = self.blocked.pop_with(free) else { return };
            let Some(queue) = self.queues.get_mut(&number) else { continue };
            queue.sending.blocked = false;
            let sends = queue.enabled && (queue.has_work() || !queue.sending.urgent.is_empty());
            self.touch(number);
            if sends {
                return;
            }
        }
    }

    /// Something about this queue has changed.
    fn touch(&mut self, number: i64) {
        if let Some(queue) = self.queues.get_mut(&number)
            && !queue.ready
        {
            queue.ready = true;
            self.ready.push(queue.account(), number);
        }
    }

    fn rang(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Tick => self.tick(),
            Alarm::Queue(number) => self.touch(number),
            Alarm::Replay(number) => self.wake_replay(number),
            Alarm::Asked => self.look_for_asked(),
            // The next turn of the loop looks for itself.
            Alarm::Settle => {}
            Alarm::End => self.give_up(),
        }
    }

    fn done(&mut self, result: TaskResult) {
        match result {
            TaskResult::Head(follower, events) => self.head.came(follower, events),
            TaskResult::Reloaded { scope, collection, id, record } => {
                self.reloaded(scope, collection, &id, record);
            }
            TaskResult::Queue { number, opened, answer, reserved } => {
                self.answered((number, opened), answer, reserved)
            }
            TaskResult::Holdings => self.watch_buckets(),
            TaskResult::Loaded(loaded) => self.loaded_buckets(*loaded),
            TaskResult::Searched { scope, found, reserved } => {
                self.searched(scope, found, reserved);
            }
            TaskResult::Settled => self.settled(),
            TaskResult::Nudged(nudged) => self.nudged(nudged),
            TaskResult::Asked(endpoints) => self.got_asked(&endpoints),
            TaskResult::Waiting { asked, oldest } => self.got_waiting(&asked, &oldest),
            TaskResult::RecordChanged { number, opened } => self.record_changed(number, opened),
            TaskResult::Replay { number, opened, step, reserved } => {
                self.replay_went_on((number, opened), step, reserved)
            }
        }
    }

    fn count(&self) {
        let figures = &self.metrics;
        figures.in_flight.store(self.sends.len() as u64, Relaxed);
        figures.unsettled.store(self.settler.unsettled() as u64, Relaxed);
        figures.queues.store(self.queues.len() as u64, Relaxed);
        figures.loaded_bytes.store(self.loaded.bytes() as u64, Relaxed);
    }
}
