//! Small rules of HTTP and of access control: what a request must not learn or do, and what its
//! response must contain.

use crate::auth::account;
use crate::deadline::Deadline as _;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually, executable};
use crate::live_client::{Opened, Socket, bearer, figures, token};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn timestamps_in_the_last_supported_year_are_accepted() {
    let schema =
        "[collections.notes]\nfields.at = { type = \"timestamp\", filter = true, sort = true }\n";
    let server = Start::schema(schema).go();
    for (sent, kept) in [
        ("9999-12-30T21:59:59Z", "9999-12-30T21:59:59.000Z"),
        ("9999-12-30T22:00:01Z", "9999-12-30T22:00:01.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59.999Z"),
        ("9999-12-31T22:59:59.999-01:00", "9999-12-31T23:59:59.999Z"),
    ] {
        let made = server.post("/v1/notes", json!({ "at": sent }));
        assert_eq!(made.status, 201, "{sent}: {}", made.text);
        assert_eq!(made.json["at"], kept);
        let found = server.get(&format!("/v1/notes?at={kept}"));
        assert!(found.column("at").contains(&json!(kept)), "{}", found.text);
    }
    let latest = server.get("/v1/notes?min_at=9999-12-31T00:00:00Z&sort=-at").column("at");
    assert_eq!(latest, ["9999-12-31T23:59:59.999Z"; 3]);
    for bad in [
        "9999-12-31T23:59:59.999-00:01",
        "9999-12-31T24:00:00Z",
        "10000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999",
        "9999-12-31T23:59:59+99:00",
        "9999-12-32T00:00:00Z",
        "9999-12-31T23:61:00Z",
    ] {
        server.post("/v1/notes", json!({ "at": bad })).error(422, "validation_failed");
    }
}

#[test]
fn head_on_a_stream_returns_no_content_length() {
    let server = Server::bookshop();
    let get = Opened::try_get(server.address, "/api/events", &[bearer(KEY)], PATIENCE).unwrap();
    for version in ["http1", "http2"] {
        let server = Server::bookshop().over(version);
        let head = server.ask("HEAD", "/api/events").send();
        assert_eq!((head.status, head.text.as_str()), (200, ""), "{version}");
        assert_eq!(head.header("content-length"), None, "{version}");
        for name in ["content-type", "cache-control", "x-accel-buffering"] {
            assert_eq!(head.header(name), get.header(name), "{version}: {name}");
        }
        assert_eq!(figures(&server)["restive_live_connections{channel=\"sse\"}"], 0.0);
        server.ask("HEAD", "/api/events?types=nonsense").send();
        server.get("/v1/books").expect(200);
    }
}

#[test]
fn responses_to_a_token_in_a_url_are_not_cacheable_by_others() {
    let server = Server::bookshop();
    let made = token(&server, json!({ "user": "ann" }));
    let path = format!("/api/messages?access_token={made}");
    let polled = server.ask_anonymously("GET", &path).send();
    assert_eq!(polled.header("cache-control"), Some("private, no-cache"));
    let tag = polled.header("etag").unwrap();
    let again = server.ask_anonymously("GET", &path).header("if-none-match", tag).send();
    assert_eq!((again.status, again.header("cache-control")), (304, Some("private, no-cache")));
    let target = format!("/api/events?access_token={made}");
    let stream = Opened::try_get(server.address, &target, &[], PATIENCE).unwrap();
    assert_eq!(stream.header("cache-control"), Some("private, no-cache"));
}

#[test]
fn only_a_refused_token_is_reported_as_invalid_token() {
    let server = Server::bookshop();
    let said = |answer: crate::harness::Answer| {
        assert_eq!(answer.status, 401, "{}", answer.text);
        answer.header("www-authenticate").unwrap().to_owned()
    };
    let invalid = "error=\"invalid_token\"";
    for (path, key) in [
        ("/v1/books", "sk_test_nobody_0123456789"),
        ("/v1/books", "ct_x"),
        ("/api/events", "ct_x"),
        ("/v1/account", "sk_test_nobody_0123456789"),
    ] {
        let told = said(server.ask("GET", path).key(key).send());
        assert!(told.starts_with("Bearer realm=\"restive\", ") && told.contains(invalid), "{told}");
    }
    let told = said(server.ask_anonymously("GET", "/api/messages?access_token=ct_x").send());
    assert!(told.contains(invalid), "{told}");
    for path in ["/v1/books", "/api/events", "/v1/account"] {
        let told = said(server.ask_anonymously("GET", path).send());
        assert!(!told.contains("error="), "{told}");
    }
}

