//! The least a client must achieve while the server waits for it: it takes an answer, or sends a
//! body, at some bytes per window of waiting. Time that the service needs does not count. No I/O,
//! and no clock of its own.

use std::time::Duration;

/// The least that one of many streams must achieve: the floor of a connection is shared, and a
/// stream is not asked for more than its part.
const LEAST_BYTES: usize = 1024;

/// How much was moved during how much waiting.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    waited: Duration,
    bytes: usize,
}

impl Pace {
    /// So many bytes were moved after so long a wait for the client. False if the window is over
    /// and they are fewer than the floor.
    pub(crate) fn keeps(
        &mut self,
        waited: Duration,
        bytes: usize,
        window: Duration,
        floor_bytes: usize,
    ) -> bool {
        self.waited = self.waited.saturating_add(waited);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.waited < window {
            return true;
        }
        let kept = self.bytes >= floor_bytes;
        *self = Pace::default();
        kept
    }
}

/// The part of the floor for one of so many streams.
pub(crate) fn floor_of_stream(floor_bytes: usize, streams: usize) -> usize {
    let least = LEAST_BYTES.min(floor_bytes);
    (floor_bytes / streams.max(1)).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    #[test]
    fn a_byte_every_few_seconds_is_too_slow_but_a_slow_connection_is_not() {
        let keeps = |bytes_each_second: usize| {
            let mut pace = Pace::default();
            (0..300).all(|_| pace.keeps(Duration::from_secs(1), bytes_each_second, WINDOW, 32_768))
        };
        assert!(!keeps(1) && !keeps(1000) && keeps(1100) && keeps(100_000));
    }

    #[test]
    fn time_without_a_wait_does_not_count() {
        let mut pace = Pace::default();
        assert!((0..1000).all(|_| pace.keeps(Duration::ZERO, 1, WINDOW, 32_768)));
    }

    #[test]
    fn streams_share_the_minimum_rate_of_their_connection() {
        assert_eq!(floor_of_stream(32_768, 0), 32_768);
        assert_eq!(floor_of_stream(32_768, 4), 8_192);
        assert_eq!(floor_of_stream(32_768, 128), 1024);
        assert_eq!(floor_of_stream(10, 128), 10);
    }
}
