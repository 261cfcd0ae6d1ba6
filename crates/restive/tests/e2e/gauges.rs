//! Gauges return to zero when nothing is in progress, even after clients that disconnected during
//! their requests.

use crate::carry::{self, Bytewise};
use crate::deliveries::figure;
use crate::harness::{KEY, Server, Start, eventually};
use crate::sink::{Manner, Sink};
use serde_json::json;
use std::io::Write as _;

/// Clients of each kind; 200 in total.
const POLLS: usize = 80;
const CALLS: usize = 60;
const UPLOADS: usize = 60;

fn begin(server: &Server, line: &str, more: &str) -> Box<dyn Bytewise> {
    let mut stream = carry::plain(server.address);
    let head = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\n{more}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn clients_that_disconnect_during_a_request_leave_gauges_at_zero() {
    let sink = Sink::start();
    sink.will(Manner::Silence);
    let schema = format!(
        "[collections.jobs]\nfields = {{ name = \"string\" }}\n\
         actions.run.handler = {{ url = \"{}\", timeout = \"3s\" }}\n\
         [collections.notes]\nfields = {{ text = \"string\" }}\nfeed = true\n",
        sink.url()
    );
    let server = Start::schema(&schema).arg("--rate-limit").arg("off").go();
    let jobs: Vec<_> = (0..CALLS).map(|_| server.make("/v1/jobs", json!({}))).collect();
    let since = server.post("/v1/notes", json!({"text": "a"})).expect(201)["id"].clone();
    let in_flight = || figure(&server, "restive_requests_in_flight").unwrap();
    // The request for the metrics counts too.
    assert_eq!(in_flight(), 1.0);
    let mut clients = Vec::new();
    for _ in 0..POLLS {
        let line = format!("GET /api/notes?since={since}&wait=true");
        clients.push(begin(&server, &line, "\r\n"));
    }
    for id in &jobs {
        let line = format!("POST /v1/jobs/{id}/run");
        clients.push(begin(&server, &line, "Content-Length: 2\r\n\r\n{}"));
    }
    for _ in 0..UPLOADS {
        clients.push(begin(&server, "POST /v1/jobs", "Content-Length: 100\r\n\r\n{"));
    }
    let all = (POLLS + CALLS + UPLOADS) as f64;
    eventually("all have begun", || in_flight() == all + 1.0);
    drop(clients);
    eventually("none is left", || in_flight() == 1.0);
    let page = server.get("/metrics").text;
    let ended = |method: &str, route: &str, status: u16| {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        figure(&server, &format!("restive_requests_total{{{labels}}}")).unwrap_or(0.0)
    };
    assert_eq!(ended("GET", "/api/notes", 499), POLLS as f64, "{page}");
    // A body that ends too early has a response, although no client reads it.
    assert_eq!(ended("POST", "/v1/jobs", 400), UPLOADS as f64, "{page}");
    for gauge in ["restive_write_queue", "restive_live_connections", "restive_webhook_in_flight"] {
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with(gauge)).collect();
        assert!(!lines.is_empty(), "{gauge}: {page}");
        assert!(lines.iter().all(|line| line.ends_with(" 0")), "{lines:?}");
    }
    eventually("each has its line in the log", || {
        server.log.lock().unwrap().matches("\"error\":\"client_left\"").count() >= POLLS
    });
}
