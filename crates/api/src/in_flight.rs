//! Limits on work in progress, with a fair share per account. A request takes a slot of its account
//! once its key is known, and returns it when it ends or its client disconnects. An action with a
//! handler also takes the lock of its record and a slot among the handler calls. It holds both
//! until it is committed, even if the client disconnects (`actions`).

use crate::idempotency::KeysInUse;
use model::caller::Scope;
use model::problem::{Code, Problem};
use model::schema::CollectionIx;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use wire::{Budget, Share};

/// Concurrent handler calls of all accounts; one account alone gets half. 256: a handler that takes
/// 100 ms serves 1,280 actions a second in the 128 slots of one account, and a handler that hangs
/// holds 128 outgoing connections.
const MAX_HANDLER_CALLS: usize = 256;
/// Requests that wait for the handler call of one record. 16: each waits for all requests before
/// it, so a longer queue would only reach `MAX_LOCK_WAIT`.
const MAX_WAITING_PER_RECORD: usize = 16;
/// How long a request waits for earlier handler calls. 10 s: the default timeout of one call.
pub const MAX_LOCK_WAIT: Duration = Duration::from_secs(10);
/// Seconds after which a refused client may try again.
const RETRY_AFTER: u64 = 1;

/// A slot of an account, by account number. Dropping it returns the slot.
pub type Slot = Share<i64>;

pub struct InFlight {
    pub keys: Arc<KeysInUse>,
    pub records: Arc<RecordLocks>,
    /// Requests whose account is known, while they hold one of wire's `max_exchanges`.
    requests: Arc<Budget<i64>>,
    calls: Arc<Budget<i64>>,
}

impl InFlight {
    /// `max_requests`: concurrent requests that wire accepts.
    pub fn new(max_requests: usize) -> InFlight {
        InFlight {
            keys: Arc::default(),
            records: Arc::default(),
            requests: Budget::new(max_requests),
            calls: Budget::new(MAX_HANDLER_CALLS),
        }
    }

    /// Takes a slot among the requests in progress.
    pub fn request(&self, scope: Scope) -> Result<Slot, Problem> {
        let slot = self.requests.take(scope.account_number(), 1);
        slot.ok_or_else(|| over_share("requests in progress"))
    }

    /// Takes a slot among the calls of action handlers.
    pub fn call(&self, scope: Scope) -> Result<Slot, Problem> {
        let slot = self.calls.take(scope.account_number(), 1);
        slot.ok_or_else(|| over_share("handler calls in progress"))
    }
}

fn over_share(what: &str) -> Problem {
    let message =
        format!("The account has reached its limit of {what}. Wait until some of them end.");
    Problem::new(Code::Overloaded, message).retry_after(RETRY_AFTER)
}

type Key = (Scope, CollectionIx, String);

/// Records with running or waiting handler calls: one call at a time for each record, in the order
/// of the requests.
#[derive(Default)]
pub struct RecordLocks(Mutex<HashMap<Key, Entry>>);

#[derive(Default)]
struct Entry {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Requests that hold the lock or wait for it. The last one removes the entry.
    requests: usize,
}

/// The lock of one record.
pub struct RecordLock {
    // Declared first, so that the lock is released before the entry is removed: a request that
    // arrives in between finds the entry and waits.
    _lock: OwnedMutexGuard<()>,
    _request: Request,
}

/// One request of an entry.
struct Request {
    locks: Arc<RecordLocks>,
    key: Key,
}

impl RecordLocks {
    /// Waits for the requests before this one.
    pub async fn lock(
        self: &Arc<RecordLocks>,
        scope: Scope,
        collection: CollectionIx,
        id: &str,
    ) -> Result<RecordLock, Problem> {
        let key = (scope, collection, id.to_owned());
        let (request, lock) = self.join(key).ok_or_else(in_progress)?;
        let lock = timeout(MAX_LOCK_WAIT, lock.lock_owned()).await;
        Ok(RecordLock { _lock: lock.map_err(|_| in_progress())?, _request: request })
    }

