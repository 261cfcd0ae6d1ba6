//! From a `Problem` to status and body: the only place that knows the format of errors. One
//! catalogue has three formats: structured (default), flat (by schema setting) and problem+json (by
//! Accept).

use http::StatusCode;
use model::problem::{Code, Problem, Violation};
use model::schema::ErrorShape;
use serde_json::{Map, Value, json};

/// Page that documents the error codes; the code is the fragment.
pub const DOCUMENTATION: &str = "/errors";

/// Why a request failed.
pub enum Failure {
    Problem(Problem),
    Store(store::Error),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Problem(problem)
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        Failure::Store(error)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Structured,
    Flat,
    /// RFC 9457.
    ProblemJson,
}

impl From<ErrorShape> for Shape {
    fn from(shape: ErrorShape) -> Shape {
        match shape {
            ErrorShape::Structured => Shape::Structured,
            ErrorShape::Flat => Shape::Flat,
        }
    }
}

/// The problem that the client sees. The cause is logged here, once.
pub fn explain(failure: Failure, request_id: &str) -> Problem {
    let error = match failure {
        Failure::Problem(problem) => {
            if let Some(cause) = &problem.cause {
                let code = problem.code.name();
                tracing::error!(
                    request_id,
                    code,
                    cause,
                    "a request failed because of the schema or a handler"
                );
            }
            return problem;
        }
        Failure::Store(error) => error,
    };
    static REPEATS: store::Repeats = store::Repeats::new();
    if let Some(times) = REPEATS.note(&error.to_string()) {
        tracing::warn!(request_id, %error, times, "a request failed because of the store");
    }
    match error {
        store::Error::Full => {
            let message = "The disk is full; nothing was written. Reads still work.";
            Problem::new(Code::StorageFull, message).retry_after(10)
        }
        store::Error::Busy => {
            let message = "Too many requests are waiting for the store. Try again shortly.";
            Problem::new(Code::Overloaded, message).retry_after(1)
        }
        store::Error::Unavailable(_) => {
            let message = "The database cannot be reached; nothing was written. Try again shortly.";
            Problem::new(Code::Overloaded, message).retry_after(2)
        }
        store::Error::Outdated => {
            let message = "Another server has brought the database to a newer schema file, and \
                           this one must be started with it; nothing was written.";
            Problem::new(Code::Overloaded, message).retry_after(10)
        }
        store::Error::Timeout => {
            let message = "The query took too long. Filter or sort by indexed fields.";
            Problem::new(Code::QueryTimeout, message).retry_after(10)
        }
        store::Error::Unknown(_) => {
            let message = "The disk failed during the commit: the write may or may not be \
                           stored. Retry with the same Idempotency-Key, or read the record.";
            Problem::new(Code::OutcomeUnknown, message)
        }
        _ => Problem::new(Code::StorageFailed, "The store failed; nothing was written."),
    }
}

/// Status and type of each code. Field codes appear inside a `validation_failed`.
pub fn classify(code: Code) -> (StatusCode, &'static str) {
    use Code::*;
    const REQUEST: &str = "invalid_request_error";
    match code {
        MalformedRequest
        | MalformedJson
        | DuplicateKey
        | TooDeep
        | BodyNotObject
        | BodyIncomplete
        | InvalidHeader
        | UnknownParameter
        | InvalidParameter
        | CursorInvalid
        | UnknownVersion
        | IdempotencyKeyRequired => (StatusCode::BAD_REQUEST, REQUEST),
        AuthenticationRequired | InvalidApiKey => {
            (StatusCode::UNAUTHORIZED, "authentication_error")
        }
        PermissionDenied => (StatusCode::FORBIDDEN, "permission_error"),
        RouteNotFound | NotFound => (StatusCode::NOT_FOUND, REQUEST),
        MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, REQUEST),
        NotImplemented => (StatusCode::NOT_IMPLEMENTED, REQUEST),
        HttpVersionNotSupported => (StatusCode::HTTP_VERSION_NOT_SUPPORTED, REQUEST),
        NotAcceptable => (StatusCode::NOT_ACCEPTABLE, REQUEST),
        RequestTimeout => (StatusCode::REQUEST_TIMEOUT, REQUEST),
        InvalidState | TooManyChildren | StillReferenced | TooManyRecords | ActionInProgress
        | OwnAccess | AccountInUse => (StatusCode::CONFLICT, REQUEST),
        IdempotencyKeyInUse => (StatusCode::CONFLICT, "idempotency_error"),
        CursorExpired => (StatusCode::GONE, REQUEST),
        PreconditionFailed => (StatusCode::PRECONDITION_FAILED, REQUEST),
        BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, REQUEST),
        UrlTooLong => (StatusCode::URI_TOO_LONG, REQUEST),
        UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, REQUEST),
        ValidationFailed | GuardFailed | Required | UnknownField | WrongType | TooShort
        | TooLong | TooSmall | TooLarge | PatternMismatch | NotInEnum | NotUnique
        | BadReference | ReadOnly | InvalidCharacters | InvalidFormat | Unsuitable => {
            (StatusCode::UNPROCESSABLE_ENTITY, REQUEST)
        }
        IdempotencyKeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_error"),
        PreconditionRequired => (StatusCode::PRECONDITION_REQUIRED, REQUEST),
        UpgradeRequired => (StatusCode::UPGRADE_REQUIRED, REQUEST),
        RateLimited | TooManyConnections => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
        HeadersTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, REQUEST),
        Internal | RuleFailed | StorageFailed | OutcomeUnknown => {
            (StatusCode::INTERNAL_SERVER_ERROR, "api_error")
        }
        ActionHandlerFailed | HandlerInvalid => (StatusCode::BAD_GATEWAY, "api_error"),
        StorageFull | Overloaded | QueryTimeout => (StatusCode::SERVICE_UNAVAILABLE, "api_error"),
    }
}

