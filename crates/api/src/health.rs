//! The health check: whether the store works and every loop makes progress. It always responds
//! within `PROBE_DEADLINE`, even if something hangs: a separate thread asks the store, one at a
//! time.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use store::{BoxFuture, Stuck, Upkeep, Watchdog};
use tokio::sync::watch;
use tokio::time::timeout;

/// A busy loop without progress for this long is stuck. 10 s: the longest single step of any loop,
/// a commit on a slow disk, is far shorter.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Time limit of the store's answer. 2 s: load balancers give up after 2 to 5 s.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// Asks the store.
type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
/// Result of a probe, once it has one.
type Found = watch::Receiver<Option<Result<(), String>>>;

pub struct Health {
    probe: Probe,
    watchdog: Arc<Watchdog>,
    stuck_after: Duration,
    deadline: Duration,
    /// The newest probe.
    newest: Mutex<Option<Found>>,
}

/// What is wrong, if anything is.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub store: Result<(), String>,
    pub stuck: Vec<Stuck>,
}

impl Health {
    pub fn new(store: Arc<dyn Upkeep>) -> Health {
        let watchdog = store.watchdog().clone();
        let probe: Probe = Arc::new(move || {
            let store = store.clone();
            Box::pin(async move { store.health().await.map_err(|error| error.to_string()) })
        });
        Health {
            probe,
            watchdog,
            stuck_after: STUCK_AFTER,
            deadline: PROBE_DEADLINE,
            newest: Mutex::default(),
        }
    }

    pub async fn check(&self) -> Report {
        let store = match self.join_probe() {
            Ok(mut found) => {
                let answered = timeout(self.deadline, found.wait_for(Option::is_some)).await;
                match answered {
                    Ok(Ok(found)) => found.clone().unwrap_or(Ok(())),
                    Ok(Err(_)) => Err("the check of the store panicked".to_owned()),
                    Err(_) => {
                        let seconds = self.deadline.as_secs_f64();
                        Err(format!("the store did not answer within {seconds} s"))
                    }
                }
            }
            Err(error) => Err(format!("the check of the store could not start: {error}")),
        };
        Report { store, stuck: self.watchdog.stuck(self.stuck_after) }
    }

    pub fn silences(&self) -> Vec<Stuck> {
        self.watchdog.silences()
    }

    /// The running probe, or a new one. While one hangs, no further thread is started.
    fn join_probe(&self) -> std::io::Result<Found> {
        let mut newest = self.newest.lock();
        if let Some(found) = &*newest
            && found.borrow().is_none()
            && found.has_changed().is_ok()
        {
            return Ok(found.clone());
        }
        let (sender, found) = watch::channel(None);
        let probe = self.probe.clone();
        // Not a task: the call may block, and blocked threads of a runtime delay its shutdown.
        std::thread::Builder::new().name("health".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let result = match runtime {
                Ok(runtime) => runtime.block_on(probe()),
                Err(error) => Err(error.to_string()),
            };
            sender.send_replace(Some(result));
        })?;
        *newest = Some(found.clone());
        Ok(found)
    }
}

impl Report {
    /// One word for the most severe problem; `None` if there is none.
    pub fn word(&self) -> Option<&'static str> {
        match (self.stuck.is_empty(), &self.store) {
            (false, _) => Some("stuck"),
            (true, Err(_)) => Some("store_failed"),
            (true, Ok(())) => None,
        }
    }

    pub fn reason(&self) -> Option<String> {
        let names: Vec<&str> = self.stuck.iter().map(|stuck| stuck.name).collect();
        let stuck = (!names.is_empty()).then(|| format!("does not move: {}", names.join(", ")));
        let all: Vec<String> = self.store.clone().err().into_iter().chain(stuck).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn health(probe: Probe, stuck_after: Duration) -> Health {
        let (watchdog, deadline) = (Watchdog::new(), Duration::from_millis(50));
        Health { probe, watchdog, stuck_after, deadline, newest: Mutex::default() }
    }

    fn answering(result: Result<(), String>) -> Probe {
        Arc::new(move || Box::pin(std::future::ready(result.clone())))
    }

    #[tokio::test]
    async fn a_loop_without_progress_is_reported_until_it_makes_progress() {
        let health = health(answering(Ok(())), Duration::from_millis(20));
        let (writer, hub) = (health.watchdog.watch("writer"), health.watchdog.watch("hub"));
        hub.beat();
        hub.rest();
        writer.beat();
        let deadline = Instant::now() + PATIENCE;
        let report = loop {
            let report = health.check().await;
            if report.word().is_some() {
                break report;
            }
            assert!(Instant::now() < deadline);
        };
        assert_eq!((report.word(), &report.store), (Some("stuck"), &Ok(())));
        assert_eq!(report.reason().unwrap(), "does not move: writer");
        assert!(report.stuck[0].silent > Duration::from_millis(20));
        writer.rest();
        assert_eq!(health.check().await, Report { store: Ok(()), stuck: Vec::new() });
        assert_eq!(health.silences().len(), 2);
    }

    #[tokio::test]
    async fn a_hanging_store_is_reported_in_time_and_blocks_one_thread_only() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let probe: Probe = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(pending())
        });
        let health = health(probe, PATIENCE);
        let checks = async { tokio::join!(health.check(), health.check(), health.check()) };
        let (first, ..) = timeout(PATIENCE, checks).await.unwrap();
        assert_eq!(first.word(), Some("store_failed"));
        assert_eq!(first.reason().unwrap(), "the store did not answer within 0.05 s");
        assert_eq!(health.check().await.word(), Some("store_failed"));
        assert!(asked.load(Ordering::Relaxed) <= 1);
    }

    #[tokio::test]
    async fn each_check_asks_the_store_again_and_reports_its_error() {
        let failed = health(answering(Err("the disk is full".into())), PATIENCE);
        for _ in 0..2 {
            let report = failed.check().await;
            assert_eq!(report.reason().unwrap(), "the disk is full");
        }
        let panics: Probe = Arc::new(|| Box::pin(async { panic!("the store panics") }));
        let panicking = health(panics, PATIENCE);
        for _ in 0..2 {
            assert_eq!(panicking.check().await.word(), Some("store_failed"));
        }
    }
}
