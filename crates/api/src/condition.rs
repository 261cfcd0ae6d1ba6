//! ETags and the request headers that compare them. The tag of a record is `"<version>-<view>"`.
//! Reads compare the whole tag. Writes compare only the version, so that a tag from any view of the
//! record guards a write.

use http::header::{
    ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
    LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue};
use model::Timestamp;
use model::problem::{Code, Problem};
use model::write::Precondition;

/// The tag of a record in this view.
pub fn record_tag(version: i64, view: u64) -> String {
    tag("\"", version, view)
}

/// The tag of a list. It is weak because pages can differ in bytes and mean the same.
pub fn list_tag(seq: i64, view: u64) -> String {
    tag("W/\"", seq, view)
}

fn tag(opening: &str, number: i64, view: u64) -> String {
    let (mut number_digits, mut view_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (number, view) = (number_digits.format(number), view_digits.format(view));
    // A text without spare capacity becomes a header value without a second allocation.
    let mut tag = String::with_capacity(opening.len() + number.len() + view.len() + 2);
    tag.push_str(opening);
    tag.push_str(number);
    tag.push('-');
    tag.push_str(view);
    tag.push('"');
    tag
}

/// Whether the request has a condition: the answer depends on what has changed.
pub fn is_sent(headers: &HeaderMap) -> bool {
    [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// Whether the client's copy is current. `If-None-Match` takes precedence over `If-Modified-Since`.
pub fn is_fresh(headers: &HeaderMap, tag: &str, updated: Option<Timestamp>) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        return parsed_tags(headers, IF_NONE_MATCH).is_ok_and(|sent| matches_weakly(&sent, tag));
    }
    let since = headers.get(IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    match (since.and_then(Timestamp::parse_http_date), updated) {
        (Some(since), Some(updated)) => updated.seconds() <= since.seconds(),
        _ => false,
    }
}

/// The condition on a write, in the order of RFC 9110 13.2.2: `If-Match`, or else
/// `If-Unmodified-Since`, and then `If-None-Match`. A header that cannot be parsed is refused,
/// because ignoring it would let a write through that it was meant to prevent.
pub fn of_write(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let first = match headers.contains_key(IF_MATCH) {
        true => of_match(headers)?,
        false => of_date(headers)?,
    };
    let second = of_none_match(headers)?;
    Ok(match (first, second) {
        (first, Precondition::None) => first,
        (Precondition::None, second) => second,
        (first, second) => Precondition::All(vec![first, second]),
    })
}

/// Whether a write names the version of the record that it expects. `*` names none, and a date does
/// not tell two changes in one second apart.
pub fn names_a_version(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_MATCH)
        && parsed_tags(headers, IF_MATCH).is_ok_and(|sent| !sent.contains(&"*"))
}

/// Whether a write names the state of the record that it expects.
fn guards(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_MATCH) || headers.contains_key(IF_UNMODIFIED_SINCE)
}

/// Whether a request has conditions to evaluate.
pub fn is_conditional(headers: &HeaderMap) -> bool {
    guards(headers) || headers.contains_key(IF_NONE_MATCH)
}

fn of_match(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let sent = parsed_tags(headers, IF_MATCH)?;
    if sent.contains(&"*") {
        return Ok(Precondition::Exists);
    }
    // Strong comparison: weak tags never match.
    let strong = sent.into_iter().filter(|tag| !tag.starts_with("W/"));
    Ok(Precondition::Versions(strong.filter_map(version_in).collect()))
}

fn of_date(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let mut values = headers.get_all(IF_UNMODIFIED_SINCE).iter();
    let Some(value) = values.next() else { return Ok(Precondition::None) };
    match value.to_str().ok().and_then(Timestamp::parse_http_date) {
        Some(since) if values.next().is_none() => Ok(Precondition::UnmodifiedSince(since)),
        _ => Err(bad(IF_UNMODIFIED_SINCE, "must be one HTTP date")),
    }
}

fn of_none_match(headers: &HeaderMap) -> Result<Precondition, Problem> {
    if !headers.contains_key(IF_NONE_MATCH) {
        return Ok(Precondition::None);
    }
    let sent = parsed_tags(headers, IF_NONE_MATCH)?;
    if sent.contains(&"*") {
        return Ok(Precondition::Absent);
    }
    // Weak comparison, by the version alone: a tag of any view matches the current record.
    Ok(Precondition::NoneOf(sent.into_iter().filter_map(version_in).collect()))
}

