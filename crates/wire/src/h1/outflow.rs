//! The answer on its way out: a small one leaves in one write from the worker's own memory, a large
//! one beside its head, a stream piece by piece as fast as the client reads.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::{StatusCode, Version};
use tokio::io::AsyncWrite;

use super::connection::Connection;
use super::encode::{self, After, Length};
use super::inflow::Progress;
use super::watch::Watch;
use crate::budget::Share;
use crate::call;
use crate::exchange::Response;
use crate::fault::Fault;
use crate::fields::{self, has_no_body};
use crate::memory::{self, Key, Network};
use crate::pace::Pace;
use crate::payload::{Chunks, Payload, TakeOver};
use crate::stream::Written;
use crate::worker::Phase;

/// Copying so many bytes behind the head costs less than a second slice for the kernel.
const COPIED_BYTES: usize = 4 * 1024;
/// An answer of so many bytes is not asked for room: most sockets take it at once.
const AT_ONCE_BYTES: usize = 64 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n";

/// What of the request decides about its answer.
#[derive(Clone, Copy)]
pub(super) struct Outgoing {
    pub(super) is_head: bool,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    pub(super) is_safe: bool,
    /// Where the client is.
    pub(super) network: Network,
}

/// Who holds an answer until the client has taken it.
#[derive(Clone, Copy)]
struct Charged {
    key: Key,
    /// Whether it is sent also if there is no room for it: the answer to a write.
    must_be_sent: bool,
}

/// What is left of an answer after the first write.
pub(super) enum Work {
    Nothing,
    /// The client did not take all of it at once.
    Rest(Box<Rest>),
    Stream(Box<Streaming>),
    /// The client is gone.
    Failed,
}

/// Bytes to be written one after the other.
type Parts = [Bytes; 3];

/// What is left of an answer that is there, with the memory it is charged for.
pub(super) struct Rest {
    parts: Parts,
    /// None for what is sent without room for it.
    _share: Option<Share<Key>>,
}

/// A body that is made while it is sent.
pub(super) struct Streaming {
    /// The head, which waits for the first piece if that is there.
    out: Vec<u8>,
    chunks: Box<dyn Chunks>,
    length: Length,
    pace: Pace,
}

/// What follows a complete answer.
pub(super) enum Next {
    Request,
    End,
    /// The service goes on alone.
    TakenOver(TakeOver),
}

/// Why a response was not sent to its end.
#[derive(Clone, Copy)]
pub(super) enum Gone {
    /// The client is gone, or has been too slow for too long. Also if the source of the body broke
    /// off: the framing shows the client that its response is incomplete.
    Client,
    /// The source of the body broke off, and the body ends with the connection: the client must not
    /// take this end for that.
    Source,
}

impl Connection {
    /// Encodes the answer and writes as much as the client takes at once.
    pub(super) fn answer(&mut self, mut response: Response, outgoing: Outgoing) -> (Work, Next) {
        let must_be_sent = call::must_be_sent(&response, outgoing.is_safe);
        if !must_be_sent && !self.has_room(&response, outgoing) {
            response = call::refusal(&self.link.worker, Fault::Overloaded);
        }
        let charged = Charged { key: Key::answer(response.holder, outgoing.network), must_be_sent };
        let length = length(&mut response, outgoing);
        let Response { status, mut headers, body, .. } = response;
        let worker = self.link.worker.clone();
        worker.terms.advertise(&mut headers);
        let keep = outgoing.keep_alive && length != Length::Close && !worker.draining.get();
        let after = match status {
            StatusCode::SWITCHING_PROTOCOLS => After::Upgrade,
            _ if !keep => After::Close,
            _ if outgoing.version == Version::HTTP_10 => After::KeepOld,
            _ => After::Keep,
        };
        let mut out = worker.scratch.take();
        out.clear();
        out.append(&mut self.interim);
        encode::head(&mut out, status, &headers, length, after, &mut worker.date.borrow_mut());
        worker.spare(headers);
        let next = if keep { Next::Request } else { Next::End };
        match body {
            _ if outgoing.is_head => (self.write(out, Bytes::new(), charged), next),
            Payload::TakeOver(run) => {
                (self.write(out, Bytes::new(), charged), Next::TakenOver(run))
            }
            _ if has_no_body(status) => (self.write(out, Bytes::new(), charged), next),
            Payload::Whole(bytes) => (self.write(out, bytes, charged), next),
            Payload::Stream(chunks) => (
                Work::Stream(Box::new(Streaming { out, chunks, length, pace: Pace::default() })),
                next,
            ),
            // Awaited before.
            Payload::Later(_) => (Work::Failed, Next::End),
        }
    }

