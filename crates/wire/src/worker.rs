//! One thread's share of the work: it accepts from its own listening socket, owns its connections
//! to their end, keeps one clock for all of them, and drains them on shutdown.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local, yield_now};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use crate::Service;
use crate::accept::Refusals;
use crate::budget::Budget;
use crate::call::take_place;
use crate::eviction::{Idle, Room};
use crate::fault::Fault;
use crate::h1::{self, Buffers, Connection, Date, Heads, Leaving, Link};
use crate::h2;
use crate::limits::Limits;
use crate::memory;
use crate::payload::Holding;
use crate::peer::{Crowd, Crowded, Place, introduction};
use crate::shutdown::Shutdown;
use crate::stream::Stream;
use crate::terms::Terms;
use crate::tls::{Accepted, Protocol};

/// The most connections over the limit that one worker answers at a time, by 503 or as a client of
/// event streams needs it; a flood beyond it is cut off without a word, which costs nothing, and
/// after which those clients come back, too.
const MAX_REFUSALS: usize = 64;
/// The same under TLS, where a word costs a handshake: a millisecond of work and some 20 KiB that
/// those who have a place pay for.
const MAX_SECURED_REFUSALS: usize = 16;
/// A header map with more room than this is not kept for the next request.
const SPARE_HEADERS: usize = 128;
/// For whoever speaks plain HTTP to a port of TLS.
const SPEAK_TLS: Fault =
    Fault::Malformed("This port speaks HTTPS only; use https:// instead of http:// in the URL.");

/// What the workers count together.
pub(crate) struct Shared {
    pub(crate) connections: AtomicUsize,
    pub(crate) exchanges: AtomicUsize,
    /// Handshakes under way.
    pub(crate) handshakes: AtomicUsize,
    /// What clients make the server hold.
    pub(crate) memory: Arc<Budget<memory::Key>>,
    crowd: Arc<Crowd>,
    pub(crate) room: Room,
}

impl Shared {
    pub(crate) fn new(limits: &Limits) -> Shared {
        Shared {
            connections: AtomicUsize::new(0),
            exchanges: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            memory: Budget::new(limits.held_bytes),
            crowd: Arc::default(),
            room: Room::default(),
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
    /// Where answers are put together; taken, never held over a wait.
    pub(crate) scratch: Cell<Vec<u8>>,
    pub(crate) date: RefCell<Date>,
    /// The map of the last answer, emptied, for the next request.
    spare_headers: Cell<Option<HeaderMap>>,
    /// A clock that costs nothing to read: how often the worker looked for overdue connections.
    pub(crate) tick: Cell<u64>,
    pub(crate) draining: Cell<bool>,
    connections: RefCell<HashMap<u64, Rc<Link>>>,
    /// Those under way, the oldest first.
    handshakes: RefCell<BTreeMap<u64, AbortHandle>>,
    /// A handshake was ended to make room.
    ended_one: Cell<bool>,
    emptied: Notify,
    refusals: Cell<usize>,
    pub(crate) idle: Idle,
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
            idle: Idle::new(&shared.room),
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
            connections: RefCell::default(),
            handshakes: RefCell::default(),
            ended_one: Cell::new(false),
            emptied: Notify::new(),
            refusals: Cell::new(0),
        }
    }

