//! Backends that answer wrongly, slowly or too much: the call ends with the right name for it, and
//! the next request is never answered with what they left behind.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use wire::outgoing::{Call, CallTimeouts, OutgoingFault, Stage, Target};

use crate::proxy::{Proxy, impatient};
use crate::server::{PATIENCE, Wire};
use crate::sink::{Caller, OK, Sink};

const FORGED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";

/// The first connection answers its first request with these bytes; all other requests are
/// answered well.
fn lying(bytes: impl Into<Vec<u8>>) -> Sink {
    let bytes = bytes.into();
    Sink::new(move |number, stream| {
        let mut wire = Wire::new(stream);
        if number == 0 && wire.try_until("\r\n\r\n").is_some() {
            wire.send(&bytes);
        }
        while wire.try_until("\r\n\r\n").is_some() {
            wire.send(OK);
        }
    })
}

/// Opens a response and reads it to its end.
fn fetch(caller: &Caller, url: &str, timeouts: CallTimeouts) -> Result<String, OutgoingFault> {
    let target = Target::parse(url).unwrap();
    let mut call = Call::new(Method::GET, &target);
    call.timeouts = timeouts;
    caller.runtime.block_on(async {
        let opened = caller.client.open(&mut call).await?;
        let body = opened.flow.collect(1 << 20).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    })
}

fn patient() -> CallTimeouts {
    CallTimeouts::until(Instant::now() + PATIENCE)
}

fn refused(bytes: impl Into<Vec<u8>>, class: &str) {
    let bytes = bytes.into();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let (sink, caller) = (lying(bytes), Caller::new());
    let fault = fetch(&caller, &sink.url(), patient()).expect_err(&shown);
    assert_eq!(fault.class(), class, "{shown}: {fault}");
    assert_eq!(caller.client.idle(), 0, "{shown}");
    assert_eq!(fetch(&caller, &sink.url(), patient()).unwrap(), "ok", "{shown}");
    assert_eq!(sink.accepted(), 2, "{shown}");
}

#[test]
fn an_ambiguous_head_is_an_error() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Content-Length: -5",
        "Content Length: 5",
        "Content-Length : 5",
        "Not a header",
        "X: a\r\n folded",
        "X: a\nContent-Length: 5",
        "X: a\rContent-Length: 5",
        "X: \0",
    ] {
        refused(
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n5\r\nhello{FORGED}"),
            "invalid_response",
        );
    }
    for bytes in [
        format!("\r\n{FORGED}"),
        format!("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n{FORGED}"),
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned(),
        "HTTP/3 200 OK\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.9\r\n".to_owned(),
        "\x16\x03\x01".to_owned(),
    ] {
        refused(bytes, "invalid_response");
    }
}

#[test]
fn chunks_that_are_not_valid_are_an_error() {
    for chunks in [
        "zz\r\n",
        "-1\r\nx\r\n",
        "+1\r\nx\r\n",
        "0x1\r\nx\r\n",
        "1 \r\nx\r\n",
        " 1\r\nx\r\n",
        "\r\n",
        "1\nx\r\n",
        "1\r\nx\n0\r\n\r\n",
        "1\r\nxy\r\n",
        "1;a=\nb\r\nx\r\n",
        "11111111111111111\r\nx",
        "0\r\nNot a field\r\n\r\n",
        "0\r\nX: y\n\r\n",
    ] {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        refused(format!("{head}{chunks}"), "invalid_response");
        refused(format!("{head}5\r\nhello\r\n{chunks}"), "invalid_response");
    }
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(5000));
    refused(
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{long}"),
        "invalid_response",
    );
    let trailers = format!("0\r\nX: {}\r\n\r\n", "x".repeat(10_000));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    refused(format!("{head}{trailers}"), "invalid_response");
}

