//! The configuration of the proxy: which hosts it serves, which routes they have, and which
//! backends the routes lead to. Read once from TOML or from flags; nothing here does I/O.

mod cors;
mod parse;
mod reader;

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use wire::outgoing::{Protocol, ProxyProtocol, Target};

pub use cors::{Cors, OriginPattern};
pub use parse::parse;
pub use reader::ConfigError;

/// Everything that a reload replaces.
#[derive(Debug)]
pub struct Config {
    pub groups: Vec<Group>,
    pub sites: Vec<Site>,
    /// The memory of the cache; 0 turns it off.
    pub cache_bytes: u64,
}

/// Backends that serve the same content.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub servers: Vec<Server>,
    pub balance: Balance,
    pub check: Option<Check>,
    /// The most requests that one server answers at a time. More wait.
    pub max_active: usize,
    /// The most requests that wait for one server; more are answered 503.
    pub max_waiting: usize,
    /// What is spoken with the servers.
    pub protocol: Protocol,
    /// Connections begin with the PROXY protocol, which names the client.
    pub send_proxy: Option<ProxyProtocol>,
    /// Its servers get the edge secret, by which they report their commits.
    pub is_followed: bool,
    /// The service in this process, which is called without a socket.
    pub is_local: bool,
}

/// One backend server.
#[derive(Clone, Debug)]
pub struct Server {
    /// As the file has it; the label in metrics, logs and `explain`.
    pub url: String,
    pub target: Target,
    pub weight: u32,
}

/// How a server of a group is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in progress, by weight.
    LeastConnections,
    /// The same client address always has the same server, while that one is healthy.
    ClientHash,
}

impl Balance {
    pub fn name(self) -> &'static str {
        match self {
            Balance::RoundRobin => "round_robin",
            Balance::LeastConnections => "least_connections",
            Balance::ClientHash => "client_hash",
        }
    }
}

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub path: String,
    pub interval: Duration,
    pub timeout: Duration,
    /// Successes in a row after which a server is healthy again.
    pub rise: u32,
    /// Failures in a row after which a server is unhealthy.
    pub fall: u32,
}

impl Default for Check {
    /// HAProxy's values: a server leaves after 6 s and returns after 4 s.
    fn default() -> Check {
        Check {
            path: "/health".to_owned(),
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
        }
    }
}

/// The routes of some hosts.
#[derive(Clone, Debug)]
pub struct Site {
    /// Empty: every host that no other site has.
    pub hosts: Vec<HostPattern>,
    pub routes: Vec<Route>,
    /// Whether `X-Frame-Options`, `X-Content-Type-Options` and, over TLS,
    /// `Strict-Transport-Security` are added.
    pub security_headers: bool,
}

/// A host name, or `*.` and a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// In lower case, without a port.
    Exact(String),
    /// The domain with its leading dot: matches every name that ends with it.
    Below(String),
}

/// What happens with requests for some paths.
#[derive(Clone, Debug)]
pub struct Route {
    pub path: PathPattern,
    pub action: Action,
    pub timeouts: Timeouts,
    pub max_body_bytes: u64,
    pub request_headers: Edits,
    pub response_headers: Edits,
    pub rate_limit: Option<RateLimit>,
    /// Which pages of other origins may use it. None: the servers decide.
    pub cors: Option<Cors>,
    /// Whether responses are compressed that gain from it.
    pub compress: bool,
    /// Whether responses are stored and used again, as far as they allow it.
    pub cache: bool,
    /// Whether clients of restive backends share event streams.
    pub fanout: bool,
    /// Whether links of earlier responses are sent in a 103.
    pub early_hints: bool,
}

/// An exact path, or a prefix that ends with `/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// Ends with `/`.
    Prefix(String),
}

#[derive(Clone, Debug)]
pub enum Action {
    Forward {
        group: usize,
        /// Removed from the path of forwarded requests.
        strip_prefix: Option<String>,
    },
    Files {
        folder: PathBuf,
    },
    Redirect {
        to: String,
        status: StatusCode,
    },
}

/// How long each step of a forwarded request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// Between two writes of the request.
    pub send: Duration,
    /// Until the head of the response, and between two of its pieces.
    pub read: Duration,
    /// Until the head of the response to a long poll.
    pub long_poll: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(5),
            send: Duration::from_secs(10),
            read: Duration::from_secs(30),
            // Twice what a long poll of restive waits.
            long_poll: Duration::from_secs(60),
        }
    }
}

/// Changes of headers, applied in the order of the fields.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    pub remove: Vec<HeaderName>,
    pub set: Vec<(HeaderName, HeaderValue)>,
}

impl Edits {
    /// The fields that change.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove.iter().chain(self.set.iter().map(|(name, _)| name))
    }
}

/// Requests per client address and window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub requests: u32,
    pub window: Duration,
}

/// Requests in progress per server, with streams and sockets. 10,000: a third of the ports that
/// connections to one address can have.
pub const MAX_ACTIVE: usize = 10_000;
/// Requests that wait for a place at one server. 1,024: about a second's work of a busy server.
pub const MAX_WAITING: usize = 1_024;
/// Bodies above this size are refused with 413. 64 MiB: nginx's 1 MiB is the most frequent
/// surprise of its users, and a limit protects backends that read bodies into memory.
pub const MAX_BODY_BYTES: u64 = 64 << 20;

/// The memory of the cache. 64 MiB: some ten thousand pages, on any machine.
pub const CACHE_BYTES: u64 = 64 << 20;

/// The name of the backend that is the service in this process.
pub const LOCAL: &str = "self";

