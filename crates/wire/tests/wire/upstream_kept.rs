//! Connections of the upstream client: which requests are sent a second time, how many a backend
//! has at once, and what they lead to.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use http::{Method, StatusCode};
use wire::outgoing::{Backlog, Call, Opened, OutgoingFault, Retry, Stage, Target};

use crate::server::{PATIENCE, Wire};
use crate::sink::{Caller, OK, Sink};

fn open(caller: &Caller, call: &mut Call<'_>) -> Result<Opened, OutgoingFault> {
    caller.runtime.block_on(caller.client.open(call))
}

#[test]
fn only_repeatable_requests_are_sent_again() {
    for (method, body, retry, repeats) in [
        (Method::GET, "", Retry::Idempotent, true),
        (Method::HEAD, "", Retry::Idempotent, true),
        (Method::PUT, "hello", Retry::Idempotent, true),
        (Method::DELETE, "", Retry::Idempotent, true),
        (Method::POST, "hello", Retry::Idempotent, false),
        (Method::PATCH, "hello", Retry::Idempotent, false),
        (Method::POST, "hello", Retry::Replayable, true),
        (Method::GET, "", Retry::Never, false),
        (Method::GET, "", Retry::Replayable, true),
    ] {
        let (seen, sees) = mpsc::channel();
        let seen = Mutex::new(seen);
        // Each connection serves one request, and closes when it has read another.
        let sink = Sink::new(move |number, stream| {
            let mut wire = Wire::new(stream);
            for turn in 0..2 {
                let Some(head) = wire.try_until("\r\n\r\n") else { return };
                if head.contains("content-length: 5") {
                    wire.until("hello");
                }
                seen.lock().unwrap().send((number, turn)).unwrap();
                if turn == 0 {
                    wire.send(if head.starts_with("HEAD") { &OK[..OK.len() - 2] } else { OK });
                }
            }
        });
        let caller = Caller::new();
        let target = Target::parse(&sink.url()).unwrap();
        let call = || {
            let mut call = Call::new(method.clone(), &target);
            call.body = body.into();
            call.retry = retry;
            call
        };
        assert_eq!(open(&caller, &mut call()).unwrap().status, StatusCode::OK);
        let mut second = call();
        match (open(&caller, &mut second), repeats) {
            (Ok(opened), true) => assert!(!opened.reused),
            (Err(OutgoingFault::Reset(_)), false) => assert!(!second.is_spent()),
            (outcome, _) => panic!("{method} {retry:?} {outcome:?}"),
        }
        let expected: &[_] = if repeats { &[(0, 0), (0, 1), (1, 0)] } else { &[(0, 0), (0, 1)] };
        assert_eq!(sees.try_iter().collect::<Vec<_>>(), expected, "{method} {retry:?}");
    }
}

#[test]
fn a_partly_answered_request_or_one_that_failed_on_a_new_connection_is_not_sent_again() {
    for (first, second) in [(Some(OK), "HTTP/1.1 2"), (None, "")] {
        let sink = Sink::new(move |number, stream| {
            let mut wire = Wire::new(stream);
            if let Some(first) = first.filter(|_| number == 0) {
                wire.until("\r\n\r\n");
                wire.send(first);
            }
            wire.until("\r\n\r\n");
            wire.send(second);
        });
        let caller = Caller::new();
        let target = Target::parse(&sink.url()).unwrap();
        if first.is_some() {
            assert!(open(&caller, &mut Call::new(Method::GET, &target)).is_ok());
        }
        let fault = open(&caller, &mut Call::new(Method::GET, &target)).unwrap_err();
        assert_eq!(fault.class(), "reset");
        assert!(!fault.is_unsent());
        assert_eq!(sink.accepted(), 1);
    }
}

#[test]
fn a_call_that_failed_to_connect_can_go_to_another_target() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sink = Sink::answering(OK);
    let first = Target::parse(&format!("http://{closed}/")).unwrap();
    let second = Target::parse(&sink.url()).unwrap();
    let caller = Caller::new();
    let mut call = Call::new(Method::POST, &first);
    call.body = "hello".into();
    let fault = open(&caller, &mut call).unwrap_err();
    assert!(fault.is_unsent() && !call.is_spent(), "{fault}");
    call.target = &second;
    assert_eq!(open(&caller, &mut call).unwrap().status, StatusCode::OK);
    let fault = open(&caller, &mut Call::new(Method::CONNECT, &second)).unwrap_err();
    assert_eq!(fault.class(), "url");
}

