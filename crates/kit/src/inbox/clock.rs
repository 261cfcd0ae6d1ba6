//! A clock in milliseconds since 1970 that never runs backwards: a system clock that is set back
//! must not delay retries.

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
}
