//! The door of HTTP/3: one UDP socket with the number of the TCP port, and one thread that serves
//! all of its connections. One, because packets find their connection by an id inside of them: with
//! a socket for each thread the kernel would spread them by address, and a client that changes its
//! address would be lost. A thread of its own, because the workers of TCP sleep while nothing comes
//! for them, and QUIC has timers and acknowledgements to keep at any time.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use quinn::{Endpoint, EndpointConfig, Incoming, TokioRuntime};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::connection;
use super::frames::Code;
use super::settings;
use crate::shutdown::Shutdown;
use crate::tls::Tls;
use crate::worker::{Handshake, Worker};

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

/// Serves until the signal, then drains. `free`: another process reads from the socket before.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    socket: UdpSocket,
    tls: Tls,
    free: Option<Shutdown>,
) -> io::Result<()> {
    let server = settings::server(&tls, &worker.limits)?;
    let config = EndpointConfig::default();
    let mut shutdown = worker.shutdown.clone();
    let mut clock = worker.clock();
    let Some(mut evictions) = worker.connections.eviction_requests() else { return Ok(()) };
    let fired = shutdown.fired();
    tokio::pin!(fired);
    if let Some(mut free) = free {
        let freed = free.fired();
        tokio::pin!(freed);
        loop {
            tokio::select! {
                () = &mut fired => return Ok(()),
                () = &mut freed => break,
                Some(request) = evictions.recv() => {
                    let _ = request.send(false);
                }
            }
        }
    }
    let endpoint = Endpoint::new(config, Some(server), socket, Arc::new(TokioRuntime))?;
    let mut next = 0;
    loop {
        tokio::select! {
            () = &mut fired => break,
            _ = clock.tick() => worker.check_connections(),
            Some(request) = evictions.recv() => {
                let _ = request.send(worker.end_idle_connection());
            }
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => open(&worker, next, incoming),
                None => break,
            },
        }
        next += 1;
    }
    worker.draining.set(true);
    drop(evictions);
    // New clients are better off with another server.
    endpoint.set_server_config(None);
    worker.drain(clock).await;
    endpoint.close(Code::NO_ERROR, b"");
    // So that the last packets leave.
    let _ = timeout(worker.limits.linger_timeout, endpoint.wait_idle()).await;
    Ok(())
}

fn open(worker: &Rc<Worker>, id: u64, incoming: Incoming) {
    let limits = &worker.limits;
    let is_rush = worker.connections.handshakes() >= limits.retry_handshakes;
    if is_rush && !incoming.remote_address_validated() {
        // Costs us a packet and no memory, and a client that lies about its address never answers.
        if let Err(error) = incoming.retry() {
            error.into_incoming().refuse();
        }
        return;
    }
    if worker.take_connection() {
        return admit(worker, id, incoming);
    }
    let worker = worker.clone();
    spawn_local(async move {
        match worker.take_idle_connection().await {
            true => admit(&worker, id, incoming),
            false => incoming.refuse(),
        }
    });
}

fn admit(worker: &Rc<Worker>, id: u64, incoming: Incoming) {
    let mut registration = worker.register(id, incoming.remote_address());
    let handshake = Handshake::new(worker, id);
    let worker = worker.clone();
    let patience = worker.limits.handshake_timeout;
    let task = spawn_local(async move {
        let Ok(connecting) = incoming.accept() else { return };
        // What follows the handshake is a task of its own: what a handshake needs is given back,
        // and it is no longer among those that end to make room.
        match timeout(patience, connecting).await {
            // Counted when the address is proved: a client can write any address.
            Ok(Ok(connection)) if !registration.count_for(connection.remote_address().ip()) => {
                connection.close(Code::EXCESSIVE_LOAD, b"");
            }
            Ok(Ok(connection)) => drop(spawn_local(async move {
                connection::serve(registration.link().clone(), connection).await;
                drop(registration);
            })),
            Ok(Err(error)) => tracing::debug!(%error, "a QUIC handshake failed"),
            Err(_) => tracing::debug!("a QUIC handshake took too long"),
        }
        drop(handshake);
    });
    worker.connections.add_handshake(id, task.abort_handle(), worker.limits.max_handshakes);
}
