//! Timed transitions: waits for the next one that is due and commits it like any other write. What
//! waits is in the store, so it survives restarts; a transition whose state has passed does
//! nothing.

use crate::Outside;
use model::write::{Cause, Change, Precondition, Write};
use std::sync::Arc;
use std::time::Duration;
use store::{Store, Timer};

/// Transitions committed at once.
const BATCH: usize = 256;
/// Looked at this often at the latest: a clock that jumps is noticed within it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Runs until the task is dropped.
pub async fn run(store: Arc<dyn Store>, outside: Arc<dyn Outside>) {
    let mut set = store.timers();
    loop {
        // Marked as seen before the query: a timer set meanwhile wakes the wait below.
        set.borrow_and_update();
        let wait = match turn(&*store, &*outside).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "timed transitions must wait");
                AFTER_FAILURE
            }
        };
        if wait.is_zero() {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = set.changed() => if changed.is_err() { return },
        }
    }
}

/// Commits what is due; says how long nothing will be.
async fn turn(store: &dyn Store, outside: &dyn Outside) -> Result<Duration, store::Error> {
    let now = outside.now();
    let due = store.due(now, BATCH).await?;
    let full = due.timers.len() == BATCH;
    for timer in due.timers {
        fire(store, outside, timer).await?;
    }
    if full {
        return Ok(Duration::ZERO);
    }
    let millis = due.next.map_or(i64::MAX, |next| next.0.saturating_sub(now.0).max(1));
    Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(1)).min(LONGEST_WAIT))
}

async fn fire(store: &dyn Store, outside: &dyn Outside, timer: Timer) -> Result<(), store::Error> {
    let write = Write {
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
    };
    if let Err(problem) = store.commit(write).await? {
        tracing::warn!(message = problem.message, "a timed transition was refused");
    }
    Ok(())
}
