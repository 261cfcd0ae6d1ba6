//! The contract of a webhook receiver: a request is verified, stored durably and answered, in this
//! order. Processing comes later, from the queue.
//!
//! | request | response |
//! |---|---|
//! | not over HTTPS, if that is required; from an address that is not allowed | 403 |
//! | not POST | 405 |
//! | larger than [`MAX_BODY_BYTES`] | 413 |
//! | without a valid signature, too old, too new | 401; nothing is processed |
//! | not UTF-8, not JSON, not an object, without an id | 400 |
//! | the id of an earlier event | 200, and nothing else. Another body is recorded, not processed |
//! | an event, which is stored now | 200 |
//! | an event that cannot be stored now | 503 with `Retry-After` |
//!
//! [`Receiver::receive`] is a plain function. [`ReceiverLayer`] puts it before a tower service.

mod service;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

pub use self::service::{AnswerBody, ReceiverLayer, ReceiverService, WithReceiver};

use crate::event::Received;
use crate::signature::{Diagnosis, Fault, Part, Verifier};

/// Bodies of webhooks that are accepted unless set. 8 MiB: most events have some KiB, those of the
/// largest records some MiB. A receiver holds the whole body in memory before it can verify it.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Seconds after which a provider may try again.
const RETRY_AFTER_SECONDS: u32 = 5;

/// Where events go.
pub trait Queue: Send + Sync + 'static {
    /// Stores an event. The answer comes when it is durable.
    fn accept(&self, event: Received) -> Accepting<'_>;
}

/// The future of [`Queue::accept`].
pub type Accepting<'a> = Pin<Box<dyn Future<Output = Result<Stored, NotStored>> + Send + 'a>>;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    New,
    /// It was received before.
    Known,
    /// Another event was received with its id.
    Conflict,
}

/// The event could not be stored; the provider should send it again. The text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStored(pub String);

/// A request as the HTTP server has it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    /// Whether it came over HTTPS; unknown is no.
    pub is_secure: bool,
    /// The client, if it is known.
    pub peer: Option<IpAddr>,
}

/// A response, and why it is not the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    pub status: StatusCode,
    /// A name for programs. These never change.
    pub code: &'static str,
    /// For the sender. Reveals nothing about secrets.
    pub message: Cow<'static, str>,
    /// The id of the event, if it was read.
    pub event: Option<String>,
    /// For the operator: why the signature does not verify. At most one in a second is made.
    pub diagnosis: Option<Diagnosis>,
    /// For the operator: why the event is not stored. It may name files and hosts.
    pub not_stored: Option<Box<str>>,
}

/// Verifies, stores and answers.
///
/// ```
/// use restive_kit::inbox::{Inbox, Options};
/// use restive_kit::receiver::{Delivery, Receiver};
/// use restive_kit::signature::{Scheme, Secret, Signer, Verifier};
///
/// # let folder = tempfile::tempdir()?;
/// let secret = Secret::parse("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=")?;
/// let inbox = Inbox::open(&folder.path().join("inbox.db"), Options::default())?;
/// let receiver = Receiver::new(Verifier::new(Scheme::Detect, [secret.clone()]), inbox);
///
/// // In the handler of a request:
/// # let body = bytes::Bytes::from_static(br#"{"id":"evt_1","type":"order.created"}"#);
/// # let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
/// # let now = now.as_secs() as i64;
/// # let signature = Signer::new(&secret, None).timestamped(now, &body);
/// # let request = http::Request::post("/").header("restive-signature", signature).body(())?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let delivery = Delivery {
///     method: request.method(),
///     headers: request.headers(),
///     is_secure: true,
///     peer: None,
/// };
/// let answer = receiver.receive(delivery, body).await;
/// assert_eq!(answer.status, 200);
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Receiver {
    settings: Arc<Settings>,
}

struct Settings {
    verifier: Verifier,
    queue: Box<dyn Queue>,
    https_only: bool,
    allowed: Option<AddressCheck>,
    max_body_bytes: usize,
    observer: Option<Observer>,
    /// The second of the last diagnosis.
    diagnosed_at: AtomicI64,
}

