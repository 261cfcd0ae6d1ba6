//! Clients that violate the protocol, by malice or by accident. The server responds with JSON or
//! closes the connection, writes nothing from an incomplete request, and keeps its speed and its
//! memory.

use crate::chance::Chance;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::odd;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum growth of the resident memory during a test, caches and buffers included.
pub const GROWTH_KIB: u64 = 64 * 1024;

fn unlimited() -> Server {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off").go()
}

/// One response as received.
#[derive(Debug)]
struct Plain {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Plain {
    fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// Parses a byte stream into responses; anything else in it is an error.
fn answers(mut bytes: &[u8]) -> Result<Vec<Plain>, String> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no end of head")?;
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "head is no text")?.to_owned();
        let status = head.strip_prefix("HTTP/1.1 ").or(head.strip_prefix("HTTP/1.0 "));
        let status = status.and_then(|rest| rest.get(..3)?.parse().ok()).ok_or("no status")?;
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = match length {
            Some(text) => text.trim().parse::<usize>().map_err(|_| "bad length")?,
            None if matches!(status, 100 | 204 | 304) => 0,
            None => return Err(format!("no length: {head}")),
        };
        let rest = &bytes[end + 4..];
        let body = rest.get(..length).ok_or("body cut short")?.to_vec();
        bytes = &rest[length..];
        all.push(Plain { status, head, body });
    }
    Ok(all)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes, closes the sending side, and reads the response.
fn exchange(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(server);
    // The server may respond and close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn post(body: &str, extra: &str) -> String {
    format!(
        "POST /v1/books HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\n{extra}\r\n{body}"
    )
}

