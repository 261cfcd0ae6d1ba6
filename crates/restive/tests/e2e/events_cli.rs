//! `restive events` and `restive replay`, with and without a running server.

use crate::database;
use crate::deadline::Deadline as _;
use crate::deliveries::nothing_more;
use crate::harness::{PATIENCE, Server, Start, eventually, executable, run};
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A command that runs until it is stopped.
struct Running {
    child: Child,
}

impl Running {
    fn start(server: &Server, arguments: &[&str]) -> Running {
        let mut command = Command::new(executable());
        database::name(&mut command, server.folder.path());
        let child = command
            .args(arguments)
            .arg("--data")
            .arg(server.data())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running { child }
    }

    fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// Its lines, as they are printed.
    fn lines(&mut self) -> Lines {
        let (tell, told) = channel();
        let stdout = self.stdout();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Lines(told)
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(name).arg(id).status().unwrap().success());
    }

    /// Waits for its end; returns exit code and stderr.
    fn end(mut self) -> (i32, String) {
        let mut status = None;
        eventually("the command ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.and_then(|status| status.code()).unwrap_or(-1), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Lines(Receiver<String>);

impl Lines {
    #[track_caller]
    fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).expect("a line comes")
    }

    #[track_caller]
    fn next_event(&self) -> Value {
        let line = self.next();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }
}

/// The events of the last hour, as JSON, with further arguments.
#[track_caller]
fn past(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["events", "tail", "--since", "1h", "--no-follow", "--format", "json"];
    all.extend(arguments);
    let (out, error, code) = server.tool(&all);
    assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn a_tail_prints_new_events_in_the_format_of_the_api() {
    let server = Server::bookshop();
    server.book("before");
    let mut tail =
        Running::start(&server, &["events", "tail", "--since", "1h", "--format", "json"]);
    let lines = tail.lines();
    // Keys and accounts were created before, but their events are not shown.
    assert_eq!(lines.next_event()["data"]["object"]["title"], "before");
    for title in ["one", "two"] {
        let book = server.book(title);
        let event = lines.next_event();
        assert_eq!((&event["type"], &event["object"]), (&json!("book.created"), &json!("event")));
        assert_eq!(event["data"]["object"]["id"], json!(book));
        let id = event["id"].as_str().unwrap();
        assert_eq!(server.get(&format!("/v1/events/{id}")).expect(200), event);
    }
    let (_, error, code) = server.tool(&["keys", "create"]);
    assert_eq!(code, 0, "{error}");
    server.book("after the key");
    assert_eq!(lines.next_event()["data"]["object"]["title"], "after the key");
    tail.signal("-INT");
    assert_eq!(tail.end(), (0, String::new()));
}

#[test]
fn a_tail_without_since_omits_earlier_events() {
    let server = Server::bookshop();
    server.book("old");
    let mut tail = Running::start(&server, &["events", "tail"]);
    let lines = tail.lines();
    let mut made = Vec::new();
    let mut first = None;
    eventually("a line comes", || {
        made.push(server.book("new"));
        first = lines.0.recv_timeout(std::time::Duration::from_millis(200)).ok();
        first.is_some()
    });
    let first = first.unwrap();
    let words: Vec<&str> = first.split_whitespace().collect();
    let [time, kind, book, event, mode] = words[..] else { panic!("{first}") };
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    assert_eq!((kind, mode), ("book.created", "test"));
    assert!(event.starts_with("evt_") && made.iter().any(|id| id == book), "{first}");
    assert!(!first.contains('\u{1b}'), "no colours in a pipe");
    tail.signal("-TERM");
    assert_eq!(tail.end(), (0, String::new()));
}

#[test]
fn a_tail_prints_only_events_that_match_its_filters() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({ "book": book }));
    server.ask("POST", &format!("/v1/orders/{order}/pay")).send().expect(200);
    let endpoint =
        server.make("/v1/webhook-endpoints", json!({ "url": "http://127.0.0.1:9/hook" }));
    let (out, error, code) = server.tool(&["keys", "create", "--mode", "live"]);
    assert_eq!(code, 0, "{error}");
    let live = out.split_whitespace().nth(1).unwrap();
    let body = json!({ "title": "Live", "author": "A" });
    server.ask("POST", "/v1/books").key(live).json(&body).send().expect(201);

    let all = past(&server, &[]);
    let ours = ["book.created", "order.created", "order.paid"];
    assert_eq!(kinds(&all)[..3], ours);
    assert!(kinds(&all).contains(&"webhook_endpoint.created"));
    for (arguments, expected) in [
        (&["--type", "*", "--mode", "test"][..], &ours[..]),
        (&["--type", "order.*"], &["order.created", "order.paid"]),
        (&["--type", "order.paid,book.created", "--mode", "test"], &[ours[0], ours[2]]),
        (&["--type", "order.paid", "--type", "book.*", "--mode", "live"], &[ours[0]]),
        (&["--resource", &book], &[ours[0]]),
        (&["--resource", &order], &[ours[1], ours[2]]),
        (&["--resource", &endpoint, "--type", "ping"], &["ping"]),
        (&["--resource", "nobody"], &[]),
    ] {
        assert_eq!(kinds(&past(&server, arguments)), expected, "{arguments:?}");
    }
    let (out, _, _) = server.tool(&["accounts", "list"]);
    let account = out.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    assert_eq!(past(&server, &["--account", account]).len(), all.len());
    let (out, _, _) = server.tool(&["accounts", "create", "other"]);
    let other = out.split_whitespace().nth(1).unwrap();
    assert_eq!(past(&server, &["--account", other]), Vec::<Value>::new());
}

