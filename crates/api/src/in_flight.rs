//! What is under way in this process, and how much of it one account may have. A request takes its
//! account's place once its key is known, and gives it back when it ends or its client leaves. An
//! action with a handler also takes the lock of its record and a place among the handler calls,
//! which it holds until it is committed, whoever leaves (`actions`).

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

/// Handler calls of all accounts at a time; one account alone gets half. 256: a handler that takes
/// 100 ms serves 1,280 actions a second in the 128 places of one account, and one that hangs holds
/// 128 outgoing connections.
const MAX_HANDLER_CALLS: usize = 256;
/// Requests that wait for the handler call of one record. 16: each waits for all before it, so a
/// longer queue would only wait until `MAX_LOCK_WAIT`.
const MAX_WAITING_PER_RECORD: usize = 16;
/// How long a request waits for the handler calls before it. 10 s: the default timeout of one call.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(10);
/// What a refused client is told to wait, in seconds.
const RETRY_AFTER: u64 = 1;

/// A place of an account; dropping it gives it back. The number is the account's.
pub type Slot = Share<i64>;

pub struct InFlight {
    pub keys: Arc<KeysInUse>,
    pub records: Arc<RecordLocks>,
    /// Requests whose account is known, for as long as they hold one of wire's `max_exchanges`.
    requests: Arc<Budget<i64>>,
    calls: Arc<Budget<i64>>,
}

impl InFlight {
    /// `max_requests`: requests that wire lets in at a time.
    pub fn new(max_requests: usize) -> InFlight {
        InFlight {
            keys: Arc::default(),
            records: Arc::default(),
            requests: Budget::new(max_requests),
            calls: Budget::new(MAX_HANDLER_CALLS),
        }
    }

    /// A place among the requests that are being answered.
    pub fn request(&self, scope: Scope) -> Result<Slot, Problem> {
        let place = self.requests.take(scope.account_number(), 1);
        place.ok_or_else(|| over_share("requests that are being answered"))
    }

    /// A place among the calls of action handlers.
    pub fn call(&self, scope: Scope) -> Result<Slot, Problem> {
        let place = self.calls.take(scope.account_number(), 1);
        place.ok_or_else(|| over_share("actions whose handler is being called"))
    }
}

fn over_share(what: &str) -> Problem {
    let message = format!("The account has its share of {what}. Wait for some of them to end.");
    Problem::new(Code::Overloaded, message).retry_after(RETRY_AFTER)
}

type Key = (Scope, CollectionIx, String);

/// Records for which an action handler is called, or will be: one call at a time for each, in the
/// order in which the requests came.
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
    // Released before the entry is left: whoever comes in between finds the entry and waits.
    _lock: OwnedMutexGuard<()>,
    _request: Request,
}

/// One of an entry's requests.
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
        // The one that holds the lock does not wait.
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

fn in_progress() -> Problem {
    let message = "The handler of an action on this record is still being called for earlier \
                   requests. Try again shortly.";
    Problem::new(Code::ActionInProgress, message).retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinHandle, yield_now};

    const SCOPE: Scope = Scope(2);

    /// Requests for the lock of record `a`, which the tasks take in turn; what each was told.
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
    async fn requests_for_one_record_take_turns_in_their_order_and_others_do_not_wait() {
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
        assert!(locks.0.lock().is_empty(), "nothing is kept of records that nobody locks");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_of_a_record_is_bounded_in_length_and_time_and_may_be_left() {
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
    fn an_account_that_holds_its_share_leaves_places_for_another() {
        let all = InFlight::new(8);
        let take = |account: i64| {
            let mut places = Vec::new();
            let refused = loop {
                match all.request(Scope::new(account, true)) {
                    Ok(place) => places.push(place),
                    Err(problem) => break problem,
                }
            };
            assert_eq!((refused.code, refused.retry_after), (Code::Overloaded, Some(1)));
            places
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
