//! `/v1/keys`: list, create, change and revoke. The text of a key is in the response to its
//! creation only.

use super::accounts::unexpected;
use super::paging::check_names;
use super::rights::check_limit_of_operator;
use super::{Administration, form, invalid, name_field, read_only};
use crate::body;
use crate::error::Failure;
use crate::keys::{self, NewKey};
use crate::respond::{self, Reply};
use crate::route::{Own, refuse_parameters};
use crate::usage::Shown;
use http::StatusCode;
use model::problem::{Code, Problem};
use model::query::{Page, Query, SortKey};
use model::record::{Fields, Record};
use model::schema::{Builtin, Collection, Field, Kind};
use model::validate::{self, Mode};
use model::write::{Change, Precondition, Response};
use model::{Scope, Timestamp};
use serde_json::{Value, json};

/// Scopes of one key: more than any schema has collections, so every combination is possible.
pub const MAX_SCOPES: usize = 200;
/// Characters of a scope: more than the name of a collection has.
const MAX_SCOPE_CHARS: usize = 100;
/// Parameters of the list of keys.
const PARAMETERS: [&str; 5] = ["limit", "after", "page", "sort", "account"];
/// The field that identifies a key by its text. It is never shown.
pub const DIGEST: &str = "digest";
/// Keys read at once to find one or an active one.
const PAGE: u32 = 1_000;

