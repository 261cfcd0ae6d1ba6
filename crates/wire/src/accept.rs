//! What to do while the system refuses connections, for want of descriptors or memory: wait longer
//! each time, and log it once per interval with the number of refusals. No I/O, and no clock of its
//! own.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause, and the longest. Half a second: connections wait in the queue of the system
/// meanwhile, and a client does not notice more than that.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Refusals that go on are logged this often.
const INTERVAL: Duration = Duration::from_secs(60);

/// The refusals of one listening socket.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The last pause; none while connections are accepted.
    pause: Option<Duration>,
    /// When a refusal was last logged, and how many there were since.
    logged: Option<Instant>,
    unlogged: u64,
}

impl Refusals {
    /// How long to wait, and the number of refusals if they are to be logged now.
    pub(crate) fn refused(&mut self, now: Instant) -> (Duration, Option<u64>) {
        let (first, longest) = PAUSES;
        let pause = self.pause.map_or(first, |pause| (2 * pause).min(longest));
        self.pause = Some(pause);
        self.unlogged += 1;
        let is_quiet = self.logged.is_some_and(|logged| now - logged < INTERVAL);
        if is_quiet {
            return (pause, None);
        }
        self.logged = Some(now);
        (pause, Some(std::mem::take(&mut self.unlogged)))
    }

    /// A connection was accepted. The interval goes on: at the limit one connection is accepted and
    /// the next refused, again and again.
    pub(crate) fn accepted(&mut self) {
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_accept_errors_are_retried_less_often_and_logged_once_per_interval() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let (first, longest) = PAUSES;
        assert_eq!(refusals.refused(start), (first, Some(1)));
        assert_eq!(refusals.refused(start), (2 * first, None));
        for _ in 0..8 {
            assert_eq!(refusals.refused(start).1, None);
        }
        assert_eq!(refusals.refused(start).0, longest);
        refusals.accepted();
        assert_eq!(refusals.refused(start), (first, None));
        assert_eq!(refusals.refused(start + INTERVAL), (2 * first, Some(12)));
        assert_eq!(refusals.refused(start + INTERVAL).1, None);
    }
}
