//! The thread on which actions with a handler run to their end. A handler has effects of its own,
//! so a client that leaves must not end the call half way, nor free the record for its next try
//! while the handler still works. What runs here owns everything it holds: the lock of its record,
//! its idempotency key and its place among the handler calls (`in_flight`), of which there are
//! `MAX_HANDLER_CALLS`. Knows neither requests nor handlers.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use store::{Heartbeat, Watchdog};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

/// How often the thread reports that it moves.
const HEARTBEAT: Duration = Duration::from_secs(1);

pub struct Actions {
    runtime: Handle,
    /// Actions that have begun and have not ended.
    running: Arc<watch::Sender<usize>>,
    /// Ends the thread when it is dropped.
    stop: watch::Sender<bool>,
}

/// The thread ended before the action did.
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
                    // An error means that nobody is left to send anything.
                    _ = stopped.wait_for(|stop| *stop) => {}
                }
            });
        })?;
        Ok(Actions { runtime: handle, running: Arc::default(), stop })
    }

    /// Runs an action to its end, also when this future is dropped before.
    pub async fn run<T: Send + 'static>(
        &self,
        action: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let running = RunningAction::enter(&self.running);
        let (done, outcome) = oneshot::channel();
        let task = self.runtime.spawn(async move {
            let _under_way = running;
            // Nobody may be there to take it any more.
            let _ = done.send(action.await);
        });
        match outcome.await {
            Ok(value) => Ok(value),
            Err(_) => match task.await {
                // The client learns of it as of any other panic.
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                _ => Err(Stopped),
            },
        }
    }

    /// Waits for the actions that are under way, for so long. Those that are left then are
    /// cancelled; returns how many.
    pub async fn drain(&self, within: Duration) -> usize {
        let mut running = self.running.subscribe();
        let _ = timeout(within, running.wait_for(|count| *count == 0)).await;
        let left = *self.running.borrow();
        self.stop.send_replace(true);
        left
    }
}

/// One of those under way.
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
    async fn an_action_ends_whoever_leaves_and_a_drain_waits_for_it() {
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
    async fn an_action_that_outlasts_the_drain_is_cancelled_and_its_client_told() {
        let actions = actions();
        let (outcome, left) =
            tokio::join!(actions.run(pending::<()>()), actions.drain(Duration::from_millis(1)));
        assert_eq!((outcome, left), (Err(Stopped), 1));
        assert_eq!(actions.run(async { 1 }).await, Err(Stopped), "nothing begins after that");
        assert_eq!(*actions.running.borrow(), 0);
    }

    #[tokio::test]
    async fn a_panic_is_the_callers() {
        let actions = Arc::new(actions());
        let own = actions.clone();
        let caller = tokio::spawn(async move { own.run(async { panic!("on purpose") }).await });
        assert!(caller.await.unwrap_err().is_panic());
        assert_eq!(actions.run(async { 7 }).await, Ok(7));
    }
}
