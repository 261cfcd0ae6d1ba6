//! `restive migrate` between a folder and PostgreSQL: what clients hold works afterwards, an
//! interrupted move goes on, and nothing else is moved into or served. Only where
//! `RESTIVE_TEST_POSTGRES` names a server; each test has a schema of its own there.

use crate::database;
use crate::deadline::{Deadline as _, wait_with_output};
use crate::deliveries::{endpoint, wait_for};
use crate::harness::{Server, Start, eventually, executable};
use crate::live_client::Events;
use crate::long_texts::{NOTES, noise};
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// An empty schema of the test server; none where there is no such server.
fn database() -> Option<String> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let server = std::env::var("RESTIVE_TEST_POSTGRES").ok()?;
    let schema = format!("m{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let made = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
    database::run(&server, &made);
    let mark = if server.contains('?') { '&' } else { '?' };
    Some(format!("{server}{mark}schema={schema}"))
}

/// A server on the folder alone, also where the suite runs on PostgreSQL.
fn on_folder(start: &Start, folder: &Arc<TempDir>) -> Server {
    let mut command = start.command(folder.path());
    command.env_remove("RESTIVE_DATABASE");
    Server::spawn(command, folder.clone())
}

fn on_database(start: &Start, url: &str) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let mut command = start.command(folder.path());
    command.env("RESTIVE_DATABASE", url);
    Server::spawn(command, folder)
}

fn migrate(from: &str, to: &str) -> Command {
    let mut command = Command::new(executable());
    command.args(["migrate", "--from", from, "--to", to]);
    command
}

/// Moves everything; returns what the command prints.
#[track_caller]
fn moved(from: &str, to: &str) -> Value {
    let output = migrate(from, to).arg("--json").output_in_time().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["equal"], true, "{report}");
    report
}

/// A move that is refused; returns why.
#[track_caller]
fn refused(from: &str, to: &str) -> String {
    let output = migrate(from, to).output_in_time().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    error
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Paths whose responses must not change: lists page by page, and each record by itself.
const LISTS: [&str; 12] = [
    "/v1/books?limit=3",
    "/v1/books?limit=3&sort=-price",
    "/v1/books?q=titulo&limit=3",
    "/v1/orders?expand=book",
    "/v1/messages?limit=2",
    "/v1/events?limit=7",
    "/v1/events?delivery=pending",
    "/v1/deliveries?limit=2",
    "/v1/webhook-endpoints",
    "/v1/erasures",
    "/v1/replays",
    "/v1/keys",
];

/// What a server answers to all of it.
fn answers(server: &Server) -> Vec<(String, String)> {
    let mut answers = Vec::new();
    for list in LISTS {
        let mut path = list.to_owned();
        loop {
            let page = server.get(&path);
            assert_eq!(page.status, 200, "{path}: {}", page.text);
            answers.push((path, page.text.clone()));
            for record in page.json["data"].as_array().unwrap() {
                let name = list.split('?').next().unwrap();
                let path = format!(
                    "{name}/{}",
                    match &record["id"] {
                        Value::String(id) => id.clone(),
                        id => id.to_string(),
                    }
                );
                let one = server.get(&path);
                let tag = one.header("etag").unwrap_or("none").to_owned();
                answers.push((path, format!("{} {tag} {}", one.status, one.text)));
            }
            let Some(cursor) = page.json["pagination"]["next_cursor"].as_str() else { break };
            path = format!("{list}&after={cursor}");
        }
    }
    // When a key was last used changes with every look.
    answers.retain(|(path, _)| !path.starts_with("/v1/keys/"));
    for (_, keys) in answers.iter_mut().filter(|(path, _)| path == "/v1/keys") {
        let mut list: Value = serde_json::from_str(keys).unwrap();
        list["data"].as_array_mut().unwrap().iter_mut().for_each(|key| {
            key["last_used_at"].take();
        });
        *keys = list.to_string();
    }
    answers
}

#[track_caller]
fn assert_same(before: &[(String, String)], after: &[(String, String)]) {
    for ((path, before), (_, after)) in before.iter().zip(after) {
        assert_eq!(before, after, "{path}");
    }
    assert_eq!(before.len(), after.len());
}

/// A service with something in every table; returns the id of a delivery that failed and waits, and
/// the secret of the endpoint that works.
fn fill(server: &Server, sink: &Sink, broken: &Sink) -> (String, String) {
    let with = json!({"url": sink.url(), "enabled_events": ["book.created"]});
    let made = server.post("/v1/webhook-endpoints", with).expect(201);
    broken.will(Manner::status(503));
    let with = json!({"enabled_events": ["order.created"], "retry_schedule": [36_000]});
    let failing = endpoint(server, broken, with);
    let books: Vec<String> =
        (0..9).map(|n| server.book(&format!("Título {n} of the move"))).collect();
    for (n, book) in books.iter().enumerate() {
        server.patch(&format!("/v1/books/{book}"), json!({"price": n % 3})).expect(200);
        server.make(&format!("/v1/books/{book}/reviews"), json!({"rating": 5, "text": "a\u{1}b"}));
    }
    server.make("/v1/orders", json!({"book": books[0]}));
    for n in 0..5 {
        server.post("/v1/messages", json!({"text": format!("m{n}")})).expect(201);
    }
    server.delete(&format!("/v1/books/{}", books[8]));
    server.post("/v1/erasures", json!({"resource": books[7]})).expect(201);
    server.post("/v1/keys", json!({"name": "second", "scopes": ["books:read"]})).expect(201);
    eventually("the erasure is finished", || {
        server.get("/v1/erasures").text.contains("\"completed\"")
            || !server.get("/v1/events?limit=100").text.contains("Título 7")
    });
    eventually("books arrive", || sink.of("book.created").len() == 9);
    let waiting = wait_for(server, &failing, &["pending"]).remove(0);
    eventually("every outcome is stored", || {
        server.get("/v1/events?delivery=succeeded&type=book.created").column("id").len() == 9
    });
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    (word(&waiting["id"]), word(&made["secret"]))
}

/// Whether the last delivery of a book is signed with a secret.
fn is_signed(folder: &Path, sink: &Sink, secret: &str) -> bool {
    let last = sink.of("book.created").pop().unwrap();
    let body = folder.join("body");
    std::fs::write(&body, &last.body).unwrap();
    let mut command = Command::new(executable());
    command.args(["verify", "signature", "--secret", secret]).arg("--body").arg(&body);
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        command.arg("--header").arg(format!("{name}: {}", last.header(name).unwrap()));
    }
    command.output_in_time().unwrap().status.success()
}

