//! The metrics on a separate address (`--metrics-listen`), with the names of all accounts. No key
//! is needed: every client that can reach the address can read it, so it must be in a network of
//! the operator.

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use std::sync::Arc;
use wire::{Answer, Exchange, Fault, Response, Service};

/// Serves the metrics of a service.
pub struct Metrics<S>(pub Arc<S>);

/// A service with metrics.
pub trait Measured: Send + Sync + 'static {
    fn metrics(&self) -> Response;
}

impl Measured for api::Api {
    fn metrics(&self) -> Response {
        self.operator_metrics()
    }
}

impl<S: Measured> Metrics<S> {
    fn answer(&self, exchange: &Exchange) -> Response {
        if exchange.uri.path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, "This address serves only /metrics.\n".to_owned());
        }
        if !matches!(exchange.method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD.\n".into());
            response.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        self.0.metrics()
    }
}

pub fn text(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(status, text);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl<S: Measured> Service for Metrics<S> {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        let response = self.answer(&exchange);
        Box::pin(async move { response })
    }

    fn refuse(&self, fault: Fault) -> Response {
        text(fault.status(), format!("{}\n", fault.message()))
    }
}
