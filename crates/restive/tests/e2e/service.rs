//! Running the service: health, metrics, log, drain, and the lock of the data folder.

use crate::deadline::Deadline as _;
use crate::harness::{KEY, Server, Start, eventually};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

#[test]
fn health_is_json_and_needs_no_key() {
    let server = Server::bookshop();
    server.book("Dune");
    let answer = server.ask_anonymously("GET", "/health").send();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.expect(200);
    assert_eq!((&body["status"], &body["service"]), (&json!("ok"), &json!("bookshop")));
    assert!(body["position"].as_i64().unwrap() > 0);
}

#[test]
fn a_draining_server_reports_it_keeps_serving_and_exits_with_0() {
    let server = Start::bookshop().arg("--drain-delay").arg("3").go();
    server.signal("-TERM");
    eventually("health tells of the drain", || server.get("/health").status == 503);
    let health = server.get("/health").expect(503);
    assert_eq!(health["status"], "draining");
    server.book("still served");
    let mut server = server;
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_signal_right_after_the_start_drains_the_server() {
    for _ in 0..10 {
        let (code, _) = Server::bookshop().stop();
        assert_eq!(code, 0);
    }
}

#[test]
fn a_request_in_progress_completes_before_the_process_exits() {
    let server = Server::bookshop();
    let body = "{\"title\":\"late\",\"author\":\"a\"}";
    let head = format!(
        "POST /v1/books HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body.as_bytes()[..5]).unwrap();
    eventually("the request has begun", || in_flight(&server) == 2.0);
    server.signal("-TERM");
    eventually("no new connection is taken", || TcpStream::connect(server.address).is_err());
    stream.write_all(&body.as_bytes()[5..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let mut server = server;
    assert_eq!(server.wait(), 0);
    let again = Start::bookshop().on(&server.folder).go();
    assert_eq!(again.get("/v1/books").titles(), ["late"]);
}

#[test]
fn sigint_stops_the_server_and_flushes_the_log() {
    let server = Server::bookshop();
    let id = server.get("/v1/books").header("request-id").unwrap().to_owned();
    server.signal("-INT");
    let mut server = server;
    assert_eq!(server.wait(), 0);
    eventually("the last line is there", || server.log.lock().unwrap().contains(&id));
    assert!(server.log.lock().unwrap().contains("stopped"));
}

/// The samples of the metrics page; every line must be well-formed.
fn metrics(server: &Server) -> HashMap<String, f64> {
    let page = server.ask_anonymously("GET", "/metrics").send();
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let mut samples = HashMap::new();
    let mut typed: Vec<String> = Vec::new();
    for line in page.text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            assert!(words.len() == 3 && matches!(words[0], "HELP" | "TYPE"), "{line}");
            if words[0] == "TYPE" {
                assert!(matches!(words[2], "counter" | "gauge" | "histogram"), "{line}");
                typed.push(words[1].to_owned());
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let (family, labels) = name.split_once('{').unwrap_or((name, "}"));
        assert!(labels.ends_with('}'), "{line}");
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
        let known = |family: &str| typed.iter().any(|name| name == family);
        assert!(known(family) || base.is_some_and(known), "no TYPE before: {line}");
        assert!(samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
    }
    samples
}

fn in_flight(server: &Server) -> f64 {
    metrics(server)["restive_requests_in_flight"]
}

#[test]
fn metrics_are_well_formed_and_count_requests() {
    let server = Server::bookshop();
    let before = metrics(&server);
    let book = server.book("Dune");
    server.get(&format!("/v1/books/{book}")).expect(200);
    server.get("/v1/books/book_none").error(404, "not_found");
    server.get("/nothing").error(404, "route_not_found");
    server.ask("BREW", "/v1/books").send().error(501, "not_implemented");
    let after = metrics(&server);
    let grown = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
    let requests = |route: &str, method: &str, status: u16| {
        format!(
            "restive_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}"
        )
    };
    for name in [
        requests("/v1/books", "POST", 201),
        requests("/v1/books/{book_id}", "GET", 200),
        requests("/v1/books/{book_id}", "GET", 404),
        requests("unknown", "GET", 404),
        requests("unknown", "other", 501),
    ] {
        assert_eq!(grown(&name), 1.0, "{name}");
    }
    assert_eq!(grown("restive_request_seconds_count{route=\"/v1/books/{book_id}\"}"), 2.0);
    assert!(grown("restive_commits_total") >= 1.0 && grown("restive_writes_total") >= 1.0);
    assert_eq!(after["restive_requests_in_flight"], 1.0, "this very request");
    assert!(after.contains_key("restive_write_queue") && after.contains_key("restive_search_lag"));
    let batches = after["restive_commit_batch_size_bucket{le=\"+Inf\"}"];
    assert_eq!(batches, after["restive_commit_batch_size_count"]);
    assert!(!after.keys().any(|name| name.contains(&book)), "no series per record");
}

#[test]
fn each_request_has_one_log_line_under_its_id() {
    let server = Server::bookshop();
    let made = server.post("/v1/books?", json!({"title": "t", "author": "a"}));
    let failed = server.get("/v1/books/none?expand=reviews");
    let secret = server.get("/v1/books?q=personal");
    for (answer, method, path) in [
        (&made, "POST", "/v1/books"),
        (&failed, "GET", "/v1/books/none"),
        (&secret, "GET", "/v1/books"),
    ] {
        let id = answer.header("request-id").unwrap();
        assert!(id.starts_with("req_"));
        eventually("the line is written", || server.log.lock().unwrap().contains(id));
        let log = server.log.lock().unwrap().clone();
        let lines: Vec<&str> =
            log.lines().filter(|line| line.contains(id) && line.contains("request")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        let line: Value = serde_json::from_str(lines[0]).unwrap();
        assert_eq!((&line["method"], &line["path"]), (&json!(method), &json!(path)));
        assert_eq!(line["status"], answer.status);
        assert!(line["account"].as_str().unwrap().starts_with("acct_"));
        assert!(line["key"].as_str().unwrap().starts_with("key_"));
        assert!(line["duration_us"].is_u64() && line["bytes"].is_u64() && line["time"].is_string());
    }
    let log = server.log.lock().unwrap().clone();
    assert!(log.contains("\"error\":\"not_found\""));
    assert!(!log.contains(KEY) && !log.contains("personal"), "no key and no query");
    let mut ids: Vec<String> =
        (0..50).map(|_| server.get("/health").header("request-id").unwrap().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 50, "each request has an id of its own");
}

#[test]
fn the_log_of_requests_can_be_switched_off() {
    let server = Start::bookshop().arg("--access-log").arg("off").go();
    server.get("/v1/books").expect(200);
    server.signal("-TERM");
    let mut server = server;
    assert_eq!(server.wait(), 0);
    eventually("the log is read to its end", || server.log.lock().unwrap().contains("stopped"));
    assert!(!server.log.lock().unwrap().contains("/v1/books"));
}

#[test]
fn each_line_of_the_log_has_one_form_for_programs_or_people() {
    let ended = |form: &str| {
        let mut server = Start::bookshop().arg("--log-format").arg(form).go();
        server.get("/v1/books/absent").expect(404);
        server.signal("-TERM");
        assert_eq!(server.wait(), 0);
        let log = || server.log.lock().unwrap().clone();
        eventually("the log is read to its end", || log().contains("stopped"));
        log()
    };
    // The log of a test is no terminal.
    for form in ["auto", "json"] {
        for line in ended(form).lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line["time"].is_string() && line["level"] == "info", "{line}");
            assert!(line["message"].is_string() || line["event"] == "request", "{line}");
        }
    }
    let text = ended("text");
    assert!(text.contains("  404 GET /v1/books/absent "), "{text}");
    assert!(text.contains(" INFO stopped") && !text.contains('{'), "{text}");
}

#[test]
fn a_folder_or_port_in_use_is_refused_with_a_reason() {
    let server = Server::bookshop();
    let (code, error) = Start::bookshop().on(&server.folder).fails();
    assert_eq!(code, 1);
    assert!(error.contains("another restive serves"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--listen", &address, "--data", "data"];
    let (_, error, code) = crate::harness::run(folder.path(), &arguments);
    assert_eq!(code, 1);
    assert!(error.contains(&format!("cannot listen on {address} (another program")), "{error}");
    assert!(error.contains("choose another address"), "{error}");
    server.get("/v1/books").expect(200);
}

#[test]
fn data_survives_a_stop_and_a_kill() {
    let server = Server::bookshop();
    let first = server.book("first");
    let before = server.get(&format!("/v1/books/{first}"));
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let server = Start::bookshop().on(&folder).go();
    let second = server.book("second");
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    let after = server.get(&format!("/v1/books/{first}"));
    assert_eq!((&after.text, after.header("etag")), (&before.text, before.header("etag")));
    server.get(&format!("/v1/books/{second}")).expect(200);
    assert_eq!(server.get("/v1/books?q=second").titles(), ["second"]);
}

#[test]
fn early_hints_precede_the_response_for_clients_that_support_them() {
    let link = "</style.css>; rel=preload; as=style";
    let server = Start::schema(&format!(
        "[service]\nearly_hints = [\"</page.css>; rel=preload\"]\n\
         [collections.books]\nearly_hints = [\"{link}\"]\n\
         [collections.books.fields]\ntitle = {{ type = \"string\" }}\n"
    ))
    .go();
    let ask = |path: &str, more: &str| {
        server.raw(
            format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n{more}\
                 Connection: close\r\n\r\n"
            )
            .as_bytes(),
        )
    };
    let browser = "Sec-Fetch-Mode: navigate\r\n";
    let answer = ask("/v1/books", browser);
    let (early, rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(early.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{answer}");
    assert!(early.contains(&format!("link: {link}")), "{answer}");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(ask("/v1/books", "").starts_with("HTTP/1.1 200 "), "others might not understand");
    assert!(ask("/errors", browser).contains("</page.css>"));
    let refused = ask("/v1/books?unknown=1", browser);
    assert!(refused.contains("HTTP/1.1 400 "), "a hint is no promise: {refused}");
    let curl = std::process::Command::new("curl")
        .args(["-sSi", "--http2-prior-knowledge", "-u", &format!("{KEY}:")])
        .arg(server.url("/v1/books"))
        .output_in_time()
        .unwrap();
    let seen = String::from_utf8(curl.stdout).unwrap();
    assert!(seen.starts_with("HTTP/2 103 ") && seen.contains("HTTP/2 200 "), "{seen}");
}
