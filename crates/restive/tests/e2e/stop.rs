//! The end of a server that does not end by itself, and `/health` of a server that hangs.

use crate::carry;
use crate::deliveries::{endpoint, figure};
use crate::harness::{KEY, Server, Start, eventually};
use crate::sink::{Manner, Sink};
use serde_json::json;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// The longest drain: 10 s for connections, 5 s for webhooks, and 5 s beyond.
const LONGEST_STOP: Duration = Duration::from_secs(20);
/// For a busy machine.
const SLACK: Duration = Duration::from_secs(5);
/// Exit code if a part did not stop in time.
const EXIT_STUCK: i32 = 70;

#[test]
fn health_names_a_hanging_loop_and_the_process_still_ends() {
    let mut server = Server::with_unread_log(Start::bookshop().arg("--rate-limit").arg("off"));
    let health = server.get("/health").expect(200);
    assert_eq!((&health["stuck"], &health["reason"]), (&json!([]), &json!(null)));
    // A pipe holds 64 KiB. Nothing reads this one, so the thread that writes the log blocks.
    let long = format!("/v1/books/{}", "x".repeat(1000));
    for _ in 0..200 {
        assert_eq!(server.get(&long).status, 404);
    }
    let own = "restive_loop_silence_seconds{loop=\"log\"}";
    eventually("health names the loop", || server.get("/health").status == 503);
    let health = server.get("/health").expect(503);
    assert_eq!((&health["status"], &health["stuck"][0]["loop"]), (&json!("stuck"), &json!("log")));
    assert!(health["stuck"][0]["silent_seconds"].as_u64().unwrap() >= 10, "{health}");
    assert!(health["reason"].as_str().unwrap().contains("log"), "{health}");
    assert!(figure(&server, own).unwrap() > 10.0);
    let main = figure(&server, "restive_loop_silence_seconds{loop=\"main\"}").unwrap();
    assert!(main < 10.0, "the others move: {main}");
    server.book("requests are still answered");
    let began = Instant::now();
    server.signal("-TERM");
    // The log line about the drain blocks as well.
    assert_eq!(server.wait(), EXIT_STUCK);
    let took = began.elapsed();
    assert!(took > LONGEST_STOP - SLACK && took < LONGEST_STOP + SLACK, "{took:?}");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for (name, code) in [("-TERM", 143), ("-INT", 130)] {
        let mut server = Start::bookshop().arg("--drain-delay").arg("600").go();
        server.signal("-TERM");
        eventually("it drains", || server.get("/health").status == 503);
        let began = Instant::now();
        server.signal(name);
        assert_eq!(server.wait(), code);
        assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
        eventually("it says why", || server.log.lock().unwrap().contains("a second signal"));
    }
}

#[test]
fn hanging_handlers_receivers_and_streams_do_not_delay_the_stop() {
    const STREAMS: usize = 500;
    const CALLS: usize = 20;
    let sink = Sink::start();
    let schema = format!(
        "[collections.jobs]\nfields = {{ name = \"string\" }}\n\
         actions.run.handler = {{ url = \"{}\", timeout = \"60s\" }}\n\
         [webhooks]\ndevelopment = true\n",
        sink.url()
    );
    let mut server = Start::schema(&schema).arg("--rate-limit").arg("off").go();
    sink.will(Manner::Silence);
    endpoint(&server, &sink, json!({"timeout": 30}));
    let ask = |method: &str, path: &str| {
        let mut stream = carry::plain(server.address);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let ids: Vec<_> = (0..CALLS).map(|_| server.make("/v1/jobs", json!({}))).collect();
    let calls: Vec<_> = ids.iter().map(|id| ask("POST", &format!("/v1/jobs/{id}/run"))).collect();
    let streams: Vec<_> = (0..STREAMS).map(|_| ask("GET", "/api/events")).collect();
    eventually("all of them hang", || {
        figure(&server, "restive_requests_in_flight") == Some(CALLS as f64 + 1.0)
            && figure(&server, "restive_webhook_in_flight") > Some(0.0)
            && figure(&server, "restive_live_connections{channel=\"sse\"}") == Some(STREAMS as f64)
    });
    let began = Instant::now();
    server.signal("-TERM");
    assert_eq!(server.wait(), 0, "{}", server.log.lock().unwrap());
    assert!(began.elapsed() < LONGEST_STOP, "{:?}", began.elapsed());
    drop((calls, streams));
}
