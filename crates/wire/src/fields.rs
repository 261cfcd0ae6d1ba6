//! Rules for fields that hold in every protocol: lengths, fields that belong to one connection, and
//! trailers. No I/O.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::fault::{BodyFault, Fault};
use crate::payload::Payload;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

pub(crate) const TWO_LENGTHS: Fault =
    Fault::Malformed("A request must carry at most one Content-Length.");

/// Fields that frame, route, authorise or condition a request: too late behind the body (RFC 9110
/// 6.5.1). A condition that nobody reads would let the write happen that it was to prevent.
const FORBIDDEN: [&str; 27] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "restive-version",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a field is about one connection, and so has no place on a stream (RFC 9113 8.2.2,
/// RFC 9114 4.2) and in trailers.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION, TE].contains(name)
}

/// Removes the fields that are about one connection.
pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION, TE] {
        headers.remove(name);
    }
}

/// Whether a field may not come behind a body.
pub(crate) fn is_forbidden_trailer(name: &HeaderName) -> bool {
    FORBIDDEN.contains(&name.as_str())
}

/// Removes from trailers what may not come behind a body.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    let forbidden: Vec<HeaderName> =
        trailers.keys().filter(|name| is_forbidden_trailer(name)).cloned().collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

/// Whether the trailers of a stream are those of a request.
pub(crate) fn check_trailers(trailers: &HeaderMap) -> Result<(), BodyFault> {
    if trailers.keys().any(is_forbidden_trailer) {
        return Err(BodyFault::ForbiddenTrailer);
    }
    match trailers.values().all(is_trimmed) {
        true => Ok(()),
        false => Err(BodyFault::Malformed),
    }
}

/// RFC 9113 8.2.1, RFC 9114 4.2: a value does not begin or end with a space. HTTP/1.1 takes them
/// off; here they would make two values of one.
pub(crate) fn is_trimmed(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let bytes = value.as_bytes();
    !is_space(bytes.first()) && !is_space(bytes.last())
}

/// The value of `Content-Length`.
pub(crate) fn length(value: &[u8]) -> Result<u64, Fault> {
    decimal(value).ok_or(Fault::Malformed("The Content-Length header is not a number."))
}

/// The length that a head declares. The protocol compares it with the body; twice the same is still
/// one too many.
pub(crate) fn declared_length(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => length(value.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(TWO_LENGTHS),
    }
}

/// A number in plain digits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// What the head of a response says about its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// The response ends with its head. It must not say how long nothing is (RFC 9110 8.6).
    NoBody,
    /// What the service says, if it says something: the response to `HEAD`, or 304.
    AsSaid,
    Bytes(u64),
    Unknown,
}

/// The length of a response, by the same rules in every protocol.
pub(crate) fn response_length(
    status: StatusCode,
    headers: &HeaderMap,
    body: &Payload,
    is_head: bool,
) -> Length {
    if status == StatusCode::NOT_MODIFIED {
        return Length::AsSaid;
    }
    match body.length_bytes() {
        _ if has_no_body(status) => Length::NoBody,
        // A service that passes on a response knows only what its source said.
        Some(0) if is_head && headers.contains_key(CONTENT_LENGTH) => Length::AsSaid,
        Some(bytes) => Length::Bytes(bytes),
        None if is_head => Length::AsSaid,
        None => Length::Unknown,
    }
}

/// Whether a response with this status ends with its head.
pub(crate) fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}
