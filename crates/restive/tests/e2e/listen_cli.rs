//! `restive listen` and `restive trigger` against the real server.

use crate::deadline::Deadline as _;
use crate::harness::{KEY, PATIENCE, Start, eventually, executable};
use crate::kit_client::run;
use crate::kit_follow::listed;
use crate::live_client::write;
use crate::relay::{Plan, Relay};
use crate::sink::{Manner, Received, Sink};
use restive_kit::signature::{Secret, verify};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A running listener and its lines.
struct Listener {
    child: Child,
    out: Arc<Mutex<Vec<String>>>,
    err: Arc<Mutex<Vec<String>>>,
}

impl Listener {
    /// Starts it and waits until it is connected, or reads the past.
    fn start(url: &str, arguments: &[&str]) -> Listener {
        let mut command = Command::new(executable());
        command.arg("listen").args(arguments).env("RESTIVE_URL", url).env("RESTIVE_API_KEY", KEY);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = gather(child.stdout.take().unwrap());
        let err = gather(child.stderr.take().unwrap());
        let listener = Listener { child, out, err };
        if !arguments.contains(&"--since") {
            eventually("it is connected", || listener.has_connected() > 0);
        }
        listener
    }

    fn has_connected(&self) -> usize {
        let lines = self.err.lock().unwrap();
        lines.iter().filter(|line| line.as_str() == "restive: connected").count()
    }

    fn lines(&self) -> Vec<String> {
        self.out.lock().unwrap().clone()
    }

    fn line(&self, number: usize) -> String {
        eventually("a line", || self.lines().len() > number);
        self.lines()[number].clone()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn stop(mut self) -> i32 {
        self.signal("-INT");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5)); // waits for: the next look
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gather(pipe: impl std::io::Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let shared = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            shared.lock().unwrap().push(line);
        }
    });
    lines
}

fn quick() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

fn ids(received: &[Received]) -> Vec<String> {
    received.iter().map(Received::id).collect()
}

#[track_caller]
fn is_signed(request: &Received, secret: &Secret) {
    let now: i64 = request.header("webhook-timestamp").unwrap().parse().unwrap();
    let secrets = std::slice::from_ref(secret);
    let header = request.header("restive-signature").map(str::as_bytes);
    let body = request.body.as_bytes();
    verify::timestamped(secrets, header, body, now, verify::TOLERANCE).unwrap();
}

#[test]
fn a_listener_forwards_signed_events_by_route_and_shows_each_response() {
    let server = quick().go();
    let sink = Sink::start();
    let listener = Listener::start(
        &server.url(""),
        &["--forward-to", &sink.url(), "--events", "book.*,order.*", "--route", "order.*=/orders"],
    );
    assert_eq!(listener.line(0), format!("forwarding to {}", sink.url()));
    let secret = listener.line(1);
    let secret = Secret::parse(secret.rsplit(' ').next().unwrap()).unwrap();
    let book = server.book("Dune");
    server.make("/v1/orders", json!({ "book": book }));
    write(&server, "not asked for");
    eventually("both arrive", || sink.received().len() == 2);
    sink.will(Manner::Answer(500, "", "no\u{1b}[2J luck".to_owned()));
    server.book("Emma");
    eventually("the third arrives", || sink.received().len() == 3);
    let received = sink.received();
    let paths: Vec<&str> = received.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/hook", "/orders", "/hook"]);
    for request in &received {
        is_signed(request, &secret);
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("webhook-id"), Some(&*request.id()));
        assert_eq!(request.header("idempotency-key"), None);
        assert_eq!(request.header("authorization"), None, "the key stays here");
    }
    let shown = [listener.line(2), listener.line(3), listener.line(4)];
    for ((line, request), status) in shown.iter().zip(&received).zip(["200", "200", "500"]) {
        let parts = [status, &request.kind(), &request.id(), &sink.address.to_string(), " ms"];
        parts.iter().for_each(|part| assert!(line.contains(part), "{part}: {line}"));
        assert!(!line.contains('\u{1b}'), "plain in a pipe: {line}");
    }
    assert!(shown[2].contains("no\\u001b[2J luck"), "{}", shown[2]);
    assert_eq!(listener.stop(), 0);
}

#[test]
fn a_listener_loses_and_repeats_nothing_when_the_network_or_the_server_fails() {
    let mut server = quick().go();
    let relay = Relay::to(server.address);
    let sink = Sink::start();
    let arguments = ["--forward-to", &sink.url(), "--format", "json", "--events", "book.*,message"];
    let listener = Listener::start(&relay.url(), &arguments);
    // A second one receives the same, whatever the first one does.
    let (other_sink, address) = (Sink::start(), server.address);
    let other = Listener::start(
        &format!("http://{address}"),
        &["--forward-to", &other_sink.url(), "--events", "book.*,message"],
    );
    for number in 0..40 {
        server.book(&format!("book {number}"));
        match number {
            3 => write(&server, "a feed's record has an envelope, too"),
            5 => {
                relay.plan([Plan::html(502), Plan::Cut(1500)]);
                relay.cut();
                0
            }
            10 => {
                // Stopped as by a sleep of the machine: the connection is cut in the meantime.
                listener.signal("-STOP");
                relay.cut();
                0
            }
            20 => {
                listener.signal("-CONT");
                0
            }
            30 => {
                server = quick().on(&server.kill()).at(address).go();
                relay.aim(server.address);
                0
            }
            _ => 0,
        };
    }
    let expected = run(listed(&server, "book.created,message.created"));
    assert_eq!(expected.len(), 41);
    eventually("everything arrives", || sink.received().len() >= expected.len());
    eventually("everything arrives", || other_sink.received().len() >= expected.len());
    assert_eq!(ids(&sink.received()), expected);
    assert_eq!(ids(&other_sink.received()), expected);
    let envelope = &sink.of("message.created")[0].event();
    assert_eq!(envelope["data"]["object"]["text"], "a feed's record has an envelope, too");
    // A slow listener may still wait after one failure when the next one comes.
    assert!(listener.has_connected() >= 2);
    eventually("all lines", || listener.lines().len() == 1 + expected.len());
    for (line, id) in listener.lines()[1..].iter().zip(&expected) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["event"], &line["status"]), (&json!(id), &json!(200)), "{line}");
    }
    assert_eq!(other.stop(), 0);
}

