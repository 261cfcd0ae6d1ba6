//! Repeated requests: a request with a known Idempotency-Key is answered from the store. Its quota
//! is given back: a client that lost a response can get it again for free.

use crate::auth::Identity;
use crate::convert;
use crate::error::{Failure, Shape};
use crate::idempotency;
use crate::operation;
use crate::respond::{self, Reply};
use crate::route::Target;
use crate::services::Services;
use http::Method;
use model::problem::Problem;
use model::schema::{Collection, Native};
use model::version::View;
use model::write::Idempotency;
use std::sync::Arc;
use wire::Exchange;

/// The idempotency key of a request, with the fingerprint of everything that identifies the
/// request.
pub(crate) fn key(
    exchange: &Exchange,
    collection: &Collection,
    body: &[u8],
    view: &View,
) -> Result<Option<Idempotency>, Problem> {
    let Some(key) = idempotency::key(&exchange.method, &exchange.headers)? else {
        let required = collection.require_idempotency_key && exchange.method == Method::POST;
        return if required { Err(idempotency::required()) } else { Ok(None) };
    };
    let parts = [
        exchange.method.as_str().as_bytes(),
        exchange.uri.path().as_bytes(),
        exchange.uri.query().unwrap_or_default().as_bytes(),
        body,
        view.date.as_bytes(),
    ];
    Ok(Some(idempotency::fingerprint(key, &parts)))
}

/// The stored response, if this is a repetition.
pub(crate) async fn find(
    services: &Services,
    key: &Idempotency,
    identity: &Identity,
    target: &Target,
    view: &Arc<View>,
    shape: Shape,
) -> Result<Option<Reply>, Failure> {
    let Some(before) = services.store.remembered(identity.caller.scope, &key.key).await? else {
        return Ok(None);
    };
    if before.fingerprint != key.fingerprint {
        return Err(idempotency::reused().into());
    }
    // The result of a ping is not stored with its key: the operation looks it up again.
    let collection = &services.schema.collections[target.collection];
    let action = target.action.and_then(|place| collection.actions.get(place));
    if action.is_some_and(|action| action.native == Some(Native::Ping)) {
        return Ok(None);
    }
    let tag = operation::plain_view(&view.schema, &*services.store, target.collection);
    let account = identity.caller.scope.account_number();
    let response = before.response;
    let response = convert::response(services, account, view, target.collection, response).await;
    let mut reply = respond::written(&view.schema, target, response, tag, shape, &before.request);
    // The client gets the original response, without fields that were added since.
    if let Some((date, text)) = before.as_written
        && collection.builtin.is_none()
        && services.versions.shows_as_written(target.collection, &date, view)
    {
        reply.body = text.into();
    }
    Ok(Some(respond::replayed(reply)))
}
