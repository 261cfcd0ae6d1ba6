//! The CORS protocol at the edge: preflights are answered here, and responses for allowed origins
//! say so. The rules replace those of the servers.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use wire::Response;

use crate::config::{Cors, OriginPattern};
use crate::error::Failure;

/// What a preflight may ask for. A browser lists the headers of one request.
const MAX_REQUESTED_BYTES: usize = 4 * 1024;

/// The response to a preflight; none for other requests.
pub(crate) fn preflight(
    cors: &Cors,
    method: &Method,
    headers: &HeaderMap,
) -> Option<Result<Response, Failure>> {
    if *method != Method::OPTIONS || !headers.contains_key(ORIGIN) {
        return None;
    }
    let wanted = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    let is_allowed = cors.methods.iter().any(|allowed| allowed.as_str().as_bytes() == wanted);
    if !is_allowed {
        return Some(Err(refused("The method is not allowed for pages of other origins.")));
    }
    if !is_origin_allowed(cors, headers.get(ORIGIN)) {
        return Some(Err(refused("Pages of this origin may not use this resource.")));
    }
    let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
    if !are_headers_allowed(cors, requested) {
        return Some(Err(refused("A header is not allowed for pages of other origins.")));
    }
    let mut response = Response { status: StatusCode::NO_CONTENT, ..Response::default() };
    let fields = &mut response.headers;
    let methods: Vec<&str> = cors.methods.iter().map(Method::as_str).collect();
    set(fields, ACCESS_CONTROL_ALLOW_METHODS, &methods.join(", "));
    if let Some(requested) = requested {
        fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
    }
    fields.insert(ACCESS_CONTROL_MAX_AGE, cors.max_age.as_secs().into());
    let varies = "access-control-request-method, access-control-request-headers";
    fields.append(VARY, HeaderValue::from_static(varies));
    Some(Ok(response))
}

fn refused(message: &str) -> Failure {
    Failure::new(StatusCode::FORBIDDEN, "origin_not_allowed", message)
}

/// Adds to a response what the page of this origin may do with it, and removes what a server says
/// about it.
pub(crate) fn apply(cors: &Cors, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    let is_of_server = |name: &&HeaderName| {
        let text = name.as_str();
        text.starts_with("access-control-allow-origin")
            || text.starts_with("access-control-allow-credentials")
            || text.starts_with("access-control-expose-")
    };
    let of_server: Vec<HeaderName> = headers.keys().filter(is_of_server).cloned().collect();
    for name in of_server {
        headers.remove(name);
    }
    let is_for_all = cors.origins.contains(&OriginPattern::Any) && !cors.credentials;
    if !is_for_all {
        // Also without an origin: a cache must not give this response to a page.
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    let Some(origin) = origin.filter(|origin| is_origin_allowed(cors, Some(origin))) else {
        return;
    };
    let allowed = if is_for_all { HeaderValue::from_static("*") } else { origin.clone() };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    if cors.credentials {
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    let exposed: Vec<&str> = cors.expose.iter().map(HeaderName::as_str).collect();
    if !exposed.is_empty() {
        set(headers, ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
    }
}

fn is_origin_allowed(cors: &Cors, origin: Option<&HeaderValue>) -> bool {
    let origin = origin.and_then(|origin| origin.to_str().ok());
    let Some(origin) = origin.map(str::to_ascii_lowercase) else { return false };
    cors.origins.iter().any(|pattern| pattern.matches(&origin))
}

fn are_headers_allowed(cors: &Cors, requested: Option<&HeaderValue>) -> bool {
    let Some(requested) = requested else { return true };
    let Ok(text) = requested.to_str() else { return false };
    let mut names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let is_allowed = |name: &str| match name.parse::<HeaderName>() {
        Ok(name) => cors.headers.is_empty() || cors.headers.contains(&name),
        Err(_) => false,
    };
    text.len() <= MAX_REQUESTED_BYTES && names.all(is_allowed)
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    // Made of methods and names of headers, which are valid.
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}
