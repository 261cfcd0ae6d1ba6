//! Rules of HTTP that clients, proxies and test suites rely on, with the real server: hosts,
//! targets, versions, methods, transfer codings, trailers, paths.

use crate::deadline::Deadline as _;
use crate::h2_storms::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame};
use crate::harness::{KEY, PATIENCE, Server, Start};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

/// Status, error code and message of the response to these bytes.
fn outcome(server: &Server, bytes: &str) -> (String, String, String) {
    let answer = server.raw(bytes.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    assert!(head.starts_with("HTTP/1.1 "), "{answer}");
    let error = serde_json::from_str::<Value>(body).unwrap_or_default()["error"].clone();
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (head[9..12].to_owned(), text("code"), text("message"))
}

#[test]
fn hosts_targets_and_http_versions_follow_the_rfcs() {
    let server = Server::bookshop();
    let line = |line: &str, host: &str| {
        format!(
            "{line}\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        )
    };
    let mut wrong = Vec::new();
    for (bytes, status, code) in [
        (line("GET /health HTTP/1.1", "shop.example:80"), "200", ""),
        (line("GET /health HTTP/1.1", "[::1]:80"), "200", ""),
        (line("GET /health HTTP/1.1", ""), "400", "malformed_request"),
        (line("GET /health HTTP/1.1", "shop:http"), "400", "malformed_request"),
        (line("GET /health HTTP/1.1", "shop:65536"), "400", "malformed_request"),
        (line("GET /health HTTP/1.1", "[::1"), "400", "malformed_request"),
        (line("GET /health HTTP/1.1", "::1"), "400", "malformed_request"),
        (line("GET http://shop.example/health HTTP/1.1", "other.example"), "200", ""),
        (line("GET http://shop:http/health HTTP/1.1", "shop"), "400", "malformed_request"),
        (line("GET /health#top HTTP/1.1", "shop"), "400", "malformed_request"),
        (line("GET /health HTTP/1.2", "shop"), "200", ""),
        (line("GET /health HTTP/2.0", "shop"), "505", "http_version_not_supported"),
        (line("BREW /v1/books HTTP/1.1", "shop"), "501", "not_implemented"),
        (line("PROPFIND /nowhere HTTP/1.1", "shop"), "501", "not_implemented"),
        (line("TRACE /v1/books HTTP/1.1", "shop"), "405", "method_not_allowed"),
        (line("get /v1/books HTTP/1.1", "shop"), "501", "not_implemented"),
    ] {
        let (seen, error, message) = outcome(&server, &bytes);
        let is_explained = message.is_empty() == (status == "200");
        if (seen.as_str(), error.as_str()) != (status, code) || !is_explained {
            wrong.push(format!("{bytes}: {seen} {error} {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unknown_transfer_codings_and_forbidden_trailers_are_refused_with_a_reason() {
    let server = Server::bookshop();
    let post = |coding: &str, body: &str| {
        format!(
            "POST /v1/books HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer \
             {KEY}\r\nContent-Type: application/json\r\nTransfer-Encoding: {coding}\r\n\r\n{body}"
        )
    };
    let book = "26\r\n{\"title\":\"Dune\",\"author\":\"F. Herbert\"}\r\n0\r\n";
    let mut wrong = Vec::new();
    for (bytes, status, says) in [
        (post("chunked", &format!("{book}Checksum: 1\r\n\r\n")), "201", ""),
        (post("gzip, chunked", ""), "501", "chunked"),
        (post("gzip", ""), "501", "chunked"),
        (post("chunked, chunked", ""), "400", "chunked"),
        (post("chunked", &format!("{book}Content-Length: 1\r\n\r\n")), "400", "trailer"),
        (post("chunked", &format!("{book}Authorization: x\r\n\r\n")), "400", "trailer"),
        (post("chunked", "zz\r\n"), "400", "chunked encoding"),
    ] {
        let (seen, _, message) = outcome(&server, &bytes);
        if seen != status || !message.contains(says) {
            wrong.push(format!("{bytes}: {seen} {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_segment_of_a_path_is_decoded() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let coded = format!("%{:02X}{}", book.as_bytes()[0], &book[1..]);
    let mut wrong = Vec::new();
    for (path, status) in [
        ("/v1/%62ooks".to_owned(), 200),
        ("/v%31/books".to_owned(), 200),
        (format!("/v1/%62ooks/{coded}"), 200),
        (format!("/v1/books/{book}/%72eviews"), 200),
        ("/%68ealth".to_owned(), 200),
        ("/openapi%2Ejson".to_owned(), 200),
        ("/v1/acc%6Funt".to_owned(), 200),
        // An encoded slash is a part of its segment.
        (format!("/v1/books%2F{book}"), 404),
        ("/v1%2Fbooks".to_owned(), 404),
        ("/v1/b%FFooks".to_owned(), 404),
    ] {
        let answer = server.get(&path);
        if answer.status != status {
            wrong.push(format!("{path}: {}", answer.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let order = server.make("/v1/orders", json!({"book": book}));
    let paid = server.post(&format!("/v1/orders/{order}/p%61y"), json!({}));
    assert_eq!(paid.status, 200, "{}", paid.text);
}

/// The response on stream 1 of HTTP/2 to these frames: a status, or the code of a reset.
fn over_http2(server: &Server, frames: &[Vec<u8>]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    stream.write_all(&[opening, frames.concat()].concat()).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).unwrap();
        match (head[3], payload.first()) {
            (1, Some(0x88)) => return "200".to_owned(),
            (1, Some(0x8c)) => return "400".to_owned(),
            (1, _) => return "another status".to_owned(),
            (3, _) => return format!("reset {}", payload[3]),
            (7, _) => return format!("goodbye {}", payload[7]),
            _ => {}
        }
    }
}

#[test]
fn heads_and_trailers_of_http2_follow_the_rfc() {
    let server = Server::bookshop();
    let key = format!("Bearer {KEY}");
    let head = |method: &str, path: &str, more: &[(&str, &str)]| {
        let fields = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "shop"),
            (":path", path),
            ("authorization", &key),
        ];
        block(&[&fields[..], more].concat())
    };
    let get = |path: &str, more: &[(&str, &str)]| {
        over_http2(
            &server,
            &[frame(HEADERS, END_HEADERS | END_STREAM, 1, &head("GET", path, more))],
        )
    };
    assert_eq!(get("/v1/books", &[("accept", "application/json")]), "200");
    assert_eq!(get("/v1/books#top", &[]), "400");
    assert_eq!(get("/v1/books", &[("accept", " application/json")]), "400");
    assert_eq!(get("/v1/books", &[("accept", "application/json\t")]), "400");
    let body = br#"{"title":"Dune","author":"F. Herbert"}"#;
    let json = [("content-type", "application/json")];
    let post = |trailers: &[(&str, &str)]| {
        over_http2(
            &server,
            &[
                frame(HEADERS, END_HEADERS, 1, &head("POST", "/v1/books", &json)),
                frame(0, 0, 1, body),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(trailers)),
            ],
        )
    };
    assert_eq!(post(&[(":path", "/v1/orders")]), "reset 1");
    assert_eq!(server.get("/v1/books").column("id").len(), 0, "nothing was written");
    assert_eq!(post(&[("checksum", "1")]), "another status");
    assert_eq!(server.get("/v1/books").column("id").len(), 1);
}

#[test]
fn a_self_signed_certificate_is_valid_for_a_year_and_has_a_key_identifier() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let file = server.data().join("self-signed.crt");
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        let output = command.args(arguments).arg(&file).output_in_time().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = openssl(&["x509", "-noout", "-text", "-in"]);
    assert!(text.contains("X509v3 Authority Key Identifier"), "{text}");
    assert!(text.contains("X509v3 Subject Key Identifier"), "{text}");
    let seconds = |days: u64| (days * 86_400).to_string();
    let ends = |seconds: &str| {
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-checkend", seconds, "-in"]).arg(&file);
        !command.output_in_time().unwrap().status.success()
    };
    assert!(!ends(&seconds(363)) && ends(&seconds(365)), "{text}");
    // Python's requirements for a chain since 3.13.
    let trusted = file.to_str().unwrap();
    openssl(&["verify", "-x509_strict", "-CAfile", trusted]);
}
