//! Webhooks over HTTP: hands requests to the receiver of `kit`, counts and logs its answers. The
//! rules of the contract are in `kit`.

use crate::operator::{self, Measured};
use crate::process;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use restive_kit::receiver::{Answer as Received, Delivery, Receiver};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use wire::{Answer, BodyFault, Budget, Exchange, Fault, Response, Service, Share};

const HEALTH: &str = "/health";

/// A known id with another body.
const CONFLICT: &str = "event_conflict";

/// Too many bodies at a time.
const OVERLOADED: &str = "overloaded";

/// Bytes of bodies in memory, from all addresses; one address has at most its share. Nobody needs a
/// secret to send a body.
const BODIES_BYTES: usize = 128 << 20;
/// Of a body that is not here yet, before it grows.
const FIRST_BYTES: usize = 4 << 10;

/// The answers of the receiver, by their code.
const CODES: [&str; 12] = [
    "received",
    "known",
    CONFLICT,
    "signature_invalid",
    "event_invalid",
    "body_too_large",
    "body_incomplete",
    "method_not_allowed",
    "https_required",
    "address_not_allowed",
    "not_stored",
    OVERLOADED,
];

pub struct Hook {
    pub receiver: Receiver,
    pub path: Option<String>,
    pub log: Arc<AnswerLog>,
    pub bodies: Bodies,
}

/// What the bodies of requests use. Requests whose client is not known share one part.
pub struct Bodies(Arc<Budget<Option<IpAddr>>>);

impl Bodies {
    pub fn new() -> Bodies {
        Bodies(Budget::new(BODIES_BYTES))
    }

    /// The body, and its memory until the share is dropped.
    async fn read(
        &self,
        exchange: &mut Exchange,
        limit_bytes: usize,
    ) -> Result<(Bytes, Share<Option<IpAddr>>), BodyFault> {
        let client = exchange.is_client_known.then_some(exchange.client);
        let declared = exchange.body.declared_bytes();
        let declared = declared.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let first = if exchange.body.is_here() { declared } else { FIRST_BYTES };
        let mut share = self.0.take(client, first).ok_or(BodyFault::NoRoom)?;
        let body = exchange.body.read_within(limit_bytes, &mut share).await?;
        Ok((body, share))
    }
}

/// Counts answers, and logs those that an operator should know.
pub struct AnswerLog {
    counts: [AtomicU64; CODES.len()],
    started: Instant,
    /// The second of the last line, plus one.
    logged: AtomicU64,
}

impl AnswerLog {
    pub fn new() -> AnswerLog {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        AnswerLog { counts, started: Instant::now(), logged: AtomicU64::new(0) }
    }

    fn count(&self, answered: &str) {
        if let Some(place) = CODES.iter().position(|code| *code == answered) {
            self.counts[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn note(&self, answer: &Received) {
        self.count(answer.code);
        let event = answer.event.as_deref().unwrap_or_default();
        let (code, message) = (answer.code, &*answer.message);
        if code == CONFLICT {
            // Only the provider can cause it, and it is a fault of the provider.
            tracing::error!(code, event, "{message}");
        }
        if answer.is_received() {
            return;
        }
        // Anybody can cause the others: one line in a second tells enough.
        let second = self.started.elapsed().as_secs() + 1;
        if self.logged.swap(second, Ordering::Relaxed) == second {
            return;
        }
        match &answer.diagnosis {
            Some(diagnosis) => {
                let (found, advice) = (diagnosis.to_string(), diagnosis.advice());
                tracing::warn!(code, found, advice, "{message}");
            }
            None => {
                tracing::warn!(code, event, reason = answer.not_stored.as_deref(), "{message}");
            }
        }
    }
}

impl Measured for AnswerLog {
    fn metrics(&self) -> Response {
        let mut text = String::from(
            "# HELP restive_receive_requests_total Answers to webhooks.\n\
             # TYPE restive_receive_requests_total counter\n",
        );
        for (code, count) in CODES.iter().zip(&self.counts) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "restive_receive_requests_total{{code=\"{code}\"}} {count}");
        }
        process::render(&mut text);
        operator::text(StatusCode::OK, text)
    }
}

impl Hook {
    async fn answer(&self, mut exchange: Exchange) -> Response {
        let path = exchange.uri.path();
        if path == HEALTH && matches!(exchange.method, Method::GET | Method::HEAD) {
            return json(StatusCode::OK, r#"{"status":"ok"}"#);
        }
        if self.path.as_deref().is_some_and(|own| own != path) {
            let text =
                r#"{"error":{"code":"not_found","message":"No webhooks are received here."}}"#;
            return json(StatusCode::NOT_FOUND, text);
        }
        let delivery = delivery(&exchange);
        if let Some(refusal) = self.receiver.refuse(delivery) {
            return response(&refusal);
        }
        let body = self.bodies.read(&mut exchange, self.receiver.body_limit()).await;
        let answer = match body {
            Ok((body, _share)) => self.receiver.receive(self::delivery(&exchange), body).await,
            Err(BodyFault::TooLarge) => self.receiver.too_large(),
            Err(BodyFault::NoRoom) => return self.overloaded(),
            Err(_) => self.receiver.incomplete(),
        };
        response(&answer)
    }

    fn overloaded(&self) -> Response {
        self.log.count(OVERLOADED);
        let text = r#"{"error":{"code":"overloaded","message":"Too many bodies at once."}}"#;
        let mut response = json(StatusCode::SERVICE_UNAVAILABLE, text);
        response.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

fn delivery(exchange: &Exchange) -> Delivery<'_> {
    Delivery {
        method: &exchange.method,
        headers: &exchange.headers,
        is_secure: exchange.is_secure || is_forwarded_over_https(exchange),
        peer: exchange.is_client_known.then_some(exchange.client),
    }
}

/// As a trusted proxy says; the word of others does not count.
fn is_forwarded_over_https(exchange: &Exchange) -> bool {
    let scheme = exchange.headers.get("x-forwarded-proto");
    exchange.is_proxied && scheme.is_some_and(|scheme| scheme.as_bytes() == b"https")
}

fn response(answer: &Received) -> Response {
    let mut response = Response::new(answer.status, answer.body());
    response.headers = answer.headers();
    // Nothing was changed unless it is acknowledged.
    response.is_repeatable = !answer.is_received();
    response
}

fn json(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(status, text.to_owned());
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Service for Hook {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        Box::pin(self.answer(exchange))
    }

    fn refuse(&self, fault: Fault) -> Response {
        let message = fault.message();
        let text = format!(r#"{{"error":{{"code":"http","message":"{message}"}}}}"#);
        let mut response = json(fault.status(), &text);
        if fault.status() == StatusCode::METHOD_NOT_ALLOWED {
            response.headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}
