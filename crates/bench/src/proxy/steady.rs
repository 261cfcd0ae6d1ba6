//! Clients that work at a steady pace in a thread of their own while the scenario disturbs the
//! proxy or its backends. They count failures instead of ending at the first.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::backend::BODY_BYTES;
use super::client::{Ask, Lane};
use super::load::in_runtime;

/// A response that takes longer counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Between two requests of one client.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest time that clients work; no scenario takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(600);

/// What clients of one kind have done.
#[derive(Default)]
pub struct Tally {
    /// Clients that have had their first response.
    opened: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    /// Clients that worked until they were told to end.
    finished: AtomicU64,
    reason: Mutex<Option<String>>,
}

impl Tally {
    pub fn open(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub fn succeed(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// The first reason is kept.
    pub fn fail(&self, reason: impl Display) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| reason.to_string());
    }

    pub fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    pub fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Tells clients to end after their current work.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub type Task = Pin<Box<dyn Future<Output = ()>>>;

pub struct Clients {
    stop: Stop,
    thread: JoinHandle<Result<()>>,
}

impl Clients {
    /// `tasks` creates the clients; it runs in their thread.
    pub fn start(tasks: impl FnOnce(&Stop) -> Vec<Task> + Send + 'static) -> Clients {
        let stop = Stop::default();
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            in_runtime(LIMIT, async {
                let tasks: Vec<_> = tasks(&told).into_iter().map(spawn_local).collect();
                for task in tasks {
                    task.await.context("a client panicked")?;
                }
                Ok(())
            })
        });
        Clients { stop, thread }
    }

    /// Lets the clients end; returns when all have ended.
    pub fn finish(self) -> Result<()> {
        self.stop.0.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread of the clients panicked"))?
    }
}

/// GETs of one client on a kept connection.
pub async fn gets(address: String, path: &'static str, tally: Arc<Tally>, stop: Stop) {
    let ask = Ask { path, authorized: true, body_bytes: BODY_BYTES };
    let encoded = ask.http1();
    let mut lane = None;
    while !stop.is_set() {
        let exchange = async {
            let mut open = match lane.take() {
                Some(open) => open,
                None => Lane::plain(&address).await?,
            };
            open.ask(&ask, &encoded).await?;
            anyhow::Ok(open)
        };
        match timeout(PATIENCE, exchange).await {
            Ok(Ok(open)) => {
                tally.succeed();
                lane = Some(open);
            }
            Ok(Err(error)) => tally.fail(format!("GET {path}: {error:#}")),
            Err(_) => tally.fail(format!("GET {path}: no response within {PATIENCE:?}")),
        }
        sleep(PAUSE).await;
    }
    tally.finish();
}

/// Waits until the condition holds; an error after the limit.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let began = Instant::now();
    while !condition()? {
        ensure!(began.elapsed() < limit, "not within {limit:?}: {what}");
        // waits for: the condition
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
