//! The upstream client as a proxy uses it: bodies streamed both ways, trailers, interim responses,
//! upgrades, and what the server in front makes of them.

use std::io::Write;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use wire::Payload;
use wire::outgoing::{Call, Opened, OutgoingFault, Target};

use crate::proxy::{Proxy, impatient};
use crate::server::{PATIENCE, Wire};
use crate::sink::{Caller, OK, Sink};

/// A backend whose connections speak and listen as the test says.
fn backend(serve: impl Fn(Wire) + Send + Sync + 'static) -> Sink {
    Sink::new(move |_, stream| serve(Wire::new(stream)))
}

/// One request without a body, to its empty line.
fn head(wire: &mut Wire) -> String {
    wire.until("\r\n\r\n")
}

fn open(caller: &Caller, method: Method, url: &str) -> Result<Opened, OutgoingFault> {
    let target = Target::parse(url).unwrap();
    let mut call = Call::new(method, &target);
    call.timeouts = impatient();
    call.timeouts.head = PATIENCE;
    caller.runtime.block_on(caller.client.open(&mut call))
}

fn whole(caller: &Caller, opened: Opened) -> Result<Bytes, OutgoingFault> {
    caller.runtime.block_on(opened.flow.collect(1 << 20))
}

#[test]
fn a_small_response_frees_its_connection_at_once() {
    for bytes in [
        OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n",
    ] {
        let sink = backend(move |mut wire| {
            while wire.try_until("\r\n\r\n").is_some() {
                wire.send(bytes);
            }
        });
        let caller = Caller::new();
        for turn in 0..3 {
            let opened = open(&caller, Method::GET, &sink.url()).unwrap();
            assert_eq!((opened.status, opened.reused), (StatusCode::OK, turn > 0));
            assert_eq!(caller.client.idle(), 1);
            let Payload::Whole(body) = opened.flow.into_payload() else { panic!("streamed") };
            assert_eq!(body, "ok");
        }
        assert_eq!(sink.accepted(), 1);
    }
}