#[test]
fn a_listener_begins_in_the_past_and_continues_live() {
    let server = quick().go();
    (0..120).for_each(|number| drop(server.book(&format!("book {number}"))));
    let sink = Sink::start();
    let arguments = ["--forward-to", &sink.url(), "--since", "2h", "--events", "book.*"];
    let listener = Listener::start(&server.url(""), &arguments);
    (0..5).for_each(|number| drop(server.book(&format!("live {number}"))));
    eventually("everything arrives", || sink.received().len() >= 125);
    eventually("it is connected", || listener.has_connected() == 1);
    server.book("one more");
    eventually("the last arrives", || sink.received().len() >= 126);
    assert_eq!(ids(&sink.received()), run(listed(&server, "book.*")));
}

#[test]
fn the_secret_can_be_given_or_read_by_a_script_and_a_local_server_may_be_down() {
    let server = quick().go();
    let sink = Sink::start();
    let given = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";
    let arguments =
        ["--forward-to", "http://127.0.0.1:1/hook", "--print-secret", "--secret", given];
    let listener = Listener::start(&server.url(""), &arguments);
    assert_eq!(listener.line(0), given);
    server.book("Dune");
    eventually("the failure is shown on stderr", || {
        let lines = listener.err.lock().unwrap();
        lines.iter().any(|line| line.contains("---") && line.contains("cannot connect"))
    });
    assert_eq!(listener.lines(), [given], "nothing else");
    drop(listener);
    // Redirects are not followed.
    let listener = Listener::start(&server.url(""), &["--forward-to", &sink.url()]);
    let elsewhere = Sink::start();
    let location = format!("location: {}\r\n", elsewhere.url());
    sink.will(Manner::Answer(302, Box::leak(location.into_boxed_str()), String::new()));
    server.book("Emma");
    assert!(listener.line(2).contains("  302  "), "{}", listener.line(2));
    assert!(elsewhere.received().is_empty());
}

#[test]
fn a_listener_that_can_never_work_says_why_and_ends() {
    let server = quick().go();
    let ends = |key: &str, arguments: &[&str]| {
        let mut command = Command::new(executable());
        command.args(["listen", "--url", &server.url(""), "--key", key]).args(arguments);
        let output = command.output_in_time().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let to = ["--forward-to", "localhost:3000"];
    for (key, arguments, told) in [
        ("sk_test_wrong", &to[..], "invalid_api_key"),
        (KEY, &["--forward-to", "ftp://x"], "write a URL"),
        (KEY, &["--forward-to", "localhost:hook"], "no valid port"),
        (KEY, &["--forward-to", "x", "--route", "order.*"], "write a pattern"),
        (KEY, &["--forward-to", "x", "--secret", "hunter2"], "no signing secret"),
        (KEY, &["--forward-to", "x", "--since", "yesterday"], "write an age"),
        (KEY, &["--forward-to", "x", "--events", "no.such.type"], "no.such.type"),
        (KEY, &[], "required arguments"),
    ] {
        let stderr = ends(key, arguments);
        assert_eq!(stderr.matches(told).count(), 1, "{arguments:?}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}

#[test]
fn trigger_causes_an_event_of_each_type_and_says_how() {
    let server = quick().go();
    let trigger = |kind: &str, arguments: &[&str]| {
        let mut command = Command::new(executable());
        command.args(["trigger", kind, "--url", &server.url(""), "--key", KEY]).args(arguments);
        let output = command.output_in_time().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.success())
    };
    for (kind, told) in [
        ("book.created", "POST /v1/books  201"),
        ("book.updated", "PATCH /v1/books/book_"),
        ("book.deleted", "DELETE /v1/books/book_"),
        ("review.created", "/reviews  201"),
        ("order.shipped", "/ship  200"),
        ("payment_intent.succeeded", "moves it to `succeeded`"),
        ("message.created", "POST /v1/messages  201"),
        ("report.ready", "published evt_"),
    ] {
        let (out, err, success) = trigger(kind, &[]);
        assert!(success && out.contains(told), "{kind}: {out} {err}");
        let event = &server.get(&format!("/v1/events?type={kind}&limit=1")).json["data"][0];
        let last = out.lines().last().unwrap();
        assert_eq!(last, format!("{kind}  {}", event["id"].as_str().unwrap()), "{out}");
    }
    let (out, err, success) =
        trigger("book.created", &["--set", "title=Dune", "--set", "price=7.5"]);
    assert!(success, "{out} {err}");
    let event = &server.get("/v1/events?type=book.created&limit=1").json["data"][0];
    let book = &event["data"]["object"];
    assert_eq!((&book["title"], &book["price"]), (&json!("Dune"), &json!(7.5)));
    for (kind, arguments, told) in [
        ("book.burnt", &[][..], "types that can: book.created"),
        ("book.created", &["--set", "price=-1"], "price"),
        ("book.created", &["--set", "titel=Dune"], "no field `titel` for --set; it has: title"),
        ("book.created", &["--set", "title"], "write a name and a value"),
    ] {
        let (out, err, success) = trigger(kind, arguments);
        assert!(!success && err.contains(told), "{kind}: {out} {err}");
    }
}
