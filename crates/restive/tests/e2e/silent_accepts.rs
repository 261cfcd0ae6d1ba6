//! Input that was once accepted silently with another meaning, or none: it is refused with a
//! message that says what to change.

use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{Socket, bearer, committed, token};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

#[test]
fn users_with_colons_in_their_names_do_not_share_refs() {
    let server = Server::bookshop();
    let mut ids = Vec::new();
    for (user, reference) in [("a", "b:x"), ("a:b", "x"), ("a:", "b:x"), ("1", "a:b:x")] {
        let mut socket = Socket::open(&server, &format!("/ws?user={}", user.replace(':', "%3A")));
        socket.typed("welcome");
        for replayed in [Value::Null, json!(true)] {
            socket.say(json!({ "type": "message", "ref": reference, "text": "hello" }));
            let ack = socket.typed("ack");
            assert_eq!(ack["replayed"], replayed, "{user} {reference}: {ack}");
            ids.push(ack["id"].as_i64().unwrap());
        }
    }
    ids.dedup();
    assert_eq!((ids.len(), committed(&server).len()), (4, 4), "{ids:?}");
}

/// The status and error of a raw request.
fn raw(server: &Server, line: &str, headers: &[u8], body: &str) -> (u16, Value) {
    let head = format!(
        "{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    let answer = server.raw(&[head.as_bytes(), headers, b"\r\n", body.as_bytes()].concat());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    (head[9..12].parse().unwrap(), body["error"].clone())
}

#[test]
fn headers_that_are_sent_twice_or_unreadable_are_refused() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let path = format!("/v1/books/{book}");
    let tag = server.get(&path).header("etag").unwrap().to_owned();
    let doubly_weak = format!("If-None-Match: W/W/{tag}\r\n");
    let patch = format!("PATCH {path}");
    let get = format!("GET {path}");
    let twice = b"Content-Type: application/json\r\nContent-Type: application/json\r\n";
    for (line, headers, body, param) in [
        ("GET /api/events", &b"Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n"[..], "", "Last-Event-ID"),
        ("GET /api/events", b"Last-Event-ID: \xff\r\n", "", "Last-Event-ID"),
        ("GET /api/events", b"Last-Event-ID: 1\xc3\xa9\r\n", "", "Last-Event-ID"),
        ("POST /v1/books", twice, "{\"title\":\"Emma\"}", "Content-Type"),
        ("POST /v1/channel-tokens", twice, "{}", "Content-Type"),
        (&patch, twice, "{\"title\":\"Emma\"}", "Content-Type"),
        (&get, doubly_weak.as_bytes(), "", "If-None-Match"),
        ("GET /v1/books", b"If-None-Match: W/W/\"1-1\"\r\n", "", "If-None-Match"),
        ("GET /v1/books", b"If-None-Match: \"1-1\", W/W/\"1-1\"\r\n", "", "If-None-Match"),
        ("GET /api/messages", b"If-None-Match: W/W/\"1-1\"\r\n", "", "If-None-Match"),
        (&format!("DELETE {path}"), doubly_weak.as_bytes(), "", "If-None-Match"),
    ] {
        let (status, error) = raw(&server, line, headers, body);
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{line}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(param)), "{error}");
    }
    assert_eq!(server.get("/v1/books").titles(), ["Dune"], "nothing was done");
}

#[test]
fn an_empty_list_of_types_is_refused_and_does_not_mean_all() {
    let server = Server::bookshop();
    for target in ["/api/events?types=", "/api/events?types=,", "/api/events?types=%20"] {
        let error = server.get(target).error(400, "invalid_parameter");
        assert_eq!(error["param"], "types", "{target}");
        assert!(error["message"].as_str().unwrap().contains("leave it out"), "{error}");
    }
    let refused = Socket::ask(server.address, "/ws?types=", &[bearer(KEY)], PATIENCE).unwrap();
    assert_eq!(refused.status, 400);
    let mut socket = Socket::open(&server, "/ws");
    for types in [json!([]), json!(""), json!(["", " "])] {
        let answer = socket.ask_for(json!({ "type": "subscribe", "types": types }));
        assert_eq!(answer["error"]["param"], "types", "{answer}");
    }
}

