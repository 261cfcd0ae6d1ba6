//! The timeout of whatever a connection waits for. A request sets several of them and nearly always
//! ends before the first, so setting one only stores it: the runtime's timer is touched when it
//! fires too early, or would fire too late.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

/// A time that is never reached: a timer needs some time to wait for.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Clock {
    due: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    /// Waits for so long from now on, but not beyond the deadline.
    pub(super) fn set(&mut self, timeout: Option<Duration>, deadline: Option<Instant>) {
        let own = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.due = match (own, deadline) {
            (Some(own), Some(deadline)) => Some(own.min(deadline)),
            (own, deadline) => own.or(deadline),
        };
    }

    pub(super) fn stop(&mut self) {
        self.due = None;
    }

    /// Ready when the time is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        let due = tokio::time::Instant::from_std(due);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if tokio::time::Instant::now() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}

/// The instant after so long, or one that is never reached.
pub(super) fn after(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout.min(FAR)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn rings(clock: &mut Clock) -> Duration {
        let begun = Instant::now();
        poll_fn(|cx| clock.poll(cx)).await;
        begun.elapsed()
    }

    #[tokio::test]
    async fn the_last_time_set_counts_whether_it_is_earlier_or_later() {
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(600));
        let mut clock = Clock::default();
        clock.set(Some(long), None);
        let waits = poll_fn(|cx| Poll::Ready(clock.poll(cx).is_pending())).await;
        assert!(waits);
        clock.set(Some(short), None);
        assert!(rings(&mut clock).await >= short);
        clock.set(Some(2 * short), Some(after(long)));
        assert!(rings(&mut clock).await >= 2 * short);
        clock.set(Some(Duration::MAX), Some(after(short)));
        assert!(rings(&mut clock).await < long / 10);
        clock.stop();
        let waits = poll_fn(|cx| Poll::Ready(clock.poll(cx).is_pending())).await;
        assert!(waits);
    }
}
