//! The writer's transactions on PostgreSQL. A transaction that appends to the log takes an advisory
//! lock first, which every node takes: sequence, commit and visibility have one order, and no two
//! transactions wait for each other's rows. It takes three round trips: begin with lock and newest
//! event, loads, writes with COMMIT.

use super::cluster;
use super::connect::{Cells, Client, Step};
use super::param::params;
use super::retention::{self, Sweep};
use super::room;
use super::rows::PostgresRows;
use super::session::{LIMITS, Session};
use super::shared::Shared;
use super::{erasure, idempotency, log, outbox, timers, usage};
use crate::upkeep::UnknownTimer;
use crate::usage::Used;
use crate::writer::{self, Expiry, Foreign, Slice, Turns};
use crate::{Error, Settlement};
use model::Timestamp;
use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const HEAD: &str = "SELECT coalesce(l.seq, 0), coalesce(l.created, 0), m.value, \
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || \
    (SELECT oid FROM pg_database WHERE datname = current_database()) || '/', \
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM meta m \
    LEFT JOIN (SELECT seq, created FROM log ORDER BY seq DESC LIMIT 1) l ON true \
    WHERE m.name = 'edition'";
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock($1)";

pub struct Backend {
    session: Session,
    shared: Arc<Shared>,
    /// Written at the end, together with COMMIT.
    unsent: RefCell<Vec<Step>>,
    newest: (i64, i64),
    /// The transaction failed at COMMIT, or its fate is unknown.
    failed: bool,
    sweep: Sweep,
}

impl Backend {
    pub fn new(session: Session, shared: Arc<Shared>) -> Backend {
        let (unsent, newest, sweep) = (RefCell::new(Vec::new()), (0, 0), Sweep::new());
        Backend { session, shared, unsent, newest, failed: false, sweep }
    }

    /// Runs something on the open transaction, after what was written so far.
    fn run<'s, T, F>(&'s self, work: impl FnOnce(&'s Client) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        send(&self.session, &self.unsent)?;
        self.session.run(work(self.session.client()?))
    }

    /// Whether this transaction is the one that does upkeep now.
    fn may_keep_up(&self) -> Result<bool, Error> {
        let key = self.shared.locks.upkeep;
        self.run(|client| async move {
            client.row(TRY_LOCK, params![key]).await?.map_or(Ok(false), |row| row.cell(0))
        })
    }
}

/// Sends what is to be written before the end of the transaction.
pub fn send(session: &Session, unsent: &RefCell<Vec<Step>>) -> Result<(), Error> {
    let steps = std::mem::take(&mut *unsent.borrow_mut());
    if steps.is_empty() {
        return Ok(());
    }
    let client = session.client()?;
    session.run(client.all(&steps)).map(drop)
}

impl writer::Backend for Backend {
    type Rows<'a> = PostgresRows<'a>;

    fn prepare(&mut self) -> Result<(), Error> {
        self.failed = false;
        self.session.mend()?;
        self.session.connect()
    }

    fn begin(&mut self, appends: bool) -> Result<(), Error> {
        self.unsent.borrow_mut().clear();
        self.shared.check_fit()?;
        let begin = match appends {
            true => {
                let key = self.shared.locks.log;
                format!("BEGIN; {LIMITS}; SELECT pg_advisory_xact_lock({key})")
            }
            false => format!("BEGIN; {LIMITS}"),
        };
        let asked = (self.shared.clock)();
        let head = self.session.begin(&begin, HEAD)?;
        let head = head.ok_or_else(|| Error::Failed("the table `meta` has no edition".into()))?;
        self.newest = (head.cell(0)?, head.cell(1)?);
        let (edition, timeline): (String, String) = (head.cell(2)?, head.cell(3)?);
        self.shared.check_timeline(&timeline)?;
        // Also before what is no event: by a wrong clock, retention would remove too much, and by
        // another schema a timer that is unknown here would never fire.
        self.shared.check_edition(Some(&edition))?;
        self.shared.check_clock(asked, head.cell(4)?);
        self.shared.check_fit()
    }

    fn end(&mut self) -> Result<(), Error> {
        let steps = std::mem::take(&mut *self.unsent.borrow_mut());
        let done = self.session.commit(steps);
        self.failed = matches!(done, Err(Error::Unknown(_)));
        done
    }

    fn roll_back(&mut self, error: Error) -> Error {
        self.leave();
        error
    }