impl Administration<'_> {
    pub(super) async fn list_keys(&self) -> Result<Reply, Failure> {
        let mut pairs = self.pairs()?;
        check_names(&pairs, &PARAMETERS)?;
        let named = pairs.iter().position(|(name, _)| name == "account");
        let account = match named.map(|place| pairs.remove(place).1) {
            Some(id) => {
                let found = self.managed_account(&id).await?;
                found.ok_or_else(|| self.not_found(Builtin::Account, &id))?
            }
            None => self.own_account().await?,
        };
        let scope = self.scope_of(&account);
        let usage = self.usage(&account.id).await?;
        let show = |key: &Record| keys::shown(scope, key, usage.last_use(&key.id));
        self.page((Builtin::Key, scope), &pairs, show).await
    }

    pub(super) async fn show_key(&self, id: &str) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        let (scope, key) = self.key(id).await?;
        let object = self.object(scope, &key).await?;
        Ok(self.shown(&key, &object))
    }

    pub(super) async fn create_key(&self) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        let sent = body::object(self.body, false)?;
        let names_scopes = sent.contains_key("scopes");
        let fields = validate::body(&self.key_form(true), sent, Mode::Create)?;
        let account = match text(&fields, "account") {
            Some(id) => self.managed_account(&id).await?.ok_or_else(|| {
                invalid("account", Code::BadReference, "`account` names no account.")
            })?,
            None => self.own_account().await?,
        };
        self.check_unconditional()?;
        self.check_mode(&fields)?;
        if !names_scopes {
            let message = "`scopes` is required: a list such as [\"books:read\"], or null for a \
                           key without restrictions.";
            return Err(invalid("scopes", Code::Required, message).into());
        }
        let new = NewKey {
            name: text(&fields, "name"),
            restricted: !fields["scopes"].is_null(),
            scopes: self.scopes(&fields)?,
            admin: fields.get("admin").and_then(Value::as_bool).unwrap_or_default(),
            rate_limit: rate_limit(&fields),
            expires_at: self.expiry(&fields)?,
            quota_of: None,
            secret: None,
        };
        check_admin(&new)?;
        let new = self.within_rights(new).await?;
        let scope = self.scope_of(&account);
        if let Some(before) = self.created_before(scope).await? {
            let object = self.object(scope, &before).await?;
            return Ok(self.created(&before, &object, Own::Keys, true));
        }
        let (key, secret) = self.make(scope, &account.id, &new).await?;
        let mut object = self.object(scope, &key).await?;
        let replayed = secret.is_none();
        if let Some(secret) = secret {
            object["secret"] = secret.into();
        }
        Ok(self.created(&key, &object, Own::Keys, replayed))
    }

    /// Creates a key. Its text is returned unless the request is a repetition.
    pub(super) async fn make(
        &self,
        scope: Scope,
        account: &str,
        new: &NewKey,
    ) -> Result<(Record, Option<String>), Failure> {
        let outside = &*self.services.outside;
        let secret = keys::draw_secret(outside, new.restricted, scope.livemode());
        let change = Change::Create { fields: new.fields(account, &secret) };
        let place = (Builtin::Key, scope);
        let (response, before) = self.commit(place, None, change, Precondition::None).await?;
        let Response::Created(key) = response else { return Err(unexpected().into()) };
        Ok((key, before.is_none().then_some(secret)))
    }

    pub(super) async fn update_key(&self, id: &str) -> Result<Reply, Failure> {
        let may_end_itself = self.says_self()?;
        let (scope, key) = self.key(id).await?;
        let form = self.key_form(false);
        let sent = validate::body(&form, body::object(self.body, false)?, Mode::Merge)?;
        Self::check_assigned(&sent, &self.object(scope, &key).await?, &form)?;
        let stored = key.fields();
        let names_rights = sent.contains_key("scopes") || sent.contains_key("admin");
        let current = NewKey::like(id, &stored);
        let mut new = match current {
            Ok(current) => current,
            // Scopes that cannot be read can be replaced.
            Err(_) if sent.contains_key("scopes") => NewKey::default(),
            Err(error) => return Err(Problem::new(Code::InvalidState, error.to_string()).into()),
        };
        if sent.contains_key("scopes") {
            new.scopes = self.scopes(&sent)?;
            new.restricted = !sent["scopes"].is_null();
            new.admin &= !new.restricted;
        }
        if let Some(admin) = sent.get("admin") {
            new.admin = admin.as_bool().unwrap_or_default();
        }
        if sent.contains_key("rate_limit") {
            new.rate_limit = rate_limit(&sent);
        }
        if sent.contains_key("expires_at") {
            new.expires_at = self.expiry(&sent)?;
        }
        check_admin(&new)?;
        // A name says nothing about what a key may do.
        if sent
            .keys()
            .any(|name| matches!(&**name, "scopes" | "admin" | "rate_limit" | "expires_at"))
        {
            let is_unlimited = self.is_unlimited().await?;
            self.check_covered(&new, is_unlimited)?;
            if !is_unlimited {
                check_limit_of_operator(&new, &stored)?;
            }
            if id == self.identity.caller.key {
                self.check_own_change(&new, may_end_itself)?;
            }
        }
        let mut patch: Fields = sent
            .into_iter()
            .filter(|(name, _)| matches!(&**name, "name" | "rate_limit" | "expires_at"))
            .collect();
        if names_rights {
            let kind = if new.restricted { "restricted" } else { "secret" };
            patch.insert("kind".into(), kind.into());
            patch.insert("scopes".into(), new.stored_scopes().into());
        }
        let change = Change::Merge { patch };
        let (place, condition) = ((Builtin::Key, scope), self.precondition()?);
        let (response, _) = self.commit(place, Some(id), change, condition).await?;
        let Response::Updated(key) = response else { return Err(unexpected().into()) };
        Ok(self.written(&key, &self.object(scope, &key).await?))
    }

    /// Revokes a key at once. A repetition changes nothing.
    pub(super) async fn revoke_key(&self, id: &str) -> Result<Reply, Failure> {
        let may_end_itself = self.says_self()?;
        let (scope, key) = self.key(id).await?;
        self.check_not_itself(id, may_end_itself)?;
        let is_active = key.fields().get("revoked_at").is_none_or(Value::is_null);
        let mut patch = Fields::new();
        if is_active {
            patch.insert("revoked_at".into(), self.now().to_iso().into());
        }
        let (place, condition) = ((Builtin::Key, scope), self.precondition()?);
        self.commit(place, Some(id), Change::Merge { patch }, condition).await?;
        let body = json!({ "id": id, "object": "key", "deleted": true });
        Ok(respond::no_store(Reply::json(StatusCode::OK, body.to_string())))
    }

    /// Whether a scope has a key that is neither revoked nor expired.
    pub(super) async fn has_active_key(&self, scope: Scope) -> Result<bool, Failure> {
        let mut query = Query {
            parent: None,
            filters: Vec::new(),
            sort: vec![SortKey::new("created_at", true)],
            words: Vec::new(),
            revealed: Vec::new(),
            page: Page::First,
            limit: PAGE,
        };
        let keys = self.collection(Builtin::Key).0;
        loop {
            let page = self.services.store.list(scope, keys, &query).await?;
            let active = |key: &Record| keys::state(&key.fields(), self.now()) == "active";
            if page.records.iter().any(active) {
                return Ok(true);
            }
            match page.position {
                Some(position) => query.page = Page::After(position),
                None => return Ok(false),
            }
        }
    }

    /// The key with this id, or 404: of the caller's account, or of any account for the operator.
    pub(super) async fn key(&self, id: &str) -> Result<(Scope, Record), Failure> {
        let caller = &self.identity.caller;
        let keys = self.collection(Builtin::Key).0;
        if let Some(key) = self.services.store.record(caller.scope, keys, None, id).await? {
            return Ok((caller.scope, key));
        }
        if self.is_operator().await?
            && let Some((scope, key)) = self.services.store.key_by_id(id).await?
            && scope.livemode() == caller.scope.livemode()
        {
            return Ok((scope, key));
        }
        Err(self.not_found(Builtin::Key, id))
    }

    async fn own_account(&self) -> Result<Record, Failure> {
        let id = &self.identity.caller.account;
        let found = self.managed_account(id).await?;
        found.ok_or_else(|| self.not_found(Builtin::Account, id))
    }

    /// The scope of an account in the caller's mode.
    fn scope_of(&self, account: &Record) -> Scope {
        Scope::new(account.number, self.identity.caller.scope.livemode())
    }

    async fn usage(&self, account: &str) -> Result<Shown, Failure> {
        let (store, cluster) = (&*self.services.store, &*self.services.handlers.cluster);
        Ok(self.services.usages.shown(account, store, cluster).await?)
    }

    pub(super) async fn object(&self, scope: Scope, key: &Record) -> Result<Value, Failure> {
        let account = text(&key.fields(), "account").unwrap_or_default();
        let last_use = self.usage(&account).await?.last_use(&key.id);
        Ok(keys::shown(scope, key, last_use))
    }

    /// A test key creates test keys, a live key creates live keys.
    fn check_mode(&self, fields: &Fields) -> Result<(), Problem> {
        let own = keys::mode(self.identity.caller.scope);
        match text(fields, "mode") {
            Some(asked) if asked != own => {
                let message = format!("A {own} key creates {own} keys only; use a {asked} key.");
                Err(Problem::new(Code::PermissionDenied, message).param("mode"))
            }
            _ => Ok(()),
        }
    }

    /// The expiry that a body asks for, which must be in the future.
    fn expiry(&self, fields: &Fields) -> Result<Option<String>, Problem> {
        let Some(at) = text(fields, "expires_at") else { return Ok(None) };
        if Timestamp::parse(&at).is_none_or(|end| end <= self.now()) {
            let message = "`expires_at` is in the past: the key would not be valid.";
            return Err(invalid("expires_at", Code::Unsuitable, message));
        }
        Ok(Some(at))
    }

    /// The scopes that a body asks for. Each must name something that exists.
    fn scopes(&self, fields: &Fields) -> Result<Vec<String>, Problem> {
        let asked = match fields.get("scopes") {
            Some(Value::Array(asked)) => asked,
            _ => return Ok(Vec::new()),
        };
        let mut scopes: Vec<String> = Vec::new();
        for scope in asked.iter().filter_map(Value::as_str) {
            if scope.chars().count() > MAX_SCOPE_CHARS {
                let message = format!("A scope has at most {MAX_SCOPE_CHARS} characters.");
                return Err(invalid("scopes", Code::TooLong, message));
            }
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
        let collections = &self.services.schema.collections;
        let known: Vec<String> = collections
            .iter()
            .filter(|collection| !collection.internal)
            .map(|collection| collection.name.clone())
            .collect();
        keys::check_scopes(&scopes, &known)
            .map_err(|error| invalid("scopes", Code::NotInEnum, error.to_string()))?;
        Ok(scopes)
    }

    /// The members that a request may have, and what it may send back unchanged.
    fn key_form(&self, is_new: bool) -> Collection {
        let mut scopes = Field::new("scopes", Kind::Array(Box::new(Kind::String)));
        (scopes.min_length, scopes.max_length) = (Some(1), Some(MAX_SCOPES));
        let mut rate_limit = Field::new("rate_limit", Kind::Integer);
        (rate_limit.min, rate_limit.max) = (Some(1.0), Some(f64::from(u32::MAX)));
        let mut fields = vec![
            name_field(),
            scopes,
            Field::new("admin", Kind::Boolean),
            rate_limit,
            Field::new("expires_at", Kind::Timestamp),
        ];
        let mut mode = Field::new("mode", Kind::String);
        mode.choices = vec!["test".into(), "live".into()];
        let mut account = Field::new("account", Kind::String);
        (mode.read_only, account.read_only) = (!is_new, !is_new);
        fields.extend([mode, account]);
        if !is_new {
            fields.push(read_only("hint", Kind::String));
            fields.push(read_only("last_used_at", Kind::Timestamp));
            fields.push(read_only("revoked_at", Kind::Timestamp));
        }
        form(self.collection(Builtin::Key).1, "keys", fields)
    }
}

/// `admin` is for keys without scopes; others have it as a scope.
fn check_admin(new: &NewKey) -> Result<(), Problem> {
    if new.admin && new.restricted {
        let message = "`admin` is for keys without scopes; add the scope `admin:write` instead.";
        return Err(invalid("admin", Code::Unsuitable, message));
    }
    Ok(())
}

pub(super) fn text(fields: &Fields, name: &str) -> Option<String> {
    fields.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn rate_limit(fields: &Fields) -> Option<u32> {
    fields.get("rate_limit").and_then(Value::as_u64).and_then(|limit| u32::try_from(limit).ok())
}