#[test]
fn heads_and_interim_responses_without_end_are_too_large() {
    let many: String = (0..101).map(|number| format!("X-{number}: y\r\n")).collect();
    refused(format!("HTTP/1.1 200 OK\r\n{many}\r\n"), "too_large");
    refused(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000)), "too_large");
    refused(format!("HTTP/1.1 200 {}\r\n\r\n", "O".repeat(70_000)), "too_large");
    refused("HTTP/1.1 102 Processing\r\n\r\n".repeat(101) + FORGED, "too_large");
    let large = format!("HTTP/1.1 103 Hints\r\nLink: {}\r\n\r\n", "l".repeat(60_000));
    refused(large.repeat(5) + FORGED, "too_large");
    // As many as may be are taken.
    let sink = lying("HTTP/1.1 102 Processing\r\n\r\n".repeat(100) + FORGED);
    assert_eq!(fetch(&Caller::new(), &sink.url(), patient()).unwrap(), "forged");
}

#[test]
fn bytes_after_a_response_answer_no_other_request() {
    for first in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst{FORGED}"),
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n{FORGED}"
        ),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst\r\n".to_owned(),
    ] {
        let (sink, caller) = (lying(first), Caller::new());
        assert_eq!(fetch(&caller, &sink.url(), patient()).unwrap(), "first");
        assert_eq!(caller.client.idle(), 0);
        assert_eq!(fetch(&caller, &sink.url(), patient()).unwrap(), "ok");
    }
    // The same when it comes while the connection rests.
    let (now, wait) = mpsc::channel::<()>();
    let (sent, told) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let sent = Mutex::new(sent);
    let sink = Sink::new(move |number, stream| {
        let mut wire = Wire::new(stream);
        while wire.try_until("\r\n\r\n").is_some() {
            wire.send(OK);
            if number == 0 {
                wait.lock().unwrap().recv().unwrap();
                wire.send(FORGED);
                sent.lock().unwrap().send(()).unwrap();
            }
        }
    });
    let caller = Caller::new();
    assert_eq!(fetch(&caller, &sink.url(), patient()).unwrap(), "ok");
    assert_eq!(caller.client.idle(), 1);
    now.send(()).unwrap();
    told.recv_timeout(PATIENCE).unwrap();
    // waits for: the runtime to hear of the bytes
    caller.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    assert_eq!(fetch(&caller, &sink.url(), patient()).unwrap(), "ok");
    assert_eq!(sink.accepted(), 2);
}

#[test]
fn a_body_of_a_bodyless_response_answers_no_other_request() {
    for (method, head) in [
        (Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 52\r\n\r\n"),
        (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n"),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 52\r\n\r\n"),
    ] {
        let (sink, caller) = (lying(format!("{head}{FORGED}")), Caller::new());
        let target = Target::parse(&sink.url()).unwrap();
        let mut call = Call::new(method, &target);
        let opened = caller.runtime.block_on(caller.client.open(&mut call)).unwrap();
        assert_eq!(caller.runtime.block_on(opened.flow.collect(100)).unwrap(), "");
        assert_eq!(fetch(&caller, &sink.url(), patient()).unwrap(), "ok");
    }
}

/// A backend that sends these bytes after the request, and then nothing.
fn stalling(bytes: &'static str) -> (Sink, mpsc::Sender<()>) {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let sink = Sink::new(move |_, stream| {
        let mut wire = Wire::new(stream);
        wire.try_until("\r\n\r\n");
        wire.send(bytes);
        let _ = held.lock().unwrap().recv();
    });
    (sink, hold)
}

