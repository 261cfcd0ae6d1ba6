//! One request over one connection of HTTP/1.1, up to the head of the response. The call that uses
//! the connection drives it, and nothing else does: there is no task to outlive the call, and none
//! to switch to. What follows the head is the `flow`.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};

use super::call::{Call, CallTimeouts, Interim};
use super::clock::Clock;
use super::fault::{self, OutgoingFault, Stage};
use super::response::{self, Head, Reading, Scan};
use super::transport::Transport;
use super::upload::{Upload, Waiting};

/// One read: a head with a usual body in one go.
pub(super) const READ_BYTES: usize = 8 * 1024;
/// A connection at rest keeps a buffer of this size for its next response, and none that is larger.
const KEPT_BYTES: usize = 16 * 1024;
/// Everything up to the end of the response's head: interim responses and the longest head.
const BEFORE_BODY_BYTES: usize = 256 * 1024;
/// Interim responses of one request. Some 103 and a 102 now and then are usual; more is a flood.
const MAX_INTERIM: usize = 100;
/// So long the body waits for 100. RFC 9110 10.1.1: not for ever; 1 s is what curl waits.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Transport,
    /// Bytes received and not used.
    pub(super) incoming: BytesMut,
    /// The memory that requests are encoded in.
    out: Vec<u8>,
    pub(super) clock: Clock,
    /// None for a unix socket.
    pub(super) remote: Option<SocketAddr>,
    pub(super) opened: Instant,
    /// The server closes it about then.
    pub(super) expires: Option<Instant>,
}

impl Connection {
    pub(super) fn new(stream: Transport, remote: Option<SocketAddr>) -> Connection {
        Connection {
            stream,
            incoming: BytesMut::new(),
            out: Vec::new(),
            clock: Clock::default(),
            remote,
            opened: Instant::now(),
            expires: None,
        }
    }

    /// Whether it can carry another request: the other side has neither closed it nor sent anything
    /// that nobody asked for. Costs no system call unless something has arrived.
    pub(super) fn is_ready(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        if !self.incoming.is_empty() {
            return false;
        }
        if self.stream.poll_read_ready(&mut cx).is_pending() {
            return true;
        }
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        Pin::new(&mut self.stream).poll_read(&mut cx, &mut byte).is_pending()
    }

    /// Reads into the buffer, which then has room for at least so many bytes: how many came; 0 at
    /// the end. Takes no memory before something has arrived.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.stream.poll_read_ready(cx))?;
        self.incoming.reserve(room);
        pin!(self.stream.read_buf(&mut self.incoming)).poll(cx)
    }

    /// Before it rests.
    pub(super) fn rest(&mut self) {
        self.clock.stop();
        if self.incoming.capacity() > KEPT_BYTES {
            self.incoming = BytesMut::new();
        }
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
    }
}

/// A request and its connection.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) connection: Box<Connection>,
    pub(super) upload: Upload,
    pub(super) timeouts: CallTimeouts,
    is_head: bool,
    reading: Reading,
    /// What is waited for, and what was sent by then; the clock is set when that changes.
    stage: Option<(Waiting, u64)>,
    scan: Scan,
    before_body_bytes: usize,
    interims: usize,
}

impl Exchange {
    pub(super) fn new(
        mut connection: Box<Connection>,
        call: &mut Call<'_>,
        reading: Reading,
    ) -> Result<Exchange, OutgoingFault> {
        let upload = Upload::new(call, std::mem::take(&mut connection.out))?;
        Ok(Exchange {
            connection,
            upload,
            timeouts: call.timeouts,
            is_head: call.method == Method::HEAD,
            reading,
            stage: None,
            scan: Scan::default(),
            before_body_bytes: 0,
            interims: 0,
        })
    }

    /// Whether the other side has sent anything.
    pub(super) fn has_heard(&self) -> bool {
        self.before_body_bytes > 0 || !self.connection.incoming.is_empty()
    }

