//! Creates accounts and keys for the CLI and the first start, through `Store::commit`, like any
//! other record. The text of a key is shown once; the store has only its digest.

use crate::usage::KEY_SUBJECT;
use crate::{Outside, auth, scope};
use model::Timestamp;
use model::caller::{ADMIN, Access, Grant, Scope};
use model::id::Entropy;
use model::query::{Page, Query, SortKey};
use model::record::{Fields, Record};
use model::schema::Schema;
use model::write::{Cause, Change, Committed, Idempotency, Precondition, Response, Write};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use store::Store;

/// Keys or accounts read in one query: large enough that few queries read thousands of them, small
/// enough that one query holds no large amount of memory.
const PAGE: u32 = 1_000;

/// The last characters of a key that its hint shows, and the least that a key has behind its kind
/// to show them: what is hidden stays too long to guess.
const HINT: usize = 4;
const HINTED: usize = 16;

/// Properties of a new key.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    pub name: Option<String>,
    /// Whether the key may do only what `scopes` say. A key with scopes always is; without scopes
    /// it is refused, because it must not become a secret key.
    pub restricted: bool,
    /// Empty: a secret key with full access in its scope.
    pub scopes: Vec<String>,
    /// Whether a secret key may also create and revoke keys and accounts. A restricted key has the
    /// scope `admin:read` or `admin:write` instead.
    pub admin: bool,
    pub rate_limit: Option<u32>,
    /// Id of the key whose quota it shares: a key that another key made must not multiply what
    /// that key may request.
    pub quota_of: Option<String>,
    pub expires_at: Option<String>,
    /// The key's text, if the caller supplies it (`RESTIVE_BOOTSTRAP_KEY`).
    pub secret: Option<String>,
}

impl NewKey {
    /// A key with the properties of an existing one, as a rotation needs it. A scope that cannot be
    /// read must not get lost on the way: the new key would have other permissions.
    pub fn like(id: &str, fields: &Fields) -> Result<NewKey, Error> {
        let rights = Rights::of(fields).ok_or_else(|| {
            Error::Refused(format!(
                "the scopes of {id} cannot be read, so it cannot be rolled; revoke it and create a \
                 new key with the scopes that it needs"
            ))
        })?;
        Ok(NewKey {
            name: fields.get("name").and_then(Value::as_str).map(str::to_owned),
            restricted: rights.scopes.is_some(),
            admin: rights.scopes.is_none() && rights.admin.is_some(),
            scopes: rights.scopes.unwrap_or_default(),
            rate_limit: fields
                .get("rate_limit")
                .and_then(Value::as_u64)
                .and_then(|limit| u32::try_from(limit).ok()),
            quota_of: fields.get("quota_of").and_then(Value::as_str).map(str::to_owned),
            expires_at: auth::expiry(fields).map(Timestamp::to_iso),
            secret: None,
        })
    }

    fn is_restricted(&self) -> bool {
        self.restricted || !self.scopes.is_empty()
    }

    /// The stored form of the scopes. Those of a secret key say nothing but whether it administers
    /// keys and accounts.
    pub(crate) fn stored_scopes(&self) -> Vec<String> {
        match self.is_restricted() {
            false if self.admin => vec![format!("{ADMIN}:write")],
            _ => self.scopes.clone(),
        }
    }

    /// The fields of the new record.
    pub(crate) fn fields(&self, account: &str, secret: &str) -> Fields {
        object(json!({
            "digest": hex(&digest(secret)),
            "name": self.name,
            "kind": if self.is_restricted() { "restricted" } else { "secret" },
            "account": account,
            "hint": hint(secret),
            "scopes": self.stored_scopes(),
            "rate_limit": self.rate_limit,
            "quota_of": self.quota_of,
            "expires_at": self.expires_at,
            "revoked_at": Value::Null,
        }))
    }
}

/// What a stored key may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// `None`: everything in its scope.
    pub scopes: Option<Vec<String>>,
    /// Whether it may read or change keys and accounts.
    pub admin: Option<Access>,
}

