//! `restive receive`: the contract at its door, the handlers, and the commands of the operator.

use crate::disk::BrokenSync;
use crate::harness::{Answer, PATIENCE, Server, eventually, executable, run};
use crate::hostile::resident_kib;
use crate::shim::{EINVAL, EIO, ENOLCK, ENOTSUP, Faults, fault};
use crate::sink::{Manner, Sink};
use model::Timestamp;
use restive_kit::signature::{Secret, Signer};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

pub const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
/// Retries within milliseconds.
const QUICK: [&str; 4] = ["--retry-first", "5", "--attempts", "4"];

/// A running inbox. Its folder is that of `Server::data`.
pub struct Receiving {
    pub server: Server,
}

impl Receiving {
    pub fn start(arguments: &[&str]) -> Receiving {
        Receiving::on(&Arc::new(TempDir::new().unwrap()), "127.0.0.1:0", SECRET, arguments)
    }

    /// With the folder and the address of an earlier one.
    pub fn on(folder: &Arc<TempDir>, listen: &str, secret: &str, arguments: &[&str]) -> Receiving {
        let command = Receiving::command(folder, listen, secret, arguments);
        Receiving { server: Server::spawn(command, folder.clone()).over("http1") }
    }

    pub fn command(folder: &TempDir, listen: &str, secret: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(executable());
        command.args(["receive", "--listen", listen, "--data"]).arg(folder.path().join("data"));
        command.args(arguments).env("RESTIVE_RECEIVE_SECRET", secret);
        command
    }

    pub fn url(&self) -> String {
        self.server.url("/hook")
    }

    /// Sends a body with a signature of now.
    fn send(&self, body: &str) -> Answer {
        self.send_at(body.as_bytes(), now())
    }

    fn send_at(&self, body: &[u8], seconds: i64) -> Answer {
        let secret = Secret::parse(SECRET).unwrap();
        let signature = Signer::new(&secret, None).timestamped(seconds, body);
        self.post(body, &[("restive-signature", &signature)])
    }

    fn post(&self, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        let mut ask = self.server.ask_anonymously("POST", "/hook").body(body);
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.send()
    }

