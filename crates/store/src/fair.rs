//! Queues that are fair between accounts. Each account has its own queue; they are served round
//! robin, one item each. One account may hold at most as many places as are still free, so whatever
//! it queues, there is room for the others, and it is refused alone. Knows no job.

use model::Scope;
use std::collections::{HashMap, HashSet, VecDeque};

/// Who queues: an account in all its modes, or the service itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    Service,
    Account(i64),
}

impl From<Scope> for Party {
    fn from(scope: Scope) -> Party {
        Party::Account(scope.account_number())
    }
}

pub struct Fair<T> {
    /// Places in all. The service has as many of its own.
    places: usize,
    queues: HashMap<Party, VecDeque<T>>,
    /// Those with a queue that is not empty, the next one first.
    turns: VecDeque<Party>,
    /// Items of accounts.
    taken: usize,
}

impl<T> Fair<T> {
    pub fn new(places: usize) -> Fair<T> {
        Fair { places, queues: HashMap::new(), turns: VecDeque::new(), taken: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Queues an item; `false` when its party has no place left.
    pub fn push(&mut self, party: Party, item: T) -> bool {
        let own = self.queues.get(&party).map_or(0, VecDeque::len);
        let room = match party {
            Party::Service => own < self.places,
            Party::Account(_) => {
                let left = self.places.checked_sub(self.taken + 1);
                left.is_some_and(|left| own < left || own == 0)
            }
        };
        if room {
            self.count(party, 1);
            self.queue(party).push_back(item);
            if own == 0 {
                self.turns.push_back(party);
            }
        }
        room
    }

    /// The next item of a party that may be served now.
    pub fn next(&mut self, may: impl Fn(Party) -> bool) -> Option<(Party, T)> {
        let place = self.turns.iter().position(|party| may(*party))?;
        let party = self.turns.remove(place)?;
        let queue = self.queues.get_mut(&party)?;
        let item = queue.pop_front()?;
        match queue.is_empty() {
            // Accounts come and go: nothing is kept of one that waits for nothing.
            true => drop(self.queues.remove(&party)),
            false => self.turns.push_back(party),
        }
        self.uncount(party);
        Some((party, item))
    }

    /// Takes items back that were not served, in the order in which they were taken. Whoever was
    /// served since then comes after those who were not.
    pub fn put_back(&mut self, items: Vec<(Party, T)>, served: &HashSet<Party>) {
        let mut turns: Vec<Party> = items.iter().map(|(party, _)| *party).collect();
        turns.extend(&self.turns);
        for (party, item) in items.into_iter().rev() {
            self.count(party, 1);
            self.queue(party).push_front(item);
        }
        let mut seen = HashSet::new();
        turns.retain(|party| seen.insert(*party));
        let (later, first): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|party| served.contains(party));
        self.turns = first.into_iter().chain(later).collect();
    }

    fn queue(&mut self, party: Party) -> &mut VecDeque<T> {
        self.queues.entry(party).or_default()
    }

    fn count(&mut self, party: Party, more: usize) {
        if party != Party::Service {
            self.taken += more;
        }
    }

    fn uncount(&mut self, party: Party) {
        if party != Party::Service {
            self.taken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Party = Party::Account(1);
    const B: Party = Party::Account(2);
    const C: Party = Party::Account(3);

    fn all(queue: &mut Fair<u32>) -> Vec<(Party, u32)> {
        std::iter::from_fn(|| queue.next(|_| true)).collect()
    }

    #[test]
    fn an_account_that_queues_much_delays_only_itself() {
        let mut queue = Fair::new(100);
        let queued = (0..200).filter(|n| queue.push(A, *n)).count();
        assert_eq!(queued, 50, "half, as long as it is alone");
        assert!(queue.push(B, 1) && queue.push(B, 2) && queue.push(Party::Service, 7));
        assert!(!queue.push(A, 200), "it holds more than is free");
        let first: Vec<_> = (0..5).filter_map(|_| queue.next(|_| true)).collect();
        assert_eq!(first, [(A, 0), (B, 1), (Party::Service, 7), (A, 1), (B, 2)]);
        assert_eq!(all(&mut queue).len(), 48);
        assert!(queue.is_empty() && queue.queues.is_empty() && queue.taken == 0);
    }

    #[test]
    fn places_run_out_for_everyone_but_the_service() {
        let mut queue = Fair::new(4);
        for account in 0..4 {
            assert!(queue.push(Party::Account(account), 0), "the first of each has a place");
        }
        assert!(!queue.push(Party::Account(9), 0));
        assert!((0..4).all(|n| queue.push(Party::Service, n)));
        assert!(!queue.push(Party::Service, 4));
    }

    #[test]
    fn who_may_not_be_served_now_keeps_its_turn() {
        let mut queue = Fair::new(10);
        for (party, item) in [(A, 0), (A, 1), (B, 2)] {
            queue.push(party, item);
        }
        assert_eq!(queue.next(|party| party != A), Some((B, 2)));
        assert_eq!(queue.next(|party| party != A), None);
        assert_eq!(all(&mut queue), [(A, 0), (A, 1)]);
    }

    #[test]
    fn who_was_not_served_comes_before_who_was() {
        let mut queue = Fair::new(20);
        for (party, item) in [(A, 0), (A, 1), (A, 2), (B, 3), (B, 4)] {
            queue.push(party, item);
        }
        let taken: Vec<_> = (0..4).filter_map(|_| queue.next(|_| true)).collect();
        assert_eq!(taken, [(A, 0), (B, 3), (A, 1), (B, 4)]);
        queue.push(C, 5);
        // Only the first was served.
        queue.put_back(taken[1..].to_vec(), &HashSet::from([A]));
        assert_eq!(all(&mut queue), [(B, 3), (C, 5), (A, 1), (B, 4), (A, 2)]);
    }
}
