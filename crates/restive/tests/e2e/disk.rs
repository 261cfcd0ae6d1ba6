//! Failing disks: full, broken, read-only, missing, damaged. No acknowledged write is lost, no data
//! is corrupted, and the operator is informed.

use crate::harness::{Answer, Server, Start, eventually};
use crate::shim::{ENOSPC, Faults, fault};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A disk with little room: a small file system, or a limit on the size of files.
enum Scarce {
    Mounted(PathBuf),
    Limited(u32),
}

impl Scarce {
    /// Needs root to mount a small file system; without it the test would prove nothing.
    fn mount(at: &Path, megabytes: u32) -> Scarce {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]).arg(at);
        let status = mount.status().expect("mount (package mount) is needed");
        assert!(status.success(), "a small file system cannot be mounted (as root?): {status}");
        Scarce::Mounted(at.to_owned())
    }

    fn fill(&self) {
        match self {
            Scarce::Mounted(at) => {
                let options = std::fs::File::options().create(true).append(true).clone();
                let mut file = options.open(at.join("fill")).unwrap();
                // Ends when the disk is full.
                while std::io::Write::write(&mut file, &[1; 4096]).is_ok() {}
            }
            Scarce::Limited(pid) => limit(*pid, "4096"),
        }
    }

    fn free(&self) {
        match self {
            Scarce::Mounted(at) => std::fs::remove_file(at.join("fill")).unwrap(),
            Scarce::Limited(pid) => limit(*pid, "unlimited"),
        }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        if let Scarce::Mounted(at) = self {
            let _ = Command::new("umount").arg("--lazy").arg(at).status();
        }
    }
}

/// Limits the size of the files that a process may write. Only the soft limit is set, so that it
/// can be raised again.
fn limit(pid: u32, bytes: &str) {
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(pid.to_string()).arg(format!("--fsize={bytes}:unlimited"));
    let status = command.status().expect("prlimit (package util-linux) is needed");
    assert!(status.success(), "prlimit: {status}");
}

/// Without a rate limit, because filling the disk takes many requests.
fn unlimited() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off")
}

fn book(title: &str) -> serde_json::Value {
    json!({ "title": title, "author": "a" })
}

/// On a full disk writes fail with an error while reads and searches work; when there is room,
/// writes work again.
fn runs_full_and_recovers(server: &Server, scarce: &Scarce) {
    let made = server.post("/v1/books", book("before")).id();
    let path = format!("/v1/books/{made}");
    let key = "spared";
    server.get("/v1/books?q=before").expect(200);
    scarce.fill();
    let mut number = 0;
    eventually("the disk is full", || {
        number += 1;
        server.post("/v1/books", book(&format!("filling {number}"))).status == 503
    });
    for _ in 0..20 {
        let ask = server.ask("POST", "/v1/books").header("idempotency-key", key);
        let refused = ask.json(&book("during")).send();
        assert!(refused.header("retry-after").is_some_and(|text| text.parse::<u32>().is_ok()));
        refused.error(503, "storage_full");
        server.get(&path).expect(200);
        server.get("/v1/books?sort=title").expect(200);
        assert_eq!(server.get("/v1/books?q=before").column("id"), [made.as_str()]);
        let health = server.get("/health").expect(503);
        assert_eq!(health["status"], "store_failed");
        let reason = health["reason"].as_str().unwrap();
        assert!(reason.contains("writes") && reason.contains("full"), "{reason}");
    }
    let log = server.log.lock().unwrap().clone();
    for message in
        ["a commit failed", "a request failed because of the store", "a checkpoint failed"]
    {
        let lines = log.lines().filter(|line| line.contains(message)).count();
        assert!(lines <= 3, "{message:?} stands {lines} times in the log");
    }
    scarce.free();
    eventually("health returns", || server.get("/health").status == 200);
    let ask = server.ask("POST", "/v1/books").header("idempotency-key", key);
    let accepted = ask.json(&book("during")).send();
    assert_eq!(accepted.status, 201, "{}", accepted.text);
    assert_eq!(accepted.header("idempotent-replayed"), None, "a 503 is not remembered");
    let found = server.get("/v1/books?q=during").expect(200);
    assert_eq!(found["data"][0]["id"], accepted.json["id"]);
    assert_eq!(accepted.header("restive-search-behind"), None);
    assert_eq!(server.get("/v1/books?title=during&page=1").json["pagination"]["total"], 1);
}

