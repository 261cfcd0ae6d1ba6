//! What a client sends on the stream of a request: frames become a head, pieces of a body and
//! trailers. Only a head is ever held, and only up to the limit; a body is taken from QUIC when it
//! is wanted, which holds no more than its window.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use quinn::{Connection, RecvStream, VarInt};

use super::frames::{self, Code};
use super::message;
use super::window::Window;
use crate::body::Incoming;
use crate::fault::BodyFault;
use crate::memory::Key;

/// The most of a body that is taken from QUIC in one piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Why there is nothing more to be had of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client took it back, or is gone, or has broken the protocol and with it the connection.
    Gone,
    /// It ended before there was a whole head.
    Incomplete,
    /// The head, or the trailers, are larger than the limit.
    TooLarge,
    /// Trailers that are none, or a body not as long as it was said to be.
    Malformed,
}

/// Which frames may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    Body,
    /// Behind the trailers.
    End,
}

#[derive(Debug)]
pub(crate) struct Inflow {
    connection: Connection,
    stream: Stream,
    place: Place,
    header_bytes: usize,
    /// The beginning of a frame's head.
    frame_head: ([u8; frames::HEAD_BYTES], usize),
    /// Of the frame's payload, so much has not come or not been looked at.
    data_left: u64,
    skip_left: u64,
    /// A block of fields that is coming, with the length it will have.
    block: Option<(BytesMut, usize)>,
    declared_bytes: Option<u64>,
    received_bytes: u64,
    trailers: Option<HeaderMap>,
}

/// The stream and what was read of it and not used.
#[derive(Debug)]
struct Stream {
    /// None once it was given back.
    receiving: Option<RecvStream>,
    leftover: Arc<Leftover>,
    held: Bytes,
    ended: bool,
}

/// The stream of a request that is no longer read. It is stopped only when the response is
/// complete: some clients take an earlier stop for a refusal.
#[derive(Debug, Default)]
pub(super) struct Leftover(Mutex<Left>);

#[derive(Debug, Default)]
struct Left {
    stream: Option<RecvStream>,
    /// What the client may send on it; none once it has sent all.
    window: Option<Window>,
}

impl Leftover {
    pub(super) fn keep(&self, window: Window) {
        self.lock().window = Some(window);
    }

    fn charge_to(&self, key: Key) -> bool {
        self.lock().window.as_mut().is_none_or(|window| window.charge_to(key))
    }

    /// Nothing more can come, or nothing of it is held for long.
    pub(super) fn release(&self) {
        self.lock().window = None;
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.lock().stream {
            let _ = stream.stop(Code::NO_ERROR);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut left = self.leftover.lock();
        left.stream = self.receiving.take().filter(|_| !self.ended);
        if left.stream.is_none() {
            left.window = None;
        }
    }
}

impl Stream {
    /// Ready with bytes held, or at the end without.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        while self.held.is_empty() && !self.ended {
            let Some(receiving) = &mut self.receiving else { return Poll::Ready(Err(End::Gone)) };
            let chunk = ready!(pin!(receiving.read_chunk(PIECE_BYTES, true)).poll(cx));
            match chunk.map_err(|_| End::Gone)? {
                Some(chunk) => self.held = chunk.bytes,
                None => {
                    self.ended = true;
                    self.leftover.release();
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, limit: u64) -> Bytes {
        let count = usize::try_from(limit).unwrap_or(usize::MAX).min(self.held.len());
        self.held.split_to(count)
    }
}

impl Inflow {
    /// `header_bytes` bounds each block of fields.
    pub(super) fn new(
        connection: Connection,
        receiving: RecvStream,
        header_bytes: usize,
    ) -> Inflow {
        let stream = Stream {
            receiving: Some(receiving),
            leftover: Arc::default(),
            held: Bytes::new(),
            ended: false,
        };
        Inflow {
            connection,
            stream,
            place: Place::Head,
            header_bytes,
            frame_head: ([0; frames::HEAD_BYTES], 0),
            data_left: 0,
            skip_left: 0,
            block: None,
            declared_bytes: None,
            received_bytes: 0,
            trailers: None,
        }
    }

    /// Charges what the client may send to this holder, if that has room.
    /// Kept until the answer is complete.
    pub(super) fn leftover(&self) -> Arc<Leftover> {
        self.stream.leftover.clone()
    }

    /// Nothing more of it is wanted, and the client shall know.
    pub(super) fn stop(&mut self, code: VarInt) {
        if let Some(receiving) = &mut self.stream.receiving {
            let _ = receiving.stop(code);
        }
        self.stream.ended = true;
    }

    /// What of a head is held here.
    pub(super) fn held_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |(block, _)| block.capacity())
    }

