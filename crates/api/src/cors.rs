//! Which web pages may use the API and open channels: pages of the service's own origin and of the
//! origins in the schema. No response allows credentials of the browser: a page sends its key or
//! token itself.

use crate::respond::Reply;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    AUTHORIZATION, FORWARDED, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use model::problem::{Code, Problem};
use wire::Exchange;

/// Headers that a page may send, and headers that it may read.
const SENT: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, if-match, if-modified-since, if-none-match, \
     if-unmodified-since, last-event-id, prefer, restive-version",
);
const READ: HeaderValue = HeaderValue::from_static(
    "accept-patch, allow, content-location, deprecation, etag, idempotent-replayed, link, \
     location, ratelimit, ratelimit-policy, request-id, restive-error-code, restive-search-behind, \
     restive-version, retry-after, sunset, www-authenticate, x-ratelimit-limit, \
     x-ratelimit-remaining, x-ratelimit-reset, x-stream-gap, x-stream-position",
);
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// Seconds for which a browser may keep the response to a preflight: a change of `origins` is known
/// to all pages after ten minutes.
const MAX_AGE_SECONDS: u64 = 600;

const X_FORWARDED_PROTO: &str = "x-forwarded-proto";

/// Refuses a request with more than one `Origin`: no browser sends it, and which one is true is
/// not known.
pub fn check_single(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get_all(ORIGIN).iter().nth(1).is_none() {
        return Ok(());
    }
    let message = "There is more than one Origin header; send one.";
    Err(Problem::new(Code::PermissionDenied, message).param("Origin"))
}

/// The origin of the page, if the schema lists it. More than one `Origin` is none.
pub fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let mut sent = headers.get_all(ORIGIN).iter();
    let origin = sent.next().filter(|_| sent.next().is_none())?;
    let text = origin.to_str().ok()?;
    let listed = origins.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(text));
    // A copy: it can outlive the request and must not keep the whole request head in memory.
    listed.then(|| HeaderValue::from_bytes(origin.as_bytes()).ok()).flatten()
}

/// Whether a client may open a WebSocket: a program without an `Origin`, a page of the service
/// itself, or a page of a listed origin.
pub fn may_connect(origins: &[String], exchange: &Exchange) -> bool {
    let headers = &exchange.headers;
    is_own(headers, scheme(headers, exchange.is_secure, exchange.is_proxied))
        || allowed(origins, headers).is_some()
}

/// Refuses a write with Basic credentials from a page of another site: a browser that was asked for
/// them once sends them by itself, also when a page that does not know them makes the request.
pub fn check_sender(origins: &[String], exchange: &Exchange) -> Result<(), Problem> {
    let is_safe = matches!(exchange.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let sent = exchange.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let is_basic = sent.is_some_and(|sent| sent.get(..5).is_some_and(is_basic));
    if is_safe || !is_basic || may_connect(origins, exchange) {
        return Ok(());
    }
    let message = "A page of another site cannot write with Basic credentials, which a browser \
                   sends by itself. Use `Authorization: Bearer <key>`, or list the site in \
                   `origins`.";
    Err(Problem::new(Code::PermissionDenied, message).param("Origin"))
}

fn is_basic(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"basic")
}

/// Whether there is no page, or one of the service itself: of the same host by the same scheme.
/// Anybody on the network can write a page that comes over plain HTTP.
fn is_own(headers: &HeaderMap, scheme: Option<&str>) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let own = || {
        let host = headers.get(HOST)?.to_str().ok()?;
        let (used, authority) = origin.to_str().ok()?.split_once("://")?;
        Some(used.eq_ignore_ascii_case(scheme?) && authority.eq_ignore_ascii_case(host))
    };
    own() == Some(true)
}

/// The scheme that the client used: as a trusted proxy says it, or that of the listener. None if
/// the proxy says something else, or more than one.
fn scheme(headers: &HeaderMap, is_secure: bool, is_proxied: bool) -> Option<&'static str> {
    let values = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut said: Vec<&[u8]> = values(X_FORWARDED_PROTO).map(<[u8]>::trim_ascii).collect();
    if said.is_empty() {
        let parts = values(FORWARDED.as_str()).flat_map(|value| value.split(|b| b",;".contains(b)));
        said = parts.filter_map(proto).collect();
    }
    match (is_proxied, said.as_slice()) {
        (false, _) | (true, []) => Some(if is_secure { "https" } else { "http" }),
        (true, [said]) => {
            ["http", "https"].into_iter().find(|known| said.eq_ignore_ascii_case(known.as_bytes()))
        }
        (true, _) => None,
    }
}

