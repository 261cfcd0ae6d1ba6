//! The metrics on a separate address (`--metrics-listen`), with the names of all accounts. No key
//! is needed: every client that can reach the address can read it, so it must be in a network of
//! the operator.

use api::Api;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use std::sync::Arc;
use wire::{Answer, Exchange, Fault, Response, Service};

pub struct Metrics(pub Arc<Api>);

impl Metrics {
    fn answer(&self, exchange: &Exchange) -> Response {
        if exchange.uri.path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, "This address serves only /metrics.\n".to_owned());
        }
        if !matches!(exchange.method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD.\n".into());
            response.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        self.0.operator_metrics()
    }
}

fn text(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(status, text);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl Service for Metrics {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        let response = self.answer(&exchange);
        Box::pin(async move { response })
    }

    fn refuse(&self, fault: Fault) -> Response {
        text(fault.status(), format!("{}\n", fault.message()))
    }
}