    pub fn status(&self) -> Value {
        let (out, err, code) = self.tool(&["status", "--format", "json"]);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let all = [&["list", "--format", "json"], arguments].concat();
        let (out, err, code) = self.tool(&all);
        assert_eq!(code, 0, "{err}");
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn tool(&self, arguments: &[&str]) -> (String, String, i32) {
        self.server.tool(&[&["receive"], arguments].concat())
    }

    #[track_caller]
    fn wait_for(&self, name: &str, count: u64) {
        eventually(&format!("{name} is {count}"), || self.status()[name] == count);
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

fn event(id: &str) -> String {
    json!({"id": id, "type": "order.created", "data": {"object": {"id": id}}}).to_string()
}

#[test]
fn events_of_a_server_reach_the_handler_once_with_their_id() {
    let (provider, handler) = (Server::bookshop(), Sink::start());
    let folder = Arc::new(TempDir::new().unwrap());
    let starting = Receiving::on(&folder, "127.0.0.1:0", SECRET, &["--store-only"]);
    let address = starting.server.address;
    let endpoint = json!({"url": starting.url(), "enabled_events": ["book.*"]});
    let endpoint = provider.post("/v1/webhook-endpoints", endpoint).expect(201);
    starting.server.stop();
    let (secret, id) = (endpoint["secret"].as_str().unwrap(), endpoint["id"].as_str().unwrap());
    let arguments = ["--forward", &handler.url()];
    let receiving = Receiving::on(&folder, &address.to_string(), secret, &arguments);
    provider.post(&format!("/v1/webhook-endpoints/{id}/ping"), json!({})).expect(200);
    for title in ["A", "B", "C"] {
        provider.book(title);
    }
    eventually("all arrive", || handler.of("book.created").len() == 3);
    for request in handler.of("book.created") {
        let id = request.id();
        for header in ["webhook-id", "idempotency-key"] {
            assert_eq!(request.header(header), Some(&*id));
        }
        assert_eq!(request.header("restive-attempt"), Some("1"));
        assert_eq!(request.header("restive-stale"), None);
    }
    receiving.wait_for("pending", 0);
    let listed = receiving.list(&["--state", "processed"]);
    assert_eq!(listed.iter().filter(|event| event["type"] == "book.created").count(), 3);
    assert!(!receiving.server.log.lock().unwrap().contains(secret), "the log shows the secret");
}

#[test]
fn every_invalid_request_has_its_status_and_nothing_of_it_is_stored() {
    let receiving = Receiving::start(&["--store-only"]);
    let good = event("evt_1");
    let check = |answer: Answer, status: u16, code: &str| {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.json["error"]["code"], code, "{}", answer.text);
    };
    check(receiving.post(good.as_bytes(), &[]), 401, "signature_invalid");
    for seconds in [now() - 400, now() + 400] {
        check(receiving.send_at(good.as_bytes(), seconds), 401, "signature_invalid");
    }
    let signature = Signer::new(&Secret::parse(SECRET).unwrap(), None);
    let signature = signature.timestamped(now(), good.as_bytes());
    for changed in [&good[..good.len() - 5], &format!("{good} "), ""] {
        let headers = [("restive-signature", &*signature)];
        check(receiving.post(changed.as_bytes(), &headers), 401, "signature_invalid");
    }
    for body in [&b"nonsense"[..], b"[]", b"{}", b"{\"id\":\"\xFF\"}", b"7", b"{\"id\":\"a\""] {
        check(receiving.send_at(body, now()), 400, "event_invalid");
    }
    check(receiving.send_at(&vec![b' '; 10 << 20], now()), 413, "body_too_large");
    let answer = receiving.server.ask_anonymously("GET", "/hook").send();
    assert_eq!(answer.header("allow"), Some("POST"));
    check(answer, 405, "method_not_allowed");
    assert_eq!(receiving.status()["pending"], 0);
    assert_eq!(receiving.send(&good).expect(200), json!({"received": true}));
    assert_eq!(receiving.send(&good).expect(200), json!({"received": true, "known": true}));
    // A known id with another body: the provider gets 200, the operator the reason.
    let other = receiving.send(&good.replace("created", "deleted")).expect(200);
    assert_eq!(other, json!({"received": true, "known": true}));
    eventually("it is logged", || receiving.server.log.lock().unwrap().contains("event_conflict"));
    let status = receiving.status();
    assert_eq!((&status["pending"], &status["conflicts"]), (&json!(1), &json!(1)));
    assert_eq!(receiving.server.ask_anonymously("GET", "/health").send().status, 200);
}

#[test]
fn an_event_that_could_not_be_synced_is_not_acknowledged_and_stored_once_later() {
    let folder = Arc::new(TempDir::new().unwrap());
    let receiving = Receiving::on(&folder, "127.0.0.1:0", SECRET, &["--store-only"]);
    assert_eq!(receiving.send(&event("evt_before")).status, 200);
    let broken = BrokenSync::of(receiving.server.pid());
    let mut number = 0;
    eventually("syncs fail", || {
        number += 1;
        receiving.send(&event(&format!("evt_{number}"))).status == 503
    });
    for _ in 0..3 {
        // Also the second time, when the event can be read.
        assert_eq!(receiving.send(&event("evt_lost")).status, 503);
    }
    drop(broken);
    eventually("receipts go on", || receiving.send(&event("evt_lost")).status == 200);
    for earlier in 1..=number {
        assert_eq!(receiving.send(&event(&format!("evt_{earlier}"))).status, 200);
    }
    let folder = receiving.server.kill();
    let receiving = Receiving::on(&folder, "127.0.0.1:0", SECRET, &["--store-only"]);
    let listed = receiving.list(&["--limit", "1000"]);
    assert_eq!(listed.len(), number + 2, "each is stored, once: {listed:?}");
}

/// Errors that last mean that the file system has no locks; a second receiver may have this one.
#[test]
fn a_file_system_without_locks_processes_what_it_receives() {
    for (error, passes) in [(EINVAL, false), (ENOLCK, false), (ENOTSUP, false), (EIO, true)] {
        let (faults, folder) = (Faults::new(), Arc::new(TempDir::new().unwrap()));
        faults.set(&[fault("lock", error, ".lock$")]);
        let exec = ["--exec", "cat > /dev/null"];
        let mut command = Receiving::command(&folder, "127.0.0.1:0", SECRET, &exec);
        command.envs(faults.env());
        let receiving = Receiving { server: Server::spawn(command, folder).over("http1") };
        assert_eq!(receiving.send(&event("evt_1")).status, 200);
        if passes {
            receiving.wait_for("pending", 1);
            faults.clear();
        }
        receiving.wait_for("processed", 1);
    }
}

#[test]
fn unsigned_bodies_use_a_bounded_part_of_the_memory() {
    const BODY_BYTES: usize = 4_000_000;
    let receiving = Receiving::start(&["--store-only"]);
    let before = resident_kib(&receiving.server);
    let head = format!("POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    let address = receiving.server.address;
    let opened: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            // The last byte does not come. It fails where the body was refused.
            let _ = stream.write_all(&vec![b'x'; BODY_BYTES - 1]);
            stream
        })
        .collect();
    assert_eq!(receiving.server.get("/health").status, 200);
    let refused = opened.iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (mut answer, mut stream) = ([0; 12], *stream);
        stream.read_exact(&mut answer).is_ok() && &answer == b"HTTP/1.1 503"
    });
    assert!(refused.count() >= 20);
    let grown = resident_kib(&receiving.server).saturating_sub(before) >> 10;
    assert!(grown < 200, "{grown} MiB for 320 MB that nobody signed");
    drop(opened);
    eventually("room is free again", || receiving.send(&event("evt_1")).status == 200);
}

