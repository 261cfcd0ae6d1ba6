//! Notices that the client has left while its response is awaited or its stream is silent: then
//! nothing is written, and only a read can tell.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::inflow::read_into;
use crate::stream::Stream;
use crate::worker::{Buffer, Buffers};

/// A client that has closed its sending side may still read. It has this long to get the next byte:
/// whether it reads is not known before something is written, and a source that works for it must
/// not be held by a client that is gone.
const HALF_CLOSED: Duration = Duration::from_millis(500);
/// Bytes of further requests that are taken to see what follows them. A client that sends more is
/// there; it is watched no more, and its bytes stay in the socket.
const AHEAD_BYTES: usize = 8 * 1024;

/// What is known of the client's sending side.
#[derive(Default)]
pub(super) enum Watch {
    #[default]
    Open,
    /// It was closed; the client is taken for gone at this time.
    Closed(Pin<Box<Sleep>>),
    /// The client has sent too much ahead.
    Blind,
}

impl Watch {
    /// Something was written: the client reads.
    pub(super) fn progress(&mut self) {
        if let Watch::Closed(patience) = self {
            patience.as_mut().reset(Instant::now() + HALF_CLOSED);
        }
    }

    /// Ready when the client is gone. Only for waits in which nothing is written, behind a whole
    /// request. `held` gets what the client has sent ahead.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        held: &mut Option<Box<Buffer>>,
        buffers: &Buffers,
    ) -> Poll<()> {
        loop {
            match self {
                Watch::Blind => return Poll::Pending,
                Watch::Closed(patience) => return patience.as_mut().poll(cx),
                Watch::Open => {}
            }
            if stream.poll_read_ready(cx).is_pending() {
                return Poll::Pending;
            }
            let read = read_into(cx, stream, held.get_or_insert_with(|| buffers.take()));
            buffers.shrink(held);
            let ahead = held.as_ref().map_or(0, |buffer| buffer.data().len());
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(0)) => *self = Watch::Closed(Box::pin(sleep(HALF_CLOSED))),
                Poll::Ready(Ok(_)) if ahead > AHEAD_BYTES => *self = Watch::Blind,
                Poll::Ready(Ok(_)) => {}
            }
        }
    }
}
