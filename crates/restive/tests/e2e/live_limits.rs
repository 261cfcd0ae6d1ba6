//! Channel tokens that are limited to records and parents, and publishing with them: the limits
//! apply to received and sent messages, and a user cannot publish as another.

use crate::harness::{PATIENCE, Server, Start};
use crate::live_client::{Events, Opened, Socket, token, write};
use serde_json::{Value, json};

fn open(server: &Server, body: Value) -> Socket {
    let target = format!("/ws?access_token={}", token(server, body));
    let mut socket = Socket::ask(server.address, &target, &[], PATIENCE).unwrap().socket();
    socket.typed("welcome");
    socket
}

#[track_caller]
fn refused(answer: &Value, code: &str) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
}

#[test]
fn a_token_limited_to_records_and_parents_receives_no_other_events() {
    let server = Server::bookshop();
    let [dune, emma, other] = ["Dune", "Emma", "Other"].map(|title| server.book(title));
    let mut limited =
        open(&server, json!({ "user": "ann", "resources": [dune], "parents": [emma] }));
    let made = token(&server, json!({ "resources": [dune], "parents": [emma] }));
    let target = format!("/api/events?since=0&access_token={made}");
    let stream = Opened::try_get(server.address, &target, &[], PATIENCE).unwrap();
    assert_eq!(stream.status, 200, "{}", stream.head);
    let mut stream: Events = stream.events();
    server.patch(&format!("/v1/books/{other}"), json!({"price": 1})).expect(200);
    server.patch(&format!("/v1/books/{emma}"), json!({"price": 1})).expect(200);
    server.make(&format!("/v1/books/{dune}/reviews"), json!({"rating": 1}));
    write(&server, "in the feed");
    let _present = Socket::open(&server, "/ws?user=ben");
    server.patch(&format!("/v1/books/{dune}"), json!({"price": 1})).expect(200);
    let review = server.make(&format!("/v1/books/{emma}/reviews"), json!({"rating": 2}));
    let heard = [limited.message(), limited.message()];
    assert_eq!(heard[0]["type"], "book.updated", "{heard:?}");
    assert_eq!(heard[1]["type"], "review.created", "{heard:?}");
    let names = ["book.created", "book.updated", "review.created"];
    for name in names {
        let event = stream.event();
        assert!(event.is(name), "{name}: {event:?}");
    }
    assert!(heard[1].to_string().contains(&review));
    let polled = server.ask_anonymously("GET", &format!("/api/messages?access_token={made}"));
    polled.send().error(403, "permission_denied");
}

