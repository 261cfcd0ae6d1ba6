//! A value that one thread waits for and another brings, without an async runtime. The first answer
//! counts.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// A thread waits. To notify nobody costs a call of the system, too.
    is_blocking: bool,
    /// Brought, or no longer waited for.
    closed: bool,
}

/// The side that brings the value.
pub(super) struct Answer<T>(Arc<(Mutex<State<T>>, Condvar)>);

/// The side that waits.
pub(super) struct Wait<T>(Arc<(Mutex<State<T>>, Condvar)>);

pub(super) fn slot<T>() -> (Answer<T>, Wait<T>) {
    let state = State { value: None, waker: None, is_blocking: false, closed: false };
    let shared = Arc::new((Mutex::new(state), Condvar::new()));
    (Answer(shared.clone()), Wait(shared))
}

fn lock<T>(shared: &(Mutex<State<T>>, Condvar)) -> MutexGuard<'_, State<T>> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Answer<T> {
    /// Returns the value if nobody waits for it any more.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut state = lock(&self.0);
        if state.closed {
            return Err(value);
        }
        state.closed = true;
        state.value = Some(value);
        let (waker, is_blocking) = (state.waker.take(), state.is_blocking);
        drop(state);
        if is_blocking {
            self.0.1.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    pub fn is_waited_for(&self) -> bool {
        !lock(&self.0).closed
    }
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Wait<T> {
    /// The value, if it comes in time.
    pub fn block_until(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = lock(&self.0);
        loop {
            if let Some(value) = state.value.take() {
                return Some(value);
            }
            state.is_blocking = true;
            state = match deadline {
                None => self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.0.1.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits no longer. Returns the value if it has come.
    pub fn close(&self) -> Option<T> {
        let mut state = lock(&self.0);
        state.closed = true;
        state.value.take()
    }
}

impl<T> Future for Wait<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.0);
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
