//! When to look again, and at what. Each owner has one alarm, its earliest. One sleep for the
//! earliest of all.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Moments nearer than this are one: spares alarms that differ by a rounding.
const SAME_TIME: Duration = Duration::from_millis(2);
/// Replaced alarms stay in the heap until it has this many more entries than alarms.
const STALE: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// The regular look at clocks and positions.
    Tick,
    Queue(i64),
    Replay(i64),
    /// Outcomes have waited long enough to be made durable.
    Settle,
    /// Manual retries are looked for again.
    Asked,
    /// The end of the time to drain.
    End,
}

pub struct Timers {
    /// May hold alarms that were replaced by an earlier one.
    heap: BinaryHeap<Reverse<(Instant, Alarm)>>,
    set: HashMap<Alarm, Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl Timers {
    pub fn new(now: Instant) -> Timers {
        let sleep = Box::pin(tokio::time::sleep_until(now));
        Timers { heap: BinaryHeap::new(), set: HashMap::new(), sleep }
    }

    /// Sets the alarm, unless it is set for an earlier moment.
    pub fn set(&mut self, at: Instant, alarm: Alarm) {
        if self.set.get(&alarm).is_some_and(|known| *known <= at + SAME_TIME) {
            return;
        }
        self.set.insert(alarm, at);
        self.heap.push(Reverse((at, alarm)));
        if self.heap.len() > self.set.len() + STALE {
            self.heap = self.set.iter().map(|(alarm, at)| Reverse((*at, *alarm))).collect();
        }
    }

    /// The next alarm whose time has come. It is not set any more.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Alarm> {
        loop {
            let Some(Reverse((at, alarm))) = self.heap.peek().copied() else {
                return Poll::Pending;
            };
            if self.set.get(&alarm) != Some(&at) {
                self.heap.pop();
                continue;
            }
            if at > now {
                if self.sleep.deadline() != at {
                    self.sleep.as_mut().reset(at);
                }
                if self.sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            self.heap.pop();
            self.set.remove(&alarm);
            return Poll::Ready(alarm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[tokio::test]
    async fn each_owner_has_only_its_earliest_alarm() {
        let now = Instant::now();
        let later = |millis| now + Duration::from_millis(millis);
        let mut timers = Timers::new(now);
        for millis in (10..2000).rev() {
            timers.set(later(millis), Alarm::Queue(1));
        }
        timers.set(later(50), Alarm::Queue(1));
        timers.set(later(40), Alarm::Replay(1));
        assert!(timers.heap.len() <= STALE + 3, "{}", timers.heap.len());
        let cx = &mut Context::from_waker(Waker::noop());
        assert_eq!(timers.poll(cx, later(3000)), Poll::Ready(Alarm::Queue(1)));
        assert_eq!(timers.poll(cx, later(3000)), Poll::Ready(Alarm::Replay(1)));
        assert_eq!(timers.poll(cx, later(3000)), Poll::Pending);
    }
}
