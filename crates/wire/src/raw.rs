//! A connection handed over to the service: the byte stream alone, without any of the buffers that
//! reading requests needs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::channel::{Duplex, pour};
use crate::shutdown::Shutdown;
use crate::stream::Stream;

/// What a [`crate::Payload::TakeOver`] is given: a connection, or one stream of an HTTP/2 or HTTP/3
/// connection. Dropping it closes that. Flush before waiting after a write: under TLS, bytes may
/// wait here that the socket had no room for.
#[derive(Debug)]
pub struct Raw {
    carrier: Carrier,
    shutdown: Shutdown,
}

#[derive(Debug)]
enum Carrier {
    /// And the bytes that arrived together with the request and belong behind it; seldom any.
    Connection(Stream, Option<Box<Bytes>>),
    /// One stream of HTTP/2 or HTTP/3.
    Stream(Box<dyn Duplex>),
}

/// The same call on whatever carries the bytes.
macro_rules! on {
    ($raw:ident, $carrier:ident => $call:expr) => {
        match &mut $raw.carrier {
            Carrier::Connection(stream, _) => {
                let $carrier = Pin::new(stream);
                $call
            }
            Carrier::Stream(channel) => {
                let $carrier = Pin::new(channel);
                $call
            }
        }
    };
}

impl Raw {
    pub(crate) fn new(stream: Stream, before: Bytes, shutdown: Shutdown) -> Raw {
        let before = (!before.is_empty()).then(|| Box::new(before));
        Raw { carrier: Carrier::Connection(stream, before), shutdown }
    }

    pub(crate) fn over(channel: impl Duplex + 'static, shutdown: Shutdown) -> Raw {
        Raw { carrier: Carrier::Stream(Box::new(channel)), shutdown }
    }

    /// Ready when there is something to read, or the client is gone: a task that waits for it first
    /// needs no buffer while nothing happens. A read may still have to wait: a packet is not always
    /// a byte of the client's.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.carrier {
            Carrier::Connection(_, Some(_)) => Poll::Ready(Ok(())),
            Carrier::Connection(stream, None) => stream.poll_read_ready(cx),
            Carrier::Stream(channel) => channel.poll_readable(cx),
        }
    }

    /// The signal that the server shuts down. Connections that ignore it are closed when the drain
    /// time is over.
    pub fn shutdown_signal(&self) -> Shutdown {
        self.shutdown.clone()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Carrier::Connection(stream, _) = &mut self.carrier {
            stream.close_gracefully();
        }
    }
}

impl AsyncRead for Raw {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Carrier::Connection(_, held @ Some(_)) = &mut self.carrier else {
            return on!(self, carrier => carrier.poll_read(cx, buffer));
        };
        if let Some(before) = held {
            pour(before, buffer);
        }
        held.take_if(|before| before.is_empty());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on!(self, carrier => carrier.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self, carrier => carrier.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, carrier => carrier.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, carrier => carrier.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be very many of them that wait, each in its service's future.
    #[test]
    fn a_stream_that_was_taken_over_is_small() {
        assert!(size_of::<Raw>() <= 80, "{}", size_of::<Raw>());
    }
}
