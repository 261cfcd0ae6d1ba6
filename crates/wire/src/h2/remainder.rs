//! The body of a request on a stream of HTTP/2: for its reader, and for the task that discards what
//! the reader does not want.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;

use super::blocks::Violations;
use crate::body::Incoming;
use crate::fault::BodyFault;
use crate::memory::{Charge, Key};

/// The body of a request, which its reader may abandon. The task that answers takes the rest then:
/// what nobody takes would fill the window of all streams, and a client that is stopped in the
/// middle of sending may never look at the response.
#[derive(Clone, Debug)]
pub(crate) struct Remainder(Arc<Mutex<Left>>);

#[derive(Debug)]
struct Left {
    incoming: RecvStream,
    /// For what may arrive and is not read; none once nothing more can.
    charge: Option<Charge>,
    unwanted: bool,
    discarding: Option<Waker>,
    /// Where the connection notes what is wrong with it.
    violations: Option<Arc<Violations>>,
}

impl Left {
    fn is_violated(&self) -> bool {
        let stream = self.incoming.stream_id().as_u32();
        self.violations.as_ref().is_some_and(|violations| violations.has(stream))
    }
}

impl Remainder {
    pub(crate) fn new(
        incoming: RecvStream,
        charge: Charge,
        violations: Arc<Violations>,
    ) -> Remainder {
        Remainder::with(incoming, Some(charge), Some(violations))
    }

    fn with(
        incoming: RecvStream,
        charge: Option<Charge>,
        violations: Option<Arc<Violations>>,
    ) -> Remainder {
        let left = Left { incoming, charge, unwanted: false, discarding: None, violations };
        Remainder(Arc::new(Mutex::new(left)))
    }

    /// A body without a reader.
    pub(crate) fn unwanted(incoming: RecvStream) -> Remainder {
        let remainder = Remainder::with(incoming, None, None);
        remainder.leave();
        remainder
    }

    /// Whether its reader has left something.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.lock().unwanted
    }

    /// Forgets what has arrived, once it is not wanted; ready at its end.
    pub(crate) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut left = self.lock();
        if !left.unwanted {
            left.discarding = Some(cx.waker().clone());
            return Poll::Pending;
        }
        while let Some(Ok(piece)) = ready!(left.incoming.poll_data(cx)) {
            let _ = left.incoming.flow_control().release_capacity(piece.len());
        }
        Poll::Ready(())
    }

    /// From now on what arrives is forgotten at once, and so not held.
    fn leave(&self) {
        let mut left = self.lock();
        left.unwanted = true;
        left.charge = None;
        if let Some(waker) = left.discarding.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Incoming for Remainder {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        let mut left = self.lock();
        let polled = ready!(left.incoming.poll_data(cx));
        if !matches!(polled, Some(Ok(_))) {
            left.charge = None;
        }
        Poll::Ready(match polled {
            // What is taken makes room for more; a stream that is gone needs none.
            Some(Ok(piece)) => {
                let _ = left.incoming.flow_control().release_capacity(piece.len());
                Ok(Some(piece))
            }
            // h2 says so where the length is not the declared one. A client may use the same code.
            Some(Err(error))
                if error.reason() == Some(Reason::PROTOCOL_ERROR) && !error.is_remote() =>
            {
                Err(BodyFault::Malformed)
            }
            Some(Err(_)) => Err(BodyFault::Incomplete),
            None if left.is_violated() => Err(BodyFault::Malformed),
            None => Ok(None),
        })
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Option<HeaderMap>> {
        self.lock().incoming.poll_trailers(cx).map(|all| all.ok().flatten())
    }

    fn charge_to(&self, key: Key) -> bool {
        self.lock().charge.as_mut().is_none_or(|charge| charge.move_to(key))
    }

    fn abandon(&mut self) {
        self.leave();
    }
}
