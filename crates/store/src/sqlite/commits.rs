//! How the writer's transactions end. A COMMIT that fails may have left the whole transaction in
//! the log file: it is cut off before the next one begins and before any caller is answered. While
//! that fails, too, no write is accepted. A full disk gets one more attempt after a checkpoint.

use super::shared::Shared;
use super::{checkpoint, tail};
use crate::Error;
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// Between two checkpoints that are to make room: one that fails costs a sync, and on a disk that
/// stays full every write would pay it.
const ROOM_PAUSE: Duration = Duration::from_millis(500);

pub struct Commits {
    /// What a failed COMMIT wrote may stand in the log file.
    suspect: bool,
    /// The transaction before this moment failed at its COMMIT, not in a statement.
    failed: bool,
    /// No checkpoint to make room before this.
    room_after: Instant,
}

impl Commits {
    pub fn new() -> Commits {
        let (suspect, failed) = (false, false);
        Commits { suspect, failed, room_after: Instant::now() }
    }

    /// Whether the last transaction failed at its end: trying its writes one by one is no use.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// To be called before a transaction: cuts off what a failed one left.
    pub fn mend(&mut self, connection: &Connection, shared: &Shared) -> Result<(), Error> {
        self.failed = false;
        if self.suspect {
            self.failed = true;
            shared.check_file()?;
            tail::cut(connection, &shared.path)?;
            shared.room.reserve_log(&tail::log_file(&shared.path));
            (self.suspect, self.failed) = (false, false);
        }
        Ok(())
    }

    /// Commits the transaction of this connection.
    pub fn end(&mut self, connection: &Connection, shared: &Shared) -> Result<(), Error> {
        shared.room.ensure(connection)?;
        let mut commit = connection.prepare_cached("COMMIT")?;
        if let Err(error) = commit.execute([]) {
            (self.suspect, self.failed) = (true, true);
            return Err(error.into());
        }
        Ok(())
    }

    /// Leaves a transaction, if there is one.
    pub fn leave(&self, connection: &Connection) {
        if !connection.is_autocommit() {
            // Fails only if the database ended the transaction by itself, which is as good.
            let _ = connection.execute_batch("ROLLBACK");
        }
    }

    /// After a transaction that failed: leaves it, and returns the error for its callers.
    pub fn take_back(&mut self, error: Error, connection: &Connection, shared: &Shared) -> Error {
        self.leave(connection);
        if !self.suspect {
            return error;
        }
        match self.mend(connection, shared) {
            Ok(()) => {
                self.failed = true;
                error
            }
            Err(cause) => Error::Unknown(format!("{error}; and then: {cause}").into()),
        }
    }

    /// Lets the log file start again from its beginning; whether there is room now that was not.
    pub fn make_room(&mut self, connection: &Connection, shared: &Shared) -> bool {
        if Instant::now() < self.room_after {
            return false;
        }
        let made = checkpoint::restart(connection, shared);
        if !made {
            self.room_after = Instant::now() + ROOM_PAUSE;
        }
        made
    }
}
