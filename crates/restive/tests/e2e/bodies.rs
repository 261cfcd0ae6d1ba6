//! Request bodies in flight: the bodies of one account use a bounded part of the memory and leave
//! room for the bodies of others.

use crate::auth::account;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::hostile::{GROWTH_KIB, resident_kib};
use serde_json::json;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The part of the body budget that one account alone may use.
const SHARE_KIB: u64 = 128 * 1024;
const BODY_BYTES: usize = 1_000_000;
/// More uploads than fit into the share.
const UPLOADS: usize = 200;
/// The part of each body that is held back.
const HELD_BACK: usize = 1_000;

fn unlimited() -> Server {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off").go()
}

fn head(key: &str, bytes: usize) -> String {
    format!(
        "POST /v1/books HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n"
    )
}

/// Sends a request except for the end of its body.
fn upload(server: &Server, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let text = [head(key, BODY_BYTES).as_bytes(), &[b' '; BODY_BYTES - HELD_BACK]].concat();
    // The server may close a refused request before all of it is sent.
    let _ = stream.write_all(&text);
    stream
}

/// The response so far.
fn answered(stream: &mut TcpStream) -> String {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 4096];
    let count = match stream.read(&mut bytes) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        // The connection was reset before the response was read.
        Err(_) => return "reset".to_owned(),
    };
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn large_bodies_of_one_account_do_not_block_those_of_another() {
    let server = unlimited();
    let (_, other, _) = account(&server, "other");
    server.book("first");
    let before = resident_kib(&server);
    let mut uploads: Vec<TcpStream> = (0..UPLOADS).map(|_| upload(&server, KEY)).collect();
    // The share is used up: the next request is refused before its body is sent, with a reason. A
    // busy server may not have read all the others yet, or given up the first of them (408).
    let mut refusal = String::new();
    eventually("one more is refused", || {
        // A body of which nothing arrives for 10 s is given up.
        for stream in &mut uploads {
            let _ = stream.write_all(b" ");
        }
        let mut late = TcpStream::connect(server.address).unwrap();
        late.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        late.write_all(head(KEY, BODY_BYTES).as_bytes()).unwrap();
        let mut answer = vec![0; 4096];
        let count = late.read(&mut answer).unwrap_or(0);
        refusal = String::from_utf8_lossy(&answer[..count]).to_lowercase();
        if count == 0 {
            uploads.push(upload(&server, KEY));
        }
        count > 0
    });
    assert!(refusal.starts_with("http/1.1 503"), "{refusal}");
    assert!(refusal.contains("retry-after: 1") && refusal.contains("overloaded"), "{refusal}");
    let held = resident_kib(&server);
    assert!(held < before + SHARE_KIB + GROWTH_KIB, "from {before} to {held} KiB");
    // The other account can still send bodies, including large ones.
    let began = Instant::now();
    for title in ["small".to_owned(), "x".repeat(100)] {
        let book = json!({ "title": title, "author": "a" });
        server.ask("POST", "/v1/books").key(&other).json(&book).send().expect(201);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // Requests without a body are served for both accounts.
    server.get("/v1/books").expect(200);
    eventually("the uploads beyond the share are refused", || {
        uploads.retain_mut(|stream| answered(stream).is_empty());
        uploads.len() <= 150
    });
    assert!(uploads.len() >= 100, "{} are held", uploads.len());
    drop(uploads);
    // The account recovers, and the memory returns to the system.
    eventually("the account sends bodies again", || {
        let book = json!({ "title": "again", "author": "a" });
        server.ask("POST", "/v1/books").json(&book).send().status == 201
    });
    eventually("the memory is returned", || resident_kib(&server) < before + GROWTH_KIB);
}

#[test]
fn the_body_of_an_unauthenticated_request_is_not_read() {
    let server = unlimited();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head("sk_test_nobody", BODY_BYTES).as_bytes()).unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 401"), "{:?}", &answer[..count]);
}
