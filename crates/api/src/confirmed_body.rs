//! The body of a request, and its caller once the body is there: a body may arrive slowly, and the
//! key may have been revoked or its account deleted in the meantime. Every route with a key reads
//! its body here.

use crate::auth::Identity;
use crate::error::Failure;
use crate::services::Services;
use crate::trace::Trace;
use bytes::Bytes;
use model::problem::Problem;
use std::sync::Arc;
use wire::Exchange;

/// Reads the body, then checks that the caller may still make the request. The inner error is about
/// the body alone: a caller without the scope does not learn it.
pub async fn read(
    services: &Services,
    exchange: &mut Exchange,
    identity: &mut Arc<Identity>,
    trace: &mut Trace,
) -> Result<Result<Bytes, Problem>, Failure> {
    let body = services.bodies.read(exchange, identity, trace).await;
    services.admission.confirm(identity, &*services.outside, exchange, trace).await?;
    Ok(body)
}
