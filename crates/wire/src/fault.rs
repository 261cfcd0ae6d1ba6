//! Why wire itself turns a request away. The service gives each fault its body.

use http::StatusCode;

/// What is wrong with the bytes, or with the moment, so that no [`crate::Exchange`] came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are not a valid, unambiguous HTTP/1.x request; the text says what is wrong.
    Malformed(&'static str),
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
    /// The service panicked or returned what cannot be sent. Our fault, not the client's.
    Internal,
}

impl Fault {
    pub fn status(self) -> StatusCode {
        match self {
            Fault::Malformed(_) => StatusCode::BAD_REQUEST,
            Fault::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Fault::UrlTooLong => StatusCode::URI_TOO_LONG,
            Fault::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Fault::Tunnel => StatusCode::METHOD_NOT_ALLOWED,
            Fault::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// One sentence for the person who sent the request.
    pub fn message(self) -> &'static str {
        match self {
            Fault::Malformed(what) => what,
            Fault::HeadTimeout => "The request line and headers did not arrive in time.",
            Fault::UrlTooLong => "The URL is too long.",
            Fault::HeadTooLarge => "The request headers are too many or too large.",
            Fault::Tunnel => "CONNECT is not supported: this server opens no tunnels.",
            Fault::Overloaded => "The server is at its limit of concurrent work; retry later.",
            Fault::Internal => "The server failed to answer this request.",
        }
    }
}
