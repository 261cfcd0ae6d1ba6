//! HTTP/3 with a client that behaves: the same exchanges as on HTTP/1.1 and HTTP/2.

use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::ext::Protocol;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use wire::{Limits, Tls};

use crate::h2_client::run;
use crate::h3_client::{
    DATA, HEADERS, Stream, answer, block, echo, endpoint, frame, request, socket, streams,
};
use crate::server::Server;
use crate::tls::{self, identity};

const LARGE_BYTES: usize = 8 << 20;

/// The next piece of an answer's body.
async fn next(stream: &mut Stream) -> Option<Bytes> {
    let mut piece = stream.recv_data().await.unwrap()?;
    Some(piece.copy_to_bytes(piece.remaining()))
}

/// What the service has seen next, without holding up the client's own tasks.
async fn seen(server: &Server) -> String {
    loop {
        match server.seen.try_recv() {
            Ok(line) => return line,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn requests_are_answered_as_on_http_1() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let echoed = client.post("/echo?q=1", "hello").await;
        assert_eq!(echoed.status, StatusCode::OK);
        assert_eq!(echoed.body, "{\"saw\":\"POST /echo?q=1\",\"body\":\"hello\"}");
        assert_eq!(echoed.headers["content-type"], "application/json");
        assert_eq!(echoed.headers["content-length"], echoed.body.len().to_string());
        assert!(echoed.headers.contains_key("date"));
        assert!(!echoed.headers.contains_key("alt-svc"), "it is here already");
        let empty = client.get("/empty").await;
        assert_eq!(empty.status, StatusCode::NO_CONTENT);
        assert!(!empty.headers.contains_key("content-length"));
        let head = client.ask(request(Method::HEAD, "/one")).await.unwrap();
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
fn responses_of_other_protocols_advertise_http_3() {
    let (certificate, trusted) = identity(&["localhost"]);
    let tls = Tls::new(vec![certificate]).unwrap();
    let server = Server::quic(Limits::default(), tls);
    let client = tls::Client::trusting([trusted]);
    let answer = tls::ask(&mut client.connect(&server), "GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    let expected = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", server.address.port());
    assert!(answer.contains(&expected), "{answer}");
    run(async {
        let mut config = client.config.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let (response, _) = requests.send_request(request(Method::GET, "/one"), true).unwrap();
        let told = response.await.unwrap().headers()["alt-svc"].clone();
        assert_eq!(format!("alt-svc: {}\r\n", told.to_str().unwrap()), expected);
    });
    // Where it is not spoken nobody says so.
    let (server, client) = tls::pair(Limits::default());
    let answer = tls::ask(&mut client.connect(&server), "GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!answer.contains("alt-svc"), "{answer}");
}

#[test]
fn without_tls_there_is_no_http_3() {
    let listener = wire::Listener::bind(([127, 0, 0, 1], 0).into()).unwrap().http3().unwrap();
    let (_trigger, shutdown) = wire::Shutdown::channel();
    let (seen, _) = std::sync::mpsc::channel();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let service = std::sync::Arc::new(crate::h2::Streams { gate, seen });
    let refused = listener.run(service, Limits::default(), shutdown).expect_err("it cannot serve");
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_panic_or_an_oversized_body_ends_only_its_own_stream() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut waiting = client.send(request(Method::GET, "/wait")).await;
        waiting.finish().await.unwrap();
        let panicked = client.get("/panic").await;
        assert_eq!(panicked.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(panicked.body.contains("refused"), "{}", panicked.body);
        let large = client.post("/echo", vec![b'x'; 4096]).await;
        assert!(large.body.contains("TooLarge"), "{}", large.body);
        // Answered before it was sent, and the rest of it does not matter.
        let mut declared = request(Method::POST, "/echo");
        declared.headers_mut().insert("content-length", HeaderValue::from_static("999999"));
        let mut unsent = client.send(declared).await;
        assert!(answer(&mut unsent).await.unwrap().body.contains("TooLarge"));
        server.gate.add_permits(1);
        assert!(answer(&mut waiting).await.unwrap().body.contains("GET /wait"));
    });
}

#[test]
fn many_streams_share_a_connection_and_those_over_the_limit_are_refused() {
    let (server, trust) = echo(Limits { max_exchanges: 64, ..Limits::default() });
    run(async {
        let mut client = trust.client(&server).await;
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut stream = client.send(request(Method::GET, "/wait")).await;
            stream.finish().await.unwrap();
            waiting.push(stream);
        }
        for _ in 0..64 {
            seen(&server).await;
        }
        let mut statuses = Vec::new();
        // The last ones find no place, and are told at once.
        for stream in waiting.iter_mut().skip(64) {
            statuses.push(answer(stream).await.unwrap().status.as_u16());
        }
        assert_eq!(statuses, [503; 36]);
        server.gate.add_permits(64);
        for stream in waiting.iter_mut().take(64) {
            assert_eq!(answer(stream).await.unwrap().status, StatusCode::OK);
        }
    });
}

#[test]
fn the_service_sees_one_host_and_one_cookie_and_no_pseudo_fields() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut crumbs = request(Method::GET, "/headers");
        for crumb in ["a=1", "b=2", "c=3"] {
            crumbs.headers_mut().append("cookie", HeaderValue::from_static(crumb));
        }
        let seen = client.ask(crumbs).await.unwrap().body;
        let mut lines: Vec<&str> = seen.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["cookie=a=1; b=2; c=3", "host=localhost"]);
        let plain = client.get("/connection").await;
        let mut names: Vec<&str> = plain.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "date"]);
    });
}

