//! What the feed of one server has reported: up to which position, when, and which hashes have
//! changed since the feed was opened. Bounded memory and no lock: a table has the position of the
//! last change by hash, and hashes that share a place cost a validation, never a stale response.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::RwLock;

use super::evidence::{Evidence, Said};

/// A feed that has reported nothing for this long is not current. 2 s: four times the heartbeat of
/// the server. It bounds how old a response can be when a connection is broken and nobody notices.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(2);
/// Places for changed hashes: 512 KiB. At 100 commits per second, an entry lives for five minutes
/// until another hash changes in its place, which is longer than the evidence is valid.
const PLACES: usize = 1 << 16;
/// Places for accounts that wait for their own writes.
const SCOPES: usize = 1 << 12;

#[derive(Debug)]
pub(crate) struct Link {
    /// Changes when the feed is opened and when it ends: evidence of other sessions is void.
    session: AtomicU64,
    /// Everything up to here was reported.
    position: AtomicU64,
    /// When the server said that this is everything, in milliseconds.
    current_ms: AtomicU64,
    began: Instant,
    tables: OnceLock<Tables>,
    /// What the server recognises requests of this proxy by, while the feed is open.
    token: RwLock<Option<HeaderValue>>,
    /// Hashes that were reported.
    changes: AtomicU64,
}

#[derive(Debug)]
struct Tables {
    /// By hash: the position of the last change.
    changed: Box<[AtomicU64]>,
    /// By account and mode: the position that includes the last write through this proxy.
    awaited: Box<[AtomicU64]>,
}

/// What is known when a request is sent.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    pub(crate) token: HeaderValue,
    pub(super) session: u64,
    /// The response includes everything up to here.
    pub(super) position: u64,
    pub(super) sent: Instant,
}

/// Whether evidence holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    /// Something that the response depends on has changed.
    Changed,
    /// The feed is behind, silent or closed, or the evidence is too old.
    InDoubt,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            session: AtomicU64::new(0),
            position: AtomicU64::new(0),
            current_ms: AtomicU64::new(0),
            began: Instant::now(),
            tables: OnceLock::new(),
            token: RwLock::new(None),
            changes: AtomicU64::new(0),
        }
    }
}

impl Link {
    /// The feed begins: what is known begins with it.
    pub(crate) fn open(&self, token: HeaderValue, position: u64) {
        self.close();
        let zeros = |places: usize| (0..places).map(|_| AtomicU64::new(0)).collect();
        let tables =
            self.tables.get_or_init(|| Tables { changed: zeros(PLACES), awaited: zeros(SCOPES) });
        for place in tables.changed.iter().chain(&tables.awaited) {
            place.store(0, Ordering::Relaxed);
        }
        self.position.store(position, Ordering::Release);
        self.current(position);
        *self.token.write() = Some(token);
    }

    /// The feed has ended.
    pub(crate) fn close(&self) {
        *self.token.write() = None;
        self.session.fetch_add(1, Ordering::AcqRel);
    }

    /// These hashes have changed, at the latest at this position. The position of the link follows
    /// with `current`, so that who sees it sees the changes.
    pub(crate) fn change(&self, position: u64, hashes: impl Iterator<Item = u64>) {
        let Some(tables) = self.tables.get() else { return };
        for hash in hashes {
            place(&tables.changed, hash).fetch_max(position, Ordering::AcqRel);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything up to this position was reported.
    pub(crate) fn current(&self, position: u64) {
        self.position.fetch_max(position, Ordering::AcqRel);
        self.current_ms.store(self.milliseconds(Instant::now()), Ordering::Release);
    }

    /// A write of this account through the proxy: until the feed is there, its entries are not used
    /// without a validation.
    pub(crate) fn await_position(&self, said: &Said) {
        if let (Some(tables), Some(scope)) = (self.tables.get(), said.scope) {
            place(&tables.awaited, scope).fetch_max(said.position, Ordering::AcqRel);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.token.read().is_some()
    }

    /// What a request is sent with, if the feed is open.
    pub(crate) fn basis(&self, sent: Instant) -> Option<Basis> {
        // In this order: a session that begins in between makes the evidence void.
        let session = self.session.load(Ordering::Acquire);
        let position = self.position.load(Ordering::Acquire);
        let token = self.token.read().clone()?;
        // The token may be that of a later session than the position.
        let is_same = self.session.load(Ordering::Acquire) == session;
        is_same.then_some(Basis { token, session, position, sent })
    }

    pub(super) fn held(&self, evidence: &Evidence, now: Instant) -> Held {
        let is_same = || self.session.load(Ordering::Acquire) == evidence.session;
        let Some(tables) = self.tables.get() else { return Held::InDoubt };
        if !is_same() || now >= evidence.until || !self.is_current(now) {
            return Held::InDoubt;
        }
        // The position before the changes: they were written in the other order.
        let position = self.position.load(Ordering::Acquire);
        let awaited = |scope: u64| place(&tables.awaited, scope).load(Ordering::Acquire);
        if evidence.scope.is_some_and(|scope| awaited(scope) > position) {
            return Held::InDoubt;
        }
        let is_unchanged =
            |hash: &u64| place(&tables.changed, *hash).load(Ordering::Acquire) <= evidence.position;
        match evidence.depends.iter().all(is_unchanged) {
            false => Held::Changed,
            // The tables are those of the session that was looked at first.
            true if is_same() => Held::Yes,
            true => Held::InDoubt,
        }
    }

    fn is_current(&self, now: Instant) -> bool {
        self.silence(now) < MAX_SILENCE
    }

    /// The time since the server said that everything was reported.
    fn silence(&self, now: Instant) -> Duration {
        let last = self.current_ms.load(Ordering::Acquire);
        Duration::from_millis(self.milliseconds(now).saturating_sub(last))
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_millis() as u64
    }

    /// For metrics: whether the feed is current, the milliseconds since it was, and the changes.
    pub(crate) fn figures(&self, now: Instant) -> [(&'static str, u64); 3] {
        let is_open = self.is_open();
        let lag = if is_open { self.silence(now).as_millis() as u64 } else { 0 };
        [
            ("feed_current", u64::from(is_open && self.is_current(now))),
            ("feed_lag_milliseconds", lag),
            ("feed_changes_total", self.changes.load(Ordering::Relaxed)),
        ]
    }
}

fn place(table: &[AtomicU64], hash: u64) -> &AtomicU64 {
    &table[hash as usize % table.len()]
}
