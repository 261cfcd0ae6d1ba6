//! Whether the key that opened a connection, or that created its token, is still valid.

use crate::{Outside, auth};
use live::Validity;
use model::schema::CollectionIx;
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

pub struct KeyStatus {
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    keys: CollectionIx,
    scope: Scope,
    key: Arc<str>,
}

/// The statuses of the latest connections. Few keys open most connections, and the connections of
/// one key share one status.
pub struct KeyStatuses {
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    keys: CollectionIx,
    /// The newest last.
    latest: Mutex<VecDeque<Arc<KeyStatus>>>,
}

/// Number of recent statuses that are searched for an equal one.
const SHARED: usize = 8;

/// A failing store says nothing about a key: ask this many times, with this pause.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

impl KeyStatuses {
    pub fn new(
        store: Arc<dyn Store>,
        outside: Arc<dyn Outside>,
        keys: CollectionIx,
    ) -> KeyStatuses {
        KeyStatuses { store, outside, keys, latest: Mutex::default() }
    }

    pub fn of(&self, scope: Scope, key: &str) -> Arc<KeyStatus> {
        let mut latest = self.latest.lock();
        let same = |one: &&Arc<KeyStatus>| one.scope == scope && *one.key == *key;
        if let Some(found) = latest.iter().rev().find(same) {
            return found.clone();
        }
        let status = Arc::new(KeyStatus {
            store: self.store.clone(),
            outside: self.outside.clone(),
            keys: self.keys,
            scope,
            key: key.into(),
        });
        if latest.len() == SHARED {
            latest.pop_front();
        }
        latest.push_back(status.clone());
        status
    }
}

impl live::ValidityCheck for KeyStatus {
    fn check(&self) -> Pin<Box<dyn Future<Output = Validity> + Send>> {
        let (store, outside) = (self.store.clone(), self.outside.clone());
        let (keys, scope, key) = (self.keys, self.scope, self.key.clone());
        Box::pin(async move {
            for _ in 0..ATTEMPTS {
                if let Ok(held) = holds(&*store, keys, scope, &key, outside.now()).await {
                    return held;
                }
                tokio::time::sleep(PAUSE).await;
            }
            // The client may reconnect, and its key is then checked again.
            Validity::Revoked
        })
    }
}

impl fmt::Debug for KeyStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyStatus({})", self.key)
    }
}

/// Whether the key exists and is neither revoked nor expired, and until when it is valid.
pub async fn holds(
    store: &dyn Store,
    keys: CollectionIx,
    scope: Scope,
    key: &str,
    now: Timestamp,
) -> Result<Validity, store::Error> {
    let Some(record) = store.record(scope, keys, None, key).await? else {
        return Ok(Validity::Revoked);
    };
    let fields = record.fields();
    let revoked = fields.get("revoked_at").is_some_and(|at| !at.is_null());
    Ok(match auth::expiry(&fields) {
        _ if revoked => Validity::Revoked,
        None => Validity::Valid,
        Some(end) if end > now => Validity::ExpiresIn(Duration::from_millis(end.0.abs_diff(now.0))),
        Some(_) => Validity::Revoked,
    })
}
