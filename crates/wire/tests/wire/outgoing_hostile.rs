//! Outgoing calls to servers that mean harm: whatever they do, the call ends, in time and with the
//! right name for it.

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use http::StatusCode;
use wire::outgoing::{OutgoingFault, OutgoingLimits, Report, Stage};

use crate::server::PATIENCE;
use crate::sink::{Caller, MAX_BYTES, OK, Sink, request};

const SHORT: Duration = Duration::from_millis(200);

/// After each request: these bytes, then the other bytes for ever.
fn endless(first: &'static str, then: &'static str, pause: Duration) -> Sink {
    Sink::new(move |_, mut stream| {
        request(&mut stream);
        let _ = stream.write_all(first.as_bytes());
        while stream.write_all(then.as_bytes()).is_ok() {
            // waits for: nothing; the slow server is the point
            std::thread::sleep(pause);
        }
    })
}

fn timed_out(sink: &Sink, stage: Stage) -> Report {
    let begun = Instant::now();
    let report = Caller::new().send_within(&sink.url(), SHORT);
    // A loaded machine may be late, but an endless call would be later.
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let Err(OutgoingFault::Timeout(at)) = report.result else { panic!("{report:?}") };
    assert_eq!(at, stage);
    assert!(report.timing.total >= SHORT);
    sink.ended(1);
    report
}

#[test]
fn a_slow_body_ends_at_the_deadline_with_the_bytes_so_far() {
    let head = "HTTP/1.1 202 Accepted\r\nX-Seen: yes\r\nContent-Length: 90\r\n\r\nfirst";
    let report = timed_out(&endless(head, "x", Duration::from_millis(30)), Stage::Body);
    let partial = report.partial.unwrap();
    assert_eq!((partial.status, partial.truncated), (StatusCode::ACCEPTED, true));
    assert_eq!(partial.headers["x-seen"], "yes");
    assert!(partial.body.starts_with(b"first") && partial.body.len() < 90);
    assert!(report.timing.first_byte.is_some());
}

#[test]
fn slow_interim_responses_and_slow_heads_end_at_the_deadline() {
    for (first, then, pause) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n", 10),
        ("HTTP/1.1 200 OK\r\nX-Slow: ", "x", 30),
        ("", "\r\n", 5),
    ] {
        let sink = endless(first, then, Duration::from_millis(pause));
        let report = timed_out(&sink, Stage::Head);
        assert!(report.partial.is_none());
    }
}

#[test]
fn endless_heads_and_endless_interim_responses_are_too_large() {
    for (first, then) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("", "HTTP/1.1 102 Processing\r\nX: y\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nX-Long: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        ("HTTP/1.1 200 OK\r\n", "X-Many: yes\r\n"),
        ("HTTP/1.1 200 ", "OOOOOOOOOOOOOOOOOOOOOOOOOOOOOOKK"),
    ] {
        let sink = endless(first, then, Duration::ZERO);
        let report = Caller::new().send(&sink.url());
        assert_eq!(report.result.unwrap_err().class(), "too_large", "{first}");
        sink.ended(1);
    }
}

#[test]
fn an_endless_body_is_read_only_up_to_its_limit() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let close = "HTTP/1.1 200 OK\r\n\r\n";
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551000\r\n\r\n";
    for (first, then) in [(chunked, "1\r\nx\r\n"), (close, "xx"), (long, "xx")] {
        let sink = endless(first, then, Duration::ZERO);
        let reply = Caller::new().send(&sink.url()).result.unwrap();
        assert_eq!((reply.body.len(), reply.truncated), (MAX_BYTES, true));
        sink.ended(1);
    }
}

#[test]
fn a_reset_is_distinguished_from_an_invalid_response() {
    let reset = |bytes: &'static [u8]| {
        Sink::new(move |_, mut stream| {
            request(&mut stream);
            stream.write_all(bytes).unwrap();
            without_farewell(stream);
        })
    };
    let caller = Caller::new();
    for bytes in [&b""[..], b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"] {
        let report = caller.send(&reset(bytes).url());
        assert_eq!(report.result.unwrap_err().class(), "reset");
    }
}

/// Ends the connection with a reset.
fn without_farewell(stream: TcpStream) {
    let stream = socket2::Socket::from(stream);
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_forbidden_address_is_not_even_connected_to() {
    let (sink, caller) = (Sink::answering(OK), Caller::new());
    let port = sink.address.port();
    let outside = |address: IpAddr| !address.is_loopback();
    for host in ["127.0.0.1", "[::1]", "localhost", "LOCALHOST", "127.1.2.3"] {
        let report = caller.send_vetted(&format!("http://{host}:{port}/"), outside);
        let Err(fault) = report.result else { panic!("{host}") };
        assert_eq!(fault.class(), "forbidden_address", "{host}: {fault}");
        assert_eq!((report.remote, report.timing.connect), (None, None));
    }
    assert_eq!(sink.accepted(), 0);
    let report = caller.send_vetted(&format!("http://localhost:{port}/"), |_| true);
    assert_eq!(report.result.unwrap().status, StatusCode::OK);
}

#[test]
fn waiting_for_a_name_lookup_counts_against_the_deadline() {
    // As if all lookups were held up by a name server that does not answer.
    let limits = OutgoingLimits { lookups: 0, ..OutgoingLimits::default() };
    let (sink, caller) = (Sink::answering(OK), Caller::with(limits));
    let url = format!("http://localhost:{}/", sink.address.port());
    let fault = caller.send_within(&url, SHORT).result.unwrap_err();
    assert!(matches!(fault, OutgoingFault::Timeout(Stage::Resolve)), "{fault}");
    // An address needs no lookup.
    assert!(caller.send(&sink.url()).result.is_ok());
}

#[test]
fn a_response_without_a_request_ends_the_call() {
    let sink = Sink::new(|_, mut stream| {
        stream.write_all(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n").unwrap();
        request(&mut stream);
    });
    let caller = Caller::new();
    // What the client meets first, the answer, that it answers nothing, or the end of a sink that
    // is done, is the system's choice; the call ends either way.
    match caller.send(&sink.url()).result {
        Ok(reply) => assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE),
        Err(fault) => assert!(["invalid_response", "reset"].contains(&fault.class()), "{fault}"),
    }
}
