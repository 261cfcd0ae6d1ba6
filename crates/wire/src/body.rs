//! The body of a request: read on demand, never beyond the limit the reader names. The pieces come
//! from `pipe`, which the connection fills only while a reader waits, or from a stream of
//! HTTP/2 or HTTP/3, which holds no more than its window.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::budget::Share;
use crate::fault::BodyFault;
use crate::fields::check_trailers;
use crate::limits::Limits;
use crate::memory::Key;
use crate::pace::Pace;
use crate::pipe::Pipe;

/// A request body that is still on its way, or already here.
#[derive(Debug)]
pub struct Body(Source);

#[derive(Debug)]
enum Source {
    Whole(Bytes),
    Arriving(Box<Arriving>),
    Stream(Box<Stream>),
    Guarded(Box<Guarded>),
    Ended(Option<Box<HeaderMap>>),
}

/// A body that is passed on.
#[derive(Debug)]
struct Guarded {
    body: Body,
    /// How many bytes of it may still come.
    left: u64,
    /// Which fields behind it are passed on.
    keeps_trailer: fn(&HeaderName) -> bool,
}

#[derive(Debug)]
struct Arriving {
    pipe: Arc<Pipe>,
    declared_bytes: Option<u64>,
    timeouts: BodyTimeouts,
}

/// A body on a stream of HTTP/2 or HTTP/3.
#[derive(Debug)]
struct Stream {
    incoming: Box<dyn Incoming>,
    declared_bytes: Option<u64>,
    continue_signal: Option<ContinueSignal>,
    timeouts: BodyTimeouts,
    ending: bool,
}

/// The body of a request on a stream, as its protocol receives it.
pub(crate) trait Incoming: fmt::Debug + Send + Sync {
    /// The next piece, or none at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>>;

    /// The trailers, after the end. They have arrived with it, or there are none.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Option<HeaderMap>>;

    /// Charges what may arrive ahead of the reader to this holder. False if it holds all it may.
    fn charge_to(&self, key: Key) -> bool;

    /// The reader is gone before the end.
    fn abandon(&mut self) {}
}

impl Body {
    pub fn empty() -> Body {
        Body(Source::Whole(Bytes::new()))
    }

    pub(crate) fn arriving(pipe: Arc<Pipe>, declared_bytes: Option<u64>, limits: &Limits) -> Body {
        let timeouts = BodyTimeouts::new(limits);
        Body(Source::Arriving(Box::new(Arriving { pipe, declared_bytes, timeouts })))
    }

    pub(crate) fn stream(
        incoming: impl Incoming + 'static,
        declared_bytes: Option<u64>,
        continue_signal: Option<ContinueSignal>,
        limits: &Limits,
    ) -> Body {
        let timeouts = BodyTimeouts::new(limits);
        let incoming = Box::new(incoming);
        let stream = Stream { incoming, declared_bytes, continue_signal, timeouts, ending: false };
        Body(Source::Stream(Box::new(stream)))
    }

    /// The length the client declared; `None` where it did not, as for a chunked body.
    pub fn declared_bytes(&self) -> Option<u64> {
        match &self.0 {
            Source::Whole(bytes) => Some(bytes.len() as u64),
            Source::Arriving(arriving) => arriving.declared_bytes,
            Source::Stream(stream) => stream.declared_bytes,
            Source::Guarded(guarded) => guarded.body.declared_bytes(),
            Source::Ended(_) => None,
        }
    }

    /// The whole body. A declared length over `limit_bytes` is refused before a byte is read, so
    /// that a client waiting for `100 Continue` never starts to send. A second call finds nothing.
    pub async fn read(&mut self, limit_bytes: usize) -> Result<Bytes, BodyFault> {
        self.gather(limit_bytes, |_| true).await
    }

    /// The same, with the memory for it taken from a budget as the bytes arrive. The share may
    /// have something for it already; while it cannot grow, the body is refused.
    pub async fn read_within<K: Copy + Eq + Hash>(
        &mut self,
        limit_bytes: usize,
        share: &mut Share<K>,
    ) -> Result<Bytes, BodyFault> {
        let grow = |room: usize| share.grow(room.saturating_sub(share.amount()));
        self.gather(limit_bytes, grow).await
    }

    /// Charges what the client may send ahead of its reader to the account with this number, from
    /// now on, instead of the client's address. False if the account holds all it may.
    pub fn charge_to(&mut self, account: i64) -> bool {
        match &mut self.0 {
            Source::Stream(stream) => stream.incoming.charge_to(Key::Account(account)),
            Source::Guarded(guarded) => guarded.body.charge_to(account),
            Source::Whole(_) | Source::Arriving(_) | Source::Ended(_) => true,
        }
    }

