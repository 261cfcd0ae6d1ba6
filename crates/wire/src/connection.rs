//! One connection: the state its parts share, the loop that drives the HTTP library over it, and
//! the end in good order. Everything here stays on one thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::call;
use crate::encode;
use crate::fault::Fault;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::socket::Socket;
use crate::worker::Worker;

/// What the socket, the calls and the worker's clock know of one connection.
pub(crate) struct Connection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) peer: SocketAddr,
    inbound: RefCell<Inbound>,
    outbound: RefCell<Outbound>,
    /// Requests handed to the service; so also the index of the next one.
    calls: Cell<u64>,
    /// A call has begun and its answer is not yet announced.
    running: Cell<bool>,
    /// The worker's tick at the last change of phase.
    since: Cell<u64>,
    /// The status of an error the library tried to write by itself.
    foreign: Cell<Option<u16>>,
    peer_closed: Cell<bool>,
    overdue: Cell<bool>,
    /// The fault the strict reading found has had its answer.
    refused: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// What the connection is waiting for, which decides how long it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
    Answering,
    Writing,
}

/// How a connection ends.
enum Ending {
    /// The client is gone, or there is nothing left to say.
    Drop,
    /// The last answer is written; let it arrive.
    Linger,
    /// One more answer: why there is no other.
    Refuse(Fault),
}

impl Connection {
    pub(crate) fn new(worker: Rc<Worker>, peer: SocketAddr) -> Connection {
        Connection {
            inbound: RefCell::new(Inbound::new(&worker.limits)),
            outbound: RefCell::new(Outbound::default()),
            calls: Cell::new(0),
            running: Cell::new(false),
            since: Cell::new(worker.tick.get()),
            foreign: Cell::new(None),
            peer_closed: Cell::new(false),
            overdue: Cell::new(false),
            refused: Cell::new(false),
            waker: RefCell::new(None),
            worker,
            peer,
        }
    }

