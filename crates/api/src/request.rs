//! A request to a resource that may run: the caller, the version, the body and headers. It owns all
//! of it, so that work that outlives the connection can keep it.

use crate::auth::Identity;
use crate::error::Shape;
use crate::route::Target;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use model::caller::Caller;
use model::version::View;
use model::write::Idempotency;
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) struct RequestInfo {
    pub id: Arc<str>,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The request body; empty for reads.
    pub body: Bytes,
    /// The client's address, as determined behind trusted proxies; `None` if a proxy named none.
    pub client: Option<IpAddr>,
    pub target: Target,
    pub identity: Arc<Identity>,
    /// The version of the request: request and response bodies have its shape.
    pub version: Arc<View>,
    pub error_shape: Shape,
    pub idempotency: Option<Idempotency>,
}

impl RequestInfo {
    pub fn caller(&self) -> &Caller {
        &self.identity.caller
    }

    pub fn path(&self) -> &str {
        self.uri.path()
    }

    pub fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    /// A copy for work after the request: without headers and body.
    pub fn detached(&self) -> RequestInfo {
        RequestInfo {
            id: self.id.clone(),
            method: self.method.clone(),
            uri: self.uri.clone(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            client: self.client,
            target: self.target.clone(),
            identity: self.identity.clone(),
            version: self.version.clone(),
            error_shape: self.error_shape,
            idempotency: self.idempotency.clone(),
        }
    }
}
