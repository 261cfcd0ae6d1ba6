//! A stream handed over to the service, as bytes both ways: what `Raw` is on a connection of its
//! own. It holds no buffer while nothing happens.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most one write passes on; h2 keeps what the client has no window for out of it anyway.
const WRITE_BYTES: usize = 64 * 1024;

/// Behind a lock that nobody ever waits for: whether there is something to read is asked by shared
/// reference, and h2 tells only those who may change it.
pub(crate) struct Channel(Mutex<Ends>);

struct Ends {
    sending: SendStream<Bytes>,
    /// None where the request was complete: the client has nothing more to say, and is not gone.
    /// Boxed for the sake of those: streams of events, of which there may be very many.
    incoming: Option<Box<Arriving>>,
    received_all: bool,
    sent_all: bool,
}

struct Arriving {
    stream: RecvStream,
    /// Bytes that were received and not read.
    held: Bytes,
}

impl Channel {
    pub(super) fn new(sending: SendStream<Bytes>, incoming: Option<RecvStream>) -> Channel {
        let arriving = |stream| Box::new(Arriving { stream, held: Bytes::new() });
        let incoming = incoming.map(arriving);
        Channel(Mutex::new(Ends { sending, incoming, received_all: false, sent_all: false }))
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
        while !self.received_all {
            match &mut self.incoming {
                None => {
                    ready!(self.sending.poll_reset(cx)).map_err(broken)?;
                    self.received_all = true;
                }
                Some(arriving) if !arriving.held.is_empty() => break,
                Some(arriving) => match ready!(arriving.stream.poll_data(cx)) {
                    Some(Ok(bytes)) => arriving.held = bytes,
                    Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                    None => self.received_all = true,
                },
            }
        }
        Poll::Ready(Ok(()))
    }

    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let Some(arriving) = &mut self.incoming else { return Ok(()) };
        let count = arriving.held.len().min(buffer.remaining());
        buffer.put_slice(&arriving.held[..count]);
        arriving.held.advance(count);
        if arriving.held.is_empty() {
            arriving.held = Bytes::new();
        }
        match count {
            0 => Ok(()),
            // What is read makes room for more.
            _ => arriving.stream.flow_control().release_capacity(count).map_err(broken),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sending.reserve_capacity(bytes.len().min(WRITE_BYTES));
        while self.sending.capacity() == 0 {
            match ready!(self.sending.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let count = bytes.len().min(self.sending.capacity());
        let piece = Bytes::copy_from_slice(&bytes[..count]);
        self.sending.send_data(piece, false).map_err(broken)?;
        Poll::Ready(Ok(count))
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.sent_all {
            self.sent_all = true;
            self.sending.send_data(Bytes::new(), true).map_err(broken)?;
        }
        Ok(())
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
        Poll::Ready(ends.read(buffer))
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
        // The connection's own task writes what it is given.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().ends().end())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // As closing a connection does: the end, unless the client is gone before.
        let _ = self.ends().end();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Channel")
    }
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}
