//! The account's own routes: the version it is pinned to, and the versions it uses. Also pins an
//! account at its first request.

use crate::auth::Identity;
use crate::error::Failure;
use crate::operation::access;
use crate::respond::{self, Reply};
use crate::route::{self, Own};
use crate::services::Services;
use crate::trace::Trace;
use crate::usage::SubjectKind;
use crate::{body, condition, confirmed_body, negotiate, scope};
use http::{Method, StatusCode};
use model::problem::{Code, Problem};
use model::record::{Fields, Record};
use model::schema::{Builtin, Collection, Field, Kind};
use model::validate::{self, Mode};
use model::write::{Cause, Change, Committed, Precondition, Response, Write};
use model::{Scope, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::Exchange;

pub const PIN: &str = "api_version";
/// Time before a failed attempt to set the pin is repeated. Reads continue while the disk is full,
/// so the attempt can fail for a long time.
const RETRY_MS: i64 = 10_000;

/// Answers `/v1/account` and `/v1/version-usage`.
pub async fn serve(
    services: &Arc<Services>,
    exchange: &mut Exchange,
    own: Own,
    request_id: &str,
    trace: &mut Trace,
) -> Result<Reply, Failure> {
    let methods: &[&str] = match own {
        Own::Account => &["GET", "HEAD", "POST", "OPTIONS"],
        _ => &["GET", "HEAD", "OPTIONS"],
    };
    if exchange.method == Method::OPTIONS {
        services.admission.take_for_address(exchange, trace)?;
        return Ok(respond::options(methods));
    }
    if !methods.contains(&exchange.method.as_str()) {
        services.admission.take_for_address(exchange, trace)?;
        return Err(respond::not_allowed(&exchange.method, methods).into());
    }
    let mut identity = services.admission.identify(exchange, trace).await?;
    let is_update = exchange.method == Method::POST;
    services.admission.take(&identity, trace).await?;
    let body = match is_update {
        true => confirmed_body::read(services, exchange, &mut identity, trace).await?,
        false => Ok(bytes::Bytes::new()),
    };
    trace.choose_version(&services.versions, exchange, &identity)?;
    scope::check(&identity.caller, own.scope(), access(&exchange.method))?;
    let body = body?;
    negotiate::check_accept(&exchange.headers)?;
    if is_update {
        negotiate::check_content_type(&exchange.method, &exchange.headers)?;
    }
    route::refuse_parameters(exchange.uri.query().unwrap_or_default())?;
    let text = match own {
        Own::Account if is_update => {
            let requested_version = requested_version(services, body::object(&body, false)?)?;
            let precondition = condition::of_write(&exchange.headers)?;
            set(services, &identity, &requested_version, precondition, Some(request_id)).await?.body
        }
        Own::Account => {
            if identity.account.pin.is_none() {
                pin(services, &identity, trace.now).await;
            }
            find(services, &identity).await?.body
        }
        _ => usage(services, &identity).await?,
    };
    Ok(respond::no_store(Reply::json(StatusCode::OK, text)))
}

/// Pins an account to the newest version, in which its first request was answered. A failure does
/// not fail the request: a later request tries again.
pub async fn pin(services: &Services, identity: &Identity, now: Timestamp) {
    let account = &identity.account;
    let tried = account.tried.swap(now.0, Ordering::Relaxed);
    if tried != 0 && (now.0 - tried).abs() < RETRY_MS {
        return;
    }
    // If another request pinned it first, keep that pin.
    let unchanged = Precondition::Versions(vec![account.version]);
    let newest = &services.versions.newest().date;
    match set(services, identity, newest, unchanged, None).await {
        Ok(_) => {}
        Err(Failure::Problem(problem)) => {
            tracing::debug!(account = identity.caller.account, %problem.message, "not pinned");
        }
        Err(Failure::Store(error)) => {
            let account = &identity.caller.account;
            tracing::warn!(account, %error, "the account could not be pinned to a version");
        }
    }
}

/// The version that the request body asks for.
fn requested_version(services: &Services, sent: Fields) -> Result<String, Problem> {
    let fields = validate::body(&form(services), sent, Mode::Create)?;
    let requested_version = fields.get(PIN).and_then(Value::as_str);
    Ok(requested_version.unwrap_or_default().to_owned())
}

/// The fields of an account that a request may change.
fn form(services: &Services) -> Collection {
    let mut field = Field::new(PIN, Kind::String);
    field.required = true;
    field.choices = services.versions.dates().into_iter().map(str::to_owned).collect();
    let accounts = &services.schema.collections[services.schema.own(Builtin::Account)];
    Collection { name: "account".to_owned(), fields: vec![field], ..accounts.clone() }
}

async fn set(
    services: &Services,
    identity: &Identity,
    date: &str,
    precondition: Precondition,
    request: Option<&str>,
) -> Result<Record, Failure> {
    let fields = Fields::from_iter([(PIN.to_owned(), Value::from(date))]);
    let write = Write {
        scope: Scope::SYSTEM,
        collection: services.schema.own(Builtin::Account),
        id: Some(identity.caller.account.clone()),
        parent: None,
        change: Change::Assign { fields, event: None },
        view: None,
        precondition,
        idempotency: None,
        cause: Cause {
            request: request.map(str::to_owned),
            key: request.map(|_| identity.caller.key.clone()),
            ..Cause::default()
        },
        now: services.outside.now(),
        entropy: services.outside.entropy(),
    };
    match services.store.commit(write).await?? {
        Committed::Fresh(Response::Updated(record))
        | Committed::Unchanged(Response::Updated(record)) => Ok(record),
        _ => Err(gone().into()),
    }
}

async fn find(services: &Services, identity: &Identity) -> Result<Record, Failure> {
    let accounts = services.schema.own(Builtin::Account);
    let id = &identity.caller.account;
    let found = services.store.record(Scope::SYSTEM, accounts, None, id).await?;
    found.ok_or_else(|| gone().into())
}

fn gone() -> Problem {
    Problem::new(Code::NotFound, "The account no longer exists.")
}

/// The number of requests of the account by version, by deprecated collection and by deprecated
/// field.
async fn usage(services: &Services, identity: &Identity) -> Result<String, Failure> {
    let (account, store) = (&identity.account, &*services.store);
    let cluster = &*services.handlers.cluster;
    let used = services.usages.shown(&identity.caller.account, store, cluster).await?;
    let (mut versions, mut collections, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for (place, subject) in services.usages.subjects().iter().enumerate() {
        let (requests, last) = used.of(place);
        let deprecation = subject.deprecated.clone().unwrap_or_default();
        let (list, mut shown) = match &subject.kind {
            SubjectKind::Version(date) => {
                let pinned = account.pin.unwrap_or(0) == place;
                let shown = json!({ "object": "version_usage", "version": date, "pinned": pinned });
                (&mut versions, shown)
            }
            SubjectKind::Collection(name) => {
                (&mut collections, json!({ "object": "collection_usage", "collection": name }))
            }
            SubjectKind::Field { collection, name } => {
                let (object, field) = ("field_usage", name);
                let shown = json!({ "object": object, "collection": collection, "field": field });
                (&mut fields, shown)
            }
        };
        shown["requests"] = requests.into();
        shown["last_used_at"] = json!(last.map(Timestamp::to_iso));
        shown["deprecated"] = json!(deprecation.since);
        shown["sunset"] = json!(deprecation.sunset);
        list.push(shown);
    }
    let list = json!({
        "object": "list",
        "data": versions,
        "deprecated_collections": collections,
        "deprecated_fields": fields,
        "since": services.usages.since().to_iso(),
    });
    Ok(list.to_string())
}
