//! Settings of an inbox, with their reasons.

use std::time::Duration;

/// Settings of an inbox. The defaults are right for most receivers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    pub retry: Retry,
    /// What happens to an event that is older than one of the same resource that was processed.
    pub out_of_order: OutOfOrder,
    /// How long ids of processed events are kept: within it a repeated delivery is recognised.
    /// 40 days: restive keeps events for 30 days and undelivered ones for 7 more. Only time in
    /// which the inbox is open counts: a clock that is wrong at the start must not remove ids.
    pub retention: Duration,
    /// Events that may wait to be stored; over it [`super::Error::Full`]. 8,192: some 30 batches,
    /// less than a second of work.
    pub max_waiting: usize,
    /// How long a caller of [`super::Inbox::accept`] waits for the disk before
    /// [`super::Error::Late`]. 4 s: a receiver should answer within 5 s.
    pub accept_within: Duration,
}

/// When a failed event is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The wait after the first failure; it doubles with each further one.
    pub first: Duration,
    pub longest: Duration,
    /// After so many attempts the event is a dead letter.
    pub max_attempts: u32,
}

/// What happens to an event whose resource has a newer state already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutOfOrder {
    /// The handler gets it, with [`super::Event::is_stale`].
    #[default]
    Deliver,
    /// The handler does not get it: right if events only update a copy of the resource.
    Skip,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retry: Retry::default(),
            out_of_order: OutOfOrder::default(),
            retention: Duration::from_secs(40 * 24 * 3600),
            max_waiting: 8_192,
            accept_within: Duration::from_secs(4),
        }
    }
}

impl Default for Retry {
    /// 1 s, 2 s, … up to an hour, 20 attempts: about 8 hours, a night without an operator.
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
        Self { first, longest, max_attempts: 20 }
    }
}

impl Retry {
    /// The wait after this many attempts of the event with this number. Up to a tenth is added, so
    /// that events that failed together are not all tried together.
    pub(super) fn wait(&self, attempts: u32, number: i64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let wait = self.first.saturating_mul(1 << doublings).min(self.longest);
        let seed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(attempts);
        wait + wait / 10 * u32::try_from(seed >> 8 & 0xFF).unwrap_or_default() / 256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_with_a_tenth_at_most_on_top() {
        let retry = Retry::default();
        for (attempts, seconds) in [(1, 1), (2, 2), (5, 16), (12, 2048), (13, 3600), (99, 3600)] {
            let least = Duration::from_secs(seconds);
            for number in 0..50 {
                let wait = retry.wait(attempts, number);
                assert!(wait >= least && wait <= least + least / 10, "{attempts}: {wait:?}");
            }
        }
        assert_ne!(retry.wait(9, 1), retry.wait(9, 2), "not all at once");
    }
}
