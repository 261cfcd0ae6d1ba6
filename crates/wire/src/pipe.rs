//! Between a connection and the reader of a request's body, which may be another task: room for
//! one piece, so that the client is never read faster than the body is wanted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;

use crate::fault::BodyFault;

#[derive(Debug, Default)]
pub(crate) struct Pipe(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    piece: Option<Bytes>,
    end: Option<Result<(), BodyFault>>,
    trailers: Option<HeaderMap>,
    /// The reader waits for a piece.
    wanted: bool,
    /// The reader is gone; what still comes is discarded.
    closed: bool,
    reader: Option<Waker>,
    filler: Option<Waker>,
}

impl Pipe {
    /// The reader's side: a piece, or the end.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        let mut state = self.lock();
        if let Some(piece) = state.piece.take() {
            return Poll::Ready(Ok(Some(piece)));
        }
        if let Some(end) = state.end {
            return Poll::Ready(end.map(|()| None));
        }
        state.wanted = true;
        state.reader = Some(cx.waker().clone());
        // The connection asks again after each call into the service, so it needs a wake only if
        // the reader lives elsewhere.
        let elsewhere = |filler: &mut Waker| !filler.will_wake(cx.waker());
        if let Some(filler) = state.filler.take_if(elsewhere) {
            filler.wake();
        }
        Poll::Pending
    }

    pub(crate) fn take_trailers(&self) -> Option<HeaderMap> {
        self.lock().trailers.take()
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// Whether the reader is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The connection's side: whether a piece is wanted. If not, its task is woken when one is.
    pub(crate) fn wants(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.lock();
        let wants = state.wanted && state.piece.is_none() && !state.closed;
        if !wants {
            state.filler = Some(cx.waker().clone());
        }
        wants
    }

    /// A reader in the connection's own task is not woken: the connection calls it next anyway.
    pub(crate) fn fill(&self, piece: Bytes, cx: &mut Context<'_>) {
        let mut state = self.lock();
        state.piece = Some(piece);
        state.wanted = false;
        wake_reader(&mut state, Some(cx.waker()));
    }

    pub(crate) fn finish(&self, end: Result<Option<HeaderMap>, BodyFault>, own: Option<&Waker>) {
        let mut state = self.lock();
        state.end = Some(end.map(|trailers| state.trailers = trailers));
        wake_reader(&mut state, own);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake_reader(state: &mut State, own: Option<&Waker>) {
    let elsewhere = |reader: &Waker| own.is_none_or(|own| !reader.will_wake(own));
    if let Some(reader) = state.reader.take().filter(elsewhere) {
        reader.wake();
    }
}
