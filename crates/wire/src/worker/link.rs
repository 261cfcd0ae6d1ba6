//! What the clock of a thread knows of a connection: what it waits for, since when, and how to wake
//! it. One small allocation per connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::HeaderMap;
use http::header::HOST;

use crate::fault::Fault;
use crate::peer;
use crate::tls::{ClientCertificate, Shown};

use super::Worker;

pub(crate) struct Link {
    pub(crate) worker: Rc<Worker>,
    peer: Cell<SocketAddr>,
    phase: Cell<Phase>,
    /// The worker's tick at the last progress.
    since: Cell<u64>,
    overdue: Cell<bool>,
    /// It ends so that another connection can be served.
    evicted: Cell<bool>,
    /// A proxy has connected without naming its client: its headers are ignored.
    client_unknown: Cell<bool>,
    /// HTTP/2 and HTTP/3: streams being answered. No connection has 65,536 of them.
    streams: Cell<u16>,
    /// HTTP/3: the connection ends with the last of them.
    leaving: Cell<bool>,
    /// HTTP/1.1: it has brought a request.
    used: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// What the handshake of TLS has shown; seldom anything.
    shown: OnceCell<Box<Shown>>,
}

/// What the connection is waiting for, which decides how long it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of a head.
    Head,
    /// The service, which bounds its own work; reading a body has its own clock.
    Answering,
    /// The client, to take what we send.
    Writing,
    /// Any sign of life from the client of an HTTP/2 connection that is in use; a ping follows.
    Quiet,
    /// The answer to that ping.
    Pong,
    /// Nothing of ours: the service has the connection, or it is closing under its own clock.
    Left,
}

/// What [`Link::poll_event`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Answered,
    Overdue,
}

/// Counts a stream of HTTP/2 or HTTP/3 while it is answered.
pub(crate) struct InFlight(Rc<Link>);

impl InFlight {
    pub(crate) fn new(link: &Rc<Link>) -> InFlight {
        link.streams.set(link.streams.get() + 1);
        InFlight(link.clone())
    }

    /// Streams of the connection that are being answered.
    pub(crate) fn streams(&self) -> usize {
        usize::from(self.0.streams.get())
    }

    /// Whether the connection ends with the last stream that is being answered.
    pub(crate) fn is_leaving(&self) -> bool {
        self.0.leaving.get()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let InFlight(link) = self;
        link.streams.set(link.streams.get() - 1);
        if link.streams.get() == 0 {
            // The connection's clock runs differently now.
            link.wake();
        }
    }
}

impl Link {
    pub(crate) fn new(worker: Rc<Worker>, peer: SocketAddr) -> Link {
        Link {
            since: Cell::new(worker.tick.get()),
            worker,
            peer: Cell::new(peer),
            phase: Cell::new(Phase::Idle),
            overdue: Cell::new(false),
            evicted: Cell::new(false),
            client_unknown: Cell::new(false),
            streams: Cell::new(0),
            leaving: Cell::new(false),
            waker: RefCell::new(None),
            used: Cell::new(false),
            shown: OnceCell::new(),
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer.get()
    }

    /// A proxy has named its client.
    pub(crate) fn set_client(&self, client: SocketAddr) {
        self.peer.set(client);
    }

    /// A proxy has connected without naming its client.
    pub(crate) fn set_unknown_client(&self) {
        self.client_unknown.set(true);
    }

    pub(crate) fn is_unused(&self) -> bool {
        !self.used.get()
    }

    pub(crate) fn set_used(&self) {
        self.used.set(true);
    }

    /// The handshake of TLS is over.
    pub(crate) fn set_shown(&self, shown: Option<Shown>) {
        if let Some(shown) = shown {
            // There is one handshake.
            let _ = self.shown.set(Box::new(shown));
        }
    }

    /// The certificate of the client.
    pub(crate) fn client_certificate(&self) -> Option<Arc<ClientCertificate>> {
        self.shown.get()?.certificate.clone()
    }

    /// Whether the host of a request has another certificate than the one that the client has seen
    /// (RFC 9110 15.5.20).
    pub(crate) fn is_misdirected(&self, headers: &HeaderMap) -> bool {
        let name = self.shown.get().and_then(|shown| shown.server_name.as_deref());
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let (Some(name), Some(host), Some(tls)) = (name, host, &self.worker.terms.tls) else {
            return false;
        };
        let host = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => host,
        };
        tls.differ(name, host)
    }

