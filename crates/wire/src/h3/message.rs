//! A block of fields as the head of a request (RFC 9114 4): what breaks the rules of the protocol
//! is no request. What only another server in the chain might read differently is left to
//! `admission`. No I/O.

use bytes::Bytes;
use http::header::TE;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::qpack::{DecodeError, Fields};
use crate::fields::is_hop_by_hop;

/// What each field counts beside its name and value (RFC 9114 4.2.2).
const FIELD_BYTES: usize = 32;

/// Why a block of fields is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No fields at all.
    Unreadable,
    /// Not those of a request.
    Malformed,
    TooLarge,
}

impl From<DecodeError> for Refusal {
    fn from(_: DecodeError) -> Refusal {
        Refusal::Unreadable
    }
}

/// What the pseudo-header fields say.
#[derive(Debug, Default)]
struct Pseudo {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    protocol: Option<Bytes>,
}

/// A request's head and its `:protocol`.
pub(super) fn request(block: Bytes, limit: usize) -> Result<(Parts, Option<Bytes>), Refusal> {
    let mut pseudo = Pseudo::default();
    let headers = read(block, limit, |name, value| pseudo.set(name, value))?;
    let (method, uri, protocol) = pseudo.target().ok_or(Refusal::Malformed)?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = method;
    parts.uri = uri;
    parts.version = Version::HTTP_3;
    parts.headers = headers;
    Ok((parts, protocol))
}

pub(super) fn trailers(block: Bytes, limit: usize) -> Result<HeaderMap, Refusal> {
    read(block, limit, |_, _| None)
}

/// Each field, those that begin with a colon to `pseudo`, before all others.
fn read(
    block: Bytes,
    limit: usize,
    mut pseudo: impl FnMut(&[u8], Bytes) -> Option<()>,
) -> Result<HeaderMap, Refusal> {
    let mut fields = Fields::read(block)?;
    let mut headers = HeaderMap::new();
    let mut size = 0;
    while let Some((name, value)) = fields.next()? {
        size += name.len() + value.len() + FIELD_BYTES;
        if size > limit {
            return Err(Refusal::TooLarge);
        }
        match name.strip_prefix(b":") {
            Some(name) if headers.is_empty() => pseudo(name, value).ok_or(Refusal::Malformed)?,
            Some(_) => return Err(Refusal::Malformed),
            None => {
                // This takes no capitals.
                let name = HeaderName::from_lowercase(&name).map_err(|_| Refusal::Malformed)?;
                let value =
                    HeaderValue::from_maybe_shared(value).map_err(|_| Refusal::Malformed)?;
                // `te` alone may say that trailers are welcome.
                if is_hop_by_hop(&name) && !(name == TE && value == "trailers") {
                    return Err(Refusal::Malformed);
                }
                headers.append(name, value);
            }
        }
    }
    Ok(headers)
}

impl Pseudo {
    /// None for one that is not a request's, is not valid, or comes twice.
    fn set(&mut self, name: &[u8], value: Bytes) -> Option<()> {
        let is_new = match name {
            b"method" => self.method.replace(Method::from_bytes(&value).ok()?).is_none(),
            b"scheme" => self.scheme.replace(Scheme::try_from(&*value).ok()?).is_none(),
            b"authority" => {
                let authority = Authority::from_maybe_shared(value).ok()?;
                self.authority.replace(authority).is_none()
            }
            b"path" => {
                let path = PathAndQuery::from_maybe_shared(value.clone()).ok()?;
                // The parser forgives what does not begin as a path.
                let whole =
                    matches!(&*value, [b'/', ..] | b"*") && path.as_str().as_bytes() == value;
                whole.then(|| self.path.replace(path).is_none())?
            }
            b"protocol" => self.protocol.replace(value).is_none(),
            _ => false,
        };
        is_new.then_some(())
    }

