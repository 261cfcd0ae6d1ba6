//! Outgoing requests: action callouts, webhooks and what a proxy passes on. Connections are kept and
//! used again; redirects are never followed, because the address was checked and the next one was
//! not; no proxy is taken from the environment. Runs on the runtime of whichever thread calls it
//! and, on HTTP/1.1, starts no task.
//!
//! The way of a call: `target` (parsed once) → `backlog` → `pool`, or else `resolve` → `connect` →
//! `exchange`, which sends the `upload` and reads the head of the `response` → `flow` or `tunnel`.
//! `report` is the short form for callers that want the whole response. Must not know who calls
//! whom, and why: which addresses are good is the caller's say.

mod backlog;
mod call;
mod clock;
mod connect;
mod exchange;
mod fault;
mod flow;
mod limits;
mod pool;
mod report;
mod resolve;
mod response;
mod target;
mod transport;
mod trust;
mod tunnel;
mod upload;

use std::fmt;
#[cfg(not(unix))]
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{HeaderMap, Method, StatusCode};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::runtime::{self, Handle};
use tokio::time::timeout_at;

use clock::after;
use exchange::{Connection, Exchange};
use flow::Home;
use pool::Pool;
use report::Trace;
use resolve::Lookups;
use response::{Head, Reading};
use target::{Host, Origin};
use transport::Transport;

pub use backlog::Backlog;
pub use call::{Call, Interim, Names, Patience, Retry};
pub use fault::{OutgoingFault, Stage};
pub use flow::Flow;
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
        let pool = Pool::new(&limits);
        Client { shared: Arc::new(Shared { limits, tls, lookups, pool }) }
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
            patience: Patience::until(deadline),
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
}

