//! The failures of an endpoint over days: when it counts as failing, when its owner is warned, and
//! when it is disabled. Pure; the engine writes the results.

use crate::limits::Limits;
use model::Timestamp;
use std::time::Duration;
use store::Failures;

/// Parts of the time until an endpoint is disabled, in percent, at which its owner is warned.
const WARNINGS: [i64; 3] = [50, 70, 90];

#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    first_failure: Option<Timestamp>,
    last_failure: Option<Timestamp>,
    warned: usize,
}

/// A change of health to record.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthNotice {
    /// No attempt has succeeded since.
    Failing(Timestamp),
    Recovered,
    /// The number of the warning, from 1, the number of all warnings, and when the endpoint will be
    /// disabled.
    Warned {
        number: usize,
        of: usize,
        since: Timestamp,
        end: Timestamp,
    },
    Disabled {
        since: Timestamp,
    },
}

impl Health {
    /// As it was before a restart.
    pub fn resume(failures: Failures) -> Health {
        let (first, last) = (Some(failures.first), Some(failures.last));
        Health { first_failure: first, last_failure: last, warned: 0 }
    }

    /// What a restart must not forget; `None` while nothing fails.
    pub fn failures(&self, count: u32) -> Option<Failures> {
        let (first, last) = self.first_failure.zip(self.last_failure)?;
        (count > 0).then_some(Failures { count, first, last })
    }

    pub fn succeeded(&mut self, failing_since: Option<Timestamp>) -> Option<HealthNotice> {
        *self = Health::default();
        failing_since.map(|_| HealthNotice::Recovered)
    }

    /// `failures` in a row, this one included.
    pub fn failed(
        &mut self,
        failing_since: Option<Timestamp>,
        failures: u32,
        now: Timestamp,
        limits: &Limits,
    ) -> Option<HealthNotice> {
        let first = *self.first_failure.get_or_insert(now);
        let last = self.last_failure.replace(now);
        let Some(since) = failing_since else {
            return (failures >= limits.hold_after).then_some(HealthNotice::Failing(first));
        };
        // An endpoint that was idle for long between two failures was not failing all the time: the
        // period starts again.
        let quiet = limits.disable_after / limits.quiet_part.max(1);
        if last.is_some_and(|last| now.0.saturating_sub(last.0) > millis(quiet)) {
            self.warned = 0;
            return Some(HealthNotice::Failing(now));
        }
        // What happened before is not known (a data file of an older program): it begins here.
        if last.is_none() && now.0.saturating_sub(since.0) > millis(quiet) {
            self.warned = 0;
            return Some(HealthNotice::Failing(now));
        }
        let whole = millis(limits.disable_after).max(1);
        let passed = now.0.saturating_sub(since.0);
        if passed >= whole {
            return Some(HealthNotice::Disabled { since });
        }
        let due =
            WARNINGS.iter().filter(|part| passed.saturating_mul(100) >= whole * **part).count();
        if due <= self.warned {
            return None;
        }
        self.warned = due;
        let end = Timestamp(since.0.saturating_add(whole));
        Some(HealthNotice::Warned { number: due, of: WARNINGS.len(), since, end })
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn an_endpoint_is_failing_from_its_first_failure_once_there_are_five() {
        let (mut health, limits) = (Health::default(), Limits::default());
        for n in 1..5 {
            assert_eq!(health.failed(None, n, Timestamp(i64::from(n)), &limits), None);
        }
        let expected = Some(HealthNotice::Failing(Timestamp(1)));
        assert_eq!(health.failed(None, 5, Timestamp(5), &limits), expected);
        assert_eq!(health.succeeded(Some(Timestamp(1))), Some(HealthNotice::Recovered));
        assert_eq!(health.succeeded(None), None);
        assert_eq!(health.failed(None, 1, Timestamp(9), &limits), None);
    }

    #[test]
    fn five_days_of_failures_disable_after_three_warnings() {
        let (mut health, limits) = (Health::default(), Limits::default());
        let since = Timestamp(1_000);
        let mut told = Vec::new();
        for hour in 0..=120 {
            let now = Timestamp(since.0 + hour * HOUR);
            match health.failed(Some(since), 9, now, &limits) {
                None => {}
                Some(HealthNotice::Warned { number, of, end, .. }) => {
                    assert_eq!((of, end), (3, Timestamp(since.0 + 120 * HOUR)));
                    told.push((hour, number));
                }
                Some(HealthNotice::Disabled { .. }) => told.push((hour, 0)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, [(60, 1), (84, 2), (108, 3), (120, 0)]);
    }

    #[test]
    fn an_endpoint_that_was_merely_idle_is_not_disabled() {
        let (mut health, limits) = (Health::default(), Limits::default());
        let since = Timestamp(0);
        health.failed(Some(since), 5, Timestamp(HOUR), &limits);
        let late = Timestamp(200 * HOUR);
        let expected = Some(HealthNotice::Failing(late));
        assert_eq!(health.failed(Some(since), 6, late, &limits), expected);
        // Nor by failures after a restart, whether those before it are known or not.
        let mut fresh = Health::default();
        assert_eq!(fresh.failed(Some(since), 1, late, &limits), expected);
        let known = Failures { count: 5, first: since, last: Timestamp(HOUR) };
        assert_eq!(Health::resume(known).failed(Some(since), 6, late, &limits), expected);
    }

    #[test]
    fn an_endpoint_that_always_fails_is_disabled_in_spite_of_restarts() {
        let (mut health, limits) = (Health::default(), Limits::default());
        let since = Timestamp(0);
        let mut last = None;
        for hour in 0..=120 {
            last = health.failed(Some(since), 9, Timestamp(hour * HOUR), &limits);
            health = Health::resume(health.failures(9).unwrap());
        }
        assert_eq!(last, Some(HealthNotice::Disabled { since }));
        health.succeeded(Some(since));
        assert_eq!(health.failures(0), None);
    }
}
