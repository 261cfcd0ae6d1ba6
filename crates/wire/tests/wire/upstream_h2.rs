//! HTTP/2 to backends: by prior knowledge and by agreement under TLS, many requests on one
//! connection, bodies and trailers both ways, and servers that refuse, reset or fall silent.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use wire::outgoing::{
    Call, CallTimeouts, Client, ClientTls, OutgoingFault, Protocol, Stage, Target,
};
use wire::{Limits, Tls};

use crate::h2_client::run;
use crate::proxy::{Proxy, impatient};
use crate::server::{PATIENCE, Server, Wire};
use crate::sink::{OK, Sink};
use crate::tls::identity;

fn target(address: SocketAddr) -> Target {
    Target::parse(&format!("http://{address}/")).unwrap().with_protocol(Protocol::Http2)
}

async fn echo(
    client: &Client,
    target: &Target,
    body: &'static str,
) -> Result<String, OutgoingFault> {
    let mut call = Call::new(Method::POST, target);
    call.body = body.into();
    let opened = client.open(&mut call).await?;
    let bytes = opened.flow.collect(1 << 20).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn requests_share_one_connection_and_get_their_own_responses() {
    let server = Server::start();
    let (client, target) = (Client::new(), Arc::new(target(server.address)));
    run(async {
        let expected = r#"{"saw":"POST /","body":"hello"}"#;
        assert_eq!(echo(&client, &target, "hello").await.unwrap(), expected);
        let calls: Vec<_> = (0..100)
            .map(|number| {
                let (client, target) = (client.clone(), target.clone());
                tokio::spawn(async move {
                    let mut call = Call::new(Method::GET, &target);
                    call.path = Some(format!("/{number}").parse().unwrap());
                    let opened = client.open(&mut call).await.unwrap();
                    assert!(opened.reused);
                    let body = opened.flow.collect(100).await.unwrap();
                    assert_eq!(body, format!(r#"{{"saw":"GET /{number}","body":""}}"#));
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!((client.sessions(), client.idle()), (1, 0));
    });
}

#[test]
fn concurrent_first_requests_open_no_more_connections_than_needed() {
    let server = Server::start();
    let (client, target) = (Client::new(), Arc::new(target(server.address)));
    run(async {
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let (client, target) = (client.clone(), target.clone());
                tokio::spawn(async move { echo(&client, &target, "x").await.unwrap() })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(client.sessions(), 1);
    });
}

#[test]
fn the_server_selects_the_protocol_under_tls() {
    let (certificate, trusted) = identity(&["localhost"]);
    let server = Server::secured(Limits::default(), Tls::new(vec![certificate]).unwrap());
    let tls = ClientTls::new(Some(vec![trusted.to_vec()]), None).unwrap();
    let url = format!("https://localhost:{}/", server.address.port());
    let target = Target::parse(&url).unwrap().with_tls(tls);
    for (protocol, sessions, idle) in
        [(Protocol::Negotiated, 1, 0), (Protocol::Http2, 1, 0), (Protocol::Http1, 0, 1)]
    {
        let (client, target) = (Client::new(), target.clone().with_protocol(protocol));
        run(async {
            for _ in 0..2 {
                assert!(echo(&client, &target, "hello").await.unwrap().contains("hello"));
            }
            assert_eq!((client.sessions(), client.idle()), (sessions, idle), "{protocol:?}");
        });
    }
}

#[test]
fn a_server_with_only_http_1_is_called_or_refused_as_configured() {
    let sink = Sink::new(|_, stream| crate::outgoing::secure(stream, OK));
    let url = format!("https://localhost:{}/", sink.address.port());
    let authority = include_bytes!("data/authority.der").to_vec();
    let tls = ClientTls::new(Some(vec![authority]), None).unwrap();
    let target = Target::parse(&url).unwrap().with_tls(tls);
    let client = Client::new();
    run(async {
        let negotiated = target.clone().with_protocol(Protocol::Negotiated);
        for _ in 0..2 {
            assert_eq!(echo(&client, &negotiated, "hello").await.unwrap(), "ok");
        }
        assert_eq!((client.sessions(), client.idle(), sink.accepted()), (0, 1, 1));
        let only = target.with_protocol(Protocol::Http2);
        assert_eq!(echo(&client, &only, "hello").await.unwrap_err().class(), "tls");
    });
    // Without TLS nobody can ask first.
    let sink = Sink::answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let plain = crate::upstream_h2::target(sink.address);
    let fault = run(async {
        let mut call = Call::new(Method::GET, &plain);
        call.timeouts = impatient();
        client.open(&mut call).await.unwrap_err()
    });
    assert!(["invalid_response", "reset", "timeout"].contains(&fault.class()), "{fault}");
}

/// Two proxies in a row, with HTTP/2 between them.
fn chain(sink: &Sink) -> (Server, Server) {
    let second = Proxy::to(&sink.url());
    let first = Proxy::to_target(target(second.address), CallTimeouts::default());
    (first, second)
}

#[test]
fn bodies_and_trailers_flow_both_ways_while_they_arrive() {
    let (heard, hears) = mpsc::channel();
    let heard = Mutex::new(heard);
    let (more, next) = mpsc::channel::<&'static str>();
    let next = Mutex::new(next);
    let sink = Sink::new(move |_, stream| {
        let mut wire = Wire::new(stream);
        let heard = heard.lock().unwrap();
        for what in ["\r\n\r\n", "one", "\r\n\r\n"] {
            heard.send(wire.until(what)).unwrap();
        }
        for bytes in next.lock().unwrap().iter() {
            wire.send(bytes);
        }
    });
    let (first, _second) = chain(&sink);
    let mut client = first.connect();
    let heard = || hears.recv_timeout(PATIENCE).unwrap();
    client.send("POST /x HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\none\r\n");
    let head = heard();
    assert!(head.starts_with("POST /x HTTP/1.1\r\nhost: shop.example\r\n"), "{head}");
    assert_eq!(heard(), "3\r\none");
    client.send("4\r\ntwo!\r\n0\r\nX-Sum: 7\r\n\r\n");
    assert_eq!(heard(), "\r\n4\r\ntwo!\r\n0\r\nx-sum: 7\r\n\r\n");
    more.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").unwrap();
    assert_eq!(client.response(), "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    more.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").unwrap();
    assert!(client.until("3\r\none\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    more.send("3\r\ntwo\r\n0\r\nX-Sum: 6\r\nAge: 1\r\n\r\n").unwrap();
    let rest = client.until("\r\n\r\n");
    assert!(rest.starts_with("3\r\ntwo\r\n0\r\n") && rest.contains("x-sum: 6\r\n"), "{rest}");
    drop(more);
}

#[test]
fn a_truncated_body_is_visible_across_protocols() {
    for half in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let sink = Sink::new(move |_, stream| {
            let mut wire = Wire::new(stream);
            wire.until("\r\n\r\n");
            wire.send(half);
        });
        let (first, _second) = chain(&sink);
        let mut client = first.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let received = client.rest();
        // The reset may overtake the head.
        let is_refused = received.starts_with("HTTP/1.1 502 ");
        let is_chunked = received.contains("chunked") && !received.ends_with("0\r\n\r\n");
        let is_short = received.contains("content-length: 9");
        assert!(is_refused || is_chunked || is_short, "{received}");
    }
}

#[test]
fn large_bodies_pass_unchanged() {
    let sink = Sink::new(|_, stream| {
        let mut wire = Wire::new(stream);
        while let Some(_head) = wire.try_until("\r\n\r\n") {
            let body = wire.until("THE END");
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    let (first, _second) = chain(&sink);
    let mut client = first.connect();
    let body = "0123456789".repeat(40_000) + "THE END";
    for _ in 0..2 {
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        client.send(head + &body);
        let response = client.response();
        assert!(response.ends_with(&body), "{}", response.len());
    }
}

type Served = (Request<RecvStream>, SendResponse<Bytes>);

/// A server of HTTP/2 that gives each request, with its number, to the closure.
fn serve(answer: impl Fn(usize, Served) + Send + Sync + 'static) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (answer, number) = (Arc::new(answer), Arc::new(Mutex::new(0)));
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, number) = (answer.clone(), number.clone());
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok(served)) = connection.accept().await {
                        let this = {
                            let mut number = number.lock().unwrap();
                            *number += 1;
                            *number - 1
                        };
                        answer(this, served);
                    }
                });
            }
        });
    });
    address
}

fn ok(mut respond: SendResponse<Bytes>) {
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    stream.send_data(Bytes::from_static(b"ok"), true).unwrap();
}

#[test]
fn a_refused_request_is_sent_again_for_every_method() {
    let address = serve(|number, (_, mut respond)| match number {
        0 => respond.send_reset(Reason::REFUSED_STREAM),
        _ => ok(respond),
    });
    let (client, target) = (Client::new(), target(address));
    run(async { assert_eq!(echo(&client, &target, "hello").await.unwrap(), "ok") });
    // But only once, and no other reset.
    for (reason, class) in [
        (Reason::REFUSED_STREAM, "reset"),
        (Reason::INTERNAL_ERROR, "reset"),
        (Reason::CANCEL, "reset"),
    ] {
        let (seen, sees) = mpsc::channel();
        let seen = Mutex::new(seen);
        let address = serve(move |number, (_, mut respond)| {
            seen.lock().unwrap().send(number).unwrap();
            respond.send_reset(reason);
        });
        let target = crate::upstream_h2::target(address);
        let fault = run(async { echo(&client, &target, "hello").await.unwrap_err() });
        assert_eq!(fault.class(), class);
        let expected = if reason == Reason::REFUSED_STREAM { 2 } else { 1 };
        assert_eq!(sees.try_iter().count(), expected, "{reason:?}");
    }
}

#[test]
fn a_silent_server_is_not_asked_again_on_the_same_connection() {
    let held = Mutex::new(Vec::new());
    let address = serve(move |number, served| match number {
        0 => held.lock().unwrap().push(served),
        _ => ok(served.1),
    });
    let (client, target) = (Client::new(), target(address));
    run(async {
        let mut call = Call::new(Method::GET, &target);
        call.timeouts = impatient();
        let fault = client.open(&mut call).await.unwrap_err();
        assert!(matches!(fault, OutgoingFault::Timeout(Stage::Head)), "{fault}");
        let opened = client.open(&mut Call::new(Method::GET, &target)).await.unwrap();
        assert!(!opened.reused);
    });
}

#[test]
fn heads_of_every_kind_are_read() {
    let address = serve(|number, (request, mut respond)| {
        let mut response = Response::new(());
        match number {
            0 => {
                *response.status_mut() = StatusCode::NO_CONTENT;
                drop(respond.send_response(response, true));
            }
            1 => {
                assert_eq!(request.method(), Method::HEAD);
                let length = HeaderValue::from_static("7");
                response.headers_mut().insert("content-length", length);
                drop(respond.send_response(response, true));
            }
            _ => {
                // A length that is not kept.
                let length = HeaderValue::from_static("7");
                response.headers_mut().insert("content-length", length);
                let mut stream = respond.send_response(response, false).unwrap();
                stream.send_data(Bytes::from_static(b"half"), true).unwrap();
            }
        }
    });
    let (client, target) = (Client::new(), target(address));
    run(async {
        let opened = client.open(&mut Call::new(Method::GET, &target)).await.unwrap();
        assert_eq!(opened.status, StatusCode::NO_CONTENT);
        assert_eq!(opened.flow.collect(9).await.unwrap(), "");
        let opened = client.open(&mut Call::new(Method::HEAD, &target)).await.unwrap();
        assert_eq!(opened.headers["content-length"], "7");
        assert_eq!(opened.flow.collect(9).await.unwrap(), "");
        let opened = client.open(&mut Call::new(Method::GET, &target)).await;
        let outcome = match opened {
            Ok(opened) => opened.flow.collect(9).await.map(drop),
            Err(fault) => Err(fault),
        };
        assert_eq!(outcome.unwrap_err().class(), "invalid_response");
    });
}

#[test]
fn a_reader_that_leaves_frees_its_stream() {
    let (seen, sees) = mpsc::channel();
    let seen = Mutex::new(seen);
    let address = serve(move |_, (_, mut respond)| {
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from_static(b"first"), false).unwrap();
        let seen = seen.lock().unwrap().clone();
        tokio::spawn(async move {
            let reason = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
            seen.send(reason.ok()).unwrap();
        });
    });
    let (client, target) = (Client::new(), target(address));
    run(async {
        let mut opened = client.open(&mut Call::new(Method::GET, &target)).await.unwrap();
        assert_eq!(opened.flow.piece().await.unwrap().unwrap(), "first");
        drop(opened);
        // waits for: the driver of the connection to send the reset
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    assert_eq!(sees.recv_timeout(PATIENCE).unwrap(), Some(Reason::CANCEL));
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let (seen, sees) = mpsc::channel::<HeaderMap>();
    let seen = Mutex::new(seen);
    let address = serve(move |_, (request, respond)| {
        seen.lock().unwrap().send(request.headers().clone()).unwrap();
        ok(respond);
    });
    let (client, target) = (Client::new(), target(address));
    run(async {
        let mut call = Call::new(Method::GET, &target);
        for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "x-own"] {
            call.headers.insert(name, HeaderValue::from_static("x"));
        }
        call.headers.insert("te", HeaderValue::from_static("trailers"));
        client.open(&mut call).await.unwrap();
    });
    let mut names: Vec<_> = sees.recv().unwrap().keys().map(ToString::to_string).collect();
    names.sort();
    assert_eq!(names, ["te", "x-own"]);
}
