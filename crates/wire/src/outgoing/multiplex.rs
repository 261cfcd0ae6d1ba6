//! HTTP/2 to other servers, with the `h2` crate that the server side uses as well: many requests
//! share one connection, which a task of its own drives. What a request waits for, and for how
//! long, is the same as on HTTP/1.1.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, EXPECT, HOST, TE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};

use super::call::{Call, CallTimeouts, Interim};
use super::clock::Clock;
use super::fault::{self, OutgoingFault, Stage};
use super::transport::Transport;
use super::upload::{Waiting, expects_continue, has_usual_body};
use crate::body::Body;
use crate::fault::BodyFault;
use crate::fields;

/// Requests on one connection at a time; the server may allow fewer. As many as we allow clients.
const MAX_STREAMS: usize = 128;
/// What the server may send of one body ahead of its reader: enough for some 20 MB/s over 10 ms.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same for all bodies of a connection: the sum, so that a body that nobody reads does not keep
/// the others from arriving.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS as u32 * STREAM_WINDOW_BYTES;
/// What one request may have waiting for the socket.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Interim responses of one request, as on HTTP/1.1.
const MAX_INTERIM: usize = 100;
/// So long the body waits for 100, as on HTTP/1.1.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A connection that requests share. The clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Session {
    requests: SendRequest<Bytes>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) opened: Instant,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: AtomicUsize,
    /// A request has timed out on it: the server may be gone without a word.
    is_suspect: AtomicBool,
}

/// The place of one request on its session.
#[derive(Debug)]
pub(super) struct Slot(Arc<State>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    /// Begins to speak HTTP/2. A task drives the connection until the last request and the last
    /// session of it are gone.
    pub(super) async fn begin(
        stream: Transport,
        remote: Option<SocketAddr>,
        head_bytes: usize,
    ) -> Result<Session, OutgoingFault> {
        let (requests, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
            .handshake(stream)
            .await
            .map_err(in_head)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of HTTP/2 to another server ended");
            }
        });
        Ok(Session { requests, remote, opened: Instant::now(), state: Arc::default() })
    }

    /// Whether requests may still begin on it.
    pub(super) fn is_alive(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let ended = matches!(self.requests.poll_ready(&mut cx), Poll::Ready(Err(_)));
        !ended && !self.state.is_suspect.load(Ordering::Relaxed)
    }

    pub(super) fn is_used(&self) -> bool {
        self.state.streams.load(Ordering::Relaxed) > 0
    }

    /// A place for one more request, if there is one.
    pub(super) fn slot(&self) -> Option<Slot> {
        let most = self.requests.current_max_send_streams().min(MAX_STREAMS);
        let more = |streams| (streams < most).then_some(streams + 1);
        let streams = &self.state.streams;
        let taken = streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Slot(self.state.clone()))
    }

    /// No request begins on it from now on.
    pub(super) fn suspect(&self) {
        self.state.is_suspect.store(true, Ordering::Relaxed);
    }
}

/// One request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    response: ResponseFuture,
    upload: Upload,
    wait: Wait,
    interims: usize,
    _slot: Slot,
}

/// The clock of an exchange and what it measures.
#[derive(Debug)]
struct Wait {
    clock: Clock,
    timeouts: CallTimeouts,
    stage: Option<(Waiting, u64)>,
}

impl Wait {
    /// Ready when what is waited for has taken too long.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        waiting: Waiting,
        sent: u64,
        quiet: Duration,
    ) -> Poll<()> {
        let stage = (waiting, sent);
        if self.stage.replace(stage) != Some(stage) {
            let timeout = match waiting {
                Waiting::Nothing => Some(quiet),
                Waiting::Server => Some(self.timeouts.send),
                Waiting::Body => None,
                Waiting::Continue => Some(CONTINUE_WAIT),
            };
            self.clock.set(timeout, self.timeouts.deadline);
        }
        self.clock.poll(cx)
    }
}

/// The head of a response and what follows it.
pub(super) struct Begun {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) download: Download,
}

impl Exchange {
    pub(super) fn new(
        session: &mut Session,
        slot: Slot,
        call: &mut Call<'_>,
    ) -> Result<Exchange, OutgoingFault> {
        if call.body.is_spent() {
            return Err(OutgoingFault::RequestBody(BodyFault::Incomplete));
        }
        let whole = call.body.whole().cloned();
        let awaits_continue = whole.is_none() && expects_continue(&call.headers);
        let request = request(call, awaits_continue)?;
        let ends = whole.as_ref().is_some_and(Bytes::is_empty);
        let (response, stream) = session.requests.send_request(request, ends).map_err(in_head)?;
        let mut upload = Upload {
            stream,
            piece: Bytes::new(),
            source: None,
            begun: false,
            is_over: ends,
            is_sent: ends,
            awaits_continue,
            sent: 0,
        };
        match whole {
            Some(bytes) => upload.piece = bytes,
            None => upload.source = Some(std::mem::replace(&mut call.body, Body::spent())),
        }
        let wait = Wait { clock: Clock::default(), timeouts: call.timeouts, stage: None };
        Ok(Exchange { response, upload, wait, interims: 0, _slot: slot })
    }

