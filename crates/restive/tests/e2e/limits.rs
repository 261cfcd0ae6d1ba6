//! Quotas and sizes: every limit has a status, headers and a JSON body.

use crate::harness::{Answer, KEY, Server, Start};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

fn number(answer: &Answer, name: &str) -> u64 {
    let text = answer.header(name).unwrap_or_else(|| panic!("no {name}: {}", answer.text));
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}

#[test]
fn every_response_of_the_api_has_the_quota_headers() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let path = format!("/v1/books/{book}");
    let tag = server.get(&path).header("etag").unwrap().to_owned();
    let ask = |method: &str, path: &str| server.ask(method, path);
    for (what, answer) in [
        ("get", ask("GET", &path).send()),
        ("list", ask("GET", "/v1/books").send()),
        ("head", ask("HEAD", &path).send()),
        ("options", ask("OPTIONS", &path).send()),
        ("304", ask("GET", &path).header("if-none-match", &tag).send()),
        ("400", ask("GET", "/v1/books?limit=0").send()),
        ("401", server.ask_anonymously("GET", &path).send()),
        ("wrong key", ask("GET", &path).key("sk_test_x").send()),
        ("404", ask("GET", "/v1/books/book_none").send()),
        ("unknown path", ask("GET", "/v1/nothing").send()),
        ("405", ask("POST", &path).send()),
        ("406", ask("GET", &path).header("accept", "text/html").send()),
        ("415", ask("POST", "/v1/books").body("x").send()),
        ("422", ask("POST", "/v1/books").json(&json!({})).send()),
        ("413", ask("POST", "/v1/books").json(&json!("x".repeat(1 << 20))).send()),
        ("put", ask("PUT", &path).json(&json!({"title": "a", "author": "b"})).send()),
        ("delete", ask("DELETE", &path).send()),
    ] {
        assert_eq!(number(&answer, "x-ratelimit-limit"), 6000, "{what}");
        assert!(number(&answer, "x-ratelimit-remaining") < 6000, "{what}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let reset = number(&answer, "x-ratelimit-reset");
        assert!(reset > now - 2 && reset <= now + 60, "{what}: {reset} at {now}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"default\";q=6000;w=60"), "{what}");
        let remaining = format!("\"default\";r={};t=", number(&answer, "x-ratelimit-remaining"));
        assert!(answer.header("ratelimit").unwrap().starts_with(&remaining), "{what}");
    }
}

#[test]
fn a_used_up_quota_gets_429_with_retry_after() {
    let server = Start::bookshop().arg("--rate-limit").arg("5/1d").go();
    for left in (0..5).rev() {
        assert_eq!(number(&server.get("/v1/books"), "x-ratelimit-remaining"), left);
    }
    for _ in 0..2 {
        let answer = server.get("/v1/books");
        let wait = number(&answer, "retry-after");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((1..=86_400).contains(&wait));
        assert!(number(&answer, "x-ratelimit-reset").abs_diff(now + wait) <= 1);
        assert_eq!(number(&answer, "x-ratelimit-remaining"), 0);
        assert_eq!(answer.error(429, "rate_limited")["type"], "rate_limit_error");
    }
    server.post("/v1/books", json!({"title": "t", "author": "a"})).error(429, "rate_limited");
    let (text, ..) = server.tool(&["keys", "create"]);
    let other = text.split_whitespace().nth(1).unwrap();
    let answer = server.ask("GET", "/v1/books").key(other).send();
    assert_eq!(number(&answer, "x-ratelimit-remaining"), 4, "no other key's quota is touched");
    let (text, ..) = server.tool(&["keys", "create", "--rate-limit", "2"]);
    let own = text.split_whitespace().nth(1).unwrap();
    for status in [200, 200, 429] {
        let answer = server.ask("GET", "/v1/books").key(own).send();
        assert_eq!((answer.status, number(&answer, "x-ratelimit-limit")), (status, 2));
    }
    for status in [401, 401, 401, 401, 401, 429] {
        let answer = server.ask("GET", "/v1/books").key("sk_test_guess").send();
        assert_eq!(answer.status, status, "guessing keys is limited by address");
    }
    assert_eq!(server.get("/health").status, 200, "the service pages have no quota");
}

