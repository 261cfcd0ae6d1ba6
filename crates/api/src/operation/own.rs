//! Additions to writes of the built-in collections: secrets from the entropy source, the check that
//! a key may read the events that it has sent to an endpoint, and the result of an endpoint ping.
//! Ping and delivery meet only in the store: the ping is an event, its delivery a row.

use super::Operation;
use crate::error::Failure;
use crate::respond::{self, Reply};
use http::StatusCode;
use model::caller::Access;
use model::outgoing;
use model::problem::{Code, Problem};
use model::query::{Filter, Page, Query, SortKey, Test};
use model::record::{Fields, Scalar};
use model::schema::{Builtin, Collection, EventNames, Native};
use model::webhook::pattern;
use model::write::{Committed, Precondition, Response, Write};
use serde_json::{Value, json};
use std::time::Duration;

/// The timeout of an attempt, plus time to store its result.
const PING_WAIT: Duration = Duration::from_secs(35);

/// Fields that decide which events go where.
const DIRECTING: [&str; 4] = ["url", "enabled_events", "filter", "payload"];
const STATUS: &str = "status";
const DISABLED: &str = "disabled";
/// The action that has events sent to an endpoint again.
const ENABLE: &str = "enable";
const ENABLED: &str = "enabled_events";
/// The scope that lets a key read all events.
const EVENTS: &str = "events";

/// Refuses a restricted key that would have events sent to an endpoint which it may not read: the
/// receiver reads them in its place. Returns the version of the endpoint that it has checked: the
/// write must not change a newer one, which may send more.
pub async fn check_readable(
    operation: Operation<'_>,
    sent: &Fields,
) -> Result<Option<i64>, Failure> {
    if operation.request.caller().may(EVENTS, Access::Read) {
        return Ok(None);
    }
    let id = operation.request.target.id.as_deref();
    let enables = sent.get(STATUS).is_some_and(|status| status != DISABLED);
    let directs = enables || DIRECTING.iter().any(|name| sent.contains_key(*name));
    let (param, endpoint) = match operation.collection().builtin {
        Some(Builtin::Endpoint) if id.is_none() || directs => (ENABLED, id),
        Some(Builtin::Replay) => ("types", sent.get("endpoint").and_then(Value::as_str)),
        _ => return Ok(None),
    };
    let stored = match endpoint {
        None => None,
        Some(endpoint) => {
            let scope = operation.request.caller().scope;
            let place = operation.services.schema.own(Builtin::Endpoint);
            match operation.services.store.record(scope, place, None, endpoint).await? {
                Some(stored) => Some((stored.version, stored.fields())),
                // Where there is no such endpoint, the write itself is refused.
                None => return Ok(None),
            }
        }
    };
    let version = stored.as_ref().map(|(version, _)| *version).filter(|_| id.is_some());
    let stored = |name: &str| stored.as_ref().and_then(|(_, fields)| fields.get(name));
    if param == ENABLED
        && id.is_some()
        && sent.get("url").is_some_and(|url| stored("url") != Some(url))
    {
        return Err(moved().into());
    }
    let mut patterns = sent.get(param).filter(|value| !value.is_null());
    // Null resets the types of an endpoint to all.
    if patterns.is_none() && (param == "types" || !sent.contains_key(param)) {
        patterns = stored(ENABLED);
    }
    // What is not understood counts as all types.
    let all = json!(["*"]);
    let patterns = patterns.filter(|value| value.is_array()).unwrap_or(&all);
    let patterns = patterns.as_array().into_iter().flatten().filter_map(Value::as_str);
    match patterns.filter_map(|pattern| unreadable(operation, pattern)).next() {
        None => Ok(version),
        Some(message) => Err(Problem::new(Code::PermissionDenied, message).param(param).into()),
    }
}

/// The same for an action, which may have events sent to an endpoint again.
pub async fn check_action(operation: Operation<'_>, action: &str) -> Result<Option<i64>, Failure> {
    if operation.collection().builtin != Some(Builtin::Endpoint) || action != ENABLE {
        return Ok(None);
    }
    let sent = Fields::from_iter([(STATUS.to_owned(), json!("enabled"))]);
    check_readable(operation, &sent).await
}

/// The write, on the version that was checked only.
pub fn on_version(mut write: Write, version: Option<i64>) -> Write {
    if let Some(version) = version {
        let asked = std::mem::take(&mut write.precondition);
        let checked = Precondition::Versions(vec![version]);
        write.precondition = match asked {
            Precondition::None => checked,
            asked => Precondition::All(vec![asked, checked]),
        };
    }
    write
}

/// The refusal to send elsewhere what waits for an endpoint: retries, replays and loaded events,
/// also of types that the endpoint no longer enables.
fn moved() -> Problem {
    let message = format!(
        "A key that changes the `url` of an endpoint needs the scope `{EVENTS}:read`: deliveries \
         that wait go to the new address."
    );
    Problem::new(Code::PermissionDenied, message).param("url")
}

