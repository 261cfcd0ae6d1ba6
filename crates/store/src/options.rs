//! How a store is opened, whatever its engine.

use crate::state::Clock;
use crate::upgrade::ServedSchema;
use model::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the process that opens the database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves: brings the data to the schema and feeds the search indexes.
    Server,
    /// A command next to a running server: changes what is the service's own (keys, accounts,
    /// replays), never the tables, and leaves checkpoints to the server.
    Tool,
}

pub struct Options {
    pub role: Role,
    pub clock: Clock,
    /// Tells time that runs on evenly when the clock is set. By default it counts from the time of
    /// opening on; on a database that nodes share it is the clock.
    pub steady: Option<Clock>,
    pub edition: ServedSchema,
    /// How far the clock may be from that of the database's machine; then nothing is written. With
    /// a wrong clock, stored responses and events would expire and timers fire at the wrong time.
    pub max_clock_difference: Duration,
}

/// 10 s: machines with NTP differ by milliseconds.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(10);

impl Default for Options {
    fn default() -> Options {
        let clock = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
        };
        let (role, clock) = (Role::Server, Arc::new(clock));
        let (edition, max_clock_difference) = (ServedSchema::default(), MAX_CLOCK_DIFFERENCE);
        Options { role, clock, steady: None, edition, max_clock_difference }
    }
}

/// The time from a moment on, by a clock that is never set.
pub fn steady(begun: Timestamp) -> Clock {
    let since = Instant::now();
    Arc::new(move || {
        let passed = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp(begun.0.saturating_add(passed))
    })
}
