//! Queues that are fair between accounts. Each account has its own queue; they are served round
//! robin, one item each. One account may hold at most as many places as are still free, so whatever
//! it queues, there is room for the others, and it is refused alone. Knows no job.

use model::Scope;
use std::collections::{HashMap, HashSet, VecDeque};

/// The owner of a queue: an account in all its modes, or the service itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tenant {
    Service,
    Account(i64),
}

impl From<Scope> for Tenant {
    fn from(scope: Scope) -> Tenant {
        Tenant::Account(scope.account_number())
    }
}

pub struct FairQueue<T> {
    /// Places in all. The service has as many of its own.
    places: usize,
    queues: HashMap<Tenant, VecDeque<T>>,
    /// Those with a queue that is not empty, the next one first.
    turns: VecDeque<Tenant>,
    /// Items of accounts.
    taken: usize,
}

impl<T> FairQueue<T> {
    pub fn new(places: usize) -> FairQueue<T> {
        FairQueue { places, queues: HashMap::new(), turns: VecDeque::new(), taken: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Queues an item; `false` when its tenant has no place left.
    pub fn push(&mut self, tenant: Tenant, item: T) -> bool {
        let own = self.queues.get(&tenant).map_or(0, VecDeque::len);
        let room = match tenant {
            Tenant::Service => own < self.places,
            Tenant::Account(_) => {
                let left = self.places.checked_sub(self.taken + 1);
                left.is_some_and(|left| own < left || own == 0)
            }
        };
        if room {
            self.count(tenant, 1);
            self.queue(tenant).push_back(item);
            if own == 0 {
                self.turns.push_back(tenant);
            }
        }
        room
    }

    /// The next item of a tenant that may be served now.
    pub fn next(&mut self, may: impl Fn(Tenant) -> bool) -> Option<(Tenant, T)> {
        let place = self.turns.iter().position(|tenant| may(*tenant))?;
        let tenant = self.turns.remove(place)?;
        let queue = self.queues.get_mut(&tenant)?;
        let item = queue.pop_front()?;
        match queue.is_empty() {
            // An account with an empty queue takes no memory.
            true => drop(self.queues.remove(&tenant)),
            false => self.turns.push_back(tenant),
        }
        self.uncount(tenant);
        Some((tenant, item))
    }

    /// Takes back items that were not served, in the order in which they were taken. Tenants that
    /// were served come after those that were not.
    pub fn put_back(&mut self, items: Vec<(Tenant, T)>, served: &HashSet<Tenant>) {
        let mut turns: Vec<Tenant> = items.iter().map(|(tenant, _)| *tenant).collect();
        turns.extend(&self.turns);
        for (tenant, item) in items.into_iter().rev() {
            self.count(tenant, 1);
            self.queue(tenant).push_front(item);
        }
        let mut seen = HashSet::new();
        turns.retain(|tenant| seen.insert(*tenant));
        let (later, first): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|tenant| served.contains(tenant));
        self.turns = first.into_iter().chain(later).collect();
    }

    fn queue(&mut self, tenant: Tenant) -> &mut VecDeque<T> {
        self.queues.entry(tenant).or_default()
    }

    fn count(&mut self, tenant: Tenant, more: usize) {
        if tenant != Tenant::Service {
            self.taken += more;
        }
    }

    fn uncount(&mut self, tenant: Tenant) {
        if tenant != Tenant::Service {
            self.taken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Tenant = Tenant::Account(1);
    const B: Tenant = Tenant::Account(2);
    const C: Tenant = Tenant::Account(3);

    fn all(queue: &mut FairQueue<u32>) -> Vec<(Tenant, u32)> {
        std::iter::from_fn(|| queue.next(|_| true)).collect()
    }

    #[test]
    fn an_account_that_queues_much_delays_only_itself() {
        let mut queue = FairQueue::new(100);
        let queued = (0..200).filter(|n| queue.push(A, *n)).count();
        assert_eq!(queued, 50, "half, as long as it is alone");
        assert!(queue.push(B, 1) && queue.push(B, 2) && queue.push(Tenant::Service, 7));
        assert!(!queue.push(A, 200), "it holds more than is free");
        let first: Vec<_> = (0..5).filter_map(|_| queue.next(|_| true)).collect();
        assert_eq!(first, [(A, 0), (B, 1), (Tenant::Service, 7), (A, 1), (B, 2)]);
        assert_eq!(all(&mut queue).len(), 48);
        assert!(queue.is_empty() && queue.queues.is_empty() && queue.taken == 0);
    }

    #[test]
    fn places_run_out_for_everyone_but_the_service() {
        let mut queue = FairQueue::new(4);
        for account in 0..4 {
            assert!(queue.push(Tenant::Account(account), 0), "the first of each has a place");
        }
        assert!(!queue.push(Tenant::Account(9), 0));
        assert!((0..4).all(|n| queue.push(Tenant::Service, n)));
        assert!(!queue.push(Tenant::Service, 4));
    }

    #[test]
    fn an_account_that_must_wait_keeps_its_turn() {
        let mut queue = FairQueue::new(10);
        for (tenant, item) in [(A, 0), (A, 1), (B, 2)] {
            queue.push(tenant, item);
        }
        assert_eq!(queue.next(|tenant| tenant != A), Some((B, 2)));
        assert_eq!(queue.next(|tenant| tenant != A), None);
        assert_eq!(all(&mut queue), [(A, 0), (A, 1)]);
    }

    #[test]
    fn an_account_that_was_not_served_precedes_one_that_was() {
        let mut queue = FairQueue::new(20);
        for (tenant, item) in [(A, 0), (A, 1), (A, 2), (B, 3), (B, 4)] {
            queue.push(tenant, item);
        }
        let taken: Vec<_> = (0..4).filter_map(|_| queue.next(|_| true)).collect();
        assert_eq!(taken, [(A, 0), (B, 3), (A, 1), (B, 4)]);
        queue.push(C, 5);
        // Only the first was served.
        queue.put_back(taken[1..].to_vec(), &HashSet::from([A]));
        assert_eq!(all(&mut queue), [(B, 3), (C, 5), (A, 1), (B, 4), (A, 2)]);
    }
}
