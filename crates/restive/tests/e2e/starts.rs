//! Starts on changed files: parts are missing, older copies were restored, another server runs, the
//! format is older or newer. Acknowledged data is served completely, or the start is refused with
//! advice.

use crate::deadline::Deadline as _;
use crate::harness::{KEY, Server, Start, eventually, executable};
use crate::shim::Faults;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const DATABASE: &str = "restive.db";
const LOG: &str = "restive.db-wal";
const INDEX: &str = "restive.db-shm";
const MARK: &str = "restive.db-acknowledged";

/// Waits until the mark on disk covers all acknowledged writes.
fn marked(server: &Server) {
    let position = server.get("/health").expect(200)["position"].as_i64().unwrap();
    let text = format!(" {position:019} ");
    eventually("the mark is written", || {
        std::fs::read_to_string(server.data().join(MARK)).unwrap().contains(&text)
    });
}

/// A killed server with some books: its database is mostly in the log file.
fn killed() -> Arc<TempDir> {
    let server = Server::bookshop();
    for number in 0..5 {
        server.book(&number.to_string());
    }
    marked(&server);
    let folder = server.kill();
    assert!(std::fs::metadata(folder.path().join("data").join(LOG)).unwrap().len() > 4096);
    folder
}

fn refused(folder: &Arc<TempDir>, words: &[&str]) {
    let (code, text) = Start::bookshop().on(folder).fails();
    assert_eq!(code, 1, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

fn books(folder: &Arc<TempDir>) -> usize {
    let server = Start::bookshop().on(folder).go();
    let found = server.get("/v1/books?limit=100").column("id").len();
    server.stop();
    found
}

#[test]
fn a_database_that_is_missing_or_empty_next_to_its_log_file_is_refused() {
    type Loss = fn(&Path);
    let losses: [(&str, Loss); 2] = [
        ("is missing", |file| std::fs::remove_file(file).unwrap()),
        ("is empty", |file| std::fs::write(file, "").unwrap()),
    ];
    for (state, lose) in losses {
        let folder = killed();
        let data = folder.path().join("data");
        let [database, log] = [DATABASE, LOG].map(|name| std::fs::read(data.join(name)).unwrap());
        lose(&data.join(DATABASE));
        refused(&folder, &[state, LOG, "Put the database file back"]);
        assert_eq!(std::fs::read(data.join(LOG)).unwrap(), log, "{state}: the log file is kept");
        // A command is refused as well: it would write into the gap.
        let tool = ["keys", "list", "--data", data.to_str().unwrap()];
        let output = Command::new(executable()).args(tool).output_in_time().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(std::fs::read(data.join(LOG)).unwrap(), log, "{state}: the log file is kept");
        std::fs::write(data.join(DATABASE), database).unwrap();
        assert_eq!(books(&folder), 5, "{state}: put back, everything is there");
    }
}

#[test]
fn a_database_that_lost_its_log_file_is_refused_until_the_loss_is_accepted() {
    let folder = killed();
    let data = folder.path().join("data");
    let log = std::fs::read(data.join(LOG)).unwrap();
    for name in [LOG, INDEX] {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    refused(&folder, &["acknowledged", MARK, "backup"]);
    std::fs::write(data.join(LOG), &log).unwrap();
    assert_eq!(books(&folder), 5, "put back, everything is there");
    let folder = killed();
    let data = folder.path().join("data");
    for name in [LOG, INDEX, MARK] {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    assert_eq!(books(&folder), 0, "without the mark nobody knows of a loss");
}

#[test]
fn a_database_copy_older_than_acknowledged_writes_is_refused_and_a_backup_is_served() {
    let server = Server::bookshop();
    server.book("first");
    let backup = server.folder.path().join("backup.db");
    let (_, error, code) = server.tool(&["backup", backup.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let (_, folder) = server.stop();
    let data = folder.path().join("data");
    let copy = std::fs::read(data.join(DATABASE)).unwrap();
    let server = Start::bookshop().on(&folder).go();
    server.book("second");
    let (_, folder) = server.stop();
    let newest = std::fs::read(data.join(DATABASE)).unwrap();
    std::fs::write(data.join(DATABASE), copy).unwrap();
    refused(&folder, &["ends at event", "acknowledged", MARK]);
    std::fs::write(data.join(DATABASE), newest).unwrap();
    assert_eq!(books(&folder), 2);
    // A backup is a separate log, so it may be older.
    std::fs::copy(&backup, data.join(DATABASE)).unwrap();
    assert_eq!(books(&folder), 1);
    // From here on its own mark counts.
    let server = Start::bookshop().on(&folder).go();
    // Enough that its sequence differs from the earlier log.
    for number in 0..5 {
        server.book(&number.to_string());
    }
    marked(&server);
    let folder = server.kill();
    std::fs::remove_file(data.join(LOG)).unwrap();
    std::fs::remove_file(data.join(INDEX)).unwrap();
    refused(&folder, &["ends at event", "acknowledged"]);
}

#[test]
fn deleting_the_lock_file_does_not_admit_a_second_server() {
    let server = Server::bookshop();
    std::fs::remove_file(server.data().join("lock")).unwrap();
    refused(&server.folder, &["another restive serves"]);
    refused(&server.folder, &["another restive serves"]);
    server.book("still served");
    let (_, folder) = server.stop();
    assert_eq!(books(&folder), 1, "and the next one may");
}

#[test]
fn new_folders_are_synced_into_their_parents() {
    let faults = Faults::new();
    let folder = Arc::new(TempDir::new().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let start = faults.of(Start::bookshop());
    // A separate command, because the parents of the data folder must be created too.
    let from = start.command(folder.path());
    let mut command = Command::new(executable());
    let data = root.join("a/b/data");
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    command.env("RESTIVE_BOOTSTRAP_KEY", KEY);
    for (name, value) in from.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.args(crate::carry::arguments());
    let server = Server::spawn(command, folder);
    server.book("kept");
    let synced = faults.synced();
    for path in [root.clone(), root.join("a"), root.join("a/b"), data] {
        assert!(synced.contains(&path), "{} in {synced:?}", path.display());
    }
}

/// A data folder from a fixture: the SQL text of a database of an older release.
fn fixture(sql: &str) -> Arc<TempDir> {
    let folder = Arc::new(TempDir::new().unwrap());
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let mut make = Command::new("sqlite3");
    make.arg(data.join(DATABASE)).arg(sql);
    let output = make.output_in_time().expect("sqlite3 is needed: `cargo xtask test` installs it");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    folder
}

/// The schema of the fixtures.
const OLD_SCHEMA: &str = include_str!("formats/schema.toml");

#[test]
fn data_files_of_older_formats_are_served() {
    for (format, sql) in [
        (1, include_str!("formats/format-1.sql")),
        (2, include_str!("formats/format-2.sql")),
        (3, include_str!("formats/format-3.sql")),
    ] {
        let folder = fixture(sql);
        let server = Start::schema(OLD_SCHEMA).on(&folder).go();
        let titles = server.get("/v1/books?sort=created_at").titles();
        assert_eq!(titles, ["Dune", "Emma"], "format {format}");
        assert_eq!(server.get("/v1/books?q=dune").titles(), ["Dune"], "format {format}: search");
        let dune = server.get("/v1/books?title=Dune").expect(200)["data"][0].clone();
        let id = dune["id"].as_str().unwrap();
        let reviews = server.get(&format!("/v1/books/{id}/reviews")).column("rating");
        assert_eq!(reviews, [5], "format {format}: children");
        let events = server.get("/v1/events?type=book.*").column("type");
        let newest_first = ["deleted", "created", "updated", "created", "created"];
        assert_eq!(events, newest_first.map(|kind| format!("book.{kind}")), "format {format}");
        // The stored response and the due timer are old.
        let jobs = || server.get("/v1/jobs").column("status");
        eventually("the timer fires", || jobs() == ["done"]);
        server
            .patch(&format!("/v1/books/{id}"), serde_json::json!({"title": "Dune II"}))
            .expect(200);
        let new = server.book("New");
        let folder = server.kill();
        let server = Start::schema(OLD_SCHEMA).on(&folder).go();
        assert_eq!(server.get("/v1/books?q=dune").titles(), ["Dune II"], "format {format}");
        server.get(&format!("/v1/books/{new}")).expect(200);
        let (code, folder) = server.stop();
        assert_eq!(code, 0);
        let mut check = Command::new("sqlite3");
        check.arg(folder.path().join("data").join(DATABASE));
        let output =
            check.arg("PRAGMA integrity_check; PRAGMA user_version").output_in_time().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (verdict, now) = text.trim().split_once('\n').unwrap();
        assert_eq!(verdict, "ok", "format {format}");
        assert!(now.parse::<i32>().unwrap() > 3, "format {format} is still {now}");
    }
}

#[test]
fn a_data_file_of_a_newer_format_is_refused_and_not_changed() {
    let folder = killed();
    assert_eq!(books(&folder), 5);
    let file = folder.path().join("data").join(DATABASE);
    for (pragma, words) in [
        ("user_version = 1000", ["written by a newer release", "Use that release"]),
        ("user_version = 2147483647", ["written by a newer release", "backup"]),
        ("application_id = 7", ["another program", "another data directory"]),
    ] {
        let original = std::fs::read(&file).unwrap();
        let mut change = Command::new("sqlite3");
        let change =
            change.arg(&file).arg(format!("PRAGMA {pragma}; PRAGMA wal_checkpoint(TRUNCATE)"));
        assert!(change.output_in_time().unwrap().status.success());
        let changed = std::fs::read(&file).unwrap();
        refused(&folder, &words);
        assert!(std::fs::read(&file).unwrap() == changed, "{pragma}: the file was touched");
        std::fs::write(&file, original).unwrap();
    }
    assert_eq!(books(&folder), 5);
}