    /// The client of a request with these headers, or why it cannot be known.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Result<IpAddr, Fault> {
        if self.client_unknown.get() {
            return Ok(self.peer().ip().to_canonical());
        }
        peer::client(self.peer().ip(), headers, &self.worker.terms.trusted)
    }

    /// Whether `client` names the client of a request with these headers, and not a proxy that
    /// named nobody.
    pub(crate) fn is_client_known(&self, headers: &HeaderMap) -> bool {
        !self.client_unknown.get() && (!self.is_proxied() || peer::names_client(headers))
    }

    /// Whether the peer is a trusted proxy that forwards what its client sent. One that named no
    /// client speaks for itself.
    pub(crate) fn is_proxied(&self) -> bool {
        let trusted = &self.worker.terms.trusted;
        !self.client_unknown.get()
            && !trusted.is_empty()
            && trusted.contains(self.peer().ip().to_canonical())
    }

    /// The connection's task, which keeps the same waker for its whole life.
    pub(crate) fn remember(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    /// Waits for something else, or for the same after some progress.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        // The connection is in use again.
        self.evicted.set(false);
        self.since.set(self.worker.tick.get());
    }

    /// Enters a phase whose time runs from its beginning, whatever progress is made.
    pub(crate) fn enter_once(&self, phase: Phase) {
        if self.phase.get() != phase {
            self.enter(phase);
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// The tick since which no request is in progress, where none is.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        // Without a waker it is not served yet.
        let is_served = self.waker.borrow().is_some();
        let is_idle = self.phase.get() == Phase::Idle && !self.evicted.get() && is_served;
        is_idle.then(|| self.since.get())
    }

    /// Ends the idle connection, as if its time were over.
    pub(crate) fn evict(&self) {
        self.evicted.set(true);
        self.overdue.set(true);
        self.wake();
    }

    pub(crate) fn streams(&self) -> u16 {
        self.streams.get()
    }

    /// The connection ends with the last stream that is being answered.
    pub(crate) fn end_after_streams(&self) {
        self.leaving.set(true);
    }

    /// The clock ignores the connection from now on. A waker would keep the memory of its task.
    pub(crate) fn leave(&self) {
        self.phase.set(Phase::Left);
        self.waker.take();
    }

    /// Called by the clock: wakes the connection if it has waited too long.
    pub(crate) fn check(&self) {
        let limits = &self.worker.limits;
        let allowed = match self.phase.get() {
            Phase::Idle => limits.idle_timeout,
            Phase::Head => limits.head_timeout,
            Phase::Quiet => limits.ping_after,
            Phase::Writing | Phase::Pong => limits.write_stall,
            Phase::Answering | Phase::Left => return,
        };
        if self.worker.elapsed(self.since.get()) > allowed {
            self.overdue.set(true);
            self.wake();
        }
    }

    /// Whether the clock has given up on what the connection waits for now.
    pub(crate) fn overdue(&self) -> bool {
        // It may have moved on between the clock's look and this.
        self.overdue.take() && self.since.get() != self.worker.tick.get()
    }

    /// For a task that does other things at the same time: ready when the last stream has been
    /// answered, or when the connection has waited too long or its place is needed.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event> {
        self.remember(cx.waker());
        if self.phase.get() == Phase::Answering && self.streams.get() == 0 {
            return Poll::Ready(Event::Answered);
        }
        if self.overdue() { Poll::Ready(Event::Overdue) } else { Poll::Pending }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}
