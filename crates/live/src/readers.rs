//! Which connection reads the log next. Those that are too far behind for the ring read it a few at
//! a time. Accounts share the slots, so that one with a thousand slow readers takes a part of them
//! and keeps no other account waiting.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;
use wire::{Budget, Share};

#[derive(Debug)]
pub struct Readers {
    budget: Arc<Budget<i64>>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Accounts with a waiting connection, each once; the first one is next.
    accounts: VecDeque<i64>,
    waiting: HashMap<i64, VecDeque<oneshot::Sender<ReadSlot>>>,
}

/// The right to read the log once. Dropping it lets the next one read.
#[derive(Debug)]
pub struct ReadSlot {
    share: Option<Share<i64>>,
    readers: Arc<Readers>,
}

impl Readers {
    pub fn new(places: usize) -> Arc<Readers> {
        Arc::new(Readers { budget: Budget::new(places.max(1)), queue: Mutex::default() })
    }

    /// Waits for a slot.
    pub async fn place(self: &Arc<Readers>, account: i64) -> ReadSlot {
        loop {
            let turn = {
                let mut queue = self.queue.lock();
                // Connections that wait already come first.
                let share = match queue.waiting.contains_key(&account) {
                    false => self.budget.take(account, 1),
                    true => None,
                };
                if share.is_some() {
                    return ReadSlot { share, readers: self.clone() };
                }
                queue.join(account)
            };
            // The sender is dropped only with the queue.
            if let Ok(place) = turn.await {
                return place;
            }
        }
    }

    /// Gives free slots to waiting connections, one account after the other.
    fn grant(self: &Arc<Readers>) {
        loop {
            let next = self.queue.lock().next(&self.budget);
            let Some((sender, share)) = next else { return };
            let place = ReadSlot { share: Some(share), readers: self.clone() };
            // The share of a connection that is gone goes to the next one. Taken out first, so that
            // dropping the slot does not call this again.
            if let Err(mut unwanted) = sender.send(place) {
                drop(unwanted.share.take());
            }
        }
    }
}

impl Queue {
    fn join(&mut self, account: i64) -> oneshot::Receiver<ReadSlot> {
        let (sender, receiver) = oneshot::channel();
        let waiting = self.waiting.entry(account).or_default();
        if waiting.is_empty() {
            self.accounts.push_back(account);
        }
        waiting.push_back(sender);
        receiver
    }

    /// The next connection for which there is a slot.
    fn next(
        &mut self,
        budget: &Arc<Budget<i64>>,
    ) -> Option<(oneshot::Sender<ReadSlot>, Share<i64>)> {
        for _ in 0..self.accounts.len() {
            let account = self.accounts.pop_front()?;
            let Some(share) = budget.take(account, 1) else {
                self.accounts.push_back(account);
                continue;
            };
            let waiting = self.waiting.get_mut(&account)?;
            let sender = waiting.pop_front()?;
            if waiting.is_empty() {
                self.waiting.remove(&account);
            } else {
                self.accounts.push_back(account);
            }
            return Some((sender, share));
        }
        None
    }
}

impl Drop for ReadSlot {
    fn drop(&mut self) {
        if self.share.take().is_some() {
            self.readers.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Waiting = Pin<Box<dyn Future<Output = ReadSlot>>>;

    fn ask(readers: &Arc<Readers>, account: i64) -> Waiting {
        let readers = readers.clone();
        Box::pin(async move { readers.place(account).await })
    }

    fn poll(waiting: &mut Waiting) -> Option<ReadSlot> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    #[test]
    fn an_account_with_many_slow_readers_leaves_places_for_another() {
        let readers = Readers::new(8);
        let mut many: Vec<Waiting> = (0..1000).map(|_| ask(&readers, 1)).collect();
        let mut places: Vec<ReadSlot> = many.iter_mut().filter_map(poll).collect();
        assert_eq!(places.len(), 4, "half of them");
        // Another account reads at once.
        let other = poll(&mut ask(&readers, 2)).expect("a place is free");
        assert!(poll(&mut ask(&readers, 2)).is_some());
        // A place that is given back goes to the next of the many, in their order.
        drop(places.pop());
        assert!(many[4..].iter_mut().filter_map(poll).next().is_none(), "too many hold one");
        drop(other);
        assert!(poll(&mut many[4]).is_some());
    }

    #[test]
    fn accounts_that_wait_take_turns() {
        let readers = Readers::new(1);
        let first = poll(&mut ask(&readers, 1)).unwrap();
        let mut many: Vec<Waiting> = (0..3).map(|_| ask(&readers, 1)).collect();
        assert!(many.iter_mut().all(|one| poll(one).is_none()));
        let mut other = ask(&readers, 2);
        assert!(poll(&mut other).is_none());
        drop(first);
        let second = poll(&mut many[0]).expect("it waited longest");
        drop(second);
        let third = poll(&mut other).expect("then the other account");
        drop(third);
        let fourth = poll(&mut many[1]).unwrap();
        drop(fourth);
        assert!(poll(&mut many[2]).is_some());
        assert_eq!(readers.budget.held(), 0);
        assert!(readers.queue.lock().waiting.is_empty());
    }

    #[test]
    fn a_closed_connection_frees_its_reader_slot() {
        let readers = Readers::new(1);
        let first = poll(&mut ask(&readers, 1)).unwrap();
        let mut gone: Vec<Waiting> = (0..5000).map(|_| ask(&readers, 1)).collect();
        assert!(gone.iter_mut().all(|one| poll(one).is_none()));
        let mut last = ask(&readers, 1);
        assert!(poll(&mut last).is_none());
        // One is gone after it was given the place, the others before.
        let granted = gone.remove(0);
        drop(gone);
        drop(first);
        drop(granted);
        assert!(poll(&mut last).is_some());
        assert_eq!(readers.budget.held(), 0);
    }
}
