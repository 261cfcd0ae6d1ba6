//! Early hints: they leave before the answer is made, and only to clients that know what they are.

use std::sync::{Arc, mpsc};

use http::{HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use wire::{Answer, EarlyHints, Exchange, Fault, Limits, Response, Service};

use crate::server::Server;

const NAVIGATE: &str = "Sec-Fetch-Mode: navigate\r\n";

/// Hints, waits for the gate, answers.
struct Hinting {
    gate: Arc<Semaphore>,
    seen: mpsc::Sender<String>,
}

impl Service for Hinting {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        Box::pin(async move {
            let links = ["</a.css>; rel=preload", "</b.js>; rel=preload"];
            exchange.hints.links(links.map(HeaderValue::from_static));
            if exchange.uri.path() == "/flood" {
                for _ in 0..1000 {
                    exchange.hints.links([HeaderValue::from_static("</c>; rel=preload")]);
                }
            }
            let _ = self.seen.send(exchange.hints.wanted().to_string());
            if exchange.uri.path() == "/wait" {
                self.gate.acquire().await.unwrap().forget();
            }
            Response::new(StatusCode::OK, "done")
        })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

fn start(early_hints: EarlyHints) -> Server {
    Server::serving(Limits::default(), early_hints, |gate, seen| Arc::new(Hinting { gate, seen }))
}

#[test]
fn early_hints_arrive_before_the_service_has_finished() {
    let server = start(EarlyHints::Asked);
    let mut wire = server.connect();
    for _ in 0..2 {
        wire.send(format!("GET /wait HTTP/1.1\r\nHost: a\r\n{NAVIGATE}\r\n"));
        assert_eq!(
            wire.response(),
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\
             link: </b.js>; rel=preload\r\n\r\n"
        );
        server.gate.add_permits(1);
        let answer = wire.response();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("done"), "{answer}");
    }
}

#[test]
fn early_hints_are_sent_only_to_clients_that_understand_them() {
    for (early_hints, version, headers, sent) in [
        (EarlyHints::Asked, "1.1", NAVIGATE, true),
        (EarlyHints::Asked, "1.1", "Sec-Fetch-Mode: cors\r\n", false),
        (EarlyHints::Asked, "1.1", "", false),
        (EarlyHints::Asked, "1.0", NAVIGATE, false),
        (EarlyHints::Always, "1.1", "", true),
        (EarlyHints::Always, "1.0", "", false),
        (EarlyHints::Off, "1.1", NAVIGATE, false),
    ] {
        let server = start(early_hints);
        let request = format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n{headers}");
        let answer = server.exchange(format!("{request}\r\n"));
        let case = format!("{early_hints:?} {version} {headers}: {answer}");
        assert_eq!(answer.starts_with("HTTP/1.1 103 "), sent, "{case}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1 + usize::from(sent), "{case}");
        assert!(answer.ends_with("\r\n\r\ndone"), "{case}");
        server.saw(&sent.to_string());
    }
}

#[test]
fn the_number_of_early_hints_is_limited() {
    let server = start(EarlyHints::Always);
    let answer = server.exchange("GET /flood HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.matches("HTTP/1.1 103 ").count(), 8, "{answer}");
}
