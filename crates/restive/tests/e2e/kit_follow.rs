//! The followers of restive-kit: whatever breaks between them and the server, they return each
//! event once and in order.

use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::kit_client::{client_of, run};
use crate::live_client::{committed, shown, write};
use crate::live_sse::shifted;
use crate::relay::{Plan, Relay};
use restive_kit::client::{Client, TokenFuture};
use restive_kit::follow::{Builder, Channel, Error, Event, Follower, PositionFile, Update};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const LAST: &str = "the-last-one";

fn quick() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

fn channels() -> [Channel; 4] {
    let feed = || "messages".to_owned();
    [
        Channel::ShortPoll { feed: feed(), interval: Duration::from_millis(50) },
        Channel::LongPoll { feed: feed() },
        Channel::ServerSentEvents,
        Channel::WebSocket,
    ]
}

fn follower(url: &str, channel: Channel) -> Builder {
    let client = Client::builder(url).key(KEY).build().unwrap();
    let builder = Follower::builder(client, channel.clone());
    match channel {
        Channel::ShortPoll { .. } | Channel::LongPoll { .. } => builder,
        _ => builder.types(&["message"]),
    }
}

/// The next event; a gap or a wait without end fails the test.
async fn next(follower: &mut Follower) -> Event {
    loop {
        let update = tokio::time::timeout(PATIENCE, follower.next()).await;
        match update.expect("an event in time").unwrap() {
            Update::Event(event) => return event,
            Update::Message { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Asserts that nothing more arrives for a moment; this also stores the position.
async fn nothing_more(follower: &mut Follower) {
    let update = tokio::time::timeout(Duration::from_millis(300), follower.next()).await;
    assert!(update.is_err(), "{update:?}");
}

fn text(event: &Event) -> String {
    event.json::<Value>().unwrap()["text"].as_str().unwrap().to_owned()
}

/// Writes one message, retrying while the server is down.
fn write_surely(server: &Server, text: &str) {
    let ask = server.ask("POST", "/v1/messages").header("idempotency-key", text);
    let answer = ask.json(&json!({ "text": text })).send();
    assert_eq!(answer.status, 201, "{}", answer.text);
}

/// What stands between a follower and the server: each failure follows a connection that works,
/// because delays double. A poll reads whole pages, so that a cut must leave room for one.
fn obstacles(channel: &Channel) -> Vec<Plan> {
    let page = match channel {
        Channel::ShortPoll { .. } | Channel::LongPoll { .. } => 20_000,
        _ => 0,
    };
    vec![
        Plan::Cut(1),
        Plan::Cut(page + 900),
        Plan::html(200),
        Plan::Cut(page + 1501),
        Plan::status(429, "retry-after: 1\r\n", "{}"),
        Plan::Cut(page + 2222),
        Plan::html(503),
        Plan::Cut(page + 3333),
    ]
}

#[test]
fn every_channel_delivers_each_event_once_and_in_order_despite_cuts_errors_and_kills() {
    let server = quick().go();
    let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
    let relays: Vec<Relay> = channels().iter().map(|_| Relay::to(server.address)).collect();
    let planned = relays.iter().zip(channels());
    planned.for_each(|(relay, channel)| relay.plan(obstacles(&channel)));
    let (server, told) = std::thread::scope(|scope| {
        let mut server = server;
        let followers: Vec<_> = relays
            .iter()
            .zip(channels())
            .map(|(relay, channel)| {
                let (url, begin) = (relay.url(), begin.clone());
                scope.spawn(move || run(receive(follower(&url, channel).since(&begin))))
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut number, mut kills) = (0, 0);
        while kills < 2 || relays.iter().any(|relay| relay.planned() > 0) {
            assert!(Instant::now() < deadline, "some obstacles were never met");
            write_surely(&server, &format!("m{number}"));
            number += 1;
            // waits for: followers to receive events in small parts, so that cuts are inside
            std::thread::sleep(Duration::from_millis(20));
            if number % 150 == 0 && kills < 2 {
                kills += 1;
                server = quick().on(&server.kill()).go();
                relays.iter().for_each(|relay| relay.aim(server.address));
            }
        }
        write_surely(&server, LAST);
        let told = followers.into_iter().map(|follower| follower.join().unwrap());
        let told: Vec<Vec<(i64, String)>> = told.collect();
        (server, told)
    });
    let expected = committed(&server);
    assert!(expected.len() > 300);
    for (channel, told) in channels().iter().zip(told) {
        assert_eq!(told, expected, "{channel:?}");
    }
}

async fn receive(builder: Builder) -> Vec<(i64, String)> {
    let mut follower = builder.build();
    let mut told = Vec::new();
    loop {
        let event = next(&mut follower).await;
        told.push(shown(&event.json().unwrap()));
        if text(&event) == LAST {
            return told;
        }
    }
}

#[test]
fn a_follower_continues_where_the_last_process_ended_on_any_channel() {
    let server = quick().go();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("position");
    let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
    let (mut told, mut expected) = (Vec::new(), Vec::new());
    run(async {
        for (round, channel) in channels().into_iter().cycle().take(8).enumerate() {
            for number in 0..3 {
                expected.push(format!("m{round}-{number}"));
                write(&server, expected.last().unwrap());
            }
            let builder = follower(&server.url(""), channel).since(&begin);
            let mut follower = builder.store(PositionFile::new(&file)).build();
            for _ in 0..3 {
                told.push(text(&next(&mut follower).await));
            }
            nothing_more(&mut follower).await;
        }
        assert_eq!(told, expected);
        // An event that was returned and not finished is returned again.
        write(&server, "unfinished");
        for _ in 0..2 {
            let builder = follower(&server.url(""), Channel::ServerSentEvents);
            let mut follower = builder.store(PositionFile::new(&file)).build();
            assert_eq!(text(&next(&mut follower).await), "unfinished");
        }
    });
}

#[test]
fn another_database_is_reported_as_a_gap_and_its_events_follow() {
    for channel in channels().into_iter().skip(1) {
        let server = quick().go();
        let relay = Relay::to(server.address);
        run(async {
            let mut follower = follower(&relay.url(), channel.clone()).since("0").build();
            for number in 0..3 {
                write(&server, &format!("before {number}"));
                assert_eq!(text(&next(&mut follower).await), format!("before {number}"));
            }
            let other = quick().go();
            relay.aim(other.address);
            for number in 0..3 {
                write(&other, &format!("after {number}"));
            }
            drop(server);
            let update = tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap();
            let Update::Gap(gap) = update else { panic!("{update:?}") };
            assert!(matches!(&*gap.reason, "other_epoch" | "ahead_of_log"), "{gap:?}");
            assert!(!gap.refetch.is_empty(), "{gap:?}");
            let mut told = Vec::new();
            for number in 0..6 {
                if number >= 3 {
                    write(&other, &format!("after {number}"));
                }
                let event = next(&mut follower).await;
                let value: Value = event.json().unwrap();
                // Events of the list are envelopes.
                let record = if event.id().is_some() { &value["data"]["object"] } else { &value };
                told.push(record["text"].as_str().unwrap().to_owned());
            }
            let expected: Vec<String> = (0..6).map(|number| format!("after {number}")).collect();
            assert_eq!(told, expected, "{channel:?}");
            nothing_more(&mut follower).await;
        });
    }
}

#[test]
fn events_that_expired_are_reported_as_a_gap_and_the_others_follow() {
    let server = quick().go();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("position");
    let follow = |server: &Server| {
        let builder = follower(&server.url(""), Channel::ServerSentEvents).since("0");
        builder.store(PositionFile::new(&file)).build()
    };
    run(async {
        write(&server, "received");
        let mut follower = follow(&server);
        assert_eq!(text(&next(&mut follower).await), "received");
        nothing_more(&mut follower).await;
    });
    for number in 0..3 {
        write(&server, &format!("forgotten {number}"));
    }
    let server = shifted(&server.kill(), "+31d");
    // The newest event stays at any age.
    eventually("old events are gone", || {
        server.get("/v1/events?type=message.created").column("id").len() == 1
    });
    for number in 0..3 {
        write(&server, &format!("kept {number}"));
    }
    run(async {
        let mut follower = follow(&server);
        let update = tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap();
        assert!(matches!(&update, Update::Gap(gap) if gap.reason == "expired"), "{update:?}");
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != "kept 2") {
            let event: Value = next(&mut follower).await.json().unwrap();
            told.push(event["data"]["object"]["text"].as_str().unwrap().to_owned());
        }
        // It may go as well, now that it is no longer the newest.
        told.retain(|text| text != "forgotten 2");
        assert_eq!(told, ["kept 0", "kept 1", "kept 2"]);
        write(&server, "live");
        assert_eq!(text(&next(&mut follower).await), "live", "and nothing twice");
    });
}

#[test]
fn a_follower_that_begins_in_the_past_reads_the_list_and_continues_live() {
    let server = quick().go();
    for number in 0..230 {
        server.book(&format!("book {number}"));
    }
    let hour_ago = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 3600;
    let relay = Relay::to(server.address);
    relay.plan([Plan::html(502), Plan::Cut(40_000)]);
    run(async {
        let client = Client::builder(&relay.url()).key(KEY).build().unwrap();
        let builder = Follower::builder(client, Channel::WebSocket).types(&["book.*"]);
        let mut follower = builder.since_time(hour_ago).build();
        let mut told = Vec::new();
        for _ in 0..230 {
            told.push(next(&mut follower).await.id().unwrap().to_owned());
        }
        for number in 0..5 {
            server.book(&format!("live {number}"));
            told.push(next(&mut follower).await.id().unwrap().to_owned());
        }
        nothing_more(&mut follower).await;
        assert_eq!(told, listed(&server, "book.*").await);
    });
}

/// The ids of the events of a type, oldest first.
pub async fn listed(server: &Server, kinds: &str) -> Vec<String> {
    let list = client_of(server).resource("events").list();
    let list = list.query("sort", "created").query("type", kinds).query("limit", "100");
    let (mut records, mut ids) = (list.records::<Value>(), Vec::new());
    while let Some(event) = records.next().await.unwrap() {
        ids.push(event["id"].as_str().unwrap().to_owned());
    }
    ids
}

#[test]
fn a_token_that_expires_is_replaced_without_losing_an_event() {
    let server = Arc::new(quick().go());
    for channel in [Channel::ServerSentEvents, Channel::WebSocket] {
        let calls = Arc::new(AtomicUsize::new(0));
        let (counted, maker) = (calls.clone(), server.clone());
        let tokens = move || -> TokenFuture {
            counted.fetch_add(1, Relaxed);
            let maker = maker.clone();
            Box::pin(async move {
                let body = json!({ "user": "ann", "types": ["message"], "expires_in": 5 });
                let made = maker.post("/v1/channel-tokens", body).expect(201);
                Ok(made["token"].as_str().unwrap().to_owned())
            })
        };
        let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
        run(async {
            let client = Client::builder(&server.url("")).tokens(tokens).build().unwrap();
            let builder = Follower::builder(client, channel).types(&["message"]);
            let mut follower = builder.since(&begin).build();
            let mut number = 0;
            while calls.load(Relaxed) < 2 {
                write(&server, &format!("m{number}"));
                assert_eq!(text(&next(&mut follower).await), format!("m{number}"));
                number += 1;
                // waits for: the token to expire
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

#[test]
fn a_follower_without_a_position_starts_now_on_every_channel() {
    let server = quick().go();
    for channel in channels() {
        write(&server, "before");
        run(async {
            let mut follower = follower(&server.url(""), channel).build();
            nothing_more(&mut follower).await;
            write(&server, "after");
            assert_eq!(text(&next(&mut follower).await), "after");
        });
    }
}

#[test]
fn a_connection_that_falls_silent_is_replaced() {
    let server = quick().go();
    for channel in [Channel::ServerSentEvents, Channel::WebSocket] {
        let relay = Relay::to(server.address);
        relay.plan([Plan::Stall(1200)]);
        let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
        let texts: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
        for text in &texts {
            write(&server, text);
        }
        run(async {
            let builder = follower(&relay.url(), channel).since(&begin);
            let mut follower = builder.idle_timeout(Duration::from_secs(1)).build();
            for expected in &texts {
                assert_eq!(&text(&next(&mut follower).await), expected);
            }
        });
        assert!(relay.connections() >= 2);
    }
}

#[test]
fn a_server_that_asks_for_no_delay_is_not_flooded() {
    let answers = [
        (Channel::ServerSentEvents, "text/event-stream", "retry: 0\nid: abc.1\n\n"),
        (Channel::LongPoll { feed: "messages".into() }, "application/json", "[]"),
    ];
    for (channel, kind, body) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nx-stream-position: abc.1\r\n\
             retry-after: 0\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counted.fetch_add(1, Relaxed);
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        run(async {
            let mut follower = follower(&format!("http://{address}"), channel).build();
            let watched = Duration::from_millis(2500);
            let reading = async { while follower.next().await.is_ok() {} };
            assert!(tokio::time::timeout(watched, reading).await.is_err(), "it goes on");
        });
        let connections = count.load(Relaxed);
        assert!((1..=4).contains(&connections), "{connections} connections in 2.5 s");
    }
}

#[test]
fn a_caller_that_stops_waiting_does_not_shorten_the_pause_between_reads_of_the_list() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, Relaxed);
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 60\r\n\
                          connection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    run(async {
        let client = Client::builder(&format!("http://{address}")).key(KEY).retries(0);
        let builder = Follower::builder(client.build().unwrap(), Channel::ServerSentEvents);
        let mut follower = builder.since_time(1).build();
        for _ in 0..30 {
            let waited = tokio::time::timeout(Duration::from_millis(100), follower.next()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
    });
    assert_eq!(count.load(Relaxed), 1, "the server asked for a pause of a minute");
}

#[test]
fn an_event_over_the_limit_ends_the_follower_instead_of_reading_it_for_ever() {
    let server = quick().go();
    write(&server, &"x".repeat(3000));
    run(async {
        for channel in [Channel::ServerSentEvents, Channel::WebSocket] {
            let builder = follower(&server.url(""), channel).since("0").max_event_bytes(2000);
            let error = builder.build().next().await.unwrap_err();
            assert!(matches!(error, Error::TooLarge { limit_bytes: 2000 }), "{error}");
        }
    });
}

#[test]
fn a_refusal_that_is_final_ends_the_follower_with_the_reason() {
    let server = quick().go();
    run(async {
        for channel in channels() {
            let client = Client::builder(&server.url("")).key("sk_test_wrong").build().unwrap();
            let error = Follower::builder(client, channel).build().next().await.unwrap_err();
            assert!(matches!(&error, Error::Refused(_)), "{error}");
            assert!(error.to_string().contains("401"), "{error}");
        }
        let client = client_of(&server);
        let builder = Follower::builder(client.clone(), Channel::ServerSentEvents);
        let error = builder.types(&["no.such.type"]).build().next().await.unwrap_err();
        assert!(error.to_string().contains("invalid_parameter"), "{error}");
        let builder = Follower::builder(client, Channel::WebSocket);
        let error = builder.since("nonsense").build().next().await.unwrap_err();
        assert!(error.to_string().contains("since"), "{error}");
    });
}

#[test]
fn a_revoked_key_ends_a_follower_and_other_closes_do_not() {
    let server = quick().go();
    let (made, _, code) = server.tool(&["keys", "create", "--name", "follower"]);
    assert_eq!(code, 0, "{made}");
    let key = made.split_whitespace().find(|word| word.starts_with("sk_test_")).unwrap();
    let (list, _, _) = server.tool(&["keys", "list"]);
    let line =
        list.lines().find(|line| line.contains("follower")).unwrap_or_else(|| panic!("{list}"));
    let id = line.split_whitespace().next().unwrap();
    run(async {
        let client = Client::builder(&server.url("")).key(key).build().unwrap();
        let builder = Follower::builder(client, Channel::WebSocket).types(&["message"]);
        let mut follower = builder.since("0").build();
        write(&server, "before");
        assert_eq!(text(&next(&mut follower).await), "before");
        server.tool(&["keys", "revoke", id]);
        let ended = tokio::time::timeout(Duration::from_secs(60), follower.next()).await.unwrap();
        let error = ended.unwrap_err();
        assert!(matches!(error, Error::Closed { code: 4001, .. }), "{error}");
    });
}

#[test]
fn a_follower_survives_a_restart_of_the_server_that_drains() {
    for channel in channels().into_iter().skip(1) {
        let server = quick().go();
        let relay = Relay::to(server.address);
        run(async {
            let mut follower = follower(&relay.url(), channel.clone()).since("0").build();
            write(&server, "before");
            assert_eq!(text(&next(&mut follower).await), "before");
            nothing_more(&mut follower).await;
            let (_, folder) = server.stop();
            let server = quick().on(&folder).go();
            relay.aim(server.address);
            write(&server, "after");
            assert_eq!(text(&next(&mut follower).await), "after", "{channel:?}");
        });
    }
}
