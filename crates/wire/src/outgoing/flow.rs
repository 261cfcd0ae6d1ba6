//! The body of a response, taken from its connection as fast as it is read. The connection goes
//! back to the pool at the end of the body, and is closed if anything else happens. What is left of
//! the request is sent in the meantime.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;

use super::backlog::Place;
use super::exchange::{Exchange, READ_BYTES};
use super::fault::{self, OutgoingFault, Stage};
use super::multiplex::{self, Download};
use super::response::{Framing, Head};
use super::upload::Waiting;
use super::{Key, Shared, sweep};
use crate::h1::chunked::{Chunked, Piece};
use crate::payload::{Chunks, Cut, Payload};

/// The most one piece of a body has.
const PIECE_BYTES: usize = 64 * 1024;
/// Chunks that are here together are joined up to this size: each piece is a write to the client.
const JOINED_BYTES: usize = 16 * 1024;

/// A connection is not used in the last part of the time that its server keeps it.
const REST_MARGIN: Duration = Duration::from_secs(1);

/// The body of a response. Dropped before its end, it closes the connection.
#[derive(Debug)]
pub struct Flow(State);

#[derive(Debug)]
enum State {
    /// All of it is here.
    Whole(Bytes),
    Stream(Box<Stream>),
    /// On HTTP/2.
    Multiplexed(Box<Multiplexed>),
    /// `known`: the length of nothing is known, unlike after `HEAD`.
    Ended {
        known: bool,
        trailers: Option<Box<HeaderMap>>,
    },
}

#[derive(Debug)]
struct Stream {
    exchange: Exchange,
    decoder: Decoder,
    home: Home,
    length_bytes: Option<u64>,
    /// What came with the head.
    first: Bytes,
    /// The size of the next read: it grows while reads fill it.
    room: usize,
    /// What is waited for, and what was sent by then; none after each piece.
    stage: Option<(Waiting, u64)>,
}

#[derive(Debug)]
struct Multiplexed {
    download: Download,
    _place: Option<Place>,
}

#[derive(Debug)]
enum Decoder {
    Sized(u64),
    Chunked(Chunked),
    Close,
    /// The end was seen behind the last piece.
    Ended(Option<HeaderMap>),
}

/// Where a connection belongs, and whether it may go there.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) place: Option<Place>,
    pub(super) keep_alive: bool,
    /// So long the server keeps a connection without a request.
    pub(super) rest: Option<Duration>,
}

/// What the bytes at hand are.
enum Step {
    Piece(Bytes),
    End(Option<HeaderMap>),
    More,
}

impl Flow {
    /// The body behind this head.
    pub(super) fn new(
        mut exchange: Exchange,
        head: &Head,
        mut home: Home,
        is_head: bool,
    ) -> Result<Flow, OutgoingFault> {
        home.keep_alive = head.keep_alive && !head.tainted;
        home.rest = head.rest;
        let (mut decoder, length_bytes) = match head.framing {
            Framing::None => {
                home.give(exchange);
                // Nobody knows how long the body would be, unless the head says.
                let known = !is_head || head.headers.contains_key(CONTENT_LENGTH);
                return Ok(Flow(State::Ended { known, trailers: None }));
            }
            Framing::Sized(length) => (Decoder::Sized(length), Some(length)),
            Framing::Chunked => (Decoder::Chunked(Chunked::of_response()), None),
            Framing::Close => (Decoder::Close, None),
        };
        // Most bodies are small and have come with their heads.
        let first = match decoder.step(&mut exchange.connection.incoming)? {
            Step::Piece(piece) => piece,
            Step::End(None) => Bytes::new(),
            Step::End(trailers) => {
                decoder = Decoder::Ended(trailers);
                Bytes::new()
            }
            Step::More => Bytes::new(),
        };
        if let Decoder::Sized(0) | Decoder::Ended(None) = decoder {
            home.give(exchange);
            return Ok(Flow(State::Whole(first)));
        }
        let stream =
            Stream { exchange, decoder, home, length_bytes, first, room: READ_BYTES, stage: None };
        Ok(Flow(State::Stream(Box::new(stream))))
    }

    /// The body behind this head, on HTTP/2.
    pub(super) fn multiplexed(
        download: Download,
        place: Option<Place>,
        headers: &HeaderMap,
        is_head: bool,
    ) -> Flow {
        if download.is_over() {
            let known = !is_head || headers.contains_key(CONTENT_LENGTH);
            return Flow(State::Ended { known, trailers: None });
        }
        Flow(State::Multiplexed(Box::new(Multiplexed { download, _place: place })))
    }

    /// Without a body.
    pub(super) fn empty() -> Flow {
        Flow(State::Ended { known: true, trailers: None })
    }

    /// The body as the server sends it on: whole if it is here, so that it leaves with its head.
    pub fn into_payload(self) -> Payload {
        match self.0 {
            State::Whole(bytes) => Payload::Whole(bytes),
            State::Ended { known: true, trailers: None } => Payload::default(),
            state => Payload::Stream(Box::new(Flow(state))),
        }
    }

