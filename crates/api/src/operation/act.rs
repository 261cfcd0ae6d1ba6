//! Actions. One without a handler is a write like any other. One with a handler asks the operator's
//! service first, outside any transaction, and commits what it answered.

use super::{Operation, commit, handler, own};
use crate::actions::Stopped;
use crate::error::Failure;
use crate::hold::{Held, hold};
use crate::idempotency::KeyGuard;
use crate::in_flight::{MAX_LOCK_WAIT, in_progress};
use crate::respond::Reply;
use crate::route::refuse_parameters;
use crate::{body, convert, idempotency};
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

pub async fn act(operation: Operation<'_>, action: usize) -> Result<Reply, Failure> {
    refuse_parameters(operation.request.query())?;
    let declared = &operation.collection().actions[action];
    let sent = body::object(&operation.request.body, true)?;
    let (view, collection) = (&operation.request.version, operation.request.target.collection);
    let place = (collection, action, operation.request.body.len());
    let mut params =
        convert::params(operation.services, operation.account(), view, place, sent).await?;
    own::complete_params(operation, declared.native, &mut params);
    if operation.request.target.parents.len() > 1 {
        operation.check_parents().await?;
    }
    let version = own::check_action(operation, &declared.name).await?;
    let write = operation.write(Change::Act { action, params: params.clone(), callout: None })?;
    let mut write = own::on_version(write, version);
    if declared.native == Some(Native::Ping) {
        return Box::pin(own::ping(operation, write)).await;
    }
    if declared.handler.is_none() {
        return commit(operation, write).await;
    }
    // The handler has effects of its own: repetitions wait until the first has ended.
    let turn = match &operation.request.idempotency {
        Some(idempotency) => match enter(operation, &idempotency.key).await? {
            Some(turn) => Some(turn),
            None => return commit(operation, write).await,
        },
        None => None,
    };
    // Requests for the same record take turns from here to the commit, so each is checked against
    // what the one before it has changed.
    let id = operation.request.target.id.as_deref().unwrap_or_default();
    let (scope, collection) =
        (operation.request.caller().scope, operation.request.target.collection);
    let lock = operation.services.admission.in_flight.records.lock(scope, collection, id).await?;
    let named = operation.collection().name.as_bytes();
    let name = [b"record", &scope.0.to_be_bytes()[..], named, id.as_bytes()];
    let cluster = &operation.services.handlers.cluster;
    let others = hold(cluster, &name, MAX_LOCK_WAIT, in_progress).await?;
    write.now = operation.services.outside.now();
    let (record, refusal) = rehearse(operation, &write).await?;
    // One account whose handler hangs must not take every place of the others.
    let place = match refusal {
        Some(_) => None,
        None => {
            Some(operation.services.admission.in_flight.call(operation.request.caller().scope)?)
        }
    };
    // A client that leaves before this is done has caused nothing. From here on the action belongs
    // to no request: it ends even if the client leaves, and holds what keeps others out until then.
    let held = (turn, lock, others, place);
    let (services, request) = (operation.services.clone(), operation.request.detached());
    let finished = operation.services.handlers.actions.run(async move {
        let (turn, _lock, others, _place) = held;
        let key = turn.as_ref().and_then(|(_, held)| held.as_ref());
        let operation = Operation { services: &services, request: &request };
        if refusal.is_none() && operation.collection().actions[action].handler.is_some() {
            // What the handler does would stay, and nothing would be written about it.
            services.store.fresh().await?;
            services.store.check_fit()?;
        }
        // A node that was paused, or that had to wait for the database, may have lost them: another
        // one may ask the handler by now. Nothing is waited for between this and the question.
        if key.into_iter().chain(&others).any(|hold| !hold.is_valid()) {
            return Err(in_progress().into());
        }
        finish(operation, write, (action, params), &record, refusal).await
    });
    finished.await.unwrap_or_else(|Stopped| Err(stopped().into()))
}

