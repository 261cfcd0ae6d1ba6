//! A bounded amount (of bytes, of places) that many holders share. One holder alone may take half
//! of it; the more holders there are, the smaller the share of each. So what is left is always
//! enough for one more: a holder that takes all it can get leaves room for the others.
//!
//! The rule is the dynamic threshold of shared-memory switches: a holder may hold at most as much
//! as is still free. With `n` greedy holders each gets `1/(n+1)` of the total, and `1/(n+1)` stays
//! free for the next. Nothing has to be reserved.
//!
//! A holder that can wait for its part queues ([`Wait`]). What is given back wakes the oldest
//! waiters that it is enough for; a waiter that needs much is not passed by others of its holder.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The shared amount. `K` names a holder: an account, an address.
#[derive(Debug)]
pub struct Budget<K> {
    total: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    held: usize,
    holders: HashMap<K, usize>,
    /// By ticket: the oldest first.
    waiting: BTreeMap<u64, Waiting<K>>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiting<K> {
    holder: K,
    amount: usize,
    waker: Waker,
}

/// A place in the queue for a part of the budget. It is kept until the part was taken or is not
/// wanted any more.
#[derive(Debug)]
pub(crate) struct Wait<K: Copy + Eq + Hash> {
    budget: Arc<Budget<K>>,
    ticket: u64,
}

/// A part of the budget. Dropping it gives the part back.
#[derive(Debug)]
pub struct Share<K: Copy + Eq + Hash> {
    budget: Arc<Budget<K>>,
    holder: K,
    amount: usize,
}

impl<K: Copy + Eq + Hash> Budget<K> {
    pub fn new(total: usize) -> Arc<Budget<K>> {
        let state =
            State { held: 0, holders: HashMap::new(), waiting: BTreeMap::new(), next_ticket: 0 };
        Arc::new(Budget { total, state: Mutex::new(state) })
    }

    /// A part for this holder; `None` while it would hold more than its share. The first part of a
    /// holder may be larger than a share, so that one large item can always pass.
    pub fn take(self: &Arc<Budget<K>>, holder: K, amount: usize) -> Option<Share<K>> {
        self.add(holder, amount).then(|| Share { budget: self.clone(), holder, amount })
    }

    /// How much this holder may take at once.
    pub fn room(&self, holder: K) -> usize {
        let state = self.lock();
        let left = self.total.saturating_sub(state.held);
        match state.holders.get(&holder) {
            None => left,
            Some(held) => left.saturating_sub(*held) / 2,
        }
    }

    /// Whether `take` would succeed.
    pub fn has_room(&self, holder: K, amount: usize) -> bool {
        let state = self.lock();
        state.allows(self.total, &holder, amount)
    }

    pub fn total(&self) -> usize {
        self.total
    }

    /// How much all holders have together.
    pub fn held(&self) -> usize {
        self.lock().held
    }

    /// How much one holder has.
    pub fn held_by(&self, holder: K) -> usize {
        self.lock().holders.get(&holder).copied().unwrap_or_default()
    }

    fn add(&self, holder: K, amount: usize) -> bool {
        let mut state = self.lock();
        let allowed = state.allows(self.total, &holder, amount);
        if allowed && amount > 0 {
            state.held += amount;
            *state.holders.entry(holder).or_default() += amount;
        }
        allowed
    }

    fn remove(&self, holder: K, amount: usize) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(amount);
        if let Entry::Occupied(mut held) = state.holders.entry(holder) {
            match held.get().saturating_sub(amount) {
                0 => drop(held.remove()),
                left => *held.get_mut() = left,
            }
        }
        let woken = state.satisfied(self.total);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Queues for a part of the budget, in the old place if there was one. False if there is room
    /// now: then the caller has to try again instead.
    pub(crate) fn enqueue(
        self: &Arc<Budget<K>>,
        place: &mut Option<Wait<K>>,
        holder: K,
        amount: usize,
        waker: &Waker,
    ) -> bool {
        let mut state = self.lock();
        if state.allows(self.total, &holder, amount) {
            return false;
        }
        let ticket = match place {
            Some(wait) => wait.ticket,
            None => {
                state.next_ticket += 1;
                let wait = Wait { budget: self.clone(), ticket: state.next_ticket };
                place.insert(wait).ticket
            }
        };
        state.waiting.insert(ticket, Waiting { holder, amount, waker: waker.clone() });
        true
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // The counts are whole after every statement, so a panic elsewhere leaves them usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    fn allows(&self, total: usize, holder: &K, amount: usize) -> bool {
        let Some(left) = total.checked_sub(self.held.saturating_add(amount)) else { return false };
        match self.holders.get(holder) {
            None => true,
            Some(held) => held.saturating_add(amount) <= left,
        }
    }

