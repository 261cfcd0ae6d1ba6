//! Limits on time and number, each with the answer that tells a client what happened.

use std::time::Duration;

use wire::Limits;

use crate::server::Server;

const SHORT: Duration = Duration::from_millis(100);
const GET: &str = "GET /one HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn an_incomplete_head_is_answered_408() {
    let server = Server::with(Limits { head_timeout: SHORT, ..Limits::default() });
    let answer = server.exchange("GET / HTTP/1.1\r\nHost: a\r\n");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("refused"), "{answer}");
    let answer = server.exchange(format!("{GET}GET / HT"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_silent_connection_is_closed_without_a_response() {
    let server = Server::with(Limits { idle_timeout: SHORT, ..Limits::default() });
    assert_eq!(server.exchange(""), "");
    let answer = server.exchange(GET);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[test]
fn a_slow_service_is_not_an_idle_connection() {
    let server = Server::with(Limits { idle_timeout: SHORT / 10, ..Limits::default() });
    let mut waiting = server.connect();
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.saw("GET /wait");
    // Another connection idles out meanwhile, several times over.
    for _ in 0..5 {
        assert_eq!(server.exchange(""), "");
    }
    server.gate.add_permits(1);
    assert!(waiting.response().contains("GET /wait"));
}

#[test]
fn a_body_that_stalls_is_a_timeout() {
    for limits in [
        Limits { body_stall: SHORT, ..Limits::default() },
        Limits { body_timeout: SHORT, ..Limits::default() },
    ] {
        let server = Server::with(limits);
        let answer = server.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf");
        assert!(answer.contains("{\"fault\":\"Timeout\"}"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let limits = Limits { write_stall: SHORT, ..Limits::default() };
    let server = Server::with(limits);
    let mut wire = server.connect();
    wire.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    server.saw("GET /large");
    server.trigger.fire();
    // Ends only when the connection does, long before the drain time is over.
    let begun = std::time::Instant::now();
    server.join();
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_connection_over_the_limit_gets_503() {
    let server = Server::with(Limits { max_connections: 1, ..Limits::default() });
    let mut first = server.connect();
    first.send(GET);
    first.response();
    // In the middle of a request it is not idle.
    let (half, rest) = GET.split_at(5);
    first.send(half);
    let answer = server.exchange(GET);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("refused"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    first.send(rest);
    assert!(first.response().contains("GET /one"), "the first is not affected");
}

/// The service decides what such a client is told; wire, that it is one.
#[test]
fn an_event_stream_client_over_a_limit_is_recognised() {
    let told = |answer: &str| answer.contains("an event stream may come again");
    let stream = |accept: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
    let server = Server::with(Limits { max_connections: 1, ..Limits::default() });
    let mut first = server.connect();
    first.send(GET);
    first.response();
    // In the middle of a request it is not idle.
    first.send(&GET[..5]);
    for accept in ["text/event-stream", "a/b;q=1, Text/Event-Stream; q=0.5"] {
        assert!(told(&server.exchange(stream(accept))), "{accept}");
    }
    let long = format!("text/event-stream, {}", "x".repeat(9 << 10));
    let bad = "text/event-stream\r\nbad name: x".to_owned();
    for accept in ["*/*", "text/*", "text/event-streams", &long, &bad] {
        let answer = server.exchange(stream(accept));
        assert!(answer.starts_with("HTTP/1.1 503 ") && !told(&answer), "{accept}: {answer}");
    }
    // In pieces, too.
    let mut slow = server.connect();
    for byte in stream("text/event-stream").bytes() {
        slow.send([byte]);
    }
    assert!(told(&slow.rest()));
    let server = Server::with(Limits { max_exchanges: 1, ..Limits::default() });
    let mut waiting = server.connect();
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.saw("GET /wait");
    let mut second = server.connect();
    second.send(stream("text/event-stream"));
    assert!(told(&second.response()));
}

#[test]
fn an_exchange_over_the_limit_gets_503_and_may_retry() {
    let server = Server::with(Limits { max_exchanges: 1, ..Limits::default() });
    let mut first = server.connect();
    first.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.saw("GET /wait");
    let mut second = server.connect();
    second.send(GET);
    assert!(second.response().starts_with("HTTP/1.1 503 "));
    server.gate.add_permits(1);
    first.response();
    second.send(GET);
    assert!(second.response().starts_with("HTTP/1.1 200 "), "the place is free again");
}

#[test]
fn a_flood_of_incomplete_heads_gets_503_before_it_exhausts_memory() {
    let server = Server::with(Limits { buffer_bytes: 64 << 10, ..Limits::default() });
    let half = format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}", "y".repeat(12 << 10));
    // More than both threads may hold.
    let mut flood: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for wire in &mut flood {
        wire.send(&half);
        wire.send("z");
    }
    // Those over the limit are closed with their answer; the others still wait for the rest.
    let mut refused = 0;
    for wire in &mut flood {
        wire.stream.set_read_timeout(Some(SHORT)).unwrap();
        let mut byte = [0];
        if std::io::Read::read(&mut wire.stream, &mut byte).is_ok_and(|count| count == 1) {
            assert!(wire.rest().starts_with("TTP/1.1 503 "));
            refused += 1;
        }
    }
    assert!(refused > 0 && refused < 20, "{refused}");
    let mut whole = server.connect();
    whole.send(GET);
    assert!(whole.response().contains("GET /one"), "a head in one piece is still served");
    drop(flood);
}
