//! A key that is revoked, restricted or rolled while it is in use: a request whose body is still on
//! its way, an open connection, a second request at the same time.

use crate::harness::{PATIENCE, Server};
use crate::live_client::{Opened, Socket, bearer, write};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A new key: its id and its text.
#[track_caller]
fn make(server: &Server, body: Value) -> (String, String) {
    let made = server.post("/v1/keys", body).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("secret"))
}

#[track_caller]
fn revoke(server: &Server, id: &str) {
    server.delete(&format!("/v1/keys/{id}")).expect(200);
}

/// A request whose head and first byte have arrived. A server answers `100 Continue` once it has
/// identified the caller and waits for the body.
struct Slow {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Slow {
    #[track_caller]
    fn begin(server: &Server, key: &str, path: &str, body: &Value) -> Slow {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.to_string().into_bytes();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nContent-Type: \
             application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n",
            server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).unwrap();
        assert!(interim.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&interim));
        stream.write_all(&body[..1]).unwrap();
        Slow { stream, rest: body[1..].to_vec() }
    }

    /// Sends the rest of the body; returns the response.
    fn end(mut self) -> String {
        let _ = self.stream.write_all(&self.rest);
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_key_that_is_revoked_while_a_body_arrives_writes_nothing() {
    let server = Server::bookshop();
    let book = json!({ "title": "LATE", "author": "Nobody" });
    let endpoint = json!({ "url": "https://example.com/x", "events": ["*"] });
    for (path, body) in [
        ("/v1/books", &book),
        ("/v1/webhook-endpoints", &endpoint),
        ("/v1/channel-tokens", &json!({})),
        ("/v1/account", &json!({ "api_version": "2025-01-01" })),
        ("/v1/keys", &json!({ "scopes": null })),
        ("/v1/events", &json!({ "type": "report.ready", "data": {} })),
    ] {
        let (id, key) = make(&server, json!({ "scopes": null, "admin": true }));
        let slow = Slow::begin(&server, &key, path, body);
        revoke(&server, &id);
        let answer = slow.end();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        assert!(answer.contains("invalid_api_key"), "{path}: {answer}");
    }
    assert_eq!(server.get("/v1/books").titles(), [""; 0]);
    assert_eq!(server.get("/v1/webhook-endpoints").column("id"), [Value::Null; 0]);
    // A change of another key makes no difference.
    let (_, key) = make(&server, json!({ "scopes": ["books:write"] }));
    let slow = Slow::begin(&server, &key, "/v1/books", &book);
    make(&server, json!({ "scopes": ["books:read"] }));
    assert!(slow.end().starts_with("HTTP/1.1 201 "));
    // A key that lost the scope in the meantime is refused by its scopes.
    let (id, key) = make(&server, json!({ "scopes": ["books:write"] }));
    let slow = Slow::begin(&server, &key, "/v1/books", &book);
    server.patch(&format!("/v1/keys/{id}"), json!({ "scopes": ["books:read"] })).expect(200);
    assert!(slow.end().starts_with("HTTP/1.1 403 "));
}

#[test]
fn nothing_is_written_into_an_account_that_is_deleted_while_a_body_arrives() {
    let server = Server::bookshop();
    let account = server.make("/v1/accounts", json!({ "name": "Acme" }));
    let (id, key) = make(&server, json!({ "scopes": null, "account": account }));
    let body = json!({ "title": "ORPHAN", "author": "Nobody" });
    let slow = Slow::begin(&server, &key, "/v1/books", &body);
    revoke(&server, &id);
    server.delete(&format!("/v1/accounts/{account}")).expect(200);
    let answer = slow.end();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

fn socket(server: &Server, key: &str) -> Socket {
    Socket::ask(server.address, "/ws", &[bearer(key)], PATIENCE).unwrap().socket()
}

/// How long after a revocation a connection may still be open: a second, and some for a busy
/// machine.
const SOON: Duration = Duration::from_secs(3);

#[test]
fn an_idle_connection_of_a_revoked_key_ends_within_a_second() {
    let server = Server::bookshop();
    let (id, key) = make(&server, json!({ "scopes": null }));
    let (_, other) = make(&server, json!({ "scopes": null }));
    let open = |path: &str, key: &str| {
        Opened::try_get(server.address, path, &[bearer(key)], PATIENCE).unwrap()
    };
    let stream = open("/api/events", &key).events();
    let socket = socket(&server, &key);
    let mut kept = open("/api/events", &other).events();
    let since = Instant::now();
    revoke(&server, &id);
    let told = stream.rest();
    assert_eq!(told.last().unwrap().json()["reason"], "key_revoked");
    let (code, reason) = socket.closed();
    assert_eq!((code, reason.as_str()), (4001, "key_revoked"));
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    // Others of the account go on.
    write(&server, "after the revocation");
    assert!(kept.named("message").json().to_string().contains("after the revocation"));
}

#[test]
fn a_revoked_key_sends_and_receives_nothing_more_over_an_open_connection() {
    let server = Server::bookshop();
    for revoked in [true, false] {
        let (id, key) = make(&server, json!({ "scopes": null }));
        let stream = Opened::try_get(server.address, "/api/events", &[bearer(&key)], PATIENCE);
        let stream = stream.unwrap().events();
        let mut socket = socket(&server, &key);
        socket.typed("welcome");
        match revoked {
            true => revoke(&server, &id),
            false => {
                let less = json!({ "scopes": ["books:read"] });
                server.patch(&format!("/v1/keys/{id}"), less).expect(200);
            }
        }
        let ghost = json!({ "from": "ghost", "text": "of a revoked key" });
        socket.say(json!({ "type": "message", "ref": "r1", "data": ghost }));
        write(&server, "a secret");
        assert_eq!(socket.closed().1, "key_revoked");
        let told = stream.rest();
        assert!(told.iter().all(|block| !format!("{block:?}").contains("a secret")), "{told:?}");
        assert_eq!(told.last().unwrap().json()["reason"], "key_revoked");
    }
    let stored = server.get("/v1/messages").column("text");
    assert_eq!(stored, [json!("a secret"), json!("a secret")]);
}

#[test]
fn a_key_is_rolled_once_however_many_requests_ask_for_it() {
    let server = Server::bookshop();
    let (id, _) = make(&server, json!({ "scopes": null }));
    let path = format!("/v1/keys/{id}/roll");
    let start = Barrier::new(6);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || {
            start.wait();
            server.post(&path, json!({ "overlap_hours": 0 })).status
        };
        let tasks: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    let made = statuses.iter().filter(|status| **status == 201).count();
    let refused = statuses.iter().filter(|status| **status == 409).count();
    assert_eq!((made, refused), (1, 5), "{statuses:?}");
    let keys = server.get("/v1/keys?limit=100").expect(200);
    let unrevoked = keys["data"].as_array().unwrap().iter();
    let unrevoked = unrevoked.filter(|key| key["revoked_at"].is_null()).count();
    // The server's own, the old one and its successor.
    assert_eq!(unrevoked, 3, "{keys}");
}

#[test]
fn a_repeated_roll_shows_the_replaced_key_and_ends_it() {
    let server = Server::bookshop();
    let (id, _) = make(&server, json!({ "scopes": null }));
    let path = format!("/v1/keys/{id}");
    let roll = || {
        let ask = server.ask("POST", &format!("{path}/roll")).header("idempotency-key", "once");
        ask.json(&json!({ "overlap_hours": 2 })).send().expect(201)
    };
    let first = roll();
    let repeated = roll();
    assert_eq!((&first["id"], &first["replaces"]), (&repeated["id"], &repeated["replaces"]));
    assert!(first["secret"].is_string() && repeated["secret"].is_null(), "{repeated}");
    // As if the server had stopped before the old key got its end.
    server.patch(&path, json!({ "expires_at": null })).expect(200);
    assert_eq!(roll()["replaces"]["id"], id.as_str());
    assert!(server.get(&path).expect(200)["expires_at"].is_string());
}
