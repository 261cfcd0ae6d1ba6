//! One request over one connection. The connection is driven by the call that uses it and by
//! nothing else: there is no task to outlive the call, and none to switch to.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::connect::{Heard, Stream, Transport};
use super::fault::{self, OutgoingFault, Stage};
use super::report::Trace;

/// Everything up to the end of the answer's head: some interim answers, the longest head, and what
/// of the body came along.
const BEFORE_BODY_BYTES: usize = 256 * 1024;

/// An open connection with its half of the protocol.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Stream>, Full<Bytes>>,
    closed: bool,
    heard: Arc<Heard>,
    pub(super) remote: SocketAddr,
    pub(super) opened: Instant,
}

impl Connection {
    pub(super) async fn new(
        transport: Transport,
        remote: SocketAddr,
        http: &http1::Builder,
    ) -> Result<Connection, OutgoingFault> {
        let heard = Arc::new(Heard::default());
        // Nothing is expected before a request.
        heard.head_came();
        let stream = TokioIo::new(Stream::new(transport, heard.clone()));
        let (sender, driver) = http.handshake(stream).await.map_err(fault::in_head)?;
        Ok(Connection { sender, driver, closed: false, heard, remote, opened: Instant::now() })
    }

    /// Whether it can carry another request. Costs no system call: what the other side did
    /// meanwhile is known if the runtime has heard of it.
    pub(super) fn is_ready(&mut self) -> bool {
        self.poll_driver(&mut Context::from_waker(Waker::noop()));
        !self.closed && self.sender.is_ready()
    }

    /// Whether the other side has sent anything since the last request began.
    pub(super) fn has_heard(&self) -> bool {
        !self.heard.is_silent()
    }

    /// Sends the request and reads the answer into the trace, its body up to the limit. Says
    /// whether the body went on beyond it.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        max_bytes: usize,
        trace: &mut Trace,
    ) -> Result<bool, OutgoingFault> {
        trace.stage = Stage::Head;
        self.heard.begin(BEFORE_BODY_BYTES);
        let response = self.sender.send_request(request);
        let response = self.beside(response).await.map_err(fault::in_head)?;
        self.heard.head_came();
        let (head, body) = response.into_parts();
        trace.stage = Stage::Body;
        trace.head_came(head.status, head.headers);
        self.collect(body, max_bytes, &mut trace.body).await
    }

    async fn collect(
        &mut self,
        mut body: Incoming,
        max_bytes: usize,
        bytes: &mut BytesMut,
    ) -> Result<bool, OutgoingFault> {
        loop {
            // Known to go on: what follows is not waited for.
            if bytes.len() == max_bytes && body.size_hint().lower() > 0 {
                return Ok(true);
            }
            let Some(frame) = self.beside(body.frame()).await else {
                return Ok(false);
            };
            let Ok(piece) = frame.map_err(fault::in_body)?.into_data() else {
                continue;
            };
            let room = max_bytes - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                return Ok(true);
            }
        }
    }

    /// Awaits something the connection brings, while driving the connection. Its error, if any,
    /// reaches what is awaited.
    async fn beside<T>(&mut self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = pin!(awaited);
        poll_fn(|cx| {
            if let Poll::Ready(result) = awaited.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            self.poll_driver(cx);
            awaited.as_mut().poll(cx)
        })
        .await
    }

    fn poll_driver(&mut self, cx: &mut Context<'_>) {
        if !self.closed && Pin::new(&mut self.driver).poll(cx).is_ready() {
            self.closed = true;
        }
    }
}
