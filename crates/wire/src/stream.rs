//! The bytes of one connection, plain or under TLS, behind one type: what a protocol reads and
//! writes. A plain stream costs nothing for it; what TLS needs stands behind one pointer.

use std::io::{self, IoSlice, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::ServerConnection;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How far a write came that did not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) count: usize,
    /// Whether all of them are the kernel's. If not, a flush must follow.
    pub(crate) is_flushed: bool,
}

impl Stream {
    /// Under TLS: what the handshake agreed on.
    pub(crate) fn session(&self) -> Option<&ServerConnection> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Some(stream.get_ref().1),
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Ready when a read may bring something. Under TLS it may still bring nothing: a record may
    /// be incomplete, or none of the client's bytes.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // It wants none while it holds deciphered bytes, which the socket knows nothing of.
            Stream::Tls(stream) if !stream.get_ref().1.wants_read() => Poll::Ready(Ok(())),
            _ => self.socket().poll_read_ready(cx),
        }
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket().take_error()
    }

    /// Reads from the socket itself, past the runtime, which may not have heard of the bytes yet.
    /// 0 if there are none.
    pub(crate) fn read_now(&mut self, room: &mut [u8]) -> usize {
        match self {
            Stream::Plain(stream) => (&*SockRef::from(&*stream)).read(room).unwrap_or(0),
            Stream::Tls(stream) => {
                let (socket, session) = stream.get_mut();
                let socket = SockRef::from(&*socket);
                loop {
                    match session.reader().read(room) {
                        Ok(count) => return count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(_) => return 0,
                    }
                    let arrived = matches!(session.read_tls(&mut &*socket), Ok(1..));
                    if !arrived || session.process_new_packets().is_err() {
                        return 0;
                    }
                }
            }
        }
    }

    /// Writes as much of the two as is taken without waiting.
    pub(crate) fn write_now(&mut self, head: &[u8], body: &[u8]) -> io::Result<Written> {
        match self {
            Stream::Plain(stream) => {
                let written = match body.is_empty() {
                    true => stream.try_write(head),
                    false => stream.try_write_vectored(&[IoSlice::new(head), IoSlice::new(body)]),
                };
                match written {
                    Ok(count) => Ok(Written { count, is_flushed: true }),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        Ok(Written { count: 0, is_flushed: true })
                    }
                    Err(error) => Err(error),
                }
            }
            Stream::Tls(stream) => write_secured_now(stream, head, body),
        }
    }

    /// The end of a stream that is dropped next, as an error for the client (RFC 9112 9.8): it must
    /// not take what it has for a whole response.
    pub(crate) fn abort(&mut self) {
        let _ = SockRef::from(self.socket()).set_linger(Some(Duration::ZERO));
    }

    /// The polite end of a stream that is dropped next, as far as it goes without waiting: under
    /// TLS an end that is not announced looks like one made by an attacker.
    pub(crate) fn close_gracefully(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.get_mut().1.send_close_notify();
            let mut cx = Context::from_waker(Waker::noop());
            let _ = Pin::new(stream).poll_flush(&mut cx);
        }
    }
}

fn write_secured_now(
    stream: &mut TlsStream<TcpStream>,
    head: &[u8],
    body: &[u8],
) -> io::Result<Written> {
    // The next poll registers its own waker.
    let mut cx = Context::from_waker(Waker::noop());
    let mut count = 0;
    while count < head.len() + body.len() {
        let head_left = &head[count.min(head.len())..];
        let body_left = &body[count.saturating_sub(head.len())..];
        let slices = [IoSlice::new(head_left), IoSlice::new(body_left)];
        match Pin::new(&mut *stream).poll_write_vectored(&mut cx, &slices)? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(more) => count += more,
            Poll::Pending => break,
        }
    }
    Ok(Written { count, is_flushed: !stream.get_ref().1.wants_write() })
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

/// Under TLS what is written may wait for room in the socket until it is flushed.
impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
