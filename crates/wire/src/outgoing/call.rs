//! One request to be sent, and how long to wait for what. Values only.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::target::Target;
use crate::body::Body;

/// Is given each interim response: 100, 103 or any other 1xx but 101.
pub type Interim<'a> = dyn FnMut(StatusCode, HeaderMap) + Send + Sync + 'a;

/// One request to be sent.
pub struct Call<'a> {
    pub method: Method,
    pub target: &'a Target,
    /// Instead of the path of the target.
    pub path: Option<PathAndQuery>,
    /// Instead of the host of the target.
    pub host: Option<HeaderValue>,
    /// `Host`, `Content-Length`, `Transfer-Encoding` and `Connection` are written by wire; what
    /// stands here of them is ignored. `Upgrade` asks for an upgrade. With `Expect: 100-continue`
    /// the body waits for the server's word, unless the body is here already: then the field is
    /// not sent.
    pub headers: HeaderMap,
    pub body: Body,
    pub timeouts: CallTimeouts,
    pub retry: Retry,
    /// For [`super::Client::send`]: the body of the response is cut here, and the connection with
    /// it.
    pub max_response_bytes: usize,
    /// Says whether an address may be talked to. Asked for every address of a name.
    pub vet: &'a (dyn Fn(IpAddr) -> bool + Sync),
    pub names: Names,
    /// On whose behalf it is sent, where one account must not delay the lookups of others; `None`
    /// for the operator.
    pub account: Option<i64>,
    pub interim: Option<&'a mut Interim<'a>>,
}

/// How long each step may take, `Duration::MAX` for as long as it takes: a stream of events may be
/// silent for hours. Each of them is also bounded by the deadline.
#[derive(Clone, Copy, Debug)]
pub struct CallTimeouts {
    /// For the lookup of the name and the connection, together.
    pub connect: Duration,
    pub tls: Duration,
    /// From the last byte of the request to the whole head of the response.
    pub head: Duration,
    /// Longest pause in which the server takes no byte of the request.
    pub send: Duration,
    /// Longest pause in which the server sends no byte of the body of the response.
    pub stall: Duration,
    /// The end of all of it, with retries and bodies.
    pub deadline: Option<Instant>,
}

/// When a request may be sent a second time: only once, only after the server closed a kept
/// connection without a byte of a response, and only if the body is whole or was not begun. A
/// request of which no byte was sent is sent again in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    /// If its method is idempotent (RFC 9110 9.2.2).
    Idempotent,
    /// Always: the server recognises a repeated request, for example by its Idempotency-Key.
    Replayable,
}

/// How host names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// As the system is set up: hosts file and search domains. For names the operator chose.
    AsConfigured,
    /// Without search domains, so that a stranger's name cannot become one of ours. `localhost`
    /// alone is still looked for in the hosts file.
    Absolute,
}

impl<'a> Call<'a> {
    /// Without headers and body, to a target that the operator chose: no address is refused.
    pub fn new(method: Method, target: &'a Target) -> Call<'a> {
        Call {
            method,
            target,
            path: None,
            host: None,
            headers: HeaderMap::new(),
            body: Body::empty(),
            timeouts: CallTimeouts::default(),
            retry: Retry::Idempotent,
            max_response_bytes: 0,
            vet: &|_| true,
            names: Names::AsConfigured,
            account: None,
            interim: None,
        }
    }

    /// Whether part of the body was taken by a call that failed: it cannot be sent again.
    pub fn is_spent(&self) -> bool {
        self.body.is_spent()
    }
}

impl CallTimeouts {
    /// As long as it takes, but no longer than this.
    pub fn until(deadline: Instant) -> CallTimeouts {
        let longest = Duration::MAX;
        CallTimeouts {
            connect: longest,
            tls: longest,
            head: longest,
            send: longest,
            stall: longest,
            deadline: Some(deadline),
        }
    }
}

/// What a proxy gives its backends: connections are made at once or not at all, responses may need
/// some work.
impl Default for CallTimeouts {
    fn default() -> CallTimeouts {
        CallTimeouts {
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(5),
            head: Duration::from_secs(30),
            send: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            deadline: None,
        }
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and body may hold secrets.
        let Call { method, target, .. } = self;
        f.debug_struct("Call").field("method", method).field("target", target).finish()
    }
}
