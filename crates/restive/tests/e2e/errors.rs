//! Errors: every failure has a JSON body that says what is wrong, in the requested format.

use crate::harness::{Answer, KEY, Server, Start};
use model::problem::Code;
use serde_json::{Value, json};

fn send(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    let ask = server.ask(method, path).header("content-type", "application/json");
    ask.body(body.as_bytes().to_vec()).send()
}

#[test]
fn an_error_is_structured_unless_the_client_asks_for_another_format() {
    let server = Server::bookshop();
    let answer = server.post("/v1/books", json!({"title": "", "price": -1}));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("restive-error-code"), Some("validation_failed"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let error = answer.error(422, "validation_failed");
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["doc_url"], "/errors#validation_failed");
    let errors = error["errors"].as_array().unwrap();
    let find = |field: &str| errors.iter().find(|entry| entry["field"] == field).unwrap();
    assert_eq!(errors.len(), 3, "title, price and the missing author");
    assert_eq!(find("price")["value"], -1);
    assert_eq!(
        (&find("title")["code"], &find("author")["code"]),
        (&json!("too_short"), &json!("required"))
    );
    assert_eq!(find("title")["message"], "`title` must have at least 1 character.");
    assert!(errors.iter().any(|entry| entry["field"] == error["param"]));

    let ask = server.ask("POST", "/v1/books").header("accept", "application/problem+json");
    let answer = ask.json(&json!({"title": ""})).send();
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!((answer.status, &answer.json["status"]), (422, &json!(422)));
    assert_eq!(answer.json["code"], "validation_failed");
    assert_eq!(answer.json["errors"].as_array().unwrap().len(), 2);
    for name in ["type", "title", "detail", "instance"] {
        assert!(answer.json[name].as_str().is_some_and(|text| !text.is_empty()), "{name}");
    }
}