/// The position of a stream after its first book, and the ids that come after it.
fn position(server: &Server) -> (String, usize) {
    let mut events = Events::open_from(server, "/api/events?types=book.created&since=0", None);
    let first = events.named("book.created");
    (first.id.unwrap(), 8)
}

#[test]
fn what_clients_hold_works_after_a_move_to_postgresql_and_back() {
    let Some(url) = database() else { return };
    let (sink, broken) = (Sink::start(), Sink::start());
    let folder = Arc::new(TempDir::new().unwrap());
    let start = Start::bookshop();
    let server = on_folder(&start, &folder);
    let (waiting, signing) = fill(&server, &sink, &broken);
    let key = server.post("/v1/keys", json!({"name": "kept", "scopes": null})).expect(201);
    let secret = key["secret"].as_str().unwrap().to_owned();
    let create = |server: &Server| {
        let ask = server.ask("POST", "/v1/books").header("idempotency-key", "move-1");
        ask.json(&json!({"title": "Once", "author": "Ann"})).send()
    };
    let created = create(&server).expect(201);
    eventually("it arrives", || sink.of("book.created").len() == 10);
    let (place, later) = position(&server);
    eventually("it is stored", || {
        server.get("/v1/events?delivery=succeeded&type=book.created").column("id").len() == 10
    });
    let before = answers(&server);
    assert_eq!(server.stop().0, 0);

    moved(text(&folder.path().join("data")), &url);
    let server = on_database(&start, &url);
    assert_same(&before, &answers(&server));
    assert_eq!(create(&server).expect(201), created, "the answer is remembered");
    assert_eq!(server.ask("GET", "/v1/books").key(&secret).send().status, 200);
    let mut events = Events::open_from(&server, "/api/events?types=book.created", Some(&place));
    (0..=later).for_each(|_| drop(events.named("book.created")));
    assert_eq!(sink.of("book.created").len(), 10, "nothing is sent again");
    let failed = broken.of("order.created").len();
    broken.will(Manner::status(200));
    server.post(&format!("/v1/deliveries/{waiting}/retry"), json!({})).expect(200);
    eventually("the delivery that waited", || {
        server.get(&format!("/v1/deliveries/{waiting}")).json["status"] == "succeeded"
    });
    assert_eq!(broken.of("order.created").len(), failed + 1);
    server.book("Made in PostgreSQL");
    eventually("new events arrive", || sink.of("book.created").len() == 11);
    assert!(is_signed(folder.path(), &sink, &signing));
    assert!(!is_signed(folder.path(), &sink, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
    eventually("they are stored", || {
        server.get("/v1/events?delivery=succeeded&type=book.created").column("id").len() == 11
    });
    let before = answers(&server);
    assert_eq!(server.stop().0, 0);

    let back = Arc::new(TempDir::new().unwrap());
    moved(&url, text(&back.path().join("data")));
    let server = on_folder(&start, &back);
    assert_same(&before, &answers(&server));
    assert_eq!(create(&server).expect(201), created);
    let mut events = Events::open_from(&server, "/api/events?types=book.created", Some(&place));
    (0..=later + 1).for_each(|_| drop(events.named("book.created")));
    server.book("Made in SQLite again");
    eventually("new events arrive", || sink.of("book.created").len() == 12);
    assert_eq!(server.get("/v1/books?q=made").titles().len(), 2, "the search finds old and new");
}

#[test]
fn a_retry_and_a_timer_that_are_due_after_the_move_happen_once() {
    let Some(url) = database() else { return };
    let schema = model::schema::BOOKSHOP.replace("after = \"1s\"", "after = \"5s\"");
    let (sink, folder) = (Sink::start(), Arc::new(TempDir::new().unwrap()));
    let start = Start::schema(&schema);
    let server = on_folder(&start, &folder);
    sink.will(Manner::status(503));
    let with = json!({"enabled_events": ["book.created"], "retry_schedule": [5]});
    let failing = endpoint(&server, &sink, with);
    server.book("late");
    wait_for(&server, &failing, &["pending"]);
    let intent = json!({"amount": 5, "currency": "eur", "payment_method": "pm_card_visa"});
    let intent = server.make("/v1/payment-intents", intent);
    server.post(&format!("/v1/payment-intents/{intent}/confirm"), json!({})).expect(200);
    assert_eq!(server.stop().0, 0);
    sink.will(Manner::status(200));
    moved(text(&folder.path().join("data")), &url);
    let server = on_database(&start, &url);
    wait_for(&server, &failing, &["succeeded"]);
    let path = format!("/v1/payment-intents/{intent}");
    eventually("the timer", || server.get(&path).json["status"] == "succeeded");
    assert_eq!(sink.of("book.created").len(), 2, "the failure, and one retry");
    let events = server.get("/v1/events?type=payment_intent.succeeded").column("id");
    assert_eq!(events.len(), 1);
}

const FIRST_VERSION: &str = r#"
[service]
version = "2025-06-01"
[collections.things.fields]
name = { type = "string", required = true, filter = true, sort = true, search = true }
price = { type = "number", filter = true, sort = true }
code = { type = "string", unique = true }
on = { type = "boolean", filter = true }
day = { type = "date", sort = true }
at = { type = "timestamp", sort = true }
pin = { type = "string", write_only = true }
old = { type = "string", filter = true, search = true }
[collections.parts]
parent = "things"
[collections.parts.fields]
text = { type = "string", search = true, filter = true }
"#;

/// The same with a field that was renamed and one that new clients do not see.
fn second_version() -> String {
    let changed = FIRST_VERSION
        .replace("version = \"2025-06-01\"", "version = \"2026-11-01\"")
        .replace("name = {", "title = {");
    format!(
        r#"{changed}
[[versions]]
date = "2026-11-01"
[[versions.changes]]
collection = "things"
rename = {{ from = "name", to = "title" }}
[[versions.changes]]
collection = "things"
removed = {{ field = "old" }}
[[versions]]
date = "2025-06-01"
"#
    )
}

#[test]
fn a_service_with_an_older_version_moves_with_what_its_clients_see() {
    let Some(url) = database() else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let server = on_folder(&Start::schema(FIRST_VERSION), &folder);
    for n in 1..=4 {
        let thing = json!({
            "name": format!("\u{1}Ärger {n}"),
            "price": -0.5 * f64::from(n),
            "code": format!("c{n}"),
            "on": n % 2 == 0, "day": "2026-01-05", "at": "2026-01-05T10:00:00.123Z", "pin": "1234",
            "old": format!("oldword{n}"),
        });
        let thing = server.make("/v1/things", thing);
        server.make(&format!("/v1/things/{thing}/parts"), json!({"text": "a\u{1}part"}));
    }
    server.make("/v1/things", json!({"name": "plain"}));
    server.stop();
    let start = Start::schema(&second_version());
    let answers = |server: &Server| {
        let mut answers = Vec::new();
        for version in ["2025-06-01", "2026-11-01"] {
            for path in [
                "/v1/things?limit=2",
                "/v1/things?q=arger",
                "/v1/events?limit=3",
                "/v1/things?sort=-price",
                "/v1/things?sort=at&on=true",
                "/v1/things?code=c2",
                if version == "2025-06-01" { "/v1/things?q=oldword3" } else { "/v1/things" },
            ] {
                let answer = server.ask("GET", path).header("restive-version", version).send();
                let records = answer.json["data"].as_array().map_or(0, Vec::len);
                let valid = answer.status == 400 || records > 0;
                assert!(valid, "{version} {path}: {}", answer.text);
                if answer.status == 200 {
                    answers.push((format!("{version} {path}"), answer.text));
                }
            }
        }
        assert!(answers.len() >= 12, "{answers:?}");
        answers
    };
    let server = on_folder(&start, &folder);
    let before = answers(&server);
    server.stop();
    moved(text(&folder.path().join("data")), &url);
    let server = on_database(&start, &url);
    assert_same(&before, &answers(&server));
    server.stop();
    let back = Arc::new(TempDir::new().unwrap());
    moved(&url, text(&back.path().join("data")));
    assert_same(&before, &answers(&on_folder(&start, &back)));
}

#[test]
fn long_texts_move_and_are_found_by_their_whole_value() {
    let Some(url) = database() else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let start = Start::schema(NOTES);
    let server = on_folder(&start, &folder);
    let long = noise(1, 3_000, 1);
    let first = format!("!{}", noise(9, 300, 1));
    let titles =
        [format!("{long}a"), format!("{long}b"), noise(2, 700, 4), noise(3, 3_000, 1), first];
    let code = |title: &str| format!("{title}{}", noise(4, 60_000, 1));
    for title in &titles {
        server.make("/v1/notes", json!({"code": code(title), "title": title, "kind": "k"}));
    }
    let check = |server: &Server| {
        let found = |value: &str| server.get(&format!("/v1/notes?title={value}")).titles();
        assert_eq!(found(&titles[0]), titles[..1]);
        assert_eq!(found(&titles[1]), titles[1..2]);
        let taken = server.post("/v1/notes", json!({"code": code(&titles[3])}));
        assert_eq!(taken.error(422, "validation_failed")["errors"][0]["code"], "not_unique");
        assert_eq!(server.get("/v1/notes?sort=created_at").titles(), titles);
    };
    check(&server);
    // Long texts with the same beginning have another order there.
    let list = "/v1/notes?sort=title&limit=1";
    let next = |server: &Server| {
        let page = server.get(list).expect(200);
        format!("{list}&after={}", page["pagination"]["next_cursor"].as_str().unwrap())
    };
    let path = next(&server);
    server.get(&path).expect(200);
    server.stop();
    moved(text(&folder.path().join("data")), &url);
    let server = on_database(&start, &url);
    check(&server);
    server.get(&path).error(410, "cursor_expired");
    let path = next(&server);
    server.get(&path).expect(200);
    server.stop();
    let back = Arc::new(TempDir::new().unwrap());
    moved(&url, text(&back.path().join("data")));
    let server = on_folder(&start, &back);
    check(&server);
    server.get(&path).error(410, "cursor_expired");
}

/// Begins a move and kills it while it copies the large table.
fn kill_in_the_middle(from: &str, to: &str) {
    let mut command = migrate(from, to);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = lines.map_while(Result::ok).filter(|line| line.contains("copying tombstones"));
    assert!(seen.next().is_some(), "it copies");
    child.kill().unwrap();
    let output = wait_with_output(child, "migrate");
    assert!(!output.status.success(), "it was killed before its end");
}

#[test]
fn a_move_that_is_killed_goes_on_and_its_target_is_not_served() {
    let Some(url) = database() else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let start = Start::bookshop();
    let server = on_folder(&start, &folder);
    server.book("Only one");
    server.stop();
    let data = folder.path().join("data");
    let many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20000) \
                INSERT INTO tombstones SELECT 'book_' || n, 'books', 2, n, n FROM c";
    let status = Command::new("sqlite3").arg(data.join("restive.db")).arg(many).status();
    assert!(status.expect("sqlite3 is needed: `cargo xtask test` installs it").success());

    kill_in_the_middle(text(&data), &url);
    let mut command = start.command(folder.path());
    let failed = command.env("RESTIVE_DATABASE", &url).output_in_time().unwrap();
    let error = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && error.contains("restive migrate"), "{error}");
    let other = Arc::new(TempDir::new().unwrap());
    on_folder(&start, &other).stop();
    let error = refused(text(&other.path().join("data")), &url);
    assert!(error.contains("from another source"), "{error}");
    assert_eq!(moved(text(&data), &url)["resumed"], true);
    assert_eq!(moved(text(&data), &url)["was_finished"], true);
    let server = on_database(&start, &url);
    assert_eq!(server.get("/v1/books").titles(), ["Only one"]);
    server.stop();

    let back = Arc::new(TempDir::new().unwrap());
    let to = back.path().join("data");
    kill_in_the_middle(&url, text(&to));
    let mut command = start.command(back.path());
    let failed = command.env_remove("RESTIVE_DATABASE").output_in_time().unwrap();
    let error = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && error.contains("restive migrate"), "{error}");
    assert_eq!(moved(&url, text(&to))["resumed"], true);
    assert_eq!(on_folder(&start, &back).get("/v1/books?q=only").titles(), ["Only one"]);
}