/// The status of a problem. A rule of the schema may declare its own status.
pub fn status(problem: &Problem) -> StatusCode {
    let declared = problem.declared.as_ref().and_then(|d| StatusCode::from_u16(d.status).ok());
    declared.unwrap_or_else(|| classify(problem.code).0)
}

/// Content type and JSON text of the body.
pub fn body(problem: &Problem, shape: Shape, request_id: &str) -> (&'static str, String) {
    match shape {
        Shape::Structured => ("application/json", structured(problem, request_id)),
        Shape::Flat => ("application/json", flat(problem, request_id)),
        Shape::ProblemJson => ("application/problem+json", problem_json(problem, request_id)),
    }
}

pub fn code_name(problem: &Problem) -> &str {
    problem.declared.as_ref().map_or(problem.code.name(), |declared| &declared.code)
}

fn documentation(problem: &Problem) -> String {
    format!("{DOCUMENTATION}#{}", code_name(problem))
}

fn structured(problem: &Problem, request_id: &str) -> String {
    let kind = match &problem.declared {
        Some(declared) => declared.kind.as_str(),
        None => classify(problem.code).1,
    };
    let mut error = Map::new();
    error.extend(problem.extra.clone());
    error.insert("type".into(), kind.into());
    error.insert("code".into(), code_name(problem).into());
    error.insert("message".into(), problem.message.clone().into());
    error.insert("param".into(), problem.param.clone().into());
    if let Some(value) = &problem.value {
        error.insert("value".into(), value.clone());
    }
    error.insert("doc_url".into(), documentation(problem).into());
    error.insert("request_id".into(), request_id.into());
    let errors: Vec<Value> = problem.violations.iter().map(violation).collect();
    error.insert("errors".into(), errors.into());
    json!({ "error": error }).to_string()
}

fn violation(violation: &Violation) -> Value {
    let mut entry = Map::new();
    entry.insert("field".into(), violation.field.clone().into());
    entry.insert("pointer".into(), pointer(&violation.field).into());
    entry.insert("code".into(), violation.code.name().into());
    entry.insert("message".into(), violation.message.clone().into());
    if let Some(value) = &violation.value {
        entry.insert("value".into(), value.clone());
    }
    Value::Object(entry)
}

/// The JSON pointer (RFC 6901) of a dotted path.
fn pointer(field: &str) -> String {
    let escaped = field.replace('~', "~0").replace('/', "~1");
    format!("/{}", escaped.replace('.', "/"))
}

fn flat(problem: &Problem, request_id: &str) -> String {
    let errors: Vec<Value> = problem
        .violations
        .iter()
        .map(|violation| {
            json!({
                "field": violation.field,
                "code": violation.code.name(),
                "message": violation.message,
            })
        })
        .collect();
    let mut body = problem.extra.clone();
    body.insert("message".into(), problem.message.clone().into());
    body.insert("code".into(), code_name(problem).into());
    body.insert("documentation_url".into(), documentation(problem).into());
    body.insert("request_id".into(), request_id.into());
    body.insert("errors".into(), errors.into());
    Value::Object(body).to_string()
}

fn problem_json(problem: &Problem, request_id: &str) -> String {
    let errors: Vec<Value> = problem.violations.iter().map(violation).collect();
    let mut body = problem.extra.clone();
    body.insert("type".into(), documentation(problem).into());
    body.insert("title".into(), problem.code.explanation().into());
    body.insert("status".into(), status(problem).as_u16().into());
    body.insert("detail".into(), problem.message.clone().into());
    body.insert("instance".into(), format!("urn:request:{request_id}").into());
    body.insert("code".into(), code_name(problem).into());
    body.insert("request_id".into(), request_id.into());
    body.insert("errors".into(), errors.into());
    if let Some(param) = &problem.param {
        body.insert("param".into(), param.clone().into());
    }
    Value::Object(body).to_string()
}