#[test]
fn early_hints_arrive_before_the_service_has_finished() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut stream = client.send(request(Method::GET, "/hints")).await;
        stream.finish().await.unwrap();
        let hints = stream.recv_response().await.unwrap();
        assert_eq!(hints.status(), StatusCode::EARLY_HINTS);
        assert_eq!(hints.headers()["link"], "</a.css>; rel=preload");
        server.gate.add_permits(1);
        assert_eq!(answer(&mut stream).await.unwrap().body, "hinted");
    });
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut asking = request(Method::POST, "/echo");
        asking.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
        let mut stream = client.send(asking).await;
        assert_eq!(stream.recv_response().await.unwrap().status(), StatusCode::CONTINUE);
        stream.send_data(Bytes::from_static(b"asked")).await.unwrap();
        stream.finish().await.unwrap();
        assert!(answer(&mut stream).await.unwrap().body.contains("asked"));
    });
}

#[test]
fn streams_carry_trailers_both_ways_and_a_broken_one_is_reset() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let streamed = client.get("/pieces").await;
        assert_eq!(
            (streamed.body.as_str(), streamed.trailers.unwrap()["sum"].as_bytes()),
            ("xxxxxxxxx", &b"three"[..])
        );
        let mut stream = client.send(request(Method::POST, "/count")).await;
        stream.send_data(Bytes::from(vec![b'x'; 3 << 20])).await.unwrap();
        let sum = (HeaderName::from_static("sum"), HeaderValue::from_static("s"));
        stream.send_trailers(HeaderMap::from_iter([sum])).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap().body, format!("{} s", 3 << 20));
        match client.ask(request(Method::GET, "/cut")).await {
            Err(StreamError::RemoteTerminate { code, .. }) => {
                assert_eq!(code, Code::H3_INTERNAL_ERROR);
            }
            other => panic!("half an answer is no answer: {other:?}"),
        }
        assert_eq!(client.get("/pieces").await.body, "xxxxxxxxx", "the others go on");
    });
}

#[test]
fn a_stream_follows_the_pace_of_its_reader_and_ends_when_it_is_cancelled() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut endless = client.send(request(Method::GET, "/endless")).await;
        endless.finish().await.unwrap();
        endless.recv_response().await.unwrap();
        next(&mut endless).await.unwrap();
        // Others are not held up by one that nobody reads.
        assert_eq!(client.get("/pieces").await.body, "xxxxxxxxx");
        endless.stop_sending(Code::H3_REQUEST_CANCELLED);
        let gone = seen(&server).await;
        let pieces: usize = gone.strip_prefix("gone after ").unwrap().parse().unwrap();
        // The windows of both sides, and a piece in each place between.
        assert!(pieces < 256, "{gone} of 16 KiB each");
    });
}

#[test]
fn the_work_on_a_cancelled_request_stops() {
    let (server, trust) = echo(Limits { max_exchanges: 1, ..Limits::default() });
    run(async {
        let mut client = trust.client(&server).await;
        let mut stream = client.send(request(Method::GET, "/wait")).await;
        stream.finish().await.unwrap();
        assert_eq!(seen(&server).await, "GET /wait");
        assert_eq!(client.get("/one").await.status, StatusCode::SERVICE_UNAVAILABLE);
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        while client.get("/one").await.status != StatusCode::OK {}
    });
}

#[test]
fn a_taken_over_stream_continues_until_either_side_ends_it() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut events = client.send(request(Method::GET, "/events")).await;
        events.finish().await.unwrap();
        events.recv_response().await.unwrap();
        server.gate.add_permits(1);
        assert_eq!(next(&mut events).await.unwrap(), "data: x\n\n");
        // Which takes it back.
        drop(events);
        assert_eq!(seen(&server).await, "left");
        let mut events = client.send(request(Method::GET, "/events")).await;
        events.finish().await.unwrap();
        events.recv_response().await.unwrap();
        server.trigger.fire();
        assert_eq!(next(&mut events).await.unwrap(), "data: bye\n\n");
        assert_eq!(next(&mut events).await, None);
    });
    server.join();
}