#[test]
fn since_accepts_an_age_a_time_and_an_event_id() {
    let server = Server::bookshop();
    for title in ["one", "two", "three"] {
        server.book(title);
    }
    let all = past(&server, &[]);
    assert_eq!(all.len(), 3);
    let second = all[1]["id"].as_str().unwrap();
    for (since, expected) in
        [("1970-01-01", 3), ("1d", 3), (second, 2), ("2999-01-01T00:00:00Z", 0), ("0s", 0)]
    {
        let (out, error, code) =
            server.tool(&["events", "tail", "--no-follow", "--since", since, "--format", "json"]);
        assert_eq!((code, out.lines().count()), (0, expected), "{since}: {error}");
    }
    let (out, _, code) =
        server.tool(&["events", "tail", "--no-follow", "--since", second, "--format", "json"]);
    assert!(code == 0 && out.lines().next().unwrap().contains(second), "the event itself too");
    // Without a server, the log can still be read.
    let (_, folder) = server.stop();
    let arguments = ["events", "tail", "--no-follow", "--since", "1h", "--data", "data"];
    let (out, error, code) = run(folder.path(), &arguments);
    assert_eq!((code, out.lines().count()), (0, 3), "{error}");
}

#[test]
fn a_tail_ends_without_an_error_when_its_reader_exits() {
    let server = Server::bookshop();
    server.book("Dune");
    let mut tail = Running::start(&server, &["events", "tail", "--since", "1h"]);
    let mut stdout = BufReader::new(tail.stdout());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    assert_eq!(tail.end(), (0, String::new()), "nothing had to happen for it");
    let arguments = format!(
        "{} events show {} --data {} | true",
        executable(),
        line.split_whitespace().nth(3).unwrap(),
        server.data().display()
    );
    let mut shell = Command::new("sh");
    database::name(&mut shell, server.folder.path());
    let shown = shell.arg("-c").arg(arguments).output_in_time().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stderr), "");
}