    /// The head's block of fields.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, End>> {
        match ready!(self.poll_frame(cx))? {
            Frame::Fields(block) => {
                self.place = Place::Body;
                Poll::Ready(Ok(block))
            }
            Frame::Data => Poll::Ready(Err(self.fail(Code::FRAME_UNEXPECTED))),
            Frame::End => Poll::Ready(Err(End::Incomplete)),
        }
    }

    /// From here on it is held to the declared length. Says whether there is no body, as far as it
    /// can be known without waiting.
    pub(super) async fn is_bodiless(&mut self, declared_bytes: Option<u64>) -> Result<bool, End> {
        self.declared_bytes = declared_bytes;
        poll_fn(|cx| match self.stream.poll_more(cx) {
            Poll::Ready(Ok(())) => {
                let bodiless = self.stream.held.is_empty();
                if bodiless && declared_bytes.is_some_and(|declared| declared > 0) {
                    return Poll::Ready(Err(End::Malformed));
                }
                Poll::Ready(Ok(bodiless))
            }
            Poll::Ready(Err(end)) => Poll::Ready(Err(end)),
            Poll::Pending => Poll::Ready(Ok(false)),
        })
        .await
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, End>> {
        while self.data_left == 0 {
            match ready!(self.poll_frame(cx))? {
                Frame::Data => {}
                Frame::Fields(block) => {
                    self.place = Place::End;
                    self.trailers = Some(self.read_trailers(block)?);
                }
                Frame::End => {
                    let kept = self.declared_bytes.is_none_or(|bytes| bytes == self.received_bytes);
                    return Poll::Ready(if kept { Ok(None) } else { Err(End::Malformed) });
                }
            }
        }
        ready!(self.stream.poll_more(cx))?;
        if self.stream.held.is_empty() {
            return Poll::Ready(Err(self.fail(Code::FRAME_ERROR)));
        }
        let piece = self.stream.take(self.data_left);
        self.data_left -= piece.len() as u64;
        self.received_bytes += piece.len() as u64;
        if self.declared_bytes.is_some_and(|declared| self.received_bytes > declared) {
            return Poll::Ready(Err(End::Malformed));
        }
        Poll::Ready(Ok(Some(piece)))
    }

    fn read_trailers(&mut self, block: Bytes) -> Result<HeaderMap, End> {
        message::trailers(block, self.header_bytes).map_err(|refusal| match refusal {
            message::Refusal::Unreadable => self.fail(Code::DECOMPRESSION_FAILED),
            message::Refusal::Malformed => End::Malformed,
            message::Refusal::TooLarge => End::TooLarge,
        })
    }

    /// The next frame that means something here.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, End>> {
        loop {
            if self.block.is_some() {
                return self.poll_block(cx).map_ok(Frame::Fields);
            }
            ready!(self.stream.poll_more(cx))?;
            if self.stream.held.is_empty() {
                let complete = self.frame_head.1 == 0 && self.skip_left == 0;
                return Poll::Ready(match complete {
                    true => Ok(Frame::End),
                    false => Err(self.fail(Code::FRAME_ERROR)),
                });
            }
            if self.skip_left > 0 {
                self.skip_left -= self.stream.take(self.skip_left).len() as u64;
                continue;
            }
            if let Some((kind, length)) = self.frame_begins()
                && self.enter(kind, length)?
            {
                return Poll::Ready(Ok(Frame::Data));
            }
        }
    }

    /// Takes bytes of a frame's head, as far as they are there.
    fn frame_begins(&mut self) -> Option<(u64, u64)> {
        let (bytes, count) = &mut self.frame_head;
        while !self.stream.held.is_empty() {
            bytes[*count] = self.stream.held.get_u8();
            *count += 1;
            if let Some(head) = frames::head(&bytes[..*count]) {
                *count = 0;
                return Some(head);
            }
        }
        None
    }

    /// Whether a piece of the body begins.
    fn enter(&mut self, kind: u64, length: u64) -> Result<bool, End> {
        match (kind, self.place) {
            (frames::DATA, Place::Head | Place::Body) => {
                self.data_left = length;
                return Ok(true);
            }
            (frames::HEADERS, Place::Head | Place::Body) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > self.header_bytes {
                    return Err(End::TooLarge);
                }
                self.block = Some((BytesMut::new(), length));
            }
            (kind, _) if frames::is_known(kind) => return Err(self.fail(Code::FRAME_UNEXPECTED)),
            _ => self.skip_left = length,
        }
        Ok(false)
    }

    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, End>> {
        while let Some((block, length)) = &mut self.block {
            if *length == block.len() {
                let block = std::mem::take(block).freeze();
                self.block = None;
                return Poll::Ready(Ok(block));
            }
            ready!(self.stream.poll_more(cx))?;
            if self.stream.held.is_empty() {
                break;
            }
            let left = *length - block.len();
            if block.is_empty() && self.stream.held.len() >= left {
                // The usual head is one piece, passed on without a copy.
                self.block = None;
                return Poll::Ready(Ok(self.stream.held.split_to(left)));
            }
            block.extend_from_slice(&self.stream.take(left as u64));
        }
        Poll::Ready(Err(self.fail(Code::FRAME_ERROR)))
    }

    /// The client has broken the protocol: that ends the connection.
    fn fail(&self, code: VarInt) -> End {
        self.connection.close(code, b"");
        End::Gone
    }
}

enum Frame {
    Fields(Bytes),
    /// The body goes on; `data_left` says how far.
    Data,
    End,
}

impl Incoming for Inflow {
    /// The next piece of the body, or none behind it.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        Poll::Ready(match ready!(self.poll_piece(cx)) {
            Ok(piece) => Ok(piece),
            Err(End::Malformed | End::TooLarge) => {
                self.stop(Code::MESSAGE_ERROR);
                Err(BodyFault::Malformed)
            }
            Err(End::Gone | End::Incomplete) => Err(BodyFault::Incomplete),
        })
    }

    fn poll_trailers(&mut self, _: &mut Context<'_>) -> Poll<Option<HeaderMap>> {
        Poll::Ready(self.trailers.take())
    }

    fn charge_to(&self, key: Key) -> bool {
        self.stream.leftover.charge_to(key)
    }
}