    /// Sends the request until the head of the response is here. The rest of the request, if any,
    /// is sent while the body of the response is read.
    pub(super) async fn head(
        &mut self,
        max_bytes: usize,
        interim: &mut Option<&mut Interim<'_>>,
    ) -> Result<Head, OutgoingFault> {
        poll_fn(|cx| self.poll_head(cx, max_bytes, interim)).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
        interim: &mut Option<&mut Interim<'_>>,
    ) -> Poll<Result<Head, OutgoingFault>> {
        loop {
            let waiting = self.poll_upload(cx)?;
            match self.poll_read_head(cx, max_bytes)? {
                Poll::Ready(head) if is_interim(head.status) => {
                    self.interim(head.status, head.headers, interim)?;
                    continue;
                }
                Poll::Ready(head) => {
                    if self.upload.is_sent() {
                        self.connection.out = self.upload.take_buffer();
                    }
                    return Poll::Ready(Ok(head));
                }
                Poll::Pending => {}
            }
            if ready!(self.poll_clock(cx, waiting)) == Waiting::Continue {
                self.upload.go_on();
                continue;
            }
            return Poll::Ready(Err(OutgoingFault::Timeout(match waiting {
                Waiting::Nothing => Stage::Head,
                _ => Stage::Send,
            })));
        }
    }

    /// Goes on with the request.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<Waiting, OutgoingFault> {
        match self.upload.is_over() {
            true => Ok(Waiting::Nothing),
            false => self.upload.poll(cx, &mut self.connection.stream),
        }
    }

    /// Ready when what the request waits for has taken too long.
    fn poll_clock(&mut self, cx: &mut Context<'_>, waiting: Waiting) -> Poll<Waiting> {
        let clock = &mut self.connection.clock;
        let stage = (waiting, self.upload.sent_bytes());
        if self.stage.replace(stage) != Some(stage) {
            let timeout = match waiting {
                Waiting::Nothing => Some(self.timeouts.head),
                Waiting::Server => Some(self.timeouts.send),
                // The client has timeouts of its own.
                Waiting::Body => None,
                Waiting::Continue => Some(CONTINUE_WAIT),
            };
            clock.set(timeout, self.timeouts.deadline);
        }
        clock.poll(cx).map(|()| waiting)
    }

    /// The next head, interim or not.
    fn poll_read_head(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Result<Poll<Head>, OutgoingFault> {
        loop {
            let incoming = &mut self.connection.incoming;
            if let Some(end) = self.scan.find(incoming, self.reading)? {
                if end > max_bytes {
                    return Err(OutgoingFault::TooLarge);
                }
                self.scan = Scan::default();
                self.before_body_bytes += end;
                let bytes = incoming.split_to(end).freeze();
                return self.read(&bytes).map(Poll::Ready);
            }
            let held = incoming.len();
            if held >= max_bytes || self.before_body_bytes + held > BEFORE_BODY_BYTES {
                return Err(OutgoingFault::TooLarge);
            }
            match self.connection.poll_fill(cx, READ_BYTES) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(0)) => {
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(OutgoingFault::Reset(end.into()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(fault::in_head(error)),
            }
        }
    }

    fn read(&self, bytes: &Bytes) -> Result<Head, OutgoingFault> {
        response::read(bytes, self.is_head, self.reading, HeaderMap::new())
    }

    fn interim(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        interim: &mut Option<&mut Interim<'_>>,
    ) -> Result<(), OutgoingFault> {
        self.interims += 1;
        if self.interims > MAX_INTERIM || self.before_body_bytes > BEFORE_BODY_BYTES {
            return Err(OutgoingFault::TooLarge);
        }
        if status == StatusCode::CONTINUE {
            self.upload.go_on();
        }
        if let Some(interim) = interim {
            interim(status, headers);
        }
        Ok(())
    }
}

fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}
