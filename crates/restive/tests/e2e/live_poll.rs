//! Short and long polls of a feed: responses, their timing, and the cost of waiting.

use crate::carry;
use crate::clock::hurried;
use crate::deadline::Deadline as _;
use crate::harness::{Answer, Server, Start, eventually};
use crate::live_client::{ask_for, bearer, curl, open_connections, write};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn ids(answer: &Answer) -> Vec<i64> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let records = answer.json.as_array().unwrap_or_else(|| panic!("{}", answer.text));
    records.iter().map(|record| record["id"].as_i64().unwrap()).collect()
}

fn position(answer: &Answer) -> &str {
    answer.header("x-stream-position").unwrap()
}

/// Waits until this many polls are held.
fn held(server: &Server, count: usize) {
    eventually("the polls are held", || open_connections(server, "poll") == count as f64);
}

#[test]
fn a_short_poll_returns_newer_records_at_once() {
    let server = Server::bookshop();
    let empty = server.get("/api/messages?since=0");
    assert_eq!((empty.status, empty.text.as_str()), (200, "[]"));
    let all: Vec<i64> = (0..5).map(|n| write(&server, &format!("m{n}"))).collect();
    server.book("no message");
    let answer = server.get("/api/messages");
    assert_eq!(ids(&answer), all, "without `since` from the beginning");
    assert_eq!(answer.json[0], server.get(&format!("/v1/messages/{}", all[0])).expect(200));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let since = |since: &str| ids(&server.get(&format!("/api/messages?since={since}")));
    assert_eq!(since(&all[1].to_string()), all[2..]);
    assert_eq!(since(position(&answer)), [0; 0]);
    assert_eq!(since(&all[4].to_string()), [0; 0]);
    // Another client gets the same.
    let output =
        curl(&server, &format!("/api/messages?since={}", all[3])).output_in_time().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told[0]["id"], all[4]);
}

#[test]
fn a_limited_poll_continues_from_its_position() {
    let server = Server::bookshop();
    let all: Vec<i64> = (0..7).map(|n| write(&server, &format!("m{n}"))).collect();
    let mut told = Vec::new();
    let mut since = "0".to_owned();
    for _ in 0..4 {
        let answer = server.get(&format!("/api/messages?since={since}&limit=2"));
        told.extend(ids(&answer));
        position(&answer).clone_into(&mut since);
    }
    assert_eq!(told, all);
    let more = server.get("/api/messages?limit=100000");
    assert_eq!(ids(&more), all, "a limit is clamped");
}

#[test]
fn a_poll_with_the_current_etag_gets_304_until_the_feed_changes() {
    let server = Server::bookshop();
    let first = write(&server, "m0");
    let target = format!("/api/messages?since={first}");
    let answer = server.get(&target);
    let tag = answer.header("etag").unwrap().to_owned();
    assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    let again = || server.ask("GET", &target).header("if-none-match", &tag).send();
    server.book("another collection");
    let same = again();
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    assert_eq!(same.header("etag"), Some(tag.as_str()));
    assert_eq!(ids(&server.get(&format!("/api/messages?since={}", position(&same)))), [0; 0]);
    let second = write(&server, "m1");
    let changed = again();
    assert_eq!(ids(&changed), [second]);
    assert_ne!(changed.header("etag"), Some(tag.as_str()));
    // Another query has another tag, and long polls have none.
    let other = server.ask("GET", "/api/messages?since=0").header("if-none-match", &tag).send();
    assert_eq!(ids(&other), [first, second]);
    let waited = server.get(&format!("{target}&wait=true"));
    assert_eq!(ids(&waited), [second]);
    assert_eq!(waited.header("etag"), None);
    assert_eq!(waited.header("cache-control"), Some("no-store"));
}

#[test]
fn a_poller_that_relies_on_its_etag_misses_no_record_during_writes() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let written = AtomicUsize::new(0);
    let (mut since, mut told) = ("0".to_owned(), Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..200).for_each(|n| {
                    write(&server, &format!("m{n}"));
                })
            });
        }
        let mut tag = String::new();
        while told.len() < 400 {
            let target = format!("/api/messages?since={since}");
            let answer = server.ask("GET", &target).header("if-none-match", &tag).send();
            if answer.status == 200 {
                told.extend(ids(&answer));
            }
            answer.header("etag").unwrap().clone_into(&mut tag);
            position(&answer).clone_into(&mut since);
            written.fetch_add(1, Relaxed);
            assert!(written.load(Relaxed) < 200_000, "{} of 400", told.len());
        }
    });
    assert_eq!(told, ids_of_all(&server));
}

