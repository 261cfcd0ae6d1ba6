//! Server-sent events: the begin of a stream, its events and their names, and resuming, over every
//! version of HTTP.

use crate::clock::hurried;
use crate::deadline::Deadline as _;
use crate::harness::{KEY, Server, Start, eventually};
use crate::live_client::{Block, Curl, Events, curl, figures, write};
use crate::tools;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn quick() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

/// The current position of the log, from a list.
fn position(server: &Server) -> String {
    server.get("/v1/books").header("x-stream-position").unwrap().to_owned()
}

#[test]
fn a_stream_sends_its_position_before_the_first_event() {
    let server = Server::bookshop();
    write(&server, "before it was opened");
    let begin = position(&server);
    let mut curl = Curl::follow(curl(&server, "/api/events"));
    let first = curl.events.next();
    assert_eq!(first.id.as_deref(), Some(begin.as_str()));
    assert!(matches!(first.retry, Some(1_000..=10_000)), "{first:?}");
    assert_eq!((first.event, first.data), (None, None), "a browser dispatches nothing for it");
    write(&server, "after it was opened");
    let next = curl.events.next();
    assert_eq!(next.json()["text"], "after it was opened", "and nothing from before");
    drop(curl);
    // A client that is cut off before the first event resumes from there.
    let mut events = Events::open_from(&server, "/api/events", Some(&begin));
    assert_eq!(events.event(), next);
}

#[test]
fn a_stream_resumes_from_header_or_parameter_and_the_header_takes_precedence() {
    let server = Server::bookshop();
    let ids: Vec<i64> = (0..4).map(|n| write(&server, &format!("m{n}"))).collect();
    let first_of = |target: &str, last: Option<&str>| {
        let mut events = Events::open_from(&server, target, last);
        events.event().json()["text"].as_str().unwrap().to_owned()
    };
    let at = |id: i64| format!("{}.{id}", position(&server).split_once('.').unwrap().0);
    assert_eq!(first_of("/api/events", Some(&at(ids[0]))), "m1");
    assert_eq!(first_of("/api/events", Some(&ids[0].to_string())), "m1", "a record's id is one");
    assert_eq!(first_of(&format!("/api/events?last_event_id={}", at(ids[1])), None), "m2");
    assert_eq!(first_of(&format!("/api/events?since={}", ids[2]), None), "m3");
    assert_eq!(first_of(&format!("/api/events?since={}", ids[2]), Some(&at(ids[0]))), "m1");
    // A browser sends this before its first event.
    let mut events = Events::open_from(&server, "/api/events", Some(""));
    write(&server, "m4");
    assert_eq!(events.event().json()["text"], "m4");
}

#[test]
fn a_stream_names_records_by_live_name_and_events_by_type() {
    let server = Server::bookshop();
    let mut events = Events::open(&server, "/api/events");
    let text = "lines\r\nand \"quotes\"\u{2028} and \u{1F600}\nand data: more";
    let id = write(&server, text);
    let message = events.event();
    assert!(message.is("message"));
    assert_eq!(message.json(), server.get(&format!("/v1/messages/{id}")).expect(200));
    assert_eq!(message.json()["text"], text);
    assert_eq!(message.id.unwrap().split_once('.').unwrap().1, id.to_string());
    let book = server.book("Dune");
    let created = events.event();
    assert!(created.is("book.created"));
    assert_eq!(created.json()["type"], "book.created");
    assert_eq!(created.json()["data"]["object"]["id"], book);
    server.patch(&format!("/v1/books/{book}"), json!({ "title": "Dune II" })).expect(200);
    let updated = events.event();
    assert!(updated.is("book.updated"));
    assert_eq!(updated.json()["data"]["previous_attributes"]["title"], "Dune");
    // The envelope equals that of the log.
    let mut logged = server.get("/v1/events?type=book.updated").expect(200)["data"][0].clone();
    let mut told = updated.json();
    for envelope in [&mut logged, &mut told] {
        envelope.as_object_mut().unwrap().remove("pending_webhooks");
    }
    assert_eq!(told, logged);
}

/// The names, or record ids, of the events of a stream with this query.
fn carried(server: &Server, query: &str) -> Vec<String> {
    let separator = if query.is_empty() { "" } else { "&" };
    let target = format!("/api/events?since=0{separator}{query}");
    let mut command = curl(server, &target);
    // All events exist already: an event that has not arrived within a second will not arrive.
    command.args(["--max-time", "2"]);
    let output = command.output_in_time().unwrap();
    let mut events = Events::of(std::io::Cursor::new(output.stdout));
    let mut names = Vec::new();
    while let Ok(Some(block)) = events.try_next() {
        names.extend(block.event);
    }
    names
}

