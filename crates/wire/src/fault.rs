//! Why wire itself refuses a request, for which the service makes the response, and why a body
//! cannot be read.

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

/// Why there is no [`crate::Exchange`]: invalid bytes, or an overloaded server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are not a valid, unambiguous HTTP/1.x request; the text says what is wrong.
    Malformed(&'static str),
    /// `Transfer-Encoding` names a coding that is not `chunked`.
    UnknownCoding,
    /// A request line of another version of HTTP than 1.x.
    UnknownVersion,
    /// The request head did not arrive in time.
    HeadTimeout,
    /// The request target is longer than `Limits::url_bytes`.
    UrlTooLong,
    /// The headers are more than `Limits::header_bytes` or `Limits::max_headers`.
    HeadTooLarge,
    /// `CONNECT`: no tunnels here. Wire adds an empty `Allow` unless the service names one.
    Tunnel,
    /// More connections or exchanges than the limits allow; a later retry helps.
    Overloaded,
    /// The same for a client of event streams. A browser's EventSource never reconnects after an
    /// error status: a service with such streams answers 200 with a time to reconnect.
    OverloadedStream,
    /// The service panicked or returned what cannot be sent. Our fault, not the client's.
    Internal,
}

impl Fault {
    /// That there is no room for a request with these headers.
    pub(crate) fn overloaded(headers: &HeaderMap) -> Fault {
        if wants_events(headers) { Fault::OverloadedStream } else { Fault::Overloaded }
    }

    pub fn status(self) -> StatusCode {
        match self {
            Fault::Malformed(_) => StatusCode::BAD_REQUEST,
            Fault::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Fault::UnknownVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Fault::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Fault::UrlTooLong => StatusCode::URI_TOO_LONG,
            Fault::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Fault::Tunnel => StatusCode::METHOD_NOT_ALLOWED,
            Fault::Overloaded | Fault::OverloadedStream => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// One sentence for the person who sent the request.
    pub fn message(self) -> &'static str {
        match self {
            Fault::Malformed(what) => what,
            Fault::UnknownCoding => "The only transfer coding that is known here is chunked.",
            Fault::UnknownVersion => {
                "Request lines are of HTTP/1.1 and HTTP/1.0 only; this one is of another version."
            }
            Fault::HeadTimeout => "The request line and headers did not arrive in time.",
            Fault::UrlTooLong => "The URL is too long.",
            Fault::HeadTooLarge => "The request headers are too many or too large.",
            Fault::Tunnel => "CONNECT is not supported: this server opens no tunnels.",
            Fault::Overloaded | Fault::OverloadedStream => {
                "The server is at its limit of concurrent work; retry later."
            }
            Fault::Internal => "The server failed to answer this request.",
        }
    }
}

/// Why a body could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// More bytes than the reader's limit, declared or sent.
    TooLarge,
    /// Too slow: `Limits::body_timeout` or `Limits::body_stall`.
    Timeout,
    /// The client went away in the middle.
    Incomplete,
    /// The chunked framing is broken, or the body is not as long as declared.
    Malformed,
    /// A field stands behind the body that frames, routes or authorises a request.
    ForbiddenTrailer,
    /// The budget it is charged to has no room for it.
    NoRoom,
}

/// Whether it is a client of event streams, and not only one that takes anything.
pub fn wants_events(headers: &HeaderMap) -> bool {
    accepted(headers).any(|range| range.eq_ignore_ascii_case("text/event-stream"))
}

/// The media ranges of `Accept`, without their parameters.
pub fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|text| text.split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim())
        .filter(|range| !range.is_empty())
}