    /// `None` if too many requests wait for this record.
    fn join(self: &Arc<RecordLocks>, key: Key) -> Option<(Request, Arc<tokio::sync::Mutex<()>>)> {
        let mut entries = self.0.lock();
        let entry = entries.entry(key.clone()).or_default();
        // The request that holds the lock does not wait.
        if entry.requests > MAX_WAITING_PER_RECORD {
            return None;
        }
        entry.requests += 1;
        let lock = entry.lock.clone();
        drop(entries);
        Some((Request { locks: self.clone(), key }, lock))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut entries = self.locks.0.lock();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.requests -= 1;
            if entry.requests == 0 {
                entries.remove(&self.key);
            }
        }
    }
}

pub fn in_progress() -> Problem {
    let message = "Earlier requests for actions on this record are still waiting for its \
                   handler. Try again shortly.";
    Problem::new(Code::ActionInProgress, message).retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinHandle, yield_now};

    const SCOPE: Scope = Scope(2);

    /// Starts requests for the lock of record `a`, which the tasks take in turn. Each task returns
    /// the code of its error.
    async fn ask(
        locks: &Arc<RecordLocks>,
        count: usize,
        order: &Arc<Mutex<Vec<usize>>>,
    ) -> Vec<JoinHandle<Option<Code>>> {
        let ask = |number: usize| {
            let (locks, order) = (locks.clone(), order.clone());
            tokio::spawn(async move {
                let lock = locks.lock(SCOPE, 0, "a").await;
                order.lock().push(number);
                yield_now().await;
                lock.err().map(|problem| problem.code)
            })
        };
        let tasks = (0..count).map(ask).collect();
        yield_now().await;
        tasks
    }

    #[tokio::test]
    async fn handler_calls_for_one_record_run_in_order_and_do_not_delay_other_records() {
        let locks = Arc::new(RecordLocks::default());
        let first = locks.lock(SCOPE, 0, "a").await.unwrap();
        let order = Arc::default();
        let tasks = ask(&locks, 5, &order).await;
        for (scope, collection, id) in [(Scope(4), 0, "a"), (SCOPE, 1, "a"), (SCOPE, 0, "b")] {
            drop(locks.lock(scope, collection, id).await.unwrap());
        }
        assert!(order.lock().is_empty());
        drop(first);
        for task in tasks {
            assert_eq!(task.await.unwrap(), None);
        }
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
        assert!(locks.0.lock().is_empty(), "no entry is left for records without a lock");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_of_a_record_is_bounded_in_length_and_time_and_requests_can_leave_it() {
        let locks = Arc::new(RecordLocks::default());
        let first = locks.lock(SCOPE, 0, "a").await.unwrap();
        let order = Arc::default();
        let tasks = ask(&locks, MAX_WAITING_PER_RECORD, &order).await;
        let refused = locks.lock(SCOPE, 0, "a").await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after), (Code::ActionInProgress, Some(1)));
        tasks[0].abort();
        yield_now().await;
        let waited = locks.lock(SCOPE, 0, "a");
        assert_eq!(waited.await.err().unwrap().code, Code::ActionInProgress, "after a while");
        for task in tasks.into_iter().skip(1) {
            assert_eq!(task.await.unwrap(), Some(Code::ActionInProgress));
        }
        drop(first);
        assert!(locks.0.lock().is_empty());
    }

    #[test]
    fn an_account_that_uses_its_whole_share_leaves_slots_for_others() {
        let all = InFlight::new(8);
        let take = |account: i64| {
            let mut slots = Vec::new();
            let refused = loop {
                match all.request(Scope::new(account, true)) {
                    Ok(slot) => slots.push(slot),
                    Err(problem) => break problem,
                }
            };
            assert_eq!((refused.code, refused.retry_after), (Code::Overloaded, Some(1)));
            slots
        };
        let (first, second) = (take(1), take(2));
        assert_eq!((first.len(), second.len()), (4, 2));
        assert!(all.request(Scope::new(1, false)).is_err(), "both modes are one account");
        assert!(all.request(Scope::new(3, false)).is_ok());
        let calls: Vec<_> = std::iter::from_fn(|| all.call(Scope::new(1, true)).ok()).collect();
        assert_eq!(calls.len(), MAX_HANDLER_CALLS / 2);
        assert!(all.call(Scope::new(2, true)).is_ok());
        drop((first, second, calls));
        assert_eq!((all.requests.held(), all.calls.held()), (0, 0));
    }
}
