//! Every error that a client can get. `Code` is the catalogue; `api::error` maps it to status and
//! body. No other text of an error reaches a client.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};

/// Violations of one kind that a request can cause without end, such as unknown fields: so many are
/// listed, the others are left out. 100: a client with more of them sends something else than the
/// service takes, and a body of 1 MiB has room for 120,000 names.
pub const MAX_LISTED: usize = 100;
/// Characters of an unknown name that an error repeats.
const NAME_CHARS: usize = 100;

/// One failed request, with every violation found. A pointer in size: problems are rare, the
/// results that could hold one are everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problem(Box<Report>);

/// The content of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub code: Code,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// Further members of the error body: `current_state`, `allowed`, `decline_code`, ….
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// Seconds to wait before a retry can succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// A refusal declared in the schema: its own status, type and code replace the catalogue's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// The text for the log, which no client sees.
    #[serde(skip)]
    pub cause: Option<String>,
}

/// Status, type and code of a refusal that the schema (or an action handler) declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    pub status: u16,
    #[serde(rename = "type")]
    pub kind: String,
    pub code: String,
}

/// One thing wrong with one field or parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Dotted path of the field, or the name of the parameter.
    pub field: String,
    pub code: Code,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The field of the caller's version, if `field` is the stored one.
    #[serde(skip)]
    pub reported_as: Option<String>,
    /// Whether there are violations of this kind that are not listed.
    #[serde(skip)]
    pub has_more: bool,
}

macro_rules! catalogue {
    ($($variant:ident $name:literal $doc:literal)*) => {
        /// Machine-readable codes. Names are public and stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $doc] #[serde(rename = $name)] $variant,)*
        }

        impl Code {
            pub const ALL: &[Code] = &[$(Code::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name),* }
            }

            /// One sentence for the documentation: what it means and what to do.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$variant => $doc),* }
            }
        }
    };
}

