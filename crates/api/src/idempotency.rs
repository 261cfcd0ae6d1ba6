//! Idempotency keys: a repeated request with the same key gets the stored response, without a
//! second effect and without using quota. The store commits the key together with the effect. This
//! file parses the header, computes the fingerprint of the request, and makes repetitions wait
//! while the first request still runs.

use http::{HeaderMap, Method};
use model::caller::Scope;
use model::problem::{Code, Problem};
use model::write::Idempotency;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub const HEADER: &str = "idempotency-key";
const MAX_CHARS: usize = 255;
/// How long a repetition waits for the first request to finish.
pub const WAIT: Duration = Duration::from_secs(5);

/// The request's key, bare or as a quoted string. Only POST and PATCH have one.
pub fn key(method: &Method, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if method != Method::POST && method != Method::PATCH {
        return Ok(None);
    }
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let unquoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let visible = !unquoted.is_empty() && unquoted.bytes().all(|byte| byte.is_ascii_graphic());
    if values.next().is_some() || !visible || unquoted.len() > MAX_CHARS {
        let message =
            format!("`Idempotency-Key` must be 1 to {MAX_CHARS} visible ASCII characters.");
        return Err(Problem::new(Code::InvalidHeader, message).param("Idempotency-Key"));
    }
    Ok(Some(unquoted.to_owned()))
}

/// Hashes everything that makes two requests the same request.
pub fn fingerprint(key: String, parts: &[&[u8]]) -> Idempotency {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Idempotency { key, fingerprint: hash.finalize().into() }
}

pub fn reused() -> Problem {
    let message = "This Idempotency-Key was used for another request, or for this request in \
                   another version. Use a new key for a new request. To repeat a request, send the \
                   Restive-Version of its response, if that version is still served.";
    Problem::new(Code::IdempotencyKeyReused, message).param("Idempotency-Key")
}

pub fn required() -> Problem {
    let message =
        "This route requires an Idempotency-Key header, so that a retry has no second effect.";
    Problem::new(Code::IdempotencyKeyRequired, message).param("Idempotency-Key")
}

type ScopedKey = (Scope, String);

/// Keys whose first request still runs in this process. Other nodes: `hold`.
#[derive(Default)]
pub struct KeysInUse(Mutex<HashMap<ScopedKey, watch::Receiver<()>>>);

/// Holds a key while its request runs; dropping it wakes the waiting requests.
pub struct KeyGuard {
    keys: Arc<KeysInUse>,
    scoped: ScopedKey,
    _done: watch::Sender<()>,
}

impl KeysInUse {
    /// Takes the key, after waiting for its current holder.
    pub async fn enter(
        self: &Arc<KeysInUse>,
        scope: Scope,
        key: &str,
    ) -> Result<KeyGuard, Problem> {
        let scoped = (scope, key.to_owned());
        let waited = tokio::time::timeout(WAIT, async {
            loop {
                let mut holder = {
                    let mut held = self.0.lock();
                    match held.get(&scoped) {
                        Some(holder) => holder.clone(),
                        None => {
                            let (done, receiver) = watch::channel(());
                            held.insert(scoped.clone(), receiver);
                            let keys = self.clone();
                            return KeyGuard { keys, scoped: scoped.clone(), _done: done };
                        }
                    }
                };
                // An error means that the holder is gone, which ends the wait.
                let _ = holder.changed().await;
            }
        });
        waited.await.map_err(|_| in_use())
    }
}

pub fn in_use() -> Problem {
    let message = "A request with this Idempotency-Key is still running. Try again shortly.";
    Problem::new(Code::IdempotencyKeyInUse, message).retry_after(1)
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        self.keys.0.lock().remove(&self.scoped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn keys_may_be_bare_or_quoted_and_nothing_else() {
        let read = |text: &str| {
            let name = http::HeaderName::from_static(HEADER);
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(text).unwrap())]);
            key(&Method::POST, &headers)
        };
        assert_eq!(read("abc-1"), Ok(Some("abc-1".into())));
        assert_eq!(read("\"abc-1\""), Ok(Some("abc-1".into())));
        for bad in ["", "\"\"", "a b", &"x".repeat(256)] {
            assert_eq!(read(bad).unwrap_err().code, Code::InvalidHeader, "{bad}");
        }
        assert_eq!(key(&Method::PUT, &HeaderMap::new()), Ok(None));
    }

    #[tokio::test]
    async fn a_repetition_waits_for_the_first_request() {
        let keys = Arc::new(KeysInUse::default());
        let first = keys.enter(Scope(2), "k").await.unwrap();
        let other_scope = keys.enter(Scope(4), "k").await.unwrap();
        let waiting = tokio::spawn({
            let keys = keys.clone();
            async move { keys.enter(Scope(2), "k").await.is_ok() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert!(waiting.await.unwrap());
        drop(other_scope);
        assert!(keys.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_that_waits_too_long_is_asked_to_retry() {
        let keys = Arc::new(KeysInUse::default());
        let _first = keys.enter(Scope(2), "k").await.unwrap();
        let problem = keys.enter(Scope(2), "k").await.err().unwrap();
        assert_eq!((problem.code, problem.retry_after), (Code::IdempotencyKeyInUse, Some(1)));
    }
}
