//! The client's address behind proxies, in logs, limits and rules, and limits of connections.

use crate::deadline::Deadline as _;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
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

/// The address in the log for a request with these headers.
fn client(server: &Server, headers: &[(&str, &str)]) -> String {
    let ask = server.ask("GET", "/v1/books");
    let ask = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
    logged(server, ask.send().header("request-id").unwrap())
}

/// Servers for every version of HTTP; HTTP/3 needs TLS, the others run without.
fn in_each_version(arguments: &[&str]) -> [Server; 3] {
    ["http1", "http2", "http3"].map(|version| {
        let secured: &[&str] = if version == "http3" { &["--tls", "self-signed"] } else { &[] };
        let arguments = [arguments, secured].concat();
        let start = arguments.iter().fold(Start::bookshop(), |start, arg| start.arg(arg));
        start.go().over(version)
    })
}

#[test]
fn the_access_log_has_the_client_address_from_a_trusted_proxy() {
    for server in in_each_version(&[]) {
        assert_eq!(client(&server, &[("x-forwarded-for", "198.51.100.7")]), "127.0.0.1");
        assert_eq!(client(&server, &[("forwarded", "for=198.51.100.7")]), "127.0.0.1");
    }
    for server in in_each_version(&["--trusted-proxies", "10.0.0.0/8, 127.0.0.1"]) {
        let chain = "203.0.113.9, 198.51.100.7, 10.1.2.3";
        assert_eq!(client(&server, &[("x-forwarded-for", chain)]), "198.51.100.7");
        let chain = "for=203.0.113.9, for=\"[2001:db8::7]:4711\";proto=https, for=10.1.2.3";
        assert_eq!(client(&server, &[("forwarded", chain)]), "2001:db8::7");
        assert_eq!(client(&server, &[]), "127.0.0.1");
    }
}

#[test]
fn a_trusted_proxy_without_a_client_address_gets_400_with_advice() {
    for server in in_each_version(&["--trusted-proxies", "10.0.0.0/8, 127.0.0.1"]) {
        for (fields, says) in [
            (
                &[("forwarded", "for=192.0.2.1"), ("x-forwarded-for", "192.0.2.2")][..],
                "X-Forwarded-For and Forwarded name different clients",
            ),
            (&[("x-forwarded-for", "198.51.100.7, unknown")], "X-Forwarded-For has no readable"),
            (&[("x-forwarded-for", "198.51.100.7, x, 10.1.2.3")], "X-Forwarded-For has no"),
            (&[("forwarded", "for=198.51.100.7, proto=https")], "Forwarded has no readable"),
        ] {
            let ask = server.ask("POST", "/v1/books").body("{\"title\":\"Dune\"}");
            let ask = fields.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
            let error = ask.send().error(400, "malformed_request");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(says) && message.contains("Configure the proxy"), "{message}");
        }
        let books = server.get("/v1/books").expect(200);
        assert_eq!(books["data"].as_array().map(Vec::len), Some(0), "nothing was done");
    }
}

