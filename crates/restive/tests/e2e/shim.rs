//! Servers whose file operations fail on demand, by a small library that is compiled here and
//! preloaded.

use crate::harness::Start;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Error numbers of Linux.
pub const EIO: u32 = 5;
pub const EBADF: u32 = 9;
pub const EINVAL: u32 = 22;
pub const EFBIG: u32 = 27;
pub const ENOSPC: u32 = 28;
pub const ENOLCK: u32 = 37;
pub const ENOTSUP: u32 = 95;
pub const EDQUOT: u32 = 122;

/// The faults of one server.
pub struct Faults {
    folder: TempDir,
}

/// One operation that fails: `sync`, `write`, `truncate` or `lock`, on files whose path contains a
/// text, or ends with it if the text ends with `$`. `slow` is a sync that takes `error`
/// milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub call: &'static str,
    pub error: u32,
    pub file: &'static str,
    /// How often it fails; 0: always.
    pub times: u32,
}

pub fn fault(call: &'static str, error: u32, file: &'static str) -> Fault {
    Fault { call, error, file, times: 0 }
}

impl Faults {
    pub fn new() -> Faults {
        Faults { folder: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server with these faults.
    pub fn of(&self, start: Start) -> Start {
        let with =
            |start: Start, (name, value): (&str, PathBuf)| start.env(name, value.to_str().unwrap());
        self.env().into_iter().fold(start, with)
    }

    /// The environment of a process with these faults.
    pub fn env(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", library().to_owned()),
            ("FAULTS", self.file("faults")),
            ("FAULTS_SYNCED", self.file("synced")),
        ]
    }

    /// From now on these operations fail.
    pub fn set(&self, faults: &[Fault]) {
        let line = |fault: &Fault| {
            format!("{} {} {} {}\n", fault.call, fault.error, fault.file, fault.times)
        };
        let text: String = faults.iter().map(line).collect();
        // Atomically, because the server may read it at any time.
        std::fs::write(self.file("new"), text).unwrap();
        std::fs::rename(self.file("new"), self.file("faults")).unwrap();
    }

    pub fn clear(&self) {
        std::fs::remove_file(self.file("faults")).unwrap();
    }

    /// Paths of the synced files and folders.
    pub fn synced(&self) -> Vec<PathBuf> {
        let text = std::fs::read_to_string(self.file("synced")).unwrap_or_default();
        text.lines().map(PathBuf::from).collect()
    }
}

/// Compiled once per run.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/faults.c");
        let name = format!("faults-{}.so", std::process::id());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        let status = compile.status().expect("a C compiler is needed: install gcc");
        assert!(status.success(), "cc: {status}");
        library
    })
}
