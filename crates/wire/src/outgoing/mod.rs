//! Outgoing requests: action callouts and webhooks. Connections are kept and used again; redirects
//! are never followed, because the address was checked and the next one was not; no proxy is taken
//! from the environment. Runs on the runtime of whichever thread calls it and starts no task.
//!
//! The way of a call: `target` (parsed once) → `pool`, or else `resolve` → `connect` → `exchange` →
//! `report`. Must not know who calls whom, and why: which addresses are good is the caller's say.

mod connect;
mod exchange;
mod fault;
mod limits;
mod pool;
mod report;
mod resolve;
mod target;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request};
use http_body_util::Full;
use hyper::client::conn::http1;
use tokio::runtime::{self, Handle};
use tokio::time::timeout_at;

use connect::{Transport, Trust};
use exchange::Connection;
use pool::Pool;
use report::Trace;
use resolve::Lookups;
use target::Origin;

pub use fault::{OutgoingFault, Stage};
pub use limits::OutgoingLimits;
pub use report::{Reply, Report, Timing};
pub use target::Target;

/// Sends requests to other servers. Cheap to clone; the clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// One request to be sent.
pub struct Call<'a> {
    pub method: Method,
    pub target: &'a Target,
    /// `Host` and `Content-Length` are added.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Covers all of it: name, connection, TLS, head and body.
    pub deadline: Instant,
    /// The body of the answer is cut here, and the connection with it.
    pub max_response_bytes: usize,
    /// Says whether an address may be talked to. Asked for every address of a name.
    pub vet: &'a (dyn Fn(IpAddr) -> bool + Sync),
    pub names: Names,
}

/// How host names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// As the system is set up: hosts file and search domains. For names the operator chose.
    AsConfigured,
    /// Without search domains, so that a stranger's name cannot become one of ours. `localhost`
    /// alone is still looked for in the hosts file.
    Absolute,
}

struct Shared {
    limits: OutgoingLimits,
    trust: Trust,
    http: http1::Builder,
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
        Client::build(limits, Trust::default())
    }

    /// Trusts these certificate authorities (DER) and no others.
    pub fn trusting(authorities: Vec<Vec<u8>>) -> Result<Client, OutgoingFault> {
        Ok(Client::build(OutgoingLimits::default(), Trust::only(authorities)?))
    }

    fn build(limits: OutgoingLimits, trust: Trust) -> Client {
        let mut http = http1::Builder::new();
        http.max_buf_size(limits.head_bytes.max(8192));
        // A server that took the request is not asked again for a header we do not need.
        http.ignore_invalid_headers_in_responses(true);
        let lookups = Lookups::new(limits.lookups);
        let pool = Pool::new(&limits);
        Client { shared: Arc::new(Shared { limits, trust, http, lookups, pool }) }
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
        let (vet, names) = (&|_| true, Names::AsConfigured);
        let method = Method::POST;
        let call = Call { method, target, headers, body, deadline, max_response_bytes, vet, names };
        let reply = self.send(&call).await.result?;
        if reply.truncated { Err(OutgoingFault::TooLarge) } else { Ok(reply) }
    }

    /// Sends a request. Never panics, and never lasts beyond the deadline.
    pub async fn send(&self, call: &Call<'_>) -> Report {
        let mut trace = Trace::start();
        let work = self.shared.attempt(call, &mut trace);
        let outcome = timeout_at(call.deadline.into(), work).await;
        let (result, now) = match outcome {
            Ok(Ok((truncated, now))) => (Ok(truncated), now),
            Ok(Err(fault)) => (Err(fault), Instant::now()),
            Err(_) => (Err(OutgoingFault::Timeout(trace.stage)), Instant::now()),
        };
        trace.finish(result, now)
    }

    /// How many connections are at rest.
    pub fn idle(&self) -> usize {
        self.shared.pool.count()
    }
}

impl Shared {
    /// Says whether the body was cut short, and when it ended.
    async fn attempt(
        &self,
        call: &Call<'_>,
        trace: &mut Trace,
    ) -> Result<(bool, Instant), OutgoingFault> {
        let key = (Handle::current().id(), call.target.origin.clone());
        let mut rested = self.rested(&key, call, trace.started);
        loop {
            trace.reused = rested.is_some();
            let mut connection = match rested.take() {
                Some(connection) => connection,
                // Rare, and large.
                None => Box::pin(self.connect(call, trace)).await?,
            };
            trace.remote = Some(connection.remote);
            let request = request(call);
            match connection.exchange(request, call.max_response_bytes, trace).await {
                Ok(truncated) => {
                    let now = Instant::now();
                    let young = now < connection.opened + self.limits.connection_age;
                    if !truncated && young && connection.is_ready() {
                        self.pool.give(key, connection, now);
                    }
                    return Ok((truncated, now));
                }
                // The other side let go of the connection as we took it up again, which is no
                // fault of either. Once: the next connection is a new one.
                Err(_) if trace.reused && !connection.has_heard() => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// A connection at rest that still lives, and to an address the caller agrees to.
    fn rested(&self, key: &Key, call: &Call<'_>, now: Instant) -> Option<Box<Connection>> {
        loop {
            let mut connection = self.pool.take(key, now)?;
            if connection.is_ready() && (call.vet)(connection.remote.ip()) {
                return Some(connection);
            }
        }
    }

    async fn connect(
        &self,
        call: &Call<'_>,
        trace: &mut Trace,
    ) -> Result<Box<Connection>, OutgoingFault> {
        let origin = &*call.target.origin;
        let mut begun = Instant::now();
        let mut lap = || {
            let now = Instant::now();
            now.saturating_duration_since(std::mem::replace(&mut begun, now))
        };
        trace.stage = Stage::Resolve;
        let found = resolve::addresses(origin, call.names, &self.lookups).await?;
        trace.timing.resolve = Some(lap());
        let addresses = resolve::vetted(found, call.vet, self.limits.addresses)?;
        trace.stage = Stage::Connect;
        let stream = connect::tcp(&addresses, call.deadline, &mut trace.remote).await?;
        trace.timing.connect = Some(lap());
        let remote = stream.peer_addr().map_err(OutgoingFault::Connect)?;
        let transport = match &origin.secure {
            None => Transport::Plain(stream),
            Some(name) => {
                trace.stage = Stage::Tls;
                let config = self.trust.config()?;
                let stream = connect::tls(stream, name.clone(), config).await?;
                trace.timing.tls = Some(lap());
                Transport::Secure(Box::new(stream))
            }
        };
        Ok(Box::new(Connection::new(transport, remote, &self.http).await?))
    }
}

fn request(call: &Call<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.target.path.clone();
    *request.headers_mut() = call.headers.clone();
    let headers = request.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    headers.insert(HOST, call.target.host_header());
    request
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
