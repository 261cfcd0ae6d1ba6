//! How many calls a backend has at a time, and how many wait for it. Knows neither connections nor
//! requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use super::clock::after;
use super::fault::{OutgoingFault, Stage};

/// The limits of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Calls in progress, and on HTTP/1.1 as many connections: from the request to the end of the
    /// response body, or of a tunnel.
    pub active: usize,
    /// Calls that wait for one of those to end. One more is refused (`queue_full`): a queue longer
    /// than what the backend can answer in time only delays the refusal.
    pub queued: usize,
    /// The longest wait.
    pub wait: Duration,
}

#[derive(Debug)]
pub(super) struct Gate {
    limits: Backlog,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The place of one call; given back when it is dropped.
pub(super) type Place = OwnedSemaphorePermit;

impl Gate {
    pub(super) fn new(limits: Backlog) -> Gate {
        let places = limits.active.min(Semaphore::MAX_PERMITS);
        Gate { limits, places: Arc::new(Semaphore::new(places)), waiting: AtomicUsize::new(0) }
    }

    /// A place, at once or after a wait.
    pub(super) async fn enter(&self, deadline: Option<Instant>) -> Result<Place, OutgoingFault> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = Waiting::begin(self).ok_or(OutgoingFault::QueueFull)?;
        let until = after(self.limits.wait);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        match timeout_at(until.into(), self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            // Nobody closes it.
            Ok(Err(_)) => Err(OutgoingFault::QueueFull),
            Err(_) => Err(OutgoingFault::Timeout(Stage::Queue)),
        }
    }
}

/// One who waits; counted until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn begin(gate: &Gate) -> Option<Waiting<'_>> {
        let most = gate.limits.queued;
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        let taken = gate.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Waiting(&gate.waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn calls_beyond_the_active_and_waiting_limits_are_refused() {
        let wait = Duration::from_millis(20);
        let gate = Gate::new(Backlog { active: 2, queued: 1, wait });
        let first = gate.enter(None).await.unwrap();
        let _second = gate.enter(None).await.unwrap();
        {
            let mut third = pin!(gate.enter(None));
            let waits = poll_fn(|cx| Poll::Ready(third.as_mut().poll(cx).is_pending())).await;
            assert!(waits);
            assert_eq!(gate.enter(None).await.unwrap_err().class(), "queue_full");
            drop(first);
            drop(third.await.unwrap());
        }
        let _third = gate.enter(None).await.unwrap();
        let fault = gate.enter(None).await.unwrap_err();
        assert!(matches!(fault, OutgoingFault::Timeout(Stage::Queue)), "{fault}");
        // Who gave up waits no longer.
        let fault = gate.enter(Some(Instant::now())).await.unwrap_err();
        assert!(matches!(fault, OutgoingFault::Timeout(Stage::Queue)), "{fault}");
    }
}
