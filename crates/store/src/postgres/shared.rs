//! What the parts of one PostgreSQL store share: where the tables are, and what this node knows of
//! the commits of others. Holds no connection.

use super::connect::{Address, Cells, Client};
use super::layout::Table;
use super::param::params;
use crate::Error;
use crate::state::{Clock, State};
use crate::usage::UsedInAll;
use model::schema::Builtin;
use model::version::Versions;
use model::{CollectionIx, Schema, Scope, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Outcomes of requests that were in flight at an erasure arrive within this time: attempts end
/// after half a minute, and the rest allows for a store that failed in the meantime.
const ERASED_FOR: Duration = Duration::from_secs(600);
/// Events of other nodes that are looked at one by one. Of more than that, only the newest sequence
/// is taken over, and everything counts as changed.
const FOREIGN: i64 = 5_000;

const FOREIGN_EVENTS: &str = "SELECT seq, scope, collection FROM log WHERE seq > $1 AND seq <= $2 \
    ORDER BY seq LIMIT $3";

pub struct Shared {
    pub state: Arc<State>,
    pub address: Address,
    pub schema: Arc<Schema>,
    pub versions: Arc<Versions>,
    pub tables: Vec<Table>,
    pub cursor_key: [u8; 32],
    pub epoch: u32,
    /// As it was when the database was opened.
    pub usage: UsedInAll,
    pub clock: Clock,
    /// The last scope whose timers had their turn.
    pub timer_turn: AtomicI64,
    /// When something was last erased, as far as this node knows.
    pub erased_at: Mutex<Option<Instant>>,
    /// An erasure of another node may be unfinished.
    pub erases: AtomicBool,
    /// Which row of `settled` this node counts in, and its name in `writers`.
    pub slot: i64,
    pub node: String,
    /// The keys of the advisory locks.
    pub locks: Locks,
    /// The description of the tables that this node works with; another one in the database means
    /// that another node has changed them.
    edition: String,
    /// They have been changed: this node reads, and writes no more.
    outdated: AtomicBool,
    max_clock_difference: Duration,
    /// Milliseconds that this clock is ahead of the database's, if that is too much; or 0.
    clock_ahead_ms: AtomicI64,
    /// This node writes nothing, so its leases are for others.
    pub unfit: Arc<AtomicBool>,
    /// The timeline of the server's log when this node started, and whether it is another now.
    timeline: String,
    pub moved: watch::Sender<bool>,
    /// Every event up to this one is known here.
    adopted: AtomicI64,
    adopting: Mutex<()>,
    /// The sum of `settled`, as far as it is known.
    pub settlements: AtomicI64,
    /// This node has committed: the others are told.
    pub notify: Notify,
}

/// Advisory locks of one schema of one database.
#[derive(Clone, Copy, Debug)]
pub struct Locks {
    /// Held by a transaction that appends to the log: sequence, commit and visibility have one
    /// order.
    pub log: i64,
    /// Held while the tables are brought to a schema.
    pub upgrade: i64,
    /// Held by the one node that removes what is old, or erases.
    pub upkeep: i64,
}

/// What a store has when it opens.
pub struct Found {
    pub state: Arc<State>,
    pub address: Address,
    pub tables: Vec<Table>,
    pub cursor_key: [u8; 32],
    pub epoch: u32,
    pub usage: UsedInAll,
    pub clock: Clock,
    pub node: String,
    pub slot: i64,
    pub locks: Locks,
    pub edition: String,
    pub timeline: String,
    pub max_clock_difference: Duration,
}

impl Shared {
    pub fn new(found: Found) -> Arc<Shared> {
        let Found { state, address, tables, cursor_key, epoch, usage, clock, .. } = found;
        let adopted = AtomicI64::new(state.newest());
        Arc::new(Shared {
            schema: state.schema.clone(),
            versions: state.versions.clone(),
            state,
            address,
            tables,
            cursor_key,
            epoch,
            usage,
            clock,
            timer_turn: AtomicI64::new(i64::MIN),
            erased_at: Mutex::new(None),
            erases: AtomicBool::new(false),
            slot: found.slot,
            node: found.node,
            locks: found.locks,
            edition: found.edition,
            outdated: AtomicBool::new(false),
            max_clock_difference: found.max_clock_difference,
            clock_ahead_ms: AtomicI64::new(0),
            unfit: Arc::new(AtomicBool::new(false)),
            timeline: found.timeline,
            moved: watch::Sender::new(false),
            adopted,
            adopting: Mutex::new(()),
            settlements: AtomicI64::new(0),
            notify: Notify::new(),
        })
    }

    /// After a failover to a replica, the log may lack events that this node knows, and go on with
    /// others of the same numbers. Nothing that this node has in memory holds any more.
    pub fn check_timeline(&self, timeline: &str) -> Result<(), Error> {
        if self.timeline.starts_with(timeline) {
            return Ok(());
        }
        if !self.moved.send_replace(true) {
            let (before, now) = (&self.timeline, timeline);
            tracing::error!(%before, %now, "this is another database: the node starts again");
        }
        Err(Error::Unavailable(
            "the database has failed over to a replica, or was restored: this node must start again"
                .into(),
        ))
    }

    /// Compares the description of the tables with the one that this node works with.
    pub fn check_edition(&self, edition: Option<&str>) -> Result<(), Error> {
        let outdated = edition.is_some_and(|edition| edition != self.edition);
        if outdated != self.outdated.swap(outdated, Ordering::AcqRel) && outdated {
            tracing::error!("{}; it refuses writes until then", Error::Outdated);
        }
        self.note_fitness();
        if outdated { Err(Error::Outdated) } else { Ok(()) }
    }

    /// Compares this machine's clock with the one of the database's machine, which was read after
    /// `asked` and before now. If that took so long that it says nothing, what was known stays.
    pub fn check_clock(&self, asked: Timestamp, database_ms: i64) {
        let least = asked.0.saturating_sub(database_ms);
        let most = (self.clock)().0.saturating_sub(database_ms);
        let is_far = |ahead| is_far(ahead, self.max_clock_difference);
        let ahead = match (is_far(least), is_far(most)) {
            (false, false) => 0,
            (true, _) if least > 0 => least,
            (_, true) if most < 0 => most,
            _ => return,
        };
        let before = self.clock_ahead_ms.swap(ahead, Ordering::AcqRel);
        self.note_fitness();
        match (before, ahead) {
            (0, 0) => {}
            (0, _) => tracing::error!("{}; this node refuses writes until then", clock_text(ahead)),
            (_, 0) => tracing::info!("the clock is right again: this node writes"),
            _ => {}
        }
    }

    fn note_fitness(&self) {
        self.unfit.store(self.check_fit().is_err(), Ordering::Release);
    }

    /// Why this node writes nothing, if it does not.
    pub fn check_fit(&self) -> Result<(), Error> {
        if self.outdated.load(Ordering::Acquire) {
            return Err(Error::Outdated);
        }
        match self.clock_ahead_ms.load(Ordering::Acquire) {
            0 => Ok(()),
            ahead => Err(Error::Unavailable(clock_text(ahead).into())),
        }
    }

    pub fn erased_lately(&self) -> bool {
        self.erased_at.lock().is_some_and(|at| at.elapsed() < ERASED_FOR)
    }

    pub fn note_erasure(&self) {
        *self.erased_at.lock() = Some(Instant::now());
    }

    /// Every event up to this one is known here.
    pub fn adopted(&self) -> i64 {
        self.adopted.load(Ordering::Acquire)
    }

    /// Takes note of the own commit: everything up to it is known.
    pub fn committed(&self, newest: i64) {
        self.adopted.fetch_max(newest, Ordering::AcqRel);
    }

    /// Takes over what other nodes committed up to an event that the connection sees. Returns
    /// whether an erasure is among it.
    pub async fn adopt(&self, client: &Client, upto: i64) -> Result<bool, Error> {
        let from = self.adopted();
        if upto <= from {
            return Ok(false);
        }
        let most = FOREIGN.min(upto - from);
        let rows = client.query(FOREIGN_EVENTS, params![from, upto, FOREIGN + 1]).await?;
        let mut touched: Vec<(Scope, CollectionIx, i64)> = Vec::with_capacity(most as usize);
        let mut erases = false;
        for row in &rows {
            let (seq, scope): (i64, i64) = (row.cell(0)?, row.cell(1)?);
            let Some(ix) = self.schema.find(row.cell(2)?) else { continue };
            erases |= self.schema.collections[ix].builtin == Some(Builtin::Erasure);
            touched.push((Scope(scope), ix, seq));
        }
        if erases {
            self.note_erasure();
        }
        // First the sequences, then the wake-up.
        let _one = self.adopting.lock();
        match rows.len() as i64 > FOREIGN {
            true => {
                erases = true;
                self.state.adopt(upto);
            }
            false => self.state.publish_foreign(&touched, upto),
        }
        self.adopted.fetch_max(upto, Ordering::AcqRel);
        Ok(erases)
    }

    /// Takes over how many settlements there were.
    pub fn note_settlements(&self, sum: i64) {
        let before = self.settlements.fetch_max(sum, Ordering::AcqRel);
        if sum > before {
            self.state.settled.send_modify(|count| *count += 1);
            // A request to try a delivery again counts as a settlement.
            self.state.retry_requests.send_modify(|count| *count += 1);
        }
    }
}

/// Whether a clock that is so much ahead, or behind, differs by more than that.
pub fn is_far(ahead_ms: i64, most: Duration) -> bool {
    u128::from(ahead_ms.unsigned_abs()) > most.as_millis()
}

pub fn clock_text(ahead_ms: i64) -> String {
    let (seconds, side) =
        (ahead_ms.unsigned_abs() / 1000, if ahead_ms > 0 { "ahead of" } else { "behind" });
    format!(
        "the clock of this machine is {seconds} s {side} that of the database's machine: set both \
         by NTP"
    )
}
