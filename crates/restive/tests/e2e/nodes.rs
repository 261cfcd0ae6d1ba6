//! Several servers on one database, and a database that is away. Only where the suite runs on
//! PostgreSQL; elsewhere there is nothing to share.

use crate::clock::Clock;
use crate::database;
use crate::deadline::Deadline as _;
use crate::harness::{PATIENCE, Server, Start, eventually, run};
use crate::live_client::{Events, Socket};
use crate::relay::{Plan, Relay};
use model::Timestamp;
use serde_json::{Value, json};
use std::net::ToSocketAddrs as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Servers on one database, each with a folder of its own; none where the suite runs on files.
fn nodes(count: usize) -> Option<(Arc<TempDir>, Vec<Server>)> {
    let shared = Arc::new(TempDir::new().unwrap());
    let url = database::of(shared.path())?;
    let start = |_| Start::bookshop().env("RESTIVE_DATABASE", &url).go();
    Some((shared, (0..count).map(start).collect()))
}

/// A server behind a relay to its database.
fn relayed() -> Option<(Server, Relay)> {
    let folder = Arc::new(TempDir::new().unwrap());
    let (through, relay) = through_relay(&database::of(folder.path())?);
    Some((Start::bookshop().on(&folder).env("RESTIVE_DATABASE", &through).go(), relay))
}

/// The URL of a database with a relay in between.
pub fn through_relay(url: &str) -> (String, Relay) {
    let (head, rest) = url.split_once('@').unwrap();
    let (host, rest) = rest.split_once('/').unwrap();
    let relay = Relay::to(host.to_socket_addrs().unwrap().next().unwrap());
    (format!("{head}@{}/{rest}", relay.address), relay)
}

#[test]
fn a_write_on_one_server_is_read_on_another_and_never_answered_as_unchanged() {
    let Some((_shared, servers)) = nodes(2) else { return };
    let (a, b) = (&servers[0], &servers[1]);
    for n in 0..20 {
        let before = b.get("/v1/books");
        let tag = before.header("etag").unwrap().to_owned();
        let book = a.book(&format!("T{n}"));
        let after = b.ask("GET", "/v1/books").header("if-none-match", &tag).send();
        assert_eq!(after.status, 200, "it has changed");
        assert_eq!(after.json["data"][0]["id"], book.as_str());
        let tag = b.get("/v1/books").header("etag").unwrap().to_owned();
        let again = b.ask("GET", "/v1/books").header("if-none-match", &tag).send();
        assert_eq!(again.status, 304, "nothing has changed since");
        let path = format!("/v1/books/{book}");
        assert_eq!(b.get(&path).expect(200), a.get(&path).expect(200));
        let found = b.get(&format!("/v1/books?q=T{n}")).expect(200);
        assert_eq!(found["data"][0]["id"], book.as_str());
    }
}

#[test]
fn a_server_on_an_older_file_says_so_in_its_health_and_to_writers() {
    let shared = Arc::new(TempDir::new().unwrap());
    let Some(url) = database::of(shared.path()) else { return };
    let file = |fields: &str| {
        let text = format!("[collections.books.fields]\ntitle = \"string\"\n{fields}");
        Start::schema(&text).env("RESTIVE_DATABASE", &url).go()
    };
    let old = file("");
    old.post("/v1/books", json!({"title": "A"})).expect(201);
    let new = file("pages = \"integer\"\n");
    eventually("the health check fails", || old.get("/health").status == 503);
    let health = old.get("/health").json;
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.contains("newer schema file"), "{health}");
    let refused = old.post("/v1/books", json!({"title": "B"}));
    assert!(refused.header("retry-after").is_some());
    let error = refused.error(503, "overloaded");
    assert!(error.to_string().contains("newer schema file"), "{error}");
    assert_eq!(old.get("/v1/books").expect(200)["data"].as_array().unwrap().len(), 1);
    new.post("/v1/books", json!({"title": "C", "pages": 1})).expect(201);
    new.get("/health").expect(200);
    eventually("the new one does all of the work", || leases(&url, 2) == [0, 256]);
}