pub fn resident_kib(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Asserts after a test that the server is healthy and its memory has not grown too much.
pub fn assert_unharmed(server: &Server, before_kib: u64) {
    server.get("/health").expect(200);
    server.post("/v1/books", json!({ "title": "calm", "author": "a" })).expect(201);
    let now = resident_kib(server);
    assert!(now < before_kib + GROWTH_KIB, "resident memory grew from {before_kib} to {now} KiB");
    assert!(!server.log.lock().unwrap().contains("panicked"));
}

fn total_books(server: &Server) -> u64 {
    let list = server.get("/v1/books?page=1&limit=1").expect(200);
    list["pagination"]["total"].as_u64().unwrap()
}

#[test]
fn an_incomplete_request_writes_nothing_and_affects_no_other() {
    let server = unlimited();
    let body = r#"{"title":"half","author":"a"}"#;
    let whole = post(body, &format!("Content-Length: {}\r\n", body.len()));
    let chunks =
        post("1d\r\n{\"title\":\"half\",\"author\":\"a\"}", "Transfer-Encoding: chunked\r\n");
    for end in (0..whole.len()).step_by(7) {
        let mut stream = connect(&server);
        stream.write_all(&whole.as_bytes()[..end]).unwrap();
    }
    for end in (0..=chunks.len()).step_by(11) {
        let mut stream = connect(&server);
        stream.write_all(&chunks.as_bytes()[..end]).unwrap();
        let _ = stream.shutdown(Shutdown::Both);
    }
    server.get("/health").expect(200);
    assert_eq!(total_books(&server), 0);
    let answer = answers(&exchange(&server, whole.as_bytes())).unwrap();
    assert_eq!(answer[0].status, 201);
    assert_eq!(total_books(&server), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = unlimited();
    let mut text = String::new();
    for number in 0..50 {
        let body = format!(r#"{{"title":"t{number}","author":"a"}}"#);
        text.push_str(&post(&body, &format!("Content-Length: {}\r\n", body.len())));
        text.push_str("GET /health HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    let answers = answers(&exchange(&server, text.as_bytes())).unwrap();
    assert_eq!(answers.len(), 100);
    for (number, pair) in answers.chunks(2).enumerate() {
        assert_eq!(pair[0].json().unwrap()["title"], format!("t{number}"));
        assert_eq!(pair[1].json().unwrap()["status"], "ok");
    }
}

#[test]
fn requests_over_each_size_limit_get_a_specific_error() {
    let server = unlimited();
    let before = resident_kib(&server);
    let big = "x".repeat(10 << 20);
    let lengthy = post(&big, &format!("Content-Length: {}\r\n", big.len()));
    let chunked =
        post(&format!("{:x}\r\n{big}\r\n0\r\n\r\n", big.len()), "Transfer-Encoding: chunked\r\n");
    let get = |rest: &str| format!("GET {rest}\r\nAuthorization: Bearer {KEY}\r\nHost: x\r\n\r\n");
    let url = get(&format!("/v1/books?title={} HTTP/1.1", "y".repeat(100_000)));
    let header = get(&format!("/v1/books HTTP/1.1\r\nX-Big: {}", "z".repeat(60_000)));
    let many: String = (0..5_000).map(|n| format!("\r\nX-{n}: {n}")).collect();
    let many = get(&format!("/v1/books HTTP/1.1{many}"));
    let deep = "[".repeat(100_000);
    let deep = post(&deep, &format!("Content-Length: {}\r\n", deep.len()));
    for (bytes, status, code) in [
        (&lengthy, 413, "body_too_large"),
        (&chunked, 413, "body_too_large"),
        (&url, 414, "url_too_long"),
        (&header, 431, "headers_too_large"),
        (&many, 431, "headers_too_large"),
        (&deep, 400, "too_deep"),
    ] {
        let got = answers(&exchange(&server, bytes.as_bytes())).unwrap();
        let first = got.first().unwrap_or_else(|| panic!("no answer instead of {status}"));
        let error = first.json().map(|body| body["error"]["code"].clone());
        assert_eq!((first.status, error), (status, Some(json!(code))), "{}", first.head);
    }
    assert_eq!(total_books(&server), 0);
    assert_unharmed(&server, before);
}

#[test]
fn slow_clients_do_not_delay_others() {
    let server = unlimited();
    let time = |server: &Server| {
        let began = Instant::now();
        for _ in 0..50 {
            server.get("/health").expect(200);
            server.get("/v1/books").expect(200);
        }
        began.elapsed()
    };
    let alone = time(&server);
    let body = r#"{"title":"slow","author":"a"}"#;
    let whole = post(body, &format!("Content-Length: {}\r\n", body.len()));
    let mut slow: Vec<TcpStream> = (0..400).map(|_| connect(&server)).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        let sent = if number % 2 == 0 { 40 } else { whole.len() - 5 };
        stream.write_all(&whole.as_bytes()[..sent]).unwrap();
    }
    let among = time(&server);
    assert!(among < alone * 5 + Duration::from_secs(1), "{alone:?} alone, {among:?} among them");
    // A slow request that finishes in time is served.
    slow[1].write_all(&whole.as_bytes()[whole.len() - 5..]).unwrap();
    slow[1].shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    slow[1].read_to_end(&mut answer).unwrap();
    assert_eq!(answers(&answer).unwrap()[0].status, 201);
}

/// A request with some bytes replaced, doubled or missing; or random bytes.
fn mangled(chance: &mut Chance) -> Vec<u8> {
    if chance.percent(30) {
        return chance.bytes(300);
    }
    let body = r#"{"title":"m","author":"a"}"#;
    let mut bytes = match chance.below(3) {
        0 => format!(
            "GET /v1/books?limit=2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        ),
        1 => post(body, &format!("Content-Length: {}\r\n", body.len())),
        _ => post(&format!("1a\r\n{body}\r\n0\r\n\r\n"), "Transfer-Encoding: chunked\r\n"),
    }
    .into_bytes();
    for _ in 0..=chance.below(4) {
        let place = chance.below(bytes.len().max(2) - 1);
        match chance.below(4) {
            0 => bytes[place] = chance.next() as u8,
            1 if bytes.len() > 1 => drop(bytes.remove(place)),
            2 => bytes.insert(place, b"\r\n :,\0\t\xff"[chance.below(8)]),
            _ => bytes.truncate(place.max(1)),
        }
    }
    bytes
}

#[test]
fn ten_thousand_malformed_requests_get_a_response_or_a_close() {
    let server = unlimited();
    let before = resident_kib(&server);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let server = &server;
            scope.spawn(move || {
                let mut chance = Chance::new(thread);
                for _ in 0..1250 {
                    let sent = mangled(&mut chance);
                    let got = exchange(server, &sent);
                    let shown = || String::from_utf8_lossy(&sent).into_owned();
                    let all = answers(&got).unwrap_or_else(|what| panic!("{what}: {}", shown()));
                    for answer in all {
                        // An unknown method, coding or version (501, 505) is the client's error
                        // too.
                        let is_theirs = answer.status < 500 || matches!(answer.status, 501 | 505);
                        assert!(is_theirs, "{}: {}", answer.status, shown());
                        let bodiless = matches!(answer.status, 100 | 204 | 304);
                        assert!(bodiless || answer.json().is_some(), "no JSON: {}", shown());
                    }
                }
            });
        }
    });
    assert_unharmed(&server, before);
}

/// Paths of records for random requests.
fn paths(server: &Server) -> Vec<(&'static str, String)> {
    let book = server.post("/v1/books", json!({ "title": "t", "author": "a" })).id();
    let review = server.post(&format!("/v1/books/{book}/reviews"), json!({ "rating": 1 })).id();
    let order = server.post("/v1/orders", json!({ "book": book })).id();
    let payment =
        server.post("/v1/payment-intents", json!({ "amount": 1, "currency": "eur" })).id();
    vec![
        ("POST", "/v1/books".into()),
        ("PUT", format!("/v1/books/{book}")),
        ("PATCH", format!("/v1/books/{book}")),
        ("DELETE", "/v1/books/book_none".into()),
        ("POST", format!("/v1/books/{book}/reviews")),
        ("PATCH", format!("/v1/books/{book}/reviews/{review}")),
        ("POST", "/v1/orders".into()),
        ("PATCH", format!("/v1/orders/{order}")),
        ("POST", format!("/v1/orders/{order}/cancel")),
        ("POST", "/v1/payment-intents".into()),
        ("PATCH", format!("/v1/payment-intents/{payment}")),
        ("POST", format!("/v1/payment-intents/{payment}/confirm")),
        ("POST", "/v1/messages".into()),
    ]
}

/// Runs random requests in four threads and asserts that each gets JSON with a status below 500.
fn storm(server: &Server, seed: u64, times: usize, one: impl Fn(&mut Chance) -> Vec<u8> + Sync) {
    let before = resident_kib(server);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let one = &one;
            scope.spawn(move || {
                let mut chance = Chance::new(seed * 100 + thread);
                for _ in 0..times / 4 {
                    let sent = one(&mut chance);
                    let shown = || String::from_utf8_lossy(&sent).into_owned();
                    let got = answers(&exchange(server, &sent));
                    let got = got.unwrap_or_else(|what| panic!("{what}: {}", shown()));
                    // The last response: `Expect` adds a 100 before it.
                    let first = got.last().unwrap_or_else(|| panic!("no answer: {}", shown()));
                    let body = String::from_utf8_lossy(&first.body);
                    assert!(first.status < 500, "{} {body}: {}", first.status, shown());
                    let bodiless = matches!(first.status, 204 | 304);
                    assert!(bodiless || first.json().is_some(), "{body}: {}", shown());
                    if first.status >= 400 {
                        let json = first.json().unwrap();
                        let code = json["error"]["code"].as_str().or(json["code"].as_str());
                        assert!(code.is_some(), "{body}: {}", shown());
                    }
                }
            });
        }
    });
    assert_unharmed(server, before);
}