/// Why the key may not have the events of a pattern sent; none if it may read them all. The
/// pattern can mean types of any version.
fn unreadable(operation: Operation<'_>, pattern: &str) -> Option<String> {
    let Operation { services, request } = operation;
    let object = pattern.split('.').next().unwrap_or_default();
    let means = |collection: &Collection| {
        let EventNames { created, updated, deleted } = &collection.events;
        let usual = [created, updated, deleted].map(String::as_str);
        let mut kinds = pattern::kinds(collection).into_iter().chain(usual);
        collection.object == object || kinds.any(|kind| pattern::matches(pattern, kind))
    };
    let places: Vec<usize> = services
        .versions
        .iter()
        .flat_map(|view| view.schema.collections.iter().enumerate())
        .filter_map(|(place, collection)| means(collection).then_some(place))
        .collect();
    let published = services.schema.events.published.iter();
    let is_published = published.clone().any(|kind| pattern::matches(pattern, &kind.name));
    let shown: String = pattern.chars().take(100).collect();
    // `*` also means collections that do not exist yet, and published events are of none.
    if pattern == "*" || is_published || places.is_empty() {
        return Some(format!(
            "A key that has events of the type `{shown}` sent needs the scope `{EVENTS}:read`."
        ));
    }
    let names = places.iter().map(|place| &services.schema.collections[*place].name);
    let lacking = names.into_iter().find(|name| !request.caller().may(name, Access::Read))?;
    Some(format!(
        "A key that has events of the type `{shown}` sent needs the scope `{lacking}:read`, or \
         `{EVENTS}:read`."
    ))
}

/// Adds a secret to a new endpoint that brings none.
pub fn complete(operation: Operation<'_>, fields: &mut Fields) {
    let given = fields.get("secret").is_some_and(|secret| !secret.is_null());
    if operation.collection().builtin == Some(Builtin::Endpoint) && !given {
        fields.insert("secret".into(), secret(operation));
    }
}

/// Adds a new secret to a rotation that brings none.
pub fn complete_params(operation: Operation<'_>, native: Option<Native>, params: &mut Fields) {
    let given = params.get("secret").is_some_and(|secret| !secret.is_null());
    if native == Some(Native::RotateSecret) && !given {
        params.insert("secret".into(), secret(operation));
    }
}

/// Uses separate randomness: the randomness of the write shows in its ids.
fn secret(operation: Operation<'_>) -> Value {
    let mut random = [0; 24];
    random.copy_from_slice(&operation.services.outside.entropy().0[..24]);
    Value::String(outgoing::make_secret(random))
}

/// Commits a ping, waits for its delivery and returns it with its attempt, or the pending delivery
/// if that takes too long.
pub async fn ping(operation: Operation<'_>, write: Write) -> Result<Reply, Failure> {
    // Subscribed before the commit, so that no result is missed.
    let mut settled = operation.services.store.settled();
    let committed = operation.services.store.commit(write).await?;
    let (response, replayed) = match committed.map_err(|problem| operation.explain(problem))? {
        Committed::Fresh(response) | Committed::Unchanged(response) => (response, false),
        Committed::Replayed { response, .. } => (response, true),
    };
    let seq = match response {
        Response::Updated(record) => record.version,
        _ => 0,
    };
    let scope = operation.request.caller().scope;
    let events = operation.services.store.events(Some(scope), seq - 1, 1).await?;
    let event = events.into_iter().find(|event| event.seq == seq);
    let event = event.map(|event| event.id).unwrap_or_default();
    let outcome = async {
        loop {
            settled.borrow_and_update();
            if let Some(delivery) = delivery(operation, &event).await? {
                return Ok::<_, Failure>(Some(delivery));
            }
            if settled.changed().await.is_err() {
                return Ok(None);
            }
        }
    };
    let waited = tokio::time::timeout(PING_WAIT, outcome).await;
    let delivery_text = match waited {
        Ok(delivery_text) => delivery_text?,
        Err(_) => None,
    };
    let body = delivery_text.unwrap_or_else(|| {
        let endpoint = operation.request.target.id.clone();
        json!({ "object": "delivery", "event": event, "endpoint": endpoint, "status": "pending" })
            .to_string()
    });
    let reply = respond::no_store(Reply::json(StatusCode::OK, body));
    Ok(if replayed { respond::replayed(reply) } else { reply })
}

/// The ping's delivery with its newest attempt, once the delivery exists.
async fn delivery(operation: Operation<'_>, event: &str) -> Result<Option<String>, Failure> {
    let deliveries = operation.services.schema.own(Builtin::Delivery);
    let query = newest(vec![Filter {
        field: "event".into(),
        test: Test::AnyOf(vec![Scalar::Text(event.to_owned())]),
    }]);
    let scope = operation.request.caller().scope;
    let found = operation.services.store.list(scope, deliveries, &query).await?;
    let Some(delivery) = found.records.into_iter().next() else { return Ok(None) };
    let attempts = operation.services.schema.own(Builtin::Attempt);
    let query = Query { parent: Some(delivery.id.clone()), ..newest(Vec::new()) };
    let mut text = delivery.body;
    if let Some(attempt) =
        operation.services.store.texts(scope, attempts, &query).await?.records.first()
    {
        text.pop();
        text.push_str(",\"attempt\":");
        text.push_str(attempt);
        text.push('}');
    }
    Ok(Some(text))
}

fn newest(filters: Vec<Filter>) -> Query {
    Query {
        parent: None,
        filters,
        sort: vec![SortKey::new("created_at", true)],
        words: Vec::new(),
        revealed: Vec::new(),
        page: Page::First,
        limit: 1,
    }
}
