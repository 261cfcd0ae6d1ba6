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
use crate::call::take_place;
use crate::tls::Tls;
use crate::worker::{UnderWay, Worker};

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
    let mut clock = worker.clock();
    let Some(mut pleas) = worker.idle.pleas() else { return Ok(()) };
    let fired = shutdown.fired();
    tokio::pin!(fired);
    let mut next = 0;
    loop {
        tokio::select! {
            () = &mut fired => break,
            _ = clock.tick() => worker.check_all(),
            Some(plea) = pleas.recv() => drop(plea.send(worker.end_idle())),
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => open(&worker, next, incoming),
                None => break,
            },
        }
        next += 1;
    }
    worker.draining.set(true);
    drop(pleas);
    // Whoever comes now is better off with another server.
    endpoint.set_server_config(None);
    worker.drain(clock).await;
    endpoint.close(Code::NO_ERROR, b"");
    // So that the last packets leave.
    let _ = timeout(worker.limits.linger_timeout, endpoint.wait_idle()).await;
    Ok(())
}

fn open(worker: &Rc<Worker>, id: u64, incoming: Incoming) {
    let limits = &worker.limits;
    let is_rush = worker.handshakes() >= limits.retry_handshakes;
    if is_rush && !incoming.remote_address_validated() {
        // Costs us a packet and no memory, and whoever lies about its address never answers.
        if let Err(error) = incoming.retry() {
            error.into_incoming().refuse();
        }
        return;
    }
    if take_place(&worker.shared.connections, limits.max_connections) {
        return admit(worker, id, incoming);
    }
    let worker = worker.clone();
    spawn_local(async move {
        match worker.take_idle_place().await {
            true => admit(&worker, id, incoming),
            false => incoming.refuse(),
        }
    });
}

fn admit(worker: &Rc<Worker>, id: u64, incoming: Incoming) {
    let (mut listed, link) = worker.list(id, incoming.remote_address());
    let under_way = UnderWay::new(worker, id);
    let worker = worker.clone();
    let patience = worker.limits.handshake_timeout;
    let task = spawn_local(async move {
        let Ok(connecting) = incoming.accept() else { return };
        // What follows the handshake is a task of its own: what a handshake needs is given back,
        // and it is no longer among those that end to make room.
        match timeout(patience, connecting).await {
            // Counted when the address is proved: anybody can write another's.
            Ok(Ok(connection)) if !listed.settle(connection.remote_address().ip()) => {
                connection.close(Code::EXCESSIVE_LOAD, b"");
            }
            Ok(Ok(connection)) => drop(spawn_local(async move {
                connection::serve(link, connection).await;
                drop(listed);
            })),
            Ok(Err(error)) => tracing::debug!(%error, "a QUIC handshake failed"),
            Err(_) => tracing::debug!("a QUIC handshake took too long"),
        }
        drop(under_way);
    });
    worker.keep_handshake(id, task.abort_handle());
}
