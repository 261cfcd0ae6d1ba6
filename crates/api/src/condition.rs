//! ETags and the headers that compare them. A record's tag is `"<version>-<view>"`: reads compare
//! it whole, writes only the version, so that a tag from any view of the record guards a write.

use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue};
use model::Timestamp;
use model::problem::{Code, Problem};
use model::write::Precondition;

/// The tag of a record shown in this view.
pub fn record_tag(version: i64, view: u64) -> String {
    tag("\"", version, view)
}

/// The tag of a list: weak, because pages may differ in bytes and mean the same.
pub fn list_tag(seq: i64, view: u64) -> String {
    tag("W/\"", seq, view)
}

fn tag(opening: &str, number: i64, view: u64) -> String {
    let mut digits = itoa::Buffer::new();
    let mut tag = String::with_capacity(48);
    tag.push_str(opening);
    tag.push_str(digits.format(number));
    tag.push('-');
    tag.push_str(digits.format(view));
    tag.push('"');
    tag
}

/// Whether the client's copy is current. `If-None-Match` wins over `If-Modified-Since`.
pub fn is_fresh(headers: &HeaderMap, tag: &str, updated: Option<Timestamp>) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        let opaque = tag.trim_start_matches("W/");
        return tags(headers, &IF_NONE_MATCH)
            .any(|sent| sent == "*" || sent.trim_start_matches("W/") == opaque);
    }
    let since = headers.get(IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    match (since.and_then(Timestamp::parse_http_date), updated) {
        (Some(since), Some(updated)) => updated.seconds() <= since.seconds(),
        _ => false,
    }
}

/// The condition on a write. `If-Match` wins over `If-Unmodified-Since`.
pub fn of_write(headers: &HeaderMap) -> Result<Precondition, Problem> {
    if headers.contains_key(IF_MATCH) {
        let mut versions = Vec::new();
        let mut sent = tags(headers, &IF_MATCH).peekable();
        if sent.peek().is_none() {
            return Err(not_tags());
        }
        for tag in sent {
            if tag == "*" {
                return Ok(Precondition::Exists);
            }
            versions.extend(version_in(tag)?);
        }
        return Ok(Precondition::Versions(versions));
    }
    let Some(value) = headers.get(IF_UNMODIFIED_SINCE) else { return Ok(Precondition::None) };
    match value.to_str().ok().and_then(Timestamp::parse_http_date) {
        Some(since) => Ok(Precondition::UnmodifiedSince(since)),
        None => Err(bad(IF_UNMODIFIED_SINCE, "is no HTTP date")),
    }
}

/// The version a strong tag names; weak tags and tags of others never match.
fn version_in(tag: &str) -> Result<Option<i64>, Problem> {
    if tag.starts_with("W/\"") {
        return Ok(None);
    }
    let inner = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inner = inner.ok_or_else(not_tags)?;
    Ok(inner.split_once('-').and_then(|(version, _)| version.parse().ok()))
}

fn tags<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    let readable = headers.get_all(name).into_iter().filter_map(|v: &HeaderValue| v.to_str().ok());
    readable.flat_map(split)
}

/// Splits a list of tags at the commas outside of them: a tag may contain any visible character but
/// a quote, and knows no escapes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let items = text.split(move |character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    });
    items.map(str::trim).filter(|tag| !tag.is_empty())
}

fn not_tags() -> Problem {
    bad(IF_MATCH, "must hold ETags in double quotes, or *")
}

fn bad(name: HeaderName, what: &str) -> Problem {
    let name = match name {
        IF_MATCH => "If-Match",
        _ => "If-Unmodified-Since",
    };
    Problem::new(Code::InvalidHeader, format!("`{name}` {what}.")).param(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn writes_compare_only_the_version() {
        let read = |text: &str| of_write(&with(IF_MATCH, text));
        assert_eq!(read("\"7-ab\", \"9-cd\""), Ok(Precondition::Versions(vec![7, 9])));
        assert_eq!(read("*"), Ok(Precondition::Exists));
        assert_eq!(read("W/\"7-ab\""), Ok(Precondition::Versions(vec![])), "weak never matches");
        assert_eq!(read("\"other\""), Ok(Precondition::Versions(vec![])));
        for bad in ["7-ab", "", " ,"] {
            assert_eq!(read(bad).unwrap_err().code, Code::InvalidHeader, "{bad}");
        }
        let odd = "W/\"a,b\",\"c,\\\" , \"7-ab\",, \"\"";
        assert_eq!(read(odd), Ok(Precondition::Versions(vec![7])), "commas inside of tags");
    }

    #[test]
    fn reads_compare_the_whole_tag_weakly() {
        let fresh = |sent: &str, tag: &str| is_fresh(&with(IF_NONE_MATCH, sent), tag, None);
        assert!(fresh("\"7-ab\"", "\"7-ab\""));
        assert!(fresh("\"1-x\", W/\"7-ab\"", "\"7-ab\""));
        assert!(fresh("*", "\"7-ab\""));
        assert!(!fresh("\"7-cd\"", "\"7-ab\""), "another view");
        assert!(!fresh("\"8-ab\"", "\"7-ab\""), "another version");
    }

    #[test]
    fn dates_are_compared_in_whole_seconds() {
        let headers = with(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT");
        let at =
            |millis: i64| is_fresh(&headers, "\"1-a\"", Some(Timestamp(784_111_777_000 + millis)));
        assert!(at(0) && at(999) && !at(1000));
    }
}
