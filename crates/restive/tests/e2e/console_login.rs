//! The login of the console with the token that the server prints, and pages of other origins.

use crate::harness::{KEY, Server, Start};
use serde_json::{Value, json};

/// The token in the printed link.
fn token(server: &Server) -> String {
    let line = server.greeting.lines().find(|line| line.starts_with("console "));
    let line = line.unwrap_or_else(|| panic!("no link: {}", server.greeting));
    let (link, token) = line.split_once("/console#login=").unwrap();
    assert!(link.contains("://127.0.0.1:"), "{line}");
    token.to_owned()
}

#[test]
fn behind_a_proxy_the_link_is_not_printed_into_a_log() {
    let server = Start::bookshop().arg("--trusted-proxies=127.0.0.1/32").go();
    assert!(!server.greeting.contains("login"), "{}", server.greeting);
}

#[test]
fn the_printed_token_logs_in_once_with_a_key_that_manages_keys() {
    let server = Server::bookshop();
    let token = token(&server);
    let login = |body: Value| server.ask_anonymously("POST", "/console/login").json(&body).send();
    for wrong in ["", "0", &token[1..], KEY] {
        login(json!({ "token": wrong })).error(401, "invalid_api_key");
    }
    for bad in [json!({}), json!({ "token": 1 }), json!({ "token": token, "more": 1 })] {
        login(bad).error(422, "validation_failed");
    }
    login(json!({ "token": "x".repeat(101) })).error(422, "validation_failed");
    login(json!({ "token": "x".repeat(2_000) })).error(413, "body_too_large");
    let get = server.ask_anonymously("GET", "/console/login").send();
    get.error(405, "method_not_allowed");
    let made = login(json!({ "token": token }));
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.expect(201);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("sk_test_") && made["object"] == "key", "{made}");
    login(json!({ "token": token })).error(401, "invalid_api_key");
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    let key = server.ask("GET", &path).key(secret).send().expect(200);
    assert_eq!((&key["name"], &key["admin"]), (&json!("console"), &json!(true)));
    assert_eq!((&key["scopes"], &key["mode"]), (&Value::Null, &json!("test")));
    assert_eq!(key["expires_at"], made["expires_at"]);
    let hours = model::Timestamp::parse(made["expires_at"].as_str().unwrap()).unwrap().0
        - model::Timestamp::parse(key["created_at"].as_str().unwrap()).unwrap().0;
    assert!((43_199_000..=43_201_000).contains(&hours), "{hours}");
    assert!(!server.log.lock().unwrap().contains(&token), "the token is not logged");
}

/// The server's clock runs 240 times as fast: ten minutes take less than three seconds.
const ORIGINS: &str = "origins = ['https://app.example', 'http://localhost:3000']
[live]
origins = ['https://chat.example']
[collections.books.fields]
title = { type = 'string', required = true }
[collections.messages]
feed = true
[collections.messages.fields]
text = 'string'
";

#[test]
fn pages_of_listed_origins_use_the_api() {
    let server = Start::schema(ORIGINS).go();
    let from =
        |method: &str, path: &str, origin: &str| server.ask(method, path).header("origin", origin);
    let allowed = "access-control-allow-origin";
    let exposed = "access-control-expose-headers";
    for origin in ["https://app.example", "http://localhost:3000"] {
        for (path, status) in [
            ("/v1/books", 200),
            ("/v1/books/book_missing", 404),
            ("/v1/nothing", 404),
            ("/v1/account", 200),
            ("/v1/keys", 200),
            ("/v1/stats", 200),
            ("/v1/books?limit=0", 400),
            ("/api/messages", 200),
        ] {
            let answer = from("GET", path, origin).send();
            assert_eq!(answer.status, status, "{}", answer.text);
            assert_eq!(answer.header(allowed), Some(origin), "{path}");
            let vary = answer.headers("vary").join(", ");
            assert!(vary.contains("Origin"), "{path} {vary}");
            assert_eq!(answer.header("access-control-allow-credentials"), None);
            let exposed = answer.header(exposed).unwrap();
            for name in
                ["etag", "location", "retry-after", "idempotent-replayed", "x-stream-position"]
            {
                assert!(exposed.contains(name), "{path} {name}");
            }
        }
        let denied = server.ask_anonymously("GET", "/v1/books").header("origin", origin).send();
        assert_eq!((denied.status, denied.header(allowed)), (401, Some(origin)));
        // Without a key, for every path and method.
        for path in ["/v1/books", "/v1/books/x", "/v1/keys", "/v1/nothing"] {
            let asked = server
                .ask_anonymously("OPTIONS", path)
                .header("origin", origin)
                .header("access-control-request-method", "PATCH")
                .header("access-control-request-headers", "authorization, content-type, if-match");
            let answer = asked.send();
            assert_eq!((answer.status, answer.header(allowed)), (204, Some(origin)), "{path}");
            let methods = answer.header("access-control-allow-methods").unwrap();
            assert!(methods.contains("PATCH") && methods.contains("DELETE"), "{methods}");
            let headers = answer.header("access-control-allow-headers").unwrap();
            for name in ["authorization", "content-type", "if-match", "idempotency-key"] {
                assert!(headers.contains(name), "{headers}");
            }
            assert!(answer.header("access-control-max-age").is_some());
        }
    }
}

#[test]
fn pages_of_other_origins_do_not_use_the_api() {
    let server = Start::schema(ORIGINS).go();
    let from =
        |method: &str, path: &str, origin: &str| server.ask(method, path).header("origin", origin);
    let allowed = "access-control-allow-origin";
    let exposed = "access-control-expose-headers";
    for origin in ["https://evil.example", "http://app.example", "https://app.example.evil", "null"]
    {
        for path in ["/v1/books", "/v1/keys", "/v1/nothing", "/api/messages"] {
            let answer = from("GET", path, origin).send();
            assert_eq!((answer.header(allowed), answer.header(exposed)), (None, None), "{origin}");
            let preflight =
                from("OPTIONS", path, origin).header("access-control-request-method", "GET");
            let answer = preflight.send();
            assert_eq!(answer.header(allowed), None);
            assert_eq!(answer.header("access-control-allow-methods"), None);
        }
    }
    // The origins of [live] are for the channels only.
    let chat = "https://chat.example";
    assert_eq!(from("GET", "/api/messages", chat).send().header(allowed), Some(chat));
    assert_eq!(from("GET", "/v1/books", chat).send().header(allowed), None);
    let twice = from("GET", "/v1/books", "https://app.example");
    let twice = twice.header("origin", "https://app.example").send();
    assert_eq!(twice.header(allowed), None, "which origin is true is not known");
    let plain = Server::bookshop();
    let answer = plain.ask("GET", "/v1/books").header("origin", "https://app.example").send();
    assert_eq!(answer.header(allowed), None);
    assert!(!answer.headers("vary").join(",").contains("Origin"));
}