/// How many leases each of so many servers holds, the fewest first.
fn leases(url: &str, servers: usize) -> Vec<u64> {
    let folder = TempDir::new().unwrap();
    let (status, error, code) =
        run(folder.path(), &["cluster", "status", "--database", url, "--json"]);
    assert_eq!(code, 0, "{error}");
    let status: Value = serde_json::from_str(&status).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), servers, "{status}");
    let mut leases: Vec<u64> = nodes.iter().map(|node| node["leases"].as_u64().unwrap()).collect();
    leases.sort_unstable();
    leases
}

#[test]
fn a_server_with_a_wrong_clock_writes_nothing_and_leaves_its_work_to_others() {
    const HOUR: i64 = 3_600;
    let shared = Arc::new(TempDir::new().unwrap());
    let Some(url) = database::of(shared.path()) else { return };
    let clock = Clock::new();
    let strict = |start: Start| {
        let start = start.env("RESTIVE_DATABASE", &url);
        start.env("RESTIVE_MAX_CLOCK_DIFFERENCE", "10")
    };
    let right = strict(Start::bookshop()).go();
    for (ahead, side) in [(HOUR, "3600 s ahead of"), (-HOUR, "3600 s behind")] {
        clock.set(ahead);
        let (code, error) = clock.of(strict(Start::bookshop())).fails();
        assert!(code == 1 && error.contains("the clock of this machine is"), "{error}");
        assert!(error.contains(side) || error.contains("359"), "{error}");
    }
    clock.set(0);
    let wrong = clock.of(strict(Start::bookshop())).go();
    wrong.book("before");
    eventually("both work", || leases(&url, 2) == [128, 128]);
    clock.set(HOUR);
    eventually("the health check fails", || wrong.get("/health").status == 503);
    assert!(wrong.get("/health").json["reason"].as_str().unwrap().contains("set both by NTP"));
    let book = json!({"title": "A", "author": "a"});
    wrong.post("/v1/books", book.clone()).error(503, "overloaded");
    assert_eq!(wrong.get("/v1/books").titles(), ["before"]);
    eventually("the other does all of the work", || leases(&url, 2) == [0, 256]);
    right.book("meanwhile");
    clock.set(0);
    eventually("it writes again", || wrong.post("/v1/books", book.clone()).status == 201);
    eventually("it has its part again", || leases(&url, 2)[0] > 0);
    let created = right.get("/v1/books").column("created_at");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(60);
    let limit = Timestamp(i64::try_from(now.as_millis()).unwrap()).to_iso();
    assert!(created.iter().all(|at| at.as_str().unwrap() < limit.as_str()), "{created:?}");
}

#[test]
fn a_dump_that_is_restored_elsewhere_is_another_log() {
    let shared = Arc::new(TempDir::new().unwrap());
    let Some(url) = database::of(shared.path()) else { return };
    let server = Start::bookshop().env("RESTIVE_DATABASE", &url).go();
    server.book("A");
    let (place, schema) = url.split_once("?schema=").unwrap();
    let other = format!("{}/r{schema}", place.rsplit_once('/').unwrap().0);
    database::run(&url, &format!("CREATE DATABASE r{schema}"));
    let dump = format!("pg_dump --schema={schema} '{place}' | psql -qX '{other}'");
    let moved = Command::new("sh").args(["-c", &dump]).output_in_time().unwrap();
    assert!(moved.status.success(), "{moved:?}");
    server.book("after the dump");
    let position = Events::open(&server, "/api/events?since=0").named("book.created").id.unwrap();
    drop(server);
    let restored = format!("{other}?schema={schema}");
    let restored = Start::bookshop().env("RESTIVE_DATABASE", &restored).go();
    restored.book("B");
    let mut again = Events::open_from(&restored, "/api/events", Some(&position));
    let first = again.event();
    assert!(first.is("stream.reset"), "{first:?}");
}

#[test]
fn a_key_that_is_revoked_on_one_server_ends_on_all() {
    let Some((_shared, servers)) = nodes(2) else { return };
    let (a, b) = (&servers[0], &servers[1]);
    let key = a.post("/v1/keys", json!({"name": "second", "scopes": null})).expect(201);
    let secret = key["secret"].as_str().unwrap();
    assert_eq!(b.ask("GET", "/v1/books").key(secret).send().status, 200);
    a.delete(&format!("/v1/keys/{}", key["id"].as_str().unwrap())).expect(200);
    eventually("the other server refuses it", || {
        b.ask("GET", "/v1/books").key(secret).send().status == 401
    });
}

