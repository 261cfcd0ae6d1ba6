//! The connections of HTTP/2 that are open, by the place they lead to: each carries several
//! requests at a time. One that is full, too old or has ended is left to the requests it has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::Key;
use super::limits::OutgoingLimits;
use super::multiplex::{Session, Slot};
use super::resolve::Account;

pub(super) struct Sessions {
    idle_time: Duration,
    connection_age: Duration,
    shelves: Mutex<HashMap<Key, Shelf>>,
}

#[derive(Default)]
struct Shelf {
    /// With the time of their last request.
    sessions: Vec<(Session, Instant)>,
    /// Held by the call that opens one more: the others of its account wait, and use that one. Not
    /// those of other accounts, which do not wait for its share of the lookups.
    turns: HashMap<Account, Arc<Turn<()>>>,
    /// When the server preferred HTTP/1.1.
    http1: Option<Instant>,
}

impl Sessions {
    pub(super) fn new(limits: &OutgoingLimits) -> Sessions {
        Sessions {
            idle_time: limits.idle_time,
            connection_age: limits.connection_age,
            shelves: Mutex::default(),
        }
    }

    /// A session with a free place. The first that has one, so that the others fall idle and end.
    pub(super) fn take(
        &self,
        key: &Key,
        now: Instant,
        agreed: impl Fn(&Session) -> bool,
    ) -> Option<(Session, Slot)> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.retain(|_, shelf| self.remains(shelf, now));
        let shelf = shelves.get_mut(key)?;
        shelf.sessions.iter_mut().find_map(|(session, used)| {
            let slot = agreed(session).then(|| session.slot())??;
            *used = now;
            Some((session.clone(), slot))
        })
    }

    /// Ends the sessions that nobody has used for long.
    pub(super) fn remove_expired(&self, now: Instant) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.retain(|_, shelf| self.remains(shelf, now));
    }

    /// Removes from a shelf what nobody uses any more. False if nothing is left of it.
    fn remains(&self, shelf: &mut Shelf, now: Instant) -> bool {
        shelf.sessions.retain_mut(|(session, used)| self.is_good(session, *used, now));
        let is_old = |since: Instant| now.saturating_duration_since(since) > self.connection_age;
        shelf.http1 = shelf.http1.filter(|since| !is_old(*since));
        shelf.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        !shelf.sessions.is_empty() || shelf.http1.is_some() || !shelf.turns.is_empty()
    }

    pub(super) fn give(&self, key: Key, session: Session, now: Instant) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.entry(key).or_default().sessions.push((session, now));
    }

    /// The server has preferred HTTP/1.1, where each request has a connection of its own.
    pub(super) fn prefers_http1(&self, key: Key, now: Instant) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.entry(key).or_default().http1 = Some(now);
    }

    /// The turn to open a connection. None if nobody else could use it.
    pub(super) async fn turn(&self, key: &Key, account: Account) -> Option<OwnedMutexGuard<()>> {
        let turn = {
            let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
            let shelf = shelves.entry(key.clone()).or_default();
            shelf.http1.is_none().then(|| shelf.turns.entry(account).or_default().clone())?
        };
        Some(turn.lock_owned().await)
    }

    pub(super) fn count(&self) -> usize {
        let shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.values().map(|shelf| shelf.sessions.len()).sum()
    }

    fn is_good(&self, session: &mut Session, used: Instant, now: Instant) -> bool {
        let is_young = now.saturating_duration_since(session.opened) < self.connection_age;
        let rests = now.saturating_duration_since(used) >= self.idle_time && !session.is_used();
        is_young && !rests && session.is_alive()
    }
}
