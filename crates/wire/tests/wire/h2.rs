//! HTTP/2 by prior knowledge, with a client that behaves: the same exchanges as on HTTP/1.1.

use std::future::poll_fn;
use std::io::Read as _;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use wire::{
    Answer, EarlyHints, Exchange, Fault, Limits, Listener, Payload, Raw, Response, Service,
    Shutdown,
};

use crate::h2_client::{Client, PREFACE, SETTINGS, answer, frame, next, request, run, seen};
use crate::server::Server;

const LARGE_BYTES: usize = 8 << 20;

/// What HTTP/2 adds to what the echo can show.
pub struct Streams {
    pub gate: Arc<Semaphore>,
    pub seen: mpsc::Sender<String>,
}

impl Service for Streams {
    fn call(&self, mut exchange: Exchange) -> Answer<'_> {
        Box::pin(async move {
            let (gate, seen) = (self.gate.clone(), self.seen.clone());
            match exchange.uri.path() {
                "/hints" => {
                    exchange.hints.links([HeaderValue::from_static("</a.css>; rel=preload")]);
                    gate.acquire().await.unwrap().forget();
                    Response::new(StatusCode::OK, "hinted")
                }
                "/pieces" => pieces(None, Some(3), seen),
                "/endless" => pieces(None, None, seen),
                "/cut" => pieces(Some(100), Some(3), seen),
                "/count" => {
                    let mut count = 0;
                    while let Ok(Some(piece)) = exchange.body.chunk().await {
                        assert!(!piece.is_empty(), "a piece of nothing looks like the end");
                        count += piece.len();
                    }
                    let trailers = exchange.body.trailers().unwrap_or_default();
                    let sum = trailers.get("sum").map_or("", |sum| sum.to_str().unwrap());
                    Response::new(StatusCode::OK, format!("{count} {sum}"))
                }
                "/events" => {
                    let run = move |raw| events(raw, gate, seen);
                    Response::new(StatusCode::OK, Payload::take_over(run))
                }
                "/socket" => socket(&exchange, seen),
                "/connection" => {
                    let mut response = Response::new(StatusCode::OK, "plain");
                    for name in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
                        response.headers.insert(name, HeaderValue::from_static("x"));
                    }
                    response
                }
                _ => {
                    let headers: Vec<String> = exchange
                        .headers
                        .iter()
                        .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
                        .collect();
                    Response::new(StatusCode::OK, headers.join("\n"))
                }
            }
        })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

/// A stream of so many pieces, told piece by piece as they go.
fn pieces(declared: Option<u64>, count: Option<usize>, seen: mpsc::Sender<String>) -> Response {
    let (sender, payload) = Payload::channel(declared, 1);
    tokio::spawn(async move {
        let mut sent = 0;
        while count.is_none_or(|count| sent < count) {
            let piece = if count.is_some() { vec![b'x'; 3] } else { vec![b'x'; 16 << 10] };
            if sender.send(piece).await.is_err() {
                let _ = seen.send(format!("gone after {sent}"));
                return;
            }
            sent += 1;
        }
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("sum"),
            HeaderValue::from_static("three"),
        )]);
        let _ = sender.finish(Some(trailers)).await;
    });
    Response::new(StatusCode::OK, payload)
}

async fn events(mut raw: Raw, gate: Arc<Semaphore>, seen: mpsc::Sender<String>) {
    let mut signal = raw.shutdown_signal();
    loop {
        tokio::select! {
            permit = gate.acquire() => permit.unwrap().forget(),
            () = signal.fired() => break,
            _ = poll_fn(|cx| raw.poll_readable(cx)) => {
                let _ = seen.send("left".into());
                return;
            }
        }
        raw.write_all(b"data: x\n\n").await.unwrap();
    }
    let _ = raw.write_all(b"data: bye\n\n").await;
    let _ = seen.send("over".into());
}

/// Echoes what an upgrade sends.
fn socket(exchange: &Exchange, seen: mpsc::Sender<String>) -> Response {
    let upgrade = exchange.headers.get("upgrade").map_or("", |value| value.to_str().unwrap());
    let _ = seen.send(format!("{} {} {upgrade}", exchange.method, exchange.uri));
    match exchange.uri.query() {
        Some("no") => return Response::new(StatusCode::FORBIDDEN, "no"),
        Some("plain") => return Response::new(StatusCode::OK, "not a socket"),
        _ => {}
    }
    let echo = |mut raw: Raw| async move {
        let mut buffer = [0; 5];
        while let Ok(count) = raw.read(&mut buffer).await
            && count > 0
        {
            raw.write_all(&buffer[..count]).await.unwrap();
        }
        let _ = seen.send("over".into());
    };
    Response::new(StatusCode::SWITCHING_PROTOCOLS, Payload::take_over(echo))
}