#[test]
fn a_signal_ends_a_tail_whose_reader_has_stopped_reading() {
    let server = Server::bookshop();
    let long = "x".repeat(200);
    // More than a pipe holds.
    for _ in 0..150 {
        server.make("/v1/books", json!({ "title": long, "author": long }));
    }
    let mut tail =
        Running::start(&server, &["events", "tail", "--since", "1h", "--format", "json"]);
    let mut stdout = tail.stdout();
    let mut first = [0; 1];
    stdout.read_exact(&mut first).unwrap();
    tail.signal("-TERM");
    assert_eq!(tail.end(), (0, String::new()));
}

#[test]
fn an_event_is_shown_with_its_deliveries() {
    let server = Server::bookshop();
    server.book("Dune");
    let event = past(&server, &[]).remove(0);
    let id = event["id"].as_str().unwrap();
    let (out, error, code) = server.tool(&["events", "show", id, "--format", "json"]);
    assert_eq!((code, error.as_str(), out.lines().count()), (0, "", 1));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), event);
    let (out, error, code) = server.tool(&["events", "show", id]);
    assert_eq!((code, error.as_str()), (0, ""));
    let (envelope, rest) = out.split_once("\n\n").unwrap();
    assert_eq!(serde_json::from_str::<Value>(envelope).unwrap(), event);
    assert!(envelope.starts_with(&format!("{{\n  \"id\": \"{id}\",\n  \"object\": \"event\",")));
    assert_eq!(rest, "No endpoint receives this event.\n");
    let sink = Sink::start();
    let endpoint = server.make("/v1/webhook-endpoints", json!({ "url": sink.url() }));
    for (title, answer, status) in [("Emma", 200, "succeeded"), ("Ulysses", 500, "pending")] {
        sink.will(Manner::status(answer));
        let book = server.book(title);
        let event = past(&server, &["--resource", &book]).remove(0)["id"].clone();
        let mut row = String::new();
        eventually("its delivery is shown", || {
            let (out, error, code) = server.tool(&["events", "show", event.as_str().unwrap()]);
            assert_eq!((code, error.as_str()), (0, ""));
            row = out.lines().last().unwrap().to_owned();
            row.starts_with(&endpoint)
        });
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((words[1], words[2]), (status, "1"), "{row}");
        assert!(words[4..].contains(&answer.to_string().as_str()), "{row}");
        assert_eq!(words[3] == "-", status == "succeeded", "{row}");
    }
}

#[test]
fn unknown_event_ids_are_refused_with_a_hint() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let event = past(&server, &[]).remove(0)["id"].as_str().unwrap().to_owned();
    let rest = event.strip_prefix("evt_").unwrap();
    let unknown = "evt_06gxtz49bwd063fdqws53xvgbj3rg";
    for (id, hint) in [
        (unknown, "there is no event"),
        (&*format!("event_{rest}"), &*format!("Did you mean {event}?")),
        (&book, &*format!("--resource {book}")),
        ("evt_1", "is not an event id such as"),
    ] {
        let (out, error, code) = server.tool(&["events", "show", id]);
        assert!(code == 1 && out.is_empty() && error.contains(hint), "{id}: {error}");
    }
    let (_, error, code) = server.tool(&["events", "tail", "--since", unknown]);
    assert!(code == 1 && error.contains("there is no event"), "{error}");
    let (_, error, code) = server.tool(&["events", "tail", "--since", "1h", "--account", "acct_1"]);
    assert!(code == 1 && error.contains("there is no account"), "{error}");
    let misspelt = ["events", "tail", "--since", "1h", "--no-follow", "--type", "book.craeted"];
    let (out, error, code) = server.tool(&misspelt);
    assert!(code == 0 && out.is_empty() && error.contains("book.created"), "{error}");
}