    /// Does what the first write left.
    pub(super) async fn finish(&mut self, work: Work) -> Result<(), Gone> {
        match work {
            Work::Nothing => Ok(()),
            Work::Failed => Err(Gone::Client),
            // Boxed: room for it must not be kept while the connection lives.
            Work::Rest(rest) => Box::pin(self.write_rest(rest.parts, &mut Pace::default())).await,
            Work::Stream(streaming) => Box::pin(self.stream(streaming)).await,
        }
    }

    /// Writes a head with a body that is there. The head stands in the worker's memory, which goes
    /// back before any wait.
    fn write(&mut self, mut out: Vec<u8>, mut body: Bytes, charged: Charged) -> Work {
        if body.len() <= COPIED_BYTES {
            out.extend_from_slice(&body);
            body = Bytes::new();
        }
        let work = match self.stream.write_now(&out, &body) {
            Err(_) => Work::Failed,
            Ok(Written { count, is_flushed: true }) if count == out.len() + body.len() => {
                Work::Nothing
            }
            Ok(Written { count, .. }) => {
                let rest = Bytes::copy_from_slice(&out[count.min(out.len())..]);
                body.advance(count.saturating_sub(out.len()));
                self.rest([rest, body, Bytes::new()], charged)
            }
        };
        self.link.worker.scratch.set(out);
        work
    }

    /// Whether so much more may be held for the client. What the socket takes at once is not held.
    fn has_room(&self, response: &Response, outgoing: Outgoing) -> bool {
        match &response.body {
            Payload::Whole(bytes) if bytes.len() > AT_ONCE_BYTES => {
                let budget = &self.link.worker.shared.memory;
                let key = Key::answer(response.holder, outgoing.network);
                memory::has_room(budget, key, bytes.len())
            }
            _ => true,
        }
    }

    /// What waits for the client is charged.
    fn rest(&self, parts: Parts, charged: Charged) -> Work {
        let bytes = parts.iter().map(Bytes::len).sum();
        let share = memory::share(&self.link.worker.shared.memory, charged.key, bytes);
        match share.is_some() || charged.must_be_sent {
            true => Work::Rest(Box::new(Rest { parts, _share: share })),
            false => Work::Failed,
        }
    }

    /// Writes all of it, as fast as the client reads, if that is fast enough.
    async fn write_rest(&mut self, mut parts: Parts, pace: &mut Pace) -> Result<(), Gone> {
        self.link.enter(Phase::Writing);
        let mut waiting_since = None;
        let written = poll_fn(|cx| {
            while parts.iter().any(|part| !part.is_empty()) {
                if self.link.overdue() {
                    return Poll::Ready(Err(Gone::Client));
                }
                // A client that sends before it reads must get rid of what it sends.
                while self.poll_feed(cx) == Progress::Fed {}
                let slices = [&parts[0], &parts[1], &parts[2]].map(|part| IoSlice::new(part));
                let stream = Pin::new(&mut self.stream);
                let worker = &self.link.worker;
                let Poll::Ready(written) = stream.poll_write_vectored(cx, &slices) else {
                    waiting_since.get_or_insert(worker.tick.get());
                    return Poll::Pending;
                };
                let mut count = written.map_err(|_| Gone::Client)?;
                let waited = waiting_since.take().map(|since| worker.elapsed(since));
                let (waited, limits) = (waited.unwrap_or_default(), &worker.limits);
                if !pace.keeps(waited, count, limits.write_stall, limits.floor_bytes) {
                    return Poll::Ready(Err(Gone::Client));
                }
                for part in parts.iter_mut() {
                    let taken = count.min(part.len());
                    part.advance(taken);
                    count -= taken;
                }
                self.link.enter(Phase::Writing);
            }
            self.poll_flush(cx)
        })
        .await;
        self.link.enter(Phase::Answering);
        written
    }