impl Rights {
    /// `None` if the stored scopes cannot be read.
    pub fn of(key: &Fields) -> Option<Rights> {
        let scopes = match key.get("scopes") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                texts.collect::<Option<Vec<String>>>()?
            }
            Some(_) => return None,
        };
        let grants: Option<Vec<Grant>> = scopes.iter().map(|text| Grant::parse(text)).collect();
        if key.get("kind").and_then(Value::as_str) == Some("secret") {
            let admin = grants.as_ref().and_then(Grant::admin);
            return Some(Rights { scopes: None, admin });
        }
        let grants = grants.filter(|grants| !grants.is_empty())?;
        Some(Rights { admin: Grant::admin(&grants), scopes: Some(scopes) })
    }
}

/// A new key with its text, which is stored nowhere.
pub struct MadeKey {
    pub record: Record,
    pub secret: String,
}

/// Why accounts or keys could not be changed.
#[derive(Debug)]
pub enum Error {
    Refused(String),
    Store(store::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Refused(message) => f.write_str(message),
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        Error::Store(error)
    }
}

/// The digest that is stored for a key. Keys have 190 random bits, so no salt or stretching is
/// needed.
pub fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys and accounts of one database.
pub struct Keyring<'a> {
    pub schema: &'a Schema,
    pub store: &'a dyn Store,
    pub outside: &'a dyn Outside,
}