#[test]
fn rules_see_the_client_address_from_a_trusted_proxy() {
    let schema = "[collections.books.fields]
title = \"string\"
stamped_by = { type = \"string\", read_only = true }
[collections.books.actions.stamp]
set = { stamped_by = \"=client\" }
[[collections.books.actions.stamp.rules]]
when = \"!client.startsWith('198.51.100.')\"
status = 403
code = \"not_at_the_desk\"
message = \"Only at the desk.\"
";
    let server = Start::schema(schema).arg("--trusted-proxies").arg("127.0.0.1").go();
    let book = server.make("/v1/books", serde_json::json!({"title": "Dune"}));
    let stamp = |client: &str| {
        let ask = server.ask("POST", &format!("/v1/books/{book}/stamp"));
        ask.header("x-forwarded-for", client).send()
    };
    stamp("203.0.113.9").error(403, "not_at_the_desk");
    // Addresses before the proxy's own entry are ignored.
    stamp("198.51.100.7, 203.0.113.9").error(403, "not_at_the_desk");
    // A proxy with an unreadable entry does not become the client.
    stamp("198.51.100.7, unknown").error(400, "malformed_request");
    assert_eq!(stamp("198.51.100.7").expect(200)["stamped_by"], "198.51.100.7");
    let event = server.get("/v1/events?type=book.stamp").expect(200)["data"][0].clone();
    assert_eq!(event["type"], "book.stamp");
    assert!(!event["request"].to_string().contains("198.51.100.7"), "{event}");
}

#[test]
fn clients_behind_a_trusted_proxy_have_separate_limits() {
    let start = Start::bookshop().arg("--rate-limit").arg("3/1h");
    let server = start.env("RESTIVE_TRUSTED_PROXIES", "127.0.0.0/8").go();
    let ask = |client: &str| {
        let ask = server.ask_anonymously("GET", "/v1/books");
        ask.header("x-forwarded-for", client).send().status
    };
    for client in ["198.51.100.1", "198.51.100.2"] {
        assert_eq!([ask(client), ask(client), ask(client), ask(client)], [401, 401, 401, 429]);
    }
    // An address that the client invented is ignored.
    assert_eq!(ask("192.0.2.99, 198.51.100.1"), 429);
}

fn behind(proxies: &str) -> Server {
    let start = Start::bookshop().arg("--trusted-proxies").arg(proxies);
    start.arg("--proxy-protocol").arg("on").go()
}

/// A header of version 2 of the PROXY protocol: for 198.51.100.7, with these extra bytes.
fn second_version(more: &[u8]) -> Vec<u8> {
    let addresses = [198, 51, 100, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
    let length = u16::try_from(addresses.len() + more.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..], &addresses, more].concat()
}

#[test]
fn the_proxy_protocol_is_required_if_configured() {
    let server = behind("127.0.0.1");
    let curl = |arguments: &[&str]| {
        let url = server.url("/health");
        Command::new("curl")
            .args(["-sS", "--max-time", "20"])
            .args(arguments)
            .arg(url)
            .output_in_time()
    };
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let answer = curl(&["--haproxy-protocol", version]).unwrap();
        assert!(String::from_utf8_lossy(&answer.stdout).contains("\"ok\""), "{answer:?}");
    }
    assert!(!curl(&[]).unwrap().status.success(), "without it the connection is closed");
}

#[test]
fn both_versions_of_the_proxy_protocol_name_the_client() {
    let server = behind("127.0.0.1");
    let first = b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n".to_vec();
    // Extensions of proxies, such as HAProxy's unique id.
    let more = second_version(&[0x05, 0, 4, 1, 2, 3, 4]);
    for (introduction, expected) in [
        (first, "2001:db8::7"),
        (second_version(&[]), "198.51.100.7"),
        (more, "198.51.100.7"),
        // After a local command of the proxy, forwarded headers are ignored.
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(), "127.0.0.1"),
    ] {
        let ask = format!(
            "GET /v1/books HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n\
             X-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n"
        );
        let answer = server.raw(&[&introduction, ask.as_bytes()].concat());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let (_, id) = answer.split_once("request-id: ").unwrap();
        assert_eq!(logged(&server, id.lines().next().unwrap()), expected);
    }
}

#[test]
fn untrusted_or_oversized_proxy_protocol_headers_close_the_connection() {
    let ask = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let stranger = behind("10.0.0.0/8");
    assert_eq!(stranger.raw(&[&second_version(&[]), &ask[..]].concat()), "");
    assert_eq!(stranger.raw(&[b"PROXY TCP4 192.0.2.1 10.0.0.1 1 80\r\n", &ask[..]].concat()), "");
    let server = behind("127.0.0.1");
    let line = [b"PROXY UNKNOWN ", &[b'x'; 200][..], b"\r\n"].concat();
    assert_eq!(server.raw(&[&second_version(&[0; 60_000]), &ask[..]].concat()), "");
    assert_eq!(server.raw(&[&line, &ask[..]].concat()), "");
    let answer = server.raw(&[&second_version(&[]), &ask[..]].concat());
    assert!(answer.starts_with("HTTP/1.1 200 "), "others are served: {answer}");
}

/// A connection that has had a response and so holds its slot.
fn keep(server: &Server) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    // During its next request it is not idle and is not closed for a new connection.
    stream.write_all(b"GET /health").unwrap();
    stream
}

