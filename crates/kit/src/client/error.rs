//! What can go wrong with a request: who caused it, and whether a repetition may help.

use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The cause of an error, of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Characters of a foreign response that an error repeats: enough to recognise a proxy's page.
const EXCERPT_CHARS: usize = 200;

#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The caller built the client or the request wrongly; nothing was sent.
    Invalid(String),
    /// No token: the callback of the caller failed.
    Token(BoxError),
    /// The connection failed. If `sent`, the server may have done the work.
    Network { source: BoxError, sent: bool },
    /// No complete response in time; the server may have done the work.
    Timeout(Duration),
    /// The response is larger than the client's limit.
    TooLarge { limit_bytes: usize },
    /// The response is not JSON: a proxy or another service answered.
    NotJson { status: u16, content_type: String, excerpt: String },
    /// The response is JSON of another form than documented.
    Unexpected(String),
    /// The server refused the request.
    Api(Box<ApiError>),
}

/// An error that the server returned.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ApiError {
    pub status: u16,
    /// The `type`, such as `invalid_request_error`; empty if the response was not a JSON error.
    pub kind: String,
    /// Stable, such as `validation_failed`; empty if the response was not a JSON error.
    pub code: String,
    pub message: String,
    pub param: Option<String>,
    pub request_id: Option<String>,
    /// All errors of a `validation_failed`.
    pub errors: Vec<FieldError>,
    pub retry_after: Option<Duration>,
    /// The whole `error` object, with members of single codes such as `current_state`.
    pub details: Value,
}

/// One field of the request that the server refused.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FieldError {
    pub code: String,
    pub field: String,
    pub message: String,
}

impl Error {
    /// The server's error, if it is one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Error::Api(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server returned this code.
    pub fn is_code(&self, code: &str) -> bool {
        self.api().is_some_and(|error| error.code == code)
    }

    pub(crate) fn network(sent: bool, source: impl Into<BoxError>) -> Error {
        Error::Network { source: source.into(), sent }
    }

    /// An error for a status that is not 2xx.
    pub(super) fn of_status(
        status: u16,
        headers: &http::HeaderMap,
        body: &[u8],
        retry_after: Option<Duration>,
    ) -> Error {
        let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let header = headers.get("request-id").and_then(|id| id.to_str().ok());
        let error = &parsed["error"];
        let errors = error["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        let foreign = || format!("not a JSON error: {}", excerpt(body));
        Error::Api(Box::new(ApiError {
            status,
            kind: text(&error["type"]).unwrap_or_default(),
            code: text(&error["code"]).unwrap_or_default(),
            message: text(&error["message"]).unwrap_or_else(foreign),
            param: text(&error["param"]).or_else(|| text(&error["field"])),
            request_id: text(&error["request_id"]).or(header.map(str::to_owned)),
            errors: errors.iter().map(FieldError::new).collect(),
            retry_after,
            details: error.clone(),
        }))
    }
}

impl FieldError {
    fn new(error: &Value) -> FieldError {
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        FieldError { code: text("code"), field: text("field"), message: text("message") }
    }
}

/// The beginning of a response, on one line and without control characters.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT_CHARS)]);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(EXCERPT_CHARS).collect()
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(why) => out.write_str(why),
            Error::Token(source) => write!(out, "no token: {source}"),
            Error::Network { source, sent: false } => write!(out, "cannot connect: {source}"),
            Error::Network { source, sent: true } => write!(out, "the connection broke: {source}"),
            Error::Timeout(limit) => write!(out, "no complete response within {limit:?}"),
            Error::TooLarge { limit_bytes } => {
                write!(out, "the response is larger than {limit_bytes} bytes")
            }
            Error::NotJson { status, content_type, excerpt } => {
                write!(out, "status {status} with `{content_type}` instead of JSON: {excerpt}")
            }
            Error::Unexpected(why) => write!(out, "the response has an unknown form: {why}"),
            Error::Api(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Token(source) | Error::Network { source, .. } => Some(&**source),
            Error::Api(error) => Some(&**error),
            _ => None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "status {}", self.status)?;
        if !self.code.is_empty() {
            write!(out, " {}", self.code)?;
        }
        write!(out, ": {}", self.message)?;
        match &self.request_id {
            Some(id) => write!(out, " ({id})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ApiError {}
