//! Binds an address once for each core and runs a worker thread on each of the sockets, so that a
//! connection stays on one thread and threads seldom wake one another.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use http::HeaderValue;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;

use crate::Service;
use crate::h3;
use crate::hints::EarlyHints;
use crate::limits::Limits;
use crate::peer::Networks;
use crate::serve;
use crate::shutdown::Shutdown;
use crate::terms::Terms;
use crate::tls::Tls;
use crate::worker::{Shared, Worker};

/// Connections the system holds for us between two accepts.
pub(crate) const BACKLOG: u16 = 1024;

/// For how long a client may remember where HTTP/3 is spoken: a day, as is usual.
const ALTERNATIVE_SECONDS: u32 = 24 * 60 * 60;

/// Bound sockets that do not serve yet.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
    address: SocketAddr,
    terms: Terms,
    datagrams: Option<Datagrams>,
}

/// The socket of HTTP/3.
#[derive(Debug)]
struct Datagrams {
    socket: UdpSocket,
    /// Fires when no other process reads from the socket any more.
    free: Option<Shutdown>,
}

impl Listener {
    /// Binds with one thread for each core this process may use. Port 0 lets the system choose.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Listener::bind_threads(address, cores)
    }

    pub fn bind_threads(address: SocketAddr, threads: NonZeroUsize) -> io::Result<Listener> {
        if address.port() != 0 {
            // Shared ports are shared between processes too: without this look a second server on
            // the same address would start in silence and take half of the requests.
            drop(bind_one(address, false)?);
        }
        let first = bind_one(address, true)?;
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..threads.get() {
            sockets.push(bind_one(address, true)?);
        }
        let terms = Terms { local: address, ..Terms::default() };
        Ok(Listener { sockets, address, terms, datagrams: None })
    }

    /// Serves on listening sockets that another process has bound to one address, with a thread for
    /// each: the system gives each of them a part of the connections.
    pub fn from_sockets(sockets: Vec<TcpListener>) -> io::Result<Listener> {
        let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        let first = sockets.first().ok_or_else(|| invalid("there is no socket"))?;
        let address = first.local_addr()?;
        for socket in &sockets {
            if socket.local_addr()? != address {
                return Err(invalid("the sockets have different addresses"));
            }
            socket.set_nonblocking(true)?;
        }
        let terms = Terms { local: address, ..Terms::default() };
        Ok(Listener { sockets, address, terms, datagrams: None })
    }

    /// Duplicates of the sockets, for [`Listener::from_sockets`] and [`Listener::http3_on`] in
    /// another process. While one of them is open, clients can connect.
    pub fn sockets(&self) -> io::Result<(Vec<TcpListener>, Option<UdpSocket>)> {
        let sockets = self.sockets.iter().map(TcpListener::try_clone).collect::<Result<_, _>>()?;
        let datagrams = self.datagrams.as_ref().map(|datagrams| datagrams.socket.try_clone());
        Ok((sockets, datagrams.transpose()?))
    }

    /// Where it listens, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Which clients are sent 103.
    pub fn early_hints(mut self, early_hints: EarlyHints) -> Listener {
        self.terms.early_hints = early_hints;
        self
    }

    /// Only TLS is spoken, with these certificates.
    pub fn tls(mut self, tls: Tls) -> Listener {
        self.terms.tls = Some(tls);
        self
    }

    /// Whether a client may speak HTTP/2 from its first byte on, as it can without TLS only if it
    /// knows before. It may, unless this says no.
    pub fn prior_knowledge(mut self, prior_knowledge: bool) -> Listener {
        self.terms.prior_knowledge = prior_knowledge;
        self
    }

    /// Every connection begins with the PROXY protocol, version 1 or 2, from a proxy that is
    /// trusted; others are closed.
    pub fn proxy_protocol(mut self, proxy_protocol: bool) -> Listener {
        self.terms.proxy_protocol = proxy_protocol;
        self
    }

    /// Proxies that may name the client. None, unless this is called.
    pub fn trusted(mut self, trusted: Networks) -> Listener {
        self.terms.trusted = trusted;
        self
    }

    /// HTTP/3 is spoken as well, which needs [`Listener::tls`]: binds the UDP port of the same
    /// number, and has answers on the other protocols say so.
    pub fn http3(self) -> io::Result<Listener> {
        let socket = h3::bind(self.address)?;
        Ok(self.with_datagrams(Datagrams { socket, free: None }))
    }

    /// The same on a socket that another process has bound, once `free` says that it no longer
    /// reads from it: each of two readers would lose the packets that the other reads.
    pub fn http3_on(self, socket: UdpSocket, free: Shutdown) -> io::Result<Listener> {
        if socket.local_addr()? != self.address {
            let message = "the UDP socket has another address";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        socket.set_nonblocking(true)?;
        Ok(self.with_datagrams(Datagrams { socket, free: Some(free) }))
    }

    fn with_datagrams(mut self, datagrams: Datagrams) -> Listener {
        self.datagrams = Some(datagrams);
        let alternative = format!("h3=\":{}\"; ma={ALTERNATIVE_SECONDS}", self.address.port());
        self.terms.alternative = HeaderValue::try_from(alternative).ok();
        self
    }

    /// Serves until the signal. Clients that connected since `bind` are served as well.
    pub fn run(
        self,
        service: Arc<dyn Service>,
        limits: Limits,
        shutdown: Shutdown,
    ) -> io::Result<Running> {
        let shared = Arc::new(Shared::new(&limits));
        let part = Part { service, limits, terms: self.terms, shared, shutdown };
        let mut workers = Vec::with_capacity(self.sockets.len() + 1);
        if let Some(Datagrams { socket, free }) = self.datagrams {
            let Some(tls) = part.terms.tls.clone() else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "HTTP/3 needs TLS"));
            };
            let serve = move |worker| h3::serve(worker, socket, tls, free);
            workers.push(part.clone().start("wire-quic".to_owned(), serve)?);
        }
        for (number, socket) in self.sockets.into_iter().enumerate() {
            // Connections inherit it.
            #[cfg(target_os = "linux")]
            SockRef::from(&socket).set_tcp_user_timeout(Some(part.limits.unacknowledged))?;
            let serve = move |worker: Rc<Worker>| serve::serve(worker, socket);
            workers.push(part.clone().start(format!("wire-{number}"), serve)?);
        }
        Ok(Running { workers, shared: part.shared })
    }
}