#[test]
fn the_log_says_why_a_signature_does_not_verify() {
    let receiving = Receiving::start(&["--store-only"]);
    let (good, secret) = (event("evt_1"), Secret::parse(SECRET).unwrap());
    let signature = Signer::new(&secret, None).timestamped(now(), good.as_bytes());
    let spaced = good.replace("\":", "\": ");
    let answer = receiving.post(spaced.as_bytes(), &[("restive-signature", &signature)]);
    assert_eq!(answer.status, 401);
    eventually("it is logged", || {
        let log = receiving.server.log.lock().unwrap();
        log.contains("JSON without spaces") && log.contains("before any middleware")
    });
    assert!(!receiving.server.log.lock().unwrap().contains("AQIDBA"));
}

#[test]
fn a_failing_handler_is_retried_and_its_dead_letters_can_be_retried_or_dropped() {
    let handler = Sink::start();
    handler.will(Manner::Answer(500, "", "out of order".to_owned()));
    let receiving = Receiving::start(&[&["--forward", &handler.url()], &QUICK[..]].concat());
    for id in ["evt_1", "evt_2"] {
        receiving.send(&event(id)).expect(200);
    }
    receiving.wait_for("dead", 2);
    let attempts: Vec<String> = handler
        .received()
        .iter()
        .filter(|request| request.id() == "evt_1")
        .map(|request| request.header("restive-attempt").unwrap().to_owned())
        .collect();
    assert_eq!(attempts, ["1", "2", "3", "4"]);
    let dead = receiving.list(&["--state", "dead"]);
    assert_eq!(dead[0]["error"], "the handler answered 500: out of order");
    let (_, err, code) = receiving.tool(&["retry", "evt_7"]);
    assert!(code == 1 && err.contains("no pending or dead event has the id evt_7"), "{err}");
    handler.will(Manner::status(200));
    let (out, err, code) = receiving.tool(&["drop", "evt_2"]);
    assert_eq!((out.as_str(), code), ("evt_2 is dropped\n", 0), "{err}");
    let (out, err, code) = receiving.tool(&["retry", "--dead"]);
    assert_eq!((out.as_str(), code), ("1 dead letter(s) are processed now\n", 0), "{err}");
    receiving.wait_for("processed", 1);
    assert_eq!(receiving.list(&["--state", "dropped"])[0]["id"], "evt_2");
    assert_eq!(receiving.status()["dead"], 0);
    // A dropped event stays known.
    assert_eq!(receiving.send(&event("evt_2")).expect(200)["known"], true);
}

#[test]
fn the_handler_says_in_seconds_or_as_a_date_when_to_try_again() {
    const LATER_SECONDS: i64 = 2_000;
    let handler = Sink::start();
    let receiving = Receiving::start(&["--forward", &handler.url(), "--retry-first", "5"]);
    let date = Timestamp((now() + LATER_SECONDS) * 1_000).to_http_date();
    for (number, wish) in [LATER_SECONDS.to_string(), date].into_iter().enumerate() {
        let wish = format!("Retry-After: {wish}\r\n");
        handler.will(Manner::Answer(503, Box::leak(wish.into_boxed_str()), String::new()));
        let (id, began) = (format!("evt_{number}"), now());
        receiving.send(&event(&id)).expect(200);
        eventually("it is tried once", || receiving.status()["retrying"] == number + 1);
        let listed = receiving.list(&[]);
        let one = listed.iter().find(|one| one["id"] == *id).unwrap();
        let next = Timestamp::parse(one["next_attempt_at"].as_str().unwrap()).unwrap();
        let wait = next.seconds() - began;
        assert!((LATER_SECONDS - 60..LATER_SECONDS + 60).contains(&wait), "{one}");
    }
}

