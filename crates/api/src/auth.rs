//! Authentication: from the `Authorization` header to a `Caller`. Keys are stored as digests. The
//! cache of known callers is dropped whenever keys may have changed, including changes by another
//! process.

use crate::keys;
use crate::limit::{Bucket, Limiter};
use crate::usage::{KeyUse, Usage, Usages};
use crate::version::Versioning;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use model::Timestamp;
use model::caller::{Caller, Grant, Scope};
use model::problem::{Code, Problem};
use model::record::{Fields, Record};
use model::schema::CollectionIx;
use parking_lot::RwLock;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use store::Store;
use subtle::ConstantTimeEq;

/// Maximum number of cached callers.
const MAX_CACHED: usize = 10_000;

/// A caller with the data of its key.
pub struct Identity {
    pub caller: Caller,
    pub bucket: Arc<Bucket>,
    /// Id of the key whose quota it uses: its own, or that of the key that made it.
    pub quota_of: String,
    digest: String,
    pub expires: Option<Timestamp>,
    pub account: Account,
    /// The user that a channel token names.
    pub user: Option<String>,
    key_use: Arc<KeyUse>,
}

/// The data of an account that every request needs.
#[derive(Default)]
pub struct Account {
    /// Index of the version that the account is pinned to; `None` before its first request.
    pub pin: Option<usize>,
    /// Version of the account record; 0 if there is none. A pin is set only if the record still has
    /// this version.
    pub version: i64,
    /// Time of the last attempt to set the pin, in milliseconds.
    pub tried: AtomicI64,
    pub usage: Arc<Usage>,
}

impl Identity {
    /// The identity of a client with a channel token, which is already verified.
    pub fn of_token(
        caller: Caller,
        bucket: Arc<Bucket>,
        account: Account,
        user: Option<String>,
    ) -> Identity {
        // The token was used, not the key that made it.
        let key_use = Arc::default();
        let (digest, expires) = (String::new(), None);
        let quota_of = caller.key.clone();
        Identity { caller, bucket, quota_of, digest, expires, account, user, key_use }
    }

    /// Notes that the key is used.
    pub fn note_use(&self, now: Timestamp) {
        self.key_use.note(now);
    }
}

pub struct Auth {
    store: Arc<dyn Store>,
    limiter: Arc<Limiter>,
    versions: Arc<Versioning>,
    usages: Arc<Usages>,
    accounts: CollectionIx,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    generation: u64,
    identities: HashMap<[u8; 32], Arc<Identity>, BuildHasherDefault<Head>>,
    /// Keys that were valid before some key changed and were not used since.
    former: HashSet<[u8; 32], BuildHasherDefault<Head>>,
}

/// Result of looking at the credentials of a request.
pub enum Found {
    Caller(Arc<Identity>),
    /// The credentials are missing or not valid.
    Refused(Problem),
    Unknown(UnknownKey),
}

/// A key that is not cached, so only the store can know it.
pub struct UnknownKey {
    digest: [u8; 32],
    generation: u64,
    /// The key was valid before some key changed, so it is not a guess.
    pub was_valid: bool,
}

/// Hashes a digest by its first bytes: a digest is already evenly distributed.
#[derive(Default)]
struct Head(u64);

impl Hasher for Head {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*head);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Auth {
    pub fn new(
        store: Arc<dyn Store>,
        limiter: Arc<Limiter>,
        versions: Arc<Versioning>,
        usages: Arc<Usages>,
        accounts: CollectionIx,
    ) -> Auth {
        Auth { store, limiter, versions, usages, accounts, known: RwLock::default() }
    }

    /// Grows when keys or accounts may have changed.
    pub fn generation(&self) -> u64 {
        self.store.key_generation()
    }

    /// The caller with these credentials, without asking the store.
    pub fn look(&self, headers: &HeaderMap, now: Timestamp) -> Found {
        let secret = match credentials(headers) {
            Ok(Some(secret)) => secret,
            Ok(None) => return Found::Refused(missing()),
            Err(problem) => return Found::Refused(problem),
        };
        if secret.starts_with(crate::token::PREFIX) {
            let message = "This is a channel token. It opens the live channels (event stream, \
                           WebSocket, poll) only; this route needs an API key (sk_…).";
            return Found::Refused(invalid(message));
        }
        let digest = keys::digest(&secret);
        let generation = self.store.key_generation();
        match self.cached(generation, &digest) {
            Ok(identity) => match usable(identity, now) {
                Ok(identity) => Found::Caller(identity),
                Err(problem) => Found::Refused(problem),
            },
            Err(was_valid) => Found::Unknown(UnknownKey { digest, generation, was_valid }),
        }
    }