type AddressCheck = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;
type Observer = Box<dyn Fn(&Answer) + Send + Sync>;

impl Receiver {
    pub fn new(verifier: Verifier, queue: impl Queue) -> Self {
        let settings = Settings {
            verifier,
            queue: Box::new(queue),
            https_only: false,
            allowed: None,
            max_body_bytes: MAX_BODY_BYTES,
            observer: None,
            diagnosed_at: AtomicI64::new(0),
        };
        Self { settings: Arc::new(settings) }
    }

    /// Refuses requests that did not come over HTTPS.
    pub fn https_only(self) -> Self {
        self.set(|settings| settings.https_only = true)
    }

    /// Accepts requests only from addresses for which the function returns true. If the address of
    /// a client is unknown, it is refused.
    pub fn allow(self, check: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.allowed = Some(Box::new(check)))
    }

    pub fn max_body_bytes(self, bytes: usize) -> Self {
        self.set(|settings| settings.max_body_bytes = bytes)
    }

    /// Is called with every answer, for logs and counters.
    pub fn observe(self, observer: impl Fn(&Answer) + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.observer = Some(Box::new(observer)))
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        // Only a receiver that was cloned has other owners, and then it is set up.
        match Arc::get_mut(&mut self.settings) {
            Some(settings) => change(settings),
            None => panic!("a receiver is set up before it is cloned"),
        }
        self
    }

    /// The largest body that is accepted: read no more of it.
    pub fn body_limit(&self) -> usize {
        self.settings.max_body_bytes
    }

    /// What can be decided before the body is read: a refusal, or none.
    pub fn refuse(&self, delivery: Delivery<'_>) -> Option<Answer> {
        let settings = &*self.settings;
        let refusal =
            if settings.https_only && !delivery.is_secure {
                let message = "Webhooks are accepted over HTTPS only.";
                Answer::refused(StatusCode::FORBIDDEN, "https_required", message)
            } else if settings.allowed.as_ref().is_some_and(|allowed| {
                !delivery.peer.is_some_and(|peer| allowed(peer.to_canonical()))
            }) {
                let message = "This address is not allowed to send webhooks.";
                Answer::refused(StatusCode::FORBIDDEN, "address_not_allowed", message)
            } else if delivery.method != Method::POST {
                let message = "Webhooks are sent with POST.";
                Answer::refused(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
            } else if declared_bytes(delivery.headers) > settings.max_body_bytes as u64 {
                Answer::too_large(settings.max_body_bytes)
            } else {
                return None;
            };
        Some(self.observed(refusal))
    }

    /// The answer to a body that is larger than [`Receiver::body_limit`].
    pub fn too_large(&self) -> Answer {
        self.observed(Answer::too_large(self.settings.max_body_bytes))
    }

    /// The answer to a body that broke off.
    pub fn incomplete(&self) -> Answer {
        let message = "The body did not arrive whole.";
        self.observed(Answer::refused(StatusCode::BAD_REQUEST, "body_incomplete", message))
    }

    /// The whole contract, for a request whose body is here. Reads the system clock.
    pub async fn receive(&self, delivery: Delivery<'_>, body: Bytes) -> Answer {
        if let Some(refusal) = self.refuse(delivery) {
            return refusal;
        }
        if body.len() > self.settings.max_body_bytes {
            return self.too_large();
        }
        let event = match self.verified(delivery.headers, &body) {
            Ok(event) => event,
            Err(refusal) => return self.observed(refusal),
        };
        let id = event.id.clone();
        let mut not_stored = None;
        let mut answer = match self.settings.queue.accept(event).await {
            Ok(Stored::New) => Answer::new(StatusCode::OK, "received", "The event is stored."),
            Ok(Stored::Known) => {
                Answer::new(StatusCode::OK, "known", "The event was received before.")
            }
            // A known id: the provider has nothing to do, so only the operator learns of it.
            Ok(Stored::Conflict) => Answer::new(
                StatusCode::OK,
                "event_conflict",
                "An event with this id and another body was received before. This one is recorded \
                 and not processed.",
            ),
            Err(NotStored(reason)) => {
                not_stored = Some(reason.into_boxed_str());
                let message = "The event cannot be stored now; send it again.";
                Answer::refused(StatusCode::SERVICE_UNAVAILABLE, "not_stored", message)
            }
        };
        (answer.event, answer.not_stored) = (Some(id), not_stored);
        self.observed(answer)
    }

    fn verified(&self, headers: &HeaderMap, body: &Bytes) -> Result<Received, Answer> {
        let verifier = &self.settings.verifier;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let names = verifier.headers();
        let mut signed: Vec<(&str, &[u8])> = Vec::with_capacity(names.len());
        for (name, value) in headers {
            let is_name = |own: &&&str| own.eq_ignore_ascii_case(name.as_str());
            let Some(name) = names.iter().find(is_name) else { continue };
            if signed.iter().any(|(known, _)| known == name) {
                let reason = "header comes twice";
                return Err(Answer::unsigned(Fault::Malformed { part: Part::Signature, reason }));
            }
            signed.push((name, value.as_bytes()));
        }
        let header =
            |name: &str| signed.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let verified = verifier.verify(header, body, now).map_err(|fault| {
            let mut answer = Answer::unsigned(fault);
            // Expensive, and anybody can cause it.
            if self.settings.diagnosed_at.swap(now, Ordering::Relaxed) != now {
                let any = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
                answer.diagnosis = Some(verifier.diagnose(any, body, now));
            }
            answer
        })?;
        Received::verified(body.to_vec(), &verified).map_err(|fault| {
            Answer::refused(StatusCode::BAD_REQUEST, "event_invalid", format!("{fault}."))
        })
    }

    fn observed(&self, answer: Answer) -> Answer {
        if let Some(observer) = &self.settings.observer {
            observer(&answer);
        }
        answer
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Receiver({:?})", self.settings.verifier)
    }
}