impl Shared {
    /// Says whether the body was cut short.
    async fn send(
        self: &Arc<Self>,
        call: &mut Call<'_>,
        trace: &mut Trace,
    ) -> Result<bool, OutgoingFault> {
        let opened = self.open(call, trace, Reading::Lenient).await?;
        let mut flow = opened.flow;
        trace.head_came(opened.status, opened.headers);
        let (max_bytes, bytes) = (call.max_response_bytes, &mut trace.body);
        loop {
            // Known to go on: what follows is not waited for.
            if bytes.len() == max_bytes && flow.has_more() {
                return Ok(true);
            }
            let Some(piece) = flow.piece().await else { return Ok(false) };
            let piece = piece?;
            let room = max_bytes - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                return Ok(true);
            }
        }
    }

    async fn open(
        self: &Arc<Self>,
        call: &mut Call<'_>,
        trace: &mut Trace,
        reading: Reading,
    ) -> Result<Opened, OutgoingFault> {
        let deadline = call.patience.deadline;
        let place = match &call.target.gate {
            None => None,
            Some(gate) => Some(gate.enter(deadline).await?),
        };
        let key = (Handle::current().id(), call.target.origin.clone());
        let mut rested = self.rested(&key, call, trace.started);
        loop {
            trace.reused = rested.is_some();
            let connection = match rested.take() {
                Some(connection) => connection,
                // Rare, and large.
                None => Box::pin(self.connect(call, trace)).await?,
            };
            trace.remote = connection.remote;
            let mut exchange = Exchange::new(connection, call, reading)?;
            match exchange.head(self.limits.head_bytes, &mut call.interim).await {
                Ok(head) => {
                    let home = Home { shared: self.clone(), key, place, keep_alive: false };
                    return opened(exchange, head, home, call, trace, reading);
                }
                Err(fault) => {
                    exchange.upload.end(call);
                    if !trace.reused || !may_repeat(call, &exchange, &fault) {
                        return Err(fault);
                    }
                    // The other side let go of the connection as we took it up again, which is no
                    // fault of either. Once: the next connection is a new one.
                }
            }
        }
    }

    /// A connection at rest that still lives, and to an address the caller agrees to.
    fn rested(&self, key: &Key, call: &Call<'_>, now: Instant) -> Option<Box<Connection>> {
        loop {
            let mut connection = self.pool.take(key, now)?;
            let agreed = connection.remote.is_none_or(|remote| (call.vet)(remote.ip()));
            if agreed && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    async fn connect(
        &self,
        call: &mut Call<'_>,
        trace: &mut Trace,
    ) -> Result<Box<Connection>, OutgoingFault> {
        let origin = &*call.target.origin;
        let within = until(call, call.patience.connect);
        if let Host::Unix(path) = &origin.host {
            let opened = timeout_at(within.into(), unix(path)).await;
            let stream = opened.map_err(|_| OutgoingFault::Timeout(Stage::Connect))?;
            return Ok(Box::new(Connection::new(stream?, None)));
        }
        let opened = timeout_at(within.into(), self.tcp(call, trace)).await;
        let (stream, remote) = opened.map_err(|_| OutgoingFault::Timeout(trace.stage))??;
        let transport = match &origin.secure {
            None => Transport::Plain(stream),
            Some(name) => {
                trace.stage = Stage::Tls;
                let begun = Instant::now();
                let tls = origin.tls.as_ref().unwrap_or(&self.tls).config(origin.protocol)?;
                let within = until(call, call.patience.tls);
                let secured = connect::tls(stream, name.clone(), tls);
                let secured = timeout_at(within.into(), secured).await;
                let secured = secured.map_err(|_| OutgoingFault::Timeout(Stage::Tls))??;
                trace.timing.tls = Some(begun.elapsed());
                Transport::Secure(Box::new(secured))
            }
        };
        Ok(Box::new(Connection::new(transport, Some(remote))))
    }

    async fn tcp(
        &self,
        call: &mut Call<'_>,
        trace: &mut Trace,
    ) -> Result<(tokio::net::TcpStream, SocketAddr), OutgoingFault> {
        let begun = Instant::now();
        trace.stage = Stage::Resolve;
        let (target, names) = (call.target, call.names);
        let found = resolve::addresses(&target.origin, names, &self.lookups).await?;
        trace.timing.resolve = Some(begun.elapsed());
        let addresses = resolve::vetted(found, call.vet, self.limits.addresses)?;
        trace.stage = Stage::Connect;
        let begun = Instant::now();
        let opened = connect::tcp(&addresses, &mut trace.remote).await;
        // The name may have moved.
        let stream = opened.inspect_err(|_| self.lookups.forget(&target.origin))?;
        trace.timing.connect = Some(begun.elapsed());
        let remote = stream.peer_addr().map_err(OutgoingFault::Connect)?;
        Ok((stream, remote))
    }
}

/// What follows the head.
fn opened(
    exchange: Exchange,
    head: Head,
    home: Home,
    call: &Call<'_>,
    trace: &mut Trace,
    reading: Reading,
) -> Result<Opened, OutgoingFault> {
    trace.stage = Stage::Body;
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let is_asked = call.headers.contains_key(UPGRADE) && exchange.upload.is_sent();
    let (flow, tunnel) = match (is_switch, is_asked) {
        (false, _) => (Flow::new(exchange, &head, home, call.method == Method::HEAD)?, None),
        (true, true) => {
            let Connection { stream, incoming, .. } = *exchange.connection;
            (Flow::empty(), Some(Tunnel::new(stream, incoming.freeze(), home.place)))
        }
        // Nobody asked; whatever follows is of no use.
        (true, false) if reading == Reading::Lenient => (Flow::empty(), None),
        (true, false) => {
            return Err(OutgoingFault::Protocol("it switches protocols unasked".into()));
        }
    };
    trace.timing.total = trace.started.elapsed();
    trace.timing.first_byte = Some(trace.timing.total);
    Ok(Opened {
        status: head.status,
        headers: head.headers,
        flow,
        tunnel,
        remote: trace.remote,
        reused: trace.reused,
        timing: trace.timing,
    })
}

/// Whether a request that failed on a kept connection may be sent once more.
fn may_repeat(call: &Call<'_>, exchange: &Exchange, fault: &OutgoingFault) -> bool {
    if !matches!(fault, OutgoingFault::Reset(_)) || exchange.has_heard() || call.is_spent() {
        return false;
    }
    match call.retry {
        _ if exchange.upload.sent_bytes() == 0 => true,
        Retry::Never => false,
        Retry::Idempotent => call.method.is_idempotent(),
        Retry::Replayable => true,
    }
}

/// When a step that may take so long has to be over.
fn until(call: &Call<'_>, patience: Duration) -> Instant {
    let own = after(patience);
    call.patience.deadline.map_or(own, |deadline| deadline.min(own))
}

#[cfg(unix)]
async fn unix(path: &std::path::Path) -> Result<Transport, OutgoingFault> {
    let stream = UnixStream::connect(path).await;
    stream.map(Transport::Unix).map_err(OutgoingFault::Connect)
}

#[cfg(not(unix))]
async fn unix(_: &std::path::Path) -> Result<Transport, OutgoingFault> {
    Err(OutgoingFault::Connect(io::ErrorKind::Unsupported.into()))
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
