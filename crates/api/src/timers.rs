//! Timed transitions: waits for due transitions and commits them like any other write, all of a
//! round together, so that they share commits. The store holds the timers, so they survive
//! restarts. A transition whose record has left the state does nothing. The store sets aside a
//! transition that cannot fire, so it never delays the next.

use crate::Outside;
use model::Timestamp;
use model::write::{Cause, Change, Precondition, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::cluster::{Cluster, Holdings, Lease};
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

/// The longest wait where several nodes share the timers.
const AMONG_NODES: Duration = Duration::from_millis(500);

/// The wait after a look that found none of the timers of this node: others may be about to fire
/// what is due.
const TIMERS_OF_OTHERS: Duration = Duration::from_millis(100);

/// Runs until the task is dropped.
pub async fn run(store: Arc<dyn Store>, outside: Arc<dyn Outside>, cluster: Arc<dyn Cluster>) {
    let heartbeat = store.watchdog().watch("timers");
    let (mut set, held) = (store.timers(), cluster.holdings());
    let started_at = outside.now().0.saturating_sub(millis(outside.uptime()));
    loop {
        // Marked as seen before the query: a timer that is set during the query ends the wait
        // below.
        set.borrow_and_update();
        heartbeat.beat();
        let holdings = held.borrow().clone();
        let wait = match run_due(&store, &*outside, &holdings, started_at).await {
            Ok((wait, 0)) if cluster.is_shared() => wait.max(TIMERS_OF_OTHERS),
            Ok((wait, _)) => wait,
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
        // Buckets and their timers come from other nodes.
        let wait = if cluster.is_shared() { wait.min(AMONG_NODES) } else { wait };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = set.changed() => if changed.is_err() { return },
        }
    }
}

/// Commits the due transitions; returns the time until the next one, and how many there were.
async fn run_due(
    store: &Arc<dyn Store>,
    outside: &dyn Outside,
    holdings: &Holdings,
    started_at: i64,
) -> Result<(Duration, usize), store::Error> {
    // Stored times never go backwards, so setting the clock back must not delay the timers that
    // start from them.
    let monotonic = started_at.saturating_add(millis(outside.uptime()));
    let now = Timestamp(outside.now().0.max(monotonic));
    let due = store.due(now, BATCH).await?;
    let mut writes = JoinSet::new();
    // Timers of accounts that other nodes serve are theirs.
    let serves = |timer: &Timer| holdings.serves(timer.scope, Instant::now());
    for timer in due.timers.into_iter().filter(serves) {
        let lease = holdings.lease(timer.scope);
        let (store, write) = (store.clone(), write(outside, timer, lease));
        writes.spawn(async move { store.commit(write).await });
    }
    let (mut failure, count) = (None, writes.len());
    while let Some(done) = writes.join_next().await {
        match done {
            Ok(Ok(Ok(_))) => {}
            Ok(Ok(Err(problem))) => {
                tracing::warn!(message = problem.message, "a timed transition was refused");
            }
            // This node was too slow: another one fires them.
            Ok(Err(store::Error::LeaseLost)) => {
                tracing::warn!("a timed transition came after its lease had ended");
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
    let wait = Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(LONGEST_WAIT);
    Ok((wait, count))
}

fn write(outside: &dyn Outside, timer: Timer, lease: Option<Lease>) -> Write {
    Write {
        scope: timer.scope,
        collection: timer.collection,
        id: Some(timer.id),
        parent: timer.parent,
        change: Change::Timed { transition: timer.transition },
        view: None,
        precondition: Precondition::None,
        idempotency: None,
        cause: Cause { lease: lease.map(Lease::into), ..Cause::default() },
        now: outside.now(),
        entropy: outside.entropy(),
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
