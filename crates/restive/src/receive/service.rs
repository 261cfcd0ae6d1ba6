//! Webhooks over HTTP: hands requests to the receiver of `kit`, counts and logs its answers. The
//! rules of the contract are in `kit`.

use crate::operator::{self, Measured};
use crate::process;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use restive_kit::receiver::{Answer as Received, Delivery, Receiver};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use wire::{Answer, BodyFault, Exchange, Fault, Response, Service};

const HEALTH: &str = "/health";

/// A known id with another body.
const CONFLICT: &str = "event_conflict";

/// The answers of the receiver, by their code.
const CODES: [&str; 11] = [
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
];

pub struct Hook {
    pub receiver: Receiver,
    pub path: Option<String>,
    pub log: Arc<AnswerLog>,
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

    pub fn note(&self, answer: &Received) {
        if let Some(place) = CODES.iter().position(|code| *code == answer.code) {
            self.counts[place].fetch_add(1, Ordering::Relaxed);
        }
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
            None => tracing::warn!(code, event, "{message}"),
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
        let delivery = Delivery {
            method: &exchange.method,
            headers: &exchange.headers,
            is_secure: exchange.is_secure || is_forwarded_over_https(&exchange),
            peer: exchange.is_client_known.then_some(exchange.client),
        };
        if let Some(refusal) = self.receiver.refuse(delivery) {
            return response(&refusal);
        }
        let body = exchange.body.read(self.receiver.body_limit()).await;
        let answer = match body {
            Ok(body) => self.receiver.receive(delivery, body).await,
            Err(BodyFault::TooLarge) => self.receiver.too_large(),
            Err(_) => self.receiver.incomplete(),
        };
        response(&answer)
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