#[test]
fn wrong_arguments_of_the_event_commands_get_errors_with_advice() {
    let server = Server::bookshop();
    for (arguments, hint) in [
        (&["events", "show"][..], "EVENT_ID"),
        (&["events", "tail", "--since", "yesterday"], "an age such as 30m"),
        (&["events", "tail", "--type", "order*"], "`object.*`"),
        (&["events", "tail", "--type", "order.*,"], "is no event type"),
        (&["events", "tail", "--no-follow"], "--since"),
        (&["events", "tail", "--format", "xml"], "pretty"),
        (&["events", "tail", "--mode", "both"], "live"),
        (&["replay"], "--endpoint"),
        (&["replay", "--endpoint", "we_1", "--rate", "0"], "1..=10000"),
        (&["replay", "--endpoint", "we_1", "--until", "soon"], "an age such as 30m"),
    ] {
        let (_, error, code) = server.tool(arguments);
        assert!(code == 2 && error.contains(hint), "{arguments:?}: {code} {error}");
    }
    let folder = tempfile::TempDir::new().unwrap();
    for arguments in
        [&["events", "tail"][..], &["events", "show", "evt_1"], &["replay", "--endpoint", "we_1"]]
    {
        let (_, error, code) = run(folder.path(), arguments);
        assert!(code == 1 && error.contains("there is no database"), "{arguments:?}: {error}");
    }
}

#[test]
fn a_replay_with_impossible_arguments_is_refused() {
    let server = Server::bookshop();
    let (_, error, code) = server.tool(&["replay", "--endpoint", "we_1", "--yes"]);
    assert!(code == 1 && error.contains("there is no endpoint yet"), "{error}");
    let endpoint =
        server.make("/v1/webhook-endpoints", json!({ "url": "http://127.0.0.1:9/hook" }));
    let (id, known) = (endpoint.as_str(), format!("there are: {endpoint}"));
    for (arguments, hint) in [
        (&["--endpoint", "we_06gxtz49bwd063fdqws53xvgbj3rg"][..], known.as_str()),
        (&["--endpoint", "endpoint_1"], "begin with we_"),
        (&["--endpoint", id, "--type", "book.craeted", "--yes"], "book.created"),
        (&["--endpoint", id, "--since", "1h", "--until", "2h", "--yes"], "later than `since`"),
        (&["--endpoint", id], "--yes"),
    ] {
        let (out, error, code) = server.tool(&[&["replay"], arguments].concat());
        assert!(code == 1 && out.is_empty() && error.contains(hint), "{arguments:?}: {error}");
    }
    assert_eq!(server.get("/v1/replays").column("id"), Vec::<Value>::new());
}

#[test]
fn a_replay_counts_then_sends_and_shows_its_progress() {
    let server = Server::bookshop();
    for number in 0..5 {
        server.book(&number.to_string());
    }
    let sink = Sink::start();
    let wish = json!({ "url": sink.url(), "enabled_events": ["order.*"] });
    let endpoint = server.make("/v1/webhook-endpoints", wish);
    let replay = |arguments: &[&str]| {
        let head = ["replay", "--endpoint", &endpoint, "--since", "1h", "--type", "book.*"];
        server.tool(&[&head[..], arguments].concat())
    };
    let (out, error, code) = replay(&["--dry-run"]);
    assert_eq!((code, out.as_str()), (0, "5 event(s) would be sent\n"), "{error}");
    assert_eq!(sink.of("book.created").len(), 0);
    let (out, error, code) = replay(&["--yes", "--rate", "20"]);
    assert!(code == 0 && out.contains("sent 5 event(s), 5 succeeded\n"), "{out} {error}");
    assert!(error.contains("100 %  5 of 5  5 succeeded"), "{error}");
    assert!(!error.contains('\r'), "lines where there is no terminal: {error}");
    assert_eq!(sink.of("book.created").len(), 5);
    let (out, _, code) = replay(&["--yes", "--without-success"]);
    assert!(code == 0 && out.contains("sent 0 event(s)"), "{out}");
    sink.will(Manner::status(500));
    let (out, _, code) = replay(&["--yes"]);
    assert!(code == 0 && out.contains("0 succeeded\n") && out.contains("deliveries"), "{out}");
}

