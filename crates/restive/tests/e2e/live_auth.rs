//! Access to channels: keys, restricted keys, channel tokens, and the separation of accounts and
//! modes.

use crate::auth::{account, create};
use crate::clock::hurried;
use crate::database;
use crate::harness::{Answer, KEY, PATIENCE, Server, Start, eventually};
use crate::hostile::resident_kib;
use crate::live_client::{Events, Opened, Socket, bearer, open_connections, token, write};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const CHANNELS: [&str; 3] = ["/api/messages", "/api/events", "/ws"];

/// The status of each channel for these headers and this query.
fn statuses(server: &Server, headers: &[String], query: &str) -> Vec<u16> {
    let ask = |path: &&str| {
        let target = format!("{path}{query}");
        match *path {
            "/ws" => Socket::ask(server.address, &target, headers, PATIENCE).unwrap().status,
            _ => Opened::try_get(server.address, &target, headers, PATIENCE).unwrap().status,
        }
    };
    CHANNELS.iter().map(ask).collect()
}

#[test]
fn no_channel_opens_without_valid_credentials() {
    let server = Server::bookshop();
    let good = token(&server, json!({ "user": "ann" }));
    let open = [200, 200, 101];
    assert_eq!(statuses(&server, &[bearer(KEY)], ""), open);
    assert_eq!(statuses(&server, &[bearer(&good)], ""), open);
    assert_eq!(statuses(&server, &[], &format!("?access_token={good}")), open);
    let closed = [401, 401, 401];
    assert_eq!(statuses(&server, &[], ""), closed, "none");
    assert_eq!(statuses(&server, &[bearer("sk_test_nobody_0123456789")], ""), closed);
    assert_eq!(statuses(&server, &[], &format!("?access_token={KEY}")), closed, "a key in a URL");
    let (_, restricted) = create(&server, &["--scope", "messages:read"]);
    assert_eq!(statuses(&server, &[], &format!("?access_token={restricted}")), closed);
    let cut = &good[..good.len() - 1];
    let (payload, seal) = good.split_once('.').unwrap();
    let bent = format!("{payload}A.{seal}");
    let other = Server::bookshop();
    let foreign = token(&other, json!({ "user": "ann" }));
    for bad in [cut, &bent, &foreign, "ct_", "ct_.", "", "x", "ct_e30.e30"] {
        assert_eq!(statuses(&server, &[bearer(bad)], ""), closed, "{bad}");
        assert_eq!(statuses(&server, &[], &format!("?access_token={bad}")), closed, "{bad}");
    }
    let answer = server.ask_anonymously("GET", "/api/events?access_token=ct_x").send();
    assert_eq!(answer.error(401, "invalid_api_key")["param"], "access_token");
    server.get("/v1/presence").expect(200);
    server.ask_anonymously("GET", "/v1/presence").send().error(401, "authentication_required");
    server.ask("GET", "/v1/presence").key(&good).send().error(401, "invalid_api_key");
    server.ask("GET", "/v1/books").key(&good).send().error(401, "invalid_api_key");
}

#[test]
fn a_token_can_be_sent_as_a_subprotocol_of_a_socket() {
    let server = Server::bookshop();
    let made = token(&server, json!({ "user": "ann" }));
    let offer = format!("Sec-WebSocket-Protocol: restive.v1, access_token.{made}");
    let opened = Socket::ask(server.address, "/ws", &[offer], PATIENCE).unwrap();
    assert_eq!(opened.status, 101, "{}", opened.head);
    assert_eq!(opened.header("sec-websocket-protocol"), Some("restive.v1"));
    assert!(!opened.head.contains("access_token"), "it is not said again");
}

#[test]
fn a_token_is_valid_only_until_it_or_its_key_expires() {
    let server = Server::bookshop();
    let (id, secret) = create(&server, &[]);
    let made = server.ask("POST", "/v1/channel-tokens").key(&secret).json(&json!({})).send();
    let by_key = made.expect(201)["token"].as_str().unwrap().to_owned();
    let short = token(&server, json!({ "expires_in": 5 }));
    assert_eq!(statuses(&server, &[bearer(&by_key)], ""), [200, 200, 101]);
    server.tool(&["keys", "revoke", &id]);
    let closed = [401, 401, 401];
    eventually("the token ends with its key", || {
        statuses(&server, &[bearer(&by_key)], "") == closed
    });
    eventually("the token ends with its time", || {
        statuses(&server, &[bearer(&short)], "") == closed
    });
}