impl Keyring<'_> {
    pub async fn create_account(&self, name: &str) -> Result<Record, Error> {
        let fields = object(json!({ "name": name }));
        self.commit("accounts", Scope::SYSTEM, None, Change::Create { fields }).await
    }

    /// The first account. Of several servers that start at once on one database, one creates it;
    /// says too whether this one did.
    pub async fn create_first_account(&self, name: &str) -> Result<(Record, bool), Error> {
        let fields = object(json!({ "name": name }));
        self.commit_once("accounts", Scope::SYSTEM, fields, "first account").await
    }

    /// A key whose secret every server was given: one of them creates it.
    pub async fn create_given_key(
        &self,
        account: &Record,
        livemode: bool,
        new: &NewKey,
        secret: &str,
    ) -> Result<(), Error> {
        let scope = Self::scope(account, livemode);
        let once = format!("given key {}", hex(&digest(secret)));
        self.commit_once("keys", scope, new.fields(&account.id, secret), &once).await.map(drop)
    }

    pub async fn accounts(&self) -> Result<Vec<Record>, Error> {
        self.list("accounts", Scope::SYSTEM).await
    }

    /// The oldest account.
    pub async fn first_account(&self) -> Result<Option<Record>, Error> {
        let accounts = self.store.every(self.index("accounts"), 0, 1).await?;
        Ok(accounts.into_iter().next().map(|(_, account)| account))
    }

    pub async fn account(&self, id: &str) -> Result<Option<Record>, Error> {
        Ok(self.store.record(Scope::SYSTEM, self.index("accounts"), None, id).await?)
    }

    /// The key with this id, in any account and mode.
    pub async fn find_key(&self, id: &str) -> Result<Option<(Scope, Record)>, Error> {
        Ok(self.store.key_by_id(id).await?)
    }

    /// The test or live scope of an account.
    pub fn scope(account: &Record, livemode: bool) -> Scope {
        Scope::new(account.number, livemode)
    }

    pub async fn keys(&self, scope: Scope) -> Result<Vec<Record>, Error> {
        self.list("keys", scope).await
    }

    pub async fn create_key(
        &self,
        account: &Record,
        livemode: bool,
        new: NewKey,
    ) -> Result<MadeKey, Error> {
        if new.restricted && new.scopes.is_empty() {
            let message = "a restricted key needs at least one scope".to_owned();
            return Err(Error::Refused(message));
        }
        let drawn = || draw_secret(self.outside, new.is_restricted(), livemode);
        let secret = new.secret.clone().unwrap_or_else(drawn);
        let fields = new.fields(&account.id, &secret);
        let scope = Self::scope(account, livemode);
        let record = self.commit("keys", scope, None, Change::Create { fields }).await?;
        Ok(MadeKey { record, secret })
    }

    /// Revokes a key at once.
    pub async fn revoke(&self, scope: Scope, id: &str) -> Result<Record, Error> {
        let patch = object(json!({ "revoked_at": self.outside.now().to_iso() }));
        self.commit("keys", scope, Some(id), Change::Merge { patch }).await
    }

    /// When each key of an account was last used, by id, as far as it is saved.
    pub async fn last_uses(&self, account: &str) -> Result<HashMap<String, Timestamp>, Error> {
        let used = self.store.usage_of(account).await?;
        let last = |used: store::usage::Used| {
            Some((used.subject.strip_prefix(KEY_SUBJECT)?.to_owned(), used.last))
        };
        Ok(used.into_iter().filter_map(last).collect())
    }

    /// Sets the expiry of a key: the old key of a rotation.
    pub async fn expire(&self, scope: Scope, id: &str, at: &str) -> Result<Record, Error> {
        let patch = object(json!({ "expires_at": at }));
        self.commit("keys", scope, Some(id), Change::Merge { patch }).await
    }

    /// All records of a collection in this scope, oldest first.
    async fn list(&self, collection: &str, scope: Scope) -> Result<Vec<Record>, Error> {
        let mut query = Query {
            parent: None,
            filters: Vec::new(),
            sort: vec![SortKey::new("created_at", false)],
            words: Vec::new(),
            revealed: Vec::new(),
            page: Page::First,
            limit: PAGE,
        };
        let mut all = Vec::new();
        loop {
            let page = self.store.list(scope, self.index(collection), &query).await?;
            all.extend(page.records);
            match page.position {
                Some(position) => query.page = Page::After(position),
                None => return Ok(all),
            }
        }
    }

    async fn commit(
        &self,
        collection: &str,
        scope: Scope,
        id: Option<&str>,
        change: Change,
    ) -> Result<Record, Error> {
        self.take(self.write(collection, scope, id, change)).await.map(|(record, _)| record)
    }

    /// Creates a record, unless that was done under this name; says too whether it was done now.
    async fn commit_once(
        &self,
        collection: &str,
        scope: Scope,
        fields: Fields,
        once: &str,
    ) -> Result<(Record, bool), Error> {
        let mut write = self.write(collection, scope, None, Change::Create { fields });
        let fingerprint = [0; 32];
        write.idempotency = Some(Idempotency { key: once.to_owned(), fingerprint });
        self.take(write).await
    }

    fn write(&self, collection: &str, scope: Scope, id: Option<&str>, change: Change) -> Write {
        Write {
            scope,
            collection: self.index(collection),
            id: id.map(str::to_owned),
            parent: None,
            change,
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: self.outside.now(),
            entropy: self.outside.entropy(),
        }
    }

    async fn take(&self, write: Write) -> Result<(Record, bool), Error> {
        match self.store.commit(write).await? {
            Ok(
                Committed::Fresh(Response::Created(record) | Response::Updated(record))
                | Committed::Unchanged(Response::Updated(record)),
            ) => Ok((record, true)),
            Ok(Committed::Replayed { response: Response::Created(record), .. }) => {
                Ok((record, false))
            }
            Ok(other) => {
                Err(Error::Refused(format!("unexpected response of the store: {other:?}")))
            }
            Err(problem) => Err(Error::Refused(problem.message.clone())),
        }
    }

    fn index(&self, collection: &str) -> usize {
        self.schema.find(collection).expect("built-in collections are in every schema")
    }
}

/// The text of a new key.
pub(crate) fn draw_secret(outside: &dyn Outside, restricted: bool, livemode: bool) -> String {
    let kind = if restricted { "rk" } else { "sk" };
    let mode = if livemode { "live" } else { "test" };
    let Entropy(bytes) = outside.entropy();
    format!("{kind}_{mode}_{}", letters(&bytes))
}

/// The mode of a scope.
pub fn mode(scope: Scope) -> &'static str {
    if scope.livemode() { "live" } else { "test" }
}

/// Whether a key works: `active`, `expired` or `revoked`. A time that cannot be parsed counts as
/// passed.
pub fn state(key: &Fields, now: Timestamp) -> &'static str {
    match auth::expiry(key) {
        _ if key.get("revoked_at").is_some_and(|at| !at.is_null()) => "revoked",
        Some(end) if end <= now => "expired",
        _ => "active",
    }
}