#[test]
fn a_response_is_forwarded_while_it_arrives() {
    let (more, next) = mpsc::channel::<&'static [u8]>();
    let next = Mutex::new(next);
    let sink = backend(move |mut wire| {
        head(&mut wire);
        for bytes in next.lock().unwrap().iter() {
            wire.send(bytes);
        }
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("GET /x?y HTTP/1.1\r\nHost: a\r\n\r\n");
    more.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n").unwrap();
    assert!(client.until("\r\n\r\n").contains("transfer-encoding: chunked"));
    more.send(b"3\r\none\r\n").unwrap();
    client.until("3\r\none\r\n");
    more.send(b"3\r\ntwo").unwrap();
    client.until("3\r\ntwo\r\n");
    // A field that may not stand there is not passed on.
    more.send(b"\r\n0\r\nX-Sum: 6\r\nContent-Length: 9\r\n\r\n").unwrap();
    assert_eq!(client.until("\r\n\r\n"), "0\r\nx-sum: 6\r\n\r\n");
    drop(more);
}

#[test]
fn a_request_is_forwarded_while_it_arrives_with_its_trailers() {
    let (heard, hears) = mpsc::channel();
    let heard = Mutex::new(heard);
    let sink = backend(move |mut wire| {
        let heard = heard.lock().unwrap();
        heard.send(head(&mut wire)).unwrap();
        heard.send(wire.until("one")).unwrap();
        heard.send(wire.until("\r\n\r\n")).unwrap();
        wire.send(OK);
        heard.send(head(&mut wire)).unwrap();
        heard.send(wire.until("hello")).unwrap();
        wire.send(OK);
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n");
    let next = || hears.recv_timeout(PATIENCE).unwrap();
    let head = next();
    assert!(head.starts_with("POST /x HTTP/1.1\r\nhost: a.example\r\n"), "{head}");
    assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
    client.send("3\r\none\r\n");
    assert_eq!(next(), "3\r\none");
    client.send("4\r\ntwo!\r\n0\r\nX-Sum: 7\r\n\r\n");
    assert_eq!(next(), "\r\n4\r\ntwo!\r\n0\r\nx-sum: 7\r\n\r\n");
    assert!(client.response().ends_with("ok"));
    // A known length stays one, and the connection is the same.
    client.send("POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhe");
    let head = next();
    assert!(head.contains("\r\ncontent-length: 5\r\n"), "{head}");
    client.send("llo");
    assert_eq!(next(), "hello");
    assert!(client.response().ends_with("ok"));
    assert_eq!(sink.accepted(), 1);
}

#[test]
fn a_slow_reader_slows_the_server_down() {
    let (written, blocked) = mpsc::channel();
    let written = Mutex::new(written);
    let sink = backend(move |mut wire| {
        head(&mut wire);
        wire.send("HTTP/1.1 200 OK\r\n\r\n");
        wire.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut sum = 0;
        // The kernel takes some megabytes; it must not take all.
        while sum < 1 << 30 && wire.stream.write_all(&[b'x'; 1 << 16]).is_ok() {
            sum += 1 << 16;
        }
        written.lock().unwrap().send(sum).unwrap();
    });
    let caller = Caller::new();
    let mut opened = open(&caller, Method::GET, &sink.url()).unwrap();
    assert!(blocked.recv_timeout(PATIENCE).unwrap() < 1 << 28);
    caller.runtime.block_on(async {
        let piece = opened.flow.piece().await.unwrap().unwrap();
        assert!(piece.len() <= 64 << 10, "{}", piece.len());
    });
}

#[test]
fn a_slow_server_slows_the_client_down() {
    let (_hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let sink = backend(move |mut wire| {
        head(&mut wire);
        let _ = held.lock().unwrap().recv();
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000000\r\n\r\n");
    client.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sum = 0;
    while sum < 1 << 30 && client.stream.write_all(&[b'x'; 1 << 16]).is_ok() {
        sum += 1 << 16;
    }
    assert!(sum < 1 << 28, "{sum}");
}

#[test]
fn interim_responses_come_before_the_response() {
    let sink = backend(|mut wire| {
        head(&mut wire);
        wire.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        wire.send("HTTP/1.1 199 What\r\n\r\n");
        wire.send(OK);
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response(), "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 200 OK"));
    ["interim 100", "interim 103", "interim 199"].iter().for_each(|seen| proxy.saw(seen));
}

#[test]
fn a_body_waits_for_100_and_the_client_with_it() {
    let sink = backend(|mut wire| {
        let head = head(&mut wire);
        assert!(head.contains("\r\nexpect: 100-continue\r\n"), "{head}");
        wire.send("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(wire.until("hello"), "hello");
        wire.send(OK);
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    let expect = "Host: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send(format!("PUT / HTTP/1.1\r\n{expect}"));
    assert_eq!(client.response(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert!(client.response().ends_with("ok"));
    // The server says no: the client is never asked for the body.
    let sink = backend(|mut wire| {
        head(&mut wire);
        wire.send("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(wire.rest(), "");
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send(format!("PUT / HTTP/1.1\r\n{expect}"));
    assert!(client.response().starts_with("HTTP/1.1 417"));
    sink.ended(1);
    // The server does not know 100: after a while it is sent the body.
    let sink = backend(|mut wire| {
        head(&mut wire);
        assert_eq!(wire.until("hello"), "hello");
        wire.send(OK);
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send(format!("PUT / HTTP/1.1\r\n{expect}"));
    assert_eq!(client.response(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert!(client.response().ends_with("ok"));
}

#[test]
fn an_upgrade_becomes_a_tunnel_after_101_and_not_before() {
    let sink = backend(|mut wire| {
        let refused = head(&mut wire);
        assert!(refused.contains("\r\nupgrade: echo\r\n"), "{refused}");
        assert!(refused.contains("\r\nconnection: upgrade\r\n"), "{refused}");
        wire.send("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno");
        head(&mut wire);
        let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade";
        wire.send(format!("{switching}\r\n\r\nearly "));
        assert_eq!(wire.until("ping"), "ping");
        wire.send("pong");
        // The client has ended its side.
        assert_eq!(wire.rest(), "");
        wire.send("last words");
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("GET /no HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 426"));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    let head = client.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(client.until("early "), "early ");
    client.send("ping");
    assert_eq!(client.until("pong"), "pong");
    client.finish_sending();
    assert_eq!(client.rest(), "last words");
    proxy.saw("Relayed { up_bytes: 4, down_bytes: 20, complete: true }");
}

#[test]
fn an_idle_tunnel_ends() {
    let (_hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let sink = backend(move |mut wire| {
        head(&mut wire);
        wire.send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\n\r\n");
        wire.rest();
        let _ = held.lock().unwrap().recv();
    });
    let caller = Caller::new();
    let target = Target::parse(&sink.url()).unwrap();
    let mut call = Call::new(Method::GET, &target);
    call.headers.insert("upgrade", HeaderValue::from_static("echo"));
    let opened = caller.runtime.block_on(caller.client.open(&mut call)).unwrap();
    drop(opened.tunnel.expect("a tunnel"));
    assert_eq!(caller.client.idle(), 0);
}

#[test]
fn responses_without_a_body_leave_their_connection_in_order() {
    let head = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\n");
    let none = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for (method, response, status, length) in [
        (Method::HEAD, head("200 OK"), 200, Some(0)),
        (Method::HEAD, none, 200, None),
        (Method::HEAD, "HTTP/1.1 404 No\r\n\r\n".to_owned(), 404, None),
        (Method::GET, head("204 No Content"), 204, Some(0)),
        (Method::GET, head("304 Not Modified"), 304, Some(0)),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(), 304, Some(0)),
    ] {
        let sink = backend(move |mut wire| {
            while wire.try_until("\r\n\r\n").is_some() {
                wire.send(&response);
            }
        });
        let caller = Caller::new();
        for turn in 0..2 {
            let opened = open(&caller, method.clone(), &sink.url()).unwrap();
            assert_eq!((opened.status.as_u16(), opened.reused), (status, turn == 1));
            assert_eq!(opened.flow.length_bytes(), length, "{method} {status}");
            assert_eq!(whole(&caller, opened).unwrap(), "");
        }
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_whole_and_a_shorter_one_is_not() {
    for (response, body) in [
        ("HTTP/1.1 200 OK\r\n\r\nall of it", Ok("all of it")),
        ("HTTP/1.0 200 OK\r\n\r\nall of it", Ok("all of it")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Err("invalid_response")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha", Err("invalid_response")),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            Err("invalid_response"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
            Err("invalid_response"),
        ),
    ] {
        let sink = backend(move |mut wire| {
            head(&mut wire);
            wire.send(response);
        });
        let caller = Caller::new();
        let opened = open(&caller, Method::GET, &sink.url()).unwrap();
        let outcome = whole(&caller, opened);
        let outcome = outcome.as_ref().map_err(OutgoingFault::class);
        assert_eq!(outcome.map(|body| &body[..]), body.map(str::as_bytes), "{response}");
        assert_eq!(caller.client.idle(), 0);
        // Through the server it is as visible as here.
        let proxy = Proxy::to(&sink.url());
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let received = client.rest();
        let ended = received.ends_with("0\r\n\r\n") || !received.contains("chunked");
        let length = received.contains("content-length: 9");
        assert_eq!(ended && !length, body.is_ok(), "{received}");
    }
}

#[test]
fn an_early_response_is_forwarded_and_its_connection_is_not_reused() {
    // The server answers after the head, and closes while the body is still on its way.
    let (sent, sends) = mpsc::channel::<()>();
    let sends = Mutex::new(sends);
    let sink = backend(move |mut wire| {
        head(&mut wire);
        wire.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
        let _ = sends.lock().unwrap().recv();
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nfirst");
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    drop(sent);
    sink.ended(1);
}

#[test]
fn a_response_that_is_not_read_to_its_end_closes_its_connection() {
    let sink = backend(|mut wire| {
        head(&mut wire);
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nfirst");
        wire.try_until("never sent");
    });
    let caller = Caller::new();
    drop(open(&caller, Method::GET, &sink.url()).unwrap());
    sink.ended(1);
    assert_eq!(caller.client.idle(), 0);
    // Neither does a client that leaves keep it.
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.until("first");
    drop(client);
}

#[test]
fn the_caller_sets_host_and_path_and_wire_sets_the_framing() {
    let sink = backend(|mut wire| {
        let head = head(&mut wire);
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()));
    });
    let caller = Caller::new();
    let target = Target::parse(&format!("http://{}/base", sink.address)).unwrap();
    let mut call = Call::new(Method::GET, &target);
    call.path = Some("/other?q=%20".parse().unwrap());
    call.host = Some(HeaderValue::from_static("shop.example"));
    let own = [
        ("host", "evil"),
        ("content-length", "9"),
        ("transfer-encoding", "chunked"),
        ("connection", "close, x-own"),
        ("expect", "100-continue"),
        ("te", "trailers"),
        ("x-own", "yes"),
    ];
    for (name, value) in own {
        call.headers.append(name, HeaderValue::from_static(value));
    }
    let opened = caller.runtime.block_on(caller.client.open(&mut call)).unwrap();
    let expected = "GET /other?q=%20 HTTP/1.1\r\nhost: shop.example\r\nte: trailers\r\n\
        x-own: yes\r\nconnection: te\r\n\r\n";
    assert_eq!(whole(&caller, opened).unwrap(), expected);
}

#[test]
fn many_requests_at_once_get_their_own_responses() {
    let sink = Sink::new(|_, stream| {
        let mut wire = Wire::new(stream);
        while let Some(head) = wire.try_until("\r\n\r\n") {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let length = path.len();
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}"));
        }
    });
    let caller = Caller::new();
    let target = Arc::new(Target::parse(&sink.url()).unwrap());
    caller.runtime.block_on(async {
        let calls: Vec<_> = (0..200)
            .map(|number| {
                let (client, target) = (caller.client.clone(), target.clone());
                tokio::spawn(async move {
                    let mut call = Call::new(Method::GET, &target);
                    call.path = Some(format!("/{number}").parse().unwrap());
                    let opened = client.open(&mut call).await.unwrap();
                    assert_eq!(opened.flow.collect(100).await.unwrap(), format!("/{number}"));
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    });
}