#[test]
fn a_schema_can_choose_flat_errors() {
    let schema = "[service]\nerrors = \"flat\"\n[collections.books.fields]\n\
                  title = { type = \"string\", required = true }\n";
    let server = Start::schema(schema).go();
    let answer = server.post("/v1/books", json!({"nope": 1}));
    assert_eq!(answer.status, 422);
    assert!(answer.json["message"].is_string());
    assert_eq!(answer.json["documentation_url"], "/errors#validation_failed");
    let mut codes: Vec<_> = answer.json["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["field"].as_str().unwrap(), entry["code"].as_str().unwrap()))
        .collect();
    codes.sort();
    assert_eq!(codes, [("nope", "unknown_field"), ("title", "required")]);
    for answer in
        [server.get("/nothing"), server.get("/v1/books/x"), server.get("/v1/books?limit=0")]
    {
        assert!(answer.json["message"].is_string() && answer.json.get("error").is_none());
    }
    let raw = server.raw(b"NONSENSE\r\n\r\n");
    assert!(raw.starts_with("HTTP/1.1 400") && raw.contains("\"message\""), "{raw}");
    let ask = server.ask("GET", "/v1/books/x").header("accept", "application/problem+json");
    assert_eq!(ask.send().json["status"], 404);
}

#[test]
fn every_wrong_path_method_and_format_gets_its_own_error() {
    let server = Server::bookshop();
    let book = format!("/v1/books/{}", server.book("Dune"));
    for path in [
        "/v1",
        "/v1/",
        "/v2/books",
        "/v1/book",
        "/v1/Books",
        "/v1/books/",
        "//v1/books",
        "/v1/books//reviews",
        "/favicon.ico",
        "/v1/books/a/b/c",
        "/v1/books/%ff",
        "/health/x",
        "/v1/books/../orders",
        "/%76%31%2Fbooks",
    ] {
        let error = server.get(path).error(404, "route_not_found");
        assert!(error["message"].as_str().unwrap().contains("/v1/books"), "{path}: {error}");
    }
    for (method, path, allow) in [
        ("DELETE", "/v1/books", "GET, HEAD, POST, OPTIONS"),
        ("PUT", "/v1/books", "GET, HEAD, POST, OPTIONS"),
        ("POST", book.as_str(), "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
        ("TRACE", "/v1/books", "GET, HEAD, POST, OPTIONS"),
        ("GET", "/v1/orders/x/pay", "POST, OPTIONS"),
        ("POST", "/health", "GET, HEAD, OPTIONS"),
        ("DELETE", "/openapi.json", "GET, HEAD, OPTIONS"),
    ] {
        let answer = server.ask(method, path).send();
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
        answer.error(405, "method_not_allowed");
    }
    server.ask("PROPFIND", "/v1/books").send().error(501, "not_implemented");
    server.ask("QUERY", "/v1/books").send().error(405, "method_not_allowed");
    for accept in ["text/html", "application/xml", "application/json;q=0", "image/*"] {
        let answer = server.ask("GET", &book).header("accept", accept).send();
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.error(406, "not_acceptable");
    }
    for accept in ["*/*", "application/json", "text/html, */*;q=0.1", "application/*"] {
        server.ask("GET", &book).header("accept", accept).send().expect(200);
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "",
        "application/json; charset=latin1",
        "multipart/form-data; boundary=x",
    ] {
        let ask = server.ask("POST", "/v1/books").header("content-type", kind).body("{}");
        ask.send().error(415, "unsupported_media_type");
    }
    server.ask("POST", "/v1/books").body("{}").send().error(415, "unsupported_media_type");
    let version = server.ask("GET", &book).header("restive-version", "1999-01-01").send();
    assert_eq!(version.error(400, "unknown_version")["param"], "Restive-Version");
}

#[test]
fn a_body_that_is_not_a_json_object_is_refused_with_the_position() {
    let server = Server::bookshop();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let before = server.get(&path);
    for (body, code) in [
        ("", "malformed_json"),
        ("{", "malformed_json"),
        ("{\"title\":", "malformed_json"),
        ("{\"title\":\"a\",}", "malformed_json"),
        ("{'title':1}", "malformed_json"),
        ("{\"title\":\"a\"} x", "malformed_json"),
        ("{\"title\":\"a\"}{}", "malformed_json"),
        ("{\"price\":NaN}", "malformed_json"),
        ("{\"price\":Infinity}", "malformed_json"),
        ("{\"price\":1e999}", "malformed_json"),
        ("{\"price\":-1e999}", "malformed_json"),
        ("{\"price\":01}", "malformed_json"),
        ("{\"price\":+1}", "malformed_json"),
        ("{\"title\":\"\\ud800\"}", "malformed_json"),
        ("{\"title\":\"\\udc00x\"}", "malformed_json"),
        ("{\"title\":\"a\tb\"}", "malformed_json"),
        ("{\"title\":\"\\x41\"}", "malformed_json"),
        ("{\"title\":\"a\",\"title\":\"b\"}", "duplicate_key"),
        ("[]", "body_not_object"),
        ("null", "body_not_object"),
        ("\"x\"", "body_not_object"),
        ("1", "body_not_object"),
        ("true", "body_not_object"),
    ] {
        for (method, path) in [("POST", "/v1/books"), ("PUT", &path), ("PATCH", &path)] {
            let error = send(&server, method, path, body).error(400, code);
            if code != "body_not_object" && !body.is_empty() {
                assert!(error["line"].is_u64() && error["column"].is_u64(), "{body}: {error}");
            }
        }
    }
    let broken = send(&server, "POST", "/v1/books", "{\n  \"title\": \"a\",\n  oops\n}");
    assert_eq!(broken.error(400, "malformed_json")["line"], 3);
    let ask = server.ask("POST", "/v1/books").header("content-type", "application/json");
    ask.body(b"{\"title\":\"\xff\"}".to_vec()).send().error(400, "malformed_json");
    assert_eq!(server.get(&path).text, before.text);
    assert_eq!(server.get("/v1/books").titles(), ["Dune"], "nothing was made");
}

#[test]
fn invalid_values_are_refused_by_field_and_never_stored() {
    let server = Server::bookshop();
    for (body, field, code) in [
        (json!({"title": "a\u{0}b", "author": "x"}), "title", "invalid_characters"),
        (json!({"title": "x".repeat(201), "author": "x"}), "title", "too_long"),
        (json!({"title": 5, "author": "x"}), "title", "wrong_type"),
        (json!({"title": ["a"], "author": "x"}), "title", "wrong_type"),
        (json!({"title": "t", "author": "x", "price": "1"}), "price", "wrong_type"),
        (json!({"title": "t", "author": "x", "price": true}), "price", "wrong_type"),
        (json!({"title": "t", "author": "x", "isbn": "abc"}), "isbn", "pattern_mismatch"),
        (json!({"title": "t", "author": "x", "a\u{0}": 1}), "a\u{0}", "unknown_field"),
        (json!({"title": "t", "author": "x", "": 1}), "", "unknown_field"),
    ] {
        let error = server.post("/v1/books", body.clone()).error(422, "validation_failed");
        let first = &error["errors"][0];
        assert_eq!((&first["field"], &first["code"]), (&json!(field), &json!(code)), "{body}");
        assert_eq!(error["param"], field);
    }
    for (amount, code) in [
        ("9007199254740993", "too_large"),
        ("-9223372036854775808", "too_large"),
        ("99999999999999999999999999", "too_large"),
        ("1e300", "too_large"),
        ("1.5", "wrong_type"),
        ("0", "too_small"),
        ("-1", "too_small"),
    ] {
        let body = format!("{{\"amount\":{amount},\"currency\":\"eur\"}}");
        let error = send(&server, "POST", "/v1/payment-intents", &body);
        assert_eq!(error.error(422, "validation_failed")["errors"][0]["code"], code, "{amount}");
    }
    for (price, kept) in [
        ("1e2", json!(100)),
        ("0.1", json!(0.1)),
        ("9007199254740991", json!(9_007_199_254_740_991_i64)),
        ("9007199254740993", json!(9_007_199_254_740_993_i64)),
        ("1e18", json!(1_000_000_000_000_000_000_i64)),
        ("1e300", json!(1e300)),
        ("0.30000000000000004", json!(0.300_000_000_000_000_04)),
        ("-0", json!(0)),
        ("5e-324", json!(5e-324)),
    ] {
        let body = format!("{{\"title\":\"t\",\"author\":\"a\",\"price\":{price}}}");
        let made = send(&server, "POST", "/v1/books", &body).expect(201);
        assert_eq!(made["price"], kept, "{price}");
        let path = format!("/v1/books/{}", made["id"].as_str().unwrap());
        assert_eq!(server.get(&path).json, made, "{price}");
    }
    let text = "\u{1F600}\u{301}\u{202e}\u{feff}\n\t\"\\/<script>&\u{7f}\u{fffd}";
    let made = server.post("/v1/books", json!({"title": text, "author": "a"})).expect(201);
    assert_eq!(made["title"], text);
}

#[test]
fn bytes_that_are_not_http_get_a_json_error_if_possible() {
    let server = Server::bookshop();
    for (bytes, status) in [
        ("NONSENSE\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505),
        ("GET  /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("POST /v1/books HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (
            "POST /v1/books HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nx: a\r\n b\r\n\r\n", 400),
        ("GET /nothing HTTP/1.0\r\n\r\n", 404),
    ] {
        let answer = server.raw(bytes.as_bytes());
        let line = answer.split_once("\r\n").map_or("", |(line, _)| line);
        assert_eq!(line.split(' ').nth(1), Some(status.to_string().as_str()), "{bytes:?}: {line}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
        let json: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        assert!(json["error"]["message"].is_string() && json["error"]["request_id"].is_string());
    }
    server.get("/v1/books").expect(200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::bookshop();
    let one = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n{more}\r\n")
    };
    let bytes =
        [one("/v1/books", ""), one("/v1/nope", ""), one("/v1/books/x", "Connection: close\r\n")];
    let answer = server.raw(bytes.concat().as_bytes());
    let statuses: Vec<&str> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404", "404"], "{answer}");
}

#[test]
fn the_catalogue_explains_every_code() {
    let server = Server::bookshop();
    let page = server.ask_anonymously("GET", "/errors").send();
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/markdown; charset=utf-8"))
    );
    let document = server.ask_anonymously("GET", "/openapi.json").send().expect(200);
    let text = document.to_string();
    let rows: Vec<&str> = page.text.lines().filter(|line| line.contains("<a id=")).collect();
    let declared: Vec<&&str> = rows.iter().filter(|row| row.contains("`card_error`")).collect();
    assert_eq!(declared.len(), 1, "the schema declares `card_declined`: {}", page.text);
    assert!(declared[0].contains("<a id=\"card_declined\"></a>`card_declined`"), "{declared:?}");
    assert!(rows.len() > Code::ALL.len(), "one row for each");
    for code in Code::ALL {
        let (name, explanation) = (code.name(), code.explanation());
        let anchor = format!("<a id=\"{name}\"></a>`{name}`");
        let found: Vec<_> = rows.iter().filter(|row| row.contains(&anchor)).collect();
        assert_eq!(found.len(), 1, "{name}: `doc_url` of an error names its place on the page");
        let cells: Vec<&str> = found[0].trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells[0].split(", ").all(|status| status.parse::<u16>().is_ok()), "{cells:?}");
        assert_eq!(cells.last(), Some(&explanation), "{name}");
        assert!(explanation.len() > 10 && explanation.ends_with('.'), "{name}: {explanation}");
        assert!(text.contains(&format!("\"{name}\"")), "{name} is in the contract");
    }
    assert_eq!(document["openapi"].as_str().unwrap()[..3], *"3.1");
    assert!(document.to_string().contains("card_declined"), "declared codes are there too");
}