    /// Whether all of it has arrived together with its head.
    pub fn is_here(&self) -> bool {
        matches!(self.0, Source::Whole(_) | Source::Ended(_))
    }

    /// All of it, if it is here and was not read.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Source::Whole(bytes) => Some(bytes),
            Source::Arriving(_) | Source::Stream(_) | Source::Guarded(_) | Source::Ended(_) => None,
        }
    }

    /// Refuses the body once more than so many bytes of it have come, and drops the fields behind
    /// it that are not kept: for readers that pass pieces on.
    pub fn guard(&mut self, most_bytes: u64, keeps_trailer: fn(&HeaderName) -> bool) {
        // What is here has no trailers, and its length is known.
        if !self.is_here() {
            let body = std::mem::replace(self, Body::spent());
            self.0 = Source::Guarded(Box::new(Guarded { body, left: most_bytes, keeps_trailer }));
        }
    }

    /// What is left where a body was taken away.
    pub(crate) fn spent() -> Body {
        Body(Source::Ended(None))
    }

    pub(crate) fn is_spent(&self) -> bool {
        matches!(self.0, Source::Ended(_))
    }

    /// The whole has to arrive in time, and not only each piece.
    fn bound(&mut self) {
        match &mut self.0 {
            Source::Arriving(arriving) => arriving.timeouts.bounded = true,
            Source::Stream(stream) => stream.timeouts.bounded = true,
            Source::Guarded(guarded) => guarded.body.bound(),
            Source::Whole(_) | Source::Ended(_) => {}
        }
    }

    /// `has_room` says whether so many bytes may be held.
    async fn gather(
        &mut self,
        limit_bytes: usize,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Result<Bytes, BodyFault> {
        if self.declared_bytes().is_some_and(|declared| declared > limit_bytes as u64) {
            return Err(BodyFault::TooLarge);
        }
        self.bound();
        // The usual body is one piece, passed on without a copy.
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        let mut room = 0;
        while let Some(piece) = self.chunk().await? {
            let held = first.len() + joined.len();
            let needed = held + piece.len();
            if needed > limit_bytes {
                return Err(BodyFault::TooLarge);
            }
            if needed > room {
                // Twice as much each time, and no more than was declared: a client that declares
                // much and sends little takes little.
                let declared = self.declared_bytes().map_or(limit_bytes, |bytes| bytes as usize);
                room = if held == 0 { needed } else { (2 * needed).min(declared).max(needed) };
                if !has_room(room) {
                    return Err(BodyFault::NoRoom);
                }
            }
            if held == 0 {
                first = piece;
                continue;
            }
            joined.reserve(room - joined.len());
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&piece);
        }
        Ok(if joined.is_empty() { first } else { joined.freeze() })
    }

    /// The next piece, or none at the end. Nothing more is taken from the client until it is asked
    /// for, so a slow reader slows the client down. `Limits::body_timeout` does not apply: a body
    /// passed on in pieces may be as long as it likes.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFault> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        let outcome = match &mut self.0 {
            Source::Whole(bytes) => Ok(Some(std::mem::take(bytes)).filter(|all| !all.is_empty())),
            Source::Ended(_) => Ok(None),
            Source::Guarded(guarded) => {
                let outcome = ready!(guarded.poll(cx));
                if !matches!(outcome, Ok(Some(_))) {
                    self.0 = Source::Ended(guarded.trailers().map(Box::new));
                }
                return Poll::Ready(outcome);
            }
            Source::Arriving(arriving) => ready!(arriving.poll(cx)),
            Source::Stream(stream) => {
                let (outcome, trailers) = match ready!(stream.poll(cx)) {
                    Ok(Some(piece)) => return Poll::Ready(Ok(Some(piece))),
                    Ok(None) => {
                        let trailers = ready!(stream.incoming.poll_trailers(cx));
                        match trailers.as_ref().map_or(Ok(()), check_trailers) {
                            Ok(()) => (Ok(None), trailers),
                            Err(fault) => (Err(fault), None),
                        }
                    }
                    Err(fault) => (Err(fault), None),
                };
                self.0 = Source::Ended(trailers.map(Box::new));
                return Poll::Ready(outcome);
            }
        };
        let trailers = match (&mut self.0, &outcome) {
            (Source::Arriving(_), Ok(Some(_))) => return Poll::Ready(outcome),
            (Source::Arriving(arriving), Ok(None)) => arriving.pipe.take_trailers().map(Box::new),
            (Source::Ended(trailers), _) => trailers.take(),
            _ => None,
        };
        self.0 = Source::Ended(trailers);
        Poll::Ready(outcome)
    }

    /// The fields behind a body, once it was read to its end.
    pub fn trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.0 {
            Source::Ended(trailers) => trailers.take().map(|trailers| *trailers),
            _ => None,
        }
    }
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Body {
        Body(Source::Whole(bytes.into()))
    }
}