#[test]
fn handlers_that_hang_close_or_are_down_lose_nothing() {
    let handler = Sink::start();
    handler.will(Manner::Silence);
    let arguments = ["--forward", &handler.url(), "--timeout", "1", "--retry-first", "5"];
    let receiving = Receiving::start(&arguments);
    receiving.send(&event("evt_1")).expect(200);
    for manner in [Manner::Close, Manner::raw("nonsense\r\n\r\n".into()), Manner::status(200)] {
        let before = handler.received().len();
        eventually("it is tried again", || handler.received().len() > before);
        handler.will(manner);
    }
    receiving.wait_for("processed", 1);
    assert_eq!(receiving.status()["dead"], 0);
}

#[test]
fn a_command_gets_the_event_on_its_input_and_its_status_decides() {
    let folder = Arc::new(TempDir::new().unwrap());
    let out = folder.path().join("out");
    // Fails at the first attempt.
    let command = format!(
        "cat >> {0}; echo \" $RESTIVE_EVENT_ID $RESTIVE_EVENT_TYPE $RESTIVE_ATTEMPT \
         ${{RESTIVE_RECEIVE_SECRET-no secret}}${{RESTIVE_DATABASE-}}\" >> {0}; \
         test $RESTIVE_ATTEMPT -gt 1",
        out.display()
    );
    let arguments = [&["--exec", &command], &QUICK[..]].concat();
    let mut command = Receiving::command(&folder, "127.0.0.1:0", SECRET, &arguments);
    command.env("RESTIVE_DATABASE", "of another command");
    let receiving = Receiving { server: Server::spawn(command, folder.clone()).over("http1") };
    let body = event("evt_1");
    receiving.send(&body).expect(200);
    receiving.wait_for("processed", 1);
    let expected = |attempt| format!("{body} evt_1 order.created {attempt} no secret\n");
    let written = std::fs::read_to_string(&out).unwrap();
    assert_eq!(written, format!("{}{}", expected(1), expected(2)));
}

