//! Whose erasure has its turn. Accounts are served one after another; an erasure that fails is left
//! alone for a while, so that it holds up no other one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an erasure that failed is left alone.
const REST: Duration = Duration::from_secs(10);
/// Erasures left alone at a time. When more fail, it is not they that are at fault.
const RESTING: usize = 64;

pub struct Turns {
    /// The scope that had the last turn.
    last: i64,
    /// The erasure that has its turn now: scope and resource.
    now: Option<(i64, String)>,
    resting: HashMap<(i64, String), Instant>,
}

impl Turns {
    pub fn new() -> Turns {
        Turns { last: i64::MIN, now: None, resting: HashMap::new() }
    }

    /// Where the search for the next erasure begins, and where it begins again at the end: with the
    /// first one that comes after this scope and resource.
    pub fn starts(&mut self) -> [(i64, String); 2] {
        self.now = None;
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
        [(self.last.saturating_add(1), String::new()), (i64::MIN, String::new())]
    }

    /// Gives one its turn, unless it is left alone now.
    pub fn take(&mut self, scope: i64, resource: &str) -> bool {
        let one = (scope, resource.to_owned());
        if self.resting.contains_key(&one) {
            return false;
        }
        self.last = scope;
        self.now = Some(one);
        true
    }

    /// Whether one has its turn. If not, those that are left failed a moment ago.
    pub fn is_taken(&self) -> bool {
        self.now.is_some()
    }

    /// The one that has its turn failed. Returns whether the next one may be tried at once.
    pub fn failed(&mut self) -> bool {
        let Some(one) = self.now.take() else { return false };
        if self.resting.len() >= RESTING {
            self.resting.clear();
            return false;
        }
        self.resting.insert(one, Instant::now() + REST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of some erasures that gets its turn, as the databases look for it.
    fn next<'r>(turns: &mut Turns, erasures: &[(i64, &'r str)]) -> Option<(i64, &'r str)> {
        for (scope, resource) in turns.starts() {
            for one in erasures.iter().filter(|one| **one > (scope, resource.as_str())) {
                if turns.take(one.0, one.1) {
                    return Some(*one);
                }
            }
        }
        None
    }

    #[test]
    fn an_erasure_that_fails_holds_up_no_other() {
        let mut turns = Turns::new();
        let erasures = [(1, "a"), (1, "b"), (2, "a")];
        assert_eq!(next(&mut turns, &erasures), Some((1, "a")));
        assert!(turns.failed());
        for _ in 0..3 {
            assert_eq!(next(&mut turns, &erasures), Some((2, "a")));
            assert_eq!(next(&mut turns, &erasures), Some((1, "b")));
        }
        assert_eq!(next(&mut turns, &erasures[..1]), None);
        assert!(!turns.is_taken());
        for n in 0..RESTING as i64 {
            assert_eq!(next(&mut turns, &[(n, "c")]), Some((n, "c")));
            assert_eq!(turns.failed(), n < RESTING as i64 - 1);
        }
    }
}
