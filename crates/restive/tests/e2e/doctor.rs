//! `restore` and `doctor` on damaged files, on files of other users, on files that are not theirs,
//! and on data that the schema does not fit.

use crate::auth::account;
use crate::deadline::Deadline as _;
use crate::harness::{PATIENCE, Server, Start, eventually, run};
use crate::live_client::Events;
use crate::sink::Sink;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const PAGE: usize = 4_096;
/// The first byte of a page with rows.
const LEAF: u8 = 13;
/// A user who is not root.
const SOMEBODY: u32 = 65_534;

/// The findings of `doctor --json`, and whether it exits with 0.
fn doctor(folder: &Path, arguments: &[&str]) -> (Value, bool) {
    let arguments = [&["doctor", "--json", "--listen", "127.0.0.1:0"], arguments].concat();
    let (text, error, code) = run(folder, &arguments);
    (serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}{error}")), code == 0)
}

#[track_caller]
fn check(report: &Value, name: &str, status: &str) -> Value {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {report}"));
    assert_eq!(found["status"], status, "{report}");
    found.clone()
}

/// A stopped server with some hundred books, and a backup of it.
fn stopped() -> (Arc<TempDir>, PathBuf) {
    let server = Server::bookshop();
    for number in 0..250 {
        server.book(&format!("{number} {}", "a long title ".repeat(12)));
    }
    let file = server.folder.path().join("backup.db");
    let (_, error, code) = server.tool(&["backup", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    (server.stop().1, file)
}

/// Overwrites the head of one page of records, which no start reads.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let has_records = |page: &&mut [u8]| {
        let text = b"a long title";
        page[0] == LEAF && page.windows(text.len()).any(|part| part == text)
    };
    let mut pages: Vec<&mut [u8]> = bytes.chunks_mut(PAGE).skip(1).filter(has_records).collect();
    let middle = pages.len() / 2;
    pages[middle][..8].fill(0x5a);
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_backup_is_not_restored_and_a_damaged_database_is_not_healthy() {
    let (folder, file) = stopped();
    let (at, data) = (folder.path(), folder.path().join("data"));
    let data_text = data.to_str().unwrap();
    damage(&file);
    let arguments = ["restore", file.to_str().unwrap(), "--data", data_text, "--replace"];
    let (_, error, code) = run(at, &arguments);
    assert!(code == 1 && error.contains("damaged"), "{error}");
    assert!(!data.join("restoring.db").exists());
    let (report, healthy) = doctor(at, &["--data", data_text]);
    assert!(healthy, "{report}");
    check(&report, "database", "ok");
    damage(&data.join("restive.db"));
    let (report, healthy) = doctor(at, &["--data", data_text]);
    let found = check(&report, "database", "failed");
    assert!(!healthy && found["advice"].as_str().unwrap().contains("restore"), "{report}");
}

/// Replaces a text by another of the same length, wherever it is in a file.
fn replace(file: &Path, text: &[u8], by: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - text.len()).filter(|&at| bytes[at..].starts_with(text)).collect();
    assert!(!places.is_empty() && text.len() == by.len());
    places.into_iter().for_each(|at| bytes[at..at + by.len()].copy_from_slice(by));
    fs::write(file, bytes).unwrap();
}

/// Damages a text in the database of two accounts: it is found, the other account gets its events
/// by stream and by webhook, and so does the account itself, but for what is damaged.
fn damaged_value(text: &str, by: &[u8], reason: &str) {
    let server = Server::bookshop();
    let sink = Sink::start();
    let (_, key, _) = account(&server, "other");
    let make = |server: &Server, title: &str| {
        let book = json!({ "title": title, "author": "a" });
        server.ask("POST", "/v1/books").key(&key).json(&book).send().expect(201);
    };
    let hook = json!({ "url": sink.url(), "enabled_events": ["book.*"] });
    server.ask("POST", "/v1/webhook-endpoints").key(&key).json(&hook).send().expect(201);
    server.book("a torn title");
    make(&server, "sound");
    let (_, folder) = server.stop();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup.db"));
    let (data_text, backup_text) = (data.to_str().unwrap(), backup.to_str().unwrap());
    replace(&data.join("restive.db"), text.as_bytes(), by);
    let (report, healthy) = doctor(folder.path(), &["--data", data_text]);
    let found = check(&report, "database", "failed");
    let message = found["message"].as_str().unwrap();
    assert!(!healthy && message.contains("of row") && message.contains(reason), "{message}");
    fs::copy(data.join("restive.db"), &backup).unwrap();
    let restore = ["restore", backup_text, "--data", data_text, "--replace"];
    let (_, error, code) = run(folder.path(), &restore);
    assert!(code == 1 && error.contains("damaged"), "{error}");
    let server = Start::bookshop().on(&folder).go();
    let stream = |key: &str| {
        let target = "/api/events?types=book.*&since=0";
        Events::try_open(server.address, key, target, None, PATIENCE).unwrap()
    };
    let (mut theirs, mut own) = (stream(&key), stream(&server.key));
    assert!(theirs.event().data.unwrap().contains("sound"));
    make(&server, "later");
    assert!(theirs.named("book.created").data.unwrap().contains("later"));
    server.book("after the damage");
    while !own.named("book.created").data.unwrap().contains("after the damage") {}
    eventually("the webhook comes", || {
        sink.received().iter().any(|request| request.body.contains("later"))
    });
    assert_eq!(server.ask("GET", "/v1/books").key(&key).send().titles(), ["later", "sound"]);
}