catalogue! {
    // The request as a whole.
    MalformedRequest "malformed_request"
        "The request is not valid HTTP. Check how the client writes it."
    MalformedJson "malformed_json" "The body is not valid JSON. The message says where it breaks."
    DuplicateKey "duplicate_key" "A key stands twice in one JSON object. Send each key once."
    TooDeep "too_deep" "The JSON is nested deeper than the limit. Flatten it."
    BodyNotObject "body_not_object" "The body must be a JSON object."
    BodyIncomplete "body_incomplete"
        "The body ended before its declared length. Send it again, whole."
    BodyTooLarge "body_too_large" "The body exceeds the size limit. Send less at once."
    UrlTooLong "url_too_long" "The URL exceeds the length limit. Shorten the query."
    HeadersTooLarge "headers_too_large" "The header fields exceed the size or count limit."
    RequestTimeout "request_timeout" "The request did not arrive in time. Send it again, faster."
    InvalidHeader "invalid_header" "A header field has a value that cannot be understood."
    UnknownParameter "unknown_parameter" "The query has a parameter this route does not know."
    InvalidParameter "invalid_parameter" "A query parameter has a value that cannot be used."
    CursorInvalid "cursor_invalid"
        "The cursor was altered, or belongs to another list. Start again without `after`."
    CursorExpired "cursor_expired"
        "Too much changed since the first page. Start again without `after`."
    UnknownVersion "unknown_version" "The Restive-Version header names no version of this service."
    UnsupportedMediaType "unsupported_media_type"
        "The body has a content type that this route does not take."
    UpgradeRequired "upgrade_required"
        "The path is a WebSocket. Ask for it with `Upgrade: websocket`, version 13."
    NotAcceptable "not_acceptable" "The Accept header excludes every format that can be sent."
    MethodNotAllowed "method_not_allowed"
        "The path exists but not with this method. See the Allow header."
    NotImplemented "not_implemented"
        "The method, or the transfer coding of the body, is none that this server knows."
    HttpVersionNotSupported "http_version_not_supported"
        "The request line names a version of HTTP that is not 1.0 or 1.1."
    RouteNotFound "route_not_found" "No such path."
    // Who asks.
    AuthenticationRequired "authentication_required"
        "No API key was sent. Use `Authorization: Bearer <key>`."
    InvalidApiKey "invalid_api_key" "The API key is unknown, expired or revoked."
    PermissionDenied "permission_denied" "The key lacks the scope that the message names."
    // The requested resource.
    NotFound "not_found" "No such record in this account and mode."
    ValidationFailed "validation_failed"
        "Fields of the body are not acceptable; `errors` lists all of them, and the first 100 of \
         unknown fields."
    PreconditionFailed "precondition_failed"
        "A condition of the request (If-Match, If-Unmodified-Since or If-None-Match) does not \
         hold; nothing was done. Read it again."
    PreconditionRequired "precondition_required"
        "This collection takes writes only with If-Match. Read the record first."
    InvalidState "invalid_state"
        "The record's state does not allow this action; see `current_state` and `allowed`."
    GuardFailed "guard_failed" "A rule of the action refused it."
    TooManyChildren "too_many_children"
        "More records are below the record, or refer to it, than one delete takes along. Delete \
         those first."
    StillReferenced "still_referenced"
        "Other records refer to the record; `referrers` names some of them. Delete or change them \
         first."
    TooManyRecords "too_many_records"
        "There are as many records of this kind as there may be. Delete some first."
    OwnAccess "own_access"
        "The request would end the access of the key or account that makes it. Use another key, \
         or confirm it as the message says."
    AccountInUse "account_in_use"
        "The account still has records or active keys. Delete and revoke them first."
    IdempotencyKeyReused "idempotency_key_reused"
        "The Idempotency-Key was used for another request. Use a new key."
    IdempotencyKeyInUse "idempotency_key_in_use"
        "A request with this Idempotency-Key is still running. Try again shortly."
    IdempotencyKeyRequired "idempotency_key_required" "This route demands an Idempotency-Key."
    // One field.
    Required "required" "The field is required."
    UnknownField "unknown_field" "The collection has no such field."
    WrongType "wrong_type" "The value has another type than the field."
    TooShort "too_short" "The value is shorter than the field allows."
    TooLong "too_long" "The value is longer than the field allows."
    TooSmall "too_small" "The number is below the field's minimum."
    TooLarge "too_large" "The number is above the field's maximum."
    PatternMismatch "pattern_mismatch" "The text does not match the field's pattern."
    NotInEnum "not_in_enum" "The value is not one of the allowed ones."
    NotUnique "not_unique" "Another record has this value already."
    BadReference "bad_reference" "The value names no record that exists in this account and mode."
    ReadOnly "read_only" "The field is assigned by the service and cannot be set."
    InvalidCharacters "invalid_characters"
        "The text has characters that cannot be stored, such as NUL."
    InvalidFormat "invalid_format" "The text is not in the format of the field."
    Unsuitable "unsuitable"
        "The value has the right form and cannot be used, such as a private address."
    // Limits and the service itself.
    RateLimited "rate_limited" "Too many requests in this window. Wait for Retry-After."
    TooManyConnections "too_many_connections"
        "The account has as many open connections as it may have. Close some, or wait."
    ActionInProgress "action_in_progress"
        "The handler of an action on this record is still being called. Wait for Retry-After."
    ActionHandlerFailed "action_handler_failed"
        "The operator's action handler failed (502) or took too long (504); nothing was changed."
    HandlerInvalid "handler_invalid"
        "The operator's action handler gave an answer that is none of the documented ones; nothing \
         was changed. The message says what is wrong with it."
    RuleFailed "rule_failed"
        "A rule or a computed value of the schema could not be evaluated; nothing was changed. It \
         is logged with its place in the schema file."
    StorageFull "storage_full"
        "The disk is full; nothing was written. Reads go on, writes resume when space returns."
    StorageFailed "storage_failed" "The store failed; nothing was written."
    OutcomeUnknown "outcome_unknown"
        "The disk failed while the write was made durable, so it may or may not be kept. Retry \
         with the same Idempotency-Key, or read the record."
    Overloaded "overloaded" "Too many requests are in flight. Try again shortly."
    QueryTimeout "query_timeout" "The query took too long. Filter or sort by indexed fields."
    Internal "internal" "A fault of the service. It is logged under the request id."
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem(Box::new(Report {
            code,
            message: message.into(),
            param: None,
            value: None,
            violations: Vec::new(),
            extra: Map::new(),
            retry_after: None,
            declared: None,
            cause: None,
        }))
    }

    /// A parameter that is not among those that are taken here.
    pub fn unknown_parameter(name: &str, known: &[&str]) -> Problem {
        let shown: String = name.chars().take(100).collect();
        let known = match known {
            [] => "none is taken".to_owned(),
            _ => format!("there are: {}", known.join(", ")),
        };
        let message = format!("There is no parameter `{shown}` here; {known}.");
        Problem::new(Code::UnknownParameter, message).param(shown)
    }

    pub fn param(mut self, name: impl Into<String>) -> Problem {
        self.param = Some(name.into());
        self
    }

    pub fn value(mut self, value: impl Into<Value>) -> Problem {
        self.value = Some(value.into());
        self
    }

    pub fn extra(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    pub fn cause(mut self, cause: impl Into<String>) -> Problem {
        self.cause = Some(cause.into());
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after = Some(seconds);
        self
    }

    /// Whether nothing but limits is broken.
    pub fn is_of_limits(&self) -> bool {
        let all = self.violations.iter().all(|violation| violation.code.is_limit());
        all && !self.violations.is_empty()
    }

    /// Several violations as one problem: `param` and `value` are those of the first.
    /// One violation keeps its own message; more are counted.
    pub fn of(code: Code, violations: Vec<Violation>) -> Problem {
        let has_more = violations.iter().any(|violation| violation.has_more);
        let others = if has_more { "; others are not listed" } else { "" };
        let message = match violations.as_slice() {
            [only] if !has_more => only.message.clone(),
            [first, rest @ ..] => format!("{} (and {} more{others})", first.message, rest.len()),
            [] => code.explanation().to_owned(),
        };
        let mut problem = Problem::new(code, message);
        problem.param = violations.first().map(|first| first.field.clone());
        problem.value = violations.first().and_then(|first| first.value.clone());
        problem.violations = violations;
        problem
    }
}

