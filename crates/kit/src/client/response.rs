//! A complete response.

use super::Error;
use super::error::excerpt;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    cached: bool,
}

impl Response {
    pub(super) fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response {
        Response { status, headers, body, cached: false }
    }

    /// The stored response, after the server answered 304 with these headers.
    pub(super) fn revalidated(mut self, fresh: &HeaderMap) -> Response {
        for (name, value) in fresh {
            if name != http::header::CONTENT_LENGTH {
                self.headers.insert(name, value.clone());
            }
        }
        self.cached = true;
        self
    }

    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The first value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// For `If-Match`.
    pub fn etag(&self) -> Option<&str> {
        self.header("etag")
    }

    /// Where a stream continues after this list.
    pub fn position(&self) -> Option<&str> {
        self.header("x-stream-position")
    }

    /// Whether the body is the one of an earlier response: the server answered 304.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// Whether the server repeated the response to an earlier request with the same key.
    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The body as any type that serde can read.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let content_type = self.header("content-type").unwrap_or_default();
        if !content_type.contains("json") {
            return Err(Error::NotJson {
                status: self.status(),
                content_type: content_type.to_owned(),
                excerpt: excerpt(&self.body),
            });
        }
        serde_json::from_slice(&self.body).map_err(|error| Error::Unexpected(error.to_string()))
    }

    /// The body as JSON.
    pub fn value(&self) -> Result<Value, Error> {
        self.json()
    }
}
