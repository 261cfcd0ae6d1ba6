//! One thread's share of the work: it accepts from its own listening socket, owns its connections
//! to their end, keeps one clock for all of them, and drains them on shutdown.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout_at};

use crate::Service;
use crate::call::take_place;
use crate::fault::Fault;
use crate::h1::{self, Buffers, Connection, Date, Link};
use crate::hints::EarlyHints;
use crate::limits::Limits;
use crate::shutdown::Shutdown;

/// The most connections over the limit that one worker answers with 503 at a time; a flood beyond
/// it is cut off without a word, which costs nothing.
const MAX_REFUSALS: usize = 64;
/// A header map with more room than this is not kept for the next request.
const SPARE_HEADERS: usize = 128;
/// Pause after the system refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What the workers count together.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) connections: AtomicUsize,
    pub(crate) exchanges: AtomicUsize,
}

pub(crate) struct Worker {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) limits: Limits,
    pub(crate) early_hints: EarlyHints,
    pub(crate) shared: Arc<Shared>,
    pub(crate) shutdown: Shutdown,
    pub(crate) buffers: Buffers,
    /// Where answers are put together; taken, never held over a wait.
    pub(crate) scratch: Cell<Vec<u8>>,
    pub(crate) date: RefCell<Date>,
    /// The map of the last answer, emptied, for the next request.
    spare_headers: Cell<Option<HeaderMap>>,
    /// A clock that costs nothing to read: how often the worker looked for overdue connections.
    pub(crate) tick: Cell<u64>,
    pub(crate) draining: Cell<bool>,
    connections: RefCell<HashMap<u64, Rc<Link>>>,
    emptied: Notify,
    refusals: Cell<usize>,
}

impl Worker {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        limits: Limits,
        early_hints: EarlyHints,
        shared: Arc<Shared>,
        shutdown: Shutdown,
    ) -> Worker {
        Worker {
            service,
            limits,
            early_hints,
            shared,
            shutdown,
            buffers: Buffers::default(),
            scratch: Cell::default(),
            date: RefCell::new(Date::new()),
            spare_headers: Cell::default(),
            tick: Cell::new(0),
            draining: Cell::new(false),
            connections: RefCell::default(),
            emptied: Notify::new(),
            refusals: Cell::new(0),
        }
    }

    /// Serves until the signal, then drains.
    pub(crate) async fn run(self: Rc<Worker>, listener: std::net::TcpListener) -> io::Result<()> {
        let mut shutdown = self.shutdown.clone();
        let listener = TcpListener::from_std(listener)?;
        let mut clock = interval(self.limits.tick());
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let fired = shutdown.fired();
        tokio::pin!(fired);
        let mut next = 0;
        loop {
            tokio::select! {
                biased;
                () = &mut fired => break,
                _ = clock.tick() => self.check_all(),
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        self.open(next, stream, peer);
                        next += 1;
                    }
                    Err(error) if is_one_connections(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        self.draining.set(true);
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

    /// How long ago a tick was.
    pub(crate) fn elapsed(&self, since: u64) -> Duration {
        let ticks = u32::try_from(self.tick.get() - since).unwrap_or(u32::MAX);
        self.limits.tick().saturating_mul(ticks)
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
        let worker = self.clone();
        if !take_place(&worker.shared.connections, worker.limits.max_connections) {
            spawn_local(async move { worker.turn_away(stream).await });
            return;
        }
        let link = Rc::new(Link::new(worker.clone(), peer));
        worker.connections.borrow_mut().insert(id, link.clone());
        let listed = Listed { worker, id };
        let connection = Connection::new(link, stream);
        spawn_local(async move {
            let taken_over = connection.serve().await;
            if let Some(run) = taken_over {
                // A task of its own, so that what serving needed is given back.
                spawn_local(async move {
                    let _listed = listed;
                    run.await;
                });
            }
        });
    }

    /// A clear answer instead of a connection that hangs in the queue of the system.
    async fn turn_away(&self, stream: TcpStream) {
        if self.refusals.get() < MAX_REFUSALS {
            self.refusals.set(self.refusals.get() + 1);
            h1::refuse(self, stream, Fault::Overloaded).await;
            self.refusals.set(self.refusals.get() - 1);
        }
    }

    fn check_all(&self) {
        self.tick.set(self.tick.get() + 1);
        for connection in self.connections.borrow().values() {
            connection.check();
        }
    }

    async fn drain(&self, mut clock: Interval) {
        for connection in self.connections.borrow().values() {
            connection.wake();
        }
        let deadline = Instant::now() + self.limits.drain_timeout;
        let emptied = async {
            while !self.connections.borrow().is_empty() {
                tokio::select! {
                    () = self.emptied.notified() => {}
                    _ = clock.tick() => self.check_all(),
                }
            }
        };
        if timeout_at(deadline, emptied).await.is_err() {
            let left = self.connections.borrow().len();
            tracing::warn!(left, "connections cut off at the end of the drain time");
        }
    }
}

/// Keeps a connection in its worker's list and in the common count; given up however it ends.
struct Listed {
    worker: Rc<Worker>,
    id: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        let mut connections = self.worker.connections.borrow_mut();
        connections.remove(&self.id);
        if connections.is_empty() {
            self.worker.emptied.notify_one();
        }
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