impl Deref for Problem {
    type Target = Report;

    fn deref(&self) -> &Report {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut Report {
        &mut self.0
    }
}

impl Code {
    /// Whether a value of the right type is refused for what its declaration takes.
    pub fn is_limit(self) -> bool {
        use Code::{NotInEnum, PatternMismatch, Required, TooLarge, TooLong, TooShort, TooSmall};
        let sizes = matches!(self, TooLarge | TooSmall | TooLong | TooShort);
        sizes || matches!(self, Required | NotInEnum | PatternMismatch)
    }
}

impl Violation {
    pub fn new(field: impl Into<String>, code: Code, message: impl Into<String>) -> Violation {
        Violation {
            field: field.into(),
            code,
            message: message.into(),
            value: None,
            reported_as: None,
            has_more: false,
        }
    }

    pub fn value(mut self, value: &Value) -> Violation {
        self.value = Some(shorten(value));
        self
    }

    /// Names the field as the caller's version does; without a value, none is echoed.
    pub fn report_as(&mut self, name: &str, value: Option<&Value>) {
        (self.reported_as, self.value) = (Some(name.to_owned()), value.map(shorten));
    }
}

/// Unknown names in a body: lists the first `MAX_LISTED` and leaves out the others, so that the
/// cost of a refusal does not grow with the number of names.
#[derive(Default)]
pub struct UnknownNames {
    listed: usize,
    /// The place of the last one in the list of violations.
    last: usize,
}

impl UnknownNames {
    /// Adds a violation. `message` gets the name, shortened if it is long.
    pub fn add(
        &mut self,
        violations: &mut Vec<Violation>,
        name: &str,
        message: impl FnOnce(&str) -> String,
    ) {
        if self.listed == MAX_LISTED {
            violations[self.last].has_more = true;
            return;
        }
        let shown: String = name.chars().take(NAME_CHARS).collect();
        let message = message(&shown);
        (self.listed, self.last) = (self.listed + 1, violations.len());
        violations.push(Violation::new(shown, Code::UnknownField, message));
    }
}

/// An echoed value helps to find the fault; a megabyte of it does not.
fn shorten(value: &Value) -> Value {
    const ECHO_CHARS: usize = 100;
    match value {
        Value::String(text) if text.chars().count() > ECHO_CHARS => {
            Value::String(text.chars().take(ECHO_CHARS).chain(std::iter::once('…')).collect())
        }
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.chars().count() > ECHO_CHARS {
                shorten(&Value::String(text))
            } else {
                value.clone()
            }
        }
        other => other.clone(),
    }
}
