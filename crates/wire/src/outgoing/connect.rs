//! Opens connections: TCP to one of the addresses, then TLS if the target wants it. Does not know
//! HTTP, and talks to no address it was not given.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fault::OutgoingFault;

/// From one attempt to the next, while none has succeeded (RFC 8305 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Connects to the first of the addresses that answers. They are tried in their order, each a
/// little after the one before, or as soon as that has failed: an address that swallows everything
/// does not hide the others. `remote` is the one that answered, or else the last that was tried.
pub(super) async fn tcp(
    addresses: &[SocketAddr],
    remote: &mut Option<SocketAddr>,
) -> Result<TcpStream, OutgoingFault> {
    let opened = match addresses {
        [address] => {
            *remote = Some(*address);
            TcpStream::connect(*address).await
        }
        _ => race(addresses, remote).await,
    };
    let stream = opened.map_err(OutgoingFault::Connect)?;
    // A request is written whole.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn race(addresses: &[SocketAddr], remote: &mut Option<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter().copied();
    let mut attempts = Attempts { running: Vec::new(), last: io::ErrorKind::NotFound.into() };
    let mut next = pin!(sleep(ATTEMPT_DELAY));
    poll_fn(|cx| {
        loop {
            let running = attempts.running.len();
            if let Poll::Ready((address, stream)) = attempts.poll(cx) {
                *remote = Some(address);
                return Poll::Ready(Ok(stream));
            }
            let failed = attempts.running.len() < running;
            let waits = !attempts.running.is_empty() && !failed;
            if waits && next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match waiting.next() {
                Some(address) => {
                    *remote = Some(address);
                    attempts.running.push((address, Box::pin(TcpStream::connect(address))));
                    next.as_mut().reset(Instant::now() + ATTEMPT_DELAY);
                }
                None if attempts.running.is_empty() => {
                    let last = std::mem::replace(&mut attempts.last, io::ErrorKind::Other.into());
                    return Poll::Ready(Err(last));
                }
                // All are on their way.
                None => return Poll::Pending,
            }
        }
    })
    .await
}

struct Attempts {
    running: Vec<(SocketAddr, Attempt)>,
    /// Why the last one failed.
    last: io::Error,
}

impl Attempts {
    /// Ready with the first that succeeds; those that fail are over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(SocketAddr, TcpStream)> {
        let mut at = 0;
        while let Some((address, attempt)) = self.running.get_mut(at) {
            match attempt.as_mut().poll(cx) {
                Poll::Ready(Ok(stream)) => return Poll::Ready((*address, stream)),
                Poll::Ready(Err(error)) => {
                    self.last = error;
                    drop(self.running.remove(at));
                }
                Poll::Pending => at += 1,
            }
        }
        Poll::Pending
    }
}

pub(super) async fn tls(
    stream: TcpStream,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, OutgoingFault> {
    TlsConnector::from(config).connect(name, stream).await.map_err(OutgoingFault::Tls)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn connect(addresses: &[SocketAddr]) -> (Result<SocketAddr, &'static str>, Option<SocketAddr>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut remote = None;
        let opened = runtime.block_on(tcp(addresses, &mut remote));
        let opened = opened.map(|stream| stream.peer_addr().unwrap());
        (opened.map_err(|fault| fault.class()), remote)
    }

    /// An address whose queue of connections is full: the system does not answer for it. None where
    /// the system answers all the same.
    fn silent() -> Option<(Socket, Vec<Socket>, SocketAddr)> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        for _ in 0..64 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            if socket.connect_timeout(&address, Duration::from_millis(100)).is_err() {
                return Some((listener, held, address.as_socket().unwrap()));
            }
            held.push(socket);
        }
        None
    }

    #[test]
    fn an_address_that_fails_or_hangs_does_not_block_the_next() {
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let good_address = good.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let begun = Instant::now();
        assert_eq!(connect(&[closed, good_address]), (Ok(good_address), Some(good_address)));
        assert!(begun.elapsed() < ATTEMPT_DELAY * 4, "a refusal is not waited for");
        assert_eq!(connect(&[closed, closed]).0, Err("connect"));
        assert_eq!(connect(&[]).0, Err("connect"));
        let Some((_listener, _held, silent)) = silent() else { return };
        let begun = Instant::now();
        assert_eq!(connect(&[silent, closed, good_address]).0, Ok(good_address));
        let elapsed = begun.elapsed();
        assert!(elapsed >= ATTEMPT_DELAY && elapsed < ATTEMPT_DELAY * 8, "{elapsed:?}");
    }
}
