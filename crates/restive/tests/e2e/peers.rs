//! Who the client is behind proxies, as logs and limits see it, and how many connections it has.

use crate::harness::{Server, Start, eventually};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::process::Command;

/// The address in the log line of this request.
fn logged(server: &Server, request: &str) -> String {
    let line = || {
        let log = server.log.lock().unwrap().clone();
        log.lines().find(|line| line.contains(request)).map(str::to_owned)
    };
    eventually("the line is written", || line().is_some());
    let line: Value = serde_json::from_str(&line().unwrap()).unwrap();
    line["client"].as_str().unwrap().to_owned()
}

fn health(server: &Server, forwarded_for: &str) -> String {
    let answer = server.ask("GET", "/v1/books").header("x-forwarded-for", forwarded_for).send();
    logged(server, answer.header("request-id").unwrap())
}

#[test]
fn the_log_names_the_client_that_a_trusted_proxy_names() {
    let server = Server::bookshop();
    assert_eq!(health(&server, "198.51.100.7"), "127.0.0.1");
    let server = Start::bookshop().arg("--trusted-proxies").arg("10.0.0.0/8, 127.0.0.1").go();
    assert_eq!(health(&server, "203.0.113.9, 198.51.100.7, 10.1.2.3"), "198.51.100.7");
}

#[test]
fn clients_behind_a_trusted_proxy_have_a_limit_each() {
    let start = Start::bookshop().arg("--rate-limit").arg("3/1h");
    let server = start.env("RESTIVE_TRUSTED_PROXIES", "127.0.0.0/8").go();
    let ask = |client: &str| {
        let ask = server.ask_anonymously("GET", "/v1/books");
        ask.header("x-forwarded-for", client).send().status
    };
    for client in ["198.51.100.1", "198.51.100.2"] {
        assert_eq!([ask(client), ask(client), ask(client), ask(client)], [401, 401, 401, 429]);
    }
    // An address that the client made up is not the proxy's word.
    assert_eq!(ask("192.0.2.99, 198.51.100.1"), 429);
}

#[test]
fn the_proxy_protocol_is_spoken_where_it_is_declared() {
    let proxies = ["--trusted-proxies", "127.0.0.1", "--proxy-protocol", "on"];
    let server = proxies.iter().fold(Start::bookshop(), |start, arg| start.arg(arg)).go();
    let curl = |arguments: &[&str]| {
        let url = server.url("/health");
        Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).arg(url).output()
    };
    let answer = curl(&["--haproxy-protocol"]).unwrap();
    assert!(String::from_utf8_lossy(&answer.stdout).contains("\"ok\""), "{answer:?}");
    assert!(!curl(&[]).unwrap().status.success(), "without it the connection is closed");
}

#[test]
fn connections_of_one_address_are_limited() {
    let server = Start::bookshop().arg("--max-connections-per-address").arg("2").go();
    // Answered, so that they have their places before others come.
    let connect = |_| {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    let kept: Vec<_> = (0..2).map(connect).collect();
    let status = || server.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")[9..12].to_owned();
    assert_eq!(status(), "503", "a third is refused");
    drop(kept);
    eventually("there is room again", || status() == "200");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let (code, error) = Start::bookshop().arg("--proxy-protocol").arg("on").fails();
    assert!(code == 1 && error.contains("--trusted-proxies"), "{error}");
    let (code, error) = Start::bookshop().arg("--trusted-proxies").arg("10.0.0.0/40").fails();
    assert!(code == 2 && error.contains("10.0.0.0/40") && error.contains("10.0.0.0/8"), "{error}");
}
