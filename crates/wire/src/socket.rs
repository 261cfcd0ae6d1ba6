//! The TCP stream as the HTTP library sees it: what arrives is shown to `inbound`, what leaves to
//! `outbound`. The library never closes it, because an end in good order (a last answer, taking
//! what the client still sends) is the business of `connection`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::connection::Connection;

pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    pub(crate) connection: Rc<Connection>,
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.connection.arrived(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
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
        let this = self.get_mut();
        let stream = Pin::new(&mut this.stream);
        let written = match this.connection.inspect(slices) {
            None => ready!(stream.poll_write_vectored(cx, slices))?,
            // The library's own error: taken as if written; `connection` answers in its place.
            Some(0) => return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum())),
            Some(ours) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                let first = first.map_or(&[][..], |slice| &slice[..slice.len().min(ours)]);
                ready!(stream.poll_write(cx, first))?
            }
        };
        this.connection.written(slices, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
