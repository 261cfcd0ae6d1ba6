//! Failing disks: full, broken, read-only, gone, damaged. Nothing acknowledged is lost, nothing is
//! corrupt, and whoever can do something about it is told.

use crate::harness::{Server, Start, eventually};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A place with little room. As root a small file system of its own; otherwise a limit on the size
/// of files, which the server meets in the same calls.
enum Scarce {
    Mounted(PathBuf),
    Limited(u32),
}

impl Scarce {
    fn mount(at: &Path) -> Option<Scarce> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(at).stderr(Stdio::null());
        let mounted = mount.status().is_ok_and(|status| status.success());
        mounted.then(|| Scarce::Mounted(at.to_owned()))
    }

    fn fill(&self) {
        match self {
            Scarce::Mounted(at) => {
                let mut file = std::fs::File::create(at.join("fill")).unwrap();
                // Ends when there is no room left.
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

/// Limits the size of the files that a process may write. The hard limit stays, so that the soft
/// one can be lifted again.
fn limit(pid: u32, bytes: &str) {
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(pid.to_string()).arg(format!("--fsize={bytes}:unlimited"));
    let status = command.status().expect("prlimit (package util-linux) is needed");
    assert!(status.success(), "prlimit: {status}");
}

fn book(title: &str) -> serde_json::Value {
    json!({ "title": title, "author": "a" })
}

/// Writes fail and say so, reads go on; then there is room, and writes go on by themselves.
fn runs_full_and_recovers(server: &Server, scarce: &Scarce) {
    let made = server.post("/v1/books", book("before")).id();
    let path = format!("/v1/books/{made}");
    let key = "spared";
    server.get("/v1/books?q=before").expect(200);
    scarce.fill();
    eventually("the disk is full", || server.post("/v1/books", book("x")).status == 503);
    for _ in 0..20 {
        let ask = server.ask("POST", "/v1/books").header("idempotency-key", key);
        let refused = ask.json(&book("during")).send();
        assert!(refused.header("retry-after").is_some_and(|text| text.parse::<u32>().is_ok()));
        refused.error(503, "storage_full");
        server.patch(&path, json!({ "price": 1 })).error(503, "storage_full");
        server.delete(&path).error(503, "storage_full");
        server.get(&path).expect(200);
        server.get("/v1/books?sort=title").expect(200);
    }
    let health = server.get("/health").expect(503);
    assert_eq!(health["status"], "store_failed");
    scarce.free();
    eventually("health returns", || server.get("/health").status == 200);
    let ask = server.ask("POST", "/v1/books").header("idempotency-key", key);
    let accepted = ask.json(&book("during")).send();
    assert_eq!(accepted.status, 201, "{}", accepted.text);
    assert_eq!(accepted.header("idempotent-replayed"), None, "a 503 is not remembered");
    let found = server.get("/v1/books?q=during").expect(200);
    assert_eq!(found["data"][0]["id"], accepted.json["id"]);
    assert_eq!(server.get(&path).json["price"], json!(null), "what was refused was not written");
}

/// The database's own verdict on its file.
fn assert_sound(data: &Path) {
    let mut check = Command::new("sqlite3");
    check.arg(data.join("restive.db")).arg("PRAGMA integrity_check;");
    let output = check.output().expect("sqlite3 is needed: `cargo xtask test` installs it");
    let verdict = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(verdict.trim(), "ok", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_disk_stops_writes_only_and_only_while_it_is_full() {
    let folder = Arc::new(TempDir::new().unwrap());
    let mounted = Scarce::mount(&folder.path().join("data"));
    let server = Start::bookshop().on(&folder).go();
    let scarce = mounted.unwrap_or(Scarce::Limited(server.pid()));
    runs_full_and_recovers(&server, &scarce);
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    assert_sound(&folder.path().join("data"));
}

#[test]
fn a_limit_on_file_sizes_is_a_full_disk_and_not_the_end() {
    let server = Server::bookshop();
    runs_full_and_recovers(&server, &Scarce::Limited(server.pid()));
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    assert_sound(&folder.path().join("data"));
}

#[test]
fn a_server_that_was_killed_on_a_full_disk_starts_again_when_there_is_room() {
    let folder = Arc::new(TempDir::new().unwrap());
    let mounted = Scarce::mount(&folder.path().join("data"));
    let server = Start::bookshop().on(&folder).go();
    let scarce = mounted.unwrap_or(Scarce::Limited(server.pid()));
    let made = server.post("/v1/books", book("kept"));
    scarce.fill();
    eventually("the disk is full", || server.post("/v1/books", book("x")).status == 503);
    let folder = server.kill();
    // A limit ends with its process.
    if matches!(scarce, Scarce::Mounted(_)) {
        scarce.free();
    }
    let server = Start::bookshop().on(&folder).go();
    assert_eq!(server.get(&format!("/v1/books/{}", made.id())).text, made.text);
    server.post("/v1/books", book("after")).expect(201);
    drop(server);
    assert_sound(&folder.path().join("data"));
}

/// Makes every sync of a running process fail until it is dropped.
struct BrokenSync(Child);

impl BrokenSync {
    fn of(pid: u32) -> BrokenSync {
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
        // SIGTERM lets it detach; SIGKILL would take the traced threads along.
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
        refused.error(500, "storage_failed");
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
fn a_data_folder_that_disappears_is_told_and_nothing_is_acknowledged_into_the_void() {
    let server = Server::bookshop();
    server.post("/v1/books", book("first")).expect(201);
    std::fs::remove_dir_all(server.data()).unwrap();
    eventually("health tells it", || server.get("/health").status == 503);
    server.post("/v1/books", book("lost")).error(500, "storage_failed");
    let (code, _) = server.stop();
    assert_eq!(code, 0, "it still ends in good order");
}

/// A folder with a database that a server made and left.
fn used_folder() -> Arc<TempDir> {
    let server = Server::bookshop();
    for number in 0..40 {
        server.post("/v1/books", book(&format!("book {number}"))).expect(201);
    }
    server.stop().1
}

#[test]
fn a_damaged_database_is_refused_at_the_start_with_a_way_out() {
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

#[test]
fn a_database_damaged_in_the_middle_never_crashes_the_server() {
    let folder = used_folder();
    let file = folder.path().join("data/restive.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = 8 * 4096..bytes.len();
    bytes[middle].fill(0xA5);
    std::fs::write(&file, &bytes).unwrap();
    let mut command = Start::bookshop().command(folder.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    while std::io::BufRead::read_line(&mut stdout, &mut first).unwrap() > 0 {
        if first.contains("listening on") {
            break;
        }
    }
    // Either it refuses to start, or it serves what is whole; it never panics.
    let _ = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "{text}");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?} {text}", output.status);
}

#[test]
fn a_read_only_folder_is_refused_at_the_start() {
    let folder = Arc::new(TempDir::new().unwrap());
    let data = folder.path().join("data");
    let Some(_mounted) = Scarce::mount(&data) else {
        // Without the right to mount we are not root either: permissions do the same.
        std::fs::create_dir_all(&data).unwrap();
        let only_read = std::os::unix::fs::PermissionsExt::from_mode(0o555);
        std::fs::set_permissions(&data, only_read).unwrap();
        let (code, text) = Start::bookshop().on(&folder).fails();
        assert_eq!(code, 1, "{text}");
        return assert!(text.contains("not writable"), "{text}");
    };
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
    // A file where the folder should be: root may write into any folder, but not into this.
    std::fs::write(folder.path().join("data"), "not a folder").unwrap();
    let (code, text) = Start::bookshop().on(&folder).fails();
    assert_eq!(code, 1);
    assert!(text.contains("data folder") && !text.contains("panicked"), "{text}");
}
