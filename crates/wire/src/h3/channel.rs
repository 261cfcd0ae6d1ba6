//! The ends of a stream handed over to the service.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::frames;
use super::inflow::{Inflow, Leftover};
use super::outflow::{Outlet, Stopped};
use super::window::{Window, Windows};
use crate::answering::Aborted;
use crate::body::Incoming as _;
use crate::channel::{self, pour};
use crate::fault::BodyFault;
use crate::memory::{Charges, QueuedCharges};

/// The most that one frame holds.
const FRAME_BYTES: usize = 64 * 1024;

pub(crate) type Channel = channel::Channel<Ends>;

pub(crate) struct Ends {
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
    /// Boxed: there may be very many streams that rest.
    charges: Box<QueuedCharges>,
    windows: Windows,
    /// While nobody may be reading because the client does not take what is written: the window,
    /// which can fill.
    unread: Option<Window>,
}

impl Ends {
    pub(super) fn new(
        outlet: Outlet,
        incoming: Option<Inflow>,
        leftover: Arc<Leftover>,
        charges: Charges,
        windows: Windows,
    ) -> Ends {
        Ends {
            stopped: outlet.stopped(),
            outlet,
            frame_head: Bytes::new(),
            frame_left: 0,
            incoming,
            held: Bytes::new(),
            received_all: false,
            sent_all: false,
            _leftover: leftover,
            charges: Box::new(charges.queued()),
            windows,
            unread: None,
        }
    }

    /// The client takes nothing now. One whose account has its share already is cut off.
    fn blocked<T>(&mut self) -> Poll<io::Result<T>> {
        if self.incoming.is_some() && self.unread.is_none() {
            self.unread = self.windows.open(None, self.charges.charges().key());
            if self.unread.is_none() {
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
        }
        Poll::Pending
    }
}

impl channel::Ends for Ends {
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

    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        pour(&mut self.held, buffer);
        Ok(())
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
        let Poll::Ready(written) = self.outlet.poll_write_all(cx, &mut self.frame_head) else {
            return self.blocked();
        };
        written.map_err(broken)?;
        let most = bytes.len().min(self.frame_left);
        let charge = ready!(self.charges.poll_take(cx, most));
        let mut piece = charge.cover(Bytes::copy_from_slice(&bytes[..most]));
        let Poll::Ready(written) = self.outlet.poll_pass(cx, &mut piece) else {
            return self.blocked();
        };
        written.map_err(broken)?;
        self.unread = None;
        let count = most - piece.len();
        self.frame_left -= count;
        Poll::Ready(Ok(count))
    }

    /// In good order unless a frame is half written: the outlet resets that.
    fn end(&mut self) -> io::Result<()> {
        if !self.sent_all && self.frame_left == 0 {
            self.sent_all = true;
            self.outlet.finish();
        }
        Ok(())
    }
}

fn broken(_: Aborted) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn interrupted(fault: BodyFault) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, format!("{fault:?}"))
}