#[test]
fn a_subscription_that_the_token_does_not_allow_is_refused() {
    let server = Server::bookshop();
    let [dune, emma] = ["Dune", "Emma"].map(|title| server.book(title));
    let mut by_type = open(&server, json!({ "types": ["book.*", "message"] }));
    let mut by_record = open(&server, json!({ "resources": [dune] }));
    let mut by_parent = open(&server, json!({ "parents": [dune] }));
    let ask = |socket: &mut Socket, asked: &Value| {
        let mut message = asked.clone();
        message["type"] = json!("subscribe");
        socket.ask_for(message)
    };
    for good in [
        json!({}),
        json!({"types": "*"}),
        json!({"types": "book.created"}),
        json!({"types": ["book.*", "message"]}),
        json!({"types": "message.created"}),
        json!({"resource": emma}),
    ] {
        assert_eq!(ask(&mut by_type, &good)["type"], "ack", "{good}");
    }
    for bad in [
        json!({"types": "order.*"}),
        json!({"types": ["book.created", "order.created"]}),
        json!({"types": "typing"}),
        json!({"types": "online"}),
    ] {
        refused(&ask(&mut by_type, &bad), "permission_denied");
    }
    assert_eq!(ask(&mut by_record, &json!({"resource": dune}))["type"], "ack");
    assert_eq!(ask(&mut by_record, &json!({"types": "book.*"}))["type"], "ack");
    for bad in [json!({"resource": emma}), json!({"parent": dune}), json!({"types": "online"})] {
        refused(&ask(&mut by_record, &bad), "permission_denied");
    }
    assert_eq!(ask(&mut by_parent, &json!({"parent": dune}))["type"], "ack");
    assert_eq!(
        ask(&mut by_parent, &json!({"parent": dune, "resource": "review_1"}))["type"],
        "ack"
    );
    for bad in [json!({"parent": emma}), json!({"resource": dune})] {
        refused(&ask(&mut by_parent, &bad), "permission_denied");
    }
    // A refused subscription changes nothing: the socket receives what it received before.
    server.patch(&format!("/v1/books/{dune}"), json!({"price": 1})).expect(200);
    assert_eq!(by_record.typed("book.updated")["type"], "book.updated");
    // The same when a channel opens.
    let made = token(&server, json!({ "types": ["book.*"], "resources": [dune] }));
    for query in ["types=order.*", &format!("resource={emma}"), "types=typing", "parent=x"] {
        let target = format!("/api/events?{query}&access_token={made}");
        let stream = server.ask_anonymously("GET", &target).send();
        let error = stream.error(403, "permission_denied");
        assert!(error["param"].is_string(), "{error}");
        let target = format!("/ws?{query}&access_token={made}");
        let socket = Socket::ask(server.address, &target, &[], PATIENCE).unwrap();
        assert_eq!(socket.status, 403, "{query}");
    }
    // The same for a restricted key.
    let (_, books) = crate::auth::create(&server, &["--scope", "books:read"]);
    let stream = server.ask("GET", "/api/events?types=order.*").key(&books).send();
    stream.error(403, "permission_denied");
}

#[test]
fn typing_respects_the_limits_of_a_token() {
    let server = Server::bookshop();
    let [dune, emma] = ["Dune", "Emma"].map(|title| server.book(title));
    let limits = json!({ "user": "ann", "publish": ["message"], "resources": [dune] });
    let mut limited = open(&server, limits.clone());
    let mut beside = open(&server, limits);
    let mut all = Socket::open(&server, "/ws?user=ben&types=typing");
    all.typed("welcome");
    for outside in [
        json!({ "type": "typing" }),
        json!({ "type": "typing", "resource": emma }),
        json!({ "type": "typing", "resource": emma, "data": { "resource": dune } }),
    ] {
        refused(&limited.ask_for(outside), "permission_denied");
    }
    limited.say(json!({ "type": "typing", "resource": dune, "data": { "n": 1 } }));
    let told = json!({ "type": "typing", "user": "ann", "resource": dune, "data": { "n": 1 } });
    assert_eq!(all.message(), told);
    assert_eq!(beside.message(), told);
    all.say(json!({ "type": "typing", "data": { "n": 2 } }));
    all.say(json!({ "type": "typing", "resource": emma, "data": { "n": 3 } }));
    all.say(json!({ "type": "typing", "resource": dune, "data": { "n": 4 } }));
    assert_eq!(beside.message()["data"]["n"], 4, "and nothing before it");
    assert_eq!(limited.message()["data"]["n"], 4);
    let wrong = limited.ask_for(json!({ "type": "typing", "resource": 7 }));
    refused(&wrong, "invalid_parameter");
}

#[test]
fn invalid_limits_of_a_token_are_refused_by_field() {
    let server = Server::bookshop();
    let made = server.post("/v1/channel-tokens", json!({ "resources": ["book_1"] }));
    let made = made.expect(201);
    assert_eq!((&made["resources"], &made["parents"]), (&json!(["book_1"]), &json!([])));
    // The largest token that can be requested is accepted.
    let ids: Vec<String> = (0..20).map(|number| format!("we_{number:0>61}")).collect();
    let types = vec!["webhook_endpoint.disabled"; 50];
    let user = "\u{1f980}".repeat(200);
    let large = json!({ "user": user, "types": types, "resources": ids, "parents": ids });
    let large = token(&server, large);
    let opened = server.ask("GET", "/api/events?types=nonsense").key(&large).send();
    opened.error(400, "invalid_parameter");
    for (field, value) in [
        ("resources", json!("book_1")),
        // An empty list must not mean all records.
        ("resources", json!([])),
        ("parents", json!([])),
        ("types", json!([])),
        ("resources", json!(null)),
        ("parents", json!(null)),
        ("types", json!(null)),
        ("resources", json!([1])),
        ("resources", json!([""])),
        ("resources", json!(["a b"])),
        ("parents", json!(["x".repeat(65)])),
        ("parents", json!(vec!["x"; 21])),
    ] {
        let refused = server.post("/v1/channel-tokens", json!({ field: value }));
        let error = refused.error(422, "validation_failed");
        assert_eq!(error["errors"][0]["field"], field, "{error}");
    }
}

