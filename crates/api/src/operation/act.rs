//! Actions. One without a handler is a write like any other. One with a handler asks the operator's
//! service first, outside any transaction, and commits what it answered.

use super::owned::Owned;
use super::{Context, Failure, commit, handler, own};
use crate::actions::Stopped;
use crate::respond::Reply;
use crate::route::refuse_parameters;
use crate::{body, idempotency};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use model::decide::{self, Facts};
use model::problem::{Code, Problem};
use model::record::{Fields, Record};
use model::schema::{Action, Handler, Native};
use model::write::{Callout, Change, Write};
use serde_json::{Value, json};
use std::time::Instant;
use wire::OutgoingFault;

/// A handler answers with a change or an error, not with a book.
const MAX_ANSWER_BYTES: usize = 1 << 20;

pub async fn act(context: &Context<'_>, action: usize) -> Result<Reply, Failure> {
    refuse_parameters(context.query)?;
    let declared = &context.collection().actions[action];
    let sent = body::object(context.body, true)?;
    let mut params = context.version.params(context.target.collection, action, sent)?;
    own::complete_params(context, declared.native, &mut params);
    if context.target.parents.len() > 1 {
        context.check_parents().await?;
    }
    let mut write = context.write(Change::Act { action, params: params.clone(), callout: None })?;
    if declared.native == Some(Native::Ping) {
        return Box::pin(own::ping(context, write)).await;
    }
    if declared.handler.is_none() {
        return commit(context, write).await;
    }
    // The handler has effects of its own: repetitions wait until the first has ended.
    let turn = match context.idempotency {
        Some(idempotency) => {
            let scope = context.caller.scope;
            let turn = context.in_flight.keys.enter(scope, &idempotency.key).await?;
            // The request that held the key before may have answered it: then the commit replays.
            if context.store.remembered(scope, &idempotency.key).await?.is_some() {
                return commit(context, write).await;
            }
            Some(turn)
        }
        None => None,
    };
    // Requests for the same record take turns from here to the commit, so each is checked against
    // what the one before it has changed.
    let id = context.target.id.as_deref().unwrap_or_default();
    let (scope, collection) = (context.caller.scope, context.target.collection);
    let lock = context.in_flight.records.lock(scope, collection, id).await?;
    write.now = context.outside.now();
    let (record, refusal) = rehearse(context, &write).await?;
    // One account whose handler hangs must not take every place of the others.
    let place = match refusal {
        Some(_) => None,
        None => Some(context.in_flight.call(context.caller.scope)?),
    };
    // A client that leaves before this is done has caused nothing. From here on the action belongs
    // to no request: it ends even if the client leaves, and holds what keeps others out until then.
    let held = (turn, lock, place);
    let owned = Owned::of(context);
    let finished = context.actions.run(async move {
        let _held = held;
        finish(&owned.context(), write, (action, params), &record, refusal).await
    });
    finished.await.unwrap_or_else(|Stopped| Err(stopped().into()))
}

/// Asks the handler, unless a rule has refused the action, and commits what it answered.
async fn finish(
    context: &Context<'_>,
    mut write: Write,
    (action, params): (usize, Fields),
    record: &Record,
    refusal: Option<Problem>,
) -> Result<Reply, Failure> {
    let declared = &context.collection().actions[action];
    let callout = match (refusal, &declared.handler) {
        (None, Some(handler)) => ask(context, declared, handler, record, &params).await?,
        // Should the rule no longer hold when it is committed, it is refused all the same: the
        // handler was not asked.
        (Some(problem), _) => Callout::Refuse(problem),
        (None, None) => Callout::Change(Fields::new()),
    };
    write.change = Change::Act { action, params, callout: Some(callout) };
    write.now = context.outside.now();
    commit(context, write).await
}

/// Nobody is asked about an action that could not run anyway.
async fn rehearse(
    context: &Context<'_>,
    write: &Write,
) -> Result<(Record, Option<Problem>), Failure> {
    let target = context.target;
    let id = target.id.as_deref().unwrap_or_default();
    let found = context
        .store
        .record(context.caller.scope, target.collection, target.parent_id(), id)
        .await?;
    let Some(record) = found else {
        return Err(decide::not_found(context.collection(), id).into());
    };
    let facts = Facts {
        current: Some(&record),
        was_deleted: false,
        parent_exists: true,
        missing: &[],
        next_seq: 0,
        now: write.now,
    };
    let refusal = decide::rehearse(context.schema, write, &facts)
        .map_err(|problem| context.explain(problem))?;
    Ok((record, refusal))
}

/// One POST to the operator's URL.
async fn ask(
    context: &Context<'_>,
    action: &Action,
    handler: &Handler,
    record: &Record,
    params: &Fields,
) -> Result<Callout, Problem> {
    let key = context.idempotency.map(|idempotency| idempotency.key.as_str());
    let question = json!({
        "action": action.name,
        "collection": context.collection().name,
        "record": serde_json::from_str::<Value>(&record.body).unwrap_or_default(),
        "request": {
            "id": context.request_id,
            "idempotency_key": key,
            "params": params,
        },
        "account": context.caller.account,
        "livemode": context.caller.scope.livemode(),
    });
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, crate::respond::JSON);
    headers.insert(USER_AGENT, HeaderValue::from_static("restive"));
    // So that a repeated question can be recognised by the handler too.
    if let Ok(value) = HeaderValue::from_str(key.unwrap_or(context.request_id)) {
        headers.insert(HeaderName::from_static(idempotency::HEADER), value);
    }
    let body = Bytes::from(question.to_string());
    let call = (context.request_id, context.outside.now().seconds());
    handler::add_headers(&mut headers, handler, call, &body)?;
    let deadline = Instant::now() + handler.timeout;
    let answer =
        context.outgoing.post(&handler.url, headers, body, deadline, MAX_ANSWER_BYTES).await;
    match answer {
        Ok(reply) => handler::understand(reply.status, &reply.body),
        Err(fault) => {
            let (action, url) = (&action.name, &handler.url);
            tracing::warn!(action, url, %fault, "an action handler failed");
            Err(match fault {
                OutgoingFault::Timeout(_) => handler::failed(504, "did not answer in time"),
                _ => handler::failed(502, "could not be reached or broke off"),
            })
        }
    }
}

/// The server stops, and its time to drain was over before the handler answered.
fn stopped() -> Problem {
    let message = "The server stopped before the action's handler had answered: the handler may \
                   have acted, and nothing was written. Retry with the same Idempotency-Key.";
    Problem::new(Code::OutcomeUnknown, message)
}
