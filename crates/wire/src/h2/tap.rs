//! The byte stream below h2, held by two: h2 reads and writes it, the connection looks at what goes
//! by, sends what has gathered, and takes the stream back when h2 is done with it. h2 flushes after
//! every frame with a body; here its frames gather until the connection has nothing more to say, so
//! that the answers of many streams leave in one call of the system. One thread, so no lock.

use std::cell::{RefCell, RefMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;

/// What gathers before it is sent in any case. 64 KiB: far more than one call of the system costs,
/// and little beside what the windows allow.
const GATHERED_BYTES: usize = 64 * 1024;
/// From here on a write is passed on as it is: copying it costs as much as a call of the system.
const LARGE_BYTES: usize = 8 * 1024;

pub(super) struct Tap<S>(Rc<RefCell<Tapped<S>>>);

pub(super) struct Tapped<S> {
    stream: S,
    /// Bytes read before it was known that they are HTTP/2.
    before: Bytes,
    /// Written by h2 and not sent. Empty, it has no memory.
    unsent: Vec<u8>,
    /// How much of it is sent.
    sent_bytes: usize,
    pub(super) frames: Frames,
    /// Something has arrived since the last look.
    pub(super) heard: bool,
    /// What the client has taken since the last look.
    pub(super) taken_bytes: usize,
    /// Something waits for the client to take it.
    pub(super) blocked: bool,
    /// There is no memory for more of a head: nothing is read.
    pub(super) is_paused: bool,
    /// There is no memory for what waits for the socket: no more is gathered.
    pub(super) is_short: bool,
}

impl<S> Tap<S> {
    pub(super) fn new(stream: S, before: Bytes) -> Tap<S> {
        let (unsent, frames) = (Vec::new(), Frames::new());
        let tapped = Tapped {
            stream,
            before,
            unsent,
            sent_bytes: 0,
            frames,
            heard: false,
            taken_bytes: 0,
            blocked: false,
            is_paused: false,
            is_short: false,
        };
        Tap(Rc::new(RefCell::new(tapped)))
    }

    /// Never held over a wait, nor while h2 is called.
    pub(super) fn look(&self) -> RefMut<'_, Tapped<S>> {
        self.0.borrow_mut()
    }
}

impl<S> Clone for Tap<S> {
    fn clone(&self) -> Tap<S> {
        Tap(self.0.clone())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut tapped = self.look();
        if tapped.frames.excess() || tapped.is_paused {
            // The connection looks after each call of h2, and ends it or goes on.
            return Poll::Pending;
        }
        let filled = buffer.filled().len();
        if tapped.before.is_empty() {
            ready!(Pin::new(&mut tapped.stream).poll_read(cx, buffer))?;
        } else {
            let count = tapped.before.len().min(buffer.remaining());
            buffer.put_slice(&tapped.before[..count]);
            tapped.before.advance(count);
            if tapped.before.is_empty() {
                tapped.before = Bytes::new();
            }
        }
        tapped.heard = true;
        tapped.frames.pass(&buffer.filled()[filled..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tapped = &mut *self.look();
        if tapped.unsent.len() >= GATHERED_BYTES || tapped.is_short {
            ready!(tapped.poll_send(cx))?;
        }
        let count = slices.iter().map(|slice| slice.len()).sum();
        if count >= LARGE_BYTES && tapped.unsent.is_empty() {
            let written = Pin::new(&mut tapped.stream).poll_write_vectored(cx, slices);
            tapped.wrote(&written);
            return written;
        }
        slices.iter().for_each(|slice| tapped.unsent.extend_from_slice(slice));
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Says yes to everything: the connection sends what has gathered.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tapped = &mut *self.look();
        ready!(tapped.poll_send(cx))?;
        Pin::new(&mut tapped.stream).poll_shutdown(cx)
    }
}

impl<S> Tapped<S> {
    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        self.blocked = written.is_pending();
        if let Poll::Ready(Ok(count)) = written {
            self.taken_bytes += count;
        }
    }

    /// What waits for the socket.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent_bytes
    }
}

impl<S: AsyncWrite + Unpin> Tapped<S> {
    /// Sends what has gathered; ready when all of it is the kernel's.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent_bytes < self.unsent.len() {
            let left = &self.unsent[self.sent_bytes..];
            let written = Pin::new(&mut self.stream).poll_write(cx, left);
            self.wrote(&written);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent_bytes += count,
            }
        }
        self.unsent = Vec::new();
        self.sent_bytes = 0;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl<S: AsyncWrite + Unpin> Tap<S> {
    /// To be called after every call of h2.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look().poll_send(cx)
    }
}

impl<S: AsyncRead + Unpin> Tap<S> {
    /// Takes what still arrives and forgets it; ready when the client has closed.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sink = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut sink);
            let read = ready!(Pin::new(&mut self.look().stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    }
}
