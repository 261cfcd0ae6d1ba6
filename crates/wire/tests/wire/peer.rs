//! Who the client is, and how much one may hold: trusted proxies, the PROXY protocol, connections
//! per address.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use http::{HeaderValue, Method};
use wire::{Limits, Tls};

use crate::h2_client;
use crate::server::{PATIENCE, Server};
use crate::tls::{Client, ask, identity};

const ASK: &str = "GET /client HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
const V1: &str = "PROXY TCP4 198.51.100.7 10.0.0.1 4711 80\r\n";

/// The body of the only answer.
fn told(server: &Server, before: &[u8], fields: &str) -> String {
    let bytes = [before, ASK.as_bytes(), fields.as_bytes(), b"\r\n"].concat();
    let answer = server.exchange(bytes);
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or(answer)
}

fn trusting(networks: &str) -> Server {
    let trusted = networks.parse().unwrap();
    Server::on(Limits::default(), |listener| listener.trusted(trusted))
}

fn behind_proxies() -> Server {
    let trusted = "127.0.0.0/8".parse().unwrap();
    Server::on(Limits::default(), |listener| listener.trusted(trusted).proxy_protocol(true))
}

#[test]
fn only_a_trusted_proxy_names_the_client() {
    let xff = "X-Forwarded-For: 203.0.113.1, 198.51.100.7\r\n";
    assert_eq!(told(&Server::start(), b"", xff), "127.0.0.1");
    assert_eq!(told(&trusting("10.0.0.0/8"), b"", xff), "127.0.0.1");
    let server = trusting("127.0.0.1");
    assert_eq!(told(&server, b"", xff), "198.51.100.7");
    assert_eq!(told(&server, b"", "Forwarded: for=\"[2001:db8::7]:80\"\r\n"), "2001:db8::7");
    assert_eq!(told(&server, b"", ""), "127.0.0.1");
    let many = "X-Forwarded-For: 10.1.1.1\r\n".repeat(90);
    assert_eq!(told(&server, b"", &many), "10.1.1.1");
}

#[test]
fn a_trusted_proxy_that_names_no_client_is_refused() {
    let server = trusting("127.0.0.1");
    for (fields, header) in [
        ("X-Forwarded-For: 198.51.100.7\r\nForwarded: for=203.0.113.9\r\n", "different"),
        ("X-Forwarded-For: 198.51.100.7, unknown\r\n", "X-Forwarded-For has"),
        ("Forwarded: for=_hidden\r\n", "Forwarded has"),
    ] {
        let ask = format!("GET /client HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut wire = server.connect();
        wire.send(&ask);
        let answer = wire.response();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(header), "{answer}");
        // The request was read to its end, so the connection goes on.
        wire.send("GET /client HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(wire.response().ends_with("127.0.0.1"));
        // A body in pieces does not become the next request.
        let body = "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        let answer = server.exchange(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}{body}"));
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(header), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
}

#[test]
fn the_client_address_is_known_over_http2() {
    let server = trusting("127.0.0.1");
    let answer = h2_client::run(async {
        let mut request = h2_client::request(Method::GET, "/client");
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("198.51.100.7"));
        let (response, _) = h2_client::Client::connect(&server).await.send(request, true).await;
        h2_client::answer(response).await.unwrap()
    });
    assert_eq!(answer.body, "198.51.100.7");
}