    /// Asks the store for the caller with an unknown key, or why there is none.
    pub async fn ask(
        &self,
        unknown: UnknownKey,
        now: Timestamp,
    ) -> Result<Result<Arc<Identity>, Problem>, store::Error> {
        let UnknownKey { digest, generation, was_valid } = unknown;
        let found = self.find(&digest).await?;
        match &found {
            Ok(identity) => self.remember(generation, digest, identity),
            Err(_) if was_valid => self.forget(&digest),
            Err(_) => {}
        }
        Ok(found.and_then(|identity| usable(identity, now)))
    }

    async fn find(
        &self,
        digest: &[u8; 32],
    ) -> Result<Result<Arc<Identity>, Problem>, store::Error> {
        let text = keys::hex(digest);
        let Some((scope, record)) = self.store.key_by_digest(&text).await? else {
            return Ok(Err(invalid("The API key is unknown.")));
        };
        let fields = record.fields();
        if !fields.get("revoked_at").is_none_or(Value::is_null) {
            return Ok(Err(invalid("The API key was revoked.")));
        }
        let account = fields.get("account").and_then(Value::as_str).unwrap_or_default();
        let account = self.account(account).await?;
        if account.version == 0 {
            return Ok(Err(invalid("The account of this API key was deleted.")));
        }
        let identity = Arc::new(self.identity(scope, &record, &fields, account));
        // The index found the row by the digest. A second comparison in constant time makes sure
        // that only the exact key passes.
        if !bool::from(identity.digest.as_bytes().ct_eq(text.as_bytes())) {
            return Ok(Err(invalid("The API key is unknown.")));
        }
        Ok(Ok(identity))
    }

    /// Loads the pinned version and the usage of an account.
    pub async fn account(&self, id: &str) -> Result<Account, store::Error> {
        let record = self.store.record(Scope::SYSTEM, self.accounts, None, id).await?;
        let fields = record.as_ref().map(Record::fields).unwrap_or_default();
        let pin = fields.get("api_version").and_then(Value::as_str);
        Ok(Account {
            pin: pin.map(|date| self.versions.pinned(date)),
            version: record.map_or(0, |record| record.version),
            tried: AtomicI64::new(0),
            usage: self.usages.of(id, &*self.store).await?,
        })
    }

    /// The cached caller. If there is none: whether the key was valid before keys changed.
    fn cached(&self, generation: u64, digest: &[u8; 32]) -> Result<Arc<Identity>, bool> {
        let known = self.known.read();
        match known.identities.get(digest) {
            Some(identity) if known.generation == generation => Ok(identity.clone()),
            Some(_) => Err(true),
            None => Err(known.former.contains(digest)),
        }
    }

    fn remember(&self, generation: u64, digest: [u8; 32], identity: &Arc<Identity>) {
        let mut known = self.known.write();
        if known.generation != generation || known.identities.len() >= MAX_CACHED {
            let Known { identities, former, .. } = &mut *known;
            let digests = identities.drain().map(|(digest, _)| digest);
            former.extend(digests);
            // Which entries are kept does not matter: they only avoid charging an address for a
            // valid key.
            let mut places = MAX_CACHED;
            former.retain(|_| {
                let is_kept = places > 0;
                places = places.saturating_sub(1);
                is_kept
            });
            known.generation = generation;
        }
        known.former.remove(&digest);
        known.identities.insert(digest, identity.clone());
    }

    fn forget(&self, digest: &[u8; 32]) {
        let mut known = self.known.write();
        known.former.remove(digest);
        // The entry has an older generation; an entry of this generation would have been found.
        known.identities.remove(digest);
    }

    fn identity(
        &self,
        scope: Scope,
        record: &Record,
        fields: &Fields,
        account: Account,
    ) -> Identity {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let quota_of = text("quota_of").unwrap_or_else(|| record.id.clone());
        Identity {
            caller: Caller {
                scope,
                account: text("account").unwrap_or_default(),
                key: record.id.clone(),
                admin: Grant::admin(&scopes(fields)),
                grants: grants(fields),
                rate_limit: fields
                    .get("rate_limit")
                    .and_then(Value::as_u64)
                    .and_then(|limit| u32::try_from(limit).ok()),
            },
            bucket: self.limiter.bucket_of_key(&quota_of),
            quota_of,
            digest: text("digest").unwrap_or_default(),
            expires: expiry(fields),
            user: None,
            key_use: account.usage.key(&record.id),
            account,
        }
    }
}

