//! Outgoing connections that are kept: when one is used again, when it is not, and what happens
//! when the other side lets go first.

use std::io::Write;
use std::sync::Barrier;
use std::time::Duration;

use http::StatusCode;
use wire::outgoing::{OutgoingFault, OutgoingLimits, Report};

use crate::server::PATIENCE;
use crate::sink::{Caller, MAX_BYTES, OK, Sink, request, send};

fn status(report: &Report) -> StatusCode {
    report.result.as_ref().unwrap().status
}

#[test]
fn a_connection_carries_one_request_after_another() {
    for bytes in [
        OK,
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let (sink, caller) = (Sink::answering(bytes), Caller::new());
        for turn in 0..3 {
            let report = caller.send(&sink.url());
            let reply = report.result.as_ref().unwrap();
            assert!(!reply.truncated);
            assert_eq!(report.reused, turn > 0, "{}", String::from_utf8_lossy(bytes));
            assert_eq!(report.timing.connect.is_some(), turn == 0);
            assert!(report.timing.first_byte.unwrap() <= report.timing.total);
            assert_eq!(report.remote, Some(sink.address));
            assert_eq!((sink.accepted(), caller.client.idle()), (1, 1));
        }
    }
}

#[test]
fn ten_thousand_requests_leave_one_connection() {
    let (sink, caller) = (Sink::answering(OK), Caller::new());
    for _ in 0..10_000 {
        assert_eq!(status(&caller.send(&sink.url())), StatusCode::OK);
    }
    assert_eq!((sink.accepted(), caller.client.idle()), (1, 1));
}

#[test]
fn a_closed_connection_is_not_reused() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more than was said",
        b"HTTP/1.1 200 OK\r\nBad Header\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let (sink, caller) = (Sink::answering(bytes), Caller::new());
        for _ in 0..2 {
            let report = caller.send(&sink.url());
            assert!(report.result.is_ok() && !report.reused, "{report:?}");
            assert_eq!(caller.client.idle(), 0);
        }
        sink.ended(2);
    }
}

#[test]
fn a_request_is_retried_if_the_server_closes_during_the_send() {
    // Each connection serves one request, and closes when it has read another.
    let sink = Sink::new(|_, mut stream| {
        request(&mut stream);
        stream.write_all(OK).unwrap();
        request(&mut stream);
    });
    let caller = Caller::new();
    for turn in 1..4 {
        let report = caller.send(&sink.url());
        assert_eq!(status(&report), StatusCode::OK);
        assert_eq!((report.reused, sink.accepted()), (false, turn));
    }
}

#[test]
fn a_server_that_closes_after_each_answer_loses_no_request() {
    let sink = Sink::new(|_, mut stream| {
        request(&mut stream);
        stream.write_all(OK).unwrap();
    });
    let caller = Caller::new();
    for _ in 0..50 {
        assert_eq!(status(&caller.send(&sink.url())), StatusCode::OK);
    }
}

#[test]
fn a_request_is_sent_again_once_and_no_more() {
    let sink = Sink::new(|number, mut stream| {
        if number == 0 {
            request(&mut stream);
            stream.write_all(OK).unwrap();
        }
        request(&mut stream);
    });
    let caller = Caller::new();
    assert_eq!(status(&caller.send(&sink.url())), StatusCode::OK);
    let report = caller.send(&sink.url());
    assert_eq!(report.result.unwrap_err().class(), "reset");
    assert_eq!(sink.accepted(), 2);
}

#[test]
fn a_partly_answered_request_is_not_sent_again() {
    let sink = Sink::new(|_, mut stream| {
        request(&mut stream);
        stream.write_all(OK).unwrap();
        request(&mut stream);
        stream.write_all(b"HTTP/1.1 2").unwrap();
    });
    let caller = Caller::new();
    assert_eq!(status(&caller.send(&sink.url())), StatusCode::OK);
    let report = caller.send(&sink.url());
    assert!(report.reused);
    assert_eq!(report.result.unwrap_err().class(), "reset");
    assert_eq!(sink.accepted(), 1);
}

