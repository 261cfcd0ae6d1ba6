//! Outgoing requests: action callouts, webhooks and what a proxy passes on. Connections are kept
//! and used again; redirects are never followed, because the address was checked and the next one
//! was not; no proxy is taken from the environment. Runs on the runtime of whichever thread calls
//! it and, on HTTP/1.1, starts no task.
//!
//! The way of a call: `target` (parsed once) → `open` → `backlog` → `pool`, or else `resolve` →
//! `connect` → `exchange`, which sends the `upload` and reads the head of the `response` → `flow`
//! or `tunnel`. On HTTP/2 `sessions` stands for the pool and `multiplex` for the exchange. `report`
//! is the short form for callers that want the whole response. Must not know who calls whom, and
//! why: which addresses are good is the caller's say.

mod backlog;
mod call;
mod clock;
mod connect;
mod exchange;
mod fault;
mod flow;
mod introduction;
mod limits;
mod multiplex;
mod open;
mod pool;
mod report;
mod resolve;
mod response;
mod sessions;
mod sweep;
mod target;
mod transport;
mod trust;
mod tunnel;
mod upload;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::runtime;

use exchange::Connection;
use pool::Pool;
use report::Trace;
use resolve::Lookups;
use response::Reading;
use sessions::Sessions;
use target::Origin;

pub use backlog::Backlog;
pub use call::{Call, CallTimeouts, Interim, Names, Retry};
pub use fault::{OutgoingFault, Stage};
pub use flow::Flow;
pub use introduction::ProxyProtocol;
pub use limits::OutgoingLimits;
pub use report::{Reply, Report, Timing};
pub use target::{Protocol, Target};
pub use trust::ClientTls;
pub use tunnel::{Relayed, Tunnel};

/// Sends requests to other servers. Cheap to clone; the clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// A response whose head is here.
#[derive(Debug)]
pub struct Opened {
    pub status: StatusCode,
    /// As they came, also those that are about the connection.
    pub headers: HeaderMap,
    pub flow: Flow,
    /// After 101: the connection itself.
    pub tunnel: Option<Tunnel>,
    /// None for a unix socket.
    pub remote: Option<SocketAddr>,
    /// Whether the connection had carried a request before.
    pub reused: bool,
    /// `total` is the time to the head.
    pub timing: Timing,
}

struct Shared {
    limits: OutgoingLimits,
    tls: ClientTls,
    lookups: Lookups,
    pool: Pool<Key, Box<Connection>>,
    sessions: Sessions,
    /// True while a task closes what has rested too long.
    has_sweeper: AtomicBool,
}

/// A connection hears of its bytes through the runtime it was opened on. One that is busy or gone
/// would leave it deaf, so none is used from another.
type Key = (runtime::Id, Arc<Origin>);

impl Client {
    /// Trusts the system's certificate authorities, which are read at the first `https` call.
    pub fn new() -> Client {
        Client::with_limits(OutgoingLimits::default())
    }

    pub fn with_limits(limits: OutgoingLimits) -> Client {
        Client::build(limits, ClientTls::default())
    }

    /// Trusts these certificate authorities (DER) and no others.
    pub fn trusting(authorities: Vec<Vec<u8>>) -> Result<Client, OutgoingFault> {
        let tls = ClientTls::new(Some(authorities), None)?;
        Ok(Client::build(OutgoingLimits::default(), tls))
    }

    fn build(limits: OutgoingLimits, tls: ClientTls) -> Client {
        let lookups = Lookups::new(limits.lookups, limits.lookup_ttl);
        let (pool, sessions) = (Pool::new(&limits), Sessions::new(&limits));
        let has_sweeper = AtomicBool::new(false);
        Client { shared: Arc::new(Shared { limits, tls, lookups, pool, sessions, has_sweeper }) }
    }

    /// Sends a request and waits for the head of the response. The body of the response, and what
    /// is left of the request, follow as the flow is read. Responses that are not valid HTTP are
    /// refused.
    ///
    /// After an error the call can be made again, to another target also, unless
    /// [`Call::is_spent`].
    pub async fn open(&self, call: &mut Call<'_>) -> Result<Opened, OutgoingFault> {
        let mut trace = Trace::start();
        self.shared.open(call, &mut trace, Reading::Strict).await
    }

    /// Sends a POST to where the operator said and takes the whole answer.
    pub async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
        max_response_bytes: usize,
    ) -> Result<Reply, OutgoingFault> {
        let target = &Target::parse(url)?;
        let mut call = Call {
            headers,
            body: body.into(),
            timeouts: CallTimeouts::until(deadline),
            retry: Retry::Replayable,
            max_response_bytes,
            ..Call::new(Method::POST, target)
        };
        let reply = self.send(&mut call).await.result?;
        if reply.truncated { Err(OutgoingFault::TooLarge) } else { Ok(reply) }
    }

    /// Sends a request and collects the response. Never panics, and never lasts beyond the
    /// deadline. The server took the request, so it is not asked again for a small fault of its
    /// response: a header line that is none is skipped, and the connection is not used again.
    pub async fn send(&self, call: &mut Call<'_>) -> Report {
        let mut trace = Trace::start();
        let result = self.shared.send(call, &mut trace).await;
        trace.finish(result, Instant::now())
    }

    /// How many connections are at rest.
    pub fn idle(&self) -> usize {
        self.shared.pool.count()
    }

    /// How many connections of HTTP/2 are open for requests.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.count()
    }
}

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