#[test]
fn a_source_that_changes_during_a_move_is_noticed() {
    let Some(url) = database() else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let start = Start::bookshop();
    let server = on_folder(&start, &folder);
    server.book("Before");
    server.stop();
    let data = folder.path().join("data");
    moved(text(&data), &url);
    // As if the move had been killed before its last step.
    let mark = "INSERT INTO meta SELECT 'migration', json_build_object('id', value, 'newest', \
                (SELECT max(seq) FROM log), 'table', NULL, 'after', ARRAY[]::text[], 'rows', 0) \
                FROM meta WHERE name = 'migrated'; DELETE FROM meta WHERE name = 'migrated'";
    database::run(&url, mark);
    let sql = "UPDATE r_books SET body = replace(body, 'Before', 'Behind')";
    let status = Command::new("sqlite3").arg(data.join("restive.db")).arg(sql).status();
    assert!(status.unwrap().success());
    let output = migrate(text(&data), &url).output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let differing: Vec<&str> = table.lines().filter(|line| line.contains("DIFFERS")).collect();
    assert!(differing.len() == 1 && differing[0].starts_with("books "), "{table}");
    let mut command = start.command(folder.path());
    let failed = command.env("RESTIVE_DATABASE", &url).output_in_time().unwrap();
    assert!(!failed.status.success(), "the target is not served");
    // An event more is noticed at once.
    let server = on_folder(&start, &folder);
    server.book("More");
    server.stop();
    let error = refused(text(&data), &url);
    assert!(error.contains("was changed after the move had begun"), "{error}");
}