    /// Serves requests until either side ends the connection.
    pub(crate) async fn serve(self: Rc<Connection>, stream: TcpStream) {
        let socket = TokioIo::new(Socket { stream, connection: self.clone() });
        let connection = &self;
        let answer = service_fn(|request| call::answer(connection.clone(), request));
        let mut http = self.worker.http.serve_connection(socket, answer);
        let mut told = false;
        let ending = poll_fn(|cx| {
            self.remember(cx.waker());
            loop {
                if let Poll::Ready(result) = Pin::new(&mut http).poll(cx) {
                    return Poll::Ready(self.ended(result));
                }
                // Only after a look at the socket: a request that has arrived is still served.
                if !self.worker.draining.get() || told {
                    break;
                }
                told = true;
                Pin::new(&mut http).graceful_shutdown();
            }
            self.given_up().map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.waker.take();
        let stream = http.into_parts().io.into_inner().stream;
        match ending {
            Ending::Drop => {}
            Ending::Linger => linger(stream, &[], self.worker.limits.linger_timeout).await,
            Ending::Refuse(fault) => {
                refuse(&self.worker, stream, fault).await;
            }
        }
    }

    /// Bytes came in; none means the client will send no more.
    pub(crate) fn arrived(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.peer_closed.set(true);
            return;
        }
        let mut inbound = self.inbound.borrow_mut();
        let before = inbound.in_head();
        inbound.feed(bytes);
        if inbound.in_head() && !before {
            self.touch();
        }
    }

    /// How many of these bytes may be written: all (`None`), or those before the library's own.
    pub(crate) fn inspect(&self, slices: &[IoSlice<'_>]) -> Option<usize> {
        if self.foreign.get().is_some() {
            return Some(0);
        }
        let foreign = self.outbound.borrow_mut().inspect(slices)?;
        if foreign.offset == 0 {
            self.foreign.set(Some(foreign.status));
        }
        Some(foreign.offset)
    }

    pub(crate) fn written(&self, slices: &[IoSlice<'_>], bytes: usize) {
        self.outbound.borrow_mut().written(slices, bytes);
        self.touch();
    }

    /// A request was parsed. Its index, and what the strict reading has against it.
    pub(crate) fn begin(&self) -> (u64, Option<Fault>) {
        let index = self.calls.get();
        self.calls.set(index + 1);
        self.running.set(true);
        let fault = self.inbound.borrow().fault(index);
        self.refused.set(fault.is_some());
        (index, fault)
    }

    /// The answer is made. Returns whether the request was received completely: if not, nothing
    /// after it on this connection can be understood.
    pub(crate) fn answered(&self, index: u64, body_bytes: usize) -> bool {
        self.outbound.borrow_mut().expect(body_bytes);
        self.running.set(false);
        self.touch();
        self.inbound.borrow().received(index)
    }

    /// Called by the worker's clock: whether the connection overstayed, which wakes its task.
    pub(crate) fn check(&self) {
        let limits = &self.worker.limits;
        let allowed = match self.phase() {
            Phase::Idle => limits.idle_timeout,
            Phase::Head => limits.head_timeout,
            Phase::Writing => limits.write_stall,
            // The service bounds its own work, and reading a body has its own clock.
            Phase::Answering => return,
        };
        if self.worker.elapsed(self.since.get()) > allowed {
            self.overdue.set(true);
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn touch(&self) {
        self.since.set(self.worker.tick.get());
    }

    fn remember(&self, waker: &Waker) {
        let mut held = self.waker.borrow_mut();
        if !held.as_ref().is_some_and(|held| held.will_wake(waker)) {
            *held = Some(waker.clone());
        }
    }

    fn phase(&self) -> Phase {
        if self.running.get() {
            Phase::Answering
        } else if self.outbound.borrow().unfinished() {
            Phase::Writing
        } else if self.inbound.borrow().in_head() {
            Phase::Head
        } else {
            Phase::Idle
        }
    }

    /// A fault in a head that the library did not turn into a call.
    fn unanswered_fault(&self) -> Option<Fault> {
        if self.refused.get() {
            return None;
        }
        self.inbound.borrow().fault(self.calls.get())
    }

    /// The library is done with the connection; say why nothing more will come, if that is due.
    fn ended(&self, result: hyper::Result<()>) -> Ending {
        let phase = self.phase();
        if matches!(phase, Phase::Answering | Phase::Writing) {
            return Ending::Drop;
        }
        let noted = self.unanswered_fault();
        match (self.foreign.get(), result) {
            (Some(status), _) => Ending::Refuse(noted.unwrap_or(translate(status))),
            (None, Err(error)) if error.is_parse() => {
                Ending::Refuse(noted.unwrap_or(translate(400)))
            }
            _ if noted.is_some() => noted.map_or(Ending::Drop, Ending::Refuse),
            _ if phase == Phase::Head && self.peer_closed.get() => Ending::Refuse(
                Fault::Malformed("The request ended before its headers were complete."),
            ),
            _ if self.peer_closed.get() || self.calls.get() == 0 => Ending::Drop,
            _ => Ending::Linger,
        }
    }

    /// Whether we end a connection the library would go on with.
    fn given_up(&self) -> Option<Ending> {
        let phase = self.phase();
        if self.overdue.take() {
            match phase {
                Phase::Idle | Phase::Writing => return Some(Ending::Drop),
                Phase::Head => return Some(Ending::Refuse(Fault::HeadTimeout)),
                // It moved on between the clock's look and ours.
                Phase::Answering => {}
            }
        }
        if matches!(phase, Phase::Answering | Phase::Writing) {
            return None;
        }
        if let Some(fault) = self.unanswered_fault() {
            return Some(Ending::Refuse(fault));
        }
        (phase == Phase::Idle && self.worker.draining.get()).then_some(Ending::Drop)
    }
}

/// Writes the refusal and ends the connection.
pub(crate) async fn refuse(worker: &Worker, stream: TcpStream, fault: Fault) {
    let bytes = encode::closing(&call::refusal(worker, fault));
    linger(stream, &bytes, worker.limits.linger_timeout).await;
}

/// What the library means by the status it wanted to send.
fn translate(status: u16) -> Fault {
    match status {
        414 => Fault::UrlTooLong,
        431 => Fault::HeadTooLarge,
        _ => Fault::Malformed("The request is not valid HTTP/1.1."),
    }
}

/// Writes the last bytes, says that no more follow, and takes what still arrives until the client
/// closes: closing over unread bytes would reset the connection and lose the answer.
async fn linger(mut stream: TcpStream, last: &[u8], patience: Duration) {
    let _ = timeout(patience, async {
        stream.write_all(last).await?;
        stream.shutdown().await?;
        let mut sink = [0; 4096];
        while stream.read(&mut sink).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}