#[test]
fn open_connections_end_when_their_key_is_revoked() {
    let server = Server::bookshop();
    let (id, secret) = create(&server, &[]);
    // They check their key after half a minute without events.
    let patience = PATIENCE * 2;
    let headers = [bearer(&secret)];
    let stream = Opened::try_get(server.address, "/api/events", &headers, patience).unwrap();
    let socket = Socket::ask(server.address, "/ws", &headers, patience).unwrap().socket();
    let mut others = Events::open(&server, "/api/events");
    server.tool(&["keys", "revoke", &id]);
    let told = stream.events().rest();
    let last = told.last().unwrap();
    assert!(last.is("stream.closing"), "{last:?}");
    assert_eq!(last.json()["reason"], "key_revoked");
    assert_eq!(socket.closed(), (4001, "key_revoked".to_owned()));
    write(&server, "to those who stay");
    others.named("message");
}

/// The server's clock runs 240 times as fast: the hour of overlap takes a quarter of a minute.
#[test]
fn open_connections_end_when_their_rolled_key_expires() {
    // With a clock this fast, a connection to a database is given up before it is open.
    if database::is_postgres() {
        return;
    }
    let server = hurried(Start::bookshop(), 240).go();
    let (id, secret) = create(&server, &[]);
    let stream = Opened::try_get(server.address, "/api/events", &[bearer(&secret)], PATIENCE);
    let stream = stream.unwrap().events();
    let began = Instant::now();
    let (_, _, code) = server.tool(&["keys", "roll", &id, "--overlap", "1"]);
    assert_eq!(code, 0);
    let told = stream.rest();
    let last = told.last().unwrap();
    assert!(last.is("stream.closing"), "{last:?}");
    assert_eq!(last.json()["reason"], "key_revoked");
    let after = began.elapsed().as_secs();
    assert!((8..25).contains(&after), "after {after} s");
}

#[test]
fn an_invalid_token_request_is_refused_by_field() {
    let server = Server::bookshop();
    let ask = |body: Value| server.post("/v1/channel-tokens", body);
    let made = ask(json!({ "user": "ann", "types": ["message"], "publish": ["message"] }));
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.expect(201);
    assert_eq!((&made["object"], &made["user"]), (&json!("channel_token"), &json!("ann")));
    assert_eq!((&made["livemode"], &made["publish"]), (&json!(false), &json!(["message"])));
    let wrong = json!({
        "user": "", "types": ["no.type"], "publish": ["nonsense"], "expires_in": 4, "x": 1,
    });
    let error = ask(wrong).error(422, "validation_failed");
    let mut named: Vec<&str> =
        error["errors"].as_array().unwrap().iter().map(|e| e["field"].as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, ["expires_in", "publish", "types", "user", "x"]);
    let expires = |answer: Answer| answer.error(422, "validation_failed");
    expires(ask(json!({ "expires_in": 86_401 })));
    expires(ask(json!({ "expires_in": "1h" })));
    server.ask("POST", "/v1/channel-tokens").json(&json!([])).send().error(400, "body_not_object");
    server.get("/v1/channel-tokens").error(405, "method_not_allowed");
}

