//! The two values that cross the seam: what was asked and what is answered.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, Version};

use crate::body::Body;

/// One request as the service sees it, already admitted: framing is unambiguous, there is exactly
/// one valid `Host` (HTTP/1.0 may have none), and `uri` is in origin form: the path begins with
/// `/`, or is `*` for `OPTIONS`. The authority of an absolute-form request equals its `Host`.
#[derive(Debug)]
pub struct Exchange {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    /// The other end of the TCP connection, which may be a proxy.
    pub peer: SocketAddr,
    pub body: Body,
}

/// A complete answer with a bounded body. Wire writes `Content-Length`, `Date` and `Connection`;
/// the service sets none of them. A `HEAD` request is answered by the service as if it were `GET`:
/// wire keeps the length and drops the body.
///
/// Streams, hints (103) and taking the connection over join here as further kinds of answer.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Response {
        Response { status, headers: HeaderMap::new(), body: body.into() }
    }
}
