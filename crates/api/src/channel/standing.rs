//! Whether a key that opened a connection, or made the token that did, still holds.

use crate::service::Core;
use crate::{Outside, auth};
use live::Held;
use model::schema::{Builtin, CollectionIx};
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

pub struct Standing {
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    keys: CollectionIx,
    scope: Scope,
    key: Arc<str>,
}

/// Those of the latest connections, the newest last. Few keys open most connections, and these
/// share one.
#[derive(Default)]
pub struct Standings(Mutex<VecDeque<Arc<Standing>>>);

/// Among how many an equal one is looked for.
const SHARED: usize = 8;

/// A store that fails says nothing about a key: it is asked again this often and after this pause.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

impl Standings {
    pub fn of(&self, core: &Core, scope: Scope, key: &str) -> Arc<Standing> {
        let mut latest = self.0.lock();
        let same = |one: &&Arc<Standing>| one.scope == scope && *one.key == *key;
        if let Some(found) = latest.iter().rev().find(same) {
            return found.clone();
        }
        let standing = Arc::new(Standing {
            store: core.store.clone(),
            outside: core.outside.clone(),
            keys: core.schema.own(Builtin::Key),
            scope,
            key: key.into(),
        });
        if latest.len() == SHARED {
            latest.pop_front();
        }
        latest.push_back(standing.clone());
        standing
    }
}

impl live::Standing for Standing {
    fn holds(&self) -> Pin<Box<dyn Future<Output = Held> + Send>> {
        let (store, outside) = (self.store.clone(), self.outside.clone());
        let (keys, scope, key) = (self.keys, self.scope, self.key.clone());
        Box::pin(async move {
            for _ in 0..ATTEMPTS {
                if let Ok(held) = holds(&*store, keys, scope, &key, outside.now()).await {
                    return held;
                }
                tokio::time::sleep(PAUSE).await;
            }
            // The client may connect again, and is asked for its key then.
            Held::No
        })
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Standing({})", self.key)
    }
}

/// Whether there is such a key, neither revoked nor expired, and for how long.
pub async fn holds(
    store: &dyn Store,
    keys: CollectionIx,
    scope: Scope,
    key: &str,
    now: Timestamp,
) -> Result<Held, store::Error> {
    let Some(record) = store.record(scope, keys, None, key).await? else { return Ok(Held::No) };
    let fields = record.fields();
    let revoked = fields.get("revoked_at").is_some_and(|at| !at.is_null());
    Ok(match auth::expiry(&fields) {
        _ if revoked => Held::No,
        None => Held::Yes,
        Some(end) if end > now => Held::For(Duration::from_millis(end.0.abs_diff(now.0))),
        Some(_) => Held::No,
    })
}
