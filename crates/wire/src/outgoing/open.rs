//! Opens a response: finds or makes a connection that speaks what the target wants, sends the
//! request on it, and once more where that is allowed.

#[cfg(not(unix))]
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::UPGRADE;
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::timeout_at;

use super::backlog::Place;
use super::call::{Call, Retry};
use super::clock::after;
use super::exchange::{Connection, Exchange};
use super::fault::{OutgoingFault, Stage, refused_tls};
use super::flow::{Flow, Home};
use super::multiplex::{self, Session, Slot};
use super::report::Trace;
use super::response::{Head, Reading};
use super::target::{Host, Protocol};
use super::transport::Transport;
use super::tunnel::Tunnel;
use super::{Key, Opened, Shared, connect, resolve, sweep};

/// A new connection, by what was agreed on.
enum Connected {
    Http1(Box<Connection>),
    Http2(Session),
}

impl Shared {
    /// Says whether the body was cut short.
    pub(super) async fn send(
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

    pub(super) async fn open(
        self: &Arc<Self>,
        call: &mut Call<'_>,
        trace: &mut Trace,
        reading: Reading,
    ) -> Result<Opened, OutgoingFault> {
        if call.method == Method::CONNECT {
            return Err(OutgoingFault::Url("must not be called with CONNECT: no tunnels here"));
        }
        let place = match &call.target.gate {
            None => None,
            Some(gate) => Some(gate.enter(call.timeouts.deadline).await?),
        };
        let key = (Handle::current().id(), call.target.origin.clone());
        // What an upgrade becomes takes a connection of its own.
        let is_plain = match call.target.origin.protocol {
            Protocol::Http1 => true,
            Protocol::Http2 => false,
            // Without TLS there is nobody to ask.
            Protocol::Negotiated => call.target.origin.secure.is_none(),
        };
        if !is_plain && !call.headers.contains_key(UPGRADE) {
            return Box::pin(self.open_multiplexed(call, trace, reading, key, place)).await;
        }
        let rested = self.rested(&key, call, trace.started);
        trace.reused = rested.is_some();
        self.open_on(rested, call, trace, reading, key, place).await
    }

    /// On HTTP/1.1: on this connection at rest, or on a new one.
    async fn open_on(
        self: &Arc<Self>,
        mut rested: Option<Box<Connection>>,
        call: &mut Call<'_>,
        trace: &mut Trace,
        reading: Reading,
        key: Key,
        place: Option<Place>,
    ) -> Result<Opened, OutgoingFault> {
        loop {
            let connection = match rested.take() {
                Some(connection) => connection,
                // Rare, and large.
                None => match Box::pin(self.connect(call, Protocol::Http1, trace)).await? {
                    Connected::Http1(connection) => connection,
                    Connected::Http2(_) => return Err(refused_tls("HTTP/1.1 was not agreed on")),
                },
            };
            trace.remote = connection.remote;
            let mut exchange = Exchange::new(connection, call, reading)?;
            match exchange.head(self.limits.head_bytes, &mut call.interim).await {
                Ok(head) => {
                    let shared = self.clone();
                    let home = Home { shared, key, place, keep_alive: false, rest: None };
                    return opened(exchange, head, home, call, trace, reading);
                }
                Err(fault) => {
                    exchange.upload.end(call);
                    let is_unsent = exchange.upload.sent_bytes() == 0;
                    let has_heard = exchange.has_heard();
                    if !trace.reused || has_heard || !may_repeat(call, is_unsent, &fault) {
                        return Err(fault);
                    }
                    // The other side let go of the connection as we took it up again, which is no
                    // fault of either. Once: the next connection is a new one.
                    trace.reused = false;
                }
            }
        }
    }

    /// On HTTP/2, or on what else the server agrees to.
    async fn open_multiplexed(
        self: &Arc<Self>,
        call: &mut Call<'_>,
        trace: &mut Trace,
        reading: Reading,
        key: Key,
        place: Option<Place>,
    ) -> Result<Opened, OutgoingFault> {
        let mut is_second = false;
        loop {
            let (mut session, slot) = match self.session(&key, call, trace).await? {
                Ok(session) => session,
                Err(connection) => {
                    return self.open_on(Some(connection), call, trace, reading, key, place).await;
                }
            };
            trace.remote = session.remote;
            let mut exchange = match multiplex::Exchange::new(&mut session, slot, call) {
                Ok(exchange) => exchange,
                // The session has ended in this moment.
                Err(OutgoingFault::Reset(_)) if trace.reused && !call.is_spent() && !is_second => {
                    is_second = true;
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            match exchange.head(&mut call.interim).await {
                Ok(response) => {
                    let begun = exchange.begun(response)?;
                    return Ok(opened_multiplexed(begun, place, call, trace));
                }
                Err(fault) => {
                    exchange.give_back(call);
                    if matches!(fault, OutgoingFault::Timeout(_)) {
                        session.suspect();
                    }
                    let is_untouched = multiplex::is_untouched(&fault);
                    let repeats = is_untouched || (trace.reused && !exchange.has_heard());
                    if is_second || !repeats || !may_repeat(call, is_untouched, &fault) {
                        return Err(fault);
                    }
                    is_second = true;
                }
            }
        }
    }

    /// A session with a free place. Otherwise a connection of HTTP/1.1, if the server prefers that.
    async fn session(
        self: &Arc<Self>,
        key: &Key,
        call: &mut Call<'_>,
        trace: &mut Trace,
    ) -> Result<Result<(Session, Slot), Box<Connection>>, OutgoingFault> {
        if let Some(found) = self.open_session(key, call, trace) {
            return Ok(found);
        }
        let within = until(call, call.timeouts.connect);
        let turn = timeout_at(within.into(), self.sessions.turn(key, call.account)).await;
        let turn = turn.map_err(|_| OutgoingFault::Timeout(Stage::Connect))?;
        // Who had the turn before has opened one for all.
        if let Some(found) = self.open_session(key, call, trace) {
            return Ok(found);
        }
        trace.reused = false;
        let protocol = call.target.origin.protocol;
        let connected = self.connect(call, protocol, trace).await?;
        drop(turn);
        match connected {
            Connected::Http1(connection) => {
                self.sessions.prefers_http1(key.clone(), Instant::now());
                Ok(Err(connection))
            }
            Connected::Http2(session) => {
                let slot = session.slot();
                let slot = slot.ok_or(OutgoingFault::Reset("no request is allowed".into()))?;
                self.sessions.give(key.clone(), session.clone(), Instant::now());
                sweep::ensure(self);
                Ok(Ok((session, slot)))
            }
        }
    }

    fn open_session(
        &self,
        key: &Key,
        call: &Call<'_>,
        trace: &mut Trace,
    ) -> Option<Result<(Session, Slot), Box<Connection>>> {
        let agreed =
            |session: &Session| session.remote.is_none_or(|remote| (call.vet)(remote.ip()));
        trace.reused = true;
        if let Some(found) = self.sessions.take(key, Instant::now(), agreed) {
            return Some(Ok(found));
        }
        let negotiated = call.target.origin.protocol == Protocol::Negotiated;
        let rested = negotiated.then(|| self.rested(key, call, Instant::now())).flatten();
        rested.map(Err)
    }

    /// A connection at rest that still lives, and to an address the caller agrees to.
    fn rested(&self, key: &Key, call: &Call<'_>, now: Instant) -> Option<Box<Connection>> {
        loop {
            let mut connection = self.pool.take(key, now)?;
            let agreed = connection.remote.is_none_or(|remote| (call.vet)(remote.ip()));
            let is_kept = connection.expires.is_none_or(|expires| now < expires);
            if agreed && is_kept && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    async fn connect(
        &self,
        call: &mut Call<'_>,
        protocol: Protocol,
        trace: &mut Trace,
    ) -> Result<Connected, OutgoingFault> {
        let origin = &*call.target.origin;
        let within = until(call, call.timeouts.connect);
        trace.stage = Stage::Connect;
        if let Host::Unix(path) = &origin.host {
            let opened = timeout_at(within.into(), unix(path)).await;
            let stream = opened.map_err(|_| OutgoingFault::Timeout(Stage::Connect))??;
            return self.connected(stream, None, protocol == Protocol::Http2).await;
        }
        let opened = timeout_at(within.into(), self.tcp(call, trace)).await;
        let (mut stream, remote) = opened.map_err(|_| OutgoingFault::Timeout(trace.stage))??;
        if let Some(introduction) = &origin.introduction {
            let written = timeout_at(within.into(), stream.write_all(&introduction.bytes())).await;
            let written = written.map_err(|_| OutgoingFault::Timeout(Stage::Connect))?;
            written.map_err(OutgoingFault::Connect)?;
        }
        let Some(name) = &origin.secure else {
            let is_http2 = protocol == Protocol::Http2;
            return self.connected(Transport::Plain(stream), Some(remote), is_http2).await;
        };
        trace.stage = Stage::Tls;
        let begun = Instant::now();
        let tls = origin.tls.as_ref().unwrap_or(&self.tls).config(protocol)?;
        let within = until(call, call.timeouts.tls);
        let secured = timeout_at(within.into(), connect::tls(stream, name.clone(), tls)).await;
        let secured = secured.map_err(|_| OutgoingFault::Timeout(Stage::Tls))??;
        trace.timing.tls = Some(begun.elapsed());
        let is_http2 = secured.get_ref().1.alpn_protocol() == Some(b"h2");
        if protocol == Protocol::Http2 && !is_http2 {
            return Err(refused_tls("the server does not speak HTTP/2"));
        }
        self.connected(Transport::Secure(Box::new(secured)), Some(remote), is_http2).await
    }

    async fn connected(
        &self,
        stream: Transport,
        remote: Option<SocketAddr>,
        is_http2: bool,
    ) -> Result<Connected, OutgoingFault> {
        Ok(match is_http2 {
            false => Connected::Http1(Box::new(Connection::new(stream, remote))),
            true => Connected::Http2(Session::begin(stream, remote, self.limits.head_bytes).await?),
        })
    }

    async fn tcp(
        &self,
        call: &mut Call<'_>,
        trace: &mut Trace,
    ) -> Result<(TcpStream, SocketAddr), OutgoingFault> {
        let begun = Instant::now();
        trace.stage = Stage::Resolve;
        let (target, names) = (call.target, call.names);
        let found = resolve::addresses(&target.origin, names, call.account, &self.lookups).await?;
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
    trace.head();
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

/// What follows the head, on HTTP/2.
fn opened_multiplexed(
    begun: multiplex::Begun,
    place: Option<Place>,
    call: &Call<'_>,
    trace: &mut Trace,
) -> Opened {
    trace.head();
    let is_head = call.method == Method::HEAD;
    let multiplex::Begun { status, headers, download } = begun;
    let flow = Flow::multiplexed(download, place, &headers, is_head);
    let (remote, reused, timing) = (trace.remote, trace.reused, trace.timing);
    Opened { status, headers, flow, tunnel: None, remote, reused, timing }
}

/// Whether a request that failed before a byte of the response may be sent once more.
fn may_repeat(call: &Call<'_>, is_unsent: bool, fault: &OutgoingFault) -> bool {
    if !matches!(fault, OutgoingFault::Reset(_)) || call.is_spent() {
        return false;
    }
    match call.retry {
        _ if is_unsent => true,
        Retry::Never => false,
        Retry::Idempotent => call.method.is_idempotent(),
        Retry::Replayable => true,
    }
}

/// When a step that may take so long has to be over.
fn until(call: &Call<'_>, timeout: Duration) -> Instant {
    let own = after(timeout);
    call.timeouts.deadline.map_or(own, |deadline| deadline.min(own))
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
