//! The door of HTTP/3: one UDP socket with the number of the TCP port, and one thread that serves
//! all of its connections. One, because packets find their connection by an id inside of them: with
//! a socket for each thread the kernel would spread them by address, and a client that changes its
//! address would be lost. A thread of its own, because the workers of TCP sleep while nothing comes
//! for them, and QUIC has timers and acknowledgements to keep at any time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quinn::{Endpoint, EndpointConfig, Incoming, TokioRuntime};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connection;
use super::frames::Code;
use super::settings;
use crate::call::take_place;
use crate::peer::Place;
use crate::tls::Tls;
use crate::worker::Worker;

/// What the system holds of packets that we have not read, or it has not sent. 4 MiB: some 30 ms at
/// 1 Gbit/s; the system gives less where its own limit is lower.
const SOCKET_BYTES: usize = 4 * 1024 * 1024;

/// Not shared with anybody, so that a second server on the same address does not start in silence.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // It works with less, too.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Serves until the signal, then drains.
pub(crate) async fn serve(worker: Rc<Worker>, socket: UdpSocket, tls: Tls) -> io::Result<()> {
    let server = settings::server(&tls, &worker.limits)?;
    let config = EndpointConfig::default();
    let endpoint = Endpoint::new(config, Some(server), socket, Arc::new(TokioRuntime))?;
    let mut shutdown = worker.shutdown.clone();
    let door = Rc::new(Door {
        worker,
        next: Cell::new(0),
        open: Cell::new(0),
        handshakes: RefCell::default(),
        emptied: Notify::new(),
    });
    let fired = shutdown.fired();
    tokio::pin!(fired);
    loop {
        tokio::select! {
            () = &mut fired => break,
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => door.open(incoming),
                None => break,
            },
        }
    }
    door.worker.draining.set(true);
    // Whoever comes now is better off with another server.
    endpoint.set_server_config(None);
    door.drain().await;
    endpoint.close(Code::NO_ERROR, b"");
    // So that the last packets leave.
    let _ = timeout(door.worker.limits.linger_timeout, endpoint.wait_idle()).await;
    Ok(())
}

struct Door {
    worker: Rc<Worker>,
    next: Cell<u64>,
    /// Connections, those whose handshake is under way among them.
    open: Cell<usize>,
    /// Those under way, the oldest first.
    handshakes: RefCell<BTreeMap<u64, AbortHandle>>,
    emptied: Notify,
}

impl Door {
    fn open(self: &Rc<Door>, incoming: Incoming) {
        let limits = &self.worker.limits;
        let half_open = self.handshakes.borrow().len();
        if half_open >= limits.retry_handshakes && !incoming.remote_address_validated() {
            // Costs us a packet and no memory, and whoever lies about its address never answers.
            if let Err(error) = incoming.retry() {
                error.into_incoming().refuse();
            }
            return;
        }
        if !take_place(&self.worker.shared.connections, limits.max_connections) {
            return incoming.refuse();
        }
        self.open.set(self.open.get() + 1);
        let id = self.next.replace(self.next.get() + 1);
        let mut listed = Listed { door: self.clone(), place: None };
        let under_way = UnderWay::new(self, id);
        let task = spawn_local(async move {
            let worker = under_way.door.worker.clone();
            let Ok(connecting) = incoming.accept() else { return };
            let connected = timeout(worker.limits.handshake_timeout, connecting).await;
            // What follows is a task of its own: what a handshake needs is given back, and it is
            // no longer among those that end to make room.
            match connected {
                // Counted when the address is proved: anybody can write another's.
                Ok(Ok(connection)) => match worker.place_of(connection.remote_address().ip()) {
                    Err(_) => connection.close(Code::EXCESSIVE_LOAD, b""),
                    Ok(place) => drop(spawn_local(async move {
                        listed.place = place;
                        connection::serve(worker, connection).await;
                        drop(listed);
                    })),
                },
                Ok(Err(error)) => tracing::debug!(%error, "a QUIC handshake failed"),
                Err(_) => tracing::debug!("a QUIC handshake took too long"),
            }
            drop(under_way);
        });
        let mut handshakes = self.handshakes.borrow_mut();
        handshakes.insert(id, task.abort_handle());
        if handshakes.len() > limits.max_handshakes
            && let Some((_, oldest)) = handshakes.pop_first()
        {
            oldest.abort();
        }
    }

    /// The connections know by themselves; here it is only waited for them.
    async fn drain(&self) {
        let limits = &self.worker.limits;
        let deadline = Instant::now() + limits.drain_timeout;
        let handshakes_end = sleep(limits.linger_timeout);
        tokio::pin!(handshakes_end);
        let emptied = async {
            while self.open.get() > 0 {
                tokio::select! {
                    () = self.emptied.notified() => {}
                    () = &mut handshakes_end, if !handshakes_end.is_elapsed() => {
                        self.handshakes.borrow().values().for_each(AbortHandle::abort);
                    }
                }
            }
        };
        if timeout_at(deadline, emptied).await.is_err() {
            let left = self.open.get();
            tracing::warn!(left, "HTTP/3 connections cut off at the end of the drain time");
        }
    }
}

/// Keeps a connection in the counts; given up however it ends.
struct Listed {
    door: Rc<Door>,
    /// One of those its address may have.
    place: Option<Box<Place>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let door = &self.door;
        door.worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        door.open.set(door.open.get() - 1);
        if door.open.get() == 0 {
            door.emptied.notify_one();
        }
    }
}

/// Keeps a handshake in the list.
struct UnderWay {
    door: Rc<Door>,
    id: u64,
}

impl UnderWay {
    fn new(door: &Rc<Door>, id: u64) -> UnderWay {
        door.worker.shared.handshakes.fetch_add(1, Ordering::Relaxed);
        UnderWay { door: door.clone(), id }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.door.worker.shared.handshakes.fetch_sub(1, Ordering::Relaxed);
        self.door.handshakes.borrow_mut().remove(&self.id);
    }
}
