//! Live channels of two accounts: actions of one account do not affect the other, a subscriber
//! learns of missed messages, and aborted connections leave gauges at zero.

use crate::auth::account;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{Events, Socket, ask_for, figures, handshake, open_connections, write};
use crate::live_slow::{LAST, flood, quick};
use serde_json::{Value, json};
use socket2::SockRef;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

const LOG_READS: &str = "restive_live_log_reads_total";
const PRESENCE_RESET: &str = "presence.reset";

/// The current position of the log.
fn position(server: &Server) -> String {
    server.get("/v1/books").header("x-stream-position").unwrap().to_owned()
}

fn post_as(server: &Server, key: &str, path: &str, body: Value) -> Value {
    server.ask("POST", path).key(key).json(&body).send().expect(201)
}

#[test]
fn erasures_of_one_account_do_not_make_subscribers_of_another_read_the_log() {
    const RECORDS: usize = 1_000;
    const WORKERS: usize = 4;
    let server = quick();
    let (_, other, _) = account(&server, "Other shop");
    let begin = position(&server);
    let open = |key: &str, target: &str| {
        Events::try_open(server.address, key, target, None, PATIENCE).unwrap()
    };
    let mut listeners: Vec<Events> =
        (0..20).map(|_| open(&other, "/api/events?types=message")).collect();
    let (first, last) = ("before the erasures", "after the erasures");
    post_as(&server, &other, "/v1/messages", json!({ "text": first }));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let server = &server;
            scope.spawn(move || {
                for number in 0..RECORDS / WORKERS {
                    let id = server.book(&format!("secret {worker} {number}"));
                    server.post("/v1/erasures", json!({ "resource": id })).expect(201);
                }
            });
        }
        for number in 0..100 {
            post_as(&server, &other, "/v1/messages", json!({ "text": format!("{number}") }));
        }
    });
    post_as(&server, &other, "/v1/messages", json!({ "text": last }));
    let mut expected = vec![first.to_owned()];
    expected.extend((0..100).map(|number| number.to_string()));
    expected.push(last.to_owned());
    // A subscriber that resumes from the beginning also finds its account's events in memory.
    listeners.push(open(&other, &format!("/api/events?types=message&since={begin}")));
    for listener in &mut listeners {
        assert_eq!(listener.texts_until(last), expected);
    }
    assert_eq!(figures(&server)[LOG_READS], 0.0, "the other account reads the log");
    // The erased form of the account's own records is served from memory too.
    let mut late = open(KEY, &format!("/api/events?types=book.*&since={begin}"));
    for _ in 0..RECORDS {
        let object = late.named("book.created").json()["data"]["object"].clone();
        let expected = json!({ "id": object["id"], "object": "book", "erased": true });
        assert_eq!(object, expected);
    }
    assert_eq!(figures(&server)[LOG_READS], 0.0);
}

#[test]
fn a_record_written_after_its_erasure_is_shown_with_its_new_content() {
    let server = quick();
    let begin = position(&server);
    let _somebody = Events::open(&server, "/api/events?types=order.*");
    let id = server.book("secret");
    server.post("/v1/erasures", json!({ "resource": id })).expect(201);
    server.patch(&format!("/v1/books/{id}"), json!({ "title": "open" })).expect(200);
    let mut late = Events::open(&server, &format!("/api/events?types=book.*&since={begin}"));
    let created = late.event().json();
    assert_eq!(created["data"]["object"]["erased"], true, "{created}");
    let updated = late.event().json();
    assert_eq!(updated["data"]["object"]["title"], "open", "{updated}");
}

/// Waits until a connection receives nothing more.
fn stalls(server: &Server, channel: &str) {
    let (mut sent, mut same) = (f64::NAN, 0);
    eventually("it stalls", || {
        let now = figures(server)[&format!("restive_live_messages_total{{channel=\"{channel}\"}}")];
        same = if std::mem::replace(&mut sent, now) == now { same + 1 } else { 0 };
        same == 50
    });
}

