//! Keys, accounts and modes: which requests authenticate, and which data other callers cannot see.

use crate::harness::{Answer, KEY, Server, Start, eventually};
use model::Timestamp;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `restive keys create …` while the server runs; returns id and secret.
pub fn create(server: &Server, arguments: &[&str]) -> (String, String) {
    let (text, error, code) = server.tool(&[&["keys", "create"], arguments].concat());
    assert_eq!(code, 0, "{error}");
    let mut words = text.split_whitespace();
    (words.next().unwrap().to_owned(), words.next().unwrap().to_owned())
}

/// Runs `restive accounts create`; returns id, test key and live key.
pub fn account(server: &Server, name: &str) -> (String, String, String) {
    let (text, error, code) = server.tool(&["accounts", "create", name]);
    assert_eq!(code, 0, "{error}");
    let find = |start: &str| {
        let mut words = text.split_whitespace();
        words.find(|word| word.starts_with(start)).expect("is printed").to_owned()
    };
    (find("acct_"), find("sk_test_"), find("sk_live_"))
}

fn with(server: &Server, key: &str, path: &str) -> Answer {
    server.ask("GET", path).key(key).send()
}

pub fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let three = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)];
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[test]
fn only_valid_bearer_and_basic_credentials_authenticate() {
    let server = Server::bookshop();
    let ask = |value: &str| server.ask("GET", "/v1/books").only("authorization", value).send();
    for good in [
        format!("Bearer {KEY}"),
        format!("bearer {KEY}"),
        format!("Basic {}", base64(&format!("{KEY}:"))),
    ] {
        ask(&good).expect(200);
    }
    for bad in [
        "Bearer sk_test_wrong".to_owned(),
        format!("Bearer {}", &KEY[..KEY.len() - 1]),
        format!("Bearer {KEY}x"),
        format!("Bearer {}", KEY.to_uppercase()),
        "Bearer".to_owned(),
        KEY.to_owned(),
        format!("Token {KEY}"),
        format!("Basic {KEY}"),
        format!("Basic {}", base64(KEY)),
        format!("Basic {}", base64(&format!("{KEY}:password"))),
        format!("Basic {}", base64(&format!(":{KEY}"))),
        "Basic ====".to_owned(),
        "Bearer ' OR 1=1 --".to_owned(),
    ] {
        let answer = ask(&bad);
        assert!(answer.header("www-authenticate").unwrap().contains("Bearer"), "{bad}");
        assert!(!answer.text.contains(KEY), "no key is echoed");
        assert_eq!(answer.error(401, "invalid_api_key")["type"], "authentication_error");
    }
    for path in ["/v1/books", "/v1/books/book_1", "/v1/orders/x/pay"] {
        let method = if path.ends_with("pay") { "POST" } else { "GET" };
        let answer = server.ask_anonymously(method, path).send();
        assert!(answer.header("www-authenticate").unwrap().contains("Basic realm="));
        answer.error(401, "authentication_required");
    }
    for path in ["/health", "/metrics", "/openapi.json", "/asyncapi.json", "/errors"] {
        assert_eq!(server.ask_anonymously("GET", path).send().status, 200, "{path}");
    }
}

#[test]
fn a_revoked_key_stops_working_at_once() {
    let server = Server::bookshop();
    let (id, secret) = create(&server, &["--name", "for the app"]);
    with(&server, &secret, "/v1/books").expect(200);
    let list = || server.tool(&["keys", "list"]).0;
    let line = |id: &str| list().lines().find(|line| line.starts_with(id)).unwrap_or("").to_owned();
    assert!(line(&id).contains("active") && line(&id).contains("for the app"), "{}", list());
    assert!(!list().contains(&secret), "the list shows hints, not keys");
    let (text, error, code) = server.tool(&["keys", "revoke", &id]);
    assert_eq!((text.trim(), code), (format!("revoked {id}").as_str(), 0), "{error}");
    eventually("the key is refused", || with(&server, &secret, "/v1/books").status == 401);
    with(&server, &secret, "/v1/books").error(401, "invalid_api_key");
    assert!(line(&id).contains("revoked"));
    server.get("/v1/books").expect(200);
    let (_, error, code) = server.tool(&["keys", "revoke", "key_none"]);
    assert!(code == 1 && error.contains("no key key_none"), "{error}");
}

