//! Keys and accounts over HTTP, for keys with the scope `admin`: `/v1/keys` and `/v1/accounts`. The
//! steps are those of every request; the records are the internal collections `keys` and
//! `accounts`, which the `keys` and `accounts` commands also change.
//!
//! An admin key of the first account, which the operator's first start creates, manages all
//! accounts. An admin key of another account manages that account only: everything else does not
//! exist for it. No key sees or creates keys of the other mode, and none creates a key that may do
//! more than itself.

mod accounts;
mod keys;
mod paging;
mod rights;
mod roll;

pub use keys::{DIGEST, MAX_SCOPES};
pub use roll::MAX_OVERLAP_HOURS;

use crate::auth::Identity;
use crate::error::Failure;
use crate::operation::{access, digest_number};
use crate::respond::{self, Reply};
use crate::route::{self, Own};
use crate::services::Services;
use crate::trace::Request;
use crate::{condition, confirmed_body, idempotency, negotiate, scope};
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use model::problem::{Code, Problem, Violation};
use model::query::{Page, Query, SortKey};
use model::record::{Fields, Record};
use model::schema::{Builtin, Collection, CollectionIx, Field, Kind};
use model::validate;
use model::write::{Cause, Change, Committed, Idempotency, Precondition, Response, Write};
use model::{Scope, Timestamp};
use serde_json::Value;
use std::sync::Arc;
use wire::Exchange;

/// Characters of the name of a key or an account: a name is one line of a list.
pub const MAX_NAME_CHARS: usize = 200;

/// A request whose caller may make it.
struct Administration<'a> {
    services: &'a Arc<Services>,
    identity: &'a Identity,
    request_id: &'a str,
    headers: &'a HeaderMap,
    path: &'a str,
    mount: &'a str,
    query: &'a str,
    /// Date of the API version.
    version: &'a str,
    body: &'a Bytes,
    idempotency: Option<Idempotency>,
    client: Option<std::net::IpAddr>,
}

pub(crate) async fn serve(
    services: &Arc<Services>,
    exchange: &mut Exchange,
    (own, id): (Own, Option<String>),
    request: &mut Request,
) -> Result<Reply, Failure> {
    let Request { id: request_id, trace, .. } = request;
    let methods = methods(own);
    if exchange.method == Method::OPTIONS {
        services.admission.take_for_address(exchange, trace)?;
        return Ok(respond::options(methods));
    }
    if !methods.contains(&exchange.method.as_str()) {
        services.admission.take_for_address(exchange, trace)?;
        return Err(respond::not_allowed(&exchange.method, methods).into());
    }
    let mut identity = services.admission.identify(exchange, trace).await?;
    services.admission.take(&identity, trace).await?;
    let needed = access(&exchange.method);
    let body = match needed {
        model::caller::Access::Write => {
            confirmed_body::read(services, exchange, &mut identity, trace).await?
        }
        model::caller::Access::Read => Ok(Bytes::new()),
    };
    trace.choose_version(&services.versions, exchange, &identity)?;
    scope::check(&identity.caller, own.scope(), needed)?;
    let body = body?;
    negotiate::check_accept(&exchange.headers)?;
    if !body.is_empty() && exchange.method != Method::DELETE {
        negotiate::check_content_type(&exchange.method, &exchange.headers)?;
    }
    let version = &services.versions.view(trace.version.unwrap_or(0)).date;
    let administration = Administration {
        services,
        identity: &identity,
        request_id,
        headers: &exchange.headers,
        path: exchange.uri.path(),
        mount: mount(services, trace.mount),
        query: exchange.uri.query().unwrap_or_default(),
        version,
        body: &body,
        idempotency: repetition(exchange, &body, version)?,
        client: exchange.is_client_known.then_some(exchange.client),
    };
    let id = id.as_deref().unwrap_or_default();
    administration.run(own, &exchange.method, id).await
}

/// The path of a mount; that of the service if the request has none.
fn mount(services: &Services, place: Option<usize>) -> &str {
    let mount = place.and_then(|place| services.schema.mounts.get(place));
    mount.map_or(&services.schema.service.mount, |mount| &mount.path)
}

fn methods(own: Own) -> &'static [&'static str] {
    match own {
        Own::Keys | Own::Accounts => &["GET", "HEAD", "POST", "OPTIONS"],
        Own::Key | Own::OneAccount => &["GET", "HEAD", "PATCH", "DELETE", "OPTIONS"],
        Own::KeyRoll => &["POST", "OPTIONS"],
        _ => &["OPTIONS"],
    }
}