#[test]
fn connections_are_limited_per_address_and_in_total() {
    for limit in ["--max-connections-per-address", "--max-connections"] {
        let server = Start::bookshop().arg(limit).arg("2").go();
        let kept: Vec<_> = (0..2).map(|_| keep(&server)).collect();
        let status = || server.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")[9..12].to_owned();
        assert_eq!(status(), "503", "{limit}: a third is refused");
        drop(kept);
        eventually("there is room again", || status() == "200");
    }
}

#[test]
fn configuration_errors_say_what_to_do() {
    let (code, error) = Start::bookshop().arg("--proxy-protocol").arg("on").fails();
    assert!(code == 1 && error.contains("--trusted-proxies"), "{error}");
    let (code, error) = Start::bookshop().arg("--trusted-proxies").arg("10.0.0.0/40").fails();
    assert!(code == 2 && error.contains("10.0.0.0/40") && error.contains("10.0.0.0/8"), "{error}");
}

#[test]
fn a_proxy_protocol_header_without_an_address_disables_forwarded_headers() {
    let server = behind("127.0.0.1");
    for (number, before) in [
        &b"PROXY UNKNOWN\r\n"[..],
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
        b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0",
    ]
    .into_iter()
    .enumerate()
    {
        let request = format!(
            "GET /v1/books?n={number} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\
             Authorization: Bearer {KEY}\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
        );
        let answer = server.raw(&[before, request.as_bytes()].concat());
        let id = answer.lines().find_map(|line| line.strip_prefix("request-id: ")).unwrap();
        assert_eq!(logged(&server, id), "127.0.0.1", "{before:?}");
        // A page by https of the same host, if the header were believed.
        let upgrade = format!(
            "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Origin: https://a.example\r\nX-Forwarded-Proto: https\r\n\
             Authorization: Bearer {KEY}\r\n\r\n"
        );
        let answer = server.raw(&[before, upgrade.as_bytes()].concat());
        assert!(answer.starts_with("HTTP/1.1 403 "), "{before:?}: {answer}");
    }
}

#[test]
fn the_addresses_of_one_ipv6_network_share_a_limit() {
    let start = Start::bookshop().arg("--rate-limit").arg("3/1h");
    let server = start.arg("--trusted-proxies").arg("127.0.0.1").go();
    let ask = |client: &str| {
        let ask = server.ask_anonymously("GET", "/v1/books");
        ask.header("x-forwarded-for", client).send().status
    };
    let asked = ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3", "2001:db8::4"].map(ask);
    assert_eq!(asked, [401, 401, 401, 429]);
    assert_eq!(ask("2001:db8:0:1::1"), 401, "another network");
    assert_eq!(ask("::ffff:198.51.100.1"), 401);
}

#[test]
fn guessed_keys_use_up_the_quota_of_their_address_before_the_database_is_asked() {
    let server = Start::bookshop().arg("--rate-limit").arg("3/1h").go();
    let (_, used, unused) = crate::auth::account(&server, "other");
    let ask = |key: &str| server.ask("GET", "/v1/books").key(key).send().status;
    assert_eq!(ask(&used), 200);
    let guess = |n: usize| ask(&format!("sk_test_guess{n}"));
    assert_eq!([guess(1), guess(2), guess(3), guess(4)], [401, 401, 401, 429]);
    // Only the store can tell it from a guessed key.
    assert_eq!(ask(&unused), 429);
    // A key that was used before is known, even after other keys have changed.
    assert_eq!(ask(&used), 200);
    let (_, error, code) = server.tool(&["accounts", "create", "third"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(ask(&used), 200);
}

#[test]
fn a_valid_key_does_not_use_the_quota_of_its_address() {
    let server = Start::bookshop().arg("--rate-limit").arg("3/1h").go();
    for n in 0..5 {
        let (_, key, _) = crate::auth::account(&server, &format!("shop {n}"));
        assert_eq!(server.ask("GET", "/v1/books").key(&key).send().status, 200, "{n}");
    }
    let guess = || server.ask("GET", "/v1/books").key("sk_test_guess").send();
    assert_eq!(guess().header("x-ratelimit-remaining"), Some("2"));
}