#[test]
fn a_rolled_key_works_until_its_overlap_ends() {
    let server = Server::bookshop();
    let (id, old) = create(&server, &["--scope", "books:read", "--rate-limit", "7"]);
    let roll = |id: &str, hours: &str| {
        let (text, error, code) = server.tool(&["keys", "roll", id, "--overlap", hours]);
        assert_eq!(code, 0, "{error}");
        let mut words = text.split_whitespace();
        (words.next().unwrap().to_owned(), words.next().unwrap().to_owned())
    };
    let (second, new) = roll(&id, "24");
    with(&server, &old, "/v1/books").expect(200);
    let answer = with(&server, &new, "/v1/books");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("7"), "the successor keeps its limits");
    with(&server, &new, "/v1/orders").error(403, "permission_denied");
    let (_, newest) = roll(&second, "0");
    eventually("the old key ends", || with(&server, &new, "/v1/books").status == 401);
    with(&server, &newest, "/v1/books").expect(200);
    server.tool(&["keys", "revoke", &id]);
    let (_, error, code) = server.tool(&["keys", "roll", &id]);
    assert!(code == 1 && error.contains("revoked"), "{error}");
}

#[test]
fn a_key_stops_working_when_it_expires() {
    let server = Server::bookshop();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let soon = Timestamp(i64::try_from(now.as_millis()).unwrap() + 5_000).to_iso();
    let (_, short) = create(&server, &["--expires-at", &soon]);
    let (_, long) = create(&server, &["--expires-at", "2100-01-01T00:00:00Z"]);
    eventually("its time has come", || with(&server, &short, "/v1/books").status == 401);
    with(&server, &short, "/v1/books").error(401, "invalid_api_key");
    with(&server, &long, "/v1/books").expect(200);
    let (_, error, code) = server.tool(&["keys", "create", "--expires-at", "soon"]);
    assert!(code == 1 && error.contains("not a time"), "{error}");
}

#[test]
fn a_restricted_key_can_do_only_what_its_scopes_allow() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let path = format!("/v1/books/{book}");
    let (_, reader) = create(&server, &["--scope", "books:read"]);
    let (_, writer) = create(&server, &["--scope", "books:write", "--scope", "orders:read"]);
    assert!(reader.starts_with("rk_test_"), "{reader}");
    with(&server, &reader, &path).expect(200);
    with(&server, &reader, "/v1/books").expect(200);
    for (key, method, path, scope) in [
        (&reader, "POST", "/v1/books", "books:write"),
        (&reader, "PUT", &path, "books:write"),
        (&reader, "PATCH", &path, "books:write"),
        (&reader, "DELETE", &path, "books:write"),
        (&reader, "GET", "/v1/orders", "orders:read"),
        (&reader, "GET", &format!("{path}/reviews"), "reviews:read"),
        (&writer, "POST", "/v1/orders", "orders:write"),
        (&writer, "POST", "/v1/orders/x/pay", "orders:write"),
    ] {
        let mut ask = server.ask(method, path).key(key);
        if method != "GET" && method != "DELETE" {
            ask = ask.json(&json!({"title": "x", "author": "y"}));
        }
        let error = ask.send().error(403, "permission_denied");
        assert!(error["message"].as_str().unwrap().contains(scope), "{method} {path}: {error}");
        assert_eq!(error["type"], "permission_error");
    }
    for path in ["/v1/books?expand=reviews".to_owned(), format!("{path}?expand=reviews")] {
        for condition in ["*", "\"1\""] {
            let ask = server.ask("GET", &path).key(&reader).header("if-none-match", condition);
            ask.send().error(403, "permission_denied");
        }
    }
    let ask = server.ask("PATCH", &path).key(&writer).json(&json!({"price": 3}));
    ask.send().expect(200);
    for bad in ["books", "books:eat", "boks:read", ""] {
        let (_, error, code) = server.tool(&["keys", "create", "--scope", bad]);
        assert!(
            code == 1 && error.contains("scope") || error.contains("unknown collection"),
            "{error}"
        );
    }
}

#[test]
fn scopes_name_the_collections_of_the_served_schema() {
    let schema = "[collections.widgets.fields]\nname = \"string\"\n";
    let server = Start::schema(schema).go();
    server.make("/v1/widgets", json!({}));
    let (_, key) = create(&server, &["--scope", "widgets:read"]);
    with(&server, &key, "/v1/widgets").expect(200);
    let (_, error, code) = server.tool(&["keys", "create", "--scope", "books:read"]);
    assert!(code == 1 && error.contains("widgets"), "tells which there are: {error}");
}