/// 0 if the length is not declared.
fn declared_bytes(headers: &HeaderMap) -> u64 {
    let value = headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    value.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Answer {
    fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            event: None,
            diagnosis: None,
            not_stored: None,
        }
    }

    fn refused(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(status, code, message)
    }

    fn unsigned(fault: Fault) -> Self {
        let message = format!("The signature is not valid: {fault}.");
        Self::refused(StatusCode::UNAUTHORIZED, "signature_invalid", message)
    }

    fn too_large(limit: usize) -> Self {
        let message = format!("The body exceeds {limit} bytes.");
        Self::refused(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }

    /// Whether the provider is told that the event arrived.
    pub fn is_received(&self) -> bool {
        self.status.is_success()
    }

    /// The body of the response, as JSON.
    pub fn body(&self) -> Bytes {
        match self.code {
            "received" => Bytes::from_static(br#"{"received":true}"#),
            "known" | "event_conflict" => Bytes::from_static(br#"{"received":true,"known":true}"#),
            code => {
                // Messages have no character that JSON escapes, but for reasons of the system.
                let message = self.message.replace(['"', '\\'], "'").replace(char::is_control, " ");
                let text = format!(r#"{{"error":{{"code":"{code}","message":"{message}"}}}}"#);
                Bytes::from(text)
            }
        }
    }

    /// The headers of the response.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        headers
    }

    /// The whole response, in any body that is made from bytes.
    pub fn into_response<B: From<Bytes>>(self) -> http::Response<B> {
        let mut response = http::Response::new(B::from(self.body()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers();
        response
    }
}

#[cfg(feature = "inbox")]
impl Queue for crate::inbox::Inbox {
    fn accept(&self, event: Received) -> Accepting<'_> {
        use crate::inbox::Accepted;
        Box::pin(async move {
            match crate::inbox::Inbox::accept(self, event).await {
                Ok(Accepted::New) => Ok(Stored::New),
                Ok(Accepted::Known) => Ok(Stored::Known),
                Ok(Accepted::Conflict) => Ok(Stored::Conflict),
                Err(error) => Err(NotStored(error.to_string())),
            }
        })
    }
}