#[test]
fn extended_connect_is_offered_only_for_websockets() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut upgrade = request(Method::CONNECT, "/socket");
        upgrade.extensions_mut().insert(Protocol::WEB_TRANSPORT);
        let refused = client.ask(upgrade).await.unwrap();
        assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
        let mut plain = request(Method::CONNECT, "/");
        *plain.uri_mut() = "localhost:1".parse().unwrap();
        // This client adds what a plain CONNECT must not have.
        let refused = client.ask(plain).await;
        assert!(refused.is_err(), "{refused:?}");
    });
}

#[test]
fn the_service_sees_a_websocket_stream_as_an_upgrade() {
    let (server, trust) = streams(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        let upgrade = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/socket"),
        ];
        sending.write_all(&frame(HEADERS, &block(&upgrade))).await.unwrap();
        assert_eq!(seen(&server).await, "GET /socket websocket");
        let mut received = Vec::new();
        for word in ["hello", "there"] {
            sending.write_all(&frame(DATA, word.as_bytes())).await.unwrap();
            while !received.ends_with(word.as_bytes()) {
                let chunk = receiving.read_chunk(1000, true).await.unwrap().expect("it goes on");
                received.extend_from_slice(&chunk.bytes);
            }
        }
        sending.finish().unwrap();
        assert!(receiving.read_to_end(1000).await.unwrap().is_empty());
        assert_eq!(seen(&server).await, "over");
    });
}

#[test]
fn a_drain_finishes_open_streams_and_refuses_new_ones() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let mut waiting = client.send(request(Method::GET, "/wait")).await;
        waiting.finish().await.unwrap();
        assert_eq!(seen(&server).await, "GET /wait");
        server.trigger.fire();
        // Told to go away, the client opens nothing more.
        while client.requests.send_request(request(Method::GET, "/one")).await.is_ok() {
            tokio::task::yield_now().await;
        }
        server.gate.add_permits(1);
        assert_eq!(answer(&mut waiting).await.unwrap().status, StatusCode::OK);
        let end = client.connection.await.unwrap();
        assert!(end.is_h3_no_error(), "{end:?}");
    });
    server.join();
}

#[test]
fn an_idle_connection_is_closed_cleanly() {
    // Long enough for the first request on a busy machine.
    let limits = Limits { idle_timeout: Duration::from_millis(700), ..Limits::default() };
    let (server, trust) = echo(limits);
    run(async {
        let mut client = trust.client(&server).await;
        let mut waiting = client.send(request(Method::GET, "/wait")).await;
        waiting.finish().await.unwrap();
        assert_eq!(seen(&server).await, "GET /wait");
        // waits for: the idle time, in which a request under way does not count as rest
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        server.gate.add_permits(1);
        assert_eq!(answer(&mut waiting).await.unwrap().status, StatusCode::OK);
        let end = client.connection.await.unwrap();
        assert!(end.is_h3_no_error(), "{end:?}");
    });
}

#[test]
fn a_client_that_changes_its_address_keeps_its_connection() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        assert_eq!(client.get("/one").await.status, StatusCode::OK);
        let mut waiting = client.send(request(Method::GET, "/wait")).await;
        waiting.finish().await.unwrap();
        let before = client.endpoint.local_addr().unwrap();
        client.endpoint.rebind(socket()).unwrap();
        assert_ne!(client.endpoint.local_addr().unwrap(), before);
        assert_eq!(client.get("/two").await.status, StatusCode::OK);
        server.gate.add_permits(1);
        assert_eq!(answer(&mut waiting).await.unwrap().status, StatusCode::OK);
        assert_eq!(client.get("/large").await.body.len(), LARGE_BYTES);
    });
}

#[test]
fn certificates_are_chosen_by_name_and_replaced_while_serving() {
    let (first, trusted) = identity(&["localhost"]);
    let (second, later) = identity(&["localhost"]);
    let tls = Tls::new(vec![first]).unwrap();
    let server = Server::quic(Limits::default(), tls.clone());
    let (trust, later) = (crate::h3_client::Trust(trusted), crate::h3_client::Trust(later));
    run(async {
        let mut open = trust.client(&server).await;
        tls.replace(vec![second]).unwrap();
        assert_eq!(later.client(&server).await.get("/one").await.status, StatusCode::OK);
        let refused = endpoint().connect_with(trust.config(), server.address, "localhost");
        assert!(refused.unwrap().await.is_err(), "the old one is shown no more");
        assert_eq!(open.get("/one").await.status, StatusCode::OK, "who is here stays");
    });
}