#[test]
fn a_token_receives_and_publishes_only_what_it_allows() {
    let server = Server::bookshop();
    let made = token(&server, json!({ "user": "ann", "types": ["book.*"] }));
    let target = format!("/ws?access_token={made}");
    let mut socket = Socket::ask(server.address, &target, &[], PATIENCE).unwrap().socket();
    socket.typed("welcome");
    let polled = server.ask_anonymously("GET", &format!("/api/messages?access_token={made}"));
    polled.send().error(403, "permission_denied");
    socket.ask_for(json!({ "type": "subscribe", "types": "message" }));
    let refused = socket.ask_for(json!({ "type": "message", "text": "hello" }));
    assert_eq!(refused["error"]["code"], "permission_denied", "{refused}");
    let refused = socket.ask_for(json!({ "type": "typing" }));
    assert_eq!(refused["error"]["code"], "permission_denied", "{refused}");
    socket.ask_for(json!({ "type": "subscribe" }));
    write(&server, "not for it");
    let loud = Socket::open(&server, "/ws?user=ben");
    server.book("Dune");
    assert_eq!(socket.message()["type"], "book.created", "nothing else came");
    drop(loud);
    let writes = token(&server, json!({ "user": "ann", "publish": ["message"] }));
    let target = format!("/ws?access_token={writes}");
    let mut socket = Socket::ask(server.address, &target, &[], PATIENCE).unwrap().socket();
    assert_eq!(socket.ask_for(json!({ "type": "message", "text": "hello" }))["type"], "ack");
    let named = format!("/ws?user=eve&access_token={writes}");
    let named = Socket::ask(server.address, &named, &[], PATIENCE).unwrap();
    assert_eq!(named.status, 400, "a token names its user itself");
}

#[test]
fn a_restricted_key_receives_only_events_it_may_read() {
    let server = Server::bookshop();
    let (_, books) = create(&server, &["--scope", "books:read"]);
    let open = |key: &str, target: &str| Socket::try_open(server.address, key, target, PATIENCE);
    let mut socket = open(&books, "/ws?since=0").unwrap();
    let mut all = Socket::open(&server, "/ws?user=ben");
    socket.typed("welcome");
    all.typed("welcome");
    write(&server, "not for it");
    let book = server.book("Dune");
    server.make("/v1/orders", json!({ "book": book }));
    all.say(json!({ "type": "typing" }));
    server.book("Emma");
    for _ in 0..2 {
        let told = socket.message();
        assert_eq!(told["type"], "book.created", "{told}");
    }
    let refused = socket.ask_for(json!({ "type": "message", "text": "hello" }));
    assert_eq!(refused["error"]["code"], "permission_denied", "{refused}");
    let with = |key: &str, path: &str| server.ask("GET", path).key(key).send();
    with(&books, "/api/messages").error(403, "permission_denied");
    with(&books, "/v1/presence").error(403, "permission_denied");
    let ask = server.ask("POST", "/v1/channel-tokens").key(&books).json(&json!({}));
    ask.send().error(403, "permission_denied");
    let (_, messages) = create(&server, &["--scope", "messages:write"]);
    with(&messages, "/api/messages").expect(200);
    let mut socket = open(&messages, "/ws").unwrap();
    assert_eq!(socket.ask_for(json!({ "type": "message", "text": "hello" }))["type"], "ack");
    // Presence and typing are sent only to clients with read access.
    let scopes = ["--scope", "messages:read", "--scope", "presence:read"];
    let (_, both) = create(&server, &[&scopes[..], &["--scope", "channel-tokens:write"]].concat());
    let mut hears = open(&both, "/ws?types=online,typing").unwrap();
    hears.typed("welcome");
    let mut ann = Socket::open(&server, "/ws?user=ann");
    assert_eq!(hears.message()["user"], "ann");
    ann.say(json!({ "type": "typing" }));
    assert_eq!(hears.message()["type"], "typing");
    with(&both, "/v1/presence").expect(200);
    let ask = server.ask("POST", "/v1/channel-tokens").key(&both).json(&json!({}));
    ask.send().expect(201);
    let (_, log) = create(&server, &["--scope", "events:read"]);
    let mut events =
        Events::try_open(server.address, &log, "/api/events?since=0", None, PATIENCE).unwrap();
    events.named("message");
    events.named("order.created");
}

/// Creates one event of every kind in the account of this key.
fn make_noise(server: &Server, key: &str, mark: &str) {
    let post = |path: &str, body: Value| {
        let made = server.ask("POST", path).key(key).json(&body).send();
        assert_eq!(made.status, 201, "{}", made.text);
    };
    post("/v1/books", json!({ "title": mark, "author": "a" }));
    post("/v1/messages", json!({ "text": mark }));
}

