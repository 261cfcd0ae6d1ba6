//! Timed transitions: waits for the next ones that are due and commits them like any other writes,
//! all of a turn at once, so that they share commits. What waits is in the store, so it survives
//! restarts; a transition whose state has passed does nothing. One that cannot fire is set aside by
//! the store and never holds up the next.

use crate::Outside;
use model::Timestamp;
use model::write::{Cause, Change, Precondition, Write};
use std::sync::Arc;
use std::time::Duration;
use store::{Store, Timer};
use tokio::task::JoinSet;

/// Transitions committed in one turn: as many as a commit takes.
const BATCH: usize = 256;
/// Looked at this often at the latest: a clock that jumps is noticed within it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// An account whose queue is full delays nobody else's timers by more.
const WHILE_BUSY: Duration = Duration::from_millis(20);

/// Runs until the task is dropped.
pub async fn run(store: Arc<dyn Store>, outside: Arc<dyn Outside>) {
    let heartbeat = store.watchdog().watch("timers");
    let mut set = store.timers();
    let begun = outside.now().0.saturating_sub(millis(outside.uptime()));
    loop {
        // Marked as seen before the query: a timer set meanwhile wakes the wait below.
        set.borrow_and_update();
        heartbeat.beat();
        let wait = match turn(&store, &*outside, begun).await {
            Ok(wait) => wait,
            Err(store::Error::Busy) => WHILE_BUSY,
            Err(error) => {
                tracing::warn!(%error, "timed transitions must wait");
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

/// Commits what is due; says how long nothing will be.
async fn turn(
    store: &Arc<dyn Store>,
    outside: &dyn Outside,
    begun: i64,
) -> Result<Duration, store::Error> {
    // Written times never go back, so a clock that is set back must not delay what they begin.
    let steady = begun.saturating_add(millis(outside.uptime()));
    let now = Timestamp(outside.now().0.max(steady));
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
            // The others go on: an account whose queue is full is alone in that.
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