/// The condition on a write to a collection, which has this tag but no stored version: a create.
/// The tags of a collection only grow, so a tag that does not match now does not match at the
/// commit either.
pub fn of_creation(headers: &HeaderMap, tag: impl FnOnce() -> String) -> Result<(), Problem> {
    if !is_conditional(headers) {
        return Ok(());
    }
    // A collection has no date to compare, but an invalid date is refused here too.
    of_date(headers)?;
    let tag = tag();
    if headers.contains_key(IF_MATCH) && !matches_strongly(&parsed_tags(headers, IF_MATCH)?, &tag) {
        return Err(failed(&IF_MATCH));
    }
    if headers.contains_key(IF_NONE_MATCH)
        && matches_weakly(&parsed_tags(headers, IF_NONE_MATCH)?, &tag)
    {
        return Err(failed(&IF_NONE_MATCH));
    }
    Ok(())
}

/// The same for a resource that does not exist yet and so has no tag.
pub fn of_nothing(headers: &HeaderMap) -> Result<(), Problem> {
    of_write(headers)?;
    if headers.contains_key(IF_MATCH) { Err(failed(&IF_MATCH)) } else { Ok(()) }
}

/// The conditions of a read that precede those for caches: `If-Match`, or else
/// `If-Unmodified-Since`, against the validators of the response. An `If-None-Match` without valid
/// tags is refused as well.
pub fn of_read(
    headers: &HeaderMap,
    tag: Option<&str>,
    updated: Option<Timestamp>,
) -> Result<(), Problem> {
    let is_blank = |value: &HeaderValue| value.as_bytes().trim_ascii().is_empty();
    if !headers.get_all(IF_NONE_MATCH).iter().all(is_blank) {
        parsed_tags(headers, IF_NONE_MATCH)?;
    }
    if headers.contains_key(IF_MATCH) {
        let sent = parsed_tags(headers, IF_MATCH)?;
        return match matches_strongly(&sent, tag.unwrap_or_default()) {
            true => Ok(()),
            false => Err(failed(&IF_MATCH)),
        };
    }
    // An invalid date is ignored, and so is a date for a resource without one (RFC 9110 13.1.4).
    match (of_date(headers), updated) {
        (Ok(Precondition::UnmodifiedSince(since)), Some(updated))
            if updated.seconds() > since.seconds() =>
        {
            Err(failed(&IF_UNMODIFIED_SINCE))
        }
        _ => Ok(()),
    }
}

/// The same for a finished response.
pub fn of_response(headers: &HeaderMap, response: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| response.get(name).and_then(|value| value.to_str().ok());
    of_read(headers, text(ETAG), text(LAST_MODIFIED).and_then(Timestamp::parse_http_date))
}

fn matches_strongly(sent: &[&str], tag: &str) -> bool {
    let is_strong = tag.starts_with('"');
    sent.iter().any(|one| *one == "*" || is_strong && *one == tag)
}

fn matches_weakly(sent: &[&str], tag: &str) -> bool {
    sent.iter().any(|one| *one == "*" || opaque(one) == opaque(tag))
}

/// A tag without the prefix of a weak tag.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// The version in a tag that this server issued; `None` for other tags.
fn version_in(tag: &str) -> Option<i64> {
    let inner = opaque(tag).trim_matches('"');
    let (digits, _) = inner.split_once('-')?;
    // No other way to write the number than the server's own.
    digits.parse().ok().filter(|version: &i64| version.to_string() == digits)
}

/// The tags of a header, each in valid syntax. At least one.
fn parsed_tags(headers: &HeaderMap, name: HeaderName) -> Result<Vec<&str>, Problem> {
    let mut all = Vec::new();
    for value in headers.get_all(&name) {
        all.extend(split(value.to_str().map_err(|_| not_tags(&name))?));
    }
    let is_tag = |text: &&str| {
        let inner = opaque(text).strip_prefix('"');
        let inner = inner.and_then(|rest| rest.strip_suffix('"'));
        *text == "*" || inner.is_some_and(|inner| !inner.contains('"'))
    };
    match !all.is_empty() && all.iter().all(is_tag) {
        true => Ok(all),
        false => Err(not_tags(&name)),
    }
}

fn failed(name: &HeaderName) -> Problem {
    let message = match *name {
        IF_NONE_MATCH => "`If-None-Match` matches the current state; nothing was done.".to_owned(),
        _ => format!("`{}` does not match the current state; nothing was done.", shown(name)),
    };
    Problem::new(Code::PreconditionFailed, message).param(shown(name))
}

fn shown(name: &HeaderName) -> &'static str {
    match *name {
        IF_MATCH => "If-Match",
        IF_NONE_MATCH => "If-None-Match",
        _ => "If-Unmodified-Since",
    }
}