#[test]
fn each_step_has_its_own_timeout() {
    let (silent, _hold) = stalling("");
    let (half, _hold) = stalling("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    let (interim, _hold) = stalling("HTTP/1.1 103 Early Hints\r\n\r\n");
    let short = impatient().head;
    let long = CallTimeouts { deadline: None, ..patient() };
    let secure = silent.url().replace("http:", "https:").replace("127.0.0.1", "localhost");
    for (url, timeouts, stage) in [
        (silent.url(), CallTimeouts { head: short, ..long }, Stage::Head),
        (interim.url(), CallTimeouts { head: short, ..long }, Stage::Head),
        (half.url(), CallTimeouts { stall: short, ..long }, Stage::Body),
        (secure, CallTimeouts { tls: short, ..long }, Stage::Tls),
    ] {
        timed_out(&url, timeouts, stage);
    }
    timed_out(&half.url(), CallTimeouts::until(Instant::now() + short), Stage::Body);
    timed_out(&silent.url(), CallTimeouts::until(Instant::now() + short), Stage::Head);
}

fn timed_out(url: &str, timeouts: CallTimeouts, stage: Stage) {
    let begun = Instant::now();
    let fault = fetch(&Caller::new(), url, timeouts).unwrap_err();
    assert!(matches!(fault, OutgoingFault::Timeout(at) if at == stage), "{fault} {stage:?}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_backend_that_does_not_read_ends_the_call() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let sink = Sink::new(move |_, _stream| held.lock().unwrap().recv().unwrap_or(()));
    let caller = Caller::new();
    let target = Target::parse(&sink.url()).unwrap();
    let mut call = Call::new(Method::POST, &target);
    call.body = vec![b'x'; 64 << 20].into();
    call.timeouts = impatient();
    let fault = caller.runtime.block_on(caller.client.open(&mut call)).unwrap_err();
    assert!(matches!(fault, OutgoingFault::Timeout(Stage::Send)), "{fault}");
    assert!(!call.is_spent(), "a whole body can be sent again");
    drop(hold);
}

#[test]
fn a_slow_body_is_not_a_timeout() {
    let sink = Sink::new(|_, stream| {
        let mut wire = Wire::new(stream);
        wire.try_until("\r\n\r\n");
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n");
        for _ in 0..8 {
            // waits for: nothing; the slow server is the point
            std::thread::sleep(Duration::from_millis(100));
            wire.send("x");
        }
    });
    let timeouts = CallTimeouts { stall: Duration::from_millis(500), ..impatient() };
    let timeouts = CallTimeouts { head: PATIENCE, ..timeouts };
    assert_eq!(fetch(&Caller::new(), &sink.url(), timeouts).unwrap(), "xxxxxxxx");
}

#[test]
fn one_bad_backend_response_is_a_502_and_a_silent_backend_a_504() {
    let sink = lying("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx");
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 502 "));
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 200 "));
    let (silent, _hold) = stalling("");
    let proxy = Proxy::to_target(Target::parse(&silent.url()).unwrap(), impatient());
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 504 "));
}

#[test]
fn a_client_that_breaks_its_body_off_ends_the_request_at_the_backend() {
    let sink = Sink::new(|_, stream| {
        let mut wire = Wire::new(stream);
        wire.try_until("\r\n\r\n");
        // Half a body, and then the end: no backend may take it for a whole one.
        assert!(wire.try_until("hello").is_none());
    });
    let proxy = Proxy::to(&sink.url());
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    client.finish_sending();
    sink.ended(1);
    drop(client);
    let mut client = proxy.connect();
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\nzz\r\n");
    assert!(client.response().starts_with("HTTP/1.1 502 "));
    proxy.saw("request_body the request body could not be read: Incomplete");
    proxy.saw("request_body the request body could not be read: Malformed");
    sink.ended(2);
}

#[test]
fn all_status_codes_are_forwarded() {
    for code in [200, 226, 299, 305, 418, 499, 599, 600, 999] {
        let sink = lying(format!("HTTP/1.1 {code} \r\nContent-Length: 0\r\n\r\n"));
        let caller = Caller::new();
        let target = Target::parse(&sink.url()).unwrap();
        let mut call = Call::new(Method::GET, &target);
        let opened = caller.runtime.block_on(caller.client.open(&mut call)).unwrap();
        assert_eq!(opened.status, StatusCode::from_u16(code).unwrap());
    }
}
