//! The responses that the proxy makes itself when a request fails, in the error format of the API.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;
use wire::outgoing::{OutgoingFault, Stage};
use wire::{BodyFault, Fault, Response};

/// Why the proxy itself answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) retry_after_seconds: Option<u32>,
    /// More about it, in the words of a backend.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> Failure {
        let (message, headers) = (message.into(), Vec::new());
        Failure { status, code, message, retry_after_seconds: None, headers }
    }

    pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Failure {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// No server of the backend can be reached.
    pub(crate) fn unavailable() -> Failure {
        let message = "No server is available for this request. Try again shortly.";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "backend_unavailable", message).retry_after(1)
    }

    /// The response to a request that a backend did not answer.
    pub(crate) fn outgoing(fault: &OutgoingFault) -> Failure {
        let bad = |message: &str| Failure::new(StatusCode::BAD_GATEWAY, "bad_gateway", message);
        match fault {
            OutgoingFault::RequestBody(fault) => Failure::body(*fault),
            OutgoingFault::QueueFull | OutgoingFault::Timeout(Stage::Queue) => Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "Too many requests wait for the servers. Try again shortly.",
            )
            .retry_after(1),
            OutgoingFault::Timeout(stage) => Failure::timeout(*stage),
            OutgoingFault::Connect(_) | OutgoingFault::Resolve(_) => Failure::unavailable(),
            OutgoingFault::Tls(_) => bad("The server's certificate or TLS handshake is not valid."),
            OutgoingFault::TooLarge => bad("The head of the server's response is too large."),
            OutgoingFault::Reset(_) => bad("The server closed the connection without a response."),
            OutgoingFault::Protocol(_) => bad("The server's response is not valid HTTP."),
            OutgoingFault::Url(_) | OutgoingFault::Forbidden(_) => Failure::unavailable(),
        }
    }

    fn timeout(stage: Stage) -> Failure {
        let message = match stage {
            Stage::Resolve | Stage::Queue | Stage::Connect | Stage::Tls => {
                "The server did not accept a connection in time."
            }
            Stage::Send => "The server did not accept the request in time.",
            Stage::Head | Stage::Body => "The server did not respond in time.",
        };
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "gateway_timeout", message)
    }

    /// The response to a request whose body cannot be read.
    pub(crate) fn body(fault: BodyFault) -> Failure {
        let (status, code, message) = match fault {
            BodyFault::TooLarge => return Failure::body_too_large(),
            BodyFault::Timeout => (
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "The request body did not arrive in time.",
            ),
            BodyFault::NoRoom => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "Too many request bodies are in flight. Try again shortly.",
            ),
            BodyFault::Incomplete => {
                (StatusCode::BAD_REQUEST, "body_incomplete", "The request body is incomplete.")
            }
            BodyFault::Malformed | BodyFault::ForbiddenTrailer => {
                (StatusCode::BAD_REQUEST, "malformed_request", "The request body is not valid.")
            }
        };
        Failure::new(status, code, message)
    }

    pub(crate) fn body_too_large() -> Failure {
        let message = "The request body is larger than this route allows.";
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }

    /// The response to bytes that are no request.
    pub(crate) fn wire(fault: Fault) -> Failure {
        let code = match fault {
            Fault::Malformed(_) => "malformed_request",
            Fault::UnknownCoding => "not_implemented",
            Fault::UnknownVersion => "http_version_not_supported",
            Fault::HeadTimeout => "request_timeout",
            Fault::UrlTooLong => "url_too_long",
            Fault::HeadTooLarge => "headers_too_large",
            Fault::Tunnel => "method_not_allowed",
            Fault::Overloaded | Fault::OverloadedStream => "overloaded",
            Fault::Internal => "internal",
        };
        let failure = Failure::new(fault.status(), code, fault.message());
        match fault.status() {
            StatusCode::SERVICE_UNAVAILABLE => failure.retry_after(1),
            _ => failure,
        }
    }

    pub(crate) fn response(&self, request_id: &str) -> Response {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        };
        let body = json!({ "error": {
            "type": kind,
            "code": self.code,
            "message": self.message,
            "param": (self.status == StatusCode::UNAUTHORIZED).then_some("Authorization"),
            "doc_url": format!("/errors#{}", self.code),
            "request_id": request_id,
            "errors": [],
        }});
        let mut response = Response::new(self.status, body.to_string());
        let headers = &mut response.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        headers.extend(self.headers.iter().cloned());
        response
    }
}
