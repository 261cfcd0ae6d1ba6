//! Timed transitions: waits for due transitions and commits them like any other write, all of a
//! round together, so that they share commits. The store holds the timers, so they survive
//! restarts. A transition whose record has left the state does nothing. The store sets aside a
//! transition that cannot fire, so it never delays the next.

use crate::Outside;
use model::Timestamp;
use model::write::{Cause, Change, Precondition, Write};
use std::sync::Arc;
use std::time::Duration;
use store::{Store, Timer};
use tokio::task::JoinSet;

/// Transitions committed in one round: as many as one commit takes.
const BATCH: usize = 256;
/// The longest wait between two rounds: a clock that jumps is noticed within it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Wait while the queue of an account is full. Short, so that it hardly delays the timers of
/// others.
const WHILE_BUSY: Duration = Duration::from_millis(20);

/// Runs until the task is dropped.
pub async fn run(store: Arc<dyn Store>, outside: Arc<dyn Outside>) {
    let heartbeat = store.watchdog().watch("timers");
    let mut set = store.timers();
    let started_at = outside.now().0.saturating_sub(millis(outside.uptime()));
    loop {
        // Marked as seen before the query: a timer that is set during the query ends the wait
        // below.
        set.borrow_and_update();
        heartbeat.beat();
        let wait = match run_due(&store, &*outside, started_at).await {
            Ok(wait) => wait,
            Err(store::Error::Busy) => WHILE_BUSY,
            Err(error) => {
                tracing::warn!(%error, "timed transitions are delayed");
                AFTER_FAILURE
            }
        };
        if wait.is_zero() {
            continue;
        }
        heartbeat.rest();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = set.changed() => if changed.is_err() { return },
        }
    }
}

/// Commits the due transitions; returns the time until the next one.
async fn run_due(
    store: &Arc<dyn Store>,
    outside: &dyn Outside,
    started_at: i64,
) -> Result<Duration, store::Error> {
    // Stored times never go backwards, so setting the clock back must not delay the timers that
    // start from them.
    let monotonic = started_at.saturating_add(millis(outside.uptime()));
    let now = Timestamp(outside.now().0.max(monotonic));
    let due = store.due(now, BATCH).await?;
    let mut writes = JoinSet::new();
    for timer in due.timers {
        let (store, write) = (store.clone(), write(outside, timer));
        writes.spawn(async move { store.commit(write).await });
    }
    let mut failure = None;
    while let Some(done) = writes.join_next().await {
        match done {
            Ok(Ok(Ok(_))) => {}
            Ok(Ok(Err(problem))) => {
                tracing::warn!(message = problem.message, "a timed transition was refused");
            }
            // The other transitions continue: only this account's queue is full.
            Ok(Err(store::Error::Busy)) => {
                failure.get_or_insert(store::Error::Busy);
            }
            Ok(Err(error)) => failure = Some(error),
            Err(panic) => failure = Some(store::Error::Failed(Box::new(panic))),
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let millis = due.next.map_or(i64::MAX, |next| next.0.saturating_sub(now.0).max(0));
    Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(LONGEST_WAIT))
}

fn write(outside: &dyn Outside, timer: Timer) -> Write {
    Write {
        scope: timer.scope,
        collection: timer.collection,
        id: Some(timer.id),
        parent: timer.parent,
        change: Change::Timed { transition: timer.transition },
        view: None,
        precondition: Precondition::None,
        idempotency: None,
        cause: Cause::default(),
        now: outside.now(),
        entropy: outside.entropy(),
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
