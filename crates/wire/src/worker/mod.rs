//! What one thread of the server has: limits, buffers, the clock of its connections, and the
//! connections themselves (`connections`, with `eviction`). A connection and the clock know each
//! other through a `link`. Knows no protocol: `serve` and `h3` accept connections.

mod buffer;
mod connections;
mod date;
mod eviction;
mod link;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::Service;
use crate::budget::Budget;
use crate::limits::Limits;
use crate::memory;
use crate::peer::AddressQuota;
use crate::shutdown::Shutdown;
use crate::terms::Terms;

pub(crate) use buffer::{Buffer, Buffers, Heads};
use connections::Connections;
pub(crate) use connections::{Handshake, Registration, take_place};
pub(crate) use date::Date;
use eviction::Evictions;
pub(crate) use link::{Event, InFlight, Link, Phase};

/// A header map with more room than this is not kept for the next request.
const SPARE_HEADERS: usize = 128;

/// What the threads count together.
pub(crate) struct Shared {
    pub(crate) connections: AtomicUsize,
    pub(crate) exchanges: AtomicUsize,
    /// TLS, PROXY protocol and QUIC handshakes in progress.
    pub(crate) handshakes: AtomicUsize,
    /// What clients make the server hold.
    pub(crate) memory: Arc<Budget<memory::Key>>,
    addresses: Arc<AddressQuota>,
    evictions: Evictions,
}

impl Shared {
    pub(crate) fn new(limits: &Limits) -> Shared {
        Shared {
            connections: AtomicUsize::new(0),
            exchanges: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            memory: Budget::new(limits.held_bytes),
            addresses: Arc::default(),
            evictions: Evictions::default(),
        }
    }
}

pub(crate) struct Worker {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) limits: Limits,
    pub(crate) terms: Terms,
    pub(crate) shared: Arc<Shared>,
    pub(crate) shutdown: Shutdown,
    pub(crate) buffers: Buffers,
    pub(crate) heads: Heads,
    /// HTTP/3: bytes of heads that have not arrived whole.
    pub(crate) half_heads: Cell<usize>,
    /// Where responses are put together; taken, never held over a wait.
    pub(crate) scratch: Cell<Vec<u8>>,
    pub(crate) date: RefCell<Date>,
    /// The map of the last response, emptied, for the next request.
    spare_headers: Cell<Option<HeaderMap>>,
    /// A clock that costs nothing to read: how often the worker looked for overdue connections.
    pub(crate) tick: Cell<u64>,
    pub(crate) draining: Cell<bool>,
    /// While draining: new connections still get the time to send their first request.
    pub(crate) awaits_first_requests: Cell<bool>,
    pub(crate) connections: Connections,
    /// Connections that are being refused with a response.
    pub(crate) refusals: Cell<usize>,
}

impl Worker {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        limits: Limits,
        terms: Terms,
        shared: Arc<Shared>,
        shutdown: Shutdown,
    ) -> Worker {
        Worker {
            connections: Connections::new(&shared.evictions),
            service,
            limits,
            terms,
            shared,
            shutdown,
            buffers: Buffers::default(),
            heads: Heads::default(),
            half_heads: Cell::new(0),
            scratch: Cell::default(),
            date: RefCell::new(Date::new()),
            spare_headers: Cell::default(),
            tick: Cell::new(0),
            draining: Cell::new(false),
            awaits_first_requests: Cell::new(true),
            refusals: Cell::new(0),
        }
    }

    /// Ticks when it is time for `check_connections`.
    pub(crate) fn clock(&self) -> Interval {
        let mut clock = interval(self.limits.tick());
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        clock
    }

    /// How long ago a tick was.
    pub(crate) fn elapsed(&self, since: u64) -> Duration {
        let ticks = u32::try_from(self.tick.get() - since).unwrap_or(u32::MAX);
        self.limits.tick().saturating_mul(ticks)
    }

    /// An empty map, with the memory of one that is no longer used.
    pub(crate) fn spare_headers(&self) -> HeaderMap {
        self.spare_headers.take().unwrap_or_default()
    }

    pub(crate) fn spare(&self, mut headers: HeaderMap) {
        if headers.capacity() <= SPARE_HEADERS {
            headers.clear();
            self.spare_headers.set(Some(headers));
        }
    }
}
