//! What is known about the health of a server: active checks, failures of real requests, and the
//! slow start after a failure.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::Check;

/// Failures of real requests in a row after which a server gets no requests for a while.
const MAX_FAILURES: u32 = 5;
/// The first time without requests; each further one is longer by as much.
const EJECTION: Duration = Duration::from_secs(30);
/// The longest time without requests.
const MAX_EJECTION: Duration = Duration::from_secs(300);
/// A server that recovers gets its full share of requests after this time.
const SLOW_START: Duration = Duration::from_secs(30);
/// The share at the beginning, in percent.
const FIRST_PERCENT: i64 = 10;

#[derive(Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    /// The checks say that it is unhealthy.
    is_failed: bool,
    /// Checks in a row that contradict `is_failed`.
    contradictions: u32,
    /// Failures of requests in a row.
    failures: u32,
    ejections: u32,
    ejected_until: Option<Instant>,
    recovered_at: Option<Instant>,
}

impl Health {
    /// Whether it gets requests.
    pub(crate) fn is_usable(&self, now: Instant) -> bool {
        let state = self.0.lock();
        !state.is_failed && state.ejected_until.is_none_or(|until| until <= now)
    }

    /// The share of its weight that it gets now.
    pub(crate) fn percent(&self, now: Instant) -> i64 {
        let Some(since) = self.0.lock().recovered_at else { return 100 };
        let elapsed = now.saturating_duration_since(since).min(SLOW_START).as_millis() as i64;
        FIRST_PERCENT + (100 - FIRST_PERCENT) * elapsed / SLOW_START.as_millis() as i64
    }

    /// Counts the result of an active check. True if the server became healthy or unhealthy.
    pub(crate) fn checked(&self, ok: bool, check: &Check, now: Instant) -> bool {
        let mut state = self.0.lock();
        if ok != state.is_failed {
            state.contradictions = 0;
            return false;
        }
        state.contradictions += 1;
        let needed = if ok { check.rise } else { check.fall };
        if state.contradictions < needed {
            return false;
        }
        drop(state);
        self.set_checked(ok, now);
        true
    }

    /// The server says that it will stop. True if it got requests before. It returns as it does
    /// after failed checks.
    pub(crate) fn drains(&self, now: Instant) -> bool {
        let got_requests = !self.0.lock().is_failed;
        self.set_checked(false, now);
        got_requests
    }

    pub(crate) fn set_checked(&self, ok: bool, now: Instant) {
        let mut state = self.0.lock();
        state.is_failed = !ok;
        state.contradictions = 0;
        if ok {
            state.recovered_at = Some(now);
            state.ejected_until = None;
            state.failures = 0;
        }
    }

    /// The server is not checked any more: what a check found would stay for ever.
    pub(crate) fn forget_checks(&self) {
        let mut state = self.0.lock();
        state.is_failed = false;
        state.contradictions = 0;
    }

    /// A request succeeded.
    pub(crate) fn succeeded(&self, now: Instant) {
        let mut state = self.0.lock();
        state.failures = 0;
        if let Some(until) = state.ejected_until.take_if(|until| *until <= now) {
            state.recovered_at = Some(until);
        }
        if state.recovered_at.is_some_and(|since| now > since + SLOW_START) {
            state.recovered_at = None;
            state.ejections = 0;
        }
    }

    /// A request failed because of the server. True if it gets no requests for a while now;
    /// `may_eject` says whether enough other servers are left.
    pub(crate) fn failed(&self, may_eject: bool, now: Instant) -> bool {
        let mut state = self.0.lock();
        state.failures += 1;
        if state.failures < MAX_FAILURES || !may_eject {
            return false;
        }
        state.failures = 0;
        state.ejections += 1;
        state.ejected_until = Some(now + (EJECTION * state.ejections).min(MAX_EJECTION));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_need_three_failures_and_two_successes() {
        let (health, check, now) = (Health::default(), Check::default(), Instant::now());
        let results = [
            (false, true),
            (false, true),
            (true, true),
            (false, true),
            (false, true),
            (false, false),
            (true, false),
            (false, false),
            (true, false),
            (true, true),
        ];
        for (step, (ok, usable)) in results.into_iter().enumerate() {
            health.checked(ok, &check, now);
            assert_eq!(health.is_usable(now), usable, "{step}");
        }
        assert_eq!(health.percent(now), FIRST_PERCENT);
        assert_eq!(health.percent(now + SLOW_START / 2), 55);
        assert_eq!(health.percent(now + SLOW_START), 100);
    }

    #[test]
    fn a_server_that_drains_leaves_at_once_and_returns_by_checks() {
        let (health, check, now) = (Health::default(), Check::default(), Instant::now());
        assert!(health.drains(now) && !health.is_usable(now));
        assert!(!health.drains(now), "this is known");
        for (ok, usable) in [(false, false), (true, false), (true, true)] {
            health.checked(ok, &check, now);
            assert_eq!(health.is_usable(now), usable);
        }
    }

    #[test]
    fn a_server_at_its_start_gets_its_full_share() {
        assert_eq!(Health::default().percent(Instant::now()), 100);
    }

    #[test]
    fn five_failures_in_a_row_eject_for_a_growing_time() {
        let (health, now) = (Health::default(), Instant::now());
        let fail = |count: u32, now| (0..count).any(|_| health.failed(true, now));
        assert!(!fail(4, now));
        health.succeeded(now);
        assert!(!fail(4, now));
        assert!(fail(1, now));
        assert!(!health.is_usable(now + EJECTION - Duration::from_secs(1)));
        let later = now + EJECTION;
        assert!(health.is_usable(later));
        assert!(fail(5, later));
        assert!(!health.is_usable(later + EJECTION));
        assert!(health.is_usable(later + EJECTION * 2));
    }

    #[test]
    fn the_last_server_is_never_ejected() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(!(0..50).any(|_| health.failed(false, now)));
        assert!(health.is_usable(now));
    }
}
