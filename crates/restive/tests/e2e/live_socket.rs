//! WebSockets: messages of clients and their responses, subscriptions, and presence. For protocol
//! errors see `live_frames`.

use crate::clock::hurried;
use crate::harness::{PATIENCE, Server, Start, eventually};
use crate::live_client::{
    CLOSE, PING, PONG, Socket, TEXT, ask_for, bearer, handshake, masked, open_connections, token,
    vanish, write,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn quick_start() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

fn quick() -> Server {
    quick_start().go()
}

fn sequence(position: &Value) -> i64 {
    position.as_str().unwrap().split_once('.').unwrap().1.parse().unwrap()
}

#[test]
fn a_message_creates_one_record_for_each_ref() {
    let server = Server::bookshop();
    let mut socket = Socket::open(&server, "/ws");
    let here = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    assert_eq!(socket.message(), json!({ "type": "welcome", "position": here }));
    let mut other = Socket::open(&server, "/ws");
    let said = json!({ "type": "message", "ref": "r1", "from": "ann", "text": "hello" });
    socket.say(said.clone());
    let ack = socket.typed("ack");
    assert_eq!(ack["ref"], "r1");
    let id = ack["id"].as_i64().unwrap();
    // Earlier events may still be in transit.
    assert_eq!(ack["position"], Value::Null);
    let record = server.get(&format!("/v1/messages/{id}")).expect(200);
    assert_eq!((&record["text"], &record["from"]), (&json!("hello"), &json!("ann")));
    let told = other.typed("message");
    assert_eq!(told["data"], record);
    assert_eq!(sequence(&told["position"]), id);
    // Sent again over a new connection after the first broke.
    drop(socket);
    let mut socket = Socket::open(&server, "/ws?types=book.*");
    socket.say(said);
    let again = socket.typed("ack");
    assert_eq!((&again["id"], &again["replayed"]), (&json!(id), &json!(true)));
    socket.say(json!({ "type": "message", "ref": "r1", "text": "something else" }));
    let refused = socket.typed("error");
    assert_eq!((&refused["ref"], &refused["error"]["param"]), (&json!("r1"), &json!("ref")));
    // In `data`, without a ref.
    socket.say(json!({ "type": "message", "data": { "text": "second" } }));
    let ack = socket.typed("ack");
    assert_eq!(ack["ref"], Value::Null);
    assert_eq!(crate::live_client::committed(&server).len(), 2);
}

#[test]
fn an_invalid_message_gets_an_error_and_the_socket_stays_open() {
    let server = Server::bookshop();
    let mut socket = Socket::open(&server, "/ws");
    let mut check = |said: &str, code: &str, param: Value| {
        socket.send(0x1, said.as_bytes()).unwrap();
        let answer = socket.typed("error");
        assert_eq!(answer["error"]["code"], code, "{said}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{said}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    };
    check("", "malformed_json", Value::Null);
    check("{", "malformed_json", Value::Null);
    check("[1]", "body_not_object", Value::Null);
    check("{}", "required", json!("type"));
    check(r#"{"type":1}"#, "required", json!("type"));
    check(r#"{"type":"nonsense"}"#, "invalid_parameter", json!("type"));
    check(r#"{"type":"message","ref":"a","text":""}"#, "validation_failed", json!("text"));
    check(r#"{"type":"message","txt":"a","text":"b"}"#, "validation_failed", json!("txt"));
    check(r#"{"type":"message"}"#, "validation_failed", json!("text"));
    check(r#"{"type":"message","data":[]}"#, "body_not_object", Value::Null);
    check(r#"{"type":"message","ref":7,"text":"b"}"#, "invalid_format", json!("ref"));
    check(r#"{"type":"subscribe","types":"boook.*"}"#, "invalid_parameter", json!("types"));
    check(r#"{"type":"subscribe","since":"x"}"#, "invalid_parameter", json!("since"));
    check(r#"{"type":"subscribe","since":-1}"#, "invalid_parameter", json!("since"));
    check(r#"{"type":"subscribe","resource":7}"#, "invalid_parameter", json!("resource"));
    check(r#"{"type":"subscribe","wait":true}"#, "unknown_field", json!("wait"));
    let large = format!(r#"{{"type":"typing","data":"{}"}}"#, "x".repeat(2_000));
    check(&large, "too_long", json!("data"));
    socket.say(json!({ "type": "message", "text": "fine" }));
    socket.typed("ack");
}

#[test]
fn typing_is_sent_to_other_subscribers_and_not_stored() {
    let server = quick();
    let mut ann = Socket::open(&server, "/ws?user=ann");
    let mut ben = Socket::open(&server, "/ws?user=ben");
    let mut other = Socket::open(&server, "/ws?types=book.*");
    let before = server.get("/v1/events").column("id").len();
    ann.typed("welcome");
    ben.typed("welcome");
    ann.say(json!({ "type": "typing", "room": 7 }));
    let told = ben.typed("typing");
    assert_eq!(told, json!({ "type": "typing", "user": "ann", "data": { "room": 7 } }));
    // A burst that exceeds one write: a reader gets all of it.
    let burst = (0..60).flat_map(|n| {
        masked(0x80 | TEXT, json!({ "type": "typing", "data": n }).to_string().as_bytes())
    });
    ann.bytes_as_they_are(&burst.collect::<Vec<u8>>()).unwrap();
    for expected in 0..60 {
        assert_eq!(ben.typed("typing")["data"], expected);
    }
    // The sender, and a client with another subscription, receive only later events.
    server.book("mark");
    assert_eq!(ann.typed_beside("book.created", &["online"])["type"], "book.created");
    assert_eq!(other.typed_beside("book.created", &["welcome"])["type"], "book.created");
    assert_eq!(server.get("/v1/events").column("id").len(), before + 1);
}

impl Socket {
    /// The next message of this type, with only these types in between.
    #[track_caller]
    fn typed_beside(&mut self, kind: &str, others: &[&str]) -> Value {
        loop {
            let message = self.message();
            let own = message["type"].as_str().unwrap();
            if own == kind {
                return message;
            }
            assert!(others.contains(&own), "{message}");
        }
    }
}

#[test]
fn a_subscription_begins_now_or_at_its_position() {
    let server = quick();
    let first = write(&server, "first");
    let mut socket = Socket::open(&server, "/ws?types=order.*");
    socket.typed("welcome");
    write(&server, "second");
    server.book("early");
    let ack = socket.ask_for(json!({ "type": "subscribe", "types": ["book.*"] }));
    assert_eq!(ack["type"], "ack");
    server.book("late");
    let told = socket.message();
    assert_eq!(told["data"]["data"]["object"]["title"], "late", "not what came before: {told}");
    // One subscription goes back in the log while the other continues.
    socket.say(json!({ "type": "subscribe", "types": "message", "since": first }));
    socket.typed_beside("ack", &[]);
    assert_eq!(socket.message()["data"]["text"], "second");
    write(&server, "third");
    server.book("latest");
    assert_eq!(socket.message()["data"]["text"], "third");
    assert_eq!(socket.message()["data"]["data"]["object"]["title"], "latest");
    // After an unsubscribe, its events are neither sent nor made up for later.
    socket.ask_for(json!({ "type": "unsubscribe", "types": ["book.*"] }));
    server.book("unheard");
    write(&server, "fourth");
    assert_eq!(socket.message()["data"]["text"], "fourth");
    socket.ask_for(json!({ "type": "unsubscribe" }));
    write(&server, "unheard");
    server.book("unheard");
    socket.ask_for(json!({ "type": "subscribe", "types": "message" }));
    write(&server, "fifth");
    let told = socket.message();
    assert_eq!(told["data"]["text"], "fifth", "{told}");
}

#[test]
fn subscriptions_can_be_limited_to_a_record_or_parent_and_their_number_is_limited() {
    let server = quick();
    let (dune, emma) = (server.book("Dune"), server.book("Emma"));
    let mut socket = Socket::open(&server, "/ws?types=order.*");
    socket.ask_for(json!({ "type": "subscribe", "resource": dune }));
    socket.ask_for(json!({ "type": "subscribe", "parent": emma }));
    for book in [&dune, &emma] {
        server.patch(&format!("/v1/books/{book}"), json!({ "price": 1 })).expect(200);
        server.make(&format!("/v1/books/{book}/reviews"), json!({ "rating": 5 }));
    }
    let told = socket.message();
    assert_eq!(
        (&told["type"], &told["data"]["data"]["object"]["id"]),
        (&json!("book.updated"), &json!(dune))
    );
    let told = socket.message();
    assert_eq!(told["type"], "review.created");
    assert_eq!(told["data"]["data"]["object"]["book"], emma);
    for number in 0..30 {
        let resource = format!("book_{number}");
        let ack = socket.ask_for(json!({ "type": "subscribe", "resource": resource }));
        assert_eq!(ack["type"], "ack", "{number}: {ack}");
    }
    let refused = socket.ask_for(json!({ "type": "subscribe", "resource": "one_too_many" }));
    assert_eq!(refused["type"], "error", "{refused}");
    let again = socket.ask_for(json!({ "type": "subscribe", "resource": dune }));
    assert_eq!(again["type"], "ack", "one that is there already takes no room");
}

#[test]
fn a_socket_from_an_unknown_position_gets_stream_reset() {
    let server = quick();
    let mut socket = Socket::open(&server, "/ws?since=123456");
    assert_eq!(socket.message()["type"], "welcome");
    let reset = socket.message();
    assert_eq!(
        (&reset["type"], &reset["data"]["reason"]),
        (&json!("stream.reset"), &json!("ahead_of_log"))
    );
    assert_eq!(reset["position"], reset["data"]["resumed_at"]);
    socket.say(json!({ "type": "subscribe", "since": "00000000.1", "ref": "r" }));
    assert_eq!(socket.message()["type"], "ack");
    assert_eq!(socket.message()["data"]["reason"], "other_epoch");
}

#[test]
fn a_user_with_several_tabs_comes_online_and_goes_offline_once() {
    let server = quick();
    let mut watcher = Socket::open(&server, "/ws?types=online,message");
    watcher.typed("welcome");
    let first = Socket::open(&server, "/ws?user=ann");
    let came = json!({ "type": "online", "user": "ann", "online": true });
    assert_eq!(watcher.message(), came);
    let tab = crate::live_client::Events::open(&server, "/api/events?user=ann");
    write(&server, "a mark");
    assert_eq!(watcher.message()["data"]["text"], "a mark", "a second tab is no news");
    let present = server.get("/v1/presence").expect(200);
    assert_eq!(present["pagination"]["total"], 1);
    assert_eq!(present["data"][0]["user"], "ann");
    assert_eq!(present["data"][0]["connections"], 2);
    drop(first);
    eventually("one tab is left", || {
        server.get("/v1/presence").expect(200)["data"][0]["connections"] == 1
    });
    // A reload: the user is back before going offline is noticed.
    drop(tab);
    let reloaded = Socket::open(&server, "/ws?user=ann");
    write(&server, "another mark");
    assert_eq!(watcher.message()["data"]["text"], "another mark");
    drop(reloaded);
    let went = json!({ "type": "online", "user": "ann", "online": false });
    assert_eq!(watcher.message(), went);
    assert_eq!(server.get("/v1/presence").expect(200)["data"], json!([]));
    server.get("/v1/presence?x=1").error(400, "unknown_parameter");
}

#[test]
fn presence_is_rebuilt_after_a_kill() {
    let server = quick();
    let _socket = Socket::open(&server, "/ws?user=ann");
    eventually("she is here", || server.get("/v1/presence").expect(200)["data"] != json!([]));
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    assert_eq!(server.get("/v1/presence").expect(200)["data"], json!([]));
}

/// Slow: pings are sent every 30 seconds, and silence is tolerated for 20. Up to two minutes of
/// server time.
#[test]
fn a_socket_that_does_not_answer_pings_is_closed_and_its_user_goes_offline() {
    const HURRY: u32 = 5;
    let server = hurried(quick_start(), HURRY).go();
    let open = |user: &str| {
        let target = format!("/ws?user={user}&types=online");
        Socket::try_open(server.address, &server.key, &target, PATIENCE).unwrap()
    };
    let (mut answers, mut silent) = (open("ann"), open("ben"));
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let ping = std::iter::repeat_with(|| silent.frame()).find(|f| f.opcode == PING);
            assert_eq!(ping.unwrap().payload, b"");
            let after = (began.elapsed() * HURRY).as_secs();
            assert!((28..60).contains(&after), "pinged after {after} s");
            let last = silent.frame();
            assert_eq!((last.opcode, &last.payload[..2]), (CLOSE, &4101u16.to_be_bytes()[..]));
            let after = (began.elapsed() * HURRY).as_secs();
            assert!((45..120).contains(&after), "closed after {after} s");
            assert!(silent.try_frame().unwrap().is_none());
        });
        let mut pings = 0;
        loop {
            let frame = answers.frame();
            match frame.opcode {
                PING => {
                    answers.send(PONG, &frame.payload).unwrap();
                    pings += 1;
                }
                _ if frame.payload.ends_with(br#""user":"ben","online":false}"#) => break,
                CLOSE => panic!("closed although it answered"),
                _ => {}
            }
        }
        assert!(pings >= 1);
    });
    answers.say(json!({ "type": "ping" }));
    answers.typed("pong");
}

#[test]
fn a_socket_of_a_vanished_client_is_closed_and_its_user_goes_offline() {
    let server = hurried(quick_start(), 20).go();
    let mut watcher = Socket::open(&server, "/ws?user=ann&types=online");
    // From then on it receives the presence of others.
    watcher.typed("welcome");
    let stream = ask_for(&server, "/ws?user=ben", &handshake().map(str::to_owned));
    let online = |watcher: &mut Socket, online: bool| {
        let mut told = std::iter::repeat_with(|| watcher.typed("online"));
        told.find(|told| told["user"] == "ben" && told["online"] == online).unwrap();
    };
    online(&mut watcher, true);
    vanish(&stream);
    let began = Instant::now();
    online(&mut watcher, false);
    assert_eq!(open_connections(&server, "websocket"), 1.0);
    // Pinged after 30 s, silent for 20 more, with a few seconds to close and reconnect.
    assert!(began.elapsed() * 20 > Duration::from_secs(45), "{:?}", began.elapsed());
    drop(stream);
}

#[test]
fn a_socket_is_closed_before_its_token_expires() {
    let server = quick();
    let made = token(&server, json!({ "user": "ann", "expires_in": 5 }));
    let target = format!("/ws?access_token={made}");
    let began = Instant::now();
    let opened = Socket::ask(server.address, &target, &[], PATIENCE).unwrap();
    assert_eq!(opened.status, 101);
    let (code, reason) = opened.socket().closed();
    assert_eq!((code, reason.as_str()), (4201, "token_expired"));
    let after = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(9)).contains(&after), "{after:?}");
    // While the token is still valid, it opens another socket. A busy machine may be too late
    // sometimes, but not always.
    let in_time = (0..5).any(|_| {
        let made = token(&server, json!({ "expires_in": 5 }));
        let ask = || {
            let target = format!("/ws?access_token={made}");
            Socket::ask(server.address, &target, &[], PATIENCE).unwrap()
        };
        assert_eq!(ask().socket().closed().0, 4201);
        ask().status == 101
    });
    assert!(in_time, "its connections outlive a token");
    // The other channels end as well, each in its own way.
    let made = token(&server, json!({ "expires_in": 5 }));
    let here = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let headers = [bearer(&made)];
            let opened = crate::live_client::Opened::try_get(
                server.address,
                "/api/events",
                &headers,
                PATIENCE,
            );
            let blocks = opened.unwrap().events().rest();
            let last = blocks.last().unwrap();
            assert!(last.is("stream.closing"), "{last:?}");
            assert_eq!(last.json()["reason"], "token_expired");
        });
        let began = Instant::now();
        let target = format!("/api/messages?since={here}&wait=true&access_token={made}");
        let answer = server.ask_anonymously("GET", &target).send();
        assert_eq!((answer.status, answer.text.as_str()), (200, "[]"));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    });
}

#[test]
fn the_websocket_handshake_follows_rfc_6455() {
    let server = Server::bookshop();
    let ask = |headers: &[&str]| {
        let mut all = vec![bearer(&server.key)];
        all.extend(headers.iter().map(|&line| line.to_owned()));
        Socket::ask(server.address, "/ws", &all, PATIENCE).unwrap()
    };
    let fine = ask(&[]);
    assert_eq!(fine.status, 101);
    assert_eq!(fine.header("sec-websocket-accept"), Some("s3pplmbitxaq9kygzzhzrbk+xoo="));
    assert_eq!(fine.header("sec-websocket-protocol"), None);
    let chosen = ask(&["Sec-WebSocket-Protocol: restive.v1"]);
    assert_eq!(chosen.header("sec-websocket-protocol"), Some("restive.v1"));
    let unknown = ask(&["Sec-WebSocket-Protocol: soap, graphql-ws"]);
    assert_eq!(unknown.status, 400);
    assert!(unknown.try_body().unwrap().contains("restive.v1"));
    let foreign = ask(&["Origin: https://evil.example"]);
    assert_eq!(foreign.status, 403);
    let scheme = if crate::carry::is_secure() { "https" } else { "http" };
    let own = ask(&[&format!("Origin: {scheme}://{}", server.address)]);
    assert_eq!(own.status, 101);
    let null = ask(&["Origin: null"]);
    assert_eq!(null.status, 403);
    let plain = server.get("/ws");
    assert_eq!(plain.header("upgrade"), Some("websocket"));
    assert_eq!(plain.header("sec-websocket-version"), Some("13"));
    plain.error(426, "upgrade_required");
    server.post("/ws", json!({})).error(405, "method_not_allowed");
    let bad = Socket::ask(server.address, "/ws?since=x", &[bearer(&server.key)], PATIENCE);
    assert_eq!(bad.unwrap().status, 400);
}

#[test]
fn pages_of_declared_origins_may_connect_and_read() {
    let schema =
        model::schema::BOOKSHOP.replace("origins = []", "origins = [\"https://a.example\"]");
    let server = Start::schema(&schema).go();
    let origin = "Origin: https://a.example".to_owned();
    let opened = Socket::ask(server.address, "/ws", &[bearer(&server.key), origin], PATIENCE);
    assert_eq!(opened.unwrap().status, 101);
    let polled = server.ask("GET", "/api/messages").header("origin", "https://a.example").send();
    assert_eq!(polled.header("access-control-allow-origin"), Some("https://a.example"));
    assert!(polled.header("access-control-expose-headers").unwrap().contains("x-stream-position"));
    let other = server.ask("GET", "/api/messages").header("origin", "https://b.example").send();
    assert_eq!(other.header("access-control-allow-origin"), None);
    let before =
        server.ask_anonymously("OPTIONS", "/api/events").header("origin", "https://a.example");
    let before = before.send();
    assert_eq!(before.header("access-control-allow-origin"), Some("https://a.example"));
    assert!(before.header("access-control-allow-headers").unwrap().contains("last-event-id"));
}
