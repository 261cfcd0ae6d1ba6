//! Which requests may share a stream: those whose credential is the same byte for byte, and which
//! ask the same server for the same. No I/O.

use http::header::{
    ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, CACHE_CONTROL, COOKIE, DNT, FORWARDED,
    HeaderName, ORIGIN, PRAGMA, REFERER, TE, USER_AGENT, VIA,
};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The parameter that carries the token of a browser.
const ACCESS_TOKEN: &str = "access_token";
/// The parameters with the place in the log where a stream begins.
const POSITIONS: [&str; 2] = ["since", "last_event_id"];

/// Fields that do not change the events of a restive server: they say who asks or on which way, or
/// are checked with the client's own request. All others are in the key.
const IGNORED: [HeaderName; 19] = [
    ACCEPT_ENCODING,
    ACCEPT_LANGUAGE,
    CACHE_CONTROL,
    DNT,
    FORWARDED,
    LAST_EVENT_ID,
    ORIGIN,
    PRAGMA,
    REFERER,
    TE,
    USER_AGENT,
    VIA,
    HeaderName::from_static("priority"),
    HeaderName::from_static("restive-edge"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-request-id"),
];
/// Families of such fields: what browsers say about themselves.
const IGNORED_FAMILIES: [&str; 2] = ["sec-fetch-", "sec-ch-"];

/// What a shared stream is found by. Digests: no credential stays in memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(super) credential: [u8; 32],
    /// Includes the credential as it was sent.
    request: [u8; 32],
}

/// A request for a stream as its server receives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) server: &'a str,
    pub(crate) host: Option<&'a HeaderValue>,
    /// With the query.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

#[cfg(test)]
impl Key {
    pub(super) fn numbered(credential: u8, request: u8) -> Key {
        Key { credential: [credential; 32], request: [request; 32] }
    }
}

impl Asked<'_> {
    pub(crate) fn key(&self) -> Key {
        let (path, query) = self.path.split_once('?').unwrap_or((self.path, ""));
        let mut request = Digest::default();
        request.add(self.server.as_bytes());
        request.add(self.host.map_or(b"", HeaderValue::as_bytes));
        request.add(path.as_bytes());
        let (mut credential, mut is_named) = (Digest::default(), false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = name_of(pair);
            if name == ACCESS_TOKEN {
                credential.add(pair.as_bytes());
                is_named = true;
            }
            if !POSITIONS.contains(&name.as_str()) {
                request.add(pair.as_bytes());
            }
        }
        // As the server reads it, without the spelling of the scheme: its streams are limited.
        for value in self.headers.get_all(AUTHORIZATION) {
            let token = value.as_bytes().splitn(2, |byte| *byte == b' ').last();
            credential.add(token.unwrap_or_default().trim_ascii());
            is_named = true;
        }
        for value in self.headers.get_all(COOKIE).iter().filter(|_| !is_named) {
            credential.add(value.as_bytes());
        }
        let mut fields: Vec<(&str, &[u8])> = self
            .headers
            .iter()
            .filter(|(name, _)| is_selecting(name))
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        // Stable: values of one name keep their order.
        fields.sort_by_key(|(name, _)| *name);
        for (name, value) in fields {
            request.add(name.as_bytes());
            request.add(value);
        }
        Key { credential: credential.finish(), request: request.finish() }
    }

    /// The position that the client resumes from. The header is newer than the URL.
    pub(super) fn position(&self) -> Option<String> {
        let header = self.headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty());
        if let Some(value) = header {
            return Some(String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        let mut pairs = query.split('&').filter(|pair| POSITIONS.contains(&name_of(pair).as_str()));
        let value = pairs.next_back()?.split_once('=').map_or("", |(_, value)| value);
        Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
    }
}

/// A path and query without the parameters that name a position.
pub(crate) fn without_position(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let is_kept = |pair: &&str| !pair.is_empty() && !POSITIONS.contains(&name_of(pair).as_str());
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    match kept.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", kept.join("&")),
    }
}