#[test]
fn a_stream_on_one_server_shows_what_is_committed_on_another() {
    let Some((_shared, servers)) = nodes(2) else { return };
    let (a, b) = (&servers[0], &servers[1]);
    let mut events = Events::open(b, "/api/events?types=book.created");
    let mut times = Vec::new();
    for n in 0..30 {
        let began = Instant::now();
        let book = a.book(&format!("T{n}"));
        let event = events.named("book.created");
        assert!(event.json().to_string().contains(&book));
        times.push(began.elapsed());
    }
    times.sort();
    println!("request to event on another server: p50 {:?}", times[15]);
    assert!(times[15] < Duration::from_millis(500), "{times:?}");
}

#[test]
fn while_the_database_is_away_writes_are_refused_and_streams_stay_open() {
    let Some((server, relay)) = relayed() else { return };
    let book = server.book("before");
    let mut events = Events::open(&server, "/api/events?types=book.created");
    // Nobody gets through.
    relay.plan(vec![Plan::Refuse; 10_000]);
    relay.cut();
    let refused = server.post("/v1/books", json!({"title": "away", "author": "x"}));
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.header("retry-after").is_some());
    assert!(refused.text.contains("nothing was written"), "{}", refused.text);
    assert_eq!(server.get(&format!("/v1/books/{book}")).status, 503);
    assert_eq!(server.get("/health").status, 503);
    relay.forget();
    let mut made = None;
    eventually("writes work again", || {
        let answer = server.post("/v1/books", json!({"title": "back", "author": "x"}));
        made = (answer.status == 201).then(|| answer.id());
        made.is_some()
    });
    let event = events.named("book.created");
    assert!(event.json().to_string().contains(&made.unwrap()), "the stream was never closed");
    assert_eq!(server.get("/v1/books?q=away").expect(200)["data"], json!([]));
    eventually("the server is healthy", || server.get("/health").status == 200);
}

#[test]
fn a_fault_of_the_database_is_no_sign_that_a_key_was_revoked() {
    let Some((server, relay)) = relayed() else { return };
    let mut socket = Socket::open(&server, "/ws?types=book.created");
    socket.typed("welcome");
    // A key has changed: the socket looks at its own before it does anything more.
    server.post("/v1/keys", json!({"name": "second", "scopes": null})).expect(201);
    relay.plan(vec![Plan::Refuse; 10_000]);
    relay.cut();
    socket.say(json!({"type": "ping"}));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        assert_eq!(server.get("/v1/books").status, 503);
    }
    relay.forget();
    socket.typed("pong");
}

#[test]
fn a_socket_continues_after_a_position_that_its_server_has_not_seen_yet() {
    let Some((_shared, servers)) = nodes(2) else { return };
    let (a, b) = (&servers[0], &servers[1]);
    let mut sockets: Vec<Socket> =
        (0..20).map(|_| Socket::open(b, "/ws?types=order.created")).collect();
    for (n, socket) in sockets.iter_mut().enumerate() {
        socket.typed("welcome");
        a.book(&format!("T{n}"));
        let position = a.get("/v1/books").header("x-stream-position").unwrap().to_owned();
        let subscribe = json!({"type": "subscribe", "types": "book.created", "since": position});
        let ack = socket.ask_for(subscribe);
        assert_eq!((&ack["type"], &ack["position"]), (&json!("ack"), &json!(position)), "{ack}");
        a.book(&format!("after {n}"));
        let next = socket.message();
        assert!(next.to_string().contains(&format!("after {n}")), "{next}");
    }
}

/// Titles of books by what the server answered.
#[derive(Default)]
struct Answered {
    made: Vec<String>,
    refused: Vec<String>,
}

