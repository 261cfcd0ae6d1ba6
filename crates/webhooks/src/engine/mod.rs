//! The actor: everything it holds, its loop, and who comes next. The parts of its work stand in the
//! files beside this one. Nothing here waits: futures are polled, and what they bring is handled at
//! once.

mod chores;
pub(crate) mod clock;
mod start;
mod head;
mod read;
mod retry;
mod land;
mod care;
mod stop;
mod replay;

use crate::ids::Ids;
use crate::journal::Journal;
use crate::lane::{Lane, Next};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::pins::Pins;
use crate::prepared::Loaded;
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
use replay::Replays;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use stop::{Phase, Winding};
use store::Store;
use tokio::time::Instant;

/// Moments nearer than this are one: spares timers that differ by a rounding.
const SAME_TIME: Duration = Duration::from_millis(2);

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
    /// Lanes to look at, in turn.
    ready: VecDeque<i64>,
    /// Lanes that want to read on.
    hungry: VecDeque<i64>,
    /// Lanes that wait because too much is under way.
    crowd: VecDeque<i64>,
    /// Lanes whose position may have moved.
    dirty: Vec<i64>,
    /// Lanes with requests under way, and reads under way.
    busy_lanes: usize,
    reads: usize,
    /// What an event weighs, on average of late.
    mean_bytes: usize,
    /// The store is being asked how long retries have waited.
    asking_ages: bool,
    phase: Phase,
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
        loop {
            self.clock.read(&*self.outside);
            self.pump();
            let mut moved = false;
            while let Poll::Ready(Some(landed)) = self.sends.poll(cx) {
                self.landed(landed);
                moved = true;
            }
            while let Poll::Ready(Some(chore)) = self.chores.poll(cx) {
                self.done(chore);
                moved = true;
            }
            while let Poll::Ready(alarm) = self.timers.poll(cx, self.clock.now) {
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
    }

    /// Begins whatever can be begun.
    fn pump(&mut self) {
        self.journal.flush();
        if self.is_running() {
            self.advance_head();
            self.advance_replays();
            while self.has_capacity() {
                let Some(number) = self.ready.pop_front() else { break };
                if self.step(number) {
                    // Its next turn comes after everybody else's.
                    self.ready.push_back(number);
                }
            }
            self.feed_hungry();
        }
        self.settle();
    }

    fn has_capacity(&self) -> bool {
        self.sends.len() < self.limits.in_flight && self.settler.unsettled() < self.limits.unsettled
    }

    /// Does one thing for a lane. Says whether there may be more.
    fn step(&mut self, number: i64) -> bool {
        let (now, share) = (self.clock.now, self.share());
        self.ask_retries(number);
        let Some(lane) = self.lanes.get_mut(&number) else { return false };
        match lane.next(now, share, &self.limits) {
            Next::Send(job) => {
                self.busy_lanes += usize::from(lane.in_flight == 0);
                lane.in_flight += 1;
                self.sends.launch(Owner::Lane(number), job, &lane.post, &self.clock);
                true
            }
            Next::Skip(job) => {
                self.skip(number, job);
                true
            }
            Next::Wait(at) => {
                lane.ready = false;
                if let Some(at) = at {
                    self.wake_lane(number, at);
                }
                self.want_read(number);
                false
            }
            Next::Crowded => {
                lane.ready = false;
                if !std::mem::replace(&mut lane.crowded, true) {
                    self.crowd.push_back(number);
                }
                false
            }
        }
    }

    /// Room was made: one of those that waited for it gets its turn.
    fn thin_crowd(&mut self) {
        if let Some(number) = self.crowd.pop_front()
            && let Some(lane) = self.lanes.get_mut(&number)
        {
            lane.crowded = false;
            self.touch(number);
        }
    }

    /// How many requests one lane may have under way: while there is plenty of room, as many as its
    /// own window says; then its fair part, so that those that hang cannot fill everything.
    fn share(&self) -> usize {
        match self.sends.len() * 2 < self.limits.in_flight {
            true => usize::MAX,
            false => (self.limits.in_flight / 2 / self.busy_lanes.max(1)).max(1),
        }
    }

    /// Something about this lane has changed.
    fn touch(&mut self, number: i64) {
        if let Some(lane) = self.lanes.get_mut(&number)
            && !lane.ready
        {
            lane.ready = true;
            self.ready.push_back(number);
        }
    }

    fn wake_lane(&mut self, number: i64, at: Instant) {
        if let Some(lane) = self.lanes.get_mut(&number)
            && lane.wake.is_none_or(|wake| at + SAME_TIME < wake)
        {
            lane.wake = Some(at);
            self.timers.set(at, Alarm::Lane(number));
        }
    }

    fn rang(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Tick => self.tick(),
            Alarm::Lane(number) => {
                if let Some(lane) = self.lanes.get_mut(&number) {
                    lane.wake = None;
                    self.touch(number);
                }
            }
            Alarm::Replay(number) => self.wake_replay(number),
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
            Chore::Read { number, batch } => self.was_read(number, batch),
            Chore::Retries { number, retries, most } => self.got_retries(number, retries, most),
            Chore::Census { number, retries, most } => {
                self.got_census(number, &retries, most);
            }
            Chore::Settled => self.settled(),
            Chore::Nudged(nudged) => self.nudged(nudged),
            Chore::Standings(standings) => self.got_standings(&standings),
            Chore::Waiting { asked, oldest } => self.got_waiting(&asked, &oldest),
            Chore::Wished(number) => self.wished(number),
            Chore::Replay(number, step) => self.replay_went_on(number, step),
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
