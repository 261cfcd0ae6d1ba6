//! Whether the key that opened a connection, or that created its token, is still valid, and may
//! still do what it could do then.

use crate::{Outside, auth};
use live::Validity;
use model::caller::Grant;
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
    /// What the connection may do.
    grants: Option<Vec<Grant>>,
    /// The last result, so that a change of a key with thousands of connections costs one read.
    known: Arc<Mutex<Option<Known>>>,
}

/// What was found when the keys of the account had changed last at `seq`.
#[derive(Clone, Copy)]
struct Known {
    seq: i64,
    validity: Validity,
    at: Timestamp,
}

impl Known {
    fn validity(self, now: Timestamp) -> Validity {
        let Validity::ExpiresIn(time) = self.validity else { return self.validity };
        let passed = u64::try_from(now.0 - self.at.0).unwrap_or(0);
        match time.checked_sub(Duration::from_millis(passed)) {
            Some(left) if !left.is_zero() => Validity::ExpiresIn(left),
            _ => Validity::Revoked,
        }
    }
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

/// A failing store says nothing about a key: ask again after this pause. Until it answers, the
/// connection sends nothing.
const PAUSE: Duration = Duration::from_secs(1);

impl KeyStatuses {
    pub fn new(
        store: Arc<dyn Store>,
        outside: Arc<dyn Outside>,
        keys: CollectionIx,
    ) -> KeyStatuses {
        KeyStatuses { store, outside, keys, latest: Mutex::default() }
    }

    pub fn of(&self, scope: Scope, key: &str, grants: Option<Vec<Grant>>) -> Arc<KeyStatus> {
        let mut latest = self.latest.lock();
        let same =
            |one: &&Arc<KeyStatus>| one.scope == scope && *one.key == *key && one.grants == grants;
        if let Some(found) = latest.iter().rev().find(same) {
            return found.clone();
        }
        let status = Arc::new(KeyStatus {
            store: self.store.clone(),
            outside: self.outside.clone(),
            keys: self.keys,
            scope,
            key: key.into(),
            grants,
            known: Arc::default(),
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
        let (keys, scope) = (self.keys, self.scope);
        // Read first: a change after this is a change after the result.
        let (seq, now) = (store.collection_seq(scope, keys), outside.now());
        if let Some(known) = self.known.lock().filter(|known| known.seq == seq) {
            return Box::pin(std::future::ready(known.validity(now)));
        }
        let (key, grants) = (self.key.clone(), self.grants.clone());
        let known = self.known.clone();
        Box::pin(async move {
            loop {
                let asked = (scope, &*key, grants.as_deref());
                let at = outside.now();
                if let Ok(validity) = holds(&*store, keys, asked, at).await {
                    *known.lock() = Some(Known { seq, validity, at });
                    return validity;
                }
                tokio::time::sleep(PAUSE).await; // waits for: the store to answer
            }
        })
    }
}

impl fmt::Debug for KeyStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyStatus({})", self.key)
    }
}

/// Whether the key exists, is neither revoked nor expired and may still do all of this, and until
/// when it is valid.
pub async fn holds(
    store: &dyn Store,
    keys: CollectionIx,
    (scope, key, grants): (Scope, &str, Option<&[Grant]>),
    now: Timestamp,
) -> Result<Validity, store::Error> {
    let Some(record) = store.record(scope, keys, None, key).await? else {
        return Ok(Validity::Revoked);
    };
    let fields = record.fields();
    let revoked = fields.get("revoked_at").is_some_and(|at| !at.is_null());
    Ok(match auth::expiry(&fields) {
        _ if revoked || !covers(auth::grants(&fields).as_deref(), grants) => Validity::Revoked,
        None => Validity::Valid,
        Some(end) if end > now => Validity::ExpiresIn(Duration::from_millis(end.0.abs_diff(now.0))),
        Some(_) => Validity::Revoked,
    })
}

/// Whether a key with the first rights may do everything of the second; `None`: everything.
pub fn covers(key: Option<&[Grant]>, grants: Option<&[Grant]>) -> bool {
    let (key, grants) = match (key, grants) {
        (None, _) => return true,
        (Some(_), None) => return false,
        (Some(key), Some(grants)) => (key, grants),
    };
    grants.iter().all(|grant| match &grant.collection {
        Some(name) => key.iter().any(|own| own.covers(name, grant.access)),
        None => key.iter().any(|own| own.collection.is_none() && own.access >= grant.access),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_restricted_no_longer_covers_what_it_could_do() {
        let parsed = |texts: &[&str]| -> Vec<Grant> {
            texts.iter().map(|text| Grant::parse(text).unwrap()).collect()
        };
        for (key, grants, expected) in [
            (None, None, true),
            (None, Some(&["books:read"][..]), true),
            (Some(&["books:read"][..]), None, false),
            (Some(&["*:write"]), None, false),
            (Some(&["books:write"]), Some(&["books:read"]), true),
            (Some(&["books:read"]), Some(&["books:write"]), false),
            (Some(&["books:read"]), Some(&["books:read", "orders:read"]), false),
            (Some(&["*:read"]), Some(&["books:read", "orders:read"]), true),
            (Some(&["books:read"]), Some(&["*:read"]), false),
            (Some(&["*:write"]), Some(&["*:read"]), true),
        ] {
            let (own, asked) = (key.map(parsed), grants.map(parsed));
            assert_eq!(covers(own.as_deref(), asked.as_deref()), expected, "{key:?} {grants:?}");
        }
    }
}
