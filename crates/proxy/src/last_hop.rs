//! Requests that end at the proxy although no route says so: `OPTIONS *`, which asks the server as
//! such, and OPTIONS and TRACE requests that may go no further (RFC 9110 7.6.2).

use http::header::{ALLOW, HeaderName, MAX_FORWARDS};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use wire::Response;

use crate::error::Failure;

/// The methods of HTTP that routes forward; others are forwarded as well.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// Digits of `Max-Forwards`. 9: no chain of proxies is longer.
const MAX_DIGITS: usize = 9;

/// The response, if the request ends here. Otherwise `Max-Forwards` counts this proxy.
pub(crate) fn answer(
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
    id: &str,
) -> Result<Option<Response>, Failure> {
    if !matches!(*method, Method::OPTIONS | Method::TRACE) {
        return Ok(None);
    }
    let left = match headers.get(MAX_FORWARDS) {
        None => None,
        Some(value) => Some(number(value).ok_or_else(|| bad(&MAX_FORWARDS))?),
    };
    if *method == Method::TRACE {
        if left == Some(0) {
            return Ok(Some(allowing(not_traced().response(id))));
        }
    } else if left == Some(0) || uri.path() == "*" {
        return Ok(Some(allowing(Response::new(StatusCode::NO_CONTENT, ""))));
    }
    if let Some(left) = left {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
    Ok(None)
}

fn allowing(mut response: Response) -> Response {
    response.headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    response
}

fn number(value: &HeaderValue) -> Option<u32> {
    let text = value.to_str().ok()?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_plain && text.len() <= MAX_DIGITS).then(|| text.parse().ok()).flatten()
}

fn bad(name: &HeaderName) -> Failure {
    Failure::bad_request("malformed_request", format!("`{name}` is not a number."))
}

/// A trace would show the fields that this proxy adds, and cookies that pages cannot read.
fn not_traced() -> Failure {
    let message = "The proxy does not answer TRACE.";
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