/// Splits a list of tags at the commas between them. A tag may contain any visible character except
/// a quote, and has no escapes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let items = text.split(move |character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    });
    items.map(str::trim).filter(|tag| !tag.is_empty())
}

fn not_tags(name: &HeaderName) -> Problem {
    bad(name.clone(), "must contain ETags in double quotes, or be *")
}

fn bad(name: HeaderName, what: &str) -> Problem {
    let name = shown(&name);
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
    fn if_none_match_of_a_write_compares_weakly_and_comes_after_if_match() {
        let read = |text: &str| of_write(&with(IF_NONE_MATCH, text));
        assert_eq!(read("\"7-ab\", W/\"9-cd\""), Ok(Precondition::NoneOf(vec![7, 9])));
        assert_eq!(read("*"), Ok(Precondition::Absent));
        assert_eq!(read("\"a\", *"), Ok(Precondition::Absent));
        for bad in ["7-ab", "", "\"a\" \"b\"", "W/7", "W/W/\"7-ab\"", "w/\"7-ab\""] {
            assert_eq!(read(bad).unwrap_err().code, Code::InvalidHeader, "{bad}");
        }
        let mut both = with(IF_NONE_MATCH, "\"7-ab\"");
        both.insert(IF_MATCH, HeaderValue::from_static("*"));
        let all = vec![Precondition::Exists, Precondition::NoneOf(vec![7])];
        assert_eq!(of_write(&both), Ok(Precondition::All(all)));
    }

    #[test]
    fn creates_and_reads_compare_the_tag_of_the_collection_or_response() {
        let list = "W/\"7-1\"";
        let creates = |name, text| of_creation(&with(name, text), || list.to_owned()).is_ok();
        assert!(creates(IF_MATCH, "*") && creates(IF_NONE_MATCH, "\"6-1\""));
        assert!(!creates(IF_MATCH, list) && !creates(IF_NONE_MATCH, "*"));
        assert!(!creates(IF_NONE_MATCH, "\"7-1\"") && !creates(IF_NONE_MATCH, "x"));
        let reads = |name, text, tag| of_read(&with(name, text), tag, Some(Timestamp(5_000)));
        assert!(reads(IF_MATCH, "\"7-1\"", Some("\"7-1\"")).is_ok());
        assert!(reads(IF_MATCH, "\"7-1\"", Some(list)).is_err());
        assert!(reads(IF_MATCH, "\"\"", None).is_err() && reads(IF_MATCH, "*", None).is_ok());
        let (early, late) = ("Thu, 01 Jan 1970 00:00:04 GMT", "Thu, 01 Jan 1970 00:00:05 GMT");
        assert!(reads(IF_UNMODIFIED_SINCE, early, None).is_err());
        assert!(reads(IF_UNMODIFIED_SINCE, late, None).is_ok());
        assert!(reads(IF_UNMODIFIED_SINCE, "soon", None).is_ok());
        assert!(of_nothing(&with(IF_NONE_MATCH, "*")).is_ok());
        assert!(of_nothing(&with(IF_MATCH, "*")).is_err());
    }

    #[test]
    fn reads_compare_the_whole_tag_weakly() {
        let fresh = |sent: &str, tag: &str| is_fresh(&with(IF_NONE_MATCH, sent), tag, None);
        assert!(fresh("\"7-ab\"", "\"7-ab\""));
        assert!(fresh("\"1-x\", W/\"7-ab\"", "\"7-ab\""));
        assert!(fresh("*", "\"7-ab\""));
        assert!(!fresh("\"7-cd\"", "\"7-ab\""), "another view");
        assert!(!fresh("\"8-ab\"", "\"7-ab\""), "another version");
        for bad in ["W/W/\"7-ab\"", "\"7-ab\", W/W/\"1-x\"", "7-ab"] {
            assert!(!fresh(bad, "\"7-ab\""), "{bad}");
            let read = of_read(&with(IF_NONE_MATCH, bad), Some("\"7-ab\""), None);
            assert_eq!(read.unwrap_err().code, Code::InvalidHeader, "{bad}");
        }
        assert!(
            of_read(&with(IF_NONE_MATCH, " "), None, None).is_ok(),
            "an empty header is ignored"
        );
    }

    #[test]
    fn dates_are_compared_in_whole_seconds() {
        let headers = with(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT");
        let at =
            |millis: i64| is_fresh(&headers, "\"1-a\"", Some(Timestamp(784_111_777_000 + millis)));
        assert!(at(0) && at(999) && !at(1000));
    }
}
