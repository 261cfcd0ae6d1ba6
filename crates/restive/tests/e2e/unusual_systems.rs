//! Systems with missing features: start through the dynamic loader, file systems without locks or
//! without folder sync, disks that are slow during the stop.

use crate::harness::{KEY, Server, Start, executable};
use crate::shim::{EBADF, EINVAL, EIO, ENOLCK, ENOTSUP, Faults, fault};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The loaders of the systems that the executable is built for.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
/// In the log if the folder cannot be locked at all.
const UNLOCKED: &str = "cannot be locked";
const UNSYNCED: &str = "a folder cannot be synced";

#[test]
fn a_server_started_through_the_dynamic_loader_works() {
    let folder = Arc::new(TempDir::new().unwrap());
    let plain = Start::bookshop().command(folder.path());
    let loader = LOADERS.into_iter().find(|path| Path::new(path).exists());
    let mut command = Command::new(loader.expect("the loader of a system with glibc"));
    command.arg(executable()).args(plain.get_args()).env("RESTIVE_BOOTSTRAP_KEY", KEY);
    let server = Server::spawn(command, folder);
    server.book("loaded");
    assert_eq!(server.stop().0, 0);
}

#[test]
fn a_file_system_without_locks_or_folder_sync_works_with_one_warning() {
    for (call, error, file, warning) in [
        // The lock of the file is still possible.
        ("lock", EBADF, "/data$", None),
        ("lock", ENOTSUP, "/data$", None),
        ("lock", EINVAL, "/data", Some(UNLOCKED)),
        ("lock", ENOTSUP, "/data", Some(UNLOCKED)),
        ("lock", ENOLCK, "/data", Some(UNLOCKED)),
        ("sync", EINVAL, "/data$", Some(UNSYNCED)),
        ("sync", ENOTSUP, "/data$", Some(UNSYNCED)),
    ] {
        let what = format!("{call} {error} {file}");
        let faults = Faults::new();
        faults.set(&[fault(call, error, file)]);
        let server = faults.of(Start::bookshop()).go();
        server.book("kept");
        let log = server.log.clone();
        let warnings = |text: &str| log.lock().unwrap().matches(text).count();
        for text in [UNLOCKED, UNSYNCED] {
            assert_eq!(warnings(text), usize::from(warning == Some(text)), "{what}: {text}");
        }
        let folder = server.folder.clone();
        if call == "lock" && file == "/data$" {
            let (code, text) = faults.of(Start::bookshop()).on(&folder).fails();
            assert_eq!(code, 1, "{what}: {text}");
            assert!(text.contains("another restive serves"), "{what}: {text}");
        }
        assert_eq!(server.stop().0, 0, "{what}");
    }
}

#[test]
fn a_disk_error_while_locking_or_syncing_the_folder_prevents_the_start() {
    for (call, file, words) in [
        ("sync", "/data$", "cannot sync the data folder"),
        ("lock", "/data$", "cannot lock the data folder"),
        ("lock", "/lock$", "cannot lock the data folder"),
    ] {
        let faults = Faults::new();
        faults.set(&[fault(call, EIO, file)]);
        let (code, text) = faults.of(Start::bookshop()).fails();
        assert_eq!(code, 1, "{call} {file}: {text}");
        assert!(text.contains(words), "{call} {file}: {text}");
    }
}

#[test]
fn a_slow_disk_during_the_stop_is_not_reported_as_stuck() {
    /// Longer than the earlier time limit of the last write of the counts.
    const SYNC_MS: u32 = 2_500;
    let faults = Faults::new();
    let server = faults.of(Start::bookshop().arg("--rate-limit").arg("off")).go();
    server.get("/v1/books").expect(200);
    faults.set(&[fault("slow", SYNC_MS, "-wal")]);
    for _ in 0..10 {
        server.get("/v1/books").expect(200);
    }
    let log = server.log.clone();
    let began = Instant::now();
    let (code, _) = server.stop();
    let log = log.lock().unwrap();
    assert_eq!(code, 0, "{log}");
    assert!(!log.contains("did not stop"), "{log}");
    assert!(began.elapsed() >= Duration::from_millis(SYNC_MS.into()), "the disk was slow");
}
