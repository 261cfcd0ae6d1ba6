//! From the result of an operation to status, headers and bytes. Records are sent as stored. Only
//! `fields` and expansions (in `operation`) and the lens of an older version parse and change them.

use crate::condition;
use crate::decode;
use crate::error::{self, Shape};
use crate::negotiate;
use crate::route::{self, Target};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_LOCATION, CONTENT_TYPE, ETAG, LAST_MODIFIED,
    LINK, LOCATION, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use model::Timestamp;
use model::problem::{Code, Problem};
use model::record::Record;
use model::schema::Schema;
use model::version::Lens;
use model::write::Response as Written;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Position of the log: a stream from there on delivers everything that the response does not show.
pub const STREAM_POSITION: HeaderName = HeaderName::from_static("x-stream-position");
/// Number of events that the search index does not contain yet.
const SEARCH_BEHIND: HeaderName = HeaderName::from_static("restive-search-behind");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const VARIES: HeaderValue = HeaderValue::from_static("Accept, Authorization, Restive-Version");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
const ERROR_CODE: HeaderName = HeaderName::from_static("restive-error-code");

/// A response without the headers that every response has.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The request changed nothing: the client can send it again.
    pub is_repeatable: bool,
    /// The response to an earlier request, sent again.
    pub is_replayed: bool,
}

