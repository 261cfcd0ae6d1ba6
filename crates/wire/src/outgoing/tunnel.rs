//! A connection after 101: bytes both ways, no longer HTTP.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::backlog::Place;
use super::clock::Clock;
use super::transport::Transport;
use crate::channel::pour;
use crate::raw::Raw;

/// One read of a tunnel that is relayed. Held only while bytes of it wait to be written.
const RELAY_BYTES: usize = 16 * 1024;

/// Once one side has ended, the other may be silent for no longer than this: it has nothing to wait
/// for, and its peer may be gone.
const HALF_CLOSED_IDLE: Duration = Duration::from_secs(10);

/// The byte stream that a server has agreed to. Dropped, it is closed.
#[derive(Debug)]
pub struct Tunnel {
    stream: Transport,
    /// What came together with the 101.
    before: Bytes,
    _place: Option<Place>,
}

/// What a relay has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// From the client to the server.
    pub up_bytes: u64,
    /// From the server to the client.
    pub down_bytes: u64,
    /// Whether both sides have ended, neither by a reset nor by silence.
    pub complete: bool,
}

impl Tunnel {
    pub(super) fn new(stream: Transport, before: Bytes, place: Option<Place>) -> Tunnel {
        Tunnel { stream, before, _place: place }
    }

    /// Carries bytes between a client's connection and the server, until both have ended, one of
    /// them is gone, or nothing was sent for `idle`; for less after one side has ended. Holds no
    /// buffer while nothing happens.
    pub async fn relay(mut self, mut raw: Raw, idle: Duration) -> Relayed {
        let (mut up, mut down) = (Half::default(), Half::default());
        let mut clock = Clock::default();
        clock.set(Some(idle), None);
        let mut before = (0, false);
        let complete = poll_fn(|cx| {
            let first = up.poll(cx, &mut raw, &mut self);
            let second = down.poll(cx, &mut self, &mut raw);
            match (first, second) {
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(true),
                (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(false),
                _ => {}
            }
            let now = (up.bytes + down.bytes, up.done || down.done);
            if std::mem::replace(&mut before, now) != now {
                let is_half_closed = now.1;
                let idle = if is_half_closed { idle.min(HALF_CLOSED_IDLE) } else { idle };
                clock.set(Some(idle), None);
            }
            clock.poll(cx).map(|()| false)
        })
        .await;
        Relayed { up_bytes: up.bytes, down_bytes: down.bytes, complete }
    }
}

/// A stream that can be waited for without a buffer.
trait Readable: AsyncRead + Unpin {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Readable for Raw {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Raw::poll_readable(self, cx)
    }
}

impl Readable for Tunnel {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.before.is_empty() {
            true => self.stream.poll_read_ready(cx),
            false => Poll::Ready(Ok(())),
        }
    }
}

/// One direction.
#[derive(Default)]
struct Half {
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// The source has ended; then also the sink was told.
    ended: bool,
    done: bool,
    bytes: u64,
}

impl Half {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl Readable,
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while !self.done {
            if self.at < self.end {
                let count =
                    ready!(Pin::new(&mut *sink).poll_write(cx, &self.buffer[self.at..self.end]))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.at += count;
                self.bytes += count as u64;
                continue;
            }
            if self.ended {
                ready!(Pin::new(&mut *sink).poll_shutdown(cx))?;
                self.done = true;
                continue;
            }
            if source.poll_readable(cx)?.is_pending() {
                self.buffer = Vec::new();
                let _ = Pin::new(&mut *sink).poll_flush(cx)?;
                return Poll::Pending;
            }
            self.buffer.resize(RELAY_BYTES, 0);
            let mut room = ReadBuf::new(&mut self.buffer);
            match Pin::new(&mut *source).poll_read(cx, &mut room)? {
                Poll::Pending => {
                    self.buffer = Vec::new();
                    let _ = Pin::new(&mut *sink).poll_flush(cx)?;
                    return Poll::Pending;
                }
                Poll::Ready(()) => {
                    (self.at, self.end) = (0, room.filled().len());
                    self.ended = self.end == 0;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            pour(&mut self.before, buffer);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
