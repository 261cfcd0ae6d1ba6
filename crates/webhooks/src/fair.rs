//! A queue that serves accounts in turn: each account has a queue of its own, and an account with
//! many items delays only itself. Pure.

use std::collections::{HashMap, VecDeque};

/// Accounts looked at in one search: the search is repeated after each change, and goes on where it
/// ended.
const LOOKS: usize = 64;

/// `T` waits for its turn.
#[derive(Debug)]
pub struct FairQueue<T> {
    turns: VecDeque<i64>,
    lines: HashMap<i64, VecDeque<T>>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { turns: VecDeque::new(), lines: HashMap::new() }
    }
}

impl<T> FairQueue<T> {
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub fn push(&mut self, account: i64, item: T) {
        let line = self.lines.entry(account).or_default();
        if line.is_empty() {
            self.turns.push_back(account);
        }
        line.push_back(item);
    }

    /// The first item of the next account for which `admit` gives something, and that.
    pub fn pop_with<S>(&mut self, mut admit: impl FnMut(i64, &T) -> Option<S>) -> Option<(T, S)> {
        for _ in 0..self.turns.len().min(LOOKS) {
            let account = self.turns.pop_front()?;
            let Some(line) = self.lines.get_mut(&account) else { continue };
            let admitted = line.front().and_then(|item| admit(account, item));
            let found = admitted.and_then(|admitted| Some((line.pop_front()?, admitted)));
            match line.is_empty() {
                true => {
                    self.lines.remove(&account);
                }
                false => self.turns.push_back(account),
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_take_turns_regardless_of_their_queue_lengths() {
        let mut queue = FairQueue::default();
        (1..=4).for_each(|item| queue.push(1, item));
        queue.push(2, 5);
        let mut pop = |refused: i64| {
            queue
                .pop_with(|account, _| (account != refused).then_some(account))
                .map(|(item, _)| item)
        };
        assert_eq!((pop(0), pop(0), pop(0)), (Some(1), Some(5), Some(2)));
        assert_eq!((pop(1), pop(0), pop(0), pop(0)), (None, Some(3), Some(4), None));
        assert!(queue.is_empty() && queue.lines.is_empty());
    }
}