#[test]
fn every_response_that_depends_on_the_origin_has_vary() {
    let varies = |head: &str| {
        let vary = head.lines().filter(|line| line.starts_with("vary:"));
        vary.flat_map(|line| line[5..].split(',')).any(|name| name.trim() == "origin")
    };
    let schema =
        model::schema::BOOKSHOP.replace("origins = []", "origins = [\"https://shop.example\"]");
    let named = Start::schema(&schema).go();
    let none = Server::bookshop();
    for (server, always) in [(&named, true), (&none, false)] {
        for origin in [None, Some("https://shop.example"), Some("https://evil.example")] {
            for path in ["/api/messages", "/api/events", "/v1/presence", "/api/messages?x=1"] {
                let mut headers = vec![bearer(KEY)];
                headers.extend(origin.map(|origin| format!("Origin: {origin}")));
                let opened = Opened::try_get(server.address, path, &headers, PATIENCE).unwrap();
                assert_eq!(varies(&opened.head), always, "{path} {origin:?}: {}", opened.head);
            }
            // A WebSocket always depends on the origin.
            let headers: Vec<String> = origin
                .into_iter()
                .map(|one| format!("Origin: {one}"))
                .chain([bearer(KEY)])
                .collect();
            let opened = Socket::ask(server.address, "/ws", &headers, PATIENCE).unwrap();
            assert!(varies(&opened.head), "{origin:?}: {}", opened.head);
        }
        let books = Opened::try_get(server.address, "/v1/books", &[bearer(KEY)], PATIENCE).unwrap();
        assert!(!varies(&books.head), "resources are not shared with pages: {}", books.head);
    }
}

#[test]
fn a_filter_by_an_unknown_value_is_refused_with_the_known_values() {
    let server = Server::bookshop();
    let order = server.make("/v1/orders", json!({"book": server.book("Dune")}));
    assert_eq!(server.get("/v1/orders?status=created").column("id"), [json!(order)]);
    server.get("/v1/orders?status=paid,created").expect(200);
    for (query, value, meant) in [
        ("status=creatd", "creatd", Some("created")),
        ("status=created,Paid", "Paid", Some("paid")),
        ("status=zzzzzzzz", "zzzzzzzz", None),
        ("status=", "", None),
    ] {
        let error = server.get(&format!("/v1/orders?{query}")).error(400, "invalid_parameter");
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["param"], "status", "{message}");
        assert!(message.contains("created") && message.contains("paid"), "{message}");
        assert!(message.contains(&format!("`{value}`")), "{message}");
        let hint = meant.map(|meant| format!("did you mean `{meant}`"));
        assert!(hint.is_none_or(|hint| message.contains(&hint)), "{message}");
    }
    let schema = "[collections.pens]\n[collections.pens.fields]\n\
                  ink = { type = \"string\", enum = [\"blue\", \"red\"], filter = true }\n";
    let server = Start::schema(schema).go();
    server.make("/v1/pens", json!({"ink": "blue"}));
    server.make("/v1/pens", json!({}));
    assert_eq!(server.get("/v1/pens?ink=blue").column("ink"), ["blue"]);
    assert_eq!(server.get("/v1/pens?ink=null").column("ink"), [Value::Null]);
    assert_eq!(server.get("/v1/pens?ink=null,blue").column("ink").len(), 2);
    server.get("/v1/pens?ink=blu").error(400, "invalid_parameter");
}

#[test]
fn a_key_that_expires_in_the_past_is_not_created() {
    let server = Server::bookshop();
    let make = |end: &str| server.tool(&["keys", "create", "--expires-at", end]);
    for past in ["2020-01-01T00:00:00Z", "1970-01-01T00:00:00Z"] {
        let (_, error, code) = make(past);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("in the past") && error.contains("--expires-at"), "{error}");
    }
    let (_, error, code) = make("2999-01-01T00:00:00Z");
    assert_eq!(code, 0, "{error}");
}

#[test]
fn a_channel_token_used_as_an_api_key_gets_an_error_that_explains_it() {
    let server = Server::bookshop();
    let made = token(&server, json!({ "user": "ann" }));
    for path in ["/v1/books", "/v1/account", "/v1/presence"] {
        let error = server.ask("GET", path).key(&made).send().error(401, "invalid_api_key");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("channel token") && message.contains("API key"), "{message}");
    }
}

const OLD: &str = "[collections.books]\ndeprecated = \"2026-01-01\"\n\
                   fields = { title = \"string\" }\n";

