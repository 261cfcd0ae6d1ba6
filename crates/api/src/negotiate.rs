//! Formats: what the client accepts (`Accept`) and what it sends (`Content-Type`).

use crate::error::Shape;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use model::problem::{Code, Problem};

const OFFERED: &[&str] = &["application/json", "application/problem+json"];

/// Which error shape the client asks for.
pub fn error_shape(headers: &HeaderMap, usual: Shape) -> Shape {
    let wanted = headers
        .get_all(ACCEPT)
        .iter()
        .any(|value| contains_ignoring_case(value.as_bytes(), b"application/problem+json"));
    if wanted { Shape::ProblemJson } else { usual }
}

fn contains_ignoring_case(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

/// Refuses a client that accepts none of the formats of a response.
pub fn check_accept(headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut has_range = false;
    for value in values {
        // The two most frequent values need no parsing.
        if value.as_bytes() == b"*/*" || value.as_bytes() == b"application/json" {
            return Ok(());
        }
        let Ok(text) = value.to_str() else { continue };
        for range in text.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            has_range = true;
            if accepts(range) {
                return Ok(());
            }
        }
    }
    if !has_range {
        return Ok(());
    }
    let message = "None of the formats in `Accept` is available; available: application/json.";
    Err(Problem::new(Code::NotAcceptable, message)
        .param("Accept")
        .extra("offered", OFFERED.to_vec()))
}

/// Whether one media range with its parameters accepts JSON.
fn accepts(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let refused = parts.any(|parameter| {
        let quality = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
        quality.is_some_and(|quality| quality.trim().parse::<f32>().is_ok_and(|q| q <= 0.0))
    });
    let fits = name == "*/*" || name == "application/*" || OFFERED.contains(&name.as_str());
    fits && !refused
}

/// The content types that are allowed for a method's body.
pub fn body_types(method: &Method) -> &'static [&'static str] {
    if method == Method::PATCH {
        &["application/merge-patch+json", "application/json"]
    } else {
        &["application/json"]
    }
}

/// Refuses bodies in a format other than JSON.
pub fn check_content_type(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let offered = body_types(method);
    if headers.get_all(CONTENT_TYPE).iter().nth(1).is_some() {
        let message = "`Content-Type` is sent more than once; send it once.";
        return Err(Problem::new(Code::InvalidHeader, message).param("Content-Type"));
    }
    let sent = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("(unreadable)"));
    if sent == Some("application/json") {
        return Ok(());
    }
    let mut parts = sent.unwrap_or_default().split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    if offered.contains(&name.as_str()) && utf8 {
        return Ok(());
    }
    let shown: String = sent.unwrap_or("none").chars().take(80).collect();
    let message = format!(
        "The content type `{shown}` is not supported; send {} in UTF-8.",
        offered.join(" or ")
    );
    Err(Problem::new(Code::UnsupportedMediaType, message).param("Content-Type"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn clients_that_accept_json_get_it_and_others_an_error() {
        for accept in
            ["*/*", "application/json", "text/html, application/*;q=0.1", "APPLICATION/JSON"]
        {
            assert!(check_accept(&headers(ACCEPT, accept)).is_ok(), "{accept}");
        }
        for accept in ["text/html", "application/json;q=0", "image/*", "application/jsonx"] {
            assert!(check_accept(&headers(ACCEPT, accept)).is_err(), "{accept}");
        }
    }

    #[test]
    fn only_json_bodies_are_accepted() {
        let check =
            |method, text| check_content_type(&method, &headers(CONTENT_TYPE, text)).is_ok();
        assert!(check(Method::POST, "application/json; charset=UTF-8"));
        assert!(check(Method::PATCH, "application/merge-patch+json"));
        assert!(!check(Method::PUT, "application/merge-patch+json"));
        assert!(!check(Method::POST, "text/plain"));
        assert!(!check(Method::POST, "application/json; charset=latin1"));
        assert!(check_content_type(&Method::POST, &HeaderMap::new()).is_err());
        let mut twice = headers(CONTENT_TYPE, "application/json");
        twice.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let problem = check_content_type(&Method::POST, &twice).unwrap_err();
        assert_eq!(problem.code, Code::InvalidHeader);
    }
}
