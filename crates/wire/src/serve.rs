//! The accept loop of one thread for TCP: connections from its own listening socket, what comes
//! before HTTP on them (PROXY protocol, TLS), the protocol they speak, and a clear refusal for
//! those that cannot be served. On the signal it stops accepting and drains.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::accept::Refusals;
use crate::fault::Fault;
use crate::h1::{self, Connection, Handover};
use crate::h2;
use crate::listen::BACKLOG;
use crate::peer::introduction;
use crate::stream::Stream;
use crate::tls::{Accepted, Protocol};
use crate::worker::{Handshake, Registration, Worker};

/// The most connections over the limit that one thread answers at a time, by 503 or as a client of
/// event streams needs it. A flood beyond it is closed without a response, which costs nothing;
/// such clients retry as well.
const MAX_REFUSALS: usize = 64;
/// The same under TLS, where a response costs a handshake: a millisecond of work and some 20 KiB
/// that the connections with a place pay for.
const MAX_SECURED_REFUSALS: usize = 16;
/// For clients that speak plain HTTP to a TLS port.
const SPEAK_TLS: Fault =
    Fault::Malformed("This port speaks HTTPS only; use https:// instead of http:// in the URL.");

/// Serves until the signal, then drains.
pub(crate) async fn serve(worker: Rc<Worker>, listener: std::net::TcpListener) -> io::Result<()> {
    let mut shutdown = worker.shutdown.clone();
    let listener = TcpListener::from_std(listener)?;
    let mut clock = worker.clock();
    let fired = shutdown.fired();
    tokio::pin!(fired);
    let mut next = 0;
    let mut refusals = Refusals::default();
    let pause = sleep(Duration::ZERO);
    tokio::pin!(pause);
    let Some(mut evictions) = worker.connections.eviction_requests() else { return Ok(()) };
    loop {
        tokio::select! {
            biased;
            () = &mut fired => break,
            _ = clock.tick() => worker.check_connections(),
            Some(request) = evictions.recv() => {
                let _ = request.send(worker.end_idle_connection());
            }
            () = &mut pause, if !pause.is_elapsed() => {}
            accepted = listener.accept(), if pause.is_elapsed() => match accepted {
                Ok((stream, peer)) => {
                    refusals.accepted();
                    open(&worker, next, stream, peer);
                    next += 1;
                    if worker.connections.ended_handshake() {
                        // Its place is free once its task has run; a flood must not come first.
                        yield_now().await;
                    }
                }
                Err(error) if is_one_connections(&error) => {}
                Err(error) => {
                    let (wait, times) = refusals.refused(Instant::now());
                    if let Some(times) = times {
                        tracing::warn!(%error, times, "cannot accept connections");
                    }
                    pause.as_mut().reset(Instant::now() + wait);
                }
            },
        }
    }
    worker.draining.set(true);
    drop(evictions);
    // Connections that the system has accepted for us would be reset when the listener closes. The
    // socket is asked directly, since the runtime may not know of them yet. No more than the system
    // holds: if another process has the socket as well, there is no end of them.
    let listener = listener.into_std()?;
    for _ in 0..BACKLOG {
        let Ok((stream, peer)) = listener.accept() else { break };
        stream.set_nonblocking(true)?;
        open(&worker, next, TcpStream::from_std(stream)?, peer);
        next += 1;
    }
    drop(listener);
    worker.drain(clock).await;
    Ok(())
}

fn open(worker: &Rc<Worker>, id: u64, stream: TcpStream, peer: SocketAddr) {
    // Responses are written whole; waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    if worker.take_connection() {
        return admit(worker, id, stream, peer);
    }
    let worker = worker.clone();
    spawn_local(async move {
        match worker.take_idle_connection().await {
            true => admit(&worker, id, stream, peer),
            false => refuse(&worker, stream, Refusal::Full).await,
        }
    });
}

fn admit(worker: &Rc<Worker>, id: u64, stream: TcpStream, peer: SocketAddr) {
    let mut registration = worker.register(id, peer);
    if worker.terms.has_prelude() {
        prepare(worker, id, registration, stream);
    } else if registration.count_for(peer.ip()) {
        serve_http(registration, Stream::Plain(stream), Protocol::Http1);
    } else {
        let worker = worker.clone();
        spawn_local(async move { refuse(&worker, stream, Refusal::AddressFull).await });
    }
}

/// Handles what comes before HTTP, in a task of its own which ends with it: handshakes need much
/// more memory than the connection needs later.
fn prepare(worker: &Rc<Worker>, id: u64, registration: Registration, stream: TcpStream) {
    let handshake = Handshake::new(worker, id);
    let task = spawn_local(async move {
        let worker = &handshake.worker;
        let prelude = prelude(worker, registration, stream);
        match timeout(worker.limits.handshake_timeout, prelude).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((stream, why)))) => refuse(worker, stream, why).await,
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    });
    worker.connections.add_handshake(id, task.abort_handle(), worker.limits.max_handshakes);
}