/// Creates books until it is over, or the test has failed; counts those that are acknowledged.
fn write_until(over: &AtomicBool, server: &Server, worker: usize, acked: &AtomicU64) -> Answered {
    let (mut answered, began) = (Answered::default(), Instant::now());
    for n in 0.. {
        if over.load(Relaxed) || began.elapsed() > 4 * PATIENCE {
            break;
        }
        let title = format!("w{worker}x{n}");
        match server.post("/v1/books", json!({"title": title, "author": "x"})).status {
            201 => {
                answered.made.push(title);
                acked.fetch_add(1, Relaxed);
            }
            503 => answered.refused.push(title),
            500 => {}
            other => panic!("{other}"),
        }
    }
    answered
}

#[test]
fn connections_that_are_cut_under_load_lose_and_double_nothing() {
    let Some((server, relay)) = relayed() else { return };
    let (over, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 6]);
    let total = || counts.iter().map(|count| count.load(Relaxed)).sum::<u64>();
    let answers: Vec<Answered> = std::thread::scope(|scope| {
        let (server, over) = (&server, &over);
        let writer =
            |(worker, acked)| scope.spawn(move || write_until(over, server, worker, acked));
        let writers: Vec<_> = counts.iter().enumerate().map(writer).collect();
        let everyone = || counts.iter().all(|count| count.load(Relaxed) > 0);
        for cut in 0u64.. {
            if cut >= 25 && everyone() {
                break;
            }
            // A slow machine gets as many writes between two cuts as a fast one.
            let before = total();
            eventually("some writes are acknowledged", || total() > before);
            // waits for: another part of a transaction each time
            std::thread::sleep(Duration::from_millis(cut * 7 % 40));
            relay.cut();
        }
        over.store(true, Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let found = |title: &str| {
        let list = server.get(&format!("/v1/books?q={title}"));
        (list.status == 200).then(|| list.json["data"].as_array().unwrap().len())
    };
    let settled = |title: &String| {
        let began = Instant::now();
        loop {
            if let Some(count) = found(title) {
                return count;
            }
            assert!(began.elapsed() < PATIENCE);
        }
    };
    for Answered { made, refused } in answers {
        assert!(made.iter().all(|title| settled(title) == 1), "each exactly once");
        assert!(refused.iter().all(|title| settled(title) == 0), "nothing was written");
    }
}

/// One session has written elsewhere, one has only a transaction number, one keeps an old snapshot.
#[test]
fn transactions_that_stay_open_elsewhere_delay_no_write_and_hide_no_event() {
    let Some((shared, servers)) = nodes(2) else { return };
    let url = database::of(shared.path()).unwrap();
    let idle = [
        "BEGIN; CREATE TABLE elsewhere (x bigint); INSERT INTO elsewhere VALUES (1)",
        "BEGIN; SELECT pg_current_xact_id()",
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM log",
    ];
    let _open = idle.map(|sql| database::Session::begin(&url, sql));
    let time = Duration::from_secs(if database::is_long() { 30 } else { 3 });
    let (a, b) = (&servers[0], &servers[1]);
    let mut events = [a, b].map(|node| Events::open(node, "/api/events?types=book.created"));
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    for n in 0.. {
        if began.elapsed() > time {
            break;
        }
        let asked = Instant::now();
        let book = [a, b][n % 2].book(&format!("T{n}"));
        for events in &mut events {
            let event = events.named("book.created").json().to_string();
            assert!(event.contains(&book), "the next event is that of the write: {event}");
        }
        slowest = slowest.max(asked.elapsed());
    }
    println!("write and event at two nodes: {slowest:?} at most");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn a_server_that_cannot_use_its_database_says_why_in_one_line() {
    if !database::is_postgres() {
        return;
    }
    for (url, expected) in [
        ("mysql://u:geheim@h/d", "must begin with postgres://"),
        ("postgres://u:geheim@127.0.0.1:1/shop", "127.0.0.1:1"),
        ("postgres://u:geheim@127.0.0.1:1/shop?sslmode=perhaps", "sslmode `perhaps`"),
    ] {
        let (code, error) = Start::bookshop().env("RESTIVE_DATABASE", url).fails();
        assert_eq!(code, 1, "{error}");
        assert!(error.contains(expected) && !error.contains("geheim"), "{error}");
    }
}
