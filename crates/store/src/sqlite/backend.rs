//! The writer's transactions on SQLite: one connection, which no other thread uses.

use super::commits::Commits;
use super::retention::{self, Sweep};
use super::rows::SqliteRows;
use super::shared::Shared;
use super::{erasure, idempotency, log, outbox, search, timers, usage};
use crate::upkeep::UnknownTimer;
use crate::usage::Used;
use crate::writer::{self, Expiry, Foreign, Slice, Turns};
use crate::{Error, Settlement};
use model::Timestamp;
use rusqlite::Connection;
use std::sync::Arc;

pub struct Backend {
    connection: Connection,
    shared: Arc<Shared>,
    commits: Commits,
    /// Changes when another process commits.
    data_version: i64,
    sweep: Sweep,
}

impl Backend {
    pub fn new(connection: Connection, shared: Arc<Shared>) -> Result<Backend, Error> {
        let data_version = data_version(&connection)?;
        let (commits, sweep) = (Commits::new(), Sweep::new());
        Ok(Backend { connection, shared, commits, data_version, sweep })
    }
}

impl writer::Backend for Backend {
    type Rows<'a> = SqliteRows<'a>;

    fn prepare(&mut self) -> Result<(), Error> {
        self.commits.mend(&self.connection, &self.shared)
    }

    fn begin(&mut self, _: bool) -> Result<(), Error> {
        self.shared.check_file()?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        self.commits.end(&self.connection, &self.shared)
    }

    fn roll_back(&mut self, error: Error) -> Error {
        self.commits.take_back(error, &self.connection, &self.shared)
    }

    fn leave(&mut self) {
        self.commits.leave(&self.connection);
    }

    fn failed_at_end(&self) -> bool {
        self.commits.failed()
    }

    fn make_room(&mut self) -> bool {
        self.commits.make_room(&self.connection, &self.shared)
    }

    fn changed(&self) {
        self.shared.readers.changed();
    }

    /// The number changes only for commits of other connections; no other one of ours writes.
    fn others_committed(&mut self, _: bool) -> Result<Foreign, Error> {
        let version = data_version(&self.connection)?;
        Ok(match std::mem::replace(&mut self.data_version, version) == version {
            true => Foreign::Nothing,
            false => Foreign::Anything,
        })
    }

    fn newest(&self) -> Result<(i64, i64), Error> {
        Ok(log::newest(&self.connection)?)
    }

    fn rows(&self) -> SqliteRows<'_> {
        SqliteRows { connection: &self.connection, shared: &self.shared }
    }

    fn settle(&mut self, settlement: &Settlement) -> Result<(), Error> {
        Ok(outbox::settle(&self.connection, &self.shared, settlement)?)
    }

    fn expire_keys(&mut self, now: Timestamp) -> Result<bool, Error> {
        Ok(idempotency::expire(&self.connection, now)?)
    }

    fn set_aside(&mut self, timers: &[UnknownTimer]) -> Result<(), Error> {
        let mut timers = timers.iter();
        Ok(timers.try_for_each(|timer| timers::set_aside(&self.connection, timer))?)
    }

    fn add_usage(&mut self, added: &[Used]) -> Result<(), Error> {
        usage::add(&self.connection, added)
    }

    fn erase(&mut self, turns: &mut Turns) -> Result<bool, Error> {
        erasure::slice(&self.connection, turns)
    }

    fn expire(&mut self, expiry: &Expiry) -> Result<Slice, Error> {
        // A sweep that fails starts again.
        let mut sweep = std::mem::replace(&mut self.sweep, Sweep::new());
        let slice = retention::expire(&self.connection, &self.shared, expiry, &mut sweep)?;
        let oldest = retention::oldest(&self.connection)?;
        retention::forget_deleted(&self.connection, oldest, expiry.max)?;
        self.sweep = sweep;
        Ok(slice)
    }

    fn expired(&mut self, removed: bool) {
        self.sweep.went_on(removed);
    }

    fn index(&mut self) -> Result<i64, Error> {
        search::feed(&self.connection, &self.shared)
    }

    fn probe(&mut self, bytes: i64) -> Result<(), Error> {
        let write = "INSERT OR REPLACE INTO meta VALUES ('probe', randomblob(?1))";
        self.connection.execute(write, [bytes])?;
        Ok(())
    }
}

fn data_version(connection: &Connection) -> Result<i64, Error> {
    let mut statement = connection.prepare_cached("PRAGMA data_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}
