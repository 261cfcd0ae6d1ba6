//! The actor: everything it holds, its loop, and who comes next. The parts of its work stand in the
//! files beside this one. Nothing here waits: futures are polled, and what they bring is handled at
//! once.
//!
//! Progress. A lane is looked at (`step`) only after something about it has changed. Each look
//! sends or records something, or ends with the lane waiting for exactly one of: a response, an
//! answer of the store, a timer, room in a budget. Room comes back only when something that was
//! sent or asked for ends, and whoever waits for room is looked at then. So every pass sends, waits
//! or ends, and no lane is looked at again for nothing. A pass is bounded (`Limits::steps`), and
//! after it the engine looks at responses, timers and the signal to stop.

mod chores;
mod ask;
pub(crate) mod clock;
mod start;
mod head;
mod read;
mod retry;
mod land;
mod care;
mod stop;
mod replay;

use crate::fair::FairQueue;
use crate::filter_time::FilterTime;
use crate::ids::Ids;
use crate::journal::Journal;
use crate::lane::{Lane, Next};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::pins::Pins;
use crate::prepared::Loaded;
use crate::replays::Replays;
use crate::send::Sends;
use crate::settle::{Owner, Settler};
use crate::subscriptions::Subscriptions;
use crate::timers::{Alarm, Timers};
use crate::{Outside, Parts};
use chores::{Chore, Chores};
use clock::Clock;
use head::Head;
use model::version::Versions;
use model::{Schema, Scope};
use std::collections::{HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use stop::{Phase, Winding};
use store::{Heartbeat, Store};
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
    lanes: HashMap<i64, Lane>,
    /// Endpoints by their ids.
    names: HashMap<(Scope, String), i64>,
    subscriptions: Subscriptions,
    head: Head,
    replays: Replays,
    sends: Sends,
    chores: Chores,
    settler: Settler,
    journal: Journal,
    timers: Timers,
    /// Lanes to look at, account by account.
    ready: FairQueue<i64>,
    /// Those that want to ask the store something.
    asks: FairQueue<Asker>,
    /// Those that want to write their record.
    changes: FairQueue<Asker>,
    /// Lanes that wait because their account has too much under way.
    crowd: FairQueue<i64>,
    /// What filters took, by account.
    filter_time: Rc<FilterTime>,
    /// Requests under way, by account.
    places: Arc<Budget<i64>>,
    /// Questions and writes under way.
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
}

/// Who waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    Lane(i64),
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
            let mut moved = self.pump();
            // As many as a pass may begin: what comes faster waits for the next one.
            for _ in 0..self.limits.steps {
                let Poll::Ready(Some(landed)) = self.sends.poll(cx) else { break };
                self.landed(landed);
                moved = true;
            }
            for _ in 0..self.limits.steps {
                let Poll::Ready(Some(chore)) = self.chores.poll(cx) else { break };
                self.done(chore);
                moved = true;
            }
            for _ in 0..self.limits.steps {
                let Poll::Ready(alarm) = self.timers.poll(cx, self.clock.now) else { break };
                self.rang(alarm);
                moved = true;
            }
            match self.wind_up() {
                Winding::Over => return Poll::Ready(()),
                Winding::Moved => moved = true,
                Winding::Still => {}
            }
            if !moved {
                self.count();
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Begins whatever can be begun, so much at a time. Says whether there may be more to begin.
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
                    let account = self.lanes.get(&number).map(Lane::account);
                    self.ready.push(account.unwrap_or_default(), number);
                }
            }
            more = steps == self.limits.steps && !self.ready.is_empty();
            self.serve_asks();
        }
        self.serve_changes();
        self.settle();
        more
    }

    fn has_capacity(&self) -> bool {
        self.settler.unsettled() < self.limits.unsettled
    }

    /// Does one thing for a lane. Says whether there may be more.
    fn step(&mut self, number: i64) -> bool {
        let now = self.clock.now;
        let Some(lane) = self.lanes.get_mut(&number) else { return false };
        let account = lane.account();
        match lane.next(now, self.places.room(account), &self.limits) {
            Next::Send(job) => {
                lane.in_flight += 1;
                let place = self.places.take(account, 1);
                self.sends.launch(Owner::Lane(number), job, &lane.post, &self.clock, place);
                true
            }
            Next::Skip(job) => {
                self.skip(number, job);
                true
            }
            Next::Wait(at) => {
                lane.ready = false;
                if let Some(at) = at {
                    self.timers.set(at, Alarm::Lane(number));
                }
                self.want(number);
                false
            }
            Next::Crowded => {
                lane.ready = false;
                if !std::mem::replace(&mut lane.crowded, true) {
                    self.crowd.push(account, number);
                }
                self.want(number);
                false
            }
        }
    }

    /// A request ended: those get their turn that waited for its place.
    pub(super) fn thin_crowd(&mut self) {
        let places = self.places.clone();
        let free = |account: i64, _: &i64| (places.room(account) > 0).then_some(());
        // One that is gone or has nothing to send must not use up the turn of the others.
        for _ in 0..self.limits.steps {
            let Some((number, ())) = self.crowd.pop_with(free) else { return };
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            lane.crowded = false;
            let sends = lane.enabled && (lane.has_work() || !lane.urgent.is_empty());
            self.touch(number);
            if sends {
                return;
            }
        }
    }

    /// Something about this lane has changed.
    fn touch(&mut self, number: i64) {
        if let Some(lane) = self.lanes.get_mut(&number)
            && !lane.ready
        {
            lane.ready = true;
            self.ready.push(lane.account(), number);
        }
    }

    fn rang(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Tick => self.tick(),
            Alarm::Lane(number) => self.touch(number),
            Alarm::Replay(number) => self.wake_replay(number),
            Alarm::Asked => self.look_for_asked(),
            // The next turn of the loop looks for itself.
            Alarm::Settle => {}
            Alarm::End => self.give_up(),
        }
    }

    fn done(&mut self, chore: Chore) {
        match chore {
            Chore::Head(follower, events) => self.head.came(follower, events),
            Chore::Reloaded { scope, collection, id, record } => {
                self.reloaded(scope, collection, &id, record);
            }
            Chore::Lane { number, answer, reserved } => self.answered(number, answer, reserved),
            Chore::Settled => self.settled(),
            Chore::Nudged(nudged) => self.nudged(nudged),
            Chore::Asked(endpoints) => self.got_asked(&endpoints),
            Chore::Waiting { asked, oldest } => self.got_waiting(&asked, &oldest),
            Chore::Wished(number) => self.wished(number),
            Chore::Replay { number, step, reserved } => self.replay_went_on(number, step, reserved),
        }
    }

    fn count(&self) {
        let figures = &self.metrics;
        figures.in_flight.store(self.sends.len() as u64, Relaxed);
        figures.unsettled.store(self.settler.unsettled() as u64, Relaxed);
        figures.lanes.store(self.lanes.len() as u64, Relaxed);
        figures.loaded_bytes.store(self.loaded.bytes() as u64, Relaxed);
    }
}
