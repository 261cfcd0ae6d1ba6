//! What the writer asks of a database: transactions, and the steps that it takes inside them.

use super::expiring::{Expiry, Slice};
use super::turns::Turns;
use crate::commit::Rows;
use crate::usage::Used;
use crate::{Error, Settlement, UnknownTimer};
use model::Timestamp;
use std::time::Duration;

/// What other processes have committed.
pub enum Foreign {
    Nothing,
    /// Nobody knows what.
    Anything,
    /// The backend has taken it over.
    Known {
        /// An erasure may be unfinished.
        erases: bool,
    },
}

impl Foreign {
    /// Whether an erasure may be unfinished.
    pub fn erases(&self) -> bool {
        matches!(self, Foreign::Anything | Foreign::Known { erases: true })
    }
}

/// The transactions of one database, on the writer's thread.
pub trait Backend: Send + 'static {
    type Rows<'a>: Rows;

    /// To be called before a transaction: removes what a failed one left.
    fn prepare(&mut self) -> Result<(), Error>;

    /// `appends`: the transaction may append to the log. One that does not needs no place in the
    /// order of the log.
    fn begin(&mut self, appends: bool) -> Result<(), Error>;

    /// Commits; everything is durable when this returns.
    fn end(&mut self) -> Result<(), Error>;

    /// After a transaction that failed: rolls it back. Returns the error for its callers.
    fn roll_back(&mut self, error: Error) -> Error;

    /// Ends a transaction, if one is open, and keeps nothing of it.
    fn leave(&mut self);

    /// Whether the last transaction failed at its end: trying its writes one by one is no use.
    fn failed_at_end(&self) -> bool;

    /// Tries to make room on a full disk; whether there is room now that was not.
    fn make_room(&mut self) -> bool;

    /// After a transaction that had no effect: whether it may work if it is tried again now.
    fn recovers(&mut self, error: &Error) -> bool {
        matches!(error, Error::Full) && self.make_room()
    }

    /// Reads that begin from now on must see what is committed.
    fn changed(&self);

    /// A transaction that appended to the log is durable, and known to this process.
    fn committed(&self, _newest: i64) {}

    /// What other processes have committed since the last call. `appends` as for `begin`; without
    /// a transaction, `false`.
    fn others_committed(&mut self, appends: bool) -> Result<Foreign, Error>;

    /// Sequence and time of the newest event; zeros in an empty log.
    fn newest(&self) -> Result<(i64, i64), Error>;

    // The following work inside a transaction.

    fn rows(&self) -> Self::Rows<'_>;

    fn settle(&mut self, settlement: &Settlement) -> Result<(), Error>;

    /// Removes some expired responses; true when more may be left.
    fn expire_keys(&mut self, now: Timestamp) -> Result<bool, Error>;

    /// Keeps timers that cannot fire, but never reports them as due.
    fn set_aside(&mut self, timers: &[UnknownTimer]) -> Result<(), Error>;

    fn add_usage(&mut self, added: &[Used]) -> Result<(), Error>;

    /// Cleans some rows of the one erasure that has its turn. Returns whether any is left.
    fn erase(&mut self, turns: &mut Turns) -> Result<bool, Error>;

    /// Removes events that are too old: one slice.
    fn expire(&mut self, expiry: &Expiry) -> Result<Slice, Error>;

    /// How long a slice of old events may take before the next commit has its turn.
    fn expiry_time(&self) -> Duration {
        Duration::from_millis(4)
    }

    /// To be called after a slice that is durable: whether it removed anything.
    fn expired(&mut self, removed: bool);

    /// Brings the search indexes a step further; returns how far they have come.
    fn index(&mut self) -> Result<i64, Error>;

    /// Writes so many bytes that mean nothing.
    fn probe(&mut self, bytes: i64) -> Result<(), Error>;
}