#[test]
fn a_stream_sends_only_events_that_match_its_filters() {
    let server = Server::bookshop();
    let dune = server.book("Dune");
    let emma = server.book("Emma");
    server.make(&format!("/v1/books/{dune}/reviews"), json!({ "rating": 5 }));
    server.make(&format!("/v1/books/{emma}/reviews"), json!({ "rating": 4 }));
    server.delete(&format!("/v1/books/{emma}")).expect(200);
    write(&server, "hello");
    let published = json!({ "type": "report.ready", "data": { "object": { "id": "r1" } } });
    assert!(server.post("/v1/events", published).status < 300);
    let check = |query: &str, expected: &[&str]| {
        assert_eq!(carried(&server, query), expected, "{query}");
    };
    std::thread::scope(|scope| {
        for (query, expected) in [
            ("types=book.created", &["book.created", "book.created"][..]),
            ("types=book.*", &["book.created", "book.created", "book.deleted"]),
            ("types=message", &["message"]),
            ("types=message.created", &["message"]),
            ("types=message.*,report.ready", &["message", "report.ready"]),
            ("types=order.*", &[]),
            (&format!("resource={dune}"), &["book.created"]),
            (&format!("resource={emma}"), &["book.created", "book.deleted"]),
            (&format!("resource={emma}&types=book.deleted,order.*"), &["book.deleted"]),
            (&format!("parent={dune}"), &["review.created"]),
            (&format!("parent={dune}&types=book.*"), &[]),
        ] {
            let query = query.to_owned();
            scope.spawn(move || check(&query, expected));
        }
    });
    let all = carried(&server, "");
    assert!(all.contains(&"message".to_owned()) && all.contains(&"report.ready".to_owned()));
}

#[test]
fn invalid_parameters_of_a_stream_are_refused_by_name() {
    let server = Server::bookshop();
    let check = |target: &str, code: &str, param: &str| {
        let error = server.get(target).error(400, code);
        assert_eq!(error["param"], param, "{target}: {error}");
    };
    check("/api/events?since=x", "invalid_parameter", "since");
    check("/api/events?since=-1", "invalid_parameter", "since");
    check("/api/events?last_event_id=1.2.3", "invalid_parameter", "last_event_id");
    check("/api/events?types=no.such.type", "invalid_parameter", "types");
    check("/api/events?types=boook.*", "invalid_parameter", "types");
    check("/api/events?resource=", "invalid_parameter", "resource");
    check("/api/events?wait=true", "unknown_parameter", "wait");
    let bad = server.ask("GET", "/api/events").header("last-event-id", "nonsense").send();
    assert_eq!(bad.error(400, "invalid_parameter")["param"], "Last-Event-ID");
    let many = vec!["book.created"; 60].join(",");
    check(&format!("/api/events?types={many}"), "invalid_parameter", "types");
}

#[test]
fn the_headers_of_a_stream_disable_proxy_buffering() {
    let server = Server::bookshop();
    let events = Events::open(&server, "/api/events");
    for line in ["content-type: text/event-stream", "cache-control: private, no-cache"] {
        assert!(events.head.contains(line), "{}", events.head);
    }
    assert!(events.head.contains("x-accel-buffering: no"), "{}", events.head);
    assert!(events.head.contains("request-id: req_"), "{}", events.head);
    let head = server.ask("HEAD", "/api/events").send();
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let html = server.ask("GET", "/api/events").header("accept", "text/html").send();
    html.error(406, "not_acceptable");
    let none = server.ask("POST", "/api/events").json(&json!({})).send();
    assert_eq!(none.header("allow"), Some("GET, HEAD, OPTIONS"));
    none.error(405, "method_not_allowed");
    // The value of a browser, and wildcards.
    for accept in ["text/event-stream", "*/*", "text/html, text/*;q=0.1"] {
        let head = server.ask("HEAD", "/api/events").header("accept", accept).send();
        assert_eq!(head.status, 200, "{accept}");
    }
}

#[test]
fn an_idle_stream_sends_comments_and_its_position() {
    const TIMES: u32 = 10;
    let server = hurried(quick(), TIMES).go();
    let mut quiet = Events::open(&server, "/api/events?types=book.*");
    let opened = Instant::now();
    let begin = position(&server);
    assert_eq!(quiet.next().id, Some(begin.clone()));
    // Not an event of this stream, but it advances the position.
    write(&server, "hello");
    let here = position(&server);
    assert_ne!(here, begin);
    for beats in 1..=2 {
        let beat = quiet.next();
        let comment = Some("still here".to_owned());
        let expected = Block { comment, id: Some(here.clone()), ..Block::default() };
        assert_eq!(beat, expected);
        let passed = opened.elapsed() * TIMES;
        let due = Duration::from_secs(25) * beats;
        assert!(passed + Duration::from_secs(2) >= due, "beat {beats} after {passed:?}");
        assert!(passed < due * 4, "beat {beats} after {passed:?}");
    }
    let mut later = Events::open_from(&server, "/api/events", Some(&here));
    let book = server.book("Dune");
    let told = later.event();
    assert!(told.is("book.created"), "what the beat was ahead of is not repeated: {told:?}");
    assert_eq!(told.json()["data"]["object"]["id"], book);
    // After an event, the next comment has its position.
    assert_eq!(quiet.event(), told);
    assert_eq!(quiet.next().id, told.id);
}

