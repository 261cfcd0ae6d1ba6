//! Where a URL leads: taken apart once, so that a call over a kept connection has nothing left to
//! parse. Does not judge whether the place may be called.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri};
use rustls::pki_types::ServerName;

use super::fault::OutgoingFault;

/// A URL that can be called. Cheap to clone.
#[derive(Clone)]
pub struct Target {
    pub(super) origin: Arc<Origin>,
    pub(super) path: Uri,
    host_header: HeaderValue,
}

/// What connections are shared by.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) host: Host,
    pub(super) port: u16,
    /// The name the certificate must carry; none for plain HTTP.
    pub(super) secure: Option<ServerName<'static>>,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) enum Host {
    Literal(IpAddr),
    /// In lower case.
    Name(String),
}

impl Target {
    pub fn parse(url: &str) -> Result<Target, OutgoingFault> {
        let fault = OutgoingFault::Url;
        let uri: Uri = url.parse().map_err(|_| fault("is not valid"))?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(fault("must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or(fault("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(fault("must not carry a user name or password"));
        }
        let host = Host::parse(authority.host()).ok_or(fault("has no valid host"))?;
        let port = match &authority.as_str()[authority.host().len()..] {
            "" | ":" => Some(if secure { 443 } else { 80 }),
            port => port[1..].parse().ok().filter(|port| *port != 0),
        };
        let port = port.ok_or(fault("has no valid port"))?;
        let secure = match secure {
            true => Some(host.server_name().ok_or(fault("has no valid host"))?),
            false => None,
        };
        let host_header = HeaderValue::from_str(authority.as_str());
        let host_header = host_header.map_err(|_| fault("has no valid host"))?;
        let path = uri.path_and_query().cloned();
        let path = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        Ok(Target { origin: Arc::new(Origin { host, port, secure }), path, host_header })
    }

    /// A map to add a call's headers to; `Host` stands first in it, as some servers want it.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(HOST, self.host_header.clone());
        headers
    }

    pub(super) fn host_header(&self) -> HeaderValue {
        self.host_header.clone()
    }
}

impl Host {
    fn parse(host: &str) -> Option<Host> {
        if let Some(inner) = host.strip_prefix('[') {
            let address = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Host::Literal(IpAddr::V6(address)));
        }
        if let Ok(address) = host.parse() {
            return Some(Host::Literal(IpAddr::V4(address)));
        }
        (!host.is_empty()).then(|| Host::Name(host.to_ascii_lowercase()))
    }

    fn server_name(&self) -> Option<ServerName<'static>> {
        match self {
            Host::Literal(address) => Some(ServerName::from(*address)),
            Host::Name(name) => ServerName::try_from(name.clone()).ok(),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.origin.secure.is_some() { "https" } else { "http" };
        let host = self.host_header.to_str().unwrap_or_default();
        write!(f, "Target({scheme}://{host}{})", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_or_refused_with_its_reason() {
        for (url, port, host, path) in [
            ("http://a", 80, "a", "/"),
            ("https://A.example/x?y=1#z", 443, "A.example", "/x?y=1"),
            ("HTTP://a:8080?q", 8080, "a:8080", "/?q"),
            ("https://[::1]:9/", 9, "[::1]:9", "/"),
            ("http://127.0.0.1:/", 80, "127.0.0.1:", "/"),
            ("https://[64:ff9b::8.8.8.8]/", 443, "[64:ff9b::8.8.8.8]", "/"),
            ("https://_my_app.0x.example?a/b?c", 443, "_my_app.0x.example", "/?a/b?c"),
            ("https://a/~b/(c);d='e',!*$&+@:%2F", 443, "a", "/~b/(c);d='e',!*$&+@:%2F"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.origin.port, target.host_header.to_str().unwrap()), (port, host));
            assert_eq!(target.path, path, "{url}");
            assert_eq!(target.origin.secure.is_some(), url.starts_with("https"));
        }
        for url in [
            "",
            "/",
            "a",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://u@a/",
            "http://u:p@a/",
            "http://a:0/",
            "http://a:65536/",
            "http://a:x/",
            "http://[::1/",
            "http://[::1%251]/",
            "http://[a]/",
            "https://a b/",
            "https://-a/",
        ] {
            assert_eq!(
                Target::parse(url).map_err(|fault| fault.class()).err(),
                Some("url"),
                "{url}"
            );
        }
    }

    #[test]
    fn the_same_place_spelled_differently_shares_its_connections() {
        let origin = |url| Target::parse(url).unwrap().origin;
        assert!(origin("http://EXAMPLE.com/a") == origin("http://example.com:80/b"));
        assert!(origin("http://a/") != origin("https://a:80/"));
        assert!(origin("http://a/") != origin("http://a:81/"));
    }
}
