//! Replays with work left. They are few, however many have ended: each engine has an index of them.

/// Their statuses.
pub const STATUSES: &[&str] = &["pending", "running"];

/// The same as a condition of SQL.
pub const IS_OPEN: &str = "f_status IN ('pending', 'running')";

/// The end of the name of their index.
pub const INDEX: &str = "open";
