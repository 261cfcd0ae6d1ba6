//! The body of a request: read on demand, never beyond the limit the reader names.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::{Instant, Sleep, sleep_until};

/// A request body that is still on its way, or already here.
#[derive(Debug)]
pub struct Body(Source);

#[derive(Debug)]
enum Source {
    Whole(Bytes),
    Arriving { incoming: Incoming, whole: Duration, stall: Duration },
}

/// Why a body could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// More bytes than the reader's limit, declared or sent.
    TooLarge,
    /// Too slow: `Limits::body_timeout` or `Limits::body_stall`.
    Timeout,
    /// The client went away in the middle.
    Incomplete,
    /// The chunked framing is broken.
    Malformed,
}

impl Body {
    pub fn empty() -> Body {
        Body(Source::Whole(Bytes::new()))
    }

    pub(crate) fn arriving(incoming: Incoming, whole: Duration, stall: Duration) -> Body {
        if incoming.is_end_stream() {
            return Body::empty();
        }
        Body(Source::Arriving { incoming, whole, stall })
    }

    /// The length the client declared; `None` for a chunked body.
    pub fn declared_bytes(&self) -> Option<u64> {
        match &self.0 {
            Source::Whole(bytes) => Some(bytes.len() as u64),
            Source::Arriving { incoming, .. } => incoming.size_hint().exact(),
        }
    }

    /// The whole body. A declared length over `limit_bytes` is refused before a byte is read, so
    /// that a client waiting for `100 Continue` never starts to send. A second call finds nothing.
    pub async fn read(&mut self, limit_bytes: usize) -> Result<Bytes, BodyFault> {
        if self.declared_bytes().is_some_and(|declared| declared > limit_bytes as u64) {
            return Err(BodyFault::TooLarge);
        }
        match std::mem::replace(&mut self.0, Source::Whole(Bytes::new())) {
            Source::Whole(bytes) => Ok(bytes),
            Source::Arriving { mut incoming, whole, stall } => {
                collect(&mut incoming, limit_bytes, Patience::new(whole, stall)).await
            }
        }
    }
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Body {
        Body(Source::Whole(bytes.into()))
    }
}

async fn collect(
    incoming: &mut Incoming,
    limit_bytes: usize,
    mut patience: Patience,
) -> Result<Bytes, BodyFault> {
    // The usual body is one piece, passed on without a copy.
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    loop {
        let frame = poll_fn(|cx| match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => patience.poll(cx).map(Err),
        });
        let Some(frame) = frame.await? else { break };
        let Ok(piece) = frame.map_err(blame).map(Frame::into_data)? else { continue };
        patience.progress();
        if first.len() + joined.len() + piece.len() > limit_bytes {
            return Err(BodyFault::TooLarge);
        }
        if first.is_empty() && joined.is_empty() {
            first = piece;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&piece);
        }
        if incoming.is_end_stream() {
            break;
        }
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}

/// Who broke off: the framing was wrong, or the bytes just ended.
fn blame(error: hyper::Error) -> BodyFault {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return match io.kind() {
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => BodyFault::Malformed,
                _ => BodyFault::Incomplete,
            };
        }
        source = cause.source();
    }
    if error.is_parse() { BodyFault::Malformed } else { BodyFault::Incomplete }
}

/// The two clocks of a body. A timer is made only when the body has to be waited for: most bodies
/// arrive together with their head.
struct Patience {
    whole: Duration,
    stall: Duration,
    waiting: Option<Waiting>,
}

struct Waiting {
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(whole: Duration, stall: Duration) -> Patience {
        Patience { whole, stall, waiting: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let waiting = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            let deadline = now + self.whole;
            Waiting { deadline, timer: Box::pin(sleep_until(deadline.min(now + self.stall))) }
        });
        ready!(waiting.timer.as_mut().poll(cx));
        Poll::Ready(BodyFault::Timeout)
    }

    fn progress(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            let next = waiting.deadline.min(Instant::now() + self.stall);
            waiting.timer.as_mut().reset(next);
        }
    }
}