impl Reply {
    pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(CONTENT_TYPE, JSON);
        let (is_repeatable, is_replayed) = (false, false);
        Reply { status, headers, body: body.into(), is_repeatable, is_replayed }
    }

    pub fn empty(status: StatusCode) -> Reply {
        let headers = HeaderMap::with_capacity(16);
        let (is_repeatable, is_replayed) = (false, false);
        Reply { status, headers, body: Bytes::new(), is_repeatable, is_replayed }
    }

    pub fn repeatable(self) -> Reply {
        Reply { is_repeatable: true, ..self }
    }

    /// Sets a header; a value that is not valid in a header is omitted.
    pub fn header(mut self, name: HeaderName, value: impl Into<Bytes>) -> Reply {
        // Owned text becomes the value without a copy.
        if let Ok(value) = HeaderValue::from_maybe_shared(value.into()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// How long caches may keep the response; the value of a collection is prepared once.
    fn cache_control(mut self, value: Option<HeaderValue>) -> Reply {
        if let Some(value) = value {
            self.headers.insert(CACHE_CONTROL, value);
        }
        self
    }

    /// Lists the request headers that the response depends on.
    pub fn vary(mut self) -> Reply {
        self.headers.insert(VARY, VARIES);
        self
    }
}

/// A read of one record, or 304 if the client has it. `Last-Modified` is used only if the response
/// changes with the record alone (`dated`).
pub fn record(
    request: &HeaderMap,
    cache_control: Option<HeaderValue>,
    tag: String,
    updated: Timestamp,
    dated: bool,
    body: impl Into<Bytes>,
) -> Reply {
    let reply = if condition::is_fresh(request, &tag, dated.then_some(updated)) {
        Reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        Reply::json(StatusCode::OK, body)
    };
    reply
        .vary()
        .header(ETAG, tag)
        .header(LAST_MODIFIED, updated.to_http_date())
        .cache_control(cache_control)
}

/// A page of a list.
pub fn page(
    cache_control: Option<HeaderValue>,
    tag: String,
    next: Option<&str>,
    body: String,
) -> Reply {
    let reply =
        Reply::json(StatusCode::OK, body).vary().header(ETAG, tag).cache_control(cache_control);
    match next {
        Some(url) => reply.header(LINK, ["<", url, ">; rel=\"next\""].concat()),
        None => reply,
    }
}

/// A search whose index lacks the newest events: no cache may store the incomplete response.
pub fn behind(mut reply: Reply, events: u64) -> Reply {
    reply.headers.remove(ETAG);
    reply.headers.insert(CACHE_CONTROL, NO_STORE);
    reply.headers.insert(SEARCH_BEHIND, HeaderValue::from(events));
    reply
}

pub fn not_modified(cache_control: Option<HeaderValue>, tag: String) -> Reply {
    Reply::empty(StatusCode::NOT_MODIFIED).vary().header(ETAG, tag).cache_control(cache_control)
}

/// The result of a write, fresh or replayed, whose record is in the version of this schema.
pub fn written(
    schema: &Schema,
    target: &Target,
    response: Written,
    tag: u64,
    shape: Shape,
    request_id: &str,
) -> Reply {
    match response {
        Written::Created(record) => {
            let path = route::path_of(schema, target, &record.id);
            with_record(StatusCode::CREATED, record, tag).header(LOCATION, path)
        }
        Written::Updated(record) => {
            let path = route::path_of(schema, target, &record.id);
            with_record(StatusCode::OK, record, tag).header(CONTENT_LOCATION, path)
        }
        Written::Deleted { id } => {
            let collection = &schema.collections[target.collection];
            let id = match collection.feed {
                Some(_) => model::schema::Feed::id_value(&id),
                None => id.into(),
            };
            let body = serde_json::json!({
                "id": id, "object": collection.object, "deleted": true,
            });
            no_store(Reply::json(StatusCode::OK, body.to_string()))
        }
        Written::Refused(problem) => self::problem(&problem, shape, request_id),
    }
}

fn with_record(status: StatusCode, record: Record, tag: u64) -> Reply {
    let (version, updated) = (record.version, record.updated);
    let reply = Reply::json(status, record.body)
        .header(ETAG, condition::record_tag(version, tag))
        .header(LAST_MODIFIED, updated.to_http_date());
    no_store(reply)
}

/// The text of a record in a version.
pub fn shown(record: Record, lens: Option<&Lens>) -> String {
    match lens {
        // An erased record has no fields to convert.
        Some(_) if model::version::is_erased(&record.body) => record.body,
        None => record.body,
        Some(lens) => lens.show(&record),
    }
}

/// A response that no cache may keep.
pub fn no_store(mut reply: Reply) -> Reply {
    reply.headers.insert(CACHE_CONTROL, NO_STORE);
    reply
}

pub fn replayed(mut reply: Reply) -> Reply {
    reply.headers.insert(REPLAYED, HeaderValue::from_static("true"));
    reply.is_replayed = true;
    reply.repeatable()
}

/// The response to every error of the service.
pub fn problem(problem: &Problem, shape: Shape, request_id: &str) -> Reply {
    let (content_type, body) = error::body(problem, shape, request_id);
    let mut reply = Reply::json(error::status(problem), body);
    reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply.headers.insert(CACHE_CONTROL, NO_STORE);
    // The code is also in a header: HEAD has no body, and proxies do not read bodies.
    reply = reply.header(ERROR_CODE, error::code_name(problem).to_owned());
    if let Some(seconds) = problem.retry_after {
        reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // RFC 6750 3.1: a client that has sent a token learns that the token is the reason.
    let challenge = match problem.code {
        Code::AuthenticationRequired => {
            Some("Bearer realm=\"restive\", Basic realm=\"restive\", charset=\"UTF-8\"")
        }
        Code::InvalidApiKey => Some(
            "Bearer realm=\"restive\", error=\"invalid_token\", Basic realm=\"restive\", \
             charset=\"UTF-8\"",
        ),
        _ => None,
    };
    if let Some(challenge) = challenge {
        reply.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    let wrong_coding = problem.param.as_deref() == Some(decode::HEADER);
    if problem.code == Code::UnsupportedMediaType && wrong_coding {
        reply.headers.insert(ACCEPT_ENCODING, decode::ACCEPTED);
    } else if problem.code == Code::UnsupportedMediaType {
        reply = reply.header(ACCEPT_PATCH, negotiate::body_types(&Method::PATCH).join(", "));
        reply = reply.header(ACCEPT_POST, "application/json");
    }
    if let Some(allowed) = problem.extra.get("allowed_methods").and_then(|value| value.as_array()) {
        let names: Vec<_> = allowed.iter().filter_map(|name| name.as_str()).collect();
        reply = reply.header(ALLOW, names.join(", "));
    }
    reply
}

/// The error for a method that a path does not support.
pub fn not_allowed(method: &Method, methods: &[&str]) -> Problem {
    let message = format!("This path does not support {method}; allowed: {}.", methods.join(", "));
    Problem::new(Code::MethodNotAllowed, message).extra("allowed_methods", methods.to_vec())
}

/// The response to OPTIONS.
pub fn options(methods: &[&str]) -> Reply {
    let mut reply = Reply::empty(StatusCode::NO_CONTENT).header(ALLOW, methods.join(", "));
    if methods.contains(&"PATCH") {
        reply = reply.header(ACCEPT_PATCH, negotiate::body_types(&Method::PATCH).join(", "));
    }
    if methods.contains(&"POST") {
        reply = reply.header(ACCEPT_POST, "application/json");
    }
    reply
}

/// Marks a value that no other response will have, so that HTTP/2 does not add it to its header
/// table. Each connection has a table, which such values would soon fill.
pub fn mark_unique(value: &mut HeaderValue) {
    value.set_sensitive(true);
}
