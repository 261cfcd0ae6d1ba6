//! The conditions and ranges of a request, evaluated on a stored response (RFC 9110 13 and 14, RFC
//! 9111 4.3.2). No I/O.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
    HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, SET_COOKIE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use wire::{Payload, Response};

use super::store::Stored;

/// The conditions that the cache evaluates itself. It sends its own in their place.
pub(crate) const OWN: [HeaderName; 4] = [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_RANGE];

/// Whether the client has this response already (RFC 9110 13.2.2).
pub(crate) fn is_known(status: StatusCode, response: &HeaderMap, asked: &HeaderMap) -> bool {
    if status != StatusCode::OK {
        return false;
    }
    if asked.contains_key(IF_NONE_MATCH) {
        let tag = response.get(ETAG).map(|tag| weak(tag.as_bytes()));
        let mut known = asked.get_all(IF_NONE_MATCH).iter().flat_map(|value| tags(value));
        return known.any(|one| one == b"*" || Some(weak(one)) == tag);
    }
    let since = asked.get(IF_MODIFIED_SINCE).and_then(date);
    let changed = response.get(LAST_MODIFIED).or_else(|| response.get(DATE)).and_then(date);
    matches!((since, changed), (Some(since), Some(changed)) if changed <= since)
}

/// A weak comparison ignores the mark of weak tags.
fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The tags of a list. A comma inside a tag is part of it.
fn tags(list: &HeaderValue) -> Vec<&[u8]> {
    let (mut tags, mut begin, mut is_quoted) = (Vec::new(), 0, false);
    let bytes = list.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => {
                tags.push(bytes[begin..at].trim_ascii());
                begin = at + 1;
            }
            _ => {}
        }
    }
    tags.push(bytes[begin..].trim_ascii());
    tags
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// The headers of a 304: without those about the content that is not sent.
pub(crate) fn without_content(headers: &mut HeaderMap) {
    for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE] {
        headers.remove(name);
    }
}

/// The response to a request from a stored one, as its conditions and range demand.
pub(crate) fn respond(stored: &Stored, method: &Method, asked: &HeaderMap) -> Response {
    let mut headers = stored.headers.clone();
    if is_known(stored.status, &headers, asked) {
        without_content(&mut headers);
        let (status, body) = (StatusCode::NOT_MODIFIED, Payload::default());
        return Response { status, headers, body, ..Response::default() };
    }
    let whole = stored.body.len() as u64;
    let range = match range(stored, method, asked) {
        Some(range) => range,
        None => {
            let (status, body) = (stored.status, stored.body.clone().into());
            return Response { status, headers, body, ..Response::default() };
        }
    };
    let (status, text, body) = match range {
        Some((first, last)) => (
            StatusCode::PARTIAL_CONTENT,
            format!("bytes {first}-{last}/{whole}"),
            stored.body.slice(first as usize..=last as usize),
        ),
        None => {
            without_content(&mut headers);
            (StatusCode::RANGE_NOT_SATISFIABLE, format!("bytes */{whole}"), Bytes::new())
        }
    };
    if let Ok(text) = HeaderValue::from_str(&text) {
        headers.insert(CONTENT_RANGE, text);
    }
    Response { status, headers, body: body.into(), ..Response::default() }
}

/// The range that the client wants: none if it gets the whole response, `Some(None)` if the range
/// lies behind the end.
fn range(stored: &Stored, method: &Method, asked: &HeaderMap) -> Option<Option<(u64, u64)>> {
    // RFC 9110 14.2: a range has a meaning for GET alone.
    if method != Method::GET || stored.status != StatusCode::OK {
        return None;
    }
    let wanted = single_range(asked)?;
    if let Some(condition) = asked.get(IF_RANGE) {
        let is_same = |name| stored.headers.get(name).is_some_and(|v: &HeaderValue| v == condition);
        let is_strong = !condition.as_bytes().starts_with(b"W/");
        if !(is_strong && is_same(ETAG) || is_same(LAST_MODIFIED)) {
            return None;
        }
    }
    let whole = stored.body.len() as u64;
    let (first, last) = match wanted {
        (Some(first), last) => (first, last.unwrap_or(u64::MAX).min(whole.saturating_sub(1))),
        (None, Some(suffix)) => (whole.saturating_sub(suffix), whole.saturating_sub(1)),
        (None, None) => return None,
    };
    let is_empty = first >= whole || wanted == (None, Some(0));
    Some((!is_empty).then_some((first, last)))
}

/// First and last position of a single range of bytes.
pub(crate) fn single_range(asked: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let mut values = asked.get_all(RANGE).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (first, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text {
        "" => Some(None),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok().map(Some),
        _ => None,
    };
    match (number(first.trim())?, number(last.trim())?) {
        (None, None) => None,
        (Some(first), Some(last)) if first > last => None,
        found => Some(found),
    }
}

/// Adds to the request what asks the backend whether a stored response is still valid (RFC 9111
/// 4.3.1). False if the stored response has no validator.
pub(crate) fn validate(stored: &Stored, request: &mut HeaderMap) -> bool {
    let mut has_validator = false;
    for (validator, condition) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
        if let Some(value) = stored.headers.get(validator) {
            request.insert(condition, value.clone());
            has_validator = true;
        }
    }
    has_validator
}

/// Whether a 304 is about this stored response (RFC 9111 4.3.4).
pub(crate) fn confirms(stored: &Stored, response: &HeaderMap) -> bool {
    [ETAG, LAST_MODIFIED].into_iter().all(|name| {
        match (stored.headers.get(&name), response.get(&name)) {
            (Some(known), Some(found)) => weak(known.as_bytes()) == weak(found.as_bytes()),
            _ => true,
        }
    })
}

/// The cookies of a 304, which belong to the client that asked.
pub(crate) fn cookies(response: &HeaderMap) -> Vec<HeaderValue> {
    response.get_all(SET_COOKIE).iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn conditions_compare_tags_first_and_dates_after() {
        let early = "Mon, 01 Jan 2024 00:00:00 GMT";
        let late = "Tue, 02 Jan 2024 00:00:00 GMT";
        let response = map(&[("etag", "\"a,b\""), ("last-modified", early)]);
        for (asked, expected) in [
            (&[("if-none-match", "\"a,b\"")][..], true),
            (&[("if-none-match", "\"x\", W/\"a,b\"")], true),
            (&[("if-none-match", "*")], true),
            (&[("if-none-match", "\"a\""), ("if-modified-since", late)], false),
            (&[("if-modified-since", late)], true),
            (&[("if-modified-since", early)], true),
            (&[("if-modified-since", "soon")], false),
            (&[], false),
        ] {
            assert_eq!(is_known(StatusCode::OK, &response, &map(asked)), expected, "{asked:?}");
        }
        let asked = map(&[("if-none-match", "*")]);
        assert!(!is_known(StatusCode::NOT_FOUND, &response, &asked));
    }

    #[test]
    fn only_a_single_range_of_bytes_is_understood() {
        for (range, expected) in [
            ("bytes=0-4", Some((Some(0), Some(4)))),
            ("bytes=5-", Some((Some(5), None))),
            ("bytes=-5", Some((None, Some(5)))),
            ("bytes=5-4", None),
            ("bytes=-", None),
            ("bytes=0-1,3-4", None),
            ("bytes=0x1-2", None),
            ("bytes=+1-2", None),
            ("lines=0-4", None),
        ] {
            assert_eq!(single_range(&map(&[("range", range)])), expected, "{range}");
        }
        assert_eq!(single_range(&map(&[("range", "bytes=0-1"), ("range", "bytes=0-1")])), None);
    }
}