#[test]
fn a_text_that_is_none_is_found_and_stops_no_event_of_others() {
    damaged_value("torn title", b"t\xffrn title", "utf-8");
}

#[test]
fn json_that_is_none_is_found_and_stops_no_event_of_others() {
    damaged_value("\"a torn title", b"!a torn title", "expected value");
}

#[test]
fn a_backup_with_a_trigger_is_not_restored() {
    let (folder, file) = stopped();
    let at = folder.path();
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('CREATE TRIGGER t \
                  AFTER INSERT ON log BEGIN DELETE FROM r_books; END')";
    let made = Command::new("python3").args(["-c", script]).arg(&file).output_in_time().unwrap();
    assert!(made.status.success(), "{made:?}");
    let data = at.join("data");
    let arguments =
        ["restore", file.to_str().unwrap(), "--data", data.to_str().unwrap(), "--replace"];
    let (_, error, code) = run(at, &arguments);
    assert!(code == 1 && error.contains("has a trigger, `t`"), "{error}");
}

#[test]
fn doctor_and_restore_touch_no_file_that_is_not_theirs() {
    let (folder, file) = stopped();
    let (at, data) = (folder.path(), folder.path().join("data"));
    let precious = at.join("precious");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, data.join("doctor.tmp")).unwrap();
    let mine = ["restoring.db.mine", "restoring.db-notes"].map(|name| data.join(name));
    for file in &mine {
        fs::write(file, "mine").unwrap();
    }
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let before = names(&data);
    let (report, healthy) = doctor(at, &["--data", data.to_str().unwrap()]);
    assert!(healthy, "{report}");
    assert_eq!(names(&data), before);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    let data_text = data.to_str().unwrap();
    let arguments = ["restore", file.to_str().unwrap(), "--data", data_text, "--replace"];
    let (_, error, code) = run(at, &arguments);
    assert_eq!(code, 0, "{error}");
    for file in &mine {
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }
}

#[test]
fn what_root_restores_belongs_to_the_owner_of_the_folder() {
    // Only root can give files away.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let (folder, file) = stopped();
    let (at, data) = (folder.path(), folder.path().join("data"));
    let owned = || fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path());
    chown(&data, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    owned().for_each(|path| chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap());
    let data_text = data.to_str().unwrap();
    let arguments = ["restore", file.to_str().unwrap(), "--data", data_text, "--replace"];
    let (_, error, code) = run(at, &arguments);
    assert_eq!(code, 0, "{error}");
    for path in owned() {
        assert_eq!(fs::metadata(&path).unwrap().uid(), SOMEBODY, "{}", path.display());
    }
    let (report, healthy) = doctor(at, &["--data", data_text]);
    assert!(healthy, "{report}");
    chown(data.join("restive.db"), Some(0), Some(0)).unwrap();
    let (report, healthy) = doctor(at, &["--data", data_text]);
    let found = check(&report, "owner", "failed");
    assert!(!healthy && found["advice"].as_str().unwrap().contains("chown"), "{report}");
    assert!(found["message"].as_str().unwrap().contains("restive.db"), "{report}");
}

#[test]
fn doctor_refuses_a_schema_that_serve_refuses() {
    let before = "[collections.books.fields]\ntitle = 'string'\n";
    let after = "[collections.books.fields]\ntitle = 'integer'\n";
    let server = Start::schema(before).go();
    server.make("/v1/books", serde_json::json!({ "title": "Dune" }));
    let folder = server.stop().1;
    let (at, data) = (folder.path(), folder.path().join("data"));
    let schema = at.join("restive.toml");
    let arguments = ["--data", data.to_str().unwrap(), "--schema", schema.to_str().unwrap()];
    let (report, healthy) = doctor(at, &arguments);
    assert!(healthy, "{report}");
    check(&report, "fit", "ok");
    let (code, error) = Start::schema(after).on(&folder).fails();
    assert!(code != 0 && error.contains("title"), "{error}");
    let (report, healthy) = doctor(at, &arguments);
    let found = check(&report, "fit", "failed");
    assert!(!healthy && found["message"].as_str().unwrap().contains("title"), "{report}");
}