    /// Takes those out of the queue for which there is room, the oldest first. They have to take
    /// their part themselves, and queue in their old place if another was faster.
    fn satisfied(&mut self, total: usize) -> Vec<Waker> {
        let mut woken = Vec::new();
        if self.waiting.is_empty() {
            return woken;
        }
        // What the woken ones are going to take, and whose oldest waiter has to go on waiting.
        let (mut promised, mut promised_to) = (0, HashMap::<K, usize>::new());
        let mut blocked = Vec::new();
        let (held, holders) = (self.held, &self.holders);
        self.waiting.retain(|_, waiting| {
            if blocked.contains(&waiting.holder) {
                return true;
            }
            let own = promised_to.entry(waiting.holder).or_default();
            let holds = holders.get(&waiting.holder).copied().unwrap_or_default() + *own;
            let amount = waiting.amount;
            let left = total.checked_sub(held.saturating_add(promised).saturating_add(amount));
            if left.is_some_and(|left| holds == 0 || holds.saturating_add(amount) <= left) {
                *own += amount;
                promised += amount;
                woken.push(waiting.waker.clone());
                return false;
            }
            blocked.push(waiting.holder);
            true
        });
        woken
    }
}

impl<K: Copy + Eq + Hash> Drop for Wait<K> {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.waiting.remove(&self.ticket);
        // Others may be next: this one was woken, or stood before them.
        let woken = state.satisfied(self.budget.total);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl<K: Copy + Eq + Hash> Share<K> {
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes more; says whether there was room. Nothing changes if there was none.
    pub fn grow(&mut self, amount: usize) -> bool {
        let grown = self.budget.add(self.holder, amount);
        if grown {
            self.amount += amount;
        }
        grown
    }

    /// Gives a part back.
    pub fn shrink(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        self.budget.remove(self.holder, amount);
        self.amount -= amount;
    }
}

impl<K: Copy + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        self.budget.remove(self.holder, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Takes units until there is no room; returns how many it got.
    fn fill(budget: &Arc<Budget<u8>>, holder: u8, kept: &mut Vec<Share<u8>>) -> usize {
        let before = budget.held_by(holder);
        while let Some(share) = budget.take(holder, 1) {
            kept.push(share);
        }
        budget.held_by(holder) - before
    }

    #[test]
    fn greedy_holders_leave_a_share_for_one_more() {
        let (budget, mut kept) = (Budget::new(1200), Vec::new());
        assert_eq!(fill(&budget, 1, &mut kept), 600);
        assert_eq!(fill(&budget, 2, &mut kept), 300);
        assert_eq!(fill(&budget, 3, &mut kept), 150);
        assert_eq!(fill(&budget, 1, &mut kept), 0, "it has more than its share by now");
        // As soon as it gives some back, the others come up to it.
        let mut given_back = 0;
        kept.retain(|share| {
            given_back += usize::from(share.holder == 1);
            share.holder != 1 || given_back > 400
        });
        assert_eq!(budget.held_by(1), 200);
        fill(&budget, 2, &mut kept);
        fill(&budget, 3, &mut kept);
        assert!(budget.held_by(3) > 150 && budget.has_room(4, 100));
    }

    #[test]
    fn the_first_item_may_be_larger_than_a_share_but_not_than_the_rest() {
        let budget = Budget::new(100);
        let large = budget.take(1, 90).unwrap();
        assert!(!budget.has_room(1, 1) && !budget.has_room(2, 11));
        assert!(budget.take(2, 10).is_some());
        drop(large);
        assert!(budget.take(3, 101).is_none());
    }

    #[test]
    fn shares_grow_shrink_and_come_back() {
        let budget = Budget::new(100);
        let mut share = budget.take(7, 0).unwrap();
        assert!(share.grow(40));
        assert_eq!((budget.room(7), budget.room(8)), (10, 60));
        assert!(!share.grow(20), "60 of 100 would be more than what is left");
        share.shrink(30);
        assert_eq!((share.amount(), budget.held(), budget.held_by(7)), (10, 10, 10));
        drop(share);
        assert_eq!((budget.held(), budget.lock().holders.len()), (0, 0));
    }

    /// Counts how often a waiter is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Waiter {
        place: Option<Wait<u8>>,
        count: Arc<Count>,
    }

    impl Waiter {
        fn queued(budget: &Arc<Budget<u8>>, holder: u8, amount: usize) -> Waiter {
            let mut waiter = Waiter { place: None, count: Arc::default() };
            assert!(waiter.queue(budget, holder, amount));
            waiter
        }

        fn queue(&mut self, budget: &Arc<Budget<u8>>, holder: u8, amount: usize) -> bool {
            let waker = Waker::from(self.count.clone());
            budget.enqueue(&mut self.place, holder, amount, &waker)
        }

        fn woken(&self) -> usize {
            self.count.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn returned_budget_wakes_the_oldest_waiters_that_fit() {
        let budget = Budget::new(100);
        let mut first = budget.take(1, 50).unwrap();
        let large = Waiter::queued(&budget, 1, 20);
        let small = Waiter::queued(&budget, 1, 1);
        let mut late = Waiter { place: None, count: Arc::default() };
        assert!(!late.queue(&budget, 2, 10), "another holder has room");
        first.shrink(5);
        assert_eq!((large.woken(), small.woken()), (0, 0), "the small one does not pass it");
        first.shrink(15);
        assert_eq!((large.woken(), small.woken()), (1, 0));
        // Woken, it leaves: the next one is not forgotten.
        drop(large);
        assert_eq!(small.woken(), 1);
        drop(small);
        assert!(budget.lock().waiting.is_empty());
    }

    #[test]
    fn waiters_of_one_holder_do_not_delay_those_of_another() {
        let budget = Budget::new(100);
        let greedy = budget.take(1, 45).unwrap();
        let mut other = budget.take(2, 27).unwrap();
        let theirs = Waiter::queued(&budget, 1, 5);
        let ours = Waiter::queued(&budget, 2, 5);
        other.shrink(7);
        assert_eq!((theirs.woken(), ours.woken()), (0, 1), "{} left", 100 - budget.held());
        drop(greedy);
        assert_eq!(theirs.woken(), 1);
    }
}