fn reset(events: &mut Events) -> Value {
    let block = events.event();
    assert!(block.is("stream.reset"), "{block:?}");
    let data = block.json();
    assert_eq!(block.id.as_deref(), data["resumed_at"].as_str(), "it moves the place");
    data
}

#[test]
fn a_stream_from_an_unknown_position_gets_stream_reset() {
    let server = Server::bookshop();
    write(&server, "before");
    let here = position(&server);
    let (epoch, sequence) = here.split_once('.').unwrap();
    let foreign = format!("{:08x}.1", u32::from_str_radix(epoch, 16).unwrap() ^ 1);
    let mut events = Events::open_from(&server, "/api/events", Some(&foreign));
    let data = reset(&mut events);
    assert_eq!(data["reason"], "other_epoch");
    assert_eq!((&data["requested"], &data["resumed_at"]), (&Value::Null, &json!(here)));
    let refetch: Vec<&str> =
        data["refetch"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(refetch.contains(&"/v1/books") && refetch.contains(&"/v1/messages"), "{refetch:?}");
    for path in refetch {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    write(&server, "after");
    assert_eq!(events.event().json()["text"], "after", "and the stream goes on");
    let ahead = format!("{epoch}.{}", sequence.parse::<i64>().unwrap() + 1000);
    let target = format!("/api/events?types=book.*&since={ahead}");
    let mut events = Events::open(&server, &target);
    let data = reset(&mut events);
    assert_eq!((&data["reason"], &data["requested"]), (&json!("ahead_of_log"), &json!(ahead)));
    assert_eq!(data["refetch"], json!(["/v1/books"]), "only what the stream is about");
    server.book("Dune");
    assert!(events.event().is("book.created"));
}

/// The server with its clock shifted, by the library of Debian's `faketime`.
pub fn shifted(folder: &Arc<TempDir>, by: &str) -> Server {
    let library =
        Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output_in_time();
    let library = library.expect("the program faketime is missing: `cargo xtask test` installs it");
    let library = String::from_utf8(library.stdout).unwrap();
    let start = quick().env("LD_PRELOAD", library.trim()).env("FAKETIME", by);
    start.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").on(folder).go()
}

#[test]
fn a_stream_from_before_the_log_gets_stream_reset_and_then_the_rest() {
    let server = quick().go();
    let first = write(&server, "forgotten 0");
    (1..5).for_each(|n| {
        write(&server, &format!("forgotten {n}"));
    });
    let folder = server.kill();
    let server = shifted(&folder, "+31d");
    // The newest event stays at any age.
    eventually("old events are gone", || {
        server.get("/v1/events?type=message.created").column("id").len() == 1
    });
    write(&server, "kept");
    let mut events = Events::open(&server, &format!("/api/events?since={first}"));
    let data = reset(&mut events);
    assert_eq!(data["reason"], "expired");
    assert!(data["requested"].as_str().unwrap().ends_with(&format!(".{first}")), "{data}");
    // The one before it may go as well, now that it is no longer the newest.
    let rest = |events: &mut Events| loop {
        match events.event().json()["text"].as_str() {
            Some("kept") => break,
            text => assert_eq!(text, Some("forgotten 4")),
        }
    };
    rest(&mut events);
    // A client that got the reset continues from there without another.
    let resumed = data["resumed_at"].as_str().unwrap();
    rest(&mut Events::open_from(&server, "/api/events", Some(resumed)));
}

/// Many messages, written by several clients at a time.
fn write_many(server: &Server, count: usize, from: usize) {
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let mine = (from..from + count).filter(move |number| number % 4 == writer);
            scope.spawn(move || {
                mine.for_each(|n| {
                    write(server, &format!("message {n}"));
                })
            });
        }
    });
}