    /// Everything that must be there, and nothing that must not (RFC 9114 4.3.1 and 4.4).
    fn target(self) -> Option<(Method, Uri, Option<Bytes>)> {
        let method = self.method?;
        let mut uri = http::uri::Parts::default();
        uri.authority = self.authority;
        if method == Method::CONNECT && self.protocol.is_none() {
            let bare = self.scheme.is_none() && self.path.is_none() && uri.authority.is_some();
            return bare.then(|| Some((method, Uri::from_parts(uri).ok()?, None)))?;
        }
        if self.protocol.is_some() && (method != Method::CONNECT || uri.authority.is_none()) {
            return None;
        }
        let (scheme, path) = (self.scheme?, self.path?);
        if uri.authority.is_some() {
            uri.scheme = Some(scheme);
        } else if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return None;
        }
        uri.path_and_query = Some(path);
        Some((method, Uri::from_parts(uri).ok()?, self.protocol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/one")];

    fn block(fields: &[(&str, &str)]) -> Bytes {
        let mut bytes = vec![0, 0];
        for (name, value) in fields {
            // A name of any length in three bits and more.
            bytes.extend_from_slice(&[0b0010_0111, u8::try_from(name.len() - 7).unwrap()]);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(u8::try_from(value.len()).unwrap());
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes.into()
    }

    /// Short names cannot stand in the form above.
    fn literal(fields: &[(&str, &str)]) -> Bytes {
        let mut bytes = vec![0, 0];
        for (name, value) in fields {
            if name.len() >= 7 {
                bytes.extend_from_slice(&block(&[(name, value)])[2..]);
                continue;
            }
            bytes.push(0b0010_0000 | u8::try_from(name.len()).unwrap());
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(u8::try_from(value.len()).unwrap());
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes.into()
    }

    fn judge(fields: &[(&str, &str)]) -> Result<String, Refusal> {
        let (parts, _) = request(literal(fields), 1000)?;
        Ok(format!("{} {}", parts.method, parts.uri))
    }

    #[test]
    fn a_head_becomes_a_request() {
        assert_eq!(judge(&GOOD).unwrap(), "GET https://a.example/one");
        let connect = [(":method", "CONNECT"), (":authority", "a.example:1")];
        assert_eq!(judge(&connect).unwrap(), "CONNECT a.example:1");
        let hosted = [(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", "a")];
        assert_eq!(judge(&hosted).unwrap(), "GET /");
    }

    #[test]
    fn heads_that_break_a_rule_are_refused() {
        let with = |name: &'static str, value| [&GOOD[..], &[(name, value)]].concat();
        let without = |name| GOOD.into_iter().filter(|(each, _)| *each != name).collect();
        let changed = |name, value| {
            GOOD.map(|(each, old)| if each == name { (each, value) } else { (each, old) }).to_vec()
        };
        let cases: [Vec<(&str, &str)>; 24] = [
            without(":method"),
            without(":scheme"),
            without(":path"),
            with(":method", "GET"),
            with(":path", "/two"),
            with(":authority", "a.example"),
            with(":scheme", "https"),
            with(":status", "200"),
            with(":unknown", "x"),
            with(":protocol", "websocket"),
            changed(":path", ""),
            changed(":path", "one"),
            changed(":path", "/a#b"),
            changed(":authority", ""),
            changed(":method", "G T"),
            [&[("accept", "x")], &GOOD[..]].concat(),
            with("connection", "close"),
            with("keep-alive", "x"),
            with("proxy-connection", "x"),
            with("transfer-encoding", "chunked"),
            with("upgrade", "x"),
            with("te", "gzip"),
            with("Accept", "x"),
            with("accept", "a\r\nb: c"),
        ];
        for case in cases {
            assert_eq!(judge(&case), Err(Refusal::Malformed), "{case:?}");
        }
        let connect = [(":method", "CONNECT"), (":authority", "a"), (":path", "/")];
        assert_eq!(judge(&connect), Err(Refusal::Malformed));
        assert!(judge(&with("te", "trailers")).is_ok());
    }

    #[test]
    fn heads_over_the_limit_are_too_large() {
        let value = "x".repeat(100);
        let many: Vec<(&str, &str)> = (0..8).map(|_| ("cookie", value.as_str())).collect();
        assert_eq!(judge(&[&GOOD[..], &many].concat()), Err(Refusal::TooLarge));
    }
}
