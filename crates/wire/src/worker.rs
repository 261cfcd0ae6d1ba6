//! One thread's share of the work: it accepts from its own listening socket, owns its connections
//! to their end, keeps one clock for all of them, and drains them on shutdown.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyper::server::conn::http1;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout_at};

use crate::Service;
use crate::call::Place;
use crate::connection::{self, Connection};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::shutdown::Shutdown;

/// The most connections over the limit that one worker answers with 503 at a time; a flood beyond
/// it is cut off without a word, which costs nothing.
const MAX_REFUSALS: usize = 64;
/// The parser holds so many headers on its stack; more cost an allocation for each request.
const STACK_HEADERS: usize = 100;
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
    pub(crate) shared: Arc<Shared>,
    pub(crate) http: http1::Builder,
    /// A clock that costs nothing to read: how often the worker looked for overdue connections.
    pub(crate) tick: Cell<u64>,
    pub(crate) draining: Cell<bool>,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    emptied: Notify,
    refusals: Cell<usize>,
}

impl Worker {
    pub(crate) fn new(service: Arc<dyn Service>, limits: Limits, shared: Arc<Shared>) -> Worker {
        let mut http = http1::Builder::new();
        // A client may close its sending side and still wait for the answer.
        http.half_close(true);
        // Our own clock watches heads: the library's would set a timer for every request.
        http.header_read_timeout(None);
        http.max_buf_size(limits.head_bytes.max(8192));
        if limits.max_headers > STACK_HEADERS {
            http.max_headers(limits.max_headers);
        }
        Worker {
            service,
            limits,
            shared,
            http,
            tick: Cell::new(0),
            draining: Cell::new(false),
            connections: RefCell::default(),
            emptied: Notify::new(),
            refusals: Cell::new(0),
        }
    }

    /// Serves until the signal, then drains.
    pub(crate) async fn run(
        self: Rc<Worker>,
        listener: std::net::TcpListener,
        mut shutdown: Shutdown,
    ) -> io::Result<()> {
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
        drop(listener);
        self.drain(clock).await;
        Ok(())
    }

    /// How long ago a tick was.
    pub(crate) fn elapsed(&self, since: u64) -> Duration {
        let ticks = u32::try_from(self.tick.get() - since).unwrap_or(u32::MAX);
        self.limits.tick().saturating_mul(ticks)
    }

    fn open(self: &Rc<Worker>, id: u64, stream: TcpStream, peer: SocketAddr) {
        // Answers are written whole; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let worker = self.clone();
        let connection = Rc::new(Connection::new(worker.clone(), peer));
        spawn_local(async move {
            let shared = worker.shared.clone();
            let Some(_place) = Place::take(&shared.connections, worker.limits.max_connections)
            else {
                return worker.turn_away(stream).await;
            };
            worker.connections.borrow_mut().insert(id, connection.clone());
            let _listed = Listed { worker: &worker, id };
            connection.serve(stream).await;
        });
    }

    /// A clear answer instead of a connection that hangs in the queue of the system.
    async fn turn_away(&self, stream: TcpStream) {
        if self.refusals.get() < MAX_REFUSALS {
            self.refusals.set(self.refusals.get() + 1);
            connection::refuse(self, stream, Fault::Overloaded).await;
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
        self.draining.set(true);
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

/// Keeps a connection in its worker's list; also when its task panics.
struct Listed<'a> {
    worker: &'a Worker,
    id: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
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
