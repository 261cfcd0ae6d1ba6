//! The time of this round of the loop, by both clocks: read once, used by all.

use crate::Outside;
use model::Timestamp;
use std::rc::Rc;
use tokio::time::Instant;

pub struct Clock {
    pub now: Instant,
    pub wall: Timestamp,
    iso: (Timestamp, Rc<str>),
}

impl Clock {
    pub fn new(outside: &dyn Outside) -> Clock {
        let wall = outside.now();
        Clock { now: Instant::now(), wall, iso: (wall, wall.to_iso().into()) }
    }

    pub fn read(&mut self, outside: &dyn Outside) {
        self.now = Instant::now();
        self.wall = outside.now();
        if self.iso.0 != self.wall {
            self.iso = (self.wall, self.wall.to_iso().into());
        }
    }

    /// The wall clock's time as text.
    pub fn iso(&self) -> Rc<str> {
        self.iso.1.clone()
    }
}