fn ids_of_all(server: &Server) -> Vec<i64> {
    crate::live_client::committed(server).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn a_long_poll_responds_as_soon_as_a_record_is_committed() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let first = write(&server, "there already");
    assert_eq!(ids(&server.get("/api/messages?since=0&wait=true")), [first], "at once");
    std::thread::scope(|scope| {
        let pollers: Vec<_> = (0..20)
            .map(|_| {
                let server = &server;
                scope.spawn(move || {
                    let target = format!("/api/messages?since={first}&wait=true");
                    (server.get(&target), Instant::now())
                })
            })
            .collect();
        held(&server, 20);
        server.book("which is no message");
        assert_eq!(open_connections(&server, "poll"), 20.0, "another event wakes nobody");
        let second = write(&server, "new");
        let written = Instant::now();
        for poller in pollers {
            let (answer, at) = poller.join().unwrap();
            assert_eq!(ids(&answer), [second]);
            assert!(position(&answer).ends_with(&format!(".{second}")), "{}", position(&answer));
            let late = at.saturating_duration_since(written);
            assert!(late < Duration::from_secs(5), "answered {late:?} after the commit");
        }
    });
    held(&server, 0);
}

#[test]
fn a_long_poll_without_new_records_responds_empty_at_the_timeout() {
    const HURRY: u32 = 5;
    let server = hurried(Start::bookshop(), HURRY).go();
    write(&server, "old");
    let here = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    let began = Instant::now();
    let output = curl(&server, &format!("/api/messages?since={here}&wait=true"))
        .args(["--write-out", "\n%{http_code}"])
        .output_in_time()
        .unwrap();
    let took = began.elapsed() * HURRY;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[]\n200");
    assert!((24..60).contains(&took.as_secs()), "after {took:?}");
}

#[test]
fn a_poll_from_an_unknown_position_reports_a_gap_at_once() {
    let server = Server::bookshop();
    write(&server, "old");
    let answer = server.get("/api/messages?since=999999&wait=true");
    assert_eq!((answer.text.as_str(), answer.header("x-stream-gap")), ("[]", Some("true")));
    let here = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    assert_eq!(position(&answer), here, "from there on it is told again");
    let (epoch, sequence) = here.split_once('.').unwrap();
    let foreign = format!("{:08x}.{sequence}", u32::from_str_radix(epoch, 16).unwrap() ^ 1);
    for wait in ["", "&wait=true"] {
        let answer = server.get(&format!("/api/messages?since={foreign}{wait}"));
        assert_eq!((answer.text.as_str(), answer.header("x-stream-gap")), ("[]", Some("true")));
        assert_eq!(position(&answer), here);
    }
    let fine = server.get(&format!("/api/messages?since={here}"));
    assert_eq!(fine.header("x-stream-gap"), None);
}

