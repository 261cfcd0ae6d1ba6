//! A stream of HTTP/2 or HTTP/3 handed over to the service, as bytes both ways: what `Raw` is on a
//! connection of its own. It holds no buffer while nothing happens. Knows neither protocol: what
//! they do differently stands in the `channel` of each.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of a stream, as its protocol has them.
pub(crate) trait Ends: Unpin {
    /// Ready with bytes held, or at the end without.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Of the bytes held as many as there is room for.
    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()>;

    /// Takes some of these bytes, of which there are some.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Says that nothing more will be sent, once.
    fn end(&mut self) -> io::Result<()>;
}

/// Behind a lock without contention: `poll_readable` takes a shared reference, and the protocols
/// need a mutable one.
pub(crate) struct Channel<E: Ends>(Mutex<E>);

impl<E: Ends> Channel<E> {
    pub(crate) fn new(ends: E) -> Channel<E> {
        Channel(Mutex::new(ends))
    }

    fn ends(&mut self) -> &mut E {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes both ways, on a stream of any protocol.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {
    /// Ready when there is something to read, or the client is gone.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl<E: Ends + Send> Duplex for Channel<E> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).poll_readable(cx)
    }
}

impl<E: Ends> AsyncRead for Channel<E> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ends = self.get_mut().ends();
        ready!(ends.poll_readable(cx))?;
        Poll::Ready(ends.read(buffer))
    }
}

impl<E: Ends> AsyncWrite for Channel<E> {
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
        // The connection sends what it was given.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().ends().end())
    }
}

impl<E: Ends> Drop for Channel<E> {
    fn drop(&mut self) {
        // As closing a connection does: the end, unless the client is gone before.
        let _ = self.ends().end();
    }
}

impl<E: Ends> fmt::Debug for Channel<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Channel")
    }
}

/// Moves as many of the bytes held as there is room for; how many.
pub(crate) fn pour(held: &mut Bytes, buffer: &mut ReadBuf<'_>) -> usize {
    let count = held.len().min(buffer.remaining());
    buffer.put_slice(&held[..count]);
    held.advance(count);
    if held.is_empty() {
        // Gives the memory back: an empty slice would keep it.
        *held = Bytes::new();
    }
    count
}