#[test]
fn a_command_that_hangs_is_ended_with_all_that_it_started() {
    let folder = Arc::new(TempDir::new().unwrap());
    let pid = folder.path().join("pid");
    let command = format!("sleep 600 & echo $! > {}; wait", pid.display());
    let arguments = ["--exec", &command, "--timeout", "1", "--attempts", "1"];
    let receiving = Receiving::on(&folder, "127.0.0.1:0", SECRET, &arguments);
    // More than a pipe holds, and nobody reads it.
    let body = json!({"id": "evt_1", "filling": "x".repeat(300_000)}).to_string();
    receiving.send(&body).expect(200);
    receiving.wait_for("dead", 1);
    let error = receiving.list(&["--state", "dead"])[0]["error"].clone();
    assert_eq!(error, "the command did not end within 1 s");
    let pid = std::fs::read_to_string(&pid).unwrap();
    let state = format!("/proc/{}/stat", pid.trim());
    eventually("its child has ended", || {
        std::fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_process_that_a_command_leaves_behind_does_not_stop_the_worker() {
    // It keeps the input open and does not read it.
    let command = "exec 3<&0; sleep 600 <&3 & exit 0";
    let receiving = Receiving::start(&["--exec", command, "--workers", "1"]);
    for id in ["evt_1", "evt_2"] {
        // More than a pipe holds.
        let body = json!({"id": id, "filling": "x".repeat(300_000)}).to_string();
        receiving.send(&body).expect(200);
    }
    receiving.wait_for("processed", 2);
}

#[test]
fn what_was_acknowledged_is_processed_after_a_stop_or_a_kill() {
    let handler = Sink::start();
    let receiving = Receiving::start(&["--store-only"]);
    receiving.send(&event("evt_1")).expect(200);
    let (code, folder) = receiving.server.stop();
    assert_eq!(code, 0);
    let receiving = Receiving::on(&folder, "127.0.0.1:0", SECRET, &["--store-only"]);
    receiving.send(&event("evt_2")).expect(200);
    let folder = receiving.server.kill();
    let arguments = ["--forward", &handler.url()];
    let receiving = Receiving::on(&folder, "127.0.0.1:0", SECRET, &arguments);
    receiving.wait_for("processed", 2);
    let mut ids: Vec<String> = handler.received().iter().map(|request| request.id()).collect();
    ids.sort();
    assert_eq!(ids, ["evt_1", "evt_2"]);
    let (code, _) = receiving.server.stop();
    assert_eq!(code, 0);
}

#[test]
fn https_addresses_and_paths_are_checked() {
    let over = |arguments: &[&str]| {
        let receiving = Receiving::start(&[&["--store-only"], arguments].concat());
        receiving.send(&event("evt_1")).status
    };
    assert_eq!(over(&["--https-only", "on"]), 403);
    assert_eq!(over(&["--from", "192.0.2.0/24"]), 403);
    assert_eq!(over(&["--from", "192.0.2.0/24,127.0.0.0/8"]), 200);
    assert_eq!(over(&["--path", "/other"]), 404);
    assert_eq!(over(&["--path", "/hook"]), 200);
    // Only a trusted proxy is believed about HTTPS.
    for (trusted, status) in [("127.0.0.0/8", 200), ("192.0.2.0/24", 403)] {
        let arguments = ["--store-only", "--https-only", "on", "--trusted-proxies", trusted];
        let receiving = Receiving::start(&arguments);
        let body = event("evt_1");
        let secret = Secret::parse(SECRET).unwrap();
        let signature = Signer::new(&secret, None).timestamped(now(), body.as_bytes());
        let headers = [
            ("restive-signature", &*signature),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-for", "198.51.100.7"),
        ];
        assert_eq!(receiving.post(body.as_bytes(), &headers).status, status, "{trusted}");
    }
}

#[test]
fn forms_without_a_time_are_accepted_only_if_asked_for() {
    let secret = Secret::from_text("It's a Secret to Everybody");
    let body = event("evt_1");
    let signature = Signer::new(&secret, None).plain(body.as_bytes());
    let folder = || Arc::new(TempDir::new().unwrap());
    let github = ["--store-only", "--signature", "github"];
    let receiving = Receiving::on(&folder(), "127.0.0.1:0", secret.expose(), &github);
    let headers = [("x-hub-signature-256", &*signature)];
    assert_eq!(receiving.post(body.as_bytes(), &headers).status, 200);
    // GitHub's bodies have no id: the same body is the same event, whatever other headers say.
    let body = r#"{"action":"opened","number":7}"#;
    let other = body.replace('7', "8");
    let sign = |body: &str| Signer::new(&secret, None).plain(body.as_bytes());
    for (body, delivery, known) in [
        (body, "72d3162e-cc78-11e3-81ab-4c9367dc0958", None),
        (body, "00000000-0000-0000-0000-000000000000", Some(true)),
        (other.as_str(), "72d3162e-cc78-11e3-81ab-4c9367dc0958", None),
    ] {
        let signature = sign(body);
        let headers = [("x-hub-signature-256", &*signature), ("x-github-delivery", delivery)];
        let answer = receiving.post(body.as_bytes(), &headers).expect(200);
        assert_eq!(answer["known"].as_bool(), known, "{body} {delivery}");
    }
    assert_eq!(receiving.status()["pending"], 3);
    let receiving = Receiving::start(&["--store-only"]);
    assert_eq!(receiving.post(body.as_bytes(), &headers).status, 401);
}

#[test]
fn mistakes_of_the_operator_are_reported_before_anything_starts() {
    let folder = TempDir::new().unwrap();
    let fails = |arguments: &[&str], told: &str| {
        let all = [&["receive", "--listen", "127.0.0.1:0", "--data", "d"], arguments].concat();
        let (_, err, code) = run(folder.path(), &all);
        assert!(code == 1 && err.contains(told), "{arguments:?}: {err}");
        assert!(!err.contains("hunter2"), "a message shows the secret: {err}");
    };
    fails(&["--store-only"], "there is no secret to verify webhooks with");
    fails(&["--store-only", "--secret", "hunter2"], "does not begin with whsec_");
    fails(&["--secret", SECRET], "add --forward URL, --exec COMMAND or --store-only");
    fails(&["--secret", SECRET, "--forward", "ftp://x"], "must begin with http:// or https://");
    fails(&["--store-only", "--secret-file", "missing"], "cannot be read");
    fails(&["--store-only", "--secret", SECRET, "--signature", "hex"], "--signature-header");
    let (_, err, code) = run(folder.path(), &["receive", "--store-only", "--path", "hook"]);
    assert!(code == 2 && err.contains("a path begins with `/`: --path /hook"), "{code} {err}");
    let status = ["receive", "status", "--data", "nowhere"];
    let (_, err, code) = run(folder.path(), &status);
    assert!(code == 1 && err.contains("has no inbox"), "{err}");
    std::fs::write(folder.path().join("secrets"), format!("# old\n\n{SECRET}\n")).unwrap();
    let first = Receiving::start(&["--store-only"]);
    let data = first.server.data();
    let (secrets, data) = (folder.path().join("secrets"), data.to_str().unwrap());
    let second = [
        "receive",
        "--listen",
        "127.0.0.1:0",
        "--store-only",
        "--data",
        data,
        "--secret-file",
        secrets.to_str().unwrap(),
    ];
    let (_, err, code) = run(folder.path(), &second);
    assert!(code == 1 && err.contains("another restive receives into"), "{err}");
}