    /// Whether the other side has sent anything for this request.
    pub(super) fn has_heard(&self) -> bool {
        self.interims > 0
    }

    /// Gives a body back that was not begun.
    pub(super) fn give_back(&mut self, call: &mut Call<'_>) {
        if !self.upload.begun
            && let Some(body) = self.upload.source.take()
        {
            call.body = body;
        }
    }

    /// Sends the request until the head of the response is here.
    pub(super) async fn head(
        &mut self,
        interim: &mut Option<&mut Interim<'_>>,
    ) -> Result<Response<RecvStream>, OutgoingFault> {
        poll_fn(|cx| self.poll_head(cx, interim)).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut Option<&mut Interim<'_>>,
    ) -> Poll<Result<Response<RecvStream>, OutgoingFault>> {
        loop {
            let waiting = self.upload.poll(cx)?;
            match self.response.poll_informational(cx) {
                Poll::Ready(Some(Ok(response))) => {
                    self.interim(response, interim)?;
                    continue;
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(in_head(error))),
                Poll::Ready(None) | Poll::Pending => {}
            }
            if let Poll::Ready(response) = Pin::new(&mut self.response).poll(cx) {
                return Poll::Ready(response.map_err(in_head));
            }
            let (sent, head) = (self.upload.sent, self.wait.timeouts.head);
            ready!(self.wait.poll(cx, waiting, sent, head));
            if waiting == Waiting::Continue {
                self.upload.awaits_continue = false;
                continue;
            }
            let stage = if waiting == Waiting::Nothing { Stage::Head } else { Stage::Send };
            return Poll::Ready(Err(OutgoingFault::Timeout(stage)));
        }
    }

    fn interim(
        &mut self,
        response: Response<()>,
        interim: &mut Option<&mut Interim<'_>>,
    ) -> Result<(), OutgoingFault> {
        self.interims += 1;
        if self.interims > MAX_INTERIM {
            return Err(OutgoingFault::TooLarge);
        }
        let (head, ()) = response.into_parts();
        if head.status == StatusCode::CONTINUE {
            self.upload.awaits_continue = false;
        }
        if let Some(interim) = interim {
            interim(head.status, head.headers);
        }
        Ok(())
    }

    /// The response, once its head is here.
    pub(super) fn begun(self, response: Response<RecvStream>) -> Result<Begun, OutgoingFault> {
        let (head, body) = response.into_parts();
        let invalid = |what: &'static str| OutgoingFault::Protocol(what.into());
        if head.status.is_informational() {
            return Err(invalid("it switches protocols on HTTP/2"));
        }
        let length = fields::declared_length(&head.headers);
        let length = length.map_err(|fault| invalid(fault.message()))?;
        let Exchange { upload, wait, _slot, .. } = self;
        let download = Download { body, upload, wait, length_bytes: length, _slot };
        Ok(Begun { status: head.status, headers: head.headers, download })
    }
}

/// The body of a response, and what is left of its request.
#[derive(Debug)]
pub(super) struct Download {
    body: RecvStream,
    upload: Upload,
    wait: Wait,
    pub(super) length_bytes: Option<u64>,
    _slot: Slot,
}

/// A piece of a body, or its end with the trailers.
pub(super) enum Step {
    Piece(Bytes),
    End(Option<HeaderMap>),
}

impl Download {
    /// Whether nothing follows: the body is empty, and the request is sent.
    pub(super) fn is_over(&self) -> bool {
        self.upload.is_sent && self.body.is_end_stream()
    }