/// Reads up to the last message of the flood; returns the resets and the number of messages.
fn blocks_until_last(mut next: impl FnMut() -> (bool, Value)) -> (Vec<Value>, usize) {
    let (mut resets, mut texts) = (Vec::new(), 0);
    loop {
        let (is_reset, data) = next();
        if is_reset {
            resets.push(data);
            continue;
        }
        texts += usize::from(data["text"].is_string());
        if data["text"] == LAST {
            return (resets, texts);
        }
    }
}

#[test]
fn a_subscriber_that_missed_presence_gets_presence_reset() {
    const COUNT: usize = 400;
    let server = quick();
    let mut stream = Events::open_narrow(&server, "/api/events?types=message,typing,online");
    let mut socket = Socket::open_narrow(&server, "/ws?types=message,online");
    let mut lively = Events::open(&server, "/api/events?types=typing,online");
    lively.next();
    flood(&server, COUNT, &AtomicUsize::new(0));
    stalls(&server, "sse");
    stalls(&server, "websocket");
    let mut typist = Socket::open(&server, "/ws?types=message&user=ann");
    typist.say(json!({ "type": "typing", "data": {} }));
    let mut heard = [lively.event(), lively.event()].map(|block| block.event.unwrap());
    heard.sort();
    assert_eq!(heard, ["online", "typing"]);
    // Three missed: both by the stream, and the user's coming online by the socket.
    eventually("what is missed is counted", || {
        figures(&server)["restive_live_dropped_total"] == 3.0
    });
    let refetch = json!(["/v1/presence"]);
    // The reset precedes the rest of the events, none of which is missing.
    let (resets, texts) = blocks_until_last(|| {
        let block = stream.event();
        let reset = block.is(PRESENCE_RESET);
        assert!(!reset || block.id.is_none(), "it has no place in the log");
        (reset, block.json())
    });
    assert_eq!(resets, [json!({ "missed": ["online", "typing"], "refetch": refetch })]);
    assert_eq!(texts, COUNT + 1);
    let (resets, texts) = blocks_until_last(|| {
        let message = socket.message();
        (message["type"] == PRESENCE_RESET, message["data"].clone())
    });
    assert_eq!(resets, [json!({ "missed": ["online"], "refetch": refetch })]);
    assert_eq!(texts, COUNT + 1);
    // Later messages arrive again.
    let present = server.get("/v1/presence").expect(200);
    assert_eq!(present["data"][0]["user"], "ann");
    typist.say(json!({ "type": "typing", "data": { "n": 2 } }));
    let next = stream.event();
    assert!(next.is("typing"), "once is enough: {next:?}");
    assert_eq!(figures(&server)["restive_live_presence_resets_total"], 2.0);
}

#[test]
fn a_flood_of_typing_in_one_account_displaces_no_messages_of_another() {
    const TYPISTS: usize = 24;
    let server = quick();
    let (_, other, _) = account(&server, "Other shop");
    let mut listener =
        Events::try_open(server.address, &other, "/api/events?types=online", None, PATIENCE)
            .unwrap();
    listener.next();
    let mut typists: Vec<Socket> =
        (0..TYPISTS).map(|_| Socket::open(&server, "/ws?types=order.*")).collect();
    std::thread::scope(|scope| {
        for typist in &mut typists {
            scope.spawn(move || {
                for number in 0..200 {
                    typist.say(json!({ "type": "typing", "data": { "number": number } }));
                }
            });
        }
        let mut present = Vec::new();
        for number in 0..20 {
            let target = format!("/ws?user=user{number}");
            let socket = Socket::try_open(server.address, &other, &target, PATIENCE).unwrap();
            let told = listener.event();
            assert!(told.is("online"), "{told:?}");
            assert_eq!(told.json(), json!({ "user": format!("user{number}"), "online": true }));
            present.push(socket);
        }
    });
}