    /// The longest pause between two pieces from now on, instead of `CallTimeouts::stall`: how long
    /// a stream may be silent is known when its head is here.
    pub fn set_stall(&mut self, stall: Duration) {
        match &mut self.0 {
            State::Stream(stream) => {
                stream.exchange.timeouts.stall = stall;
                stream.stage = None;
            }
            State::Multiplexed(body) => body.download.set_stall(stall),
            State::Whole(_) | State::Ended { .. } => {}
        }
    }

    /// The next piece, or none at the end.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, OutgoingFault>>> {
        let stream = match &mut self.0 {
            State::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = State::Ended { known: true, trailers: None };
                return Poll::Ready(Some(bytes).filter(|bytes| !bytes.is_empty()).map(Ok));
            }
            State::Ended { .. } => return Poll::Ready(None),
            State::Multiplexed(body) => {
                let step = ready!(body.download.poll(cx));
                return self.multiplexed_step(step);
            }
            State::Stream(stream) => stream,
        };
        let outcome = match ready!(stream.poll(cx)) {
            Ok(Step::Piece(piece)) => return Poll::Ready(Some(Ok(piece))),
            Ok(Step::End(trailers)) => Ok(trailers),
            Ok(Step::More) => Ok(None),
            Err(fault) => Err(fault),
        };
        let ended = State::Ended { known: true, trailers: None };
        let State::Stream(stream) = std::mem::replace(&mut self.0, ended) else {
            return Poll::Ready(None);
        };
        match outcome {
            Ok(trailers) => {
                stream.home.give(stream.exchange);
                let trailers = trailers.filter(|trailers| !trailers.is_empty()).map(Box::new);
                self.0 = State::Ended { known: true, trailers };
                Poll::Ready(None)
            }
            Err(fault) => Poll::Ready(Some(Err(fault))),
        }
    }

    fn multiplexed_step(
        &mut self,
        step: Result<multiplex::Step, OutgoingFault>,
    ) -> Poll<Option<Result<Bytes, OutgoingFault>>> {
        let (trailers, outcome) = match step {
            Ok(multiplex::Step::Piece(piece)) => return Poll::Ready(Some(Ok(piece))),
            Ok(multiplex::Step::End(trailers)) => (trailers, None),
            Err(fault) => (None, Some(Err(fault))),
        };
        let trailers = trailers.filter(|trailers| !trailers.is_empty()).map(Box::new);
        self.0 = State::Ended { known: true, trailers };
        Poll::Ready(outcome)
    }

    /// The next piece, or none at the end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, OutgoingFault>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// The fields behind the body, once it was read to its end.
    pub fn trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.0 {
            State::Ended { trailers, .. } => trailers.take().map(|trailers| *trailers),
            State::Whole(_) | State::Stream(_) | State::Multiplexed(_) => None,
        }
    }

    /// The length of the whole body, where it is known before.
    pub fn length_bytes(&self) -> Option<u64> {
        match &self.0 {
            State::Whole(bytes) => Some(bytes.len() as u64),
            State::Stream(stream) => stream.length_bytes,
            State::Multiplexed(body) => body.download.length_bytes,
            State::Ended { known, .. } => known.then_some(0),
        }
    }

    /// Whether bytes are known to follow, without waiting for them.
    pub(super) fn has_more(&self) -> bool {
        match &self.0 {
            State::Whole(bytes) => !bytes.is_empty(),
            State::Stream(stream) => matches!(stream.decoder, Decoder::Sized(1..)),
            State::Multiplexed(_) | State::Ended { .. } => false,
        }
    }

    /// The whole body, if it has no more than so many bytes.
    pub async fn collect(mut self, max_bytes: usize) -> Result<Bytes, OutgoingFault> {
        if self.length_bytes().is_some_and(|length| length > max_bytes as u64) {
            return Err(OutgoingFault::TooLarge);
        }
        let mut joined = BytesMut::new();
        while let Some(piece) = self.piece().await {
            let piece = piece?;
            if joined.len() + piece.len() > max_bytes {
                return Err(OutgoingFault::TooLarge);
            }
            joined.extend_from_slice(&piece);
        }
        Ok(joined.freeze())
    }
}

impl Chunks for Flow {
    fn length_bytes(&self) -> Option<u64> {
        Flow::length_bytes(self)
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let piece = ready!(self.poll_piece(cx));
        Poll::Ready(piece.map(|piece| {
            piece.map_err(|fault| {
                tracing::debug!(%fault, "the body of a response broke off");
                Cut
            })
        }))
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        Flow::trailers(self)
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, OutgoingFault>> {
        if !self.first.is_empty() {
            return Poll::Ready(Ok(Step::Piece(std::mem::take(&mut self.first))));
        }
        let waiting = self.exchange.poll_upload(cx)?;
        loop {
            match self.decoder.step(&mut self.exchange.connection.incoming)? {
                Step::More => {}
                step => {
                    self.stage = None;
                    return Poll::Ready(Ok(step));
                }
            }
            let most = match &self.decoder {
                Decoder::Sized(left) => usize::try_from(*left).unwrap_or(usize::MAX),
                _ => PIECE_BYTES,
            };
            let room = self.room.min(most).max(1);
            match self.exchange.connection.poll_fill(cx, room) {
                Poll::Ready(Ok(0)) => return Poll::Ready(self.decoder.at_end()),
                Poll::Ready(Ok(count)) if count >= room => {
                    self.room = (self.room * 4).min(PIECE_BYTES);
                }
                Poll::Ready(Ok(count)) if count < room / 4 => self.room = READ_BYTES,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(fault::in_body(error))),
                Poll::Pending => break,
            }
        }
        self.rest();
        self.poll_clock(cx, waiting).map(|()| Err(OutgoingFault::Timeout(Stage::Body)))
    }