/// The Idempotency-Key, with the fingerprint of the request.
fn repetition(
    exchange: &Exchange,
    body: &[u8],
    version: &str,
) -> Result<Option<Idempotency>, Problem> {
    let Some(key) = idempotency::key(&exchange.method, &exchange.headers)? else { return Ok(None) };
    let parts = [
        exchange.method.as_str().as_bytes(),
        exchange.uri.path().as_bytes(),
        exchange.uri.query().unwrap_or_default().as_bytes(),
        body,
        version.as_bytes(),
    ];
    Ok(Some(idempotency::fingerprint(key, &parts)))
}

impl Administration<'_> {
    async fn run(&self, own: Own, method: &Method, id: &str) -> Result<Reply, Failure> {
        match (own, method.as_str()) {
            (Own::Keys, "POST") => self.create_key().await,
            (Own::Keys, _) => self.list_keys().await,
            (Own::KeyRoll, _) => self.roll_key(id).await,
            (Own::Key, "PATCH") => self.update_key(id).await,
            (Own::Key, "DELETE") => self.revoke_key(id).await,
            (Own::Key, _) => self.show_key(id).await,
            (Own::Accounts, "POST") => self.create_account().await,
            (Own::Accounts, _) => self.list_accounts().await,
            (Own::OneAccount, "PATCH") => self.update_account(id).await,
            (Own::OneAccount, "DELETE") => self.delete_account(id).await,
            (Own::OneAccount, _) => self.show_account(id).await,
            _ => Ok(Reply::empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
    }

    fn collection(&self, builtin: Builtin) -> (CollectionIx, &Collection) {
        let place = self.services.schema.own(builtin);
        (place, &self.services.schema.collections[place])
    }

    /// Whether the caller's account is the first one, whose admin keys manage all accounts.
    async fn is_operator(&self) -> Result<bool, Failure> {
        let accounts = self.collection(Builtin::Account).0;
        let first = self.services.store.every(accounts, 0, 1).await?;
        let own = self.identity.caller.scope.account_number();
        Ok(first.first().is_some_and(|(_, first)| first.number == own))
    }

    /// An account that the caller may manage; `None` if there is none with this id for the caller.
    async fn managed_account(&self, id: &str) -> Result<Option<Record>, Failure> {
        if id != self.identity.caller.account && !self.is_operator().await? {
            return Ok(None);
        }
        let accounts = self.collection(Builtin::Account).0;
        Ok(self.services.store.record(Scope::SYSTEM, accounts, None, id).await?)
    }

    /// The conditions of a write to an existing object.
    fn precondition(&self) -> Result<Precondition, Problem> {
        condition::of_write(self.headers)
    }

    /// Refuses conditions on a write to a list, which has no tag that they could name.
    fn check_unconditional(&self) -> Result<(), Problem> {
        condition::of_nothing(self.headers)
    }

    fn not_found(&self, builtin: Builtin, id: &str) -> Failure {
        model::decide::not_found(self.collection(builtin).1, id).into()
    }

    /// Commits a change; also returns the request that made it, if this one repeats it.
    async fn commit(
        &self,
        (builtin, scope): (Builtin, Scope),
        id: Option<&str>,
        change: Change,
        precondition: Precondition,
    ) -> Result<(Response, Option<String>), Failure> {
        let creates = matches!(change, Change::Create { .. });
        let idempotency = self.stored_key(scope).filter(|_| creates);
        let write = Write {
            scope,
            collection: self.collection(builtin).0,
            id: id.map(str::to_owned),
            parent: None,
            change,
            view: None,
            precondition,
            cause: Cause {
                request: Some(self.request_id.to_owned()),
                idempotency_key: idempotency.as_ref().map(|one| one.key.clone()),
                key: Some(self.identity.caller.key.clone()),
                user: self.identity.user.clone(),
                client: self.client,
                lease: None,
            },
            idempotency,
            now: self.services.outside.now(),
            entropy: self.services.outside.entropy(),
        };
        Ok(match self.services.store.commit(write).await?? {
            Committed::Fresh(response) | Committed::Unchanged(response) => (response, None),
            Committed::Replayed { response, request } => (response, Some(request)),
        })
    }

    /// The Idempotency-Key as it is stored in a scope. In the scope of another account it has the
    /// caller's id, so that it meets no key of that account.
    fn stored_key(&self, scope: Scope) -> Option<Idempotency> {
        let given = self.idempotency.clone()?;
        let caller = &self.identity.caller;
        let key = match scope == caller.scope {
            true => given.key,
            false => format!("{} {}", caller.key, given.key),
        };
        Some(Idempotency { key, ..given })
    }

    /// The record that an earlier request with this Idempotency-Key created.
    async fn created_before(&self, scope: Scope) -> Result<Option<Record>, Failure> {
        let Some(key) = self.stored_key(scope) else { return Ok(None) };
        let Some(before) = self.services.store.remembered(scope, &key.key).await? else {
            return Ok(None);
        };
        match before.response {
            Response::Created(record) if before.fingerprint == key.fingerprint => Ok(Some(record)),
            _ => Err(idempotency::reused().into()),
        }
    }

    /// The tag of an object is a hash of what is shown: the last use changes without the record.
    fn shown(&self, record: &Record, object: &Value) -> Reply {
        let body = object.to_string();
        let tag = condition::record_tag(record.version, digest_number(body.as_bytes()));
        let cache = Some(HeaderValue::from_static("no-store"));
        respond::record(self.headers, cache, tag, record.updated, false, body)
    }

    /// The same after a write, whose conditions the store has checked.
    fn written(&self, record: &Record, object: &Value) -> Reply {
        let body = object.to_string();
        let tag = condition::record_tag(record.version, digest_number(body.as_bytes()));
        let reply = Reply::json(StatusCode::OK, body).header(http::header::ETAG, tag);
        respond::no_store(reply)
    }

    fn created(&self, record: &Record, object: &Value, own: Own, replayed: bool) -> Reply {
        let mut reply = self.written(record, object);
        reply.status = StatusCode::CREATED;
        let path = format!("{}/{}/{}", self.mount, own.template(), record.id);
        let reply = reply.header(LOCATION, path);
        if replayed { respond::replayed(reply) } else { reply }
    }

    /// Refuses members of a patch that only the service sets, unless they are sent back unchanged.
    fn check_assigned(patch: &Fields, shown: &Value, form: &Collection) -> Result<(), Problem> {
        let assigned = |name: &str| {
            let field = form.field(name);
            validate::ASSIGNED.contains(&name) || field.is_some_and(|field| field.read_only)
        };
        let changed = patch
            .iter()
            .filter(|(name, value)| assigned(name) && shown.get(name.as_str()) != Some(*value));
        let violations: Vec<Violation> =
            changed.map(|(name, _)| validate::read_only(name)).collect();
        match violations.is_empty() {
            true => Ok(()),
            false => Err(Problem::of(Code::ValidationFailed, violations)),
        }
    }

    fn pairs(&self) -> Result<Vec<(String, String)>, Problem> {
        route::parameters(self.query)
    }

    fn now(&self) -> Timestamp {
        self.services.outside.now()
    }

    /// Whether a collection has a record in a scope.
    async fn has_any(&self, scope: Scope, collection: CollectionIx) -> Result<bool, Failure> {
        let query = Query {
            parent: None,
            filters: Vec::new(),
            sort: vec![SortKey::new("created_at", true)],
            words: Vec::new(),
            revealed: Vec::new(),
            page: Page::First,
            limit: 1,
        };
        Ok(!self.services.store.list(scope, collection, &query).await?.records.is_empty())
    }
}

/// The members of a request body, as fields of a collection.
fn form(of: &Collection, name: &str, fields: Vec<Field>) -> Collection {
    Collection { name: name.to_owned(), fields, ..of.clone() }
}

/// The name of a key or an account: one to `MAX_NAME_CHARS` characters.
fn name_field() -> Field {
    let mut field = Field::new("name", Kind::String);
    (field.min_length, field.max_length) = (Some(1), Some(MAX_NAME_CHARS));
    field
}

fn read_only(name: &str, kind: Kind) -> Field {
    Field { read_only: true, ..Field::new(name, kind) }
}

/// A violation of one member.
fn invalid(param: &str, code: Code, message: impl Into<String>) -> Problem {
    Problem::of(Code::ValidationFailed, vec![Violation::new(param, code, message)])
}
