//! The byte stream below a connection to another server: TCP, TLS over TCP, or a unix socket.
//! Does not know HTTP.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;

#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    // By far the largest.
    Secure(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The same call on each kind of stream.
macro_rules! on {
    ($transport:expr, $stream:ident => $call:expr) => {
        match $transport {
            Transport::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Secure(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            #[cfg(unix)]
            Transport::Unix(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
        }
    };
}

impl Transport {
    /// Ready when a read may return something. Under TLS the read may still have to wait: a packet
    /// may hold half a record, or a session ticket.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(stream) => stream.poll_read_ready(cx),
            // It wants none while it holds deciphered bytes, which the socket knows nothing of.
            Transport::Secure(stream) if !stream.get_ref().1.wants_read() => Poll::Ready(Ok(())),
            Transport::Secure(stream) => stream.get_ref().0.poll_read_ready(cx),
            #[cfg(unix)]
            Transport::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Whether written bytes may wait in memory of ours for a flush.
    pub(super) fn needs_flush(&self) -> bool {
        matches!(self, Transport::Secure(_))
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on!(self.get_mut(), stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on!(self.get_mut(), stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self.get_mut(), stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self.get_mut(), stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self.get_mut(), stream => stream.poll_shutdown(cx))
    }
}