#[test]
fn a_key_with_a_rate_limit_of_zero_is_not_created() {
    let server = Server::bookshop();
    let (_, error, code) = server.tool(&["keys", "create", "--rate-limit", "0"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("--rate-limit") && error.contains("0 is not in 1.."), "{error}");
    let (_, error, code) = server.tool(&["keys", "create", "--rate-limit", "1"]);
    assert_eq!(code, 0, "{error}");
}

#[test]
fn duplicate_or_unknown_members_of_a_socket_message_are_refused() {
    let server = Server::bookshop();
    let mut socket = Socket::open(&server, "/ws");
    for (said, code, param) in [
        (r#"{"type":"ping","type":"message","text":"a"}"#, "duplicate_key", Value::Null),
        (r#"{"type":"message","text":"a","text":"b"}"#, "duplicate_key", Value::Null),
        (r#"{"type":"message","data":{"text":"a","text":"b"}}"#, "duplicate_key", Value::Null),
        (r#"{"type":"subscribe","types":"book.*","types":"*"}"#, "duplicate_key", Value::Null),
        (r#"{"type":"ping","wait":1}"#, "unknown_field", json!("wait")),
        (r#"{"type":"message","data":{"text":"a"},"text":"b"}"#, "unknown_field", json!("text")),
        (r#"{"type":"typing","data":{},"resourse":"x"}"#, "unknown_field", json!("resourse")),
        (r#"{"type":"unsubscribe","all":true}"#, "unknown_field", json!("all")),
        (r#"{"type":"subscribe","typo":null}"#, "unknown_field", json!("typo")),
        (r#"{"type":"subscribe","resource":""}"#, "invalid_parameter", json!("resource")),
    ] {
        socket.send(0x1, said.as_bytes()).unwrap();
        let answer = socket.typed("error");
        assert_eq!(answer["error"]["code"], code, "{said}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{said}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().contains("body"), "{answer}");
    }
    socket.say(json!({ "type": "ping", "ref": "r" }));
    socket.typed("pong");
    assert_eq!(committed(&server).len(), 0);
}

#[test]
fn a_type_that_the_limits_of_a_token_exclude_is_refused_by_name() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    for (limits, types, named) in [
        (json!({ "resources": [book] }), "order.created", "resources"),
        (json!({ "resources": [book] }), "book.created,order.*", "resources"),
        (json!({ "resources": [book] }), "message", "resources"),
        (json!({ "resources": [book] }), "online", "resources"),
        (json!({ "parents": [book] }), "order.created", "parents"),
        (json!({ "parents": [book] }), "book.updated", "parents"),
    ] {
        let made = token(&server, limits.clone());
        let target = format!("/api/events?access_token={made}&types={types}");
        let error = server.ask_anonymously("GET", &target).send().error(403, "permission_denied");
        let message = error["message"].as_str().unwrap();
        let last = types.rsplit(',').next().unwrap();
        assert_eq!(error["param"], "types");
        for part in [last, named, &book] {
            assert!(message.contains(part), "{limits} {types}: {message}");
        }
        let mut socket =
            Socket::ask(server.address, &format!("/ws?access_token={made}"), &[], PATIENCE)
                .unwrap()
                .socket();
        let answer = socket.ask_for(json!({ "type": "subscribe", "types": types }));
        assert_eq!(answer["error"]["message"], message, "{answer}");
    }
    for (limits, types) in [
        (json!({ "resources": [book] }), "book.*"),
        (json!({ "resources": [book] }), "typing"),
        (json!({ "parents": [book] }), "review.created"),
        (json!({ "resources": [book], "parents": [book] }), "book.updated,review.*"),
    ] {
        let made = token(&server, limits.clone());
        let target = format!("/api/events?access_token={made}&types={types}");
        let head = server.ask_anonymously("HEAD", &target).send();
        assert_eq!(head.status, 200, "{limits} {types}");
    }
}

#[test]
fn a_misspelt_event_type_is_refused_with_the_most_similar_one() {
    let server = Server::bookshop();
    server.book("Dune");
    let endpoint = |kind: &str| {
        let body = json!({ "url": "https://example.com/hook", "enabled_events": [kind] });
        server.post("/v1/webhook-endpoints", body)
    };
    for (kind, meant) in [("book.craeted", "book.created"), ("boook.*", "book.*")] {
        let hint = format!("did you mean `{meant}`?");
        for target in [
            format!("/v1/events?type={kind}"),
            format!("/v1/events?type=book.updated,{kind}"),
            format!("/v1/events?type={kind}&min_created=1"),
            format!("/api/events?types={kind}"),
        ] {
            let error = server.get(&target).error(400, "invalid_parameter");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&hint) && message.contains(kind), "{target}: {message}");
        }
        let error = endpoint(kind).error(422, "validation_failed");
        assert!(error.to_string().contains(&hint), "{error}");
    }
    for (kind, count) in [
        ("book.created", 1),
        ("order.paid", 0),
        ("*.created", 1),
        ("*", 1),
        ("webhook_endpoint.failing", 0),
        ("ping", 0),
        ("order.created,book.created", 1),
    ] {
        let found = server.get(&format!("/v1/events?type={kind}")).expect(200);
        assert_eq!(found["data"].as_array().map(Vec::len), Some(count), "{kind}: {found}");
    }
}

#[test]
fn events_of_a_type_that_the_schema_no_longer_declares_are_still_found() {
    let schema = |event: &str| {
        format!(
            "[collections.notes.fields]\ntext = \"string\"\n\
             [collections.notes.actions.shout]\nset = {{ text = \"loud\" }}\nevent = \"{event}\"\n"
        )
    };
    let server = Start::schema(&schema("note.shouted")).go();
    let note = server.make("/v1/notes", json!({ "text": "a" }));
    server.post(&format!("/v1/notes/{note}/shout"), json!({})).expect(200);
    let (_, folder) = server.stop();
    let start = Start::schema(&schema("note.called")).on(&folder);
    let server = start.arg("--accept-changes").go();
    for kind in ["note.shouted", "note.sh*", "note.called"] {
        let found = server.get(&format!("/v1/events?type={kind}")).expect(200);
        let expected = usize::from(kind != "note.called");
        assert_eq!(found["data"].as_array().map(Vec::len), Some(expected), "{kind}");
    }
    server.get("/v1/events?type=note.shout").error(400, "invalid_parameter");
}

/// A connection that has had a response and is idle.
fn idle(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

#[test]
fn idle_connections_do_not_block_new_clients() {
    const ROOM: usize = 20;
    let server = Start::bookshop().arg("--max-connections").arg(&ROOM.to_string()).go();
    let kept: Vec<_> = (0..ROOM).map(|_| idle(&server)).collect();
    let status = || server.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")[9..12].to_owned();
    // After a second or two they count as idle, long before their own timeout.
    eventually("a new client is served", || status() == "200");
    drop(kept);
}