#[test]
fn a_place_that_is_in_use_or_not_empty_is_refused_without_a_password() {
    let Some(url) = database() else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let start = Start::bookshop();
    let server = on_folder(&start, &folder);
    let data = folder.path().join("data");
    let data = text(&data);
    let check = |from: &str, to: &str, expected: &str| {
        let error = refused(from, to);
        assert!(error.contains(expected), "{expected}: {error}");
        let (_, password) =
            url.split_once("://").unwrap().1.split_once('@').unwrap().0.split_once(':').unwrap();
        assert!(!error.contains(password) && !error.contains("geheim"), "{error}");
    };
    check(data, &url, "another restive serves");
    server.stop();
    let none = folder.path().join("none");
    let none = text(&none);
    check(none, &url, "there is no database");
    check(data, none, "both folders");
    check(&url, &url, "both PostgreSQL");
    check(&url, none, "has no tables");
    check(data, "mysql://u:geheim@h/d", "--to: the URL must begin with postgres://");
    check(data, "postgres://u:geheim@127.0.0.1:1/d", "127.0.0.1:1");
    let wrong = url.replacen("://", "://nobody:geheim@", 1);
    let wrong = format!("{}@{}", wrong.split('@').next().unwrap(), url.split_once('@').unwrap().1);
    check(data, &wrong, "Check user and password");
    assert!(!Path::new(none).exists(), "a move that is refused makes no folder");

    let served = on_database(&start, &url);
    check(data, &url, "holds data already");
    check(&url, none, "is served by a node on");
    let node = served.pid().to_string();
    assert!(refused(&url, none).contains(&node), "the process is named");
    served.stop();
    check(&url, data, "holds data already");
    // A killed server leaves outcomes in a file.
    std::fs::write(folder.path().join("data/outcomes.0"), "x").unwrap();
    check(data, &url, "was killed");
}
