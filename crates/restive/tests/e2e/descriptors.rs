//! A server at its limit of open files: open connections and the store keep working, new
//! connections wait without using CPU time, and everything works again when descriptors are
//! available.

use crate::carry;
use crate::deliveries::endpoint;
use crate::harness::{Server, Start, eventually};
use crate::live_client::{Events, bearer};
use crate::sink::Sink;
use serde_json::json;
use std::collections::HashSet;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// Clock ticks of CPU time that a process has used; 100 per second.
fn ticks(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn limit(server: &Server, files: &str) {
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(server.pid().to_string()).arg(format!("--nofile={files}:"));
    let status = command.status().expect("prlimit (package util-linux) is needed");
    assert!(status.success(), "prlimit: {status}");
}

/// The number of the next file descriptor: a limit of this number allows no more files.
fn next_file(server: &Server) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let number = |name: std::ffi::OsString| name.to_str()?.parse::<usize>().ok();
    let open: HashSet<usize> = files.filter_map(|file| number(file.unwrap().file_name())).collect();
    (0..).find(|number| !open.contains(number)).unwrap()
}

/// How many threads of the server accept connections.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Sends a request on an open connection; returns the status line.
fn ask(connection: &mut dyn carry::Bytewise, server: &Server, request: &str, body: &str) -> String {
    let text = format!(
        "{request} HTTP/1.1\r\nHost: test\r\n{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        bearer(&server.key),
        body.len()
    );
    connection.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = connection.read(&mut piece).unwrap();
        assert!(count > 0, "closed after {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if rest.len() >= length.map_or(0, |bytes| bytes.parse().unwrap()) {
            return head.lines().next().unwrap().to_owned();
        }
    }
}

#[test]
fn at_the_limit_of_open_files_open_connections_work_and_new_ones_wait() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let sink = Sink::start();
    endpoint(&server, &sink, json!({"enabled_events": ["book.*"], "retry_schedule": [1, 1, 1]}));
    eventually("the ping came", || !sink.received().is_empty());
    let mut stream = Events::open(&server, "/api/events?types=book.*");
    let mut open = carry::plain(server.address);
    assert!(ask(&mut *open, &server, "GET /v1/books", "").contains(" 200 "));
    limit(&server, &next_file(&server).to_string());
    // The system accepts these connections; the server cannot.
    let waiting: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    eventually("the limit is met", || {
        server.log.lock().unwrap().contains("cannot accept connections")
    });
    let before = ticks(&server);
    // waits for: a second in which processor time is measured
    std::thread::sleep(Duration::from_secs(1));
    let spent = ticks(&server) - before;
    assert!(spent < 50, "{spent} ticks of 100: it spins");
    // One line for each accepting thread, not one for each attempt.
    let log = server.log.lock().unwrap().clone();
    let (lines, threads) = (log.matches("cannot accept connections").count(), threads());
    assert!(lines <= threads, "{lines} lines of {threads} threads: {log}");
    for title in ["a", "b"] {
        let body = json!({"title": title, "author": "a"}).to_string();
        let status = ask(&mut *open, &server, "POST /v1/books", &body);
        assert!(status.contains(" 201 "), "{status}");
        let told = stream.named("book.created").json();
        assert_eq!(told["data"]["object"]["title"], title);
        assert!(ask(&mut *open, &server, "GET /v1/books?sort=title", "").contains(" 200 "));
    }
    drop(waiting);
    limit(&server, "1024");
    eventually("it takes connections again", || {
        server.ask("GET", "/v1/books").try_send().is_ok_and(|answer| answer.status == 200)
    });
    eventually("both are delivered", || sink.of("book.created").len() >= 2);
    let pending = "/v1/deliveries?status=pending";
    eventually("all are settled", || server.get(pending).column("id").is_empty());
    assert_eq!(server.get("/health").status, 200);
}
