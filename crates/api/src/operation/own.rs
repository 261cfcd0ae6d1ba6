//! What the service's own collections need around a write: secrets come from outside, and whoever
//! pings an endpoint wants to know what came of it. The two sides meet only in the store: the ping
//! is an event, its delivery a row.

use super::Operation;
use crate::error::Failure;
use crate::respond::{self, Reply};
use http::StatusCode;
use model::query::{Filter, Page, Query, SortKey, Test};
use model::record::{Fields, Scalar};
use model::schema::{Builtin, Native};
use model::webhook::endpoint;
use model::write::{Committed, Response, Write};
use serde_json::{Value, json};
use std::time::Duration;

/// The longest an attempt may take, and some time to write it down.
const PING_WAIT: Duration = Duration::from_secs(35);

/// A new endpoint gets a secret unless it brings one.
pub fn complete(operation: Operation<'_>, fields: &mut Fields) {
    let given = fields.get("secret").is_some_and(|secret| !secret.is_null());
    if operation.collection().builtin == Some(Builtin::Endpoint) && !given {
        fields.insert("secret".into(), secret(operation));
    }
}

/// A rotation, too.
pub fn complete_params(operation: Operation<'_>, native: Option<Native>, params: &mut Fields) {
    let given = params.get("secret").is_some_and(|secret| !secret.is_null());
    if native == Some(Native::RotateSecret) && !given {
        params.insert("secret".into(), secret(operation));
    }
}

/// From randomness of its own: that of the write shows in its ids.
fn secret(operation: Operation<'_>) -> Value {
    let mut random = [0; 24];
    random.copy_from_slice(&operation.services.outside.entropy().0[..24]);
    Value::String(endpoint::make_secret(random))
}

/// Commits a ping, waits for its delivery and tells what came of it: the delivery with its attempt,
/// or the delivery alone if that takes too long.
pub async fn ping(operation: Operation<'_>, write: Write) -> Result<Reply, Failure> {
    // Heard from before the commit, so that no outcome falls between the two.
    let mut settled = operation.services.store.settled();
    let committed = operation.services.store.commit(write).await?;
    let (response, again) = match committed.map_err(|problem| operation.explain(problem))? {
        Committed::Fresh(response) => (response, false),
        Committed::Replayed { response, .. } => (response, true),
    };
    let seq = match response {
        Response::Updated(record) => record.version,
        _ => 0,
    };
    let scope = operation.request.caller().scope;
    let events = operation.services.store.events(Some(scope), seq - 1, 1).await?;
    let event = events.first().map(|event| event.id.clone()).unwrap_or_default();
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
    let told = match waited {
        Ok(told) => told?,
        Err(_) => None,
    };
    let body = told.unwrap_or_else(|| {
        let endpoint = operation.request.target.id.clone();
        json!({ "object": "delivery", "event": event, "endpoint": endpoint, "status": "pending" })
            .to_string()
    });
    let reply = respond::no_store(Reply::json(StatusCode::OK, body));
    Ok(if again { respond::replayed(reply) } else { reply })
}

/// The ping's delivery with its newest attempt, once there is one.
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