#[test]
fn channels_never_deliver_events_of_another_account_or_mode() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let (_, theirs, theirs_live) = account(&server, "Other shop");
    let (_, own_live) = create(&server, &["--mode", "live"]);
    let keys = [KEY, &theirs, &theirs_live, &own_live];
    let mut listeners = Vec::new();
    for (place, key) in keys.into_iter().enumerate() {
        let target = format!("/ws?user=user{place}");
        let socket = Socket::try_open(server.address, key, &target, PATIENCE).unwrap();
        let events = Events::try_open(server.address, key, "/api/events", None, PATIENCE).unwrap();
        listeners.push((key, socket, events));
    }
    std::thread::scope(|scope| {
        for (place, key) in keys.into_iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                (0..10).for_each(|n| make_noise(server, key, &format!("{place} {n}")));
                make_noise(server, key, "the last one");
            });
        }
    });
    for (place, (key, mut socket, mut events)) in listeners.into_iter().enumerate() {
        let mut expected: Vec<String> = (0..10).map(|n| format!("{place} {n}")).collect();
        expected.push("the last one".to_owned());
        // Also for a client that resumes from the beginning.
        let mut past =
            Events::try_open(server.address, key, "/api/events?since=0", None, PATIENCE).unwrap();
        for (channel, texts) in [
            ("socket", socket.texts_until("the last one")),
            ("stream", events.texts_until("the last one")),
            ("past", past.texts_until("the last one")),
        ] {
            assert_eq!(texts, expected, "{channel} of world {place}");
        }
        let polled = server.ask("GET", "/api/messages?since=0").key(key).send().expect(200);
        assert_eq!(polled.as_array().unwrap().len(), expected.len());
        let present = server.ask("GET", "/v1/presence").key(key).send().expect(200);
        // Its own user only, and none of other accounts.
        assert_eq!(present["pagination"]["total"], 1, "{present}");
        assert_eq!(present["data"][0]["user"], format!("user{place}"));
    }
    let made = server.ask("POST", "/v1/channel-tokens").key(&theirs).json(&json!({})).send();
    let made = made.expect(201)["token"].as_str().unwrap().to_owned();
    let target = format!("/api/events?since=0&access_token={made}");
    let opened = Opened::try_get(server.address, &target, &[], PATIENCE).unwrap();
    let texts = opened.events().texts_until("the last one");
    assert!(texts[..10].iter().all(|text| text.starts_with("1 ")), "{texts:?}");
}

#[test]
fn no_token_is_logged() {
    let server = Arc::new(Server::bookshop());
    let made = token(&server, json!({ "user": "ann" }));
    assert_eq!(statuses(&server, &[], &format!("?access_token={made}")), [200, 200, 101]);
    eventually("the requests are logged", || {
        server.log.lock().unwrap().matches("\"event\":\"request\"").count() >= 3
    });
    assert!(!server.log.lock().unwrap().contains(&made[..40]), "a token stands in the log");
}

/// All requests that are refused before a connection opens, many times.
#[test]
fn refused_channel_requests_leave_no_connections_or_memory_behind() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off");
    let server = server.go();
    let good = token(&server, json!({ "user": "ann" }));
    let (payload, seal) = good.split_once('.').unwrap();
    let short = token(&server, json!({ "expires_in": 5 }));
    eventually("a token has expired", || statuses(&server, &[bearer(&short)], "") == [401; 3]);
    let round = |number: usize| {
        // All different, so that caches cannot help.
        for each in 0..1_500 {
            let forged = format!("{payload}.{number}x{each}{}", &seal[8..]);
            let ask = server.ask("GET", "/api/messages").key(&forged);
            assert_eq!(ask.send().status, 401);
        }
        let closed = [401; 3];
        for each in 0..30 {
            let unknown = format!("sk_test_nobody_{number}_{each}");
            assert_eq!(statuses(&server, &[bearer(&unknown)], ""), closed);
            assert_eq!(statuses(&server, &[], &format!("?access_token={short}")), closed);
            let bad = format!("?since={number}.{each}.x");
            assert_eq!(statuses(&server, &[bearer(KEY)], &bad), [400; 3]);
        }
        resident_kib(&server)
    };
    let after: Vec<u64> = (0..4).map(round).collect();
    assert!(after[3] < after[0] + (1 << 10), "{after:?} KiB");
    for channel in ["poll", "sse", "websocket"] {
        assert_eq!(open_connections(&server, channel), 0.0, "{channel}");
    }
}
