//! Where a URL leads: taken apart once, so that a call over a kept connection has nothing left to
//! parse. Does not judge whether the place may be called.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri};
use rustls::pki_types::ServerName;

use super::backlog::{Backlog, Gate};
use super::fault::OutgoingFault;
use super::introduction::{Introduction, ProxyProtocol};
use super::trust::ClientTls;

/// What the system takes for the path of a socket, with a byte that ends it.
const SOCKET_PATH_BYTES: usize = 107;

/// A URL that can be called. Cheap to clone.
#[derive(Clone)]
pub struct Target {
    pub(super) origin: Arc<Origin>,
    pub(super) path: PathAndQuery,
    pub(super) host_header: HeaderValue,
    pub(super) gate: Option<Arc<Gate>>,
}

/// What connections are shared by.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) host: Host,
    pub(super) port: u16,
    /// The name the certificate must carry; none for plain HTTP.
    pub(super) secure: Option<ServerName<'static>>,
    /// Instead of what the client trusts.
    pub(super) tls: Option<ClientTls>,
    pub(super) protocol: Protocol,
    /// What connections begin with.
    pub(super) introduction: Option<Introduction>,
}

/// What is spoken with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    #[default]
    Http1,
    /// Without asking: by prior knowledge, or under TLS as the only offer.
    Http2,
    /// Under TLS what the server prefers, without TLS HTTP/1.1.
    Negotiated,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Literal(IpAddr),
    /// In lower case.
    Name(String),
    /// A socket in the file system.
    Unix(PathBuf),
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
        let path = match path {
            None => PathAndQuery::from_static("/"),
            Some(path) if path.as_str().starts_with('?') => {
                path.to_string().parse().map_err(|_| fault("is not valid"))?
            }
            Some(path) => path,
        };
        let origin = Origin {
            host,
            port,
            secure,
            tls: None,
            protocol: Protocol::default(),
            introduction: None,
        };
        Ok(Target { origin: Arc::new(origin), path, host_header, gate: None })
    }

    /// A server that listens on a socket in the file system, without TLS. It is called `localhost`
    /// unless a call names another host.
    pub fn unix(socket: impl AsRef<Path>) -> Result<Target, OutgoingFault> {
        let socket = socket.as_ref();
        if !socket.is_absolute() || socket.as_os_str().len() > SOCKET_PATH_BYTES {
            return Err(OutgoingFault::Url("is no absolute path of at most 107 bytes"));
        }
        let mut target = Target::parse("http://localhost/")?;
        target.change(|origin| origin.host = Host::Unix(socket.to_owned()));
        Ok(target)
    }

    pub fn with_protocol(mut self, protocol: Protocol) -> Target {
        self.change(|origin| origin.protocol = protocol);
        self
    }

    /// Connections begin with the PROXY protocol. See [`Target::for_client`].
    pub fn with_proxy_protocol(mut self, version: ProxyProtocol) -> Target {
        let introduction = Introduction { version, client: None };
        self.change(|origin| origin.introduction = Some(introduction));
        self
    }

    /// The same server for requests of this client, which has reached this address of ours. Its
    /// connections are used for no other client. None if the server is sent no PROXY protocol.
    pub fn for_client(&self, client: SocketAddr, reached: SocketAddr) -> Option<Target> {
        let introduction = self.origin.introduction?;
        let mut target = self.clone();
        target.change(|origin| {
            origin.introduction =
                Some(Introduction { client: Some((client, reached)), ..introduction });
        });
        Some(target)
    }

    /// Whom to trust, and who we are, at this server alone.
    pub fn with_tls(mut self, tls: ClientTls) -> Target {
        self.change(|origin| origin.tls = Some(tls));
        self
    }

    /// The name to ask for under TLS, and that the certificate must carry, instead of the host.
    pub fn with_server_name(mut self, name: &str) -> Result<Target, OutgoingFault> {
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| OutgoingFault::Url("has no valid server name"))?;
        self.change(|origin| {
            if let Some(secure) = &mut origin.secure {
                *secure = name;
            }
        });
        Ok(self)
    }

    /// Limits the calls to this target and to what is cloned from it, together.
    pub fn with_backlog(mut self, limits: Backlog) -> Target {
        self.gate = Some(Arc::new(Gate::new(limits)));
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut Origin)) {
        change(Arc::make_mut(&mut self.origin));
    }

    /// A map to add a call's headers to; `Host` stands first in it, as some servers want it.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(HOST, self.host_header.clone());
        headers
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Origin) -> bool {
        let same_tls = match (&self.tls, &other.tls) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is(other),
            _ => false,
        };
        same_tls
            && self.port == other.port
            && self.protocol == other.protocol
            && self.introduction == other.introduction
            && self.host == other.host
            && self.secure == other.secure
    }
}

impl Eq for Origin {}

impl Hash for Origin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The name under TLS and the protocol seldom differ for one place.
        self.host.hash(state);
        self.port.hash(state);
        self.tls.as_ref().map(ClientTls::address).hash(state);
        self.introduction.hash(state);
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
            Host::Unix(_) => None,
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.origin.secure.is_some() { "https" } else { "http" };
        if let Host::Unix(socket) = &self.origin.host {
            return write!(f, "Target(unix:{})", socket.display());
        }
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