/// Reads for whom a proxy connects, completes the TLS handshake, and has the connection served.
/// Returns a connection that is to be refused.
async fn prelude(
    worker: &Worker,
    mut registration: Registration,
    mut stream: TcpStream,
) -> io::Result<Option<(TcpStream, Refusal)>> {
    let link = registration.link().clone();
    match introduced(worker, link.peer().ip(), &mut stream).await? {
        Some(client) => link.set_client(client),
        None if worker.terms.proxy_protocol => link.set_unknown_client(),
        None => {}
    }
    if !registration.count_for(link.peer().ip()) {
        return Ok(Some((stream, Refusal::AddressFull)));
    }
    let Some(tls) = &worker.terms.tls else {
        serve_http(registration, Stream::Plain(stream), Protocol::Http1);
        return Ok(None);
    };
    match tls.accept(stream).await? {
        Accepted::Secured(stream, protocol) => {
            if let Some(session) = stream.session() {
                link.set_shown(tls.shown(session.server_name(), session.peer_certificates()));
            }
            serve_http(registration, stream, protocol);
            Ok(None)
        }
        Accepted::Plain(stream) => Ok(Some((stream, Refusal::Wrong(SPEAK_TLS)))),
    }
}

/// For whom a proxy connects, where every connection is a proxy's.
async fn introduced(
    worker: &Worker,
    peer: IpAddr,
    stream: &mut TcpStream,
) -> io::Result<Option<SocketAddr>> {
    if !worker.terms.proxy_protocol {
        return Ok(None);
    }
    if !worker.terms.trusted.contains(peer) {
        return Err(io::Error::other("the peer is no trusted proxy"));
    }
    introduction(stream).await
}

/// Serves the protocol that the two sides agreed on, in a task of its own.
fn serve_http(registration: Registration, stream: Stream, protocol: Protocol) {
    match protocol {
        Protocol::Http1 => {
            let connection = Connection::new(registration.link().clone(), stream);
            drop(spawn_local(serve_http1(registration, connection)));
        }
        Protocol::Challenge => {}
        Protocol::Http2 => drop(spawn_local(serve_http2(registration, stream, Bytes::new()))),
    }
}

async fn serve_http1(registration: Registration, connection: Connection) {
    // What follows is a task of its own, so that the memory for serving is given back.
    match connection.serve().await {
        Handover::Closed => {}
        Handover::TakenOver(run, raw) => run.start(raw, Box::new(registration)),
        Handover::Http2(stream, before) => {
            drop(spawn_local(serve_http2(registration, stream, before)));
        }
    }
}

async fn serve_http2(registration: Registration, stream: Stream, before: Bytes) {
    h2::serve(registration.link().clone(), stream, before).await;
}

/// Why a connection is not served.
enum Refusal {
    /// There is no place. Nothing of it was read.
    Full,
    /// Its address has as many connections as it may. What a proxy sends first was read.
    AddressFull,
    Wrong(Fault),
}

/// Sends a clear response instead of leaving the connection in the queue of the system.
async fn refuse(worker: &Worker, stream: TcpStream, why: Refusal) {
    let secured = worker.terms.tls.is_some() && !matches!(why, Refusal::Wrong(_));
    let most = if secured { MAX_SECURED_REFUSALS } else { MAX_REFUSALS };
    if worker.refusals.get() >= most {
        return;
    }
    worker.refusals.set(worker.refusals.get() + 1);
    // Counted down also if the task is ended early.
    let _counted = CountedRefusal(worker);
    // There are few places, so a refusal must not take long.
    let prepared = prepare_refusal(worker, stream, why);
    match timeout(worker.limits.linger_timeout, prepared).await {
        Ok(Ok((stream, Some(fault)))) => h1::refuse(worker, stream, fault).await,
        Ok(Ok((stream, None))) => h1::refuse_overloaded(worker, stream).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection without a place failed"),
        Err(_) => tracing::debug!("a connection without a place took too long"),
    }
}

/// Reads what comes before HTTP on a connection that is refused. Returns the stream, and the fault
/// to report if it is another than that there is no place.
async fn prepare_refusal(
    worker: &Worker,
    mut stream: TcpStream,
    why: Refusal,
) -> io::Result<(Stream, Option<Fault>)> {
    match why {
        Refusal::Full => {
            let peer = stream.peer_addr()?;
            introduced(worker, peer.ip(), &mut stream).await?;
        }
        Refusal::AddressFull => {}
        Refusal::Wrong(fault) => return Ok((Stream::Plain(stream), Some(fault))),
    }
    let Some(tls) = &worker.terms.tls else { return Ok((Stream::Plain(stream), None)) };
    match tls.accept_to_refuse(stream).await? {
        Accepted::Secured(stream, Protocol::Http1) => Ok((stream, None)),
        Accepted::Secured(..) => Err(io::ErrorKind::Unsupported.into()),
        Accepted::Plain(stream) => Ok((Stream::Plain(stream), Some(SPEAK_TLS))),
    }
}

/// Counts a refusal while it is sent.
struct CountedRefusal<'a>(&'a Worker);

impl Drop for CountedRefusal<'_> {
    fn drop(&mut self) {
        self.0.refusals.set(self.0.refusals.get() - 1);
    }
}

/// Errors that concern the connection being accepted, not the listener.
fn is_one_connections(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
