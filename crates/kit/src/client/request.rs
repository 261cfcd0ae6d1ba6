//! One request: its parts, its attempts, and its response.

use super::address::encode;
use super::list::Records;
use super::retry::{self, is_repeatable};
use super::{BoxError, Client, Error, Response};
use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, IF_MATCH, IF_NONE_MATCH, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

const AGENT: &str = concat!("restive-kit/", env!("CARGO_PKG_VERSION"));

/// A request that is being built; [`Request::send`] sends it.
#[must_use]
pub struct Request {
    pub(super) client: Client,
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Bytes,
    timeout: Option<Duration>,
    fault: Option<String>,
}

impl Request {
    pub(super) fn new(client: Client, method: Method, path: &str) -> Request {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let fault =
            (!path.starts_with('/')).then(|| format!("the path `{path}` must begin with /"));
        let mut request = Request {
            client,
            method,
            path: path.to_owned(),
            query: String::new(),
            headers,
            body: Bytes::new(),
            timeout: None,
            fault,
        };
        if let Some(version) = request.client.0.settings.version.clone() {
            request = request.version(&version);
        }
        if matches!(request.method, Method::POST | Method::PATCH) {
            request = request.idempotency_key(&random_key());
        }
        request
    }

    /// Adds a parameter to the query.
    pub fn query(mut self, name: &str, value: &str) -> Request {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        encode(name, &mut self.query);
        self.query.push('=');
        encode(value, &mut self.query);
        self
    }

    /// Includes related records in the response.
    pub fn expand(self, names: &[&str]) -> Request {
        self.query("expand", &names.join(","))
    }

