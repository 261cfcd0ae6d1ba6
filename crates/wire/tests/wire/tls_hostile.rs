//! Bad input to a port of TLS: plain HTTP, garbage, half handshakes and floods of them end in time
//! and disturb nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use wire::Limits;

use crate::server::{PATIENCE, Server};
use crate::tls::{Client, Secured, ask, pair};

const GET: &str = "GET /one HTTP/1.1\r\nHost: a\r\n\r\n";
/// The same in two pieces.
const GET_BEGIN: &str = "GET /one ";
const GET_REST: &str = "HTTP/1.1\r\nHost: a\r\n\r\n";
const SHORT: Duration = Duration::from_millis(200);
/// A record of the handshake that announces more than it brings.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

/// Whatever comes until the server ends the connection, in order or not.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    let open = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!open, "still open after {bytes:?}");
    bytes
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).unwrap()
}

#[test]
fn plain_http_on_a_tls_port_is_answered_with_a_hint_to_https() {
    let (server, client) = pair(Limits::default());
    for request in [GET, "get / HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n", "P"] {
        let answer = server.exchange(request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
        assert!(answer.contains("https://") && answer.contains("connection: close"), "{answer}");
    }
    server.saw_nothing();
    assert!(ask(&mut client.connect(&server), GET).contains("GET /one"));
}

#[test]
fn garbage_is_closed_at_once() {
    let (server, client) = pair(Limits::default());
    let mut kept = client.connect(&server);
    for garbage in [
        &b"\x00\x01\x02\x03"[..],
        b"\x80\x2e\x01\x00\x02",             // SSL 2
        b"\x16\x09\x09\x00\x05hello",        // no version of TLS
        b"\x16\x03\x01\xff\xff\x01",         // longer than a record may be
        b"\x16\x03\x01\x00\x05\xffabcd\x16", // no message of a handshake
        b"\x15\x03\x01\x00\x02\x02\x28",     // an alert before anything
        &[0xff; 4096],
    ] {
        let begun = Instant::now();
        let mut stream = connect(&server);
        stream.write_all(garbage).unwrap();
        let answer = until_closed(&mut stream);
        assert!(answer.is_empty() || answer[0] == 21, "at most an alert: {answer:?}");
        assert!(begun.elapsed() < PATIENCE / 2, "{garbage:?}");
        assert!(ask(&mut kept, GET).contains("GET /one"));
    }
    server.saw("GET /one");
}

#[test]
fn an_unfinished_handshake_is_closed_in_time() {
    let limits = Limits { handshake_timeout: SHORT, ..Limits::default() };
    let (server, client) = pair(limits);
    for sent in [&b""[..], b"\x16", HALF_HELLO] {
        let mut stream = connect(&server);
        stream.write_all(sent).unwrap();
        let begun = Instant::now();
        until_closed(&mut stream);
        assert!(begun.elapsed() >= SHORT / 2, "not before its time: {sent:?}");
    }
    // One that trickles its bytes is not let off.
    let mut slow = connect(&server);
    let begun = Instant::now();
    slow.set_read_timeout(Some(SHORT / 20)).unwrap();
    for byte in HALF_HELLO.iter().chain(&[0; 1000]) {
        let gone = slow.write_all(&[*byte]).is_err();
        if gone || matches!(slow.read(&mut [0; 64]), Ok(0)) {
            break;
        }
    }
    assert!(begun.elapsed() < SHORT * 20, "a slow handshake stays open");
    // A connection that did finish has another clock.
    let mut stream = client.connect(&server);
    // waits for: the time that handshakes have
    std::thread::sleep(SHORT * 2);
    assert!(ask(&mut stream, GET).contains("GET /one"));
}

#[test]
fn a_flood_of_unfinished_handshakes_does_not_block_other_clients() {
    let limits = Limits { max_handshakes: 4, max_connections: 64, ..Limits::default() };
    let (server, client) = pair(limits);
    let mut held = half_handshakes(&server, 200);
    for _ in 0..8 {
        assert!(ask(&mut client.connect(&server), GET).contains("GET /one"));
    }
    // The oldest had to go; of all threads together only so many are left.
    assert!(until_closed(&mut held[0]).is_empty());
}

/// What a browser sends for an EventSource.
const EVENTS: &str = "GET /e HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";

#[test]
fn a_connection_over_the_limit_is_refused_with_a_response_under_tls() {
    let (server, client) = pair(Limits { max_connections: 1, ..Limits::default() });
    let mut first = busy(&client, &server);
    // A browser would rather speak HTTP/2, but takes what it is offered.
    let browser = client.offering(&["h2", "http/1.1"]);
    for client in [&browser, &client] {
        let answer = ask(&mut client.connect(&server), GET);
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("refused"), "{answer}");
        let mut stream = client.connect(&server);
        let answer = ask(&mut stream, EVENTS);
        assert!(answer.contains("an event stream may come again"), "{answer}");
        assert_eq!(stream.read(&mut [0]).expect("the end is announced"), 0);
    }
    assert!(client.offering(&["h2"]).try_connect(&server, "localhost").is_err());
    assert!(server.exchange(GET).contains("https://"));
    assert!(ask(&mut first, GET_REST).contains("GET /one"), "the first is not affected");
    server.saw("GET /one");
    server.saw("GET /one");
    server.saw_nothing();
}

