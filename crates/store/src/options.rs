//! How a store is opened, whatever its engine.

use crate::state::Clock;
use crate::upgrade::ServedSchema;
use model::Timestamp;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
    /// Tells time that runs on evenly when the clock is set; by default from the time of opening
    /// on.
    pub steady: Option<Clock>,
    pub edition: ServedSchema,
}

impl Default for Options {
    fn default() -> Options {
        let clock = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
        };
        let (role, clock) = (Role::Server, Arc::new(clock));
        Options { role, clock, steady: None, edition: ServedSchema::default() }
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
