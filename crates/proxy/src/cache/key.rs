//! The key of a stored response, and which requests the cache leaves alone. Everything that the
//! backend sees and that can change its response is in the key, in `Vary`, or keeps the request
//! from the cache.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, IF_MATCH, IF_UNMODIFIED_SINCE, UPGRADE,
};
use http::{HeaderMap, Method};
use sha2::{Digest as _, Sha256};
use wire::{Exchange, wants_events};

use crate::config::{Action, Group, Route};
use crate::forward::is_long_poll;
use crate::route::{self, ServedSite};

/// Fields by which frameworks change the method or the path of a request. A response to such a
/// request is not one to the request that the key names.
const OVERRIDES: [HeaderName; 11] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-host"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-forwarded"),
    HeaderName::from_static("x-http-host-override"),
    HeaderName::from_static("x-middleware-subrequest"),
];

/// What a stored response is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The route and its backend with their settings: a reload that changes them changes the key.
    route: u64,
    /// Scheme, host, path and query, and what a trusted proxy adds to them.
    text: Arc<str>,
    /// The text has a credential: only its holder gets the entry.
    pub(crate) is_private: bool,
}

/// The origin of a request: what its key has before the path.
pub(crate) struct Origin {
    text: String,
    /// The host is in its normal form. Others may read the cache and not fill it: a backend that
    /// repeats the host in its response would repeat theirs to everybody.
    pub(crate) is_normal: bool,
    /// What a trusted proxy says about the URL.
    forwarded: String,
}

impl Origin {
    pub(crate) fn of(exchange: &Exchange, is_trusted: bool) -> Origin {
        let host = exchange.headers.get(HOST).and_then(|host| host.to_str().ok());
        let mut origin = Origin::new(exchange.is_secure, host.unwrap_or_default());
        if is_trusted {
            for (field, value) in &exchange.headers {
                let field = field.as_str();
                if field.starts_with("x-forwarded-") && field != "x-forwarded-for" {
                    let value = String::from_utf8_lossy(value.as_bytes());
                    // Writing to a string cannot fail.
                    let _ = write!(origin.forwarded, "\n{field}:{value}");
                }
            }
        }
        origin
    }

    pub(crate) fn new(is_secure: bool, host: &str) -> Origin {
        let (scheme, port) = if is_secure { ("https", ":443") } else { ("http", ":80") };
        let lower = host.to_ascii_lowercase();
        let name = lower.strip_suffix(port).unwrap_or(&lower);
        let name = name.strip_suffix('.').unwrap_or(name);
        let (text, is_normal) = (format!("{scheme}://{name}"), name == host);
        Origin { text, is_normal, forwarded: String::new() }
    }

    /// The key of a request. `path` is the path and query for the backend.
    pub(crate) fn key(&self, route: u64, path: &str) -> Key {
        let text = [&self.text, path, &self.forwarded].concat();
        Key { route, text: text.into(), is_private: false }
    }

    /// The key of a URL in a response, if it has the same origin (RFC 9111 4.4).
    pub(crate) fn key_of_url(&self, site: &ServedSite, url: &str) -> Option<Key> {
        let below = match url.strip_prefix(&self.text) {
            Some(below) => below,
            None if url.starts_with("//") => {
                url.strip_prefix(self.text.split_once(':').map(|(_, host)| host)?)?
            }
            None => url,
        };
        let below = below.split('#').next().filter(|below| below.starts_with('/'))?;
        let (path, query) = match below.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (below, None),
        };
        let normal = route::normal(path).ok()?;
        let path = normal.as_deref().unwrap_or(path);
        let served = site.route(path).ok()??;
        let Action::Forward { strip_prefix, .. } = &served.route.action else { return None };
        let forwarded = route::forwarded(path, query, strip_prefix.as_deref());
        Some(self.key(served.identity, forwarded.ok()?.as_str()))
    }
}

impl Key {
    /// The key of the entry that only the holder of this credential gets.
    pub(crate) fn private(&self, credential: &[u8]) -> Key {
        let mut text = String::from(&*self.text);
        text.push_str("\nauthorization:");
        for byte in Sha256::digest(credential) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Key { route: self.route, text: text.into(), is_private: true }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.route, &*self.text).hash(&mut hasher);
        hasher.finish()
    }

    /// For people: `explain`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Names a route with all settings that change what its backend sees and how it responds.
pub(crate) fn identity(site: &str, route: &Route, groups: &[Group]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (site, format!("{route:?}")).hash(&mut hasher);
    if let Action::Forward { group, .. } = route.action
        && let Some(group) = groups.get(group)
    {
        let servers = group.servers.iter().map(|server| server.url.as_str());
        (&group.name, servers.collect::<Vec<_>>()).hash(&mut hasher);
    }
    hasher.finish()
}

/// What the cache does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It is answered from the cache, and its response may be stored.
    Cached,
    /// It is forwarded as it is. The text is the `detail` of `Cache-Status`.
    Bypass(&'static str),
    /// It may change what is stored (RFC 9110 9.2.1).
    Unsafe,
    /// It has nothing to do with the cache.
    Other,
}

impl Class {
    pub(crate) fn of(exchange: &Exchange) -> Class {
        let headers = &exchange.headers;
        match exchange.method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS | Method::TRACE => return Class::Other,
            _ => return Class::Unsafe,
        }
        let is_live = wants_events(headers) || is_long_poll(&exchange.method, &exchange.uri);
        if headers.contains_key(UPGRADE) || is_live {
            return Class::Other;
        }
        // A body of a GET is in no key.
        if exchange.body.declared_bytes() != Some(0) {
            return Class::Bypass("body");
        }
        // A field that the backend does not get would select a response all the same.
        if names_fields(headers) {
            return Class::Bypass("connection");
        }
        if OVERRIDES.iter().any(|name| headers.contains_key(name)) {
            return Class::Bypass("override");
        }
        if headers.contains_key(IF_MATCH) || headers.contains_key(IF_UNMODIFIED_SINCE) {
            return Class::Bypass("precondition");
        }
        Class::Cached
    }
}

/// Whether `Connection` names more fields than those of the connection itself: they are not
/// forwarded.
fn names_fields(headers: &HeaderMap) -> bool {
    const OWN: [&str; 5] = ["close", "keep-alive", "te", "upgrade", "http2-settings"];
    headers.get_all(CONNECTION).iter().any(|value| {
        let names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let is_own = |name: &[u8]| OWN.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()));
        names.into_iter().any(|name| !name.is_empty() && !is_own(name))
    })
}

/// Whether a proxy in front of this one, or a client that wants to be one, names a certificate.
pub(crate) fn has_certificate(headers: &HeaderMap) -> bool {
    const NAMES: [&str; 3] = ["client-cert", "client-cert-chain", "x-client-subject"];
    NAMES.iter().any(|name| headers.contains_key(*name))
}

/// The credential of a request.
pub(crate) fn credential(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut values = headers.get_all(AUTHORIZATION).iter().peekable();
    values.peek()?;
    let mut joined = Vec::new();
    for value in values {
        joined.extend_from_slice(value.as_bytes());
        joined.push(b'\n');
    }
    Some(joined)
}
