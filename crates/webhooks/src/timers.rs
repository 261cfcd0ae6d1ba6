//! When to look again, and at what. One sleep for the earliest of all moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// The regular look at clocks and positions.
    Tick,
    Lane(i64),
    Replay(i64),
    /// Outcomes have waited long enough to be made durable.
    Settle,
    /// The end of the time to drain.
    End,
}

pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Alarm)>>,
    sleep: Pin<Box<Sleep>>,
}

impl Timers {
    pub fn new(now: Instant) -> Timers {
        Timers { heap: BinaryHeap::new(), sleep: Box::pin(tokio::time::sleep_until(now)) }
    }

    pub fn set(&mut self, at: Instant, alarm: Alarm) {
        self.heap.push(Reverse((at, alarm)));
    }

    /// The next alarm whose time has come.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Alarm> {
        let Some(Reverse((at, alarm))) = self.heap.peek().copied() else {
            return Poll::Pending;
        };
        if at > now {
            if self.sleep.deadline() != at {
                self.sleep.as_mut().reset(at);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.heap.pop();
        Poll::Ready(alarm)
    }
}