#[test]
fn a_body_that_is_cut_short_ends_its_connection() {
    let sink = Sink::new(|_, mut stream| {
        request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 1000]).is_ok() {}
    });
    let caller = Caller::new();
    let report = caller.send(&sink.url());
    let reply = report.result.unwrap();
    assert!(reply.truncated);
    assert_eq!(reply.body, "x".repeat(MAX_BYTES));
    assert_eq!(caller.client.idle(), 0);
    sink.ended(1);
}

#[test]
fn a_body_of_exactly_the_limit_is_whole() {
    let exact = format!("HTTP/1.1 200 OK\r\nContent-Length: {MAX_BYTES}\r\n\r\n");
    let exact = exact + &"x".repeat(MAX_BYTES);
    let (sink, caller) = (Sink::answering(exact.leak().as_bytes()), Caller::new());
    let reply = caller.send(&sink.url()).result.unwrap();
    assert_eq!((reply.body.len(), reply.truncated), (MAX_BYTES, false));
    assert_eq!(caller.client.idle(), 1);
}

#[test]
fn a_burst_leaves_no_more_connections_than_allowed() {
    for (limits, kept) in [
        (OutgoingLimits { idle_per_target: 2, ..OutgoingLimits::default() }, 2),
        (OutgoingLimits { idle_total: 3, ..OutgoingLimits::default() }, 3),
    ] {
        // Nobody is answered before all five have come.
        let all = Barrier::new(5);
        let sink = Sink::new(move |_, mut stream| {
            request(&mut stream);
            all.wait();
            stream.write_all(OK).unwrap();
            request(&mut stream);
        });
        let caller = Caller::with(limits);
        caller.runtime.block_on(async {
            let one = || tokio::spawn(send(caller.client.clone(), sink.url(), PATIENCE));
            for call in [one(), one(), one(), one(), one()] {
                assert_eq!(status(&call.await.unwrap()), StatusCode::OK);
            }
        });
        assert_eq!(caller.client.idle(), kept);
        sink.ended(5 - kept);
    }
}

#[test]
fn a_connection_that_was_idle_or_lived_too_long_is_not_used() {
    for limits in [
        OutgoingLimits { idle_time: Duration::ZERO, ..OutgoingLimits::default() },
        OutgoingLimits { connection_age: Duration::ZERO, ..OutgoingLimits::default() },
    ] {
        let (sink, caller) = (Sink::answering(OK), Caller::with(limits));
        for turn in 1..4 {
            assert!(!caller.send(&sink.url()).reused);
            assert_eq!(sink.accepted(), turn);
        }
        sink.ended(2);
    }
}

#[test]
fn an_idle_connection_is_closed_without_another_call() {
    let limits =
        OutgoingLimits { idle_time: Duration::from_millis(40), ..OutgoingLimits::default() };
    let (sink, caller) = (Sink::answering(OK), Caller::with(limits));
    // The task that closes it starts again after it has ended.
    for turn in 1..3 {
        assert_eq!(status(&caller.send(&sink.url())), StatusCode::OK);
        caller.runtime.block_on(async {
            let is_closed = async {
                while caller.client.idle() > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await; // waits for: the pool
                }
            };
            tokio::time::timeout(PATIENCE, is_closed).await.unwrap();
        });
        sink.ended(turn);
    }
}

#[test]
fn a_reused_connection_is_checked_again() {
    let (sink, caller) = (Sink::answering(OK), Caller::new());
    assert_eq!(status(&caller.send_vetted(&sink.url(), |_| true)), StatusCode::OK);
    let report = caller.send_vetted(&sink.url(), |_| false);
    let Err(OutgoingFault::Forbidden(address)) = report.result else { panic!("{report:?}") };
    assert_eq!((address, report.remote), (sink.address.ip(), None));
    sink.ended(1);
    assert_eq!((sink.accepted(), caller.client.idle()), (1, 0));
}

#[test]
fn a_connection_does_not_outlive_its_runtime() {
    let (sink, first) = (Sink::answering(OK), Caller::new());
    assert_eq!(status(&first.send(&sink.url())), StatusCode::OK);
    let second = Caller { client: first.client.clone(), ..Caller::new() };
    drop(first);
    let report = second.send(&sink.url());
    assert_eq!((status(&report), report.reused), (StatusCode::OK, false));
    assert!(second.send(&sink.url()).reused);
}