/// What every thread is given.
#[derive(Clone)]
struct Part {
    service: Arc<dyn Service>,
    limits: Limits,
    terms: Terms,
    shared: Arc<Shared>,
    shutdown: Shutdown,
}

impl Part {
    fn start<F>(
        self,
        name: String,
        serve: impl FnOnce(Rc<Worker>) -> F + Send + 'static,
    ) -> io::Result<Thread>
    where
        F: Future<Output = io::Result<()>>,
    {
        let (ended, end) = oneshot::channel();
        let thread = thread::Builder::new().name(name).spawn(move || {
            // Dropped when the thread ends, however it ends.
            let _ended: oneshot::Sender<()> = ended;
            let options = LocalOptions::default();
            let runtime = Builder::new_current_thread().enable_all().build_local(options)?;
            let Part { service, limits, terms, shared, shutdown } = self;
            let worker = Rc::new(Worker::new(service, limits, terms, shared, shutdown));
            runtime.block_on(async { serve(worker).await })
        })?;
        Ok((thread, end))
    }
}

type Thread = (thread::JoinHandle<io::Result<()>>, oneshot::Receiver<()>);

/// Worker threads at work.
pub struct Running {
    workers: Vec<Thread>,
    shared: Arc<Shared>,
}

/// What clients occupy at one moment, of all threads together. All of it is zero when nobody is
/// connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub connections: usize,
    /// Requests that the service is working on.
    pub exchanges: usize,
    /// TLS and PROXY protocol handshakes under way.
    pub handshakes: usize,
    /// Of [`Limits::held_bytes`].
    pub held_bytes: usize,
}

impl fmt::Debug for Running {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Running").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

impl Running {
    /// What is in use now.
    pub fn usage(&self) -> Usage {
        Usage {
            connections: self.shared.connections.load(Ordering::Relaxed),
            exchanges: self.shared.exchanges.load(Ordering::Relaxed),
            handshakes: self.shared.handshakes.load(Ordering::Relaxed),
            held_bytes: self.shared.memory.held(),
        }
    }

    /// Completes when every worker has drained and its thread has ended.
    pub async fn join(self) -> io::Result<()> {
        let mut result = Ok(());
        for (thread, end) in self.workers {
            let _ = end.await;
            // The thread has nothing left to do: this does not block.
            let outcome =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker thread panicked")));
            result = result.and(outcome);
        }
        result
    }
}

fn bind_one(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a process that has just ended must not keep its successor from the port.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    // For those who connect before it is known how long they may be silent.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Limits::default().unacknowledged))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if shared {
        socket.listen(BACKLOG.into())?;
    }
    Ok(socket.into())
}
