//! Bodies that flow: answers made while they are sent, requests read piece by piece, both at the
//! pace of whoever is slower.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use wire::{
    Answer, Body, Chunks, Cut, EarlyHints, Exchange, Fault, Limits, Payload, Response, Service,
};

use crate::server::Server;

const PIECE_BYTES: usize = 64 << 10;
/// More than the sockets of both sides hold, by far.
const FAR_TOO_MUCH: usize = 256 << 20;

struct Streams {
    gate: Arc<Semaphore>,
    seen: mpsc::Sender<String>,
    made: Arc<AtomicUsize>,
}

impl Service for Streams {
    fn call(&self, mut exchange: Exchange) -> Answer<'_> {
        Box::pin(async move {
            let length = exchange.uri.query().map(|length| length.parse().unwrap());
            match exchange.uri.path() {
                "/pieces" => Response::new(StatusCode::OK, self.pieces(length)),
                "/cut" => {
                    let (sender, body) = Payload::channel(length, 1);
                    tokio::spawn(async move { sender.send("half").await });
                    Response::new(StatusCode::OK, body)
                }
                "/endless" => Response::new(StatusCode::OK, Endless::payload(self)),
                "/echo" => {
                    Response::new(StatusCode::OK, Payload::Stream(Box::new(Echo(exchange.body))))
                }
                "/hold" => {
                    let _held = Endless { made: self.made.clone(), seen: self.seen.clone() };
                    let _ = self.seen.send("held".into());
                    std::future::pending().await
                }
                "/slowly" => {
                    self.gate.acquire().await.unwrap().forget();
                    let mut bytes = 0;
                    while let Some(piece) = exchange.body.chunk().await.unwrap() {
                        bytes += piece.len();
                    }
                    let trailers = exchange.body.trailers();
                    let sum = trailers.as_ref().and_then(|trailers| trailers.get("x-sum"));
                    let sum = sum.map_or("none", |sum| sum.to_str().unwrap());
                    Response::new(StatusCode::OK, format!("read {bytes}, sum {sum}"))
                }
                other => panic!("no such path: {other}"),
            }
        })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

impl Streams {
    /// `one`, then `two` when the gate opens, then a trailer.
    fn pieces(&self, length: Option<u64>) -> Payload {
        let (sender, body) = Payload::channel(length, 1);
        let gate = self.gate.clone();
        tokio::spawn(async move {
            sender.send("one").await.unwrap();
            sender.send("").await.unwrap();
            gate.acquire().await.unwrap().forget();
            sender.send("two").await.unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_static("6"));
            let _ = sender.finish(Some(trailers)).await;
        });
        body
    }
}

/// Makes pieces as long as they are taken, and tells when it is dropped.
struct Endless {
    made: Arc<AtomicUsize>,
    seen: mpsc::Sender<String>,
}

impl Endless {
    fn payload(streams: &Streams) -> Payload {
        let (made, seen) = (streams.made.clone(), streams.seen.clone());
        Payload::Stream(Box::new(Endless { made, seen }))
    }
}

impl Chunks for Endless {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        self.made.fetch_add(PIECE_BYTES, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Bytes::from(vec![b'x'; PIECE_BYTES]))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.seen.send("dropped".into());
    }
}

/// The request's body as the answer's.
struct Echo(Body);

impl Chunks for Echo {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        self.0.poll_chunk(cx).map(|piece| piece.map_err(|_| Cut).transpose())
    }
}

fn start(limits: Limits) -> (Server, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let server = Server::serving(limits, EarlyHints::Off, |gate, seen| {
        Arc::new(Streams { gate, seen, made: counter })
    });
    (server, made)
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn a_stream_of_unknown_length_is_chunked_and_flushed_at_once() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    for _ in 0..2 {
        wire.send(get("/pieces"));
        let begun = wire.until("one\r\n");
        assert!(begun.contains("transfer-encoding: chunked\r\n"), "{begun}");
        assert!(begun.ends_with("\r\n\r\n3\r\none\r\n") && !begun.contains("content-length"));
        server.gate.add_permits(1);
        assert_eq!(wire.until("6\r\n\r\n"), "3\r\ntwo\r\n0\r\nx-sum: 6\r\n\r\n");
    }
}

#[test]
fn a_stream_of_known_length_has_no_frames() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    server.gate.add_permits(2);
    for _ in 0..2 {
        wire.send(get("/pieces?6"));
        let answer = wire.response();
        assert!(answer.contains("content-length: 6\r\n") && answer.ends_with("\r\n\r\nonetwo"));
    }
}