fn scrape(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_show_the_name_of_an_account_only_to_itself_and_to_the_operator() {
    let server = Start::schema(OLD).arg("--metrics-listen").arg("127.0.0.1:0").go();
    let (other, theirs, _) = account(&server, "other");
    let own = server.get("/v1/account").expect(200)["id"].as_str().unwrap().to_owned();
    server.get("/v1/books").expect(200);
    server.get("/v1/books").expect(200);
    server.ask("GET", "/v1/books").key(&theirs).send().expect(200);
    let series = "restive_deprecated_collection_requests_total{collection=\"books\"";
    let open = server.ask_anonymously("GET", "/metrics").send();
    assert!(!open.text.contains("acct_"), "{}", open.text);
    assert!(open.text.contains(&format!("{series}}} 3\n")), "{}", open.text);
    let named = server.get("/metrics").text;
    assert!(named.contains(&format!("{series},account=\"{own}\"}} 2\n")), "{named}");
    assert!(!named.contains(&other), "{named}");
    assert!(named.contains(&format!("{series},account=\"other\"}} 1\n")), "{named}");
    server
        .ask("GET", "/metrics")
        .key("sk_test_nobody_0123456789")
        .send()
        .error(401, "invalid_api_key");
    let line = server.greeting.lines().find_map(|line| line.strip_prefix("metrics on http://"));
    let address = line.unwrap().split('/').next().unwrap().to_owned();
    let all = scrape(&address, "/metrics");
    for (account, count) in [(&own, 2), (&other, 1)] {
        let line = format!("{series},account=\"{account}\"}} {count}\n");
        assert!(all.contains(&line), "{line}{all}");
    }
    assert!(all.starts_with("HTTP/1.1 200 OK"), "{all}");
    let elsewhere = scrape(&address, "/v1/books");
    assert!(elsewhere.starts_with("HTTP/1.1 404"), "{elsewhere}");
    assert_eq!(server.stop().0, 0);
}

#[test]
fn metrics_report_the_resources_of_the_process() {
    let server = Server::bookshop();
    let figures = figures(&server);
    for (name, at_least) in [
        ("process_resident_memory_bytes", 1e6),
        ("process_virtual_memory_bytes", 1e6),
        ("process_open_fds", 5.0),
        ("process_max_fds", 100.0),
        ("process_cpu_seconds_total", 0.0),
        ("process_start_time_seconds", 1.7e9),
    ] {
        let value = figures.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(*value >= at_least, "{name} {value}");
    }
    let resident = crate::hostile::resident_kib(&server) as f64 * 1024.0;
    let told = figures["process_resident_memory_bytes"];
    assert!((told - resident).abs() < 0.5 * resident, "{told} {resident}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - figures["process_start_time_seconds"];
    assert!((-5.0..120.0).contains(&age), "{age}");
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// All files below a folder.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_below(&path));
        }
        found.push(path);
    }
    found
}

fn assert_private(folder: &Path) {
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    for path in all_below(folder) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

#[test]
fn other_users_of_the_machine_cannot_read_the_data() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").arg("--http3").arg("off");
    let folder = std::sync::Arc::new(tempfile::TempDir::new().unwrap());
    let mut command = Command::new("sh");
    let plain = server.command(folder.path());
    // With the most permissive umask.
    command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(plain.get_program());
    command.args(plain.get_args()).env("RESTIVE_BOOTSTRAP_KEY", KEY);
    let server = Server::spawn(command, folder);
    let data = server.data();
    let files = all_below(&data).len();
    assert!(files >= 5, "{files} files");
    assert_private(&data);
    let copy = server.folder.path().join("copy.db");
    let made = Command::new("sh")
        .args(["-c", "umask 000; exec \"$@\"", "sh", executable(), "backup"])
        .arg(&copy)
        .arg("--data")
        .arg(&data)
        .output_in_time()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(mode(&copy), 0o600);
    let (_, _, code) = server.tool(&["keys", "list"]);
    assert_eq!(code, 0);
    assert_private(&data);
}

#[test]
fn a_start_removes_the_access_of_other_users_to_existing_data() {
    let server = Server::bookshop();
    server.book("Dune");
    let folder = server.kill();
    let data = folder.path().join("data");
    let open = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    all_below(&data).iter().for_each(|path| open(path, 0o644));
    open(&data, 0o755);
    let server = Start::bookshop().on(&folder).go();
    assert_private(&data);
    assert_eq!(server.get("/v1/books").column("id").len(), 1);
    let folder = server.kill();
    // A folder with other files keeps its mode, and a warning is logged.
    std::fs::write(data.join("notes.txt"), "mine").unwrap();
    open(&data, 0o755);
    open(&data.join("notes.txt"), 0o644);
    open(&data.join("restive.db"), 0o644);
    let server = Start::bookshop().on(&folder).go();
    assert_eq!((mode(&data), mode(&data.join("notes.txt"))), (0o755, 0o644));
    assert_eq!(mode(&data.join("restive.db")), 0o600);
    eventually("it is logged", || server.log.lock().unwrap().contains("other users"));
}