    /// Serves until the signal, then drains.
    pub(crate) async fn run(self: Rc<Worker>, listener: std::net::TcpListener) -> io::Result<()> {
        let mut shutdown = self.shutdown.clone();
        let listener = TcpListener::from_std(listener)?;
        let mut clock = self.clock();
        let fired = shutdown.fired();
        tokio::pin!(fired);
        let mut next = 0;
        let mut refusals = Refusals::default();
        let pause = sleep(Duration::ZERO);
        tokio::pin!(pause);
        let Some(mut pleas) = self.idle.pleas() else { return Ok(()) };
        loop {
            tokio::select! {
                biased;
                () = &mut fired => break,
                _ = clock.tick() => self.check_all(),
                Some(plea) = pleas.recv() => drop(plea.send(self.end_idle())),
                () = &mut pause, if !pause.is_elapsed() => {}
                accepted = listener.accept(), if pause.is_elapsed() => match accepted {
                    Ok((stream, peer)) => {
                        refusals.accepted();
                        self.open(next, stream, peer);
                        next += 1;
                        if self.ended_one.take() {
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
        self.draining.set(true);
        drop(pleas);
        // Those the system has accepted for us would be reset when the listener closes. Asked
        // directly: the runtime may not have heard of them yet.
        let listener = listener.into_std()?;
        while let Ok((stream, peer)) = listener.accept() {
            stream.set_nonblocking(true)?;
            self.open(next, TcpStream::from_std(stream)?, peer);
            next += 1;
        }
        drop(listener);
        self.drain(clock).await;
        Ok(())
    }

    /// Ticks when it is time for `check_all`.
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

    /// One of the places of an address, where they are counted.
    fn place_of(&self, address: IpAddr) -> Result<Option<Box<Place>>, Crowded> {
        let most = self.limits.max_connections_per_address;
        if most == usize::MAX || self.terms.trusted.contains(address) {
            return Ok(None);
        }
        let place = self.shared.crowd.enter(address, most).ok_or(Crowded)?;
        Ok(Some(Box::new(place)))
    }

    /// An empty map, with the memory of one that is done with.
    pub(crate) fn spare_headers(&self) -> HeaderMap {
        self.spare_headers.take().unwrap_or_default()
    }

    pub(crate) fn spare(&self, mut headers: HeaderMap) {
        if headers.capacity() <= SPARE_HEADERS {
            headers.clear();
            self.spare_headers.set(Some(headers));
        }
    }

    fn open(self: &Rc<Worker>, id: u64, stream: TcpStream, peer: SocketAddr) {
        // Answers are written whole; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        if take_place(&self.shared.connections, self.limits.max_connections) {
            return self.admit(id, stream, peer);
        }
        let worker = self.clone();
        spawn_local(async move {
            match worker.take_idle_place().await {
                true => worker.admit(id, stream, peer),
                false => worker.turn_away(stream, Away::Full).await,
            }
        });
    }

    /// Ends an idle connection of this thread, if there is one.
    pub(crate) fn end_idle(&self) -> bool {
        self.idle.end_one(&self.connections.borrow(), self.tick.get())
    }

    /// A place at the full listener, from a connection that is idle.
    pub(crate) async fn take_idle_place(&self) -> bool {
        let places = (&self.shared.connections, self.limits.max_connections);
        // An idle connection ends at once, or after its last words.
        let patience = self.limits.linger_timeout;
        let end_idle = || self.end_idle();
        self.idle.take_place(&self.shared.room, end_idle, places, patience).await
    }

    /// Keeps a connection that has a place in the list of this thread.
    pub(crate) fn list(self: &Rc<Worker>, id: u64, peer: SocketAddr) -> (Listed, Rc<Link>) {
        let link = Rc::new(Link::new(self.clone(), peer));
        self.connections.borrow_mut().insert(id, link.clone());
        (Listed { worker: self.clone(), id, place: None }, link)
    }

    fn admit(self: &Rc<Worker>, id: u64, stream: TcpStream, peer: SocketAddr) {
        let (mut listed, link) = self.list(id, peer);
        if self.terms.has_prelude() {
            self.prepare(listed, link, stream);
        } else if listed.settle(link.peer().ip()) {
            listed.serve(link, Stream::Plain(stream), Protocol::Http1);
        } else {
            let worker = self.clone();
            spawn_local(async move { worker.turn_away(stream, Away::Crowded).await });
        }
    }

    /// What comes before HTTP, in a task of its own which ends with it: handshakes need much more
    /// than the connection needs later.
    fn prepare(self: &Rc<Worker>, listed: Listed, link: Rc<Link>, stream: TcpStream) {
        let id = listed.id;
        let under_way = UnderWay::new(self, id);
        let task = spawn_local(async move {
            let worker = &under_way.worker;
            let prelude = worker.prelude(listed, link, stream);
            match timeout(worker.limits.handshake_timeout, prelude).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some((stream, why)))) => worker.turn_away(stream, why).await,
                Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
        });
        self.keep_handshake(id, task.abort_handle());
    }

    /// Handshakes that have begun and not ended.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.borrow().len()
    }

    /// Keeps a handshake in the list. One more than there may be ends the oldest.
    pub(crate) fn keep_handshake(&self, id: u64, task: AbortHandle) {
        let mut handshakes = self.handshakes.borrow_mut();
        handshakes.insert(id, task);
        if handshakes.len() > self.limits.max_handshakes
            && let Some((_, oldest)) = handshakes.pop_first()
        {
            oldest.abort();
            self.ended_one.set(true);
        }
    }

    /// Hears for whom a proxy connects, shakes hands, and has the connection served. Gives back who
    /// is to be told why not.
    async fn prelude(
        &self,
        mut listed: Listed,
        link: Rc<Link>,
        mut stream: TcpStream,
    ) -> io::Result<Option<(TcpStream, Away)>> {
        match self.introduced(link.peer().ip(), &mut stream).await? {
            Some(client) => link.speaks_for(client),
            None if self.terms.proxy_protocol => link.speaks_for_nobody(),
            None => {}
        }
        let settled = listed.settle(link.peer().ip());
        match &self.terms.tls {
            _ if !settled => Ok(Some((stream, Away::Crowded))),
            None => {
                listed.serve(link, Stream::Plain(stream), Protocol::Http1);
                Ok(None)
            }
            Some(tls) => match tls.accept(stream).await? {
                Accepted::Secured(stream, protocol) => {
                    listed.serve(link, stream, protocol);
                    Ok(None)
                }
                Accepted::Plain(stream) => Ok(Some((stream, Away::Wrong(SPEAK_TLS)))),
            },
        }
    }

    /// For whom a proxy connects, where every connection is a proxy's.
    async fn introduced(
        &self,
        peer: IpAddr,
        stream: &mut TcpStream,
    ) -> io::Result<Option<SocketAddr>> {
        if !self.terms.proxy_protocol {
            return Ok(None);
        }
        if !self.terms.trusted.contains(peer) {
            return Err(io::Error::other("the peer is no trusted proxy"));
        }
        introduction(stream).await
    }

    /// A clear answer instead of a connection that hangs in the queue of the system.
    async fn turn_away(&self, stream: TcpStream, why: Away) {
        let secured = self.terms.tls.is_some() && !matches!(why, Away::Wrong(_));
        let most = if secured { MAX_SECURED_REFUSALS } else { MAX_REFUSALS };
        if self.refusals.get() >= most {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        // Counted down also if the task is ended before its time.
        let _refusal = Refusal(self);
        // There are few places: whoever is told must not take long.
        let heard = timeout(self.limits.linger_timeout, self.hear_out(stream, why)).await;
        match heard {
            Ok(Ok((stream, Some(fault)))) => h1::refuse(self, stream, fault).await,
            Ok(Ok((stream, None))) => h1::turn_away(self, stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a connection without a place failed"),
            Err(_) => tracing::debug!("a connection without a place took too long"),
        }
    }

    /// What comes before HTTP, from one who is turned away; and what is wrong with it, if more is
    /// than that there is no place.
    async fn hear_out(
        &self,
        mut stream: TcpStream,
        why: Away,
    ) -> io::Result<(Stream, Option<Fault>)> {
        match why {
            Away::Full => {
                let peer = stream.peer_addr()?;
                self.introduced(peer.ip(), &mut stream).await?;
            }
            Away::Crowded => {}
            Away::Wrong(fault) => return Ok((Stream::Plain(stream), Some(fault))),
        }
        let Some(tls) = &self.terms.tls else { return Ok((Stream::Plain(stream), None)) };
        match tls.accept_to_refuse(stream).await? {
            Accepted::Secured(stream, Protocol::Http1) => Ok((stream, None)),
            Accepted::Secured(..) => Err(io::ErrorKind::Unsupported.into()),
            Accepted::Plain(stream) => Ok((Stream::Plain(stream), Some(SPEAK_TLS))),
        }
    }

    pub(crate) fn check_all(&self) {
        self.tick.set(self.tick.get() + 1);
        for connection in self.connections.borrow().values() {
            connection.check();
        }
    }

    /// Waits until the connections have ended, each by itself, or their time is over.
    pub(crate) async fn drain(&self, mut clock: Interval) {
        for connection in self.connections.borrow().values() {
            connection.wake();
        }
        let deadline = Instant::now() + self.limits.drain_timeout;
        let handshakes_end = sleep(self.limits.linger_timeout);
        tokio::pin!(handshakes_end);
        let emptied = async {
            while !self.connections.borrow().is_empty() {
                tokio::select! {
                    () = self.emptied.notified() => {}
                    _ = clock.tick() => self.check_all(),
                    () = &mut handshakes_end, if !handshakes_end.is_elapsed() => {
                        // Whoever has not finished by now would not bring a request in time.
                        self.handshakes.borrow().values().for_each(AbortHandle::abort);
                    }
                }
            }
        };
        if timeout_at(deadline, emptied).await.is_err() {
            let left = self.connections.borrow().len();
            tracing::warn!(left, "connections cut off at the end of the drain time");
        }
    }
}

/// Why a connection is not served.
enum Away {
    /// There is no place. Nothing of it was read.
    Full,
    /// Its address has none left; what a proxy says first was heard.
    Crowded,
    Wrong(Fault),
}

/// Keeps a connection in its worker's list and in the common count; given up however it ends.
pub(crate) struct Listed {
    worker: Rc<Worker>,
    id: u64,
    /// One of those its address may have, where that is limited.
    place: Option<Box<Place>>,
}

impl Listed {
    /// Takes one of the address's places; false if there is none left.
    pub(crate) fn settle(&mut self, address: IpAddr) -> bool {
        let place = self.worker.place_of(address);
        let settled = place.is_ok();
        self.place = place.unwrap_or_default();
        settled
    }

    /// Serves what the two sides agreed on, in a task of its own.
    fn serve(self, link: Rc<Link>, stream: Stream, protocol: Protocol) {
        match protocol {
            Protocol::Http1 => {
                let connection = Connection::new(link.clone(), stream);
                drop(spawn_local(self.serve_http1(link, connection)));
            }
            Protocol::Challenge => {}
            Protocol::Http2 => drop(spawn_local(self.serve_http2(link, stream, Bytes::new()))),
        }
    }

    async fn serve_http1(self, link: Rc<Link>, connection: Connection) {
        // A task of its own for what follows, so that what serving needed is given back.
        match connection.serve().await {
            Leaving::Closed => {}
            Leaving::TakenOver(run, raw) => {
                run.start(raw, Holding::Connection { _listed: Box::new(self) });
            }
            Leaving::Http2(stream, before) => {
                drop(spawn_local(self.serve_http2(link, stream, before)));
            }
        }
    }

    async fn serve_http2(self, link: Rc<Link>, stream: Stream, before: Bytes) {
        h2::serve(link, stream, before).await;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.worker.shared.room.free();
        let mut connections = self.worker.connections.borrow_mut();
        connections.remove(&self.id);
        if connections.is_empty() {
            self.worker.emptied.notify_one();
        }
    }
}

/// Keeps a handshake in its worker's list.
pub(crate) struct UnderWay {
    worker: Rc<Worker>,
    id: u64,
}

impl UnderWay {
    pub(crate) fn new(worker: &Rc<Worker>, id: u64) -> UnderWay {
        worker.shared.handshakes.fetch_add(1, Ordering::Relaxed);
        UnderWay { worker: worker.clone(), id }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.worker.shared.handshakes.fetch_sub(1, Ordering::Relaxed);
        self.worker.handshakes.borrow_mut().remove(&self.id);
    }
}

/// The place of one who is turned away with a word.
struct Refusal<'a>(&'a Worker);

impl Drop for Refusal<'_> {
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