#[test]
fn a_client_thousands_of_events_behind_resumes_from_the_log() {
    let server = quick().go();
    let begin = position(&server);
    write_many(&server, 2_500, 0);
    let folder = server.kill();
    // Only the newest thousand are in memory now.
    let server = quick().on(&folder).go();
    let expected = crate::live_client::committed(&server);
    assert_eq!(expected.len(), 2_500);
    let last = &expected.last().unwrap().1;
    let texts: Vec<&str> = expected.iter().map(|(_, text)| text.as_str()).collect();
    let mut events = Events::open_from(&server, "/api/events", Some(&begin));
    assert_eq!(events.texts_until(last), texts);
    let seen = figures(&server);
    assert_eq!(seen["restive_live_resumes_total{from=\"log\"}"], 1.0);
    assert!(seen["restive_live_log_reads_total"] > 0.0);
    // It continues from memory, and writes are not lost while it reads the log.
    let mut behind = Events::open_from(&server, "/api/events?types=message", Some(&begin));
    write_many(&server, 100, 2_500);
    let last = write(&server, "the last one");
    assert_eq!(behind.texts_until("the last one").len(), 2_601);
    assert_eq!(events.texts_until("the last one").len(), 101);
    assert!(last > 2_600);
    let reads = figures(&server)["restive_live_log_reads_total"];
    let mut near = Events::open(&server, &format!("/api/events?since={}", last - 50));
    near.texts_until("the last one");
    assert_eq!(figures(&server)["restive_live_log_reads_total"], reads, "memory was enough");
}

/// curl to a server with TLS.
fn secure(server: &Server, target: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--insecure", "--no-buffer", "--max-time", "60"]);
    command.arg("--header").arg(format!("Authorization: Bearer {KEY}")).args(arguments);
    command.arg(format!("https://{}{target}", server.address));
    command
}

fn write_securely(server: &Server, text: &str) {
    let body = json!({ "text": text }).to_string();
    let made = secure(server, "/v1/messages", &["--json", &body]).output_in_time().unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["text"], text);
}

/// Follows from the beginning while more is written.
fn follow_over(command: impl Fn(&Server, &str) -> Command) {
    let server = quick().arg("--tls").arg("self-signed").go();
    (0..3).for_each(|n| write_securely(&server, &format!("early {n}")));
    let mut follower = Curl::follow(command(&server, "/api/events?since=0&types=message"));
    assert!(follower.events.next().id.is_some());
    let early: Vec<String> = (0..3).map(|n| format!("early {n}")).collect();
    assert_eq!(follower.events.texts_until("early 2"), early);
    let open = |count: &str| {
        let page = secure(&server, "/metrics", &[]).output_in_time().unwrap().stdout;
        let line = format!("restive_live_connections{{channel=\"sse\"}} {count}\n");
        String::from_utf8(page).unwrap().contains(&line)
    };
    assert!(open("1"));
    // More than a window of HTTP/2 or HTTP/3, in chunks as they are created.
    let large = "x".repeat(3_900);
    for number in 0..40 {
        let text = format!("{large}{number}");
        write_securely(&server, &text);
        assert_eq!(follower.events.named("message").json()["text"], text);
    }
    follower.interrupt();
    eventually("the stream is known to be over", || open("0"));
}

#[test]
fn streams_run_over_http_2() {
    follow_over(|server, target| secure(server, target, &["--http2"]));
}

#[test]
fn streams_run_over_http_3() {
    follow_over(|server, target| {
        let mut command = Command::new(tools::installed("python").join("bin/python"));
        command.arg(tools::root().join("xtask/tools/http3/stream.py"));
        command.arg(server.address.ip().to_string()).arg(server.address.port().to_string());
        command.arg(server.data().join("self-signed.crt")).arg(KEY).arg(target);
        command
    });
}

#[test]
fn a_stream_ends_at_once_when_its_client_disconnects() {
    let server = Server::bookshop();
    let open = || figures(&server)["restive_live_connections{channel=\"sse\"}"];
    let events: Vec<Events> = (0..20).map(|_| Events::open(&server, "/api/events")).collect();
    assert_eq!(open(), 20.0);
    drop(events);
    let began = Instant::now();
    eventually("they are known to be gone", || open() == 0.0);
    assert!(began.elapsed() < Duration::from_secs(10), "no event was needed to notice");
}

#[test]
fn an_erased_payload_is_not_streamed_even_from_memory() {
    let server = quick().go();
    let begin = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    let target = format!("/api/events?types=book.*,erasure.*&since={begin}");
    let mut early = Events::open(&server, &target);
    let id = server.book("Secret title");
    assert_eq!(early.named("book.created").json()["data"]["object"]["title"], "Secret title");
    server.post("/v1/erasures", json!({ "resource": id })).expect(201);
    // An open stream continues; a later one from the same position does not get the payload.
    early.named("erasure.created");
    let mut late = Events::open(&server, &target);
    let told = late.named("book.created");
    assert_eq!(told.json()["data"]["object"]["erased"], true, "{told:?}");
    let title = server.book("Open title");
    for stream in [&mut early, &mut late] {
        assert_eq!(stream.named("book.created").json()["data"]["object"]["id"], title);
    }
}
