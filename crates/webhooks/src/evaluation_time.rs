//! The time that filters and conversions to older versions take, by account. Customers write the
//! filters and the values that are converted, and the thread that evaluates them serves all
//! customers: an account whose evaluations took long waits, the others do not. Knows no filter and
//! no version.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// So much may be owed before an account has to wait: a few thousand short evaluations.
const CREDIT: Duration = Duration::from_millis(40);

/// Each account pays for the time its evaluations took with time in which none of them runs. While
/// one account pays, it has half of the thread's time at most, and each of `n` has `1 / (n + 1)`.
#[derive(Default)]
pub struct EvaluationTime {
    /// When each account has paid for everything.
    paid: RefCell<HashMap<i64, Instant>>,
}

impl EvaluationTime {
    /// Until when the account's evaluations have to wait, if they do.
    pub fn wait(&self, account: i64, now: Instant) -> Option<Instant> {
        self.paid.borrow().get(&account).copied().filter(|paid| *paid > now + CREDIT)
    }

    /// Runs an evaluation for an account and has it pay for the time.
    pub fn measure<T>(&self, account: i64, evaluate: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = evaluate();
        self.pay(account, began.elapsed(), began);
        result
    }

    fn pay(&self, account: i64, took: Duration, now: Instant) {
        let mut paid = self.paid.borrow_mut();
        paid.entry(account).or_insert(now);
        let others = u32::try_from(paid.len()).unwrap_or(u32::MAX).saturating_add(1);
        if let Some(end) = paid.get_mut(&account) {
            *end = (*end).max(now) + took.saturating_mul(others);
        }
    }

    /// Forgets those who owe nothing.
    pub fn forget(&self, now: Instant) {
        self.paid.borrow_mut().retain(|_, paid| *paid > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_waits_for_as_long_as_its_filters_took_and_others_do_not() {
        let (times, now) = (EvaluationTime::default(), Instant::now());
        times.pay(1, CREDIT / 4, now);
        assert_eq!(times.wait(1, now), None, "a little is not waited for");
        times.pay(1, CREDIT, now);
        let end = now + CREDIT / 2 + CREDIT * 2;
        assert_eq!(times.wait(1, now), Some(end));
        assert_eq!(times.wait(2, now), None);
        assert_eq!(times.wait(1, end - CREDIT), None);
        times.forget(end - CREDIT);
        assert_eq!(times.paid.borrow().len(), 1, "it still owes");
        times.forget(end);
        assert!(times.paid.borrow().is_empty());
    }

    #[test]
    fn filters_of_many_accounts_leave_time_for_other_work() {
        let (times, now) = (EvaluationTime::default(), Instant::now());
        for account in 0..9 {
            times.pay(account, Duration::from_millis(1), now);
        }
        times.pay(8, Duration::from_secs(1), now);
        let wait = times.wait(8, now).unwrap() - now;
        assert!(wait >= Duration::from_secs(10), "{wait:?}");
    }
}
