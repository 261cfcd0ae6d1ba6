//! Clocks in milliseconds since 1970 that never run backwards: a system clock that is set back must
//! not delay retries, and one that is set ahead must not remove ids.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(super) struct Clock {
    base_ms: i64,
    since: Instant,
}

impl Clock {
    /// Starts at the system time, or at the newest time in the file if that is later.
    pub fn starting_at(newest_ms: i64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        Self { base_ms: now.max(newest_ms), since: Instant::now() }
    }

    pub fn now_ms(&self) -> i64 {
        let passed = i64::try_from(self.since.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.base_ms.saturating_add(passed)
    }

    /// A clock that counts only the time in which the inbox is open, for the age of what may be
    /// removed. `last_ms` is where it ended; none in a file that has no such time.
    pub fn of_open_time(&self, last_ms: Option<i64>, newest_ms: Option<i64>) -> Self {
        let now = self.now_ms();
        // Not ahead of the times that are written now: they would be too old at once.
        let base_ms = last_ms.or(newest_ms).map_or(now, |last| last.min(now));
        Self { base_ms, since: Instant::now() }
    }
}