#[test]
fn an_old_client_reads_a_stream_to_the_end_of_the_connection() {
    let (server, _) = start(Limits::default());
    server.gate.add_permits(1);
    let answer = server.exchange("GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("\r\n\r\nonetwo"));
    assert!(!answer.contains("chunked"), "{answer}");
}

#[test]
fn a_head_request_does_not_start_the_stream() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    for (target, length) in [("/endless", "\r\n"), ("/pieces?6", "content-length: 6\r\n")] {
        wire.send(get(target).replace("GET", "HEAD"));
        let head = wire.until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(length), "{head}");
    }
    server.saw("dropped");
}

#[test]
fn a_truncated_response_is_never_complete() {
    let (server, _) = start(Limits::default());
    server.gate.add_permits(2);
    let broken = server.exchange(get("/cut"));
    assert!(broken.ends_with("4\r\nhalf\r\n"), "{broken}");
    let broken = server.exchange(get("/cut?9"));
    assert!(broken.ends_with("\r\n\r\nhalf"), "{broken}");
    let short = server.exchange(get("/pieces?7"));
    assert!(short.ends_with("\r\n\r\nonetwo"), "{short}");
    let long = server.exchange(get("/pieces?5"));
    assert!(long.ends_with("\r\n\r\none"), "{long}");
}

#[test]
fn a_slow_reader_slows_the_source_and_one_that_stops_is_disconnected() {
    let write_stall = Duration::from_millis(300);
    let (server, made) = start(Limits { write_stall, ..Limits::default() });
    let mut wire = server.connect();
    wire.send(get("/endless"));
    wire.until("\r\n\r\n");
    server.saw("dropped");
    assert!(made.load(Ordering::Relaxed) < FAR_TOO_MUCH, "{made:?}");
}

#[test]
fn a_client_that_disconnects_ends_its_stream() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    wire.send(get("/endless"));
    wire.until("\r\n\r\n");
    drop(wire);
    server.saw("dropped");
}

#[test]
fn a_broken_connection_ends_the_call_that_it_waits_for() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    wire.send(get("/hold"));
    server.saw("held");
    // Closed without a reset a client may still wait for its answer; with one it is gone.
    socket2::SockRef::from(&wire.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(wire);
    server.saw("dropped");
}

#[test]
fn a_service_that_reads_slowly_slows_the_client_down() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    wire.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let length = FAR_TOO_MUCH;
    wire.send(format!("POST /slowly HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    let piece = vec![b'x'; PIECE_BYTES];
    let mut sent = 0;
    while let Ok(count) = wire.stream.write(&piece) {
        sent += count;
        assert!(sent < length, "nobody held the client back");
    }
    server.gate.add_permits(1);
    wire.stream.set_write_timeout(None).unwrap();
    wire.stream.write_all(&vec![b'x'; length - sent]).unwrap();
    assert!(wire.response().ends_with(&format!("read {length}, sum none")));
}

#[test]
fn trailers_reach_the_service() {
    let (server, _) = start(Limits::default());
    server.gate.add_permits(4);
    let mut wire = server.connect();
    for _ in 0..2 {
        wire.send("POST /slowly HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n");
        wire.send("abc\r\n0;last\r\nX-Sum: 6\r\nx-two: 2\r\n\r\n");
        assert!(wire.response().ends_with("read 3, sum 6"));
        wire.send("POST /slowly HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
        assert!(wire.response().ends_with("read 2, sum none"));
    }
}

#[test]
fn both_bodies_flow_at_the_same_time() {
    let (server, _) = start(Limits::default());
    let mut wire = server.connect();
    wire.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    wire.send("2\r\nab\r\n");
    let begun = wire.until("ab\r\n");
    assert!(begun.contains("connection: close\r\n"), "the end of the request is not known");
    wire.send("1\r\nc\r\n");
    assert_eq!(wire.until("c\r\n"), "1\r\nc\r\n");
    // Far more than fits between: sent by a client that reads nothing meanwhile.
    let mut sending = wire.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let piece = [b"10000\r\n", &vec![b'x'; PIECE_BYTES][..], b"\r\n"].concat();
        for _ in 0..256 {
            sending.write_all(&piece).unwrap();
        }
        sending.write_all(b"0\r\n\r\n").unwrap();
    });
    let rest = wire.rest();
    sender.join().unwrap();
    assert_eq!(rest.matches('x').count(), 256 * PIECE_BYTES);
    assert!(rest.ends_with("\r\n0\r\n\r\n"));
}
