//! Whatever arrives, the answer is complete: a status, a JSON body that says what is wrong, and an
//! end of the connection that does not destroy the answer.

use crate::h2_client::{PREFACE, SETTINGS, frame};
use crate::server::Server;

/// The answer must be one refusal and nothing else, and the service must not have been called.
fn check(server: &Server, bytes: impl AsRef<[u8]>, status: u16, says: &str) {
    let sent: String = String::from_utf8_lossy(bytes.as_ref()).chars().take(80).collect();
    let answer = server.exchange(bytes);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{sent:?}: {answer}");
    assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(body.starts_with("{\"refused\":\"") && body.ends_with("\"}"), "{sent:?}: {answer}");
    assert!(body.contains(says), "{sent:?}: {answer}");
    assert!(head.contains("connection: close"), "{answer}");
    assert!(head.contains("content-type: application/json"), "{answer}");
    assert!(head.contains("\r\ndate: "), "{answer}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
    assert!(!head.contains("\r\nserver:"), "{answer}");
    server.saw_nothing();
}

#[test]
fn invalid_bytes_are_answered_400_with_a_body() {
    let server = Server::start();
    for bytes in [
        "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03",
        "hello\r\n\r\n",
        "G\u{0}T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GE T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHo st: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nx: a\u{0}b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nx: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET /\r\n\r\n",
        "GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / b HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        check(&server, bytes, 400, "");
    }
    let settings = frame(SETTINGS, 0, 0, &[]);
    check(&Server::without_http_2(), [PREFACE, &settings].concat(), 505, "");
}

#[test]
fn ambiguous_requests_are_refused() {
    let server = Server::start();
    for (headers, says) in [
        ("", "Host"),
        ("Host: a\r\nHost: b\r\n", "Host"),
        ("Host: a\r\nHost: a\r\n", "Host"),
        ("Host: a/b\r\n", "Host"),
        ("Host: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", "exclude"),
        ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n", "exclude"),
        ("Host: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n", "Content-Length"),
        ("Host: a\r\nContent-Length: 4\r\nContent-Length: 4\r\n", "Content-Length"),
        ("Host: a\r\nContent-Length: 4, 4\r\n", "Content-Length"),
        ("Host: a\r\nContent-Length: 0x4\r\n", "Content-Length"),
        ("Host: a\r\nContent-Length: -4\r\n", "Content-Length"),
        ("Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ""),
        ("Host: a\r\nx: b\r\n c\r\n", "further line"),
        ("Host: a\nx: b\r\n", "bare LF"),
    ] {
        let bytes = format!("POST / HTTP/1.1\r\n{headers}\r\n0\r\n\r\n");
        check(&server, bytes, 400, says);
    }
    check(&server, "GET http://b:x/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "");
    check(&server, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "");
    check(&server, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "");
}

#[test]
fn a_head_over_a_limit_gets_the_status_of_that_limit() {
    let server = Server::start();
    let headers = |count: usize| "x: y\r\n".repeat(count);
    let get =
        |target: &str, headers: &str| format!("GET /{target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    check(&server, get("", &headers(100)), 431, "headers");
    check(&server, get("", &headers(50_000)), 431, "headers");
    check(&server, get("", &format!("x: {}\r\n", "y".repeat(33 << 10))), 431, "headers");
    check(&server, get("", &format!("x: {}\r\n", "y".repeat(100_000))), 431, "headers");
    check(&server, get("", &format!("x: {}", "y".repeat(40_000))), 431, "headers");
    check(&server, get(&"u".repeat(8 << 10), ""), 414, "URL");
    check(&server, get(&"u".repeat(100_000), ""), 414, "URL");
    check(&server, format!("GET /{}", "u".repeat(20_000)), 414, "URL");
    let fits = get(&"u".repeat((8 << 10) - 1), &headers(99));
    let mut wire = server.connect();
    wire.send(fits);
    assert!(wire.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn connect_is_refused_with_allow() {
    let server = Server::start();
    check(&server, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405, "CONNECT");
    let answer = server.exchange("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n");
    assert!(answer.contains("\r\nallow: "), "{answer}");
}

#[test]
fn a_truncated_head_is_answered_if_the_client_still_reads() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.send("GET / HTTP/1.1\r\nHo");
    wire.finish_sending();
    assert!(wire.rest().starts_with("HTTP/1.1 400 "));
    server.saw_nothing();
}

#[test]
fn a_valid_request_before_an_invalid_one_is_answered() {
    let server = Server::start();
    for bad in ["garbage\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n"] {
        let answer = server.exchange(format!("GET /good HTTP/1.1\r\nHost: a\r\n\r\n{bad}"));
        let (good, bad) = answer.split_once("HTTP/1.1 400 ").expect(&answer);
        assert!(good.starts_with("HTTP/1.1 200 ") && good.contains("GET /good"), "{good}");
        assert!(bad.contains("\"refused\""), "{bad}");
        server.saw("GET /good");
    }
}
