//! Delays between attempts to connect: they double from 1 s to 30 s, with a random part.

use crate::client::between;
use std::time::Duration;

/// The shortest pause, also where the server wishes for a shorter one.
pub(super) const FIRST: Duration = Duration::from_secs(1);
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// The longest `Retry-After` that is obeyed. 5 minutes: no live service needs longer, and a
/// follower that a wrong header stops for a day looks like one that works.
pub(super) const LONGEST_ASKED: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let base = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // Clients that lost their server together do not come back together.
        (base + between(Duration::ZERO, base / 2)).min(LONGEST)
    }

    /// The next delay, or the one that the server asks for if that is longer.
    pub(super) fn next_asked(&mut self, retry_after: Option<Duration>) -> Duration {
        self.next().max(retry_after.unwrap_or_default().min(LONGEST_ASKED))
    }

    /// After a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_ask_for_a_longer_delay_up_to_a_limit() {
        let longer = |seconds| {
            let delay = Backoff::default().next_asked(Some(Duration::from_secs(seconds)));
            delay.as_secs()
        };
        assert_eq!([longer(0), longer(7), longer(300), longer(301)], [1, 7, 300, 300]);
        assert_eq!(longer(u64::MAX), 300);
        assert_eq!(Backoff::default().next_asked(None).as_secs(), 1);
    }

    #[test]
    fn delays_double_from_one_second_with_jitter_up_to_thirty_and_start_again() {
        let mut backoff = Backoff::default();
        for _ in 0..2 {
            for base in [1, 2, 4, 8, 16, 30, 30, 30] {
                let (delay, base) = (backoff.next(), Duration::from_secs(base));
                assert!(delay >= base && delay <= (base * 3 / 2).min(LONGEST), "{delay:?}");
            }
            backoff.reset();
        }
        let mut equal = 0;
        for _ in 0..20 {
            let (mut one, mut other) = (Backoff::default(), Backoff::default());
            equal += usize::from(one.next() == other.next());
        }
        assert!(equal < 20, "there is no jitter");
    }
}