impl Guarded {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        let outcome = ready!(self.body.poll_chunk(cx)).and_then(|piece| {
            let bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
            self.left = self.left.checked_sub(bytes).ok_or(BodyFault::TooLarge)?;
            Ok(piece)
        });
        Poll::Ready(outcome)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        let mut trailers = self.body.trailers()?;
        let keeps = self.keeps_trailer;
        let dropped: Vec<HeaderName> =
            trailers.keys().filter(|name| !keeps(name)).cloned().collect();
        for name in dropped {
            trailers.remove(name);
        }
        Some(trailers)
    }
}

impl Arriving {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        match self.pipe.poll_take(cx) {
            Poll::Ready(outcome) => Poll::Ready(self.timeouts.progress(outcome)),
            Poll::Pending => self.timeouts.poll(cx).map(Err),
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.pipe.close();
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        if self.ending {
            return Poll::Ready(Ok(None));
        }
        let polled = loop {
            match self.incoming.poll_data(cx) {
                // No progress. To a reader that passes pieces on, an empty one would look like the
                // end.
                Poll::Ready(Ok(Some(piece))) if piece.is_empty() => {}
                Poll::Ready(polled) => break polled,
                Poll::Pending => {
                    if let Some(continue_signal) = self.continue_signal.take() {
                        continue_signal.send();
                    }
                    return self.timeouts.poll(cx).map(Err);
                }
            }
        };
        self.ending = matches!(polled, Ok(None));
        Poll::Ready(self.timeouts.progress(polled))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ending {
            self.incoming.abandon();
        }
    }
}

/// Signals the task of a stream that its body is wanted, for a client that waits for 100.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContinueSignal(Arc<Mutex<(bool, Option<Waker>)>>);

impl ContinueSignal {
    fn send(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    /// Whether it was sent; if not, the context's task is woken when it is.
    pub(crate) fn wanted(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = Some(cx.waker().clone());
        state.0
    }
}

/// The two clocks of a body. A timer is made only when the body has to be waited for: most bodies
/// arrive together with their head.
#[derive(Debug)]
struct BodyTimeouts {
    /// Whether the whole has to arrive in time, and not only each piece.
    bounded: bool,
    whole: Duration,
    stall: Duration,
    floor_bytes: usize,
    pace: Pace,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    deadline: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    /// Not set again since the last piece.
    rested: bool,
    /// Since when the client is waited for.
    since: Instant,
}

impl BodyTimeouts {
    fn new(limits: &Limits) -> BodyTimeouts {
        BodyTimeouts {
            bounded: false,
            whole: limits.body_timeout,
            stall: limits.body_stall,
            floor_bytes: limits.floor_bytes,
            pace: Pace::default(),
            waiting: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let waiting = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            let deadline = self.bounded.then(|| now + self.whole);
            let next = earlier(deadline, now + self.stall);
            Waiting { deadline, timer: Box::pin(sleep_until(next)), rested: false, since: now }
        });
        if std::mem::take(&mut waiting.rested) {
            waiting.since = Instant::now();
            waiting.timer.as_mut().reset(earlier(waiting.deadline, waiting.since + self.stall));
        }
        ready!(waiting.timer.as_mut().poll(cx));
        Poll::Ready(BodyFault::Timeout)
    }

    /// A piece has come. The clock stands until the next one is asked for and not there. A body
    /// that is passed on in pieces has no deadline, but a least pace.
    fn progress(
        &mut self,
        outcome: Result<Option<Bytes>, BodyFault>,
    ) -> Result<Option<Bytes>, BodyFault> {
        let Some(waiting) = &mut self.waiting else { return outcome };
        let has_waited = !std::mem::replace(&mut waiting.rested, true);
        match &outcome {
            Ok(Some(piece)) if !self.bounded => {
                let waited = if has_waited { waiting.since.elapsed() } else { Duration::ZERO };
                match self.pace.keeps(waited, piece.len(), self.whole, self.floor_bytes) {
                    true => outcome,
                    false => Err(BodyFault::Timeout),
                }
            }
            _ => outcome,
        }
    }
}

fn earlier(deadline: Option<Instant>, stall: Instant) -> Instant {
    deadline.map_or(stall, |deadline| deadline.min(stall))
}
