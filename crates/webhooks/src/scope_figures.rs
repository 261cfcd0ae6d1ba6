//! Deliveries of each account and mode, for its own statistics: what waits now, and the results of
//! the last hour. The engine writes them, the thread of a request reads them.

use model::Scope;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const MINUTE_MS: i64 = 60_000;
/// Minutes that are kept.
const MINUTES: i64 = 60;
/// Scopes with figures. 10,000 of them take 20 MB at most; the results of others are not counted.
const MAX_SCOPES: usize = 10_000;

/// The deliveries of one account and mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeFigures {
    /// Events that are to be sent and were not tried yet, as far as they are loaded.
    pub waiting: usize,
    /// Age of the oldest event that is not delivered, tried before or not.
    pub oldest: Option<Duration>,
    /// Deliveries of the last hour that succeeded, and that were given up.
    pub delivered: u64,
    pub failed: u64,
}

#[derive(Debug, Default)]
pub struct ByScope(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The latest minute, by the clock of the engine.
    minute: i64,
    scopes: HashMap<Scope, Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    waiting: usize,
    oldest: Option<Duration>,
    /// Minute, delivered, failed; the newest last.
    minutes: VecDeque<(i64, u32, u32)>,
}

impl ByScope {
    /// Counts a delivery that succeeded or was given up.
    pub fn settled(&self, scope: Scope, minute: i64, succeeded: bool) {
        let mut known = self.lock();
        known.minute = minute.max(known.minute);
        if known.scopes.len() >= MAX_SCOPES && !known.scopes.contains_key(&scope) {
            return;
        }
        let minutes = &mut known.scopes.entry(scope).or_default().minutes;
        if minutes.back().is_none_or(|(last, ..)| *last < minute) {
            minutes.push_back((minute, 0, 0));
        }
        if let Some((_, delivered, failed)) = minutes.back_mut() {
            *(if succeeded { delivered } else { failed }) += 1;
        }
    }

    /// Replaces what waits in each scope, and forgets what is older than an hour.
    pub fn waiting(&self, minute: i64, waiting: HashMap<Scope, (usize, Duration)>) {
        let mut known = self.lock();
        known.minute = minute.max(known.minute);
        let first = known.minute - MINUTES;
        known.scopes.retain(|scope, kept| {
            (kept.waiting, kept.oldest) = (0, None);
            while kept.minutes.front().is_some_and(|(minute, ..)| *minute <= first) {
                kept.minutes.pop_front();
            }
            !kept.minutes.is_empty() || waiting.contains_key(scope)
        });
        for (scope, (count, oldest)) in waiting {
            if known.scopes.len() < MAX_SCOPES || known.scopes.contains_key(&scope) {
                let kept = known.scopes.entry(scope).or_default();
                (kept.waiting, kept.oldest) = (count, Some(oldest));
            }
        }
    }

    pub fn of(&self, scope: Scope) -> ScopeFigures {
        let known = self.lock();
        let Some(kept) = known.scopes.get(&scope) else { return ScopeFigures::default() };
        let mut figures =
            ScopeFigures { waiting: kept.waiting, oldest: kept.oldest, ..ScopeFigures::default() };
        let first = known.minute - MINUTES;
        for (_, delivered, failed) in kept.minutes.iter().filter(|(minute, ..)| *minute > first) {
            figures.delivered += u64::from(*delivered);
            figures.failed += u64::from(*failed);
        }
        figures
    }

    /// Counts are valid after every statement, so a panic elsewhere does not make them useless.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_count_for_an_hour_and_belong_to_one_account_and_mode() {
        let (figures, mine, other) = (ByScope::default(), Scope(4), Scope(5));
        for minute in [100, 100, 130] {
            figures.settled(mine, minute, true);
        }
        figures.settled(mine, 131, false);
        figures.waiting(131, HashMap::from([(mine, (3, Duration::from_secs(9)))]));
        let shown = figures.of(mine);
        assert_eq!((shown.delivered, shown.failed, shown.waiting), (3, 1, 3));
        assert_eq!(shown.oldest, Some(Duration::from_secs(9)));
        assert_eq!(figures.of(other), ScopeFigures::default());
        figures.waiting(160, HashMap::new());
        let shown = figures.of(mine);
        assert_eq!((shown.delivered, shown.failed, shown.waiting), (1, 1, 0));
        figures.waiting(400, HashMap::new());
        assert_eq!(figures.of(mine), ScopeFigures::default());
        assert!(figures.lock().scopes.is_empty());
    }

    #[test]
    fn the_number_of_accounts_with_figures_has_a_limit() {
        let figures = ByScope::default();
        for number in 0..=MAX_SCOPES {
            figures.settled(Scope(number as i64), 1, true);
        }
        assert_eq!(figures.lock().scopes.len(), MAX_SCOPES);
        assert_eq!(figures.of(Scope(0)).delivered, 1);
        assert_eq!(figures.of(Scope(MAX_SCOPES as i64)).delivered, 0);
    }
}