    pub(super) fn set_stall(&mut self, stall: Duration) {
        self.wait.timeouts.stall = stall;
        self.wait.stage = None;
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, OutgoingFault>> {
        let waiting = self.upload.poll(cx)?;
        loop {
            match self.body.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) if piece.is_empty() => {}
                Poll::Ready(Some(Ok(piece))) => {
                    // The server may send as much again.
                    let _ = self.body.flow_control().release_capacity(piece.len());
                    self.wait.stage = None;
                    return Poll::Ready(Ok(Step::Piece(piece)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(in_body(error))),
                Poll::Ready(None) => match self.body.poll_trailers(cx) {
                    Poll::Ready(Ok(mut trailers)) => {
                        trailers.iter_mut().for_each(fields::strip_trailers);
                        return Poll::Ready(Ok(Step::End(trailers)));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(in_body(error))),
                    Poll::Pending => break,
                },
                Poll::Pending => break,
            }
        }
        let (sent, stall) = (self.upload.sent, self.wait.timeouts.stall);
        let over = self.wait.poll(cx, waiting, sent, stall);
        over.map(|()| Err(OutgoingFault::Timeout(Stage::Body)))
    }
}

/// What is still to be sent of a request.
#[derive(Debug)]
struct Upload {
    stream: SendStream<Bytes>,
    piece: Bytes,
    source: Option<Body>,
    /// Part of the body was taken.
    begun: bool,
    is_over: bool,
    is_sent: bool,
    awaits_continue: bool,
    sent: u64,
}

impl Upload {
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<Waiting, OutgoingFault> {
        while !self.is_over {
            if self.piece.is_empty() {
                if self.awaits_continue {
                    return Ok(Waiting::Continue);
                }
                match self.poll_source(cx).map_err(OutgoingFault::RequestBody)? {
                    Poll::Pending => return Ok(Waiting::Body),
                    Poll::Ready(()) => continue,
                }
            }
            self.stream.reserve_capacity(self.piece.len());
            let room = match self.stream.capacity() {
                0 => self.stream.poll_capacity(cx),
                room => Poll::Ready(Some(Ok(room))),
            };
            match room {
                Poll::Pending => return Ok(Waiting::Server),
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(room))) => {
                    let piece = self.piece.split_to(room.min(self.piece.len()));
                    let ends = self.piece.is_empty() && self.source.is_none();
                    self.sent += piece.len() as u64;
                    let taken = self.stream.send_data(piece, ends).is_ok();
                    self.is_over = !taken || ends;
                    self.is_sent = taken && ends;
                }
                // The server takes no more of it. It may still have answered.
                Poll::Ready(None | Some(Err(_))) => self.is_over = true,
            }
        }
        Ok(Waiting::Nothing)
    }

    /// Takes the next piece of the body, or ends the request.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, BodyFault> {
        let Some(body) = &mut self.source else {
            self.end(None);
            return Ok(Poll::Ready(()));
        };
        let piece = match body.poll_chunk(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Err(fault)) => {
                // No server may take half a body for a whole one.
                self.stream.send_reset(Reason::CANCEL);
                return Err(fault);
            }
            Poll::Ready(Ok(piece)) => piece,
        };
        self.begun = true;
        match piece {
            Some(piece) => self.piece = piece,
            None => {
                let trailers = body.trailers();
                self.source = None;
                self.end(trailers);
            }
        }
        Ok(Poll::Ready(()))
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        let ended = match trailers.filter(|trailers| !trailers.is_empty()) {
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(Bytes::new(), true),
        };
        self.is_over = true;
        self.is_sent = ended.is_ok();
    }
}

fn request(call: &Call<'_>, awaits_continue: bool) -> Result<Request<()>, OutgoingFault> {
    let host = call.host.as_ref().unwrap_or(&call.target.host_header);
    let scheme = if call.target.origin.secure.is_some() { "https" } else { "http" };
    let path = call.path.as_ref().unwrap_or(&call.target.path).clone();
    let uri = Uri::builder().scheme(scheme).authority(host.as_bytes()).path_and_query(path);
    let uri = uri.build().map_err(|_| OutgoingFault::Url("has no valid host"))?;
    let mut request = Request::new(());
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    let mut headers = call.headers.clone();
    let takes_trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    fields::strip(&mut headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    if !awaits_continue {
        headers.remove(EXPECT);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    match call.body.declared_bytes() {
        Some(0) if !has_usual_body(&call.method) => {}
        Some(bytes) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes))),
        None => {}
    }
    *request.headers_mut() = headers;
    Ok(request)
}

/// Whether the server says that it has not looked at the request: it may be sent again, whatever
/// it is.
pub(super) fn is_untouched(fault: &OutgoingFault) -> bool {
    let OutgoingFault::Reset(error) = fault else { return false };
    error.downcast_ref::<h2::Error>().is_some_and(|error| {
        error.is_remote() && (error.reason() == Some(Reason::REFUSED_STREAM) || error.is_go_away())
    })
}

fn in_head(error: h2::Error) -> OutgoingFault {
    from(error, fault::in_head)
}

fn in_body(error: h2::Error) -> OutgoingFault {
    from(error, fault::in_body)
}

fn from(error: h2::Error, of_io: fn(std::io::Error) -> OutgoingFault) -> OutgoingFault {
    if error.is_io() {
        return match error.into_io() {
            Some(error) => of_io(error),
            None => OutgoingFault::Reset("the connection ended".into()),
        };
    }
    match error.is_library() {
        true => OutgoingFault::Protocol(error.into()),
        false => OutgoingFault::Reset(error.into()),
    }
}