/// Holds an idempotency key, here and for all nodes. `None`: the request that held it before has
/// answered it, and a commit replays that.
async fn enter(operation: Operation<'_>, key: &str) -> Result<Option<(KeyGuard, Held)>, Failure> {
    let (services, scope) = (operation.services, operation.request.caller().scope);
    let turn = services.admission.in_flight.keys.enter(scope, key).await?;
    let name = [b"key", &scope.0.to_be_bytes()[..], key.as_bytes()];
    let cluster = &services.handlers.cluster;
    let held = hold(cluster, &name, idempotency::WAIT, idempotency::in_use).await?;
    let before = services.store.remembered(scope, key).await?;
    Ok(before.is_none().then_some((turn, held)))
}

/// Asks the handler, unless a rule has refused the action, and commits what it answered.
async fn finish(
    operation: Operation<'_>,
    mut write: Write,
    (action, params): (usize, Fields),
    record: &Record,
    refusal: Option<Problem>,
) -> Result<Reply, Failure> {
    let declared = &operation.collection().actions[action];
    let callout = match (refusal, &declared.handler) {
        (None, Some(handler)) => ask(operation, declared, handler, record, &params).await?,
        // Should the rule no longer hold when it is committed, it is refused all the same: the
        // handler was not asked.
        (Some(problem), _) => Callout::Refuse(problem),
        (None, None) => Callout::Change(Fields::new()),
    };
    write.change = Change::Act { action, params, callout: Some(callout) };
    write.now = operation.services.outside.now();
    commit(operation, write).await
}

/// Nobody is asked about an action that could not run anyway.
async fn rehearse(
    operation: Operation<'_>,
    write: &Write,
) -> Result<(Record, Option<Problem>), Failure> {
    let target = &operation.request.target;
    let id = target.id.as_deref().unwrap_or_default();
    let found = operation
        .services
        .store
        .record(operation.request.caller().scope, target.collection, target.parent_id(), id)
        .await?;
    let Some(record) = found else {
        return Err(decide::not_found(operation.collection(), id).into());
    };
    let facts = Facts {
        current: Some(&record),
        was_deleted: false,
        parent_exists: true,
        missing: &[],
        next_seq: 0,
        now: write.now,
    };
    let refusal = decide::rehearse(&operation.services.schema, write, &facts)
        .map_err(|problem| operation.explain(problem))?;
    Ok((record, refusal))
}

/// One POST to the operator's URL.
async fn ask(
    operation: Operation<'_>,
    action: &Action,
    handler: &Handler,
    record: &Record,
    params: &Fields,
) -> Result<Callout, Problem> {
    let key = operation.request.idempotency.as_ref().map(|idempotency| idempotency.key.as_str());
    let question = json!({
        "action": action.name,
        "collection": operation.collection().name,
        "record": serde_json::from_str::<Value>(&record.body).unwrap_or_default(),
        "request": {
            "id": &*operation.request.id,
            "idempotency_key": key,
            "params": params,
        },
        "account": operation.request.caller().account,
        "livemode": operation.request.caller().scope.livemode(),
    });
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, crate::respond::JSON);
    headers.insert(USER_AGENT, HeaderValue::from_static("restive"));
    // So that a repeated question can be recognised by the handler too.
    if let Ok(value) = HeaderValue::from_str(key.unwrap_or(&*operation.request.id)) {
        headers.insert(HeaderName::from_static(idempotency::HEADER), value);
    }
    let body = Bytes::from(question.to_string());
    let call = (&*operation.request.id, operation.services.outside.now().seconds());
    handler::add_headers(&mut headers, handler, call, &body)?;
    let deadline = Instant::now() + handler.timeout;
    let answer = operation
        .services
        .handlers
        .client
        .post(&handler.url, headers, body, deadline, MAX_ANSWER_BYTES)
        .await;
    match answer {
        Ok(reply) => handler::understand(&reply),
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