/// The scheme in one part of a `Forwarded` header, if it has one.
fn proto(part: &[u8]) -> Option<&[u8]> {
    let (name, value) = part.trim_ascii().split_at_checked(b"proto=".len())?;
    let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
    name.eq_ignore_ascii_case(b"proto=").then_some(value)
}

/// Whether a browser asks what a page may send.
pub fn is_preflight(exchange: &Exchange) -> bool {
    let asks = exchange.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    exchange.method == Method::OPTIONS && asks
}

/// The response to a preflight for any path of resources. A page cannot read why a preflight is
/// refused, so the request itself gets the error about its path, method or key.
pub fn preflight_of_resources() -> Reply {
    preflight(Reply::empty(StatusCode::NO_CONTENT), &METHODS)
}

/// The response to a preflight request.
pub fn preflight(mut reply: Reply, methods: &[&str]) -> Reply {
    reply.headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, SENT);
    reply.headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(MAX_AGE_SECONDS));
    let asked = "Access-Control-Request-Method, Access-Control-Request-Headers";
    reply.headers.append(VARY, HeaderValue::from_static(asked));
    reply.header(ACCESS_CONTROL_ALLOW_METHODS, methods.join(", "))
}

/// Lets the page read the response, including errors.
pub fn share(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READ);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn from(origin: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        HeaderMap::from_iter([(HOST, value("api.shop.example")), (ORIGIN, value(origin))])
    }

    fn list(origins: &[&str]) -> Vec<String> {
        origins.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn a_page_reads_responses_only_if_the_schema_lists_its_origin() {
        let origins = list(&["https://shop.example", "http://localhost:3000"]);
        for origin in ["https://shop.example", "HTTPS://Shop.Example", "http://localhost:3000"] {
            assert_eq!(allowed(&origins, &from(origin)).unwrap(), origin);
        }
        for origin in [
            "http://shop.example",
            "https://shop.example:8443",
            "https://shop.example.evil.example",
            "https://evil.example",
            "null",
        ] {
            assert_eq!(allowed(&origins, &from(origin)), None, "{origin}");
        }
        assert_eq!(allowed(&list(&["*"]), &from("null")).unwrap(), "null");
        assert_eq!(allowed(&list(&["*"]), &HeaderMap::new()), None);
        let mut twice = from("https://shop.example");
        twice.append(ORIGIN, HeaderValue::from_static("https://shop.example"));
        assert_eq!(allowed(&list(&["https://shop.example"]), &twice), None);
    }

    #[test]
    fn only_programs_own_pages_and_listed_pages_open_sockets() {
        let origins = list(&["https://shop.example"]);
        let secure = Some("https");
        assert!(is_own(&HeaderMap::new(), secure));
        assert!(is_own(&from("https://API.shop.example"), secure));
        assert!(is_own(&from("HTTP://api.shop.example"), Some("http")));
        assert!(allowed(&origins, &from("https://shop.example")).is_some());
        for origin in [
            "https://shop.example",
            "null",
            "api.shop.example",
            "https://evil.example",
            "http://api.shop.example",
        ] {
            assert!(!is_own(&from(origin), secure), "{origin}");
        }
        assert!(!is_own(&from("https://api.shop.example"), Some("http")));
        assert!(!is_own(&from("https://api.shop.example"), None));
        let without_host = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://x"))]);
        assert!(!is_own(&without_host, secure));
    }

    #[test]
    fn a_shared_response_names_the_allowed_origin_methods_and_headers() {
        let mut reply = preflight(Reply::empty(StatusCode::NO_CONTENT), &["GET", "OPTIONS"]);
        share(&mut reply.headers, HeaderValue::from_static("https://shop.example"));
        assert_eq!(reply.headers[ACCESS_CONTROL_ALLOW_ORIGIN], "https://shop.example");
        assert_eq!(reply.headers[ACCESS_CONTROL_ALLOW_METHODS], "GET, OPTIONS");
        assert!(reply.headers[ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap().contains("last-"));
        assert!(reply.headers[ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap().contains("x-str"));
    }
}