    pub fn header(mut self, name: &str, value: &str) -> Request {
        match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => drop(self.headers.insert(name, value)),
            _ => self.fault = Some(format!("`{name}` is no header, or its value is not valid")),
        }
        self
    }

    /// Overrides the version of the client for this request.
    pub fn version(self, date: &str) -> Request {
        let name = self.client.0.settings.version_header.clone();
        self.header(&name, date)
    }

    /// Writes only if the record still has this ETag.
    pub fn if_match(self, etag: &str) -> Request {
        self.header(IF_MATCH.as_str(), etag)
    }

    /// Replaces the random key of a `POST` or `PATCH`, for work that has a key of its own. All
    /// attempts of one request send the same key.
    pub fn idempotency_key(self, key: &str) -> Request {
        self.header("idempotency-key", key)
    }

    /// For receivers that know no such keys. The request is then repeated only if it was certainly
    /// not processed.
    pub fn without_idempotency_key(mut self) -> Request {
        self.headers.remove("idempotency-key");
        self
    }

    /// The body, as JSON.
    pub fn json(mut self, body: &impl Serialize) -> Request {
        match serde_json::to_vec(body) {
            Ok(bytes) => {
                let kind = match self.method {
                    Method::PATCH => "application/merge-patch+json",
                    _ => "application/json",
                };
                self.body = bytes.into();
                self.header(CONTENT_TYPE.as_str(), kind)
            }
            Err(error) => {
                self.fault = Some(format!("the body cannot be written as JSON: {error}"));
                self
            }
        }
    }

    /// The body, as these bytes.
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Request {
        self.body = body.into();
        self.header(CONTENT_TYPE.as_str(), content_type)
    }

    /// Time for one attempt, instead of the client's.
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request, repeating it where that is safe. A status that is not 2xx is an error.
    pub async fn send(self) -> Result<Response, Error> {
        let repeatable = is_repeatable(&self.method, &self.headers);
        let (retries, max_wait) = {
            let settings = &self.client.0.settings;
            (settings.retries, settings.max_wait)
        };
        let (mut attempt, mut refreshed) = (0, false);
        loop {
            let error = match self.attempt().await {
                Ok(response) => return Ok(response),
                Err((error, credentials)) => {
                    let unauthorised = error.api().is_some_and(|api| api.status == 401);
                    if unauthorised && !refreshed {
                        refreshed = self.client.0.credentials.refuse(credentials.as_ref()).await;
                        if refreshed {
                            continue;
                        }
                    }
                    error
                }
            };
            let wait = retry::delay(&error, repeatable, attempt).filter(|wait| *wait <= max_wait);
            let Some(wait) = wait.filter(|_| attempt < retries) else { return Err(error) };
            attempt += 1;
            tokio::time::sleep(wait).await; // waits for: the server to accept the request again
        }
    }

    /// Sends the request once and returns the response, whatever its status.
    pub async fn send_once(self) -> Result<Response, Error> {
        let limit = self.timeout.unwrap_or(self.client.0.settings.attempt_timeout);
        let credentials = self.client.0.credentials.header().await?;
        let exchange = self.exchange(credentials, None);
        match tokio::time::timeout(limit, exchange).await {
            Ok(done) => done,
            Err(_) => Err(Error::Timeout(limit)),
        }
    }

    /// The same request, to be sent once more.
    pub(super) fn again(&self) -> Request {
        Request {
            client: self.client.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            timeout: self.timeout,
            fault: self.fault.clone(),
        }
    }

    /// The records of a list, page by page.
    pub fn records<T: DeserializeOwned>(self) -> Records<T> {
        Records::new(self)
    }

    /// One attempt. The error comes with the credentials that were sent.
    async fn attempt(&self) -> Result<Response, (Error, Option<HeaderValue>)> {
        let settings = &self.client.0.settings;
        let credentials = self.client.0.credentials.header().await.map_err(|e| (e, None))?;
        let key = (self.method == Method::GET).then(|| self.cache_key());
        let stored = key.as_deref().and_then(|key| self.cache().get(key));
        let tag = stored.as_ref().and_then(Response::etag).map(str::to_owned);
        let limit = self.timeout.unwrap_or(settings.attempt_timeout);
        let exchange = self.exchange(credentials.clone(), tag.as_deref());
        let done = match tokio::time::timeout(limit, exchange).await {
            Ok(done) => done,
            Err(_) => Err(Error::Timeout(limit)),
        };
        let response = done.map_err(|error| (error, credentials.clone()))?;
        if let (StatusCode::NOT_MODIFIED, Some(stored)) = (status(&response), stored) {
            return Ok(stored.revalidated(response.headers()));
        }
        if !status(&response).is_success() {
            let wait = retry::retry_after(response.headers());
            let (code, headers) = (response.status(), response.headers());
            return Err((Error::of_status(code, headers, response.body(), wait), credentials));
        }
        if let Some(key) = key {
            self.cache().put(&key, &response);
        }
        Ok(response)
    }

    async fn exchange(
        &self,
        credentials: Option<HeaderValue>,
        tag: Option<&str>,
    ) -> Result<Response, Error> {
        let request = self.build(credentials, tag)?;
        let connections = &self.client.0.connections;
        let (response, sender) = connections.send(request).await?;
        let (head, body) = response.into_parts();
        let body = read(body, self.client.0.settings.max_response_bytes).await?;
        connections.keep(sender);
        Ok(Response::new(head.status, head.headers, body))
    }

    fn build(
        &self,
        credentials: Option<HeaderValue>,
        tag: Option<&str>,
    ) -> Result<http::Request<Full<Bytes>>, Error> {
        if let Some(fault) = &self.fault {
            return Err(Error::Invalid(fault.clone()));
        }
        let invalid = |error: BoxError| Error::Invalid(format!("not a valid request: {error}"));
        let address = &self.client.0.address;
        let target = format!("{}{}{}", address.prefix, self.path, self.query);
        let mut request = http::Request::builder().method(self.method.clone()).uri(target);
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.headers);
            let host = HeaderValue::from_str(&address.authority);
            headers.insert(HOST, host.map_err(|error| invalid(error.into()))?);
            if let Some(credentials) = credentials {
                headers.insert(AUTHORIZATION, credentials);
            }
            if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
                headers.entry(IF_NONE_MATCH).or_insert(tag);
            }
        }
        request.body(Full::new(self.body.clone())).map_err(|error| invalid(error.into()))
    }

    /// Everything that the response depends on, except the credentials, which stay the same.
    fn cache_key(&self) -> String {
        let version = self.headers.get(&*self.client.0.settings.version_header);
        let version = version.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let accept = self.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        format!("{version} {} {}{}", accept.unwrap_or_default(), self.path, self.query)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, super::Cache> {
        self.client.0.cache.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// For followers, which have their own rules for repetitions.
#[cfg(feature = "follow")]
impl Request {
    /// Sends the request once. A status that is not 2xx is an error; after 401 the next request
    /// gets a new token.
    pub(crate) async fn send_attempt(self) -> Result<Response, Error> {
        match self.attempt().await {
            Ok(response) => Ok(response),
            Err((error, credentials)) => {
                if error.api().is_some_and(|api| api.status == 401) {
                    self.client.0.credentials.refuse(credentials.as_ref()).await;
                }
                Err(error)
            }
        }
    }

    /// Sends the request once, and returns the head of the response, and its body as it arrives.
    pub(crate) async fn open(self) -> Result<http::Response<Incoming>, Error> {
        let limit = self.timeout.unwrap_or(self.client.0.settings.attempt_timeout);
        let credentials = self.client.0.credentials.header().await?;
        let request = self.build(credentials.clone(), None)?;
        let opened = self.client.0.connections.send_on_new(request);
        let opened = tokio::time::timeout(limit, opened).await;
        let (response, _) = opened.map_err(|_| Error::Timeout(limit))??;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let limit_bytes = self.client.0.settings.max_response_bytes;
        let body = tokio::time::timeout(limit, read(body, limit_bytes)).await;
        let body = body.map_err(|_| Error::Timeout(limit))??;
        if status == StatusCode::UNAUTHORIZED {
            self.client.0.credentials.refuse(credentials.as_ref()).await;
        }
        let wait = retry::retry_after(&head.headers);
        Err(Error::of_status(status.as_u16(), &head.headers, &body, wait))
    }
}

fn status(response: &Response) -> StatusCode {
    StatusCode::from_u16(response.status()).unwrap_or_default()
}

/// Reads a body up to the limit.
pub(super) async fn read(mut body: Incoming, limit_bytes: usize) -> Result<Bytes, Error> {
    let too_large = Error::TooLarge { limit_bytes };
    if body.size_hint().lower() > limit_bytes as u64 {
        return Err(too_large);
    }
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::network(true, error))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len() + data.len() > limit_bytes {
            return Err(too_large);
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

/// 128 random bits, in hexadecimal.
fn random_key() -> String {
    let mut bytes = [0; 16];
    // A guessable key would be dangerous: it could be the key of another request.
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
