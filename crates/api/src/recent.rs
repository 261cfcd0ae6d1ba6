//! `/v1/requests` and `/v1/stats`: what `activity` has noted of the last hour.

use crate::activity::{ErrorNote, MINUTE_MS, Noted, Summary};
use crate::auth::Identity;
use crate::error::Failure;
use crate::operation::access;
use crate::respond::{self, Reply};
use crate::route::{self, Own};
use crate::services::Services;
use crate::trace::{Request, Telemetry};
use crate::{negotiate, scope};
use http::{Method, StatusCode};
use model::problem::{Code, Problem};
use model::query::{Filter, Page, Query, SortKey, Test};
use model::record::Scalar;
use model::schema::Builtin;
use model::{Scope, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::Exchange;

const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// Filters of the list of requests.
const FILTERS: [&str; 5] = ["status", "method", "route", "code", "key"];
const PARAMETERS: [&str; 7] = ["limit", "after", "status", "method", "route", "code", "key"];
const DEFAULT_LIMIT: usize = 20;
/// Groups of errors that the statistics show, the most frequent ones.
const SHOWN_ERRORS: usize = 50;
/// Deliveries that wait for a retry are counted up to this number: counting all could take long.
const COUNTED_RETRIES: u32 = 1_000;

pub async fn serve(
    services: &Arc<Services>,
    exchange: &mut Exchange,
    (own, id): (Own, Option<String>),
    request: &mut Request,
) -> Result<Reply, Failure> {
    let trace = &mut request.trace;
    if exchange.method == Method::OPTIONS {
        services.admission.take_for_address(exchange, trace)?;
        return Ok(respond::options(&METHODS));
    }
    if !METHODS.contains(&exchange.method.as_str()) {
        services.admission.take_for_address(exchange, trace)?;
        return Err(respond::not_allowed(&exchange.method, &METHODS).into());
    }
    let identity = services.admission.identify(exchange, trace).await?;
    services.admission.take(&identity, trace).await?;
    trace.choose_version(&services.versions, exchange, &identity)?;
    scope::check(&identity.caller, own.scope(), access(&exchange.method))?;
    negotiate::check_accept(&exchange.headers)?;
    let query = exchange.uri.query().unwrap_or_default();
    let body = match (own, id) {
        (Own::Stats, _) => {
            route::refuse_parameters(query)?;
            stats(services, &identity, trace.now).await?
        }
        (_, Some(id)) => {
            route::refuse_parameters(query)?;
            one(services, identity.caller.scope, &id)?
        }
        (_, None) => list(services, identity.caller.scope, query)?,
    };
    Ok(respond::no_store(Reply::json(StatusCode::OK, body.to_string())))
}

fn one(services: &Services, scope: Scope, id: &str) -> Result<Value, Problem> {
    let telemetry = &services.telemetry;
    let number = telemetry.number_of(id);
    let found =
        telemetry.activity.of(scope, |noted| Some(noted.number) == number).into_iter().next();
    found.map(|noted| shown(services, &noted)).ok_or_else(|| {
        let shown: String = id.chars().take(100).collect();
        let message = format!(
            "No such request: `{shown}`. Only the newest since the start of the server are kept."
        );
        Problem::new(Code::NotFound, message).param("id")
    })
}

/// The query of a list of requests.
struct Asked {
    limit: usize,
    /// Number of the request before which the page begins.
    before: Option<u64>,
    filters: Vec<(String, String)>,
}

impl Asked {
    fn read(telemetry: &Telemetry, most: u32, query: &str) -> Result<Asked, Problem> {
        let mut asked = Asked { limit: DEFAULT_LIMIT, before: None, filters: Vec::new() };
        let most = usize::try_from(most).unwrap_or(DEFAULT_LIMIT);
        for (name, value) in route::parameters(query)? {
            let bad = |what: &str| {
                let message = format!("`{name}` {what}.");
                Problem::new(Code::InvalidParameter, message).param(name.clone())
            };
            match name.as_str() {
                "limit" => {
                    // A 64-bit integer, as in every list; one above the longest page is reduced.
                    let limit = value.parse().ok().filter(|limit: &i64| *limit > 0);
                    let limit = limit.ok_or_else(|| bad("must be a whole number from 1 on"))?;
                    asked.limit = usize::try_from(limit).unwrap_or(most).min(most);
                }
                "after" => {
                    let number = telemetry.number_of(&value).ok_or_else(|| {
                        let message = "The cursor is not from this server since its start. Start \
                                       again without `after`.";
                        Problem::new(Code::CursorInvalid, message).param("after")
                    })?;
                    asked.before = Some(number);
                }
                "status" if !is_status(&value) => {
                    return Err(bad("must be a status such as 404, or 2xx, 3xx, 4xx or 5xx"));
                }
                name if FILTERS.contains(&name) => {
                    asked.filters.push((name.to_owned(), value));
                }
                name => return Err(Problem::unknown_parameter(name, &PARAMETERS)),
            }
        }
        Ok(asked)
    }

    fn wants(&self, telemetry: &Telemetry, noted: &Noted) -> bool {
        self.before.is_none_or(|before| noted.number < before)
            && self.filters.iter().all(|(name, value)| match name.as_str() {
                "status" => has_status(noted.status, value),
                "method" => noted.method.eq_ignore_ascii_case(value),
                "route" => telemetry.route_name(noted.route) == value,
                "code" => noted.error.as_ref().is_some_and(|error| error.code == *value),
                _ => noted.identity.caller.key == *value,
            })
    }
}

fn is_status(text: &str) -> bool {
    let digits = text.strip_suffix("xx").unwrap_or(text);
    let (length, whole) = if digits.len() == text.len() { (3, 100..600) } else { (1, 2..6) };
    let is_plain = digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain && digits.parse().is_ok_and(|number: u16| whole.contains(&number))
}

fn has_status(status: u16, wanted: &str) -> bool {
    match wanted.strip_suffix("xx") {
        Some(class) => class.parse() == Ok(status / 100),
        None => wanted.parse() == Ok(status),
    }
}

fn list(services: &Services, scope: Scope, query: &str) -> Result<Value, Problem> {
    let telemetry = &*services.telemetry;
    let asked = Asked::read(telemetry, services.schema.service.max_page, query)?;
    let found = telemetry.activity.of(scope, |noted| asked.wants(telemetry, noted));
    let page = &found[..found.len().min(asked.limit)];
    let has_more = page.len() < found.len();
    let next = page.last().filter(|_| has_more).map(|last| telemetry.id_of(last.number));
    let next = next.as_deref();
    Ok(json!({
        "object": "list",
        "data": page.iter().map(|noted| shown(services, noted)).collect::<Vec<_>>(),
        "pagination": { "next_cursor": next, "has_more": has_more },
    }))
}

fn shown(services: &Services, noted: &Noted) -> Value {
    let telemetry = &services.telemetry;
    let error = noted.error.as_deref();
    json!({
        "object": "request",
        "id": &*telemetry.id_of(noted.number),
        "created_at": noted.at.to_iso(),
        "method": noted.method,
        "path": noted.path.to_text(),
        "route": telemetry.route_name(noted.route),
        "status": noted.status,
        "code": error.map(|error: &ErrorNote| error.code.as_str()),
        "message": error.map(|error| error.message.as_str()),
        "duration_ms": (noted.took.as_secs_f64() * 1e5).round() / 100.0,
        "key": noted.identity.caller.key,
        "user": noted.identity.user,
        "version": services.versions.view(noted.version).date,
        "idempotent_replayed": noted.is_replayed,
        "ip": noted.client.to_string(),
    })
}

async fn stats(services: &Services, identity: &Identity, now: Timestamp) -> Result<Value, Failure> {
    let scope = identity.caller.scope;
    let mut summary = services.telemetry.activity.summary(scope, now);
    summary.errors.sort_by_key(|error| (std::cmp::Reverse(error.count), error.last));
    summary.errors.truncate(SHOWN_ERRORS);
    let [poll, sse, websocket] = services.channels.hub.connections_of(scope.account_number());
    let deliveries = deliveries(services, scope, now).await?;
    let Summary { points, versions, errors, .. } = summary;
    let points = points.iter().map(|point| {
        json!({
            "at": point.at.to_iso(),
            "requests": point.requests,
            "client_errors": point.client_errors,
            "server_errors": point.server_errors,
            "commits": point.commits,
            "p50_ms": point.quantile(0.5),
            "p99_ms": point.quantile(0.99),
        })
    });
    let errors = errors.iter().map(|error| {
        json!({
            "code": error.code,
            "route": services.telemetry.route_name(error.route),
            "count": error.count,
            "last_request": &*services.telemetry.id_of(error.last),
        })
    });
    let versions = versions.iter().map(|(version, requests)| {
        json!({ "version": services.versions.view(*version).date, "requests": requests })
    });
    Ok(json!({
        "object": "stats",
        "interval": MINUTE_MS / 1000,
        "points": points.collect::<Vec<_>>(),
        "errors": errors.collect::<Vec<_>>(),
        "versions": versions.collect::<Vec<_>>(),
        "deliveries": deliveries,
        "connections": { "sse": sse, "websocket": websocket, "poll": poll },
    }))
}

/// What waits is partly in the memory of the engine, partly in the store: deliveries that failed
/// and are tried again.
async fn deliveries(services: &Services, scope: Scope, now: Timestamp) -> Result<Value, Failure> {
    let figures = (services.delivery_figures)(scope);
    let pending = Test::AnyOf(vec![Scalar::Text("pending".to_owned())]);
    let query = Query {
        parent: None,
        filters: vec![Filter { field: "status".into(), test: pending }],
        sort: vec![SortKey::new("created_at", false)],
        words: Vec::new(),
        revealed: Vec::new(),
        page: Page::First,
        limit: COUNTED_RETRIES,
    };
    let deliveries = services.schema.own(Builtin::Delivery);
    let retries = services.store.list(scope, deliveries, &query).await?.records.len();
    let oldest = figures.oldest.map(|age| {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_sub(age)).to_iso()
    });
    Ok(json!({
        "pending": figures.waiting.saturating_add(u64::try_from(retries).unwrap_or(u64::MAX)),
        "oldest_pending_at": oldest,
        "delivered": figures.delivered,
        "failed": figures.failed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_by_status_is_a_number_or_a_class() {
        for good in ["200", "404", "499", "2xx", "5xx"] {
            assert!(is_status(good), "{good}");
        }
        for bad in
            ["", "xx", "1xx", "6xx", "40x", "44xx", "099", "600", "4XX", "-1", "+404", "0404"]
        {
            assert!(!is_status(bad), "{bad}");
        }
        assert!(has_status(404, "4xx") && has_status(404, "404") && !has_status(500, "4xx"));
    }
}