/// The name of a parameter, as a server reads it.
fn name_of(pair: &str) -> String {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    percent_decode_str(name).decode_utf8_lossy().into_owned()
}

pub(crate) fn is_selecting(name: &HeaderName) -> bool {
    let is_of = |family: &&str| name.as_str().starts_with(*family);
    !IGNORED.contains(name) && !IGNORED_FAMILIES.iter().any(is_of)
}

/// A digest of parts, each with its length: parts cannot be mistaken for others.
#[derive(Default)]
struct Digest(Sha256);

impl Digest {
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    fn key(server: &str, path: &str, fields: &[(&'static str, &'static str)]) -> Key {
        Asked { server, host: None, path, headers: &map(fields) }.key()
    }

    #[test]
    fn requests_for_the_same_share_and_all_others_do_not() {
        let (path, auth) = ("/api/events?types=a", ("authorization", "Bearer k1"));
        let first = key("http://a", path, &[auth]);
        let (plain, resumed) = ("/api/events", "/api/events?since=3");
        assert_eq!(key("http://a", plain, &[auth]), key("http://a", resumed, &[auth]));
        for (path, more) in [
            ("/api/events?types=a", ("user-agent", "b")),
            ("/api/events?types=a&since=5", ("x-forwarded-for", "::1")),
            ("/api/events?since=4&types=a", ("sec-fetch-mode", "cors")),
            ("/api/events?types=a&%73ince=4", ("origin", "https://a")),
            ("/api/events?types=a&last_event_id=4", ("last-event-id", "7")),
        ] {
            assert_eq!(key("http://a", path, &[auth, more]), first, "{path} {more:?}");
        }
        for (server, path, fields) in [
            ("http://b", path, vec![auth]),
            ("http://a", path, vec![]),
            ("http://a", path, vec![("authorization", "Bearer k2")]),
            ("http://a", path, vec![("authorization", "bearer k1")]),
            ("http://a", path, vec![auth, auth]),
            ("http://a", path, vec![auth, ("cookie", "a=1")]),
            ("http://a", path, vec![auth, ("restive-version", "2026-01-01")]),
            ("http://a", path, vec![auth, ("x-unknown", "1")]),
            ("http://a", "/api/events?types=b", vec![auth]),
            ("http://a", "/api/events?types=a&version=2026-01-01", vec![auth]),
            ("http://a", "/api/events?types=a&user=ann", vec![auth]),
            ("http://a", "/api/event?stypes=a", vec![auth]),
            ("http://a", "/api/events?types=a&access_token=ct_1", vec![auth]),
        ] {
            assert_ne!(key(server, path, &fields), first, "{server} {path} {fields:?}");
        }
    }

    #[test]
    fn a_request_is_sent_again_with_everything_but_its_position() {
        for (path, expected) in [
            ("/e", "/e"),
            ("/e?since=1", "/e"),
            ("/e?types=a&since=1&%73ince=2&last_event_id=3&wait=true", "/e?types=a&wait=true"),
            ("/e?&sinces=1", "/e?sinces=1"),
        ] {
            assert_eq!(without_position(path), expected, "{path}");
        }
    }

    #[test]
    fn the_position_is_the_one_that_the_server_uses() {
        for (path, fields, expected) in [
            ("/e", vec![], None),
            ("/e?since=5", vec![], Some("5")),
            ("/e?since=5&last_event_id=6", vec![], Some("6")),
            ("/e?%73ince=%35", vec![], Some("5")),
            ("/e?since=5", vec![("last-event-id", "7")], Some("7")),
            ("/e?since=5", vec![("last-event-id", "")], Some("5")),
            ("/e?sinces=5", vec![], None),
        ] {
            let asked = Asked { server: "a", host: None, path, headers: &map(&fields) };
            assert_eq!(asked.position().as_deref(), expected, "{path} {fields:?}");
        }
    }
}
