//! What the head of an answer says on HTTP/2 and HTTP/3: the same as on HTTP/1.1, without what
//! speaks of a connection. No I/O.

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::exchange::Response;
use crate::fault::Fault;
use crate::payload::Payload;
use crate::worker::Worker;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// An answer that cannot stand on the wire is the service's fault. There is no 101 beside HTTP/1.1:
/// who takes an upgrade over is answered 200, and no other answer to one may look like success.
pub(crate) fn sendable(mut response: Response, upgrade: bool) -> Result<Response, Fault> {
    let taken_over = matches!(response.body, Payload::TakeOver(_));
    let switching = response.status == StatusCode::SWITCHING_PROTOCOLS;
    if upgrade && taken_over && switching {
        response.status = StatusCode::OK;
    }
    if response.status.is_informational() {
        return Err(Fault::Internal);
    }
    if upgrade && !taken_over && response.status.is_success() {
        return Err(Fault::Tunnel);
    }
    Ok(response)
}

/// Completes the head. Says whether the answer ends with it.
pub(crate) fn complete(worker: &Worker, response: &mut Response, is_head: bool) -> bool {
    let Response { status, headers, body, .. } = response;
    strip(headers);
    set_length(*status, headers, body, is_head);
    if !headers.contains_key(DATE) {
        headers.insert(DATE, worker.date.borrow_mut().value());
    }
    let is_empty = matches!(body, Payload::Whole(bytes) if bytes.is_empty());
    is_head || has_no_body(*status) || is_empty
}

/// What speaks of a connection has no place on a stream (RFC 9113 8.2.2, RFC 9114 4.2).
pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION, TE] {
        headers.remove(name);
    }
}

fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The same word about the length as on HTTP/1.1.
fn set_length(status: StatusCode, headers: &mut HeaderMap, body: &Payload, is_head: bool) {
    if status == StatusCode::NOT_MODIFIED {
        return;
    }
    match body.length_bytes() {
        _ if has_no_body(status) => drop(headers.remove(CONTENT_LENGTH)),
        // Whoever passes on the answer of another knows only what that one said.
        Some(0) if is_head && headers.contains_key(CONTENT_LENGTH) => {}
        Some(bytes) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes))),
        None if is_head => {}
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
}