impl Config {
    /// All requests go to these servers, with the default settings.
    pub fn simple(servers: &[String]) -> Result<Config, String> {
        let mut group = Group { is_followed: true, ..Group::new("default") };
        for url in servers {
            group.servers.push(Server::parse(url, 1).map_err(|why| format!("`{url}` {why}"))?);
        }
        Ok(Config::of(group))
    }

    /// All requests go to the service in this process, with the default settings.
    pub fn local() -> Result<Config, String> {
        Ok(Config::of(Group::local()?))
    }

    fn of(group: Group) -> Config {
        let route = Route::new(
            PathPattern::Prefix("/".to_owned()),
            Action::Forward { group: 0, strip_prefix: None },
        );
        let site = Site { hosts: Vec::new(), routes: vec![route], security_headers: true };
        Config { groups: vec![group], sites: vec![site], cache_bytes: CACHE_BYTES }
    }
}

impl Group {
    pub fn new(name: impl Into<String>) -> Group {
        Group {
            name: name.into(),
            servers: Vec::new(),
            balance: Balance::default(),
            check: Some(Check::default()),
            max_active: MAX_ACTIVE,
            max_waiting: MAX_WAITING,
            protocol: Protocol::Negotiated,
            send_proxy: None,
            is_followed: false,
            is_local: false,
        }
    }

    /// The service in this process.
    pub fn local() -> Result<Group, String> {
        let url = format!("http://{LOCAL}/");
        let target = Target::parse(&url).map_err(|fault| fault.to_string())?;
        // A name for metrics and logs; nobody connects to it.
        let servers = vec![Server { url: LOCAL.to_owned(), target, weight: 1 }];
        Ok(Group { servers, check: None, is_local: true, ..Group::new(LOCAL) })
    }
}

impl Server {
    /// Whether requests reach it in the same way, with the same share.
    pub(crate) fn is_same(&self, other: &Server) -> bool {
        self.url == other.url && self.weight == other.weight
    }

    /// An address such as `127.0.0.1:8080`, or a URL without a path.
    pub fn parse(url: &str, weight: u32) -> Result<Server, String> {
        let full = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let uri: http::Uri = full.parse().map_err(|_| "is not an address or URL".to_owned())?;
        if uri.path() != "/" && !uri.path().is_empty() || uri.query().is_some() {
            return Err("has a path; write host and port only".to_owned());
        }
        if uri.port_u16().is_none() && !url.contains("://") {
            return Err("has no port; write it as host:port".to_owned());
        }
        let target = Target::parse(&full).map_err(|fault| format!("is not usable: {fault}"))?;
        Ok(Server { url: full.trim_end_matches('/').to_owned(), target, weight })
    }
}

impl Route {
    pub fn new(path: PathPattern, action: Action) -> Route {
        Route {
            path,
            action,
            timeouts: Timeouts::default(),
            max_body_bytes: MAX_BODY_BYTES,
            request_headers: Edits::default(),
            response_headers: Edits::default(),
            rate_limit: None,
            cors: None,
            compress: true,
            cache: true,
            fanout: true,
            early_hints: true,
        }
    }
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<HostPattern, String> {
        let lower = text.to_ascii_lowercase();
        let (pattern, name) = match lower.strip_prefix("*.") {
            Some(rest) => (HostPattern::Below(format!(".{rest}")), rest.to_owned()),
            None => (HostPattern::Exact(lower.clone()), lower.clone()),
        };
        let letters = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
        match !name.is_empty() && name.chars().all(letters) {
            true => Ok(pattern),
            false => Err(format!("`{text}` is not a host name or `*.` and a domain")),
        }
    }

    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => name == host,
            HostPattern::Below(domain) => {
                host.len() > domain.len() && host.ends_with(domain.as_str())
            }
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(domain) => write!(f, "*{domain}"),
        }
    }
}

impl PathPattern {
    pub fn parse(text: &str) -> Result<PathPattern, String> {
        let (head, prefix) = match text.strip_suffix('*') {
            Some(head) => (head, true),
            None => (text, false),
        };
        if !head.starts_with('/') || head.contains(['*', '?', '#', ' ']) {
            return Err(format!("`{text}` is not a path such as `/about` or `/v1/*`"));
        }
        match prefix {
            true if !head.ends_with('/') => {
                Err(format!("`{text}`: write `{head}/*`; a prefix ends at a `/`"))
            }
            true => Ok(PathPattern::Prefix(head.to_owned())),
            false => Ok(PathPattern::Exact(head.to_owned())),
        }
    }

    /// `/v1/*` also matches `/v1`.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            PathPattern::Exact(exact) => exact == path,
            PathPattern::Prefix(prefix) => {
                path.starts_with(prefix.as_str()) || Some(path) == prefix.strip_suffix('/')
            }
        }
    }

    /// The rest of a path behind a prefix, with its leading `/`; the whole path otherwise.
    pub fn rest<'p>(&self, path: &'p str) -> &'p str {
        match self {
            PathPattern::Exact(_) => path,
            PathPattern::Prefix(prefix) => path.get(prefix.len() - 1..).unwrap_or("/"),
        }
    }

    /// Exact patterns are tried first, then the longest prefix.
    pub(crate) fn precedence(&self) -> (bool, usize) {
        match self {
            PathPattern::Exact(exact) => (true, exact.len()),
            PathPattern::Prefix(prefix) => (false, prefix.len()),
        }
    }
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PathPattern::Exact(exact) => f.write_str(exact),
            PathPattern::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl RateLimit {
    /// `100/1s`.
    pub fn parse(text: &str) -> Option<RateLimit> {
        let (requests, window) = text.split_once('/')?;
        let requests = requests.trim().parse().ok().filter(|requests| *requests > 0)?;
        let window = reader::duration(window.trim()).filter(|w| *w >= Duration::from_secs(1))?;
        Some(RateLimit { requests, window })
    }
}