#[test]
fn disconnects_of_one_account_cause_no_presence_reset_in_another() {
    let server = quick();
    let (_, other, _) = account(&server, "Other shop");
    let mut listener = Events::open(&server, "/api/events?types=typing");
    listener.next();
    let mut foreign = Socket::try_open(server.address, &other, "/ws", PATIENCE).unwrap();
    for number in 0..5 {
        foreign.say(json!({ "type": "typing", "data": { "number": number } }));
    }
    let mut typist = Socket::open(&server, "/ws?types=order.*");
    eventually("both are there", || open_connections(&server, "websocket") == 2.0);
    drop(foreign);
    eventually("one has left", || open_connections(&server, "websocket") == 1.0);
    // waits for: the next tick of 500 ms, at which the buffers of accounts that left are dropped
    std::thread::sleep(Duration::from_millis(1_100));
    typist.say(json!({ "type": "typing", "data": { "number": 7 } }));
    let first = listener.event();
    assert!(first.is("typing"), "{first:?}");
    assert_eq!(figures(&server)["restive_live_presence_resets_total"], 0.0);
}

/// Resets a connection instead of closing it.
fn abort(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

#[test]
fn many_aborted_connections_leave_every_gauge_at_zero() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off");
    let server = server.go();
    let newest = write(&server, "the newest");
    let poll = format!("/api/messages?since={newest}&wait=true&user=cat");
    for round in 0..3 {
        let mut storm = Vec::new();
        for number in 0..60 {
            let user = format!("user{}", number % 7);
            storm.push(ask_for(&server, &format!("/api/events?user={user}"), &[]));
            storm.push(ask_for(&server, &poll, &[]));
            let headers = handshake().map(str::to_owned);
            storm.push(ask_for(&server, &format!("/ws?user={user}"), &headers));
            // Some while their request or their first messages are in transit, some later.
            if number % 3 == round {
                storm.drain(..).for_each(abort);
                write(&server, "in between");
            }
        }
        storm.into_iter().for_each(abort);
    }
    let gauges = || {
        let figures = figures(&server);
        let names = ["connections", "users", "lag_events"];
        let gauge =
            |name: &str| names.iter().any(|one| name.starts_with(&format!("restive_live_{one}")));
        let mut sums: Vec<(String, f64)> =
            figures.into_iter().filter(|(name, _)| gauge(name)).collect();
        sums.sort_by(|one, other| one.0.cmp(&other.0));
        sums
    };
    assert_eq!(gauges().len(), 5, "{:?}", gauges());
    eventually("every gauge is at zero", || gauges().iter().all(|(_, value)| *value == 0.0));
    assert_eq!(server.get("/v1/presence").expect(200)["pagination"]["total"], 0);
}

#[test]
fn many_subscribers_of_one_account_delay_no_other_account() {
    const MANY_CONNECTIONS: usize = 1_500;
    const ROUNDS: usize = 20;
    let _alone = crate::hostile::MANY_CONNECTIONS.lock();
    let server = quick();
    let (_, other, _) = account(&server, "Other shop");
    let crowd: Vec<TcpStream> =
        (0..MANY_CONNECTIONS).map(|_| ask_for(&server, "/api/events?types=message", &[])).collect();
    eventually("all are heard", || open_connections(&server, "sse") == MANY_CONNECTIONS as f64);
    let mut listener =
        Events::try_open(server.address, &other, "/api/events?types=message", None, PATIENCE)
            .unwrap();
    listener.next();
    let mut waits = Vec::new();
    for round in 0..ROUNDS {
        write(&server, "for the crowd");
        let text = format!("round {round}");
        post_as(&server, &other, "/v1/messages", json!({ "text": text }));
        let began = Instant::now();
        assert_eq!(listener.texts_until(&text).len(), 1);
        waits.push(began.elapsed());
    }
    waits.sort();
    assert!(waits[ROUNDS / 2] < Duration::from_millis(100), "{waits:?}");
    // All subscribers are served in the same time.
    let sent = || figures(&server)["restive_live_messages_total{channel=\"sse\"}"];
    eventually("the crowd has it", || sent() == (MANY_CONNECTIONS * ROUNDS + ROUNDS) as f64);
    assert_eq!(figures(&server)[LOG_READS], 0.0);
    drop(crowd);
}