/// What a key may do; `None`: everything.
pub fn grants(key: &Fields) -> Option<Vec<Grant>> {
    // A key of an unknown kind has its scopes only.
    let is_unrestricted = key.get("kind").and_then(Value::as_str) == Some("secret");
    (!is_unrestricted).then(|| scopes(key))
}

fn scopes(key: &Fields) -> Vec<Grant> {
    let scopes = key.get("scopes").and_then(Value::as_array);
    scopes.into_iter().flatten().filter_map(|scope| Grant::parse(scope.as_str()?)).collect()
}

/// When a key expires, if it does. A time that cannot be parsed counts as expired.
pub fn expiry(key: &Fields) -> Option<Timestamp> {
    let at = key.get("expires_at").filter(|at| !at.is_null())?;
    Some(at.as_str().and_then(Timestamp::parse).unwrap_or(Timestamp(0)))
}

fn usable(identity: Arc<Identity>, now: Timestamp) -> Result<Arc<Identity>, Problem> {
    if identity.expires.is_some_and(|expires| expires <= now) {
        return Err(expired());
    }
    Ok(identity)
}

pub fn expired() -> Problem {
    invalid("The API key has expired.")
}

fn missing() -> Problem {
    let message = "No API key was sent. Use `Authorization: Bearer <key>`, or Basic with the key \
                   as user name and an empty password.";
    Problem::new(Code::AuthenticationRequired, message).param("Authorization")
}

fn invalid(message: &str) -> Problem {
    Problem::new(Code::InvalidApiKey, message).param("Authorization")
}

/// The token after `Bearer`, if there is one.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, rest) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
}

/// The key in the header: `Bearer <key>`, or Basic with the key as user name and no password.
fn credentials(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Problem> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid("There is more than one Authorization header; send one."));
    }
    let text = value
        .to_str()
        .map_err(|_| invalid("The Authorization header contains invalid characters."))?;
    let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
        return Ok(Some(rest.into()));
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let user = decoded.as_deref().and_then(|pair| pair.split_once(':'));
        return match user {
            Some((key, "")) if !key.is_empty() => Ok(Some(key.to_owned().into())),
            Some((_, password)) if !password.is_empty() => {
                Err(invalid("With Basic, the key is the user name and the password must be empty."))
            }
            _ => Err(invalid("The Basic credentials are not valid base64 of `<key>:`.")),
        };
    }
    Err(invalid("The Authorization header must be `Bearer <key>` or Basic."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_key_with_an_unreadable_expiry_is_expired() {
        let expiry = |at: Value| super::expiry(&Fields::from_iter([("expires_at".to_owned(), at)]));
        assert_eq!(super::expiry(&Fields::new()), None);
        assert_eq!(expiry(Value::Null), None);
        assert_eq!(expiry("1970-01-01T00:00:01.000Z".into()), Some(Timestamp(1_000)));
        for damaged in [Value::from("soon"), Value::from(12), Value::from(false)] {
            assert_eq!(expiry(damaged.clone()), Some(Timestamp(0)), "{damaged}");
        }
    }

    #[test]
    fn keys_are_read_from_bearer_and_basic() {
        let read = |text: &str| {
            let headers =
                HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(text).unwrap())]);
            let read = credentials(&headers).map_err(|problem| problem.code)?;
            Ok(read.map(Cow::into_owned))
        };
        assert_eq!(read("Bearer sk_test_1"), Ok(Some("sk_test_1".into())));
        assert_eq!(read("bearer  sk_test_1"), Ok(Some("sk_test_1".into())));
        assert_eq!(read("Basic c2tfdGVzdF8xOg=="), Ok(Some("sk_test_1".into())));
        for bad in
            ["Basic c2tfdGVzdF8xOnB3", "Basic !!", "Bearer", "Bearer ", "Digest x", "sk_test_1"]
        {
            assert_eq!(read(bad), Err(Code::InvalidApiKey), "{bad}");
        }
        assert_eq!(credentials(&HeaderMap::new()), Ok(None));
    }
}
