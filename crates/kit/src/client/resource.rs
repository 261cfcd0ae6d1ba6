//! The methods on a collection and its records.

use super::address::encode;
use super::{Client, Error, Request, Response};
use http::Method;
use serde::Serialize;

/// A collection, such as `/v1/books`.
#[derive(Clone, Debug)]
pub struct Resource {
    client: Client,
    path: String,
}

impl Resource {
    pub(super) fn new(client: Client, path: String) -> Resource {
        Resource { client, path }
    }

    /// The list: add filters with [`Request::query`], then read [`Request::records`].
    pub fn list(&self) -> Request {
        self.client.request(Method::GET, &self.path)
    }

    pub fn get(&self, id: &str) -> Request {
        self.on(Method::GET, id, "")
    }

    pub async fn create(&self, fields: &impl Serialize) -> Result<Response, Error> {
        self.client.request(Method::POST, &self.path).json(fields).send().await
    }

    /// Replaces a record: omitted fields are erased.
    pub async fn replace(&self, id: &str, fields: &impl Serialize) -> Result<Response, Error> {
        self.on(Method::PUT, id, "").json(fields).send().await
    }

    /// Changes some fields of a record.
    pub async fn update(&self, id: &str, changes: &impl Serialize) -> Result<Response, Error> {
        self.on(Method::PATCH, id, "").json(changes).send().await
    }

    pub async fn delete(&self, id: &str) -> Result<Response, Error> {
        self.on(Method::DELETE, id, "").send().await
    }

    /// Runs an action, such as `pay`, on a record.
    pub async fn act(
        &self,
        id: &str,
        action: &str,
        params: &impl Serialize,
    ) -> Result<Response, Error> {
        self.on(Method::POST, id, action).json(params).send().await
    }

    /// A request on one record, for requests with further headers: `If-Match`, a version.
    pub fn on(&self, method: Method, id: &str, action: &str) -> Request {
        let mut path = self.path.clone();
        path.push('/');
        encode(id, &mut path);
        if !action.is_empty() {
            path.push('/');
            encode(action, &mut path);
        }
        self.client.request(method, &path)
    }

    /// A collection below one record, such as the reviews of a book.
    pub fn below(&self, id: &str, collection: &str) -> Resource {
        let mut path = self.path.clone();
        for part in [id, collection] {
            path.push('/');
            encode(part, &mut path);
        }
        Resource { client: self.client.clone(), path }
    }
}