    fn leave(&mut self) {
        self.unsent.borrow_mut().clear();
        let Ok(client) = self.session.client() else { return };
        if self.session.run(client.batch("ROLLBACK")).is_err() {
            self.session.disconnect();
        }
    }

    fn failed_at_end(&self) -> bool {
        self.failed
    }

    fn make_room(&mut self) -> bool {
        false
    }

    fn recovers(&mut self, error: &Error) -> bool {
        // A lock that was not granted, a connection that was lost. Both left nothing behind: what
        // became of a COMMIT has been found out.
        let may_pass = matches!(error, Error::Busy | Error::Unavailable(_));
        may_pass && self.shared.check_fit().is_ok() && self.session.connect().is_ok()
    }

    fn changed(&self) {}

    fn committed(&self, newest: i64) {
        self.shared.committed(newest);
        self.shared.notify.notify_one();
    }

    /// Inside a transaction that appends, what others committed is read up to its beginning.
    fn others_committed(&mut self, appends: bool) -> Result<Foreign, Error> {
        let mut erases = self.shared.erases.swap(false, Ordering::AcqRel);
        if appends && self.newest.0 > self.shared.adopted() {
            let (shared, upto) = (self.shared.clone(), self.newest.0);
            let client = self.session.client()?;
            erases |= self.session.run(shared.adopt(client, upto))?;
        }
        Ok(Foreign::Known { erases })
    }

    fn newest(&self) -> Result<(i64, i64), Error> {
        Ok(self.newest)
    }

    fn rows(&self) -> PostgresRows<'_> {
        PostgresRows { session: &self.session, shared: &self.shared, unsent: &self.unsent }
    }

    fn settle(&mut self, settlement: &Settlement) -> Result<(), Error> {
        let leases = settlement.distinct_leases();
        let lost = match leases.is_empty() {
            true => Vec::new(),
            false => self.run(|client| async move { cluster::stale(client, &leases).await })?,
        };
        let steps = match lost.is_empty() {
            true => outbox::steps(&self.shared, settlement),
            false => {
                tracing::warn!(leases = lost.len(), "outcomes came after their leases had ended");
                outbox::steps(&self.shared, &settlement.without(&lost))
            }
        };
        // Not with COMMIT: a settlement that fails is told from the others of its batch.
        self.run(|client| async move { client.all(&steps).await.map(drop) })
    }

    fn expire_keys(&mut self, now: Timestamp) -> Result<bool, Error> {
        if !self.may_keep_up()? {
            return Ok(false);
        }
        if self.run(erasure::is_pending)? {
            self.shared.erases.store(true, Ordering::Release);
        }
        self.run(|client| idempotency::expire(client, now))
    }

    fn set_aside(&mut self, unknown: &[UnknownTimer]) -> Result<(), Error> {
        self.run(|client| timers::set_aside(client, unknown))
    }

    fn add_usage(&mut self, added: &[Used]) -> Result<(), Error> {
        self.run(|client| usage::add(client, added))
    }

    fn erase(&mut self, turns: &mut Turns) -> Result<bool, Error> {
        match self.may_keep_up()? {
            true => self.run(|client| erasure::slice(client, turns)),
            // Another node is at it. It may end before it has finished: see `expire_keys`.
            false => Ok(false),
        }
    }

    fn expire(&mut self, expiry: &Expiry) -> Result<Slice, Error> {
        if !self.may_keep_up()? {
            return Ok(Slice::default());
        }
        // A sweep that fails starts again.
        let mut sweep = std::mem::replace(&mut self.sweep, Sweep::new());
        let shared = self.shared.clone();
        let client = self.session.client()?;
        let slice = self.session.run(async {
            let slice = retention::expire(client, &shared, expiry, &mut sweep).await?;
            let oldest = retention::oldest(client).await?;
            retention::forget_deleted(client, oldest, expiry.max).await?;
            Ok(slice)
        })?;
        self.sweep = sweep;
        Ok(slice)
    }

    /// As long as a batch of writes. Most of a small slice are round trips: a log that grows faster
    /// than small slices remove it would never end.
    fn expiry_time(&self) -> Duration {
        Duration::from_millis(15)
    }

    fn expired(&mut self, removed: bool) {
        self.sweep.went_on(removed);
    }

    /// Words are written with their records.
    fn index(&mut self) -> Result<i64, Error> {
        self.run(|client| async move { Ok(log::newest(client).await?.0) })
    }

    fn probe(&mut self, bytes: i64) -> Result<(), Error> {
        let key = self.shared.locks.log;
        self.run(|client| room::prove(client, key, bytes))
    }
}