    /// Under TLS what is written is not yet sent.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if self.link.overdue() {
            return Poll::Ready(Err(Gone::Client));
        }
        while self.poll_feed(cx) == Progress::Fed {}
        Pin::new(&mut self.stream).poll_flush(cx).map_err(|_| Gone::Client)
    }

    /// Writes a small piece at once, from the worker's own memory: a stream of small pieces costs
    /// one plain write for each. Returns what the client did not take, or none.
    fn write_piece(
        &mut self,
        streaming: &mut Streaming,
        piece: Bytes,
    ) -> Result<Option<Parts>, Gone> {
        if piece.len() > COPIED_BYTES {
            return Ok(Some(streaming.frame(piece)));
        }
        let worker = &self.link.worker;
        let mut out = std::mem::take(&mut streaming.out);
        if out.is_empty() {
            out = worker.scratch.take();
            out.clear();
        }
        streaming.append(&mut out, &piece);
        let rest = match self.stream.write_now(&out, &[]) {
            Err(_) => Err(Gone::Client),
            Ok(Written { count, is_flushed }) => {
                let (window, floor_bytes) = (worker.limits.write_stall, worker.limits.floor_bytes);
                streaming.pace.keeps(Duration::ZERO, count, window, floor_bytes);
                let is_sent = is_flushed && count == out.len();
                let rest = || [Bytes::copy_from_slice(&out[count..]), Bytes::new(), Bytes::new()];
                Ok((!is_sent).then(rest))
            }
        };
        worker.scratch.set(out);
        rest
    }

    async fn stream(&mut self, mut streaming: Box<Streaming>) -> Result<(), Gone> {
        let mut left = match streaming.length {
            Length::Bytes(bytes) => bytes,
            _ => u64::MAX,
        };
        let mut watch = Watch::default();
        loop {
            let step = poll_fn(|cx| {
                loop {
                    if let Poll::Ready(piece) = streaming.chunks.poll_chunk(cx) {
                        return Poll::Ready(Ok(Some(piece)));
                    }
                    if !streaming.out.is_empty() {
                        return Poll::Ready(Ok(None));
                    }
                    if self.poll_feed(cx) != Progress::Fed {
                        return self.poll_left(cx, &mut watch).map(|()| Err(Gone::Client));
                    }
                }
            });
            let parts = match step.await? {
                None => streaming.frame(Bytes::new()),
                Some(Some(Ok(piece))) => {
                    // More than was declared is as wrong as less.
                    left = left.checked_sub(piece.len() as u64).ok_or(Gone::Client)?;
                    match self.write_piece(&mut streaming, piece)? {
                        Some(parts) => parts,
                        None => {
                            watch.progress();
                            continue;
                        }
                    }
                }
                Some(None) if matches!(streaming.length, Length::Bytes(_)) && left > 0 => {
                    return Err(Gone::Client);
                }
                Some(None) => {
                    let (parts, mut pace) = streaming.end();
                    return self.write_rest(parts, &mut pace).await;
                }
                Some(Some(Err(_))) => {
                    tracing::debug!("the source of an answer broke off");
                    return Err(match streaming.length {
                        Length::Close => Gone::Source,
                        _ => Gone::Client,
                    });
                }
            };
            self.write_rest(parts, &mut streaming.pace).await?;
            watch.progress();
        }
    }
}

impl Streaming {
    /// A piece, behind what waits to be written and in the frame of a chunk.
    fn frame(&mut self, piece: Bytes) -> Parts {
        let mut tail = Bytes::new();
        if self.length == Length::Chunked && !piece.is_empty() {
            encode::chunk_size(&mut self.out, piece.len());
            tail = Bytes::from_static(b"\r\n");
        }
        [std::mem::take(&mut self.out).into(), piece, tail]
    }

    /// The same, all in one place.
    fn append(&self, out: &mut Vec<u8>, piece: &[u8]) {
        match self.length == Length::Chunked && !piece.is_empty() {
            true => {
                encode::chunk_size(out, piece.len());
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
            }
            false => out.extend_from_slice(piece),
        }
    }

    fn end(mut self) -> (Parts, Pace) {
        if self.length == Length::Chunked {
            self.out.extend_from_slice(LAST_CHUNK);
            let mut trailers = self.chunks.trailers().unwrap_or_default();
            fields::strip_trailers(&mut trailers);
            encode::fields(&mut self.out, &trailers);
        }
        ([self.out.into(), Bytes::new(), Bytes::new()], self.pace)
    }
}

/// How the client learns where this response ends.
fn length(response: &mut Response, outgoing: Outgoing) -> Length {
    let Response { status, headers, body, .. } = response;
    match fields::response_length(*status, headers, body, outgoing.is_head) {
        fields::Length::NoBody => {
            headers.remove(CONTENT_LENGTH);
            Length::None
        }
        fields::Length::AsSaid => Length::None,
        fields::Length::Bytes(bytes) => Length::Bytes(bytes),
        fields::Length::Unknown if matches!(body, Payload::TakeOver(_)) => Length::Close,
        fields::Length::Unknown if outgoing.version == Version::HTTP_10 => Length::Close,
        fields::Length::Unknown => Length::Chunked,
    }
}
