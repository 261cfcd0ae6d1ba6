//! Plain HTTP in addition to HTTPS: redirects clients, and answers the HTTP-01 challenges of an
//! ACME authority.

use http::header::{CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderValue, StatusCode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{Answer, Exchange, Fault, Response, Service};

const CHALLENGES: &str = "/.well-known/acme-challenge/";
const HTTPS_PORT: u16 = 443;

/// The responses that an authority expects, by token.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Mutex<HashMap<String, String>>>);

impl Tokens {
    pub fn put(&self, token: &str, answer: &str) {
        self.all().insert(token.to_owned(), answer.to_owned());
    }

    pub fn clear(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Redirect {
    pub tokens: Tokens,
    /// The port of HTTPS.
    pub port: u16,
}

impl Redirect {
    fn answer(&self, exchange: &Exchange) -> Response {
        let path = exchange.uri.path();
        if let Some(token) = path.strip_prefix(CHALLENGES) {
            return match self.tokens.all().get(token) {
                Some(answer) => text(StatusCode::OK, answer.clone()),
                None => text(StatusCode::NOT_FOUND, "Unknown challenge.\n".into()),
            };
        }
        // `OPTIONS *` is about the server as a whole: no place under https has this target.
        if !path.starts_with('/') {
            return Response::new(StatusCode::NO_CONTENT, String::new());
        }
        let host = exchange.headers.get(HOST).and_then(|host| host.to_str().ok());
        let Some(name) = host.map(without_port).filter(|name| !name.is_empty()) else {
            return text(StatusCode::BAD_REQUEST, "The Host header is missing.\n".into());
        };
        let port = match self.port {
            HTTPS_PORT => String::new(),
            port => format!(":{port}"),
        };
        let rest = exchange.uri.path_and_query().map_or("/", |rest| rest.as_str());
        let place = format!("https://{name}{port}{rest}");
        let mut response = text(StatusCode::PERMANENT_REDIRECT, format!("{place}\n"));
        if let Ok(place) = HeaderValue::from_str(&place) {
            response.headers.insert(LOCATION, place);
        }
        response
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

fn text(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(status, text);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl Service for Redirect {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        let response = self.answer(&exchange);
        Box::pin(async move { response })
    }

    fn refuse(&self, fault: Fault) -> Response {
        text(fault.status(), format!("{}\n", fault.message()))
    }
}