fn streams(limits: Limits) -> Server {
    Server::serving(limits, EarlyHints::Asked, |gate, seen| Arc::new(Streams { gate, seen }))
}

#[test]
fn requests_are_answered_as_on_http_1() {
    let server = Server::start();
    run(async {
        let mut client = Client::connect(&server).await;
        let echoed = client.post("/echo?q=1", "hello").await;
        assert_eq!(echoed.status, StatusCode::OK);
        assert_eq!(echoed.body, "{\"saw\":\"POST /echo?q=1\",\"body\":\"hello\"}");
        assert_eq!(echoed.headers["content-type"], "application/json");
        assert_eq!(echoed.headers["content-length"], echoed.body.len().to_string());
        assert!(echoed.headers.contains_key("date"));
        let empty = client.get("/empty").await;
        assert_eq!(empty.status, StatusCode::NO_CONTENT);
        assert!(!empty.headers.contains_key("content-length"));
        let (head, _) = client.send(request(Method::HEAD, "/one"), true).await;
        let head = answer(head).await.unwrap();
        assert_eq!(
            (head.body.as_str(), &head.headers["content-length"]),
            ("", &"29".parse().unwrap())
        );
        let large = client.get("/large").await;
        assert_eq!(large.body.len(), LARGE_BYTES);
        let interim = client.get("/interim").await;
        assert_eq!(interim.status, StatusCode::INTERNAL_SERVER_ERROR);
    });
}

#[test]
fn a_panic_or_an_oversized_body_ends_only_its_own_stream() {
    let server = Server::start();
    run(async {
        let mut client = Client::connect(&server).await;
        let (waiting, _) = client.send(request(Method::GET, "/wait"), true).await;
        let panicked = client.get("/panic").await;
        assert_eq!(panicked.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(panicked.body.contains("refused"), "{}", panicked.body);
        let large = client.post("/echo", vec![b'x'; 4096]).await;
        assert!(large.body.contains("TooLarge"), "{}", large.body);
        // Answered before it was sent, and the rest of it does not matter.
        let mut declared = request(Method::POST, "/echo");
        declared.headers_mut().insert("content-length", HeaderValue::from_static("999999"));
        let (response, _unsent) = client.send(declared, false).await;
        assert!(answer(response).await.unwrap().body.contains("TooLarge"));
        server.gate.add_permits(1);
        assert!(answer(waiting).await.unwrap().body.contains("GET /wait"));
    });
}

#[test]
fn many_streams_share_a_connection_and_those_over_the_limit_are_refused() {
    let server = Server::with(Limits { max_exchanges: 64, ..Limits::default() });
    run(async {
        let mut client = Client::connect(&server).await;
        assert_eq!(client.get("/one").await.status, StatusCode::OK);
        let mut responses = Vec::new();
        for _ in 0..100 {
            responses.push(client.send(request(Method::GET, "/wait"), true).await.0);
        }
        for _ in 0..65 {
            seen(&server).await;
        }
        // None is answered before all have asked: those over the limit are told meanwhile.
        let mut statuses = Vec::new();
        for response in responses.split_off(64) {
            statuses.push(answer(response).await.unwrap().status.as_u16());
        }
        server.gate.add_permits(64);
        for response in responses {
            statuses.push(answer(response).await.unwrap().status.as_u16());
        }
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 64);
        assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 36);
    });
}

#[test]
fn the_service_sees_one_host_and_one_cookie_and_no_pseudo_fields() {
    let server = streams(Limits::default());
    run(async {
        let mut client = Client::connect(&server).await;
        let mut crumbs = request(Method::GET, "/headers");
        for crumb in ["a=1", "b=2", "c=3"] {
            crumbs.headers_mut().append("cookie", HeaderValue::from_static(crumb));
        }
        let (response, _) = client.send(crumbs, true).await;
        let seen = answer(response).await.unwrap().body;
        let mut lines: Vec<&str> = seen.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["cookie=a=1; b=2; c=3", "host=test.example"]);
        let plain = client.get("/connection").await;
        let mut names: Vec<&str> = plain.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "date"]);
    });
}

