//! Creates accounts and keys for the CLI and the first start, through `Store::commit`, like any
//! other record. The text of a key is shown once; the store has only its digest.

use crate::{Outside, scope};
use model::caller::Scope;
use model::id::Entropy;
use model::query::{Page, Query, SortKey};
use model::record::{Fields, Record};
use model::schema::Schema;
use model::write::{Cause, Change, Committed, Precondition, Response, Write};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
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
    pub rate_limit: Option<u32>,
    pub expires_at: Option<String>,
    /// The key's text, if the caller supplies it (`RESTIVE_BOOTSTRAP_KEY`).
    pub secret: Option<String>,
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
        let keys = self.index("keys");
        let mut after = 0;
        loop {
            let page = self.store.every(keys, after, PAGE as usize).await?;
            let Some((_, last)) = page.last() else { return Ok(None) };
            after = last.number;
            if let Some(found) = page.into_iter().find(|(_, key)| key.id == id) {
                return Ok(Some(found));
            }
        }
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
        let restricted = !new.scopes.is_empty();
        let secret = new.secret.unwrap_or_else(|| self.draw_secret(restricted, livemode));
        let fields = object(json!({
            "digest": hex(&digest(&secret)),
            "name": new.name,
            "kind": if restricted { "restricted" } else { "secret" },
            "account": account.id,
            "hint": hint(&secret),
            "scopes": new.scopes,
            "rate_limit": new.rate_limit,
            "expires_at": new.expires_at,
            "revoked_at": Value::Null,
        }));
        let scope = Self::scope(account, livemode);
        let record = self.commit("keys", scope, None, Change::Create { fields }).await?;
        Ok(MadeKey { record, secret })
    }

    /// Revokes a key at once.
    pub async fn revoke(&self, scope: Scope, id: &str) -> Result<Record, Error> {
        let patch = object(json!({ "revoked_at": self.outside.now().to_iso() }));
        self.commit("keys", scope, Some(id), Change::Merge { patch }).await
    }

    /// Sets the expiry of a key: the old key of a rotation.
    pub async fn expire(&self, scope: Scope, id: &str, at: &str) -> Result<Record, Error> {
        let patch = object(json!({ "expires_at": at }));
        self.commit("keys", scope, Some(id), Change::Merge { patch }).await
    }

    fn draw_secret(&self, restricted: bool, livemode: bool) -> String {
        let kind = if restricted { "rk" } else { "sk" };
        let mode = if livemode { "live" } else { "test" };
        let Entropy(bytes) = self.outside.entropy();
        format!("{kind}_{mode}_{}", letters(&bytes))
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
        let write = Write {
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
        };
        match self.store.commit(write).await? {
            Ok(
                Committed::Fresh(Response::Created(record) | Response::Updated(record))
                | Committed::Unchanged(Response::Updated(record)),
            ) => Ok(record),
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

/// Checks that scopes name known collections: a misspelt scope would silently grant nothing.
pub fn check_scopes(scopes: &[String], collections: &[String]) -> Result<(), Error> {
    for text in scopes {
        let grant = model::caller::Grant::parse(text).ok_or_else(|| {
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
