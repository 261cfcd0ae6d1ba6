//! The byte stream below h2, held by two: h2 reads and writes it, the connection looks at what goes
//! by and takes it back when h2 is done with it. One thread, so no lock.

use std::cell::{RefCell, RefMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;

pub(super) struct Tap<S>(Rc<RefCell<Tapped<S>>>);

pub(super) struct Tapped<S> {
    stream: S,
    /// Bytes read before it was known that they are HTTP/2.
    before: Bytes,
    pub(super) frames: Frames,
    /// Something has arrived since the last look.
    pub(super) heard: bool,
}

impl<S> Tap<S> {
    pub(super) fn new(stream: S, before: Bytes) -> Tap<S> {
        let tapped = Tapped { stream, before, frames: Frames::new(), heard: false };
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
        if tapped.frames.excess() {
            // The connection looks after each call of h2, and ends it.
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
        Pin::new(&mut self.look().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.look().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.look().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.look().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.look().stream).poll_shutdown(cx)
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
