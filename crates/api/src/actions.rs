//! The thread on which actions with a handler run to their end. A handler has side effects, so a
//! client that disconnects must neither cancel the call nor unlock the record for a retry while the
//! handler still runs. An action owns everything that it holds: the lock of its record, its
//! idempotency key and its slot among the `MAX_HANDLER_CALLS` handler calls (`in_flight`). This
//! file knows neither requests nor handlers.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use store::{Heartbeat, Watchdog};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

/// Interval at which the thread reports that it makes progress.
const HEARTBEAT: Duration = Duration::from_secs(1);

pub struct Actions {
    runtime: Handle,
    /// Number of actions that have started and have not finished.
    running: Arc<watch::Sender<usize>>,
    /// Dropping it ends the thread.
    stop: watch::Sender<bool>,
}

/// The thread ended before the action finished.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped;

impl Actions {
    pub fn start(watchdog: &Arc<Watchdog>) -> io::Result<Actions> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let heartbeat = watchdog.watch("actions");
        let (stop, mut stopped) = watch::channel(false);
        std::thread::Builder::new().name("actions".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = beat(heartbeat) => {}
                    // An error means that the sender is gone.
                    _ = stopped.wait_for(|stop| *stop) => {}
                }
            });
        })?;
        Ok(Actions { runtime: handle, running: Arc::default(), stop })
    }

    /// Runs an action to its end, even if this future is dropped earlier.
    pub async fn run<T: Send + 'static>(
        &self,
        action: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let running = RunningAction::enter(&self.running);
        let (done, outcome) = oneshot::channel();
        let task = self.runtime.spawn(async move {
            let _counted = running;
            // The receiver may be gone: its client has disconnected.
            let _ = done.send(action.await);
        });
        match outcome.await {
            Ok(value) => Ok(value),
            Err(_) => match task.await {
                // Panics in the caller, so that the client gets the same response as for any other
                // panic.
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                _ => Err(Stopped),
            },
        }
    }

    /// Waits up to `within` for running actions. Cancels the remaining ones and returns their
    /// number.
    pub async fn drain(&self, within: Duration) -> usize {
        let mut running = self.running.subscribe();
        let _ = timeout(within, running.wait_for(|count| *count == 0)).await;
        let left = *self.running.borrow();
        self.stop.send_replace(true);
        left
    }
}

/// Counts one running action.
struct RunningAction(Arc<watch::Sender<usize>>);

impl RunningAction {
    fn enter(count: &Arc<watch::Sender<usize>>) -> RunningAction {
        count.send_modify(|count| *count += 1);
        RunningAction(count.clone())
    }
}

impl Drop for RunningAction {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

async fn beat(heartbeat: Heartbeat) {
    loop {
        heartbeat.beat();
        sleep(HEARTBEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::Notify;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn actions() -> Actions {
        Actions::start(&Watchdog::new()).unwrap()
    }

    #[tokio::test]
    async fn an_action_finishes_after_its_client_disconnects_and_a_drain_waits_for_it() {
        let actions = actions();
        let (go, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let action = {
            let (go, ended) = (go.clone(), ended.clone());
            async move {
                go.notified().await;
                ended.store(true, Ordering::Relaxed);
            }
        };
        let left = timeout(Duration::from_millis(1), actions.run(action)).await;
        assert!(left.is_err());
        let drain = actions.drain(PATIENCE);
        let (left, ()) = tokio::join!(drain, async { go.notify_one() });
        assert_eq!((left, ended.load(Ordering::Relaxed)), (0, true));
    }

    #[tokio::test]
    async fn an_action_that_outlasts_the_drain_is_cancelled_and_its_client_gets_an_error() {
        let actions = actions();
        let (outcome, left) =
            tokio::join!(actions.run(pending::<()>()), actions.drain(Duration::from_millis(1)));
        assert_eq!((outcome, left), (Err(Stopped), 1));
        assert_eq!(
            actions.run(async { 1 }).await,
            Err(Stopped),
            "no action starts after the drain"
        );
        assert_eq!(*actions.running.borrow(), 0);
    }

    #[tokio::test]
    async fn a_panic_in_an_action_reaches_its_caller() {
        let actions = Arc::new(actions());
        let own = actions.clone();
        let caller = tokio::spawn(async move { own.run(async { panic!("on purpose") }).await });
        assert!(caller.await.unwrap_err().is_panic());
        assert_eq!(actions.run(async { 7 }).await, Ok(7));
    }
}
