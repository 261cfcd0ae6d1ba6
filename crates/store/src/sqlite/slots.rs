//! Turns at the processor for reads that take long. A few run at the same time; after each slice a
//! read lets the one go on that has waited longest. So a short read never waits for a long one to
//! end, whoever asked for it. Knows no read.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

pub struct Slots {
    state: Mutex<State>,
    turned: Condvar,
}

struct State {
    free: usize,
    /// Ticket number of the next read that comes.
    next: u64,
    /// Ticket number of the next read to be let in.
    serving: u64,
}

/// A turn. Dropping it lets the next one in.
pub struct Slot(Arc<Slots>);

impl Slots {
    pub fn new(free: usize) -> Arc<Slots> {
        let state = Mutex::new(State { free, next: 0, serving: 0 });
        Arc::new(Slots { state, turned: Condvar::new() })
    }

    /// Waits for a turn, behind all that wait already.
    pub fn enter(self: &Arc<Slots>) -> Slot {
        self.wait();
        Slot(self.clone())
    }

    /// Lets the others have their turns, if any wait. The caller must have a slot.
    pub fn pass(&self) {
        let state = self.state.lock();
        if state.next == state.serving {
            return;
        }
        drop(state);
        self.leave();
        self.wait();
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        while state.free == 0 || state.serving != number {
            self.turned.wait(&mut state);
        }
        state.serving += 1;
        state.free -= 1;
        if state.free > 0 && state.serving != state.next {
            self.turned.notify_all();
        }
    }

    fn leave(&self) {
        self.state.lock().free += 1;
        self.turned.notify_all();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_short_one_gets_its_turn_while_long_ones_run() {
        let slots = Slots::new(2);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let done = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _slot = slots.enter();
                    // Until all short ones are done, each of which needs a turn.
                    while done.load(Ordering::SeqCst) < 3 {
                        assert!(Instant::now() < deadline, "the short ones never had a turn");
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                        running.fetch_sub(1, Ordering::SeqCst);
                        slots.pass();
                    }
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    let _slot = slots.enter();
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) < 2, "two at most run");
        let state = slots.state.lock();
        assert_eq!((state.free, state.next), (2, state.serving));
    }
}