#[test]
fn a_connection_is_not_used_when_its_server_is_about_to_close_it() {
    for (timeout, reused) in [("timeout=60", true), ("timeout=1, max=9", false)] {
        let response =
            format!("HTTP/1.1 200 OK\r\nKeep-Alive: {timeout}\r\nContent-Length: 0\r\n\r\n");
        let sink = Sink::new(move |_, stream| {
            let mut wire = Wire::new(stream);
            while wire.try_until("\r\n\r\n").is_some() {
                wire.send(&response);
            }
        });
        let caller = Caller::new();
        let target = Target::parse(&sink.url()).unwrap();
        for turn in 0..2 {
            let opened = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
            assert_eq!(opened.reused, reused && turn == 1, "{timeout}");
        }
    }
}

#[test]
fn a_backend_can_have_an_address_of_ipv6() {
    // A machine may have none.
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else { return };
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut wire = Wire::new(listener.accept().unwrap().0);
        let head = wire.until("\r\n\r\n");
        assert!(head.contains(&format!("host: [::1]:{port}\r\n")), "{head}");
        wire.send(OK);
    });
    let caller = Caller::new();
    let target = Target::parse(&format!("http://[::1]:{port}/")).unwrap();
    let opened = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
    assert!(opened.remote.is_some_and(|remote| remote.is_ipv6()));
}

/// Answers when it is told to.
fn gated() -> (Sink, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let sink = Sink::new(move |_, stream| {
        let mut wire = Wire::new(stream);
        while wire.try_until("\r\n\r\n").is_some() {
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            let _ = gate.lock().unwrap().recv();
            wire.send("ok");
        }
    });
    (sink, go)
}

#[test]
fn the_calls_to_a_backend_and_the_waiting_ones_are_limited() {
    let (sink, go) = gated();
    let caller = Caller::new();
    let wait = Duration::from_millis(100);
    let target = Target::parse(&sink.url()).unwrap();
    let target = target.with_backlog(Backlog { active: 1, queued: 0, wait });
    let first = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
    let fault = open(&caller, &mut Call::new(Method::GET, &target.clone())).unwrap_err();
    assert!(matches!(fault, OutgoingFault::QueueFull) && fault.is_unsent(), "{fault}");
    go.send(()).unwrap();
    // The place is free at the end of the body.
    assert_eq!(caller.runtime.block_on(first.flow.collect(9)).unwrap(), "ok");
    let second = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
    assert!(second.reused);
    // Or when the rest is not wanted.
    drop(second);
    let target = target.with_backlog(Backlog { active: 1, queued: 1, wait });
    let third = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
    let fault = open(&caller, &mut Call::new(Method::GET, &target)).unwrap_err();
    assert!(matches!(fault, OutgoingFault::Timeout(Stage::Queue)), "{fault}");
    let target = target.with_backlog(Backlog { active: 1, queued: 1, wait: PATIENCE });
    let place = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
    caller.runtime.block_on(async {
        let client = caller.client.clone();
        let waiting = tokio::spawn({
            let target = target.clone();
            async move { client.open(&mut Call::new(Method::GET, &target)).await.map(drop) }
        });
        // waits for: the call to be in the queue
        tokio::time::sleep(wait).await;
        assert!(!waiting.is_finished());
        drop((place, third));
        waiting.await.unwrap().unwrap();
    });
    drop(go);
}

#[cfg(unix)]
#[test]
fn a_backend_can_listen_on_a_unix_socket() {
    use std::io::{Read, Write};
    let folder = std::env::temp_dir().join(format!("wire-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("backend.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut bytes = [0; 1024];
        for _ in 0..2 {
            let count = stream.read(&mut bytes).unwrap();
            let head = String::from_utf8_lossy(&bytes[..count]).into_owned();
            assert!(head.starts_with("GET / HTTP/1.1\r\nhost: localhost\r\n"), "{head}");
            stream.write_all(OK).unwrap();
        }
    });
    let caller = Caller::new();
    let target = Target::unix(&path).unwrap();
    for turn in 0..2 {
        let opened = open(&caller, &mut Call::new(Method::GET, &target)).unwrap();
        assert_eq!((opened.status, opened.reused), (StatusCode::OK, turn == 1));
        assert_eq!(opened.remote, None);
    }
    let missing = Target::unix(folder.join("none.sock")).unwrap();
    let fault = open(&caller, &mut Call::new(Method::GET, &missing)).unwrap_err();
    assert_eq!(fault.class(), "connect");
    for path in ["relative.sock", &format!("/{}", "x".repeat(108))] {
        assert_eq!(Target::unix(path).unwrap_err().class(), "url");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