#[test]
fn a_client_cannot_publish_as_another_user() {
    let server = Server::bookshop();
    let mut ann = open(&server, json!({ "user": "ann", "publish": ["message"] }));
    let mut nobody = open(&server, json!({ "publish": ["message"] }));
    let mut listener = Events::open(&server, "/api/events?types=message");
    let mut number = 0;
    let mut say = |socket: &mut Socket, data: Value| {
        number += 1;
        let reference = format!("message {number}");
        socket.say(json!({ "type": "message", "ref": reference, "data": data }));
        loop {
            let answer = socket.message();
            if answer["ref"] == reference.as_str() {
                return answer;
            }
        }
    };
    assert_eq!(say(&mut ann, json!({ "text": "hello" }))["type"], "ack");
    let told = listener.named("message").json();
    assert_eq!((&told["from"], &told["text"]), (&json!("ann"), &json!("hello")));
    assert_eq!(say(&mut ann, json!({ "text": "me", "from": "ann" }))["type"], "ack");
    assert_eq!(listener.named("message").json()["from"], "ann");
    assert_eq!(say(&mut ann, json!({ "text": "null", "from": null }))["type"], "ack");
    assert_eq!(listener.named("message").json()["from"], "ann");
    for forged in [json!("ben"), json!("Ann"), json!("")] {
        let answer = say(&mut ann, json!({ "text": "forged", "from": forged }));
        refused(&answer, "permission_denied");
        assert_eq!(answer["error"]["param"], "from", "{answer}");
    }
    refused(&say(&mut nobody, json!({ "text": "forged", "from": "ann" })), "permission_denied");
    assert_eq!(say(&mut nobody, json!({ "text": "by nobody" }))["type"], "ack");
    assert_eq!(listener.named("message").json()["from"], Value::Null);
    // The owner of a key may name any user, for the connection or a message.
    let mut own = Socket::open(&server, "/ws?user=cat");
    assert_eq!(say(&mut own, json!({ "text": "own" }))["type"], "ack");
    assert_eq!(listener.named("message").json()["from"], "cat");
    refused(&say(&mut own, json!({ "text": "other", "from": "dan" })), "permission_denied");
    let mut plain = Socket::open(&server, "/ws");
    assert_eq!(say(&mut plain, json!({ "text": "plain", "from": "eve" }))["type"], "ack");
    assert_eq!(listener.named("message").json()["from"], "eve");
    server.post("/v1/messages", json!({ "text": "posted", "from": "fay" })).expect(201);
    assert_eq!(listener.named("message").json()["from"], "fay");
}

#[test]
fn the_author_of_a_feed_must_be_one_of_its_string_fields() {
    let schema = |feed: &str, field: &str| {
        format!("[collections.notes]\nfeed = {{ {feed} }}\n[collections.notes.fields]\n{field}\n")
    };
    Start::schema(&schema("author = \"by\"", "by = \"string\"")).go();
    for (feed, field, words) in [
        ("author = \"who\"", "by = \"string\"", "`who`"),
        ("author = \"by\"", "by = \"integer\"", "string"),
        ("author = \"by\"", "by = { type = \"string\", read_only = true }", "read_only"),
        ("author = 7", "by = \"string\"", "author"),
    ] {
        let (code, text) = Start::schema(&schema(feed, field)).fails();
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("author") && text.contains(words), "{text}");
    }
}