/// A key as clients see it: without its digest.
pub fn shown(scope: Scope, key: &Record, last_use: Option<Timestamp>) -> Value {
    let fields = key.fields();
    let rights = Rights::of(&fields);
    let member = |name: &str| fields.get(name).cloned().unwrap_or_default();
    // Scopes that cannot be read grant nothing.
    let scopes = rights.as_ref().map_or(Some(Vec::new()), |rights| rights.scopes.clone());
    json!({
        "object": "key",
        "id": key.id,
        "name": member("name"),
        "account": member("account"),
        "mode": mode(scope),
        "scopes": scopes,
        "admin": rights.is_some_and(|rights| rights.admin.is_some()),
        "rate_limit": member("rate_limit"),
        "hint": member("hint"),
        "created_at": member("created_at"),
        "updated_at": member("updated_at"),
        "last_used_at": last_use.map(Timestamp::to_iso),
        "expires_at": member("expires_at"),
        "revoked_at": member("revoked_at"),
    })
}

/// Checks that scopes name known collections: a misspelt scope would silently grant nothing.
pub fn check_scopes(scopes: &[String], collections: &[String]) -> Result<(), Error> {
    for text in scopes {
        let grant = Grant::parse(text).ok_or_else(|| {
            Error::Refused(format!("`{text}` is not a scope; write `<collection>:read|write`"))
        })?;
        let own = || scope::OTHER_SCOPES.into_iter();
        let known = || collections.iter().map(String::as_str).chain(own());
        if grant.collection.as_ref().is_some_and(|name| known().all(|one| one != name)) {
            let known = known().collect::<Vec<_>>().join(", ");
            return Err(Error::Refused(format!("`{text}`: unknown collection; known: {known}")));
        }
    }
    Ok(())
}

/// Enough to recognise a key, too little to use it. A key that an operator chose may contain any
/// character, and may be short.
fn hint(secret: &str) -> String {
    let (kind, rest) = secret
        .match_indices('_')
        .nth(1)
        .map_or(("", secret), |(at, _)| (&secret[..=at], &secret[at + 1..]));
    let shown = if rest.chars().count() >= HINTED { HINT } else { 0 };
    let tail: String = rest.chars().skip(rest.chars().count() - shown).collect();
    format!("{kind}…{tail}")
}

/// 32 bytes as 32 letters and digits; the slight bias of the modulus costs less than a bit.
fn letters(bytes: &[u8; 32]) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % 62])).collect()
}

fn object(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_shows_the_kind_and_four_characters_of_a_long_key() {
        for (key, shown) in [
            ("sk_live_q8Zr3KxAvT1mP0aLwB9dEf", "sk_live_…9dEf"),
            ("sk_live_q8Zr3Kx_vT1mP0aLw_9dEf", "sk_live_…9dEf"),
            ("sk_test_short", "sk_test_…"),
            ("sk_test_größe_und_mehr_zeichen_ß", "sk_test_…en_ß"),
            ("another", "…"),
        ] {
            assert_eq!(hint(key), shown, "{key}");
        }
    }

    #[test]
    fn unreadable_scopes_give_no_rights() {
        let rights = |kind: &str, scopes: Value| {
            Rights::of(&object(json!({ "kind": kind, "scopes": scopes })))
        };
        let all = |admin| Some(Rights { scopes: None, admin });
        assert_eq!(rights("secret", json!([])), all(None));
        assert_eq!(rights("secret", json!(["admin:write"])), all(Some(Access::Write)));
        assert_eq!(rights("restricted", json!(["admin:read"])).unwrap().admin, Some(Access::Read));
        assert_eq!(rights("restricted", json!(["*:write"])).unwrap().admin, None);
        for damaged in [json!(null), json!([]), json!("books:read"), json!(["books"]), json!([1])] {
            assert_eq!(rights("restricted", damaged.clone()), None, "{damaged}");
        }
        assert_eq!(rights("another", json!([])), None);
    }

    #[test]
    fn scopes_name_collections_channels_or_the_account() {
        let known = ["books".to_owned(), "events".to_owned()];
        let check = |scope: &str| check_scopes(&[scope.to_owned()], &known).is_ok();
        for good in
            ["books:read", "*:write", "channel-tokens:write", "presence:read", "account:write"]
        {
            assert!(check(good), "{good}");
        }
        for bad in ["boks:read", "books", "books:delete", "presence", ""] {
            assert!(!check(bad), "{bad}");
        }
    }
}
