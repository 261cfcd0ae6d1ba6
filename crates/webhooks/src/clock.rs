//! The time of one pass of the engine, by all clocks: read once, used by all parts.

use crate::Outside;
use model::Timestamp;
use std::rc::Rc;
use tokio::time::Instant;

pub struct Clock {
    pub now: Instant,
    /// The wall clock of the system: receivers compare it with theirs.
    pub wall: Timestamp,
    /// The wall clock, but it never runs backwards: set back, it goes on from where it was. What is
    /// kept, planned and waited for goes by it, so that no retry comes late or early for it.
    pub steady: Timestamp,
    /// When it last followed the wall clock.
    anchor: (Instant, Timestamp),
    iso: (Timestamp, Rc<str>),
}

impl Clock {
    /// `least` is a moment that is known to have passed.
    pub fn new(outside: &dyn Outside, least: Timestamp) -> Clock {
        let (wall, now) = (outside.now(), Instant::now());
        let steady = wall.max(least);
        Clock { now, wall, steady, anchor: (now, steady), iso: (steady, steady.to_iso().into()) }
    }

    pub fn read(&mut self, outside: &dyn Outside) {
        // In this order: a rest between the two must not look like a clock set ahead.
        self.wall = outside.now();
        self.now = Instant::now();
        let passed = self.now.saturating_duration_since(self.anchor.0).as_millis();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        self.steady = Timestamp(self.anchor.1.0.saturating_add(passed));
        if self.wall > self.steady {
            self.steady = self.wall;
            self.anchor = (self.now, self.wall);
        }
        if self.iso.0 != self.steady {
            self.iso = (self.steady, self.steady.to_iso().into());
        }
    }

    /// The steady time as text.
    pub fn iso(&self) -> Rc<str> {
        self.iso.1.clone()
    }
}
