//! A request's body on its way in: takes bytes off the connection while the reader of the body
//! wants some, removes the framing, and knows whether the request has arrived completely.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::admission::Framing;
use super::chunked::{ChunkError, Chunked, Piece};
use crate::fault::BodyFault;
use crate::pipe::Pipe;
use crate::stream::Stream;
use crate::worker::{Buffer, Buffers};

/// The most one piece of a body of known length has.
const PIECE_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Inflow {
    decoder: Decoder,
    pipe: Arc<Pipe>,
    state: State,
    /// The client waits for `100 Continue` before it sends.
    awaits_continue: bool,
}

/// Removes the framing; no I/O.
#[derive(Debug)]
pub(super) enum Decoder {
    Sized(u64),
    Chunked(Chunked),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Received to its last byte.
    Complete,
    /// Cut off or malformed.
    Lost,
}

/// What a look at the body did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The reader has something new: it is to be called again.
    Fed,
    /// `100 Continue` must be sent first.
    Continue,
    /// Nothing to do until the task is woken.
    Waiting,
}

/// What a decoder finds in the bytes at hand.
pub(super) enum Step {
    Piece(Bytes),
    End(Option<HeaderMap>),
    More,
    Broken(BodyFault),
}

impl Inflow {
    pub(crate) fn new(framing: Framing, awaits_continue: bool) -> Inflow {
        let decoder = Decoder::new(framing);
        Inflow { decoder, pipe: Arc::default(), state: State::Open, awaits_continue }
    }

    pub(crate) fn pipe(&self) -> Arc<Pipe> {
        self.pipe.clone()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// The answer has begun: it is too late to invite the body.
    pub(crate) fn answered(&mut self) {
        self.awaits_continue = false;
    }

    /// Gives the reader what it wants, as far as it has arrived.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        held: &mut Option<Box<Buffer>>,
        buffers: &Buffers,
    ) -> Progress {
        while self.state == State::Open && self.pipe.wants(cx) {
            match self.step(held) {
                Step::More => {}
                Step::Piece(piece) => return self.fill(piece, cx),
                Step::End(trailers) => return self.end(State::Complete, Ok(trailers), cx),
                Step::Broken(fault) => return self.end(State::Lost, Err(fault), cx),
            }
            if self.awaits_continue {
                self.awaits_continue = false;
                return Progress::Continue;
            }
            match self.read(cx, stream, held, buffers) {
                Poll::Pending => return Progress::Waiting,
                Poll::Ready(Ok(Some(piece))) => return self.fill(piece, cx),
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Err(_)) => {
                    return self.end(State::Lost, Err(BodyFault::Incomplete), cx);
                }
            }
        }
        Progress::Waiting
    }

    /// Discards what has arrived of a body, unless it is still read.
    pub(crate) fn skip(&mut self, held: &mut Option<Box<Buffer>>) {
        while self.state == State::Open && self.pipe.is_closed() {
            match self.step(held) {
                Step::Piece(_) => {}
                Step::End(_) => self.state = State::Complete,
                Step::More | Step::Broken(_) => return,
            }
        }
    }

    fn fill(&mut self, piece: Bytes, cx: &mut Context<'_>) -> Progress {
        self.pipe.fill(piece, cx);
        if let Decoder::Sized(0) = self.decoder {
            self.end(State::Complete, Ok(None), cx);
        }
        Progress::Fed
    }

    fn end(
        &mut self,
        state: State,
        end: Result<Option<HeaderMap>, BodyFault>,
        cx: &mut Context<'_>,
    ) -> Progress {
        self.state = state;
        self.pipe.finish(end, Some(cx.waker()));
        Progress::Fed
    }

    /// What the bytes already read say.
    fn step(&mut self, held: &mut Option<Box<Buffer>>) -> Step {
        match held {
            None => Step::More,
            Some(buffer) => self.decoder.step(buffer),
        }
    }

    /// Reads more: into the buffer, or straight into a piece where the length is known.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        held: &mut Option<Box<Buffer>>,
        buffers: &Buffers,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if stream.poll_read_ready(cx).is_pending() {
            buffers.shrink(held);
            return Poll::Pending;
        }
        if let Decoder::Sized(left) = &mut self.decoder {
            let room = usize::try_from((*left).min(PIECE_BYTES)).unwrap_or(usize::MAX);
            // Never more than what belongs to this body: what follows is the next request.
            let mut piece = BytesMut::with_capacity(room);
            let mut limited = (&mut *stream).take(room as u64);
            let read = pin!(limited.read_buf(&mut piece)).poll(cx)?;
            return read.map(|count| {
                *left -= count as u64;
                if count == 0 {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(Some(piece.freeze()))
                }
            });
        }
        let buffer = held.get_or_insert_with(|| buffers.take());
        read_into(cx, stream, buffer).map(|read| match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(None),
        })
    }
}

impl Decoder {
    pub(super) fn new(framing: Framing) -> Decoder {
        match framing {
            Framing::Sized(length) => Decoder::Sized(length),
            Framing::Chunked => Decoder::Chunked(Chunked::new()),
        }
    }

    /// Takes the next piece off the buffer.
    pub(super) fn step(&mut self, buffer: &mut Buffer) -> Step {
        let data = buffer.data();
        match self {
            Decoder::Sized(0) => Step::End(None),
            Decoder::Sized(_) if data.is_empty() => Step::More,
            Decoder::Sized(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
                let piece = Bytes::copy_from_slice(&data[..length]);
                buffer.consume(length);
                *left -= length as u64;
                Step::Piece(piece)
            }
            Decoder::Chunked(chunked) => match chunked.next(data) {
                Err(ChunkError::Framing) => Step::Broken(BodyFault::Malformed),
                Err(ChunkError::Trailer) => Step::Broken(BodyFault::ForbiddenTrailer),
                Ok(Piece::More(used)) => {
                    buffer.consume(used);
                    Step::More
                }
                Ok(Piece::Data { skip, length }) => {
                    let piece = Bytes::copy_from_slice(&data[skip..][..length]);
                    buffer.consume(skip + length);
                    Step::Piece(piece)
                }
                Ok(Piece::End { length, trailers }) => {
                    buffer.consume(length);
                    Step::End(trailers)
                }
            },
        }
    }
}

impl Drop for Inflow {
    fn drop(&mut self) {
        if self.state == State::Open {
            // A reader must not wait for a connection that is gone.
            self.pipe.finish(Err(BodyFault::Incomplete), None);
        }
    }
}

/// One read into the buffer's room: so many bytes.
pub(crate) fn read_into(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    buffer: &mut Buffer,
) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(buffer.room());
    let read = Pin::new(stream).poll_read(cx, &mut room)?;
    let count = room.filled().len();
    read.map(|()| {
        buffer.filled(count);
        Ok(count)
    })
}
