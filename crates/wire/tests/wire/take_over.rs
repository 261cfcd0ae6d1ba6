//! Connections that the service takes over: streams that end with the connection, and upgrades.

use std::sync::{Arc, mpsc};

use http::{HeaderValue, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use wire::{Answer, EarlyHints, Exchange, Fault, Limits, Payload, Raw, Response, Service};

use crate::server::Server;

struct Taking {
    gate: Arc<Semaphore>,
    seen: mpsc::Sender<String>,
}

impl Service for Taking {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        Box::pin(async move {
            let (gate, seen) = (self.gate.clone(), self.seen.clone());
            let response = |status, body: Payload| {
                let mut response = Response::new(status, body);
                if status == StatusCode::SWITCHING_PROTOCOLS {
                    response.headers.insert("upgrade", HeaderValue::from_static("test"));
                }
                response
            };
            match exchange.uri.path() {
                "/events" => {
                    let run = move |raw| events(raw, gate, seen);
                    response(StatusCode::OK, Payload::take_over(run))
                }
                "/upgrade" => {
                    let run = move |raw| echo(raw, seen);
                    response(StatusCode::SWITCHING_PROTOCOLS, Payload::take_over(run))
                }
                "/panic" => {
                    let run = |_| async { panic!("the take-over fails on purpose") };
                    response(StatusCode::OK, Payload::take_over(run))
                }
                "/odd" => response(StatusCode::PROCESSING, Payload::take_over(|_| async {})),
                _ => Response::new(StatusCode::OK, "plain"),
            }
        })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

/// One line for each time the gate opens, until the server goes away.
async fn events(mut raw: Raw, gate: Arc<Semaphore>, seen: mpsc::Sender<String>) {
    let mut signal = raw.shutdown_signal();
    loop {
        tokio::select! {
            permit = gate.acquire() => permit.unwrap().forget(),
            () = signal.fired() => break,
        }
        if raw.write_all(b"data: x\n\n").await.is_err() {
            break;
        }
    }
    let _ = raw.write_all(b"data: bye\n\n").await;
    let _ = seen.send("over".into());
}

async fn echo(mut raw: Raw, seen: mpsc::Sender<String>) {
    let mut buffer = [0; 3];
    while let Ok(count) = raw.read(&mut buffer).await
        && count > 0
    {
        raw.write_all(&buffer[..count]).await.unwrap();
    }
    let _ = seen.send("over".into());
}

fn start(limits: Limits) -> Server {
    Server::serving(limits, EarlyHints::Off, |gate, seen| Arc::new(Taking { gate, seen }))
}

#[test]
fn a_stream_continues_until_the_server_stops_and_then_ends_cleanly() {
    let server = start(Limits::default());
    let mut wire = server.connect();
    wire.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = wire.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("connection: close\r\n") && !head.contains("content-length"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    for _ in 0..3 {
        server.gate.add_permits(1);
        assert_eq!(wire.until("\n\n"), "data: x\n\n");
    }
    server.trigger.fire();
    assert_eq!(wire.rest(), "data: bye\n\n");
    server.join();
}

#[test]
fn an_upgrade_carries_bytes_both_ways_including_early_ones() {
    let server = start(Limits::default());
    let mut wire = server.connect();
    wire.send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\nearly");
    let head = wire.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: test\r\n"));
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(wire.until("early"), "early");
    wire.send("later");
    assert_eq!(wire.until("later"), "later");
    wire.finish_sending();
    assert_eq!(wire.rest(), "");
    server.saw("over");
}

#[test]
fn a_taken_over_connection_counts_against_the_limit_and_has_no_timeout() {
    let short = std::time::Duration::from_millis(50);
    let server = start(Limits {
        max_connections: 1,
        idle_timeout: short,
        head_timeout: short,
        write_stall: short,
        ..Limits::default()
    });
    let mut wire = server.connect();
    wire.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.until("\r\n\r\n");
    let refused = server.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    // waits for: several of the timeouts that end other connections
    std::thread::sleep(short * 6);
    server.gate.add_permits(1);
    assert_eq!(wire.until("\n\n"), "data: x\n\n");
    drop(wire);
    server.gate.add_permits(2);
    server.saw("over");
}

#[test]
#[cfg(target_os = "linux")]
fn a_stream_whose_client_has_vanished_is_closed() {
    let patience = std::time::Duration::from_secs(1);
    let server = start(Limits { unacknowledged: patience, ..Limits::default() });
    let mut wire = server.connect();
    wire.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.until("\r\n\r\n");
    // The client's system drops what comes, unseen: as if its cable had been pulled.
    let drop_all = socket2::SockFilter::new(0x06, 0, 0, 0);
    socket2::SockRef::from(&wire.stream).attach_filter(&[drop_all]).unwrap();
    let begun = std::time::Instant::now();
    while server.seen.try_recv().ok().is_none_or(|seen| seen != "over") {
        server.gate.add_permits(1);
        assert!(begun.elapsed() < patience * 20, "the stream stays open");
        std::thread::sleep(patience / 20); // waits for: the system to lose its patience
    }
    assert!(begun.elapsed() >= patience);
}

#[test]
fn a_take_over_that_is_impossible_is_answered_500() {
    let server = start(Limits::default());
    for request in [
        "POST /events HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhal",
        "GET /odd HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /upgrade HTTP/1.0\r\n\r\n",
    ] {
        let answer = server.exchange(request);
        assert!(answer.starts_with("HTTP/1.1 500 "), "{request}: {answer}");
    }
    let mut wire = server.connect();
    wire.send("HEAD /events HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wire.until("\r\n\r\n").starts_with("HTTP/1.1 200 "));
    assert!(wire.response().ends_with("plain"), "nothing was taken over");
}

#[test]
fn a_take_over_that_panics_ends_only_its_own_connection() {
    let server = start(Limits::default());
    for _ in 0..4 {
        let answer = server.exchange("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let answer = server.exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.ends_with("plain"), "{answer}");
}
