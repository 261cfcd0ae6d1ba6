//! What is said in passing: told to whoever is there and has room, kept nowhere. Those who are slow
//! miss it.

use crate::entry::Passing;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// More than this many behind is missed.
const KEPT: usize = 1024;

#[derive(Debug, Default)]
pub struct Corridor(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: VecDeque<Arc<Passing>>,
    /// Number of the newest; they are counted from 1.
    newest: u64,
}

impl Corridor {
    pub fn newest(&self) -> u64 {
        self.0.lock().newest
    }

    pub fn say(&self, passing: Passing) {
        let mut state = self.0.lock();
        state.newest += 1;
        state.said.push_back(Arc::new(passing));
        if state.said.len() > KEPT {
            state.said.pop_front();
        }
    }

    /// Shows what was said after a number; returns the newest.
    pub fn view(&self, after: u64, mut show: impl FnMut(u64, &Arc<Passing>)) -> u64 {
        let state = self.0.lock();
        let first = state.newest - state.said.len() as u64;
        let skip = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        for (place, passing) in state.said.iter().enumerate().skip(skip) {
            show(first + place as u64 + 1, passing);
        }
        state.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Scope;

    #[test]
    fn the_newest_are_shown_and_the_rest_is_missed() {
        let corridor = Corridor::default();
        let say = || corridor.say(Passing::new(Scope(2), "typing", None, String::new()));
        let seen = |after| {
            let mut numbers = Vec::new();
            let newest = corridor.view(after, |number, _| numbers.push(number));
            (numbers, newest)
        };
        assert_eq!(seen(0), (vec![], 0));
        say();
        say();
        assert_eq!(seen(0), (vec![1, 2], 2));
        assert_eq!(seen(1), (vec![2], 2));
        assert_eq!(seen(2), (vec![], 2));
        (0..KEPT).for_each(|_| say());
        let (numbers, newest) = seen(0);
        assert_eq!((numbers.len(), numbers[0], newest), (KEPT, 3, KEPT as u64 + 2));
    }
}
