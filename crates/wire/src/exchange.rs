//! The two values that cross the seam: what was asked and what is answered.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, Uri, Version};

use crate::body::Body;
use crate::hints::Hints;
use crate::memory::Holder;
use crate::payload::Payload;
use crate::tls::ClientCertificate;

/// One request as the service sees it, already admitted: framing is unambiguous, there is exactly
/// one valid `Host` (HTTP/1.0 may have none), and `uri` is in origin form: the path begins with
/// `/`, or is `*` for `OPTIONS`. The authority of an absolute-form request is in its `Host`.
///
/// What came by HTTP/2 or HTTP/3 looks the same: `:authority` is in `Host`, cookies are one field.
/// A WebSocket (extended CONNECT, RFC 8441 and 9220) is a `GET` with `Upgrade: websocket`, without
/// the key that proves an upgrade on HTTP/1.1; the service answers it 101 with a take-over, and
/// wire makes it 200.
#[derive(Debug)]
pub struct Exchange {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    /// The other end of the connection, which may be a proxy. On HTTP/3 it may move between two
    /// requests.
    pub peer: SocketAddr,
    /// Where the listener is bound: the address that the client has reached, if the listener is
    /// bound to one.
    pub local: SocketAddr,
    /// The client, as trusted proxies name it: the address for logs and limits, and for rules if
    /// it is known.
    pub client: IpAddr,
    /// Whether `client` is the client. False if the peer is a trusted proxy that names none:
    /// `client` is then the proxy itself.
    pub is_client_known: bool,
    /// The peer is a trusted proxy: what it forwards about its client counts.
    pub is_proxied: bool,
    /// The connection uses TLS.
    pub is_secure: bool,
    /// The host has another certificate than the one that the client has seen in its handshake.
    pub is_misdirected: bool,
    /// Under TLS, if clients are asked for one.
    pub client_certificate: Option<Arc<ClientCertificate>>,
    pub body: Body,
    /// Sends early hints (103) before the answer is made.
    pub hints: Hints,
}

impl Exchange {
    /// Takes the headers and the body out. The rest stays.
    pub fn take_message(&mut self) -> (HeaderMap, Body) {
        (std::mem::take(&mut self.headers), std::mem::replace(&mut self.body, Body::empty()))
    }

    /// Takes the request out. Its headers and its body are gone from this one.
    pub fn take(&mut self) -> Exchange {
        let (headers, body) = self.take_message();
        Exchange {
            method: self.method.clone(),
            uri: self.uri.clone(),
            version: self.version,
            headers,
            peer: self.peer,
            local: self.local,
            client: self.client,
            is_client_known: self.is_client_known,
            is_proxied: self.is_proxied,
            is_secure: self.is_secure,
            is_misdirected: self.is_misdirected,
            client_certificate: self.client_certificate.clone(),
            body,
            hints: self.hints.clone(),
        }
    }
}

/// An answer. Wire writes `Content-Length`, `Transfer-Encoding` and `Connection`, and `Date` where
/// it is missing; the service sets none of them. A `HEAD` request is answered by the service as if
/// it were `GET`: wire keeps the length and drops the body.
#[derive(Debug, Default)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Payload,
    pub holder: Holder,
    /// The request changed nothing, although its method is unsafe: the client can repeat it, so
    /// that this response is replaced by a refusal where there is no memory for it.
    pub is_repeatable: bool,
}

impl Response {
    pub fn new(status: StatusCode, body: impl Into<Payload>) -> Response {
        Response { status, body: body.into(), ..Response::default() }
    }
}