#[test]
fn the_proxy_protocol_names_the_client_of_the_whole_connection() {
    let server = behind_proxies();
    assert_eq!(told(&server, V1.as_bytes(), ""), "198.51.100.7");
    // What it names is a stranger, whose word does not count.
    assert_eq!(told(&server, V1.as_bytes(), "X-Forwarded-For: 203.0.113.1\r\n"), "198.51.100.7");
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc6\x33\x64\x07\x0a\0\0\x01\x12\x67\0\x50";
    assert_eq!(told(&server, v2, ""), "198.51.100.7");
    let local = &b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"[..];
    let unspecified = b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0";
    let xff = "X-Forwarded-For: 203.0.113.1\r\n";
    // A proxy that does not say for whom it connects: nobody's word counts.
    for before in [local, unspecified, b"PROXY UNKNOWN\r\n"] {
        for fields in ["", xff, "Forwarded: for=203.0.113.1\r\n"] {
            assert_eq!(told(&server, before, fields), "127.0.0.1", "{before:?} {fields}");
        }
    }
    // One that names another proxy that is trusted.
    let proxy = b"PROXY TCP4 127.0.0.9 10.0.0.1 4711 80\r\n";
    assert_eq!(told(&server, proxy, xff), "203.0.113.1");
    // In pieces, with keep-alive behind it.
    let mut wire = server.connect();
    for byte in V1.as_bytes() {
        wire.send([*byte]);
    }
    for _ in 0..3 {
        wire.send("GET /client HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(wire.response().ends_with("198.51.100.7"));
    }
}

#[test]
fn a_connection_without_the_proxy_protocol_or_from_an_untrusted_peer_is_closed() {
    let server = behind_proxies();
    let huge = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"[..], &[0; 70_000]].concat();
    for bytes in [ASK.as_bytes(), b"PROXY TCP4 nonsense\r\n\r\n", &huge, b"\x16\x03\x01\x02\0\x01"]
    {
        is_closed(&server, bytes);
    }
    server.saw_nothing();
    let trusted = "10.0.0.0/8".parse().unwrap();
    let listener = |listener: wire::Listener| listener.trusted(trusted).proxy_protocol(true);
    let server = Server::on(Limits::default(), listener);
    is_closed(&server, format!("{V1}{ASK}\r\n").as_bytes());
    server.saw_nothing();
}

/// Without a word.
fn is_closed(server: &Server, bytes: &[u8]) {
    let mut wire = server.connect();
    wire.send(bytes);
    wire.finish_sending_if_open();
    let mut answer = Vec::new();
    // Closing over unread bytes resets the connection.
    let _ = wire.stream.read_to_end(&mut answer);
    assert_eq!(answer, b"", "{:?}", &bytes[..bytes.len().min(40)]);
}

#[test]
fn a_proxy_that_says_nothing_is_closed_in_time() {
    let limits = Limits { handshake_timeout: Duration::from_millis(200), ..Limits::default() };
    let trusted = "127.0.0.0/8".parse().unwrap();
    let server = Server::on(limits, |listener| listener.trusted(trusted).proxy_protocol(true));
    let mut wire = server.connect();
    wire.send("PROXY TCP4 ");
    assert_eq!(wire.rest(), "");
}

#[test]
fn tls_follows_the_proxy_protocol() {
    let (certificate, trusted) = identity(&["localhost"]);
    let (tls, proxies) = (Tls::new(vec![certificate]).unwrap(), "127.0.0.0/8".parse().unwrap());
    let server = Server::on(Limits::default(), |listener| {
        listener.tls(tls).trusted(proxies).proxy_protocol(true)
    });
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(V1.as_bytes()).unwrap();
    let mut secured = Client::trusting([trusted]).over(stream);
    secured.write_all(format!("{ASK}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    secured.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("198.51.100.7"), "{answer}");
}

#[test]
fn connections_per_address_are_limited_except_for_trusted_proxies() {
    let limits = Limits { max_connections_per_address: 2, ..Limits::default() };
    let server = Server::with(limits.clone());
    let keep = || {
        let mut wire = server.connect();
        wire.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
        (wire.response(), wire)
    };
    let (first, second) = (keep(), keep());
    assert!(first.0.starts_with("HTTP/1.1 200 ") && second.0.starts_with("HTTP/1.1 200 "));
    assert!(server.exchange("").starts_with("HTTP/1.1 503 "));
    drop(first);
    let deadline = std::time::Instant::now() + PATIENCE;
    // The server notices by and by that the first is gone.
    while !keep().0.starts_with("HTTP/1.1 200 ") {
        assert!(std::time::Instant::now() < deadline, "the place stays taken");
    }
    drop(second);
    let trusted = "127.0.0.1".parse().unwrap();
    let server = Server::on(limits, |listener| listener.trusted(trusted));
    let kept: Vec<_> = (0..5).map(|_| server.connect()).collect();
    assert_eq!(told(&server, b"", ""), "127.0.0.1");
    drop(kept);
}

#[test]
fn a_client_over_the_limit_behind_a_proxy_is_refused_with_a_response() {
    let (certificate, trusted) = identity(&["localhost"]);
    let tls = Tls::new(vec![certificate]).unwrap();
    let limits = Limits { max_connections: 1, ..Limits::default() };
    let events = format!("{ASK}Accept: text/event-stream\r\n\r\n");
    let behind = |tls: Option<Tls>| {
        Server::on(limits.clone(), |listener| {
            let listener = match tls {
                Some(tls) => listener.tls(tls),
                None => listener,
            };
            listener.trusted("127.0.0.0/8".parse().unwrap()).proxy_protocol(true)
        })
    };
    let keep = "GET /client HTTP/1.1\r\nHost: a\r\n\r\n";
    let server = behind(None);
    let mut first = server.connect();
    first.send(format!("{V1}{keep}"));
    first.response();
    // In the middle of a request it is not idle.
    first.send("GET ");
    let answer = server.exchange(format!("{V1}{events}"));
    assert!(answer.ends_with("an event stream may come again"), "{answer}");
    is_closed(&server, events.as_bytes());
    let server = behind(Some(tls));
    let client = Client::trusting([trusted]);
    let connect = || {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(V1.as_bytes()).unwrap();
        client.over(stream)
    };
    let mut first = connect();
    assert!(ask(&mut first, keep).ends_with("198.51.100.7"));
    first.write_all(b"GET ").unwrap();
    let answer = ask(&mut connect(), &events);
    assert!(answer.ends_with("an event stream may come again"), "{answer}");
}