#[test]
fn a_disconnected_long_poll_frees_its_resources_at_once() {
    let server = Server::bookshop();
    let target = "/api/messages?since=999&wait=true&user=ann".replace("999", "0");
    let mut waiting: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = carry::plain(server.address);
            let key = bearer(&server.key);
            let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{key}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    held(&server, 10);
    let present = server.get("/v1/presence").expect(200);
    assert_eq!(
        (&present["data"][0]["user"], &present["data"][0]["connections"]),
        (&json!("ann"), &json!(10))
    );
    waiting.truncate(4);
    held(&server, 4);
    drop(waiting);
    let mut command = curl(&server, &target);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    held(&server, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    held(&server, 0);
    eventually("the user is away", || server.get("/v1/presence").expect(200)["data"] == json!([]));
    write(&server, "nobody waits for this");
}

/// Seconds of CPU time of a server.
fn worked(server: &Server) -> f64 {
    // The fields after the name, which may contain spaces; hundredths of a second.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |place: usize| fields[place].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// One query per poll and second would be visible.
#[test]
fn waiting_long_polls_use_no_cpu() {
    const WAITERS: usize = 3_000;
    const TIME: Duration = Duration::from_secs(3);
    let server = Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off");
    let server = server.go();
    let target = format!("/api/messages?since={}&wait=true", write(&server, "the newest"));
    let mut waiting = Vec::new();
    // One account may have some 2,000 requests in progress; held polls do not count.
    for _ in 0..3 {
        waiting.extend((0..WAITERS / 3).map(|_| ask_for(&server, &target, &[])));
        held(&server, waiting.len());
    }
    let before = worked(&server);
    std::thread::sleep(TIME); // waits for: the time over which nothing happens
    let worked = worked(&server) - before;
    held(&server, WAITERS);
    assert!(worked < TIME.as_secs_f64() / 20.0, "{worked} s of work in {TIME:?}");
    drop(waiting);
}

#[test]
fn invalid_parameters_of_a_poll_are_refused_by_name() {
    let server = Server::bookshop();
    let check = |query: &str, code: &str, param: &str| {
        let error = server.get(&format!("/api/messages?{query}")).error(400, code);
        assert_eq!(error["param"], param, "{query}: {error}");
    };
    for bad in ["", "x", "-1", "1.5", "%2B1", "99999999999999999999", "0x10", "1;drop"] {
        check(&format!("since={bad}"), "invalid_parameter", "since");
    }
    for bad in ["", "yes", "2", "TRUE"] {
        check(&format!("wait={bad}"), "invalid_parameter", "wait");
    }
    for bad in ["", "0", "-1", "x", "1.5"] {
        check(&format!("limit={bad}"), "invalid_parameter", "limit");
    }
    // Reduced to the limit, as on lists.
    server.get("/api/messages?limit=99999999999").expect(200);
    check("text=x", "unknown_parameter", "text");
    server.post("/api/messages", json!({})).error(405, "method_not_allowed");
    server.get("/api/books").error(404, "route_not_found");
    server.get("/api/messages/1").error(404, "route_not_found");
    let html = server.ask("GET", "/api/messages").header("accept", "text/html").send();
    html.error(406, "not_acceptable");
}

const SCHEMA: &str = r#"
[service]
name = "desk"

[live]
mount = "/live"
socket = "/live/socket"

[collections.notes]
feed = { live_name = "note" }

[collections.notes.fields]
text = { type = "string", required = true }

[collections.alarms]
feed = { live_name = "alarm" }

[collections.alarms.fields]
level = { type = "integer", required = true }
"#;

#[test]
fn every_feed_can_be_polled_at_its_declared_path() {
    let server = Start::schema(SCHEMA).go();
    let make = |path: &str, body: Value| {
        server.post(path, body).expect(201)["id"].as_i64().expect("a whole number")
    };
    let note = make("/v1/notes", json!({ "text": "hello" }));
    let alarm = make("/v1/alarms", json!({ "level": 3 }));
    assert!(alarm > note);
    assert_eq!(ids(&server.get("/live/notes")), [note]);
    assert_eq!(ids(&server.get(&format!("/live/alarms?since={note}"))), [alarm]);
    assert_eq!(ids(&server.get(&format!("/live/notes?since={note}"))), [0; 0]);
    server.get("/api/messages").error(404, "route_not_found");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.get(&format!("/live/alarms?since={alarm}&wait=true")));
        held(&server, 1);
        make("/v1/notes", json!({ "text": "not for this one" }));
        let next = make("/v1/alarms", json!({ "level": 4 }));
        assert_eq!(ids(&waiting.join().unwrap()), [next]);
    });
}

#[test]
fn a_poll_returns_records_in_id_order_although_the_clock_was_set_back() {
    let server = Server::bookshop();
    let first = write(&server, "before");
    let folder = server.kill();
    let library =
        Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output_in_time();
    let library = library.expect("the program faketime is missing: `cargo xtask test` installs it");
    let library = String::from_utf8(library.stdout).unwrap();
    let start = Start::bookshop().env("LD_PRELOAD", library.trim()).env("FAKETIME", "-1h");
    let server = start.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").on(&Arc::clone(&folder)).go();
    let later: Vec<i64> = (0..3).map(|n| write(&server, &format!("after {n}"))).collect();
    let all = server.get("/api/messages?since=0");
    assert_eq!(ids(&all), [&[first][..], &later].concat());
    // A client that reads one at a time must get each of them.
    let one = server.get("/api/messages?since=0&limit=1");
    assert_eq!(ids(&one), [first]);
    let rest = server.get(&format!("/api/messages?since={}", position(&one)));
    assert_eq!(ids(&rest), later);
}