#[test]
fn accounts_and_modes_cannot_see_each_others_data() {
    let server = Server::bookshop();
    let (id, test, live) = account(&server, "Other shop");
    let (list, ..) = server.tool(&["accounts", "list"]);
    assert!(
        list.lines().any(|line| line.starts_with(&id) && line.ends_with("Other shop")),
        "{list}"
    );
    let (_, own_live) = create(&server, &["--mode", "live"]);
    assert!(own_live.starts_with("sk_live_"));
    let book = server.book("mine");
    let order = server.make("/v1/orders", json!({"book": book}));
    let review = server.make(&format!("/v1/books/{book}/reviews"), json!({"rating": 3}));
    for key in [&test, &live, &own_live] {
        for path in [
            format!("/v1/books/{book}"),
            format!("/v1/books/{book}/reviews"),
            format!("/v1/books/{book}/reviews/{review}"),
            format!("/v1/orders/{order}"),
        ] {
            with(&server, key, &path).error(404, "not_found");
        }
        for (method, path) in [
            ("PATCH", format!("/v1/books/{book}")),
            ("DELETE", format!("/v1/books/{book}")),
            ("POST", format!("/v1/orders/{order}/pay")),
            ("POST", format!("/v1/books/{book}/reviews")),
        ] {
            let ask = server.ask(method, &path).key(key);
            let ask = match (method, path.ends_with("pay")) {
                ("DELETE", _) => ask,
                (_, true) => ask.json(&json!({})),
                ("PATCH", _) => ask.json(&json!({"title": "theirs"})),
                _ => ask.json(&json!({"rating": 1})),
            };
            ask.send().error(404, "not_found");
        }
        for path in ["/v1/books", "/v1/books?page=1", "/v1/books?q=mine", "/v1/orders"] {
            assert_eq!(with(&server, key, path).column("id").len(), 0, "{path}");
        }
        let order = server.ask("POST", "/v1/orders").key(key).json(&json!({"book": book})).send();
        assert_eq!(order.error(422, "validation_failed")["errors"][0]["code"], "bad_reference");
    }
    assert_eq!(server.get("/v1/books").titles(), ["mine"]);
    let theirs = server.ask("POST", "/v1/books").key(&test);
    let theirs = theirs.json(&json!({"title": "theirs", "author": "x"})).send().id();
    server.get(&format!("/v1/books/{theirs}")).error(404, "not_found");
}

#[test]
fn an_id_of_another_type_is_not_found() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({"book": book}));
    for path in [
        format!("/v1/orders/{book}"),
        format!("/v1/books/{order}"),
        format!("/v1/payment-intents/{book}"),
        format!("/v1/messages/{book}"),
        format!("/v1/books/{order}/reviews"),
        "/v1/books/..%2F..".to_owned(),
        "/v1/books/%00".to_owned(),
        format!("/v1/books/{}", "x".repeat(1000)),
    ] {
        server.get(&path).error(404, "not_found");
    }
    server.delete(&format!("/v1/orders/{book}")).error(404, "not_found");
}

#[test]
fn no_key_is_stored_or_logged_in_plain_text() {
    let server = Server::bookshop();
    let (_, secret) = create(&server, &[]);
    let (_, test, live) = account(&server, "Other");
    for key in [KEY, &secret, &test, &live] {
        with(&server, key, "/v1/books").expect(200);
        let basic = format!("Basic {}", base64(&format!("{key}:")));
        server.ask("GET", "/v1/books").only("authorization", &basic).send().expect(200);
        with(&server, &format!("{key}x"), "/v1/books").error(401, "invalid_api_key");
    }
    eventually("the requests are logged", || {
        server.log.lock().unwrap().matches("\"event\":\"request\"").count() >= 12
    });
    let mut places = vec![("log".to_owned(), server.log.lock().unwrap().clone().into_bytes())];
    for entry in std::fs::read_dir(server.data()).unwrap() {
        let path = entry.unwrap().path();
        places.push((path.display().to_string(), std::fs::read(&path).unwrap()));
    }
    assert!(places.len() >= 3, "database and log were looked at");
    for key in [KEY, &secret, &test, &live] {
        for text in [key.to_owned(), base64(&format!("{key}:"))] {
            for (place, bytes) in &places {
                let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
                assert!(!found, "a key stands in {place}");
            }
        }
    }
}
