//! The request fields that a response depends on (`Vary`, RFC 9111 4.1). No I/O.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, FORWARDED, HeaderName, VARY, VIA};
use sha2::{Digest as _, Sha256};

/// Fields that the proxy writes for each request: the value that the backend saw is not the
/// client's, so a response that depends on one cannot be matched.
const OWN: [HeaderName; 8] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("client-cert"),
    HeaderName::from_static("client-cert-chain"),
    HeaderName::from_static("x-client-subject"),
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-request-id"),
];

/// The names of a `Vary` field and the values that a request has for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection(Vec<(HeaderName, Value)>);

/// The value of a field in a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Absent,
    Plain(Vec<u8>),
    /// Credentials are kept as digests only.
    Digest([u8; 32]),
}

impl Selection {
    /// The selection of a response to this request. None if it matches no other request.
    pub(crate) fn of(response: &HeaderMap, request: &HeaderMap) -> Option<Selection> {
        let mut selection = Selection::default();
        for value in response.get_all(VARY) {
            for name in value.to_str().ok()?.split(',').map(str::trim).filter(|n| !n.is_empty()) {
                let name: HeaderName = name.parse().ok().filter(|_| name != "*")?;
                if OWN.contains(&name) {
                    return None;
                }
                if !selection.0.iter().any(|(known, _)| *known == name) {
                    let value = value_of(&name, request);
                    selection.0.push((name, value));
                }
            }
        }
        Some(selection)
    }

    pub(crate) fn matches(&self, request: &HeaderMap) -> bool {
        self.0.iter().all(|(name, value)| value_of(name, request) == *value)
    }

    /// A number for the values that this request has for the same names.
    pub(crate) fn fingerprint(&self, request: &HeaderMap) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, _) in &self.0 {
            (name.as_str(), value_of(name, request)).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        let value = |value: &Value| match value {
            Value::Plain(bytes) => bytes.len(),
            Value::Absent | Value::Digest(_) => 0,
        };
        self.0.iter().map(|(name, of)| name.as_str().len() + value(of) + 64).sum()
    }
}

/// All values of the field, without the white space that has no meaning.
fn value_of(name: &HeaderName, request: &HeaderMap) -> Value {
    let mut values = request.get_all(name).iter().peekable();
    if values.peek().is_none() {
        return Value::Absent;
    }
    let mut joined = Vec::new();
    for value in values {
        for part in value.as_bytes().split(|byte| *byte == b',') {
            joined.extend_from_slice(part.trim_ascii());
            joined.push(b',');
        }
    }
    match *name == AUTHORIZATION || *name == COOKIE {
        true => Value::Digest(Sha256::digest(&joined).into()),
        false => Value::Plain(joined),
    }
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
    fn a_response_matches_requests_with_the_same_values() {
        let request = map(&[("accept", "a, b"), ("accept-encoding", "gzip")]);
        let response = map(&[("vary", "Accept,accept-encoding"), ("vary", "x-a")]);
        let selection = Selection::of(&response, &request).unwrap();
        for (other, expected) in [
            (&[("accept", "a,b"), ("accept-encoding", "gzip")][..], true),
            (&[("accept", "a"), ("accept", "b"), ("accept-encoding", "gzip")], true),
            (&[("accept", "a, b"), ("accept-encoding", "gzip"), ("x-b", "1")], true),
            (&[("accept", "b, a"), ("accept-encoding", "gzip")], false),
            (&[("accept", "a, b")], false),
            (&[("accept", "a, b"), ("accept-encoding", "gzip"), ("x-a", "")], false),
        ] {
            assert_eq!(selection.matches(&map(other)), expected, "{other:?}");
        }
    }

    #[test]
    fn some_responses_match_no_other_request() {
        for vary in ["*", "accept, *", "X-Forwarded-For", "via", "bad name"] {
            assert_eq!(Selection::of(&map(&[("vary", vary)]), &HeaderMap::new()), None, "{vary}");
        }
        let selection = Selection::of(&map(&[("vary", "cookie")]), &map(&[("cookie", "secret")]));
        assert!(!format!("{selection:?}").contains("115, 101"), "no secret is kept");
    }
}