#[test]
fn early_hints_arrive_before_the_service_has_finished() {
    let server = streams(Limits::default());
    run(async {
        let mut client = Client::connect(&server).await;
        let (mut response, _) = client.send(request(Method::GET, "/hints"), true).await;
        let hints = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(hints.status(), StatusCode::EARLY_HINTS);
        assert_eq!(hints.headers()["link"], "</a.css>; rel=preload");
        server.gate.add_permits(1);
        assert_eq!(answer(response).await.unwrap().body, "hinted");
    });
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let server = Server::start();
    run(async {
        let mut client = Client::connect(&server).await;
        let mut asking = request(Method::POST, "/echo");
        asking.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
        let (mut response, mut body) = client.send(asking, false).await;
        let asked = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(asked.status(), StatusCode::CONTINUE);
        body.send_data(Bytes::from_static(b"asked"), true).unwrap();
        assert!(answer(response).await.unwrap().body.contains("asked"));
    });
}

#[test]
fn a_stalled_body_times_out_and_the_connection_continues() {
    const SHORT: Duration = Duration::from_millis(100);
    for limits in [
        Limits { body_stall: SHORT, ..Limits::default() },
        Limits { body_timeout: SHORT, ..Limits::default() },
    ] {
        let server = Server::with(limits);
        run(async {
            let mut client = Client::connect(&server).await;
            let (response, mut body) = client.send(request(Method::POST, "/echo"), false).await;
            body.send_data(Bytes::from_static(b"half"), false).unwrap();
            let answer = answer(response).await.unwrap();
            assert_eq!(answer.body, "{\"fault\":\"Timeout\"}");
            assert_eq!(client.get("/one").await.status, StatusCode::OK);
        });
    }
}

#[test]
fn streams_carry_trailers_both_ways_and_a_broken_one_is_reset() {
    let server = streams(Limits::default());
    run(async {
        let mut client = Client::connect(&server).await;
        let streamed = client.get("/pieces").await;
        assert_eq!(
            (streamed.body.as_str(), streamed.trailers.unwrap()["sum"].as_bytes()),
            ("xxxxxxxxx", &b"three"[..])
        );
        let (response, mut body) = client.send(request(Method::POST, "/count"), false).await;
        body.send_data(Bytes::from(vec![b'x'; 3 << 20]), false).unwrap();
        // Nothing is not an end.
        body.send_data(Bytes::new(), false).unwrap();
        body.send_data(Bytes::from_static(b"x"), false).unwrap();
        let sum = HeaderMap::from_iter([(
            http::HeaderName::from_static("sum"),
            HeaderValue::from_static("s"),
        )]);
        body.send_trailers(sum).unwrap();
        assert_eq!(answer(response).await.unwrap().body, format!("{} s", (3 << 20) + 1));
        let (response, _) = client.send(request(Method::GET, "/cut"), true).await;
        let broken = answer(response).await.err().expect("half an answer is no answer");
        assert_eq!(broken.reason(), Some(h2::Reason::INTERNAL_ERROR));
        assert_eq!(client.get("/pieces").await.body, "xxxxxxxxx", "the others go on");
    });
}

#[test]
fn a_stream_follows_the_pace_of_its_reader_and_ends_when_it_is_cancelled() {
    let server = streams(Limits::default());
    run(async {
        // More for all streams than for one: what is not read must not use up the others' share.
        let mut roomy = h2::client::Builder::new();
        roomy.initial_connection_window_size(1 << 20);
        let mut client = Client::with(&server, &roomy).await;
        let (response, mut sending) = client.send(request(Method::GET, "/endless"), true).await;
        let mut body = response.await.unwrap().into_body();
        next(&mut body).await.unwrap().unwrap();
        // Others are not held up by one that nobody reads.
        assert_eq!(client.get("/pieces").await.body, "xxxxxxxxx");
        sending.send_reset(h2::Reason::CANCEL);
        drop(body);
        let gone = seen(&server).await;
        let pieces: usize = gone.strip_prefix("gone after ").unwrap().parse().unwrap();
        assert!(pieces < 40, "{gone} of 16 KiB each");
    });
}

#[test]
fn a_taken_over_stream_continues_until_either_side_ends_it() {
    let server = streams(Limits::default());
    run(async {
        let mut client = Client::connect(&server).await;
        let (response, mut sending) = client.send(request(Method::GET, "/events"), true).await;
        let mut body = response.await.unwrap().into_body();
        server.gate.add_permits(1);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "data: x\n\n");
        sending.send_reset(h2::Reason::CANCEL);
        assert_eq!(seen(&server).await, "left");
        let (response, _) = client.send(request(Method::GET, "/events"), true).await;
        let events = answer(response);
        server.trigger.fire();
        assert_eq!(events.await.unwrap().body, "data: bye\n\n");
    });
    server.join();
}

