//! The ends of a stream handed over to the service.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::io::ReadBuf;

use super::settings::STREAM_WINDOW_BYTES;
use crate::channel::{self, pour};
use crate::memory::{Charge, Charges, QueuedCharges};

/// The most one write passes on; h2 keeps what the client has no window for out of it anyway.
const WRITE_BYTES: usize = 64 * 1024;

pub(crate) type Channel = channel::Channel<Ends>;

pub(crate) struct Ends {
    sending: SendStream<Bytes>,
    /// None where the request was complete: the client has nothing more to say, and is not gone.
    /// Boxed for the sake of those: streams of events, of which there may be very many.
    incoming: Option<Box<Arriving>>,
    received_all: bool,
    sent_all: bool,
    /// Boxed: there may be very many streams that rest.
    charges: Box<QueuedCharges>,
}

struct Arriving {
    stream: RecvStream,
    /// Bytes that were received and not read.
    held: Bytes,
    /// While nobody may be reading because the client does not take what is written: the window,
    /// which can fill.
    unread: Option<Charge>,
}

impl Ends {
    pub(super) fn new(
        sending: SendStream<Bytes>,
        incoming: Option<RecvStream>,
        charges: Charges,
    ) -> Ends {
        let arriving = |stream| Box::new(Arriving { stream, held: Bytes::new(), unread: None });
        let incoming = incoming.map(arriving);
        let charges = Box::new(charges.queued());
        Ends { sending, incoming, received_all: false, sent_all: false, charges }
    }

    /// The client takes nothing now. One whose account has its share already is cut off.
    fn blocked(&mut self) -> io::Result<()> {
        if let Some(arriving) = &mut self.incoming
            && arriving.unread.is_none()
        {
            let charge = self.charges.charges().take(STREAM_WINDOW_BYTES as usize);
            arriving.unread = Some(charge.ok_or(io::ErrorKind::OutOfMemory)?);
        }
        Ok(())
    }
}

impl channel::Ends for Ends {
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
        match pour(&mut arriving.held, buffer) {
            0 => Ok(()),
            // What is read makes room for more.
            count => arriving.stream.flow_control().release_capacity(count).map_err(broken),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sending.reserve_capacity(bytes.len().min(WRITE_BYTES));
        while self.sending.capacity() == 0 {
            match self.sending.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(broken(error))),
                Poll::Ready(None) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Poll::Pending => {
                    self.blocked()?;
                    return Poll::Pending;
                }
            }
        }
        let count = bytes.len().min(self.sending.capacity());
        let Poll::Ready(charge) = self.charges.poll_take(cx, count) else {
            // Other streams need the connection's window in the meantime.
            self.sending.reserve_capacity(0);
            return Poll::Pending;
        };
        if let Some(arriving) = &mut self.incoming {
            arriving.unread = None;
        }
        let piece = charge.cover(Bytes::copy_from_slice(&bytes[..count]));
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

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}
