//! The API over HTTP/2 responds as over HTTP/1.1, to common clients: curl and nghttp.

use crate::deadline::Deadline as _;
use std::process::Command;

use crate::harness::{Answer, KEY, Server};

/// Headers about one exchange or the connection, which differ between any two responses.
const OF_THE_EXCHANGE: [&str; 9] = [
    "connection",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "ratelimit",
    "request-id",
    "transfer-encoding",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

#[derive(Debug, PartialEq)]
struct Seen {
    status: String,
    headers: Vec<String>,
    body: String,
}

/// One request by curl in this version of HTTP.
fn curl(server: &Server, version: &str, arguments: &[&str], path: &str) -> Seen {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "30", "--include", version])
        .args(["--header", &format!("authorization: Bearer {KEY}")])
        .args(arguments)
        .arg(server.url(path))
        .output_in_time()
        .expect("curl is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}", String::from_utf8_lossy(&output.stderr));
    // An interim response may precede the final one.
    let mut rest = text.as_str();
    let (head, body) = loop {
        let (head, body) = rest.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
        if !head.contains(" 100") {
            break (head, body);
        }
        rest = body;
    };
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let mut headers: Vec<String> = lines
        .map(|line| line.split_once(": ").unwrap_or((line, "")))
        .map(|(name, value)| (name.to_lowercase(), value))
        .filter(|(name, _)| !OF_THE_EXCHANGE.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    headers.sort();
    Seen { status, headers, body: body.to_owned() }
}

/// Sends the same request over both versions, which must return the same; returns it.
#[track_caller]
fn both(server: &Server, arguments: &[&str], path: &str) -> Seen {
    let old = curl(server, "--http1.1", arguments, path);
    let new = curl(server, "--http2-prior-knowledge", arguments, path);
    let old = Seen { body: comparable(&old.body), ..old };
    let new = Seen { body: comparable(&new.body), ..new };
    assert_eq!(old, new, "{arguments:?} {path}");
    new
}

/// Without the parts that differ between two requests: request ids and times.
fn comparable(body: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(body) {
        Ok(mut json) if json["error"]["request_id"].is_string() => {
            json["error"]["request_id"] = "any".into();
            json.to_string()
        }
        Ok(mut json) if json["uptime_seconds"].is_number() => {
            json["uptime_seconds"] = "any".into();
            json.to_string()
        }
        _ => body.to_owned(),
    }
}

#[test]
fn every_kind_of_response_is_the_same_over_http_1_and_http_2() {
    let server = Server::bookshop();
    let json = ["--header", "content-type: application/json", "--data"];
    // Replayed by its key, so that both requests create the same book.
    let book = r#"{"title":"Two Ways","author":"Ann Author"}"#;
    let create = [&json[..], &[book, "--header", "idempotency-key: two-ways"]].concat();
    let created = both(&server, &create, "/v1/books");
    assert_eq!(created.status, "201", "{created:?}");
    let id = serde_json::from_str::<serde_json::Value>(&created.body).unwrap()["id"].clone();
    let path = format!("/v1/books/{}", id.as_str().unwrap());

    let listed = both(&server, &[], "/v1/books?limit=2");
    assert!(listed.status == "200" && listed.body.contains("Two Ways"), "{listed:?}");
    let shown = both(&server, &[], &path);
    let tag = shown.headers.iter().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
    let unchanged = both(&server, &["--header", &format!("if-none-match: {tag}")], &path);
    assert_eq!((unchanged.status.as_str(), unchanged.body.as_str()), ("304", ""));
    let head = both(&server, &["--head"], &path);
    assert_eq!((head.status.as_str(), head.body.as_str()), ("200", ""));
    assert_eq!(head.headers, shown.headers);

    for (arguments, path, status) in [
        (&[][..], "/v1/books/book_none", "404"),
        (&["--request", "PUT"], "/v1/books", "405"),
        (&[&json[..], &["{"]].concat(), "/v1/books", "400"),
        (&[], "/health", "200"),
        (&[], "/openapi.json", "200"),
    ] {
        assert_eq!(both(&server, arguments, path).status, status, "{path}");
    }
}

#[test]
fn http_2_accepts_large_bodies_and_refuses_bodies_over_the_limit() {
    let server = Server::bookshop();
    let file = server.folder.path().join("large.json");
    let write = |bytes: usize| {
        let notes = "x".repeat(bytes);
        std::fs::write(&file, format!("{{\"title\":\"{notes}\",\"author\":\"A\"}}")).unwrap();
    };
    let data = format!("@{}", file.display());
    let arguments = ["--header", "content-type: application/json", "--data-binary", &data];
    write(8 << 20);
    let refused = both(&server, &arguments, "/v1/books");
    assert_eq!(refused.status, "413", "{refused:?}");
    // Below the limit the body is read and validated.
    write(200 << 10);
    let judged = both(&server, &arguments, "/v1/books");
    assert_ne!(judged.status, "413", "{judged:?}");
}

#[test]
fn nghttp_and_h2load_are_served() {
    let server = Server::bookshop();
    let id = server.book("By nghttp");
    let key = format!("authorization: Bearer {KEY}");
    let output = Command::new("nghttp")
        .args(["--header", &key, &server.url(&format!("/v1/books/{id}"))])
        .output_in_time()
        .expect("nghttp is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("By nghttp"), "{text}");

    let output = Command::new("h2load")
        .args(["--requests=2000", "--clients=4", "--max-concurrent-streams=50"])
        .args(["--header", &key, &server.url(&format!("/v1/books/{id}"))])
        .output_in_time()
        .expect("h2load is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    let after: Answer = server.get(&format!("/v1/books/{id}"));
    assert_eq!(after.status, 200, "and HTTP/1.1 goes on beside it");
}