#[test]
fn the_service_sees_a_websocket_stream_as_an_upgrade() {
    let server = streams(Limits::default());
    run(async {
        let mut client = Client::connect(&server).await;
        client.get("/pieces").await;
        assert!(client.requests.is_extended_connect_protocol_enabled());
        let upgrade = |path: &str, protocol: &'static str| {
            let mut upgrade = request(Method::CONNECT, path);
            upgrade.extensions_mut().insert(Protocol::from_static(protocol));
            upgrade
        };
        let (response, mut sending) = client.send(upgrade("/socket", "websocket"), false).await;
        let response = response.await.unwrap();
        assert_eq!(seen(&server).await, "GET /socket websocket");
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = response.into_body();
        for word in ["hello", "there"] {
            sending.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), word);
        }
        sending.send_data(Bytes::new(), true).unwrap();
        assert!(next(&mut body).await.unwrap().is_none());
        assert_eq!(seen(&server).await, "over");
        for (path, protocol, status) in [
            ("/socket?no", "websocket", StatusCode::FORBIDDEN),
            ("/socket?plain", "websocket", StatusCode::METHOD_NOT_ALLOWED),
            ("/socket", "connect-udp", StatusCode::METHOD_NOT_ALLOWED),
        ] {
            let (response, _sending) = client.send(upgrade(path, protocol), false).await;
            assert_eq!(response.await.unwrap().status(), status, "{path} {protocol}");
        }
    });
}

#[test]
fn a_drain_finishes_open_streams_and_refuses_new_ones() {
    let server = Server::start();
    run(async {
        let mut client = Client::connect(&server).await;
        let (waiting, _) = client.send(request(Method::GET, "/wait"), true).await;
        seen(&server).await;
        server.trigger.fire();
        // Told to go away, the client opens nothing more.
        while client.requests.clone().ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
        server.gate.add_permits(1);
        assert_eq!(answer(waiting).await.unwrap().status, StatusCode::OK);
        client.connection.await.unwrap().unwrap();
    });
    server.join();
}

#[test]
fn a_listener_can_be_limited_to_http_1() {
    let (_trigger, shutdown) = Shutdown::channel();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).unwrap().prior_knowledge(false);
    let address = listener.local_addr();
    let (seen, _) = mpsc::channel();
    let service = Arc::new(Streams { gate: Arc::new(Semaphore::new(0)), seen });
    let _running = listener.run(service, Limits::default(), shutdown).unwrap();
    run(async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    });
}

#[test]
fn a_preface_in_pieces_is_accepted_and_half_of_one_is_not() {
    let server = Server::start();
    for end in 1..PREFACE.len() {
        let mut wire = server.connect();
        wire.stream.set_nodelay(true).unwrap();
        wire.send(&PREFACE[..end]);
        // waits for: the server to read what there is, which most often it has by then
        std::thread::sleep(Duration::from_millis(5));
        wire.send(&PREFACE[end..]);
        wire.send(frame(SETTINGS, 0, 0, &[]));
        let mut settings = [0; 9];
        wire.stream.read_exact(&mut settings).unwrap();
        assert_eq!(settings[3], SETTINGS, "{end}: {}", settings.escape_ascii());
    }
    // What may become any request with a P is refused as one.
    for end in 1..PREFACE.len() {
        let mut wire = server.connect();
        wire.send(&PREFACE[..end]);
        wire.finish_sending();
        let mut answer = Vec::new();
        wire.stream.read_to_end(&mut answer).unwrap();
        let refused = answer.starts_with(b"HTTP/1.1 400 ");
        assert_eq!(refused, end < "PRI * HTTP/2".len(), "{end}: {}", answer.escape_ascii());
    }
    server.saw_nothing();
}

#[test]
fn a_client_that_does_not_read_loses_its_stream_but_not_its_connection() {
    let limits = Limits { write_stall: Duration::from_millis(100), ..Limits::default() };
    let server = Server::with(limits);
    run(async {
        let mut client = Client::connect(&server).await;
        let (response, _) = client.send(request(Method::GET, "/large"), true).await;
        let mut body = response.await.unwrap().into_body();
        // Never gives the window back.
        let broken = loop {
            match poll_fn(|cx| body.poll_data(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("it cannot be complete"),
            }
        };
        assert!(broken.is_reset(), "{broken}");
        drop(body);
        assert_eq!(client.get("/one").await.status, StatusCode::OK);
    });
}
