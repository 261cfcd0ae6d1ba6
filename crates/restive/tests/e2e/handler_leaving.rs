//! Clients that disconnect before a handler has responded: the action runs to its end once, and a
//! retry gets its result.

use crate::carry;
use crate::deliveries::figure;
use crate::h2_storms::{END_HEADERS, END_STREAM, HEADERS, PREFACE, RESET, SETTINGS, block, frame};
use crate::handler_turns::Handler;
use crate::harness::{KEY, Server, Start, eventually};
use serde_json::json;
use std::io::Write as _;
use std::net::TcpStream;

/// How often a client disconnects and tries again.
const TRIES: usize = 3;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Sends the action and disconnects as soon as the handler is called, repeatedly.
type Leave = fn(server: &Server, handler: &Handler, path: &str, key: Option<&str>);

fn leave_http1(server: &Server, handler: &Handler, path: &str, key: Option<&str>) {
    let key = key.map_or(String::new(), |key| format!("Idempotency-Key: {key}\r\n"));
    for number in 0..TRIES {
        let mut stream = carry::plain(server.address);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n{key}\
             Content-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // An HTTP/1.1 server notices a disconnect only when it writes.
        under_way(server, handler, number + 1);
    }
}

fn leave_http2(server: &Server, handler: &Handler, path: &str, key: Option<&str>) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    let bearer = format!("Bearer {KEY}");
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("authorization", &bearer),
    ];
    fields.extend(key.map(|key| ("idempotency-key", key)));
    for number in 0..TRIES as u32 {
        let id = 2 * number + 1;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&fields));
        stream.write_all(&request).unwrap();
        under_way(server, handler, 1);
        stream.write_all(&frame(RESET, 0, id, &CANCEL)).unwrap();
        eventually("the server has noticed that the client left", || in_flight(server) == 0);
    }
}

/// Waits until this many requests are in progress and the first one has reached the handler.
fn under_way(server: &Server, handler: &Handler, count: usize) {
    eventually("it is under way", || in_flight(server) == count);
    eventually("the handler is asked", || handler.asked() > 0);
}

fn in_flight(server: &Server) -> usize {
    // Without the request for the metrics.
    figure(server, "restive_requests_in_flight").unwrap() as usize - 1
}

const WAYS: [(&str, Leave); 2] = [("HTTP/1.1", leave_http1), ("HTTP/2", leave_http2)];

#[test]
fn an_action_runs_once_although_its_client_disconnects_and_retries() {
    for (over, leave) in WAYS {
        let handler = Handler::start();
        let server = handler.server();
        let id = server.make("/v1/orders", json!({}));
        let path = format!("/v1/orders/{id}/count");
        leave(&server, &handler, &path, Some("once"));
        assert_eq!((handler.asked(), handler.most_active()), (1, 1), "{over}");
        let again = || server.ask("POST", &path).header("idempotency-key", "once");
        let answer = std::thread::scope(|threads| {
            let patient = threads.spawn(|| again().send());
            handler.release();
            patient.join().unwrap()
        });
        assert_eq!(answer.header("idempotent-replayed"), Some("true"), "{over}: {}", answer.text);
        assert_eq!(answer.expect(200)["count"], 1, "{over}");
        assert_eq!((handler.asked(), handler.most_active()), (1, 1), "{over}");
    }
}

#[test]
fn retries_without_an_idempotency_key_wait_for_the_first_call() {
    for (over, leave) in WAYS {
        let handler = Handler::start();
        let server = handler.server();
        let id = server.make("/v1/orders", json!({}));
        let path = format!("/v1/orders/{id}/confirm");
        leave(&server, &handler, &path, None);
        assert_eq!((handler.asked(), handler.most_active()), (1, 1), "{over}");
        handler.release();
        let confirmed = || server.get(&format!("/v1/orders/{id}")).json["status"] == "confirmed";
        eventually("the first is committed, whoever left", confirmed);
        server.post(&path, json!({})).error(409, "invalid_state");
        assert_eq!((handler.asked(), handler.most_active()), (1, 1), "{over}");
    }
}

#[test]
fn a_stop_waits_for_an_action_whose_client_has_disconnected() {
    let handler = Handler::start();
    let server = handler.server();
    let id = server.make("/v1/orders", json!({}));
    let path = format!("/v1/orders/{id}/confirm");
    let folder = std::thread::scope(|threads| {
        leave_http2(&server, &handler, &path, None);
        let log = server.log.clone();
        let handler = &handler;
        threads.spawn(move || {
            eventually("it drains", || log.lock().unwrap().contains("draining"));
            handler.release();
        });
        let (code, folder) = server.stop();
        assert_eq!(code, 0);
        folder
    });
    let server = Start::schema(&handler.schema()).on(&folder).go();
    assert_eq!(server.get(&format!("/v1/orders/{id}")).expect(200)["status"], "confirmed");
}
