//! Turns at the processor for reads that take long. A few run at the same time; after each slice a
//! read lets the one go on that has waited longest. So a short read never waits for a long one to
//! end, whoever asked for it. No account has all turns: some reads cannot be interrupted. Knows no
//! read.

use super::fair::Tenant;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

pub struct Slots {
    /// Turns of one tenant at the same time.
    share: usize,
    state: Mutex<State>,
    turned: Condvar,
}

struct State {
    free: usize,
    /// Ticket number of the next read that comes.
    next: u64,
    /// Those that wait, by their ticket numbers.
    waiting: VecDeque<(u64, Tenant)>,
    /// Who has the turns that are taken.
    running: Vec<Tenant>,
}

/// A turn. Dropping it lets the next one in.
pub struct Slot {
    slots: Arc<Slots>,
    tenant: Tenant,
}

impl Slots {
    pub fn new(free: usize) -> Arc<Slots> {
        let (waiting, running) = (VecDeque::new(), Vec::with_capacity(free));
        let state = Mutex::new(State { free, next: 0, waiting, running });
        Arc::new(Slots { share: free.saturating_sub(1).max(1), state, turned: Condvar::new() })
    }

    /// Waits for a turn, behind all that wait already.
    pub fn enter(self: &Arc<Slots>, tenant: Tenant) -> Slot {
        self.wait(tenant);
        Slot { slots: self.clone(), tenant }
    }

    fn wait(&self, tenant: Tenant) {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back((number, tenant));
        while state.first(self.share) != Some(number) {
            self.turned.wait(&mut state);
        }
        state.waiting.retain(|(other, _)| *other != number);
        state.running.push(tenant);
        state.free -= 1;
        if state.first(self.share).is_some() {
            self.turned.notify_all();
        }
    }

    fn leave(&self, tenant: Tenant) {
        let mut state = self.state.lock();
        if let Some(place) = state.running.iter().position(|one| *one == tenant) {
            state.running.swap_remove(place);
            state.free += 1;
        }
        self.turned.notify_all();
    }
}

impl State {
    /// The one that has waited longest of those that may run now.
    fn first(&self, share: usize) -> Option<u64> {
        let held = |tenant| self.running.iter().filter(|one| **one == tenant).count();
        let mut waiting = self.waiting.iter().filter(|_| self.free > 0);
        waiting.find(|(_, tenant)| held(*tenant) < share).map(|(number, _)| *number)
    }
}

impl Slot {
    /// Lets the others have their turns, if any wait.
    pub fn pass(&self) {
        if !self.slots.state.lock().waiting.is_empty() {
            self.slots.leave(self.tenant);
            self.slots.wait(self.tenant);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.leave(self.tenant);
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
            for account in 0..4 {
                let (slots, done, running, most) = (&slots, &done, &running, &most);
                scope.spawn(move || {
                    let slot = slots.enter(Tenant::Account(account));
                    // Until all short ones are done, each of which needs a turn.
                    while done.load(Ordering::SeqCst) < 3 {
                        assert!(Instant::now() < deadline, "the short ones never had a turn");
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                        running.fetch_sub(1, Ordering::SeqCst);
                        slot.pass();
                    }
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    let _slot = slots.enter(Tenant::Account(9));
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) < 2, "two at most run");
        let state = slots.state.lock();
        assert_eq!((state.free, state.waiting.len(), state.running.len()), (2, 0, 0));
    }

    #[test]
    fn one_account_never_has_all_turns() {
        let slots = Slots::new(2);
        let endless = slots.enter(Tenant::Account(1));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(slots.enter(Tenant::Account(1))));
            let deadline = Instant::now() + Duration::from_secs(20);
            while slots.state.lock().waiting.is_empty() {
                assert!(Instant::now() < deadline, "the second one got a turn");
                std::thread::yield_now();
            }
            // Comes later, and has its turn although the first one never passes on its own.
            drop(slots.enter(Tenant::Account(2)));
            assert!(!second.is_finished());
            drop(endless);
        });
    }
}