#[test]
fn random_json_never_causes_a_5xx() {
    let server = unlimited();
    let paths = paths(&server);
    storm(&server, 1, 4000, |chance| {
        let (method, path) = &paths[chance.below(paths.len())];
        let body = odd::body(chance);
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    });
}

#[test]
fn random_queries_never_cause_a_5xx() {
    let server = unlimited();
    let paths = paths(&server);
    storm(&server, 2, 3000, |chance| {
        let path = &paths[chance.below(paths.len())].1;
        let query = odd::query(chance);
        format!("GET {path}?{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n")
            .into_bytes()
    });
}

#[test]
fn random_headers_never_cause_a_5xx() {
    let server = unlimited();
    let paths = paths(&server);
    storm(&server, 3, 3000, |chance| {
        let (method, path) = &paths[chance.below(paths.len())];
        let method = if chance.percent(50) { "GET" } else { method };
        let body = if method == "GET" { "" } else { r#"{"title":"h","author":"a"}"# };
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", body.len());
        if chance.percent(80) {
            text.push_str(&format!("Authorization: Bearer {KEY}\r\n"));
        }
        if chance.percent(80) {
            text.push_str("Content-Type: application/json\r\n");
        }
        let mut bytes = text.into_bytes();
        for _ in 0..chance.below(4) {
            bytes.extend(odd::header(chance));
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.as_bytes());
        bytes
    });
}

#[test]
fn silent_connections_leave_no_descriptors_or_memory_behind() {
    let server = unlimited();
    let before = resident_kib(&server);
    for _ in 0..20 {
        let silent: Vec<TcpStream> = (0..100).map(|_| connect(&server)).collect();
        drop(silent);
    }
    let open = || {
        let folder = format!("/proc/{}/fd", server.pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    eventually("the connections are closed", || open() < 60);
    assert_unharmed(&server, before);
}

/// Connections that are opened together.
const RUSH: usize = 15_000;

/// Held by tests that open thousands of connections: two of them would exceed the limit of open
/// files.
pub static MANY_CONNECTIONS: Mutex<()> = Mutex::new(());

#[test]
fn fifteen_thousand_connects_at_once_are_all_answered() {
    let _alone = MANY_CONNECTIONS.lock();
    // Limits of this process and, by inheritance, of the server.
    let own = std::process::id().to_string();
    let files = format!("--nofile={0}:{0}", RUSH + 4_000);
    let raised = std::process::Command::new("prlimit").args(["--pid", &own, &files]).status();
    assert!(raised.unwrap().success(), "the limit of open files can be raised");
    let server = unlimited();
    let before = resident_kib(&server);
    let each = RUSH / 10;
    let served: usize = std::thread::scope(|scope| {
        let rush = |_| {
            scope.spawn(|| {
                let mut streams: Vec<TcpStream> = (0..each).map(|_| connect(&server)).collect();
                for stream in &mut streams {
                    stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                }
                let served = streams.iter().filter(|stream| {
                    let mut head = [0; 12];
                    (&**stream).read_exact(&mut head).unwrap();
                    // Connections beyond the limit get 503, and none is cut off.
                    assert!([b"HTTP/1.1 200", b"HTTP/1.1 503"].contains(&&head));
                    &head == b"HTTP/1.1 200"
                });
                (served.count(), streams)
            })
        };
        let threads: Vec<_> = (0..10).map(rush).collect();
        let done: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let grown = resident_kib(&server) - before;
        assert!(grown < 8 * RUSH as u64, "{grown} KiB for {RUSH} connections");
        done.iter().map(|(served, _)| served).sum()
    });
    assert!(served >= 4_096, "as many as there may be at one moment, at least: {served}");
    server.get("/v1/books").expect(200);
}