#[test]
fn an_address_over_its_limit_is_refused_with_a_response_under_tls() {
    let (server, client) = pair(Limits { max_connections_per_address: 1, ..Limits::default() });
    let mut first = client.connect(&server);
    assert!(ask(&mut first, GET).contains("GET /one"));
    assert!(ask(&mut client.connect(&server), GET).starts_with("HTTP/1.1 503 "));
    assert!(ask(&mut client.connect(&server), EVENTS).contains("may come again"));
}

/// A connection that has had an answer and is in the middle of its next request: not idle, so that
/// it does not end for a new one.
fn busy(client: &Client, server: &Server) -> Secured {
    let mut stream = client.connect(server);
    assert!(ask(&mut stream, GET).contains("GET /one"));
    stream.write_all(GET_BEGIN.as_bytes()).unwrap();
    stream
}

fn half_handshakes(server: &Server, count: usize) -> Vec<TcpStream> {
    let half = |_| {
        let mut stream = connect(server);
        // The server may have closed it already.
        let _ = stream.write_all(HALF_HELLO);
        stream
    };
    (0..count).map(half).collect()
}

/// Words are few: while a flood takes them all, the others are cut off.
#[test]
fn a_flood_over_the_limit_causes_a_bounded_number_of_handshakes() {
    let limits = Limits { max_connections: 1, linger_timeout: PATIENCE, ..Limits::default() };
    let (server, client) = pair(limits);
    let mut first = busy(&client, &server);
    let flood = half_handshakes(&server, 100);
    // The server may not have seen all of the flood yet.
    let deadline = Instant::now() + PATIENCE;
    while client.try_connect(&server, "localhost").is_ok() {
        assert!(Instant::now() < deadline, "there are words for more than the limit");
    }
    assert!(ask(&mut first, GET_REST).contains("GET /one"), "who has a place is served meanwhile");
    first.write_all(GET_BEGIN.as_bytes()).unwrap();
    drop(flood);
    let deadline = Instant::now() + PATIENCE;
    let mut told = loop {
        match client.try_connect(&server, "localhost") {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "the words are gone: {error}"),
        }
    };
    assert!(ask(&mut told, EVENTS).contains("may come again"));
}

#[test]
fn a_refused_client_that_is_slow_is_closed_soon() {
    let limits = Limits { max_connections: 1, linger_timeout: SHORT, ..Limits::default() };
    let (server, client) = pair(limits);
    let _first = busy(&client, &server);
    let mut flood = half_handshakes(&server, 20);
    flood.iter_mut().for_each(|stream| assert!(until_closed(stream).is_empty()));
    assert!(ask(&mut client.connect(&server), EVENTS).contains("may come again"));
}

#[test]
fn an_unfinished_handshake_does_not_delay_the_shutdown() {
    let limits = Limits { linger_timeout: SHORT, ..Limits::default() };
    let (server, client) = pair(limits);
    let mut half = connect(&server);
    half.write_all(HALF_HELLO).unwrap();
    // On one of two threads: so many that each has had its turn.
    for _ in 0..8 {
        ask(&mut client.connect(&server), GET);
    }
    let begun = Instant::now();
    server.trigger.fire();
    server.join();
    assert!(begun.elapsed() < PATIENCE / 2);
    until_closed(&mut half);
}