#[test]
fn a_quota_is_restored_in_the_next_window() {
    let server = Start::bookshop().arg("--rate-limit").arg("3/1s").go();
    let mut refused = 0;
    crate::harness::eventually("it is refused and served again", || {
        let answer = server.get("/v1/books");
        refused += u32::from(answer.status == 429);
        if answer.status == 429 {
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        refused > 0 && answer.status == 200
    });
}

#[test]
fn limits_can_be_set_in_the_schema_or_switched_off() {
    let schema = "[service]\nrate_limit = { requests = 2, window = \"1d\" }\n\
                  [collections.books.fields]\ntitle = \"string\"\n";
    let server = Start::schema(schema).go();
    for status in [200, 200, 429] {
        assert_eq!(server.get("/v1/books").status, status);
    }
    let server = Start::schema(schema).arg("--rate-limit").arg("off").go();
    for _ in 0..5 {
        let answer = server.get("/v1/books");
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
    }
    for bad in ["", "x", "0", "-1", "5/", "5/soon", "5/10ms"] {
        let (code, error) = Start::bookshop().arg(&format!("--rate-limit={bad}")).fails();
        assert!(code != 0 && error.contains("rate-limit"), "{bad}: {error}");
    }
}

#[test]
fn the_body_size_limit_holds_for_every_transfer_coding() {
    let server = Server::bookshop();
    let just_too_much = format!("{{\"title\":\"{}\"}}", "x".repeat(1 << 20));
    let ask = server.ask("POST", "/v1/books").header("content-type", "application/json");
    let error = ask.body(just_too_much).send().error(413, "body_too_large");
    assert_eq!(error["limit_bytes"], 1 << 20);
    let head = format!(
        "POST /v1/books HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\n"
    );
    let mut declared = format!("{head}Content-Length: 10000000\r\n\r\n").into_bytes();
    declared.extend(vec![b' '; 10_000_000]);
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..200 {
        chunked.extend(format!("{:x}\r\n{}\r\n", 10_000, " ".repeat(10_000)).into_bytes());
    }
    chunked.extend(b"0\r\n\r\n");
    for bytes in [declared, chunked] {
        let answer = server.raw(&bytes);
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer:.200}");
        assert!(answer.contains("body_too_large"), "{answer:.500}");
    }
    let schema =
        "[service]\nmax_body = \"1 KiB\"\n[collections.books.fields]\ntitle = \"string\"\n";
    let server = Start::schema(schema).go();
    server.post("/v1/books", json!({"title": "x".repeat(900)})).expect(201);
    server.post("/v1/books", json!({"title": "x".repeat(1100)})).error(413, "body_too_large");
}

#[test]
fn long_urls_and_large_headers_have_their_own_errors() {
    let server = Server::bookshop();
    let get = |target: &str, headers: &str| {
        server.raw(
            format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
                .as_bytes(),
        )
    };
    let auth = format!("Authorization: Bearer {KEY}\r\n");
    let many: String = (0..150).map(|number| format!("x-{number}: y\r\n")).collect();
    for (answer, status, code) in [
        (get(&format!("/v1/books?q={}", "x".repeat(100_000)), &auth), 414, "url_too_long"),
        (get(&format!("/{}", "x".repeat(9_000)), ""), 414, "url_too_long"),
        (get("/v1/books", &format!("x-big: {}\r\n", "x".repeat(40_000))), 431, "headers_too_large"),
        (get("/v1/books", &many), 431, "headers_too_large"),
        (get(&format!("/v1/books?author={}", "x".repeat(7_000)), &auth), 200, "pagination"),
    ] {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer:.300}");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let json: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer:.500}"));
        assert!(json["error"]["code"] == code || json.get(code).is_some(), "{json}");
    }
}

#[test]
fn json_nested_too_deeply_is_refused() {
    let server = Server::bookshop();
    for (depth, status) in [(33, 400), (1000, 400), (100_000, 400)] {
        let body = format!("{{\"title\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let ask = server.ask("POST", "/v1/books").header("content-type", "application/json");
        ask.body(body).send().error(status, "too_deep");
    }
    let schema = "[collections.things.fields]\nfree = \"object\"\n";
    let server = Start::schema(schema).go();
    let nest = |depth: usize| {
        let value = (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        json!({"free": value})
    };
    let made = server.post("/v1/things", nest(31)).expect(201);
    assert_eq!(made["free"], nest(31)["free"]);
    server.post("/v1/things", nest(32)).error(400, "too_deep");
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/things/{id}");
    server
        .patch(&path, json!({"free": {"more": "x".repeat(66_000)}}))
        .error(422, "validation_failed");
    assert_eq!(server.get(&path).expect(200), made);
}

#[test]
fn a_request_with_expect_gets_100_continue() {
    let server = Server::bookshop();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    let body = "{\"title\":\"t\",\"author\":\"a\"}";
    let head = format!(
        "POST /v1/books HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(std::str::from_utf8(&interim).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}
