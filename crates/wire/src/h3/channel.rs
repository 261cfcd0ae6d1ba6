//! A stream handed over to the service, as bytes both ways: what `Raw` is on a connection of its
//! own. It holds no buffer while nothing happens.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames;
use super::inflow::{Inflow, Leftover};
use super::outflow::{Broken, Outlet, Stopped};
use crate::body::BodyFault;

/// The most that one frame holds.
const FRAME_BYTES: usize = 64 * 1024;

/// Behind a lock that nobody ever waits for: whether there is something to read is asked by shared
/// reference.
pub(crate) struct Channel(Mutex<Ends>);

struct Ends {
    outlet: Outlet,
    /// Of the frame that was begun, the head as far as it has not left, and how much must follow.
    frame_head: Bytes,
    frame_left: usize,
    /// None where the request was complete: the client has nothing more to say, and is not gone.
    incoming: Option<Inflow>,
    stopped: Stopped,
    /// Bytes that were received and not read.
    held: Bytes,
    received_all: bool,
    sent_all: bool,
    _leftover: Arc<Leftover>,
}

impl Channel {
    pub(super) fn new(
        outlet: Outlet,
        incoming: Option<Inflow>,
        leftover: Arc<Leftover>,
    ) -> Channel {
        Channel(Mutex::new(Ends {
            stopped: outlet.stopped(),
            outlet,
            frame_head: Bytes::new(),
            frame_left: 0,
            incoming,
            held: Bytes::new(),
            received_all: false,
            sent_all: false,
            _leftover: leftover,
        }))
    }

    /// Ready when there is something to read, or the client is gone.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).poll_readable(cx)
    }

    fn ends(&mut self) -> &mut Ends {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    /// Ready with bytes held, or at the end without.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.is_empty() && !self.received_all {
            match &mut self.incoming {
                None => {
                    ready!(self.stopped.as_mut().poll(cx));
                    self.received_all = true;
                }
                Some(incoming) => match ready!(incoming.poll_data(cx)) {
                    Ok(Some(bytes)) => self.held = bytes,
                    Ok(None) => self.received_all = true,
                    Err(fault) => return Poll::Ready(Err(interrupted(fault))),
                },
            }
        }
        Poll::Ready(Ok(()))
    }

    fn read(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.held.len().min(buffer.remaining());
        buffer.put_slice(&self.held[..count]);
        self.held.advance(count);
        if self.held.is_empty() {
            // Gives the memory back: an empty slice would keep it.
            self.held = Bytes::new();
        }
    }

    /// What is said to be written is QUIC's. A frame that was begun must be filled, which whoever
    /// writes does by going on.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.frame_left == 0 {
            self.frame_left = bytes.len().min(FRAME_BYTES);
            let mut head = Vec::with_capacity(frames::HEAD_BYTES);
            frames::write_head(&mut head, frames::DATA, self.frame_left as u64);
            self.frame_head = head.into();
        }
        ready!(self.outlet.poll_write_all(cx, &mut self.frame_head)).map_err(broken)?;
        let most = bytes.len().min(self.frame_left);
        let count = ready!(self.outlet.poll_write(cx, &bytes[..most])).map_err(broken)?;
        self.frame_left -= count;
        Poll::Ready(Ok(count))
    }

    /// In good order unless a frame is half written: the outlet resets that.
    fn end(&mut self) {
        if !self.sent_all && self.frame_left == 0 {
            self.sent_all = true;
            self.outlet.finish();
        }
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ends = self.get_mut().ends();
        ready!(ends.poll_readable(cx))?;
        ends.read(buffer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match bytes {
            [] => Poll::Ready(Ok(0)),
            bytes => self.get_mut().ends().poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // QUIC sends what it is given.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().ends().end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.ends().end();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Channel")
    }
}

fn broken(_: Broken) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn interrupted(fault: BodyFault) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, format!("{fault:?}"))
}