    /// Before a wait: a stream in which little happens holds no buffer while nothing does.
    fn rest(&mut self) {
        let incoming = &mut self.exchange.connection.incoming;
        if incoming.is_empty() && self.room == READ_BYTES && incoming.capacity() > 0 {
            *incoming = BytesMut::new();
        }
    }

    /// Ready when the server has been silent for too long.
    fn poll_clock(&mut self, cx: &mut Context<'_>, waiting: Waiting) -> Poll<()> {
        let Exchange { connection, upload, timeouts, .. } = &mut self.exchange;
        let stage = (waiting, upload.sent_bytes());
        if self.stage.replace(stage) != Some(stage) {
            // While the client sends, the server may have nothing to say.
            let stall = (waiting != Waiting::Body).then_some(timeouts.stall);
            connection.clock.set(stall, timeouts.deadline);
        }
        connection.clock.poll(cx)
    }
}

impl Decoder {
    fn step(&mut self, incoming: &mut BytesMut) -> Result<Step, OutgoingFault> {
        match self {
            Decoder::Sized(0) => Ok(Step::End(None)),
            Decoder::Ended(trailers) => Ok(Step::End(trailers.take())),
            _ if incoming.is_empty() => Ok(Step::More),
            Decoder::Sized(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(incoming.len());
                *left -= length as u64;
                Ok(Step::Piece(incoming.split_to(length).freeze()))
            }
            Decoder::Close => Ok(Step::Piece(incoming.split().freeze())),
            Decoder::Chunked(chunked) => {
                let (piece, end) = joined(chunked, incoming)?;
                if let Some(trailers) = end {
                    *self = Decoder::Ended(trailers.filter(|trailers| !trailers.is_empty()));
                }
                match (piece, self) {
                    (Some(piece), _) => Ok(Step::Piece(piece)),
                    (None, Decoder::Ended(trailers)) => Ok(Step::End(trailers.take())),
                    (None, _) => Ok(Step::More),
                }
            }
        }
    }

    /// The connection has ended.
    fn at_end(&self) -> Result<Step, OutgoingFault> {
        match self {
            Decoder::Close | Decoder::Ended(_) => Ok(Step::End(None)),
            Decoder::Sized(_) | Decoder::Chunked(_) => {
                Err(fault::in_body(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }
}

/// What a look at the chunks that are here found: their bytes, and the end with its trailers.
type Found = (Option<Bytes>, Option<Option<HeaderMap>>);

/// The next chunk. Small ones that are here together are one piece.
fn joined(chunked: &mut Chunked, incoming: &mut BytesMut) -> Result<Found, OutgoingFault> {
    let mut first = None;
    let mut more = BytesMut::new();
    let end = loop {
        let piece = chunked.next(incoming);
        let invalid = |_| OutgoingFault::Protocol("its chunks are not valid".into());
        match piece.map_err(invalid)? {
            Piece::Data { skip, length } => {
                incoming.advance(skip);
                let data = incoming.split_to(length).freeze();
                match &first {
                    None => first = Some(data),
                    Some(first) => {
                        if more.is_empty() {
                            more.extend_from_slice(first);
                        }
                        more.extend_from_slice(&data);
                    }
                }
                if first.as_ref().is_some_and(|first| first.len() + more.len() > JOINED_BYTES) {
                    break None;
                }
            }
            Piece::End { length, trailers } => {
                incoming.advance(length);
                break Some(trailers);
            }
            Piece::More(used) => {
                incoming.advance(used);
                break None;
            }
        }
    };
    Ok((if more.is_empty() { first } else { Some(more.freeze()) }, end))
}

impl Home {
    /// Takes a connection back whose exchange is over, if it can carry another one.
    pub(super) fn give(self, exchange: Exchange) {
        let Exchange { mut connection, upload, .. } = exchange;
        let now = Instant::now();
        let young = now < connection.opened + self.shared.limits.connection_age;
        // A request must not meet the server as it lets go.
        let rest = self.rest.map(|rest| rest.saturating_sub(REST_MARGIN));
        connection.expires = rest.and_then(|rest| now.checked_add(rest));
        // Half a request is on its way, and what follows it would be taken for its rest.
        if self.keep_alive && upload.is_sent() && young && connection.is_ready() {
            connection.rest();
            self.shared.pool.give(self.key, connection, now);
            sweep::ensure(&self.shared);
        }
    }
}