/// Runs SQLite's integrity check.
fn assert_sound(data: &Path) {
    let mut check = Command::new("sqlite3");
    check.arg(data.join("restive.db")).arg("PRAGMA integrity_check;");
    let output = check.output().expect("sqlite3 is needed: `cargo xtask test` installs it");
    let verdict = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(verdict.trim(), "ok", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_disk_refuses_only_writes_and_only_while_it_is_full() {
    let folder = Arc::new(TempDir::new().unwrap());
    let scarce = Scarce::mount(&folder.path().join("data"), 6);
    let server = unlimited().on(&folder).go();
    runs_full_and_recovers(&server, &scarce);
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    assert_sound(&folder.path().join("data"));
}

#[test]
fn a_file_size_limit_is_reported_as_a_full_disk_and_does_not_end_the_process() {
    let server = unlimited().go();
    runs_full_and_recovers(&server, &Scarce::Limited(server.pid()));
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    assert_sound(&folder.path().join("data"));
}

#[test]
fn searches_on_a_full_disk_report_how_far_the_index_is_behind() {
    let faults = Faults::new();
    // The index is written a little after the book: write the book, then nothing more.
    let server = faults.of(unlimited()).go();
    server.book("indexed");
    assert_eq!(server.get("/v1/books?q=indexed").titles(), ["indexed"]);
    let mut behind = None;
    for number in 0.. {
        assert!(number < 1000, "the index was always written before the fault");
        let title = format!("late{number}");
        server.book(&title);
        faults.set(&[fault("write", ENOSPC, "restive.db-wal")]);
        let search = server.get(&format!("/v1/books?q={title}"));
        assert_eq!(search.status, 200, "{}", search.text);
        behind = search.header("restive-search-behind").map(|text| text.parse::<i64>().unwrap());
        if behind.is_some() {
            assert_eq!(search.titles(), [""; 0], "it is not in the index");
            assert_eq!(
                (search.header("etag"), search.header("cache-control")),
                (None, Some("no-store"))
            );
            assert_eq!(server.get("/v1/books?q=indexed").titles(), ["indexed"]);
            faults.clear();
            eventually("it is found", || {
                server.get(&format!("/v1/books?q={title}")).titles() == [title.clone()]
            });
            assert_eq!(server.get("/v1/books?q=indexed").header("restive-search-behind"), None);
            break;
        }
        faults.clear();
    }
    assert!(behind >= Some(1));
}

#[test]
fn checkpoints_let_a_small_disk_hold_more_than_the_log_file() {
    let folder = Arc::new(TempDir::new().unwrap());
    let scarce = Scarce::mount(&folder.path().join("data"), 16);
    let server = unlimited().on(&folder).go();
    // Each record takes some 50 KB in the log file: without checkpoints the disk would be full
    // after 300.
    for number in 0..1500 {
        let answer = server.post("/v1/books", book(&format!("small {number}")));
        assert_eq!(answer.status, 201, "{number}: {}", answer.text);
    }
    // The log file frees room when it restarts.
    eventually("it is full", || {
        scarce.fill();
        server.post("/v1/books", book("more")).status == 503
    });
    scarce.free();
    eventually("it takes writes again", || server.post("/v1/books", book("more")).status == 201);
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    assert_sound(&folder.path().join("data"));
}

#[test]
fn a_server_that_was_killed_on_a_full_disk_starts_again_when_there_is_room() {
    let folder = Arc::new(TempDir::new().unwrap());
    let scarce = Scarce::mount(&folder.path().join("data"), 6);
    let server = unlimited().on(&folder).go();
    let made = server.post("/v1/books", book("kept"));
    scarce.fill();
    let mut last = made.clone();
    eventually("the disk is full", || {
        let answer = server.post("/v1/books", book("x"));
        if answer.status == 201 {
            last = answer.clone();
        }
        answer.status == 503
    });
    let folder = server.kill();
    scarce.free();
    let server = unlimited().on(&folder).go();
    for answer in [&made, &last] {
        assert_eq!(server.get(&format!("/v1/books/{}", answer.id())).text, answer.text);
    }
    server.post("/v1/books", book("after")).expect(201);
    drop(server);
    assert_sound(&folder.path().join("data"));
}

/// Makes every sync of a running process fail until it is dropped.
pub struct BrokenSync(Child);

impl BrokenSync {
    pub fn of(pid: u32) -> BrokenSync {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-e", "signal=none"]);
        command.args(["-e", "inject=fsync,fdatasync:error=EIO", "-p", &pid.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        BrokenSync(child.expect("strace is needed: `cargo xtask test` installs it"))
    }
}

impl Drop for BrokenSync {
    fn drop(&mut self) {
        // SIGTERM lets strace detach; SIGKILL would kill the traced threads too.
        let _ = Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_write_that_could_not_be_synced_is_not_acknowledged() {
    let server = Server::bookshop();
    let kept = server.post("/v1/books", book("kept"));
    assert_eq!(kept.status, 201);
    let broken = BrokenSync::of(server.pid());
    let mut acknowledged = Vec::new();
    eventually("syncs fail", || {
        let answer = server.post("/v1/books", book("before the fault"));
        if answer.status == 201 {
            acknowledged.push(answer.clone());
        }
        answer.status != 201
    });
    for _ in 0..5 {
        let ask = server.ask("POST", "/v1/books").header("idempotency-key", "unsynced");
        let refused = ask.json(&book("unsynced")).send();
        // The code depends on whether the write could be rolled back.
        let code = refused.json["error"]["code"].as_str().unwrap_or("none").to_owned();
        assert!(["storage_failed", "outcome_unknown"].contains(&code.as_str()), "{}", refused.text);
        assert_eq!(server.get("/health").expect(503)["status"], "store_failed");
        server.get(&format!("/v1/books/{}", kept.id())).expect(200);
    }
    drop(broken);
    eventually("health returns", || server.get("/health").status == 200);
    let ask = server.ask("POST", "/v1/books").header("idempotency-key", "unsynced");
    acknowledged.push(ask.json(&book("unsynced")).send());
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    for answer in acknowledged.iter().chain([&kept]) {
        assert_eq!(server.get(&format!("/v1/books/{}", answer.id())).text, answer.text);
    }
    let found = server.get("/v1/books?title=unsynced&page=1").expect(200);
    assert_eq!(found["pagination"]["total"], 1, "once, however often it was refused");
    let (_, folder) = server.stop();
    assert_sound(&folder.path().join("data"));
}

#[test]
fn no_write_is_acknowledged_after_the_data_folder_disappears() {
    let server = Server::bookshop();
    server.post("/v1/books", book("first")).expect(201);
    std::fs::remove_dir_all(server.data()).unwrap();
    eventually("health tells it", || server.get("/health").status == 503);
    server.post("/v1/books", book("lost")).error(500, "storage_failed");
    let (code, _) = server.stop();
    assert_eq!(code, 0, "it still ends in good order");
}

/// A folder with the database of a server that has stopped.
fn used_folder() -> Arc<TempDir> {
    let server = Server::bookshop();
    for number in 0..40 {
        server.post("/v1/books", book(&format!("book {number}"))).expect(201);
    }
    server.stop().1
}

#[test]
fn a_damaged_database_is_refused_at_the_start_with_advice() {
    let damage: [(&str, usize, usize); 3] =
        [("header", 0, 100), ("first page", 100, 4000), ("everything", 0, usize::MAX)];
    for (what, from, length) in damage {
        let folder = used_folder();
        let file = folder.path().join("data/restive.db");
        let mut bytes = std::fs::read(&file).unwrap();
        let end = from.saturating_add(length).min(bytes.len());
        bytes[from..end].fill(0xA5);
        std::fs::write(&file, &bytes).unwrap();
        let (code, text) = Start::bookshop().on(&folder).fails();
        assert_eq!(code, 1, "{what}: {text}");
        assert!(text.contains("restive.db") && !text.contains("panicked"), "{what}: {text}");
        assert!(
            text.contains("Restore a backup") || text.contains("another data directory"),
            "{what} without a way out: {text}"
        );
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "{what}: the file was touched");
    }
}

/// Queries a server on a damaged file: every response must be JSON with a suitable status, and the
/// server must neither panic nor exit. Returns whether all reads succeeded.
fn serves_damaged(server: &Server, ids: &[String], what: &str) -> bool {
    let mut whole = true;
    let mut check = |answer: Answer| {
        let known = [200, 201, 204, 404, 500, 503].contains(&answer.status);
        assert!(known, "{what}: {} {}", answer.status, answer.text);
        if answer.status >= 500 {
            whole = false;
            assert!(answer.json["error"]["code"].is_string(), "{what}: {}", answer.text);
        }
    };
    for id in ids {
        check(server.get(&format!("/v1/books/{id}")));
    }
    for list in
        ["/v1/books?sort=title&limit=100", "/v1/books?q=book", "/v1/events", "/v1/books?page=2"]
    {
        check(server.get(list));
    }
    check(server.post("/v1/books", book("new")));
    check(server.patch(&format!("/v1/books/{}", ids[0]), json!({"price": 1})));
    check(server.delete(&format!("/v1/books/{}", ids[1])));
    let health = server.get("/health");
    assert!([200, 503].contains(&health.status), "{what}: {}", health.text);
    whole
}

#[test]
fn a_database_damaged_in_the_middle_is_refused_or_served_without_a_crash() {
    let (mut served, mut failed) = (0, 0);
    let server = Server::bookshop();
    let ids: Vec<String> = (0..40).map(|n| server.book(&format!("book {n}"))).collect();
    let (_, original) = server.stop();
    let original = std::fs::read(original.path().join("data/restive.db")).unwrap();
    let pages = original.len() / 4096;
    // Damage single pages, then all pages after the first ones.
    let single = (2..pages).step_by(pages / 12).map(|page| page * 4096..(page + 1) * 4096);
    for range in single.chain(std::iter::once(8 * 4096..original.len())) {
        let what = format!("bytes {range:?} of {}", original.len());
        let folder = Arc::new(TempDir::new().unwrap());
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let mut bytes = original.clone();
        bytes[range].fill(0xA5);
        std::fs::write(folder.path().join("data/restive.db"), &bytes).unwrap();
        let mut command = Start::bookshop().command(folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Some(server) = Server::try_spawn(command, folder) else { continue };
        served += 1;
        failed += usize::from(!serves_damaged(&server, &ids, &what));
        let log = server.log.clone();
        assert_eq!(server.stop().0, 0, "{what}: it ends in good order");
        let log = log.lock().unwrap().clone();
        assert!(!log.contains("panicked"), "{what}: {log}");
    }
    assert!(served > 0, "no damage was met while serving");
    assert!(failed > 0, "no request met the damage");
}

#[test]
fn a_read_only_folder_is_refused_at_the_start() {
    let folder = Arc::new(TempDir::new().unwrap());
    let data = folder.path().join("data");
    let _mounted = Scarce::mount(&data, 6);
    let server = Start::bookshop().on(&folder).go();
    server.post("/v1/books", book("kept")).expect(201);
    server.stop();
    let remount = |mode: &str| {
        let mut mount = Command::new("mount");
        assert!(
            mount.args(["-o", &format!("remount,{mode}")]).arg(&data).status().unwrap().success()
        );
    };
    remount("ro");
    let (code, text) = Start::bookshop().on(&folder).fails();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("not writable") && !text.contains("panicked"), "{text}");
    remount("rw");
    let server = Start::bookshop().on(&folder).go();
    assert_eq!(server.get("/v1/books?page=1").expect(200)["pagination"]["total"], 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_at_the_start() {
    let folder = Arc::new(TempDir::new().unwrap());
    // A file in place of the folder: root may write into any folder, but not into a file.
    std::fs::write(folder.path().join("data"), "not a folder").unwrap();
    let (code, text) = Start::bookshop().on(&folder).fails();
    assert_eq!(code, 1);
    assert!(text.contains("data folder") && !text.contains("panicked"), "{text}");
}
