//! A value that one thread waits for and another brings, without an async runtime. The first answer
//! counts. If nobody can bring one any more, the wait ends without a value.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// Those that can still bring the value.
    answers: AtomicUsize,
}

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// A thread waits. To notify nobody costs a call of the system, too.
    is_blocking: bool,
    /// Brought, never to be brought, or no longer waited for.
    closed: bool,
}

/// The side that brings the value. When the last one is dropped, the wait ends.
pub(super) struct Answer<T>(Arc<Shared<T>>);

/// The side that waits. None if the value does not come.
pub(super) struct Wait<T>(Arc<Shared<T>>);

pub(super) fn slot<T>() -> (Answer<T>, Wait<T>) {
    let state = State { value: None, waker: None, is_blocking: false, closed: false };
    let (state, changed, answers) = (Mutex::new(state), Condvar::new(), AtomicUsize::new(1));
    let shared = Arc::new(Shared { state, changed, answers });
    (Answer(shared.clone()), Wait(shared))
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the wait. Returns the value if it had ended before.
    fn end(&self, value: Option<T>) -> Option<T> {
        let mut state = self.lock();
        if state.closed {
            return value;
        }
        state.closed = true;
        state.value = value;
        let (waker, is_blocking) = (state.waker.take(), state.is_blocking);
        drop(state);
        if is_blocking {
            self.changed.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }
}

impl<T> Answer<T> {
    /// Returns the value if nobody waits for it any more.
    pub fn send(&self, value: T) -> Result<(), T> {
        self.0.end(Some(value)).map_or(Ok(()), Err)
    }

    pub fn is_waited_for(&self) -> bool {
        !self.0.lock().closed
    }
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        self.0.answers.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if self.0.answers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.end(None);
        }
    }
}

impl<T> Wait<T> {
    /// The value, if it comes in time.
    pub fn block_until(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            if let Some(value) = state.value.take() {
                return Some(value);
            }
            if state.closed {
                return None;
            }
            state.is_blocking = true;
            state = match deadline {
                None => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.0.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits no longer. Returns the value if it has come.
    pub fn close(&self) -> Option<T> {
        let mut state = self.0.lock();
        state.closed = true;
        state.value.take()
    }
}

impl<T> Future for Wait<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if state.closed {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_the_last_answer_is_dropped_and_not_before() {
        let (answer, mut wait) = slot::<u8>();
        let other = answer.clone();
        drop(answer);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut wait).poll(&mut context).is_pending());
        let thread = std::thread::spawn(move || wait.block_until(None));
        drop(other);
        assert_eq!(thread.join().unwrap(), None);
    }

    #[test]
    fn a_value_stays_when_its_answer_is_dropped() {
        let (answer, wait) = slot();
        assert_eq!(answer.send(1), Ok(()));
        assert_eq!(answer.send(2), Err(2), "the first one counts");
        drop(answer);
        assert_eq!(wait.block_until(None), Some(1));
    }
}