#[test]
fn a_replay_without_a_server_waits_for_one() {
    let server = Server::bookshop();
    server.book("Dune");
    let endpoint =
        server.make("/v1/webhook-endpoints", json!({ "url": "http://127.0.0.1:9/hook" }));
    let event = past(&server, &[]).remove(0)["id"].as_str().unwrap().to_owned();
    let (_, folder) = server.stop();
    let arguments = ["replay", "--endpoint", &endpoint, "--since", &event, "--type", "book.*"];
    let more = ["--without-success", "--rate", "5", "--yes", "--data", "data"];
    let (out, error, code) = run(folder.path(), &[&arguments[..], &more].concat());
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.contains("No server runs on "), "{out}");
    let id = out.lines().next().unwrap();
    let server = Start::bookshop().on(&folder).go();
    let replay = server.get(&format!("/v1/replays/{id}")).expect(200);
    assert_eq!(replay["endpoint"], json!(endpoint));
    assert_eq!(replay["types"], json!(["book.*"]));
    assert_eq!((&replay["without_success"], &replay["rate_limit"]), (&json!(true), &json!(5)));
    let created = server.get(&format!("/v1/events/{event}")).expect(200)["created"].as_i64();
    let since = model::Timestamp::parse(replay["since"].as_str().unwrap()).unwrap();
    assert_eq!(Some(since.seconds()), created);
}

#[test]
fn a_signal_to_the_replay_command_cancels_the_replay() {
    let server = Server::bookshop();
    // At two per second they take longer than the test. They are created before the endpoint, so
    // that only the replay sends them.
    for number in 0..60 {
        server.book(&format!("{number}"));
    }
    let sink = Sink::start();
    let endpoint = server.make("/v1/webhook-endpoints", json!({ "url": sink.url() }));
    let replay =
        Running::start(&server, &["replay", "--endpoint", &endpoint, "--rate", "2", "--yes"]);
    let mut id = None;
    eventually("the replay is there", || {
        id = server
            .get("/v1/replays")
            .column("id")
            .first()
            .and_then(|id| Some(id.as_str()?.to_owned()));
        id.is_some()
    });
    let id = id.unwrap();
    eventually("it sends", || !sink.of("book.created").is_empty());
    replay.signal("-INT");
    let (code, error) = replay.end();
    assert!(code == 1 && error.contains(&format!("{id} was cancelled")), "{code} {error}");
    // The server notices a commit of another process within a moment.
    eventually("the server shows it", || {
        server.get(&format!("/v1/replays/{id}")).expect(200)["status"] == "cancelled"
    });
    // The delivery engine notices it a moment after the server shows it.
    nothing_more(&sink, sink.of("book.created").len(), Duration::from_secs(3));
}

#[test]
fn a_replay_requires_the_served_schema() {
    let schema = "[collections.notes]\n[collections.notes.fields]\ntext = \"string\"\n\
                  [webhooks]\ndevelopment = true\n";
    let server = Start::schema(schema).go();
    server.make("/v1/notes", json!({ "text": "a" }));
    let endpoint =
        server.make("/v1/webhook-endpoints", json!({ "url": "http://127.0.0.1:9/hook" }));
    // Reading needs no schema.
    let kinds_of = |event: &Value| event["type"].as_str().unwrap().to_owned();
    assert_eq!(
        past(&server, &["--type", "note.*"]).first().map(kinds_of),
        Some("note.created".into())
    );
    let (_, folder) = server.stop();
    let file = folder.path().join("restive.toml");
    let arguments = ["replay", "--endpoint", &endpoint, "--type", "note.*", "--yes"];
    let data = ["--data", "data"];
    // In another folder than that of the schema file, which would be used.
    let elsewhere = folder.path().join("data");
    let (_, error, code) = run(&elsewhere, &[&arguments[..], &["--data", "."]].concat());
    assert!(code == 1 && error.contains("--schema"), "{error}");
    let named = ["--schema", file.to_str().unwrap()];
    let (out, error, code) = run(folder.path(), &[&arguments[..], &data, &named].concat());
    assert!(code == 0 && out.contains("rpl_"), "{error}");
}
