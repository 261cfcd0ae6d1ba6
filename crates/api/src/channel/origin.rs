//! Which pages may open channels: those of the service's own origin and those the schema names.

use crate::respond::Reply;
use crate::service::Outcome;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue};

/// Headers that a page may send and may read.
const SENT: HeaderValue =
    HeaderValue::from_static("authorization, last-event-id, restive-version, if-none-match");
const READ: HeaderValue =
    HeaderValue::from_static("x-stream-position, x-stream-gap, etag, request-id, retry-after");

/// The origin of the page, if it is one that the schema names.
pub fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let text = origin.to_str().ok()?;
    let named = origins.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(text));
    named.then(|| origin.clone())
}

/// Whether a WebSocket may be opened: by no page at all, by one of our own, or by one that is
/// named.
pub fn may_connect(origins: &[String], headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let own = || {
        let host = headers.get(HOST)?.to_str().ok()?;
        let (_, authority) = origin.to_str().ok()?.split_once("://")?;
        Some(authority.eq_ignore_ascii_case(host))
    };
    own() == Some(true) || allowed(origins, headers).is_some()
}

/// The answer to a browser that asks before it asks.
pub fn preflight(mut reply: Reply, methods: &[&str], allowed: Option<HeaderValue>) -> Reply {
    let Some(origin) = allowed else { return reply };
    reply.headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    reply.headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, SENT);
    reply.headers.append(VARY, HeaderValue::from_static("Origin"));
    reply.header(ACCESS_CONTROL_ALLOW_METHODS, methods.join(", "))
}

/// Lets the page read the answer.
pub fn share(outcome: Outcome, allowed: Option<HeaderValue>) -> Outcome {
    let Some(origin) = allowed else { return outcome };
    match outcome {
        Outcome::Reply(mut reply) => {
            mark(&mut reply.headers, origin);
            Outcome::Reply(reply)
        }
        Outcome::Open(mut response) => {
            mark(&mut response.headers, origin);
            Outcome::Open(response)
        }
        Outcome::Wait(waiting) => Outcome::Wait(Box::pin(async move {
            let mut reply = waiting.await?;
            mark(&mut reply.headers, origin);
            Ok(reply)
        })),
    }
}

fn mark(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READ);
    headers.append(VARY, HeaderValue::from_static("Origin"));
}
