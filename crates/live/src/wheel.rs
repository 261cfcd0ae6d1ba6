//! When to look at a connection again: one wheel for all connections of a thread instead of a timer
//! for each.

/// Slots of the wheel; what is due later goes round again.
const SLOTS: usize = 128;

#[derive(Debug)]
pub struct Wheel {
    slots: Vec<Vec<usize>>,
    now: u32,
}

impl Wheel {
    pub fn new(now: u32) -> Wheel {
        Wheel { slots: (0..SLOTS).map(|_| Vec::new()).collect(), now }
    }

    /// Files a key under the tick at which it is due, or under the last one the wheel reaches.
    /// Returns that tick.
    pub fn file(&mut self, key: usize, due: u32) -> u32 {
        let tick = due.clamp(self.now + 1, self.now + SLOTS as u32 - 1);
        self.slots[tick as usize % SLOTS].push(key);
        tick
    }

    /// Goes on to a tick; whatever was filed on the way comes out.
    pub fn turn(&mut self, now: u32) -> Vec<usize> {
        let mut out = Vec::new();
        // A thread that slept longer than the wheel is long looks into each slot once.
        for tick in (self.now + 1..=now).take(SLOTS) {
            out.append(&mut self.slots[tick as usize % SLOTS]);
        }
        self.now = self.now.max(now);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_at_its_tick() {
        let mut wheel = Wheel::new(10);
        assert_eq!(wheel.file(1, 12), 12);
        assert_eq!(wheel.file(2, 10), 11);
        assert_eq!(wheel.file(3, 10_000), 137);
        assert_eq!(wheel.turn(11), [2]);
        assert_eq!(wheel.turn(12), [1]);
        assert_eq!(wheel.turn(13), [0; 0]);
        assert_eq!(wheel.turn(500), [3]);
    }
}
