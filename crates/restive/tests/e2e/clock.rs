//! Servers whose wall clock a test sets, with the library of Debian's `faketime`. The `faketime`
//! program is not used, because it would be the parent of the process that tests kill. Timers run
//! at normal speed unless a test speeds them up.

use crate::deadline::Deadline as _;
use crate::harness::Start;
use std::process::Command;
use tempfile::TempDir;

/// With its clock shifted, for example by `+86400s`.
pub fn shifted(start: Start, by: &str) -> Start {
    faked(start).env("FAKETIME", by)
}

/// Makes all clocks of the server, including timers, run this many times as fast.
pub fn hurried(start: Start, times: u32) -> Start {
    faked(start).env("FAKETIME", &format!("+0s x{times}")).env("FAKETIME_DONT_FAKE_MONOTONIC", "0")
}

fn faked(start: Start) -> Start {
    let library =
        Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output_in_time();
    let library = library.expect("the program faketime is missing: `cargo xtask test` installs it");
    let library = String::from_utf8(library.stdout).unwrap();
    start.env("LD_PRELOAD", library.trim()).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

/// Removes the shared memory of the library: a killed process leaves it behind, and a later process
/// with the same id would use its clock.
pub fn forget(process: u32) {
    for remains in ["faketime_shm_", "sem.faketime_sem_"] {
        let _ = std::fs::remove_file(format!("/dev/shm/{remains}{process}"));
    }
}

/// A clock that can be set while servers use it.
pub struct Clock {
    folder: TempDir,
}

impl Clock {
    pub fn new() -> Clock {
        let clock = Clock { folder: TempDir::new().unwrap() };
        clock.set(0);
        clock
    }

    /// Sets the clock to this many seconds from the true time.
    pub fn set(&self, seconds: i64) {
        let [new, now] = ["new", "now"].map(|name| self.folder.path().join(name));
        std::fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        // Atomically, because a server may read it at any time.
        std::fs::rename(new, now).unwrap();
    }

    /// A server that uses this clock.
    pub fn of(&self, start: Start) -> Start {
        let file = self.folder.path().join("now");
        faked(start)
            .env("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap())
            .env("FAKETIME_NO_CACHE", "1")
    }
}
