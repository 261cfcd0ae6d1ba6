//! Counts the instructions of a server with valgrind's callgrind: unlike CPU time, the count is
//! reproducible. It excludes the kernel, and an instruction that waits for memory counts like any
//! other, so it measures work and not time. The counters are read over vgdb, valgrind's interface
//! for debuggers. Knows nothing about the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{Service, ended_within};

/// Time limit of one command over vgdb, which takes a fraction of a second.
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// Whether valgrind and vgdb are installed.
pub fn available() -> bool {
    ["valgrind", "vgdb"].iter().all(|program| {
        let mut probe = Command::new(program);
        let probe = probe.arg("--help").stdin(Stdio::null());
        probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    })
}

/// A server that runs under callgrind.
pub struct Counted {
    pub service: Service,
    folder: PathBuf,
    /// Number of dumps so far; each dump is a separate file.
    dumps: u32,
}

impl Counted {
    /// The command that runs a program under callgrind. valgrind writes into the folder, which must
    /// also be passed to `start`.
    pub fn prefix(mut command: Command, folder: &Path) -> Command {
        command
            // The server would execute itself again to set them, and valgrind does not count that
            // process.
            .envs([("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ALLOW_THP", "0")])
            .args(["--tool=callgrind", "--vgdb=yes"])
            .arg(with_path("--vgdb-prefix=", &folder.join("vgdb")))
            .arg(with_path("--callgrind-out-file=", &folder.join("counts")));
        command
    }

    pub fn start(command: Command, folder: PathBuf) -> Result<Self> {
        Ok(Self { service: Service::start(command)?, folder, dumps: 0 })
    }

    /// The instructions of all threads of the server during `work`.
    pub fn instructions(&mut self, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        self.ask("zero")?;
        work()?;
        self.ask("dump")?;
        self.dumps += 1;
        let file = self.folder.join(format!("counts.{}", self.dumps));
        let dump = fs::read(&file).context("callgrind wrote no counts")?;
        total(&String::from_utf8_lossy(&dump)).context("callgrind's counts are not as expected")
    }

    pub fn stop(self) -> Result<()> {
        self.service.stop()
    }

    fn ask(&self, what: &str) -> Result<()> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(format!("--pid={}", self.service.id()))
            .arg(with_path("--vgdb-prefix=", &self.folder.join("vgdb")))
            .arg(what);
        vgdb.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = vgdb.spawn().context("cannot run vgdb")?;
        match ended_within(&mut child, ASK_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("vgdb {what}: {status}"),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("vgdb {what} had no answer within {ASK_LIMIT:?}")
            }
        }
    }
}

fn with_path(option: &str, path: &Path) -> std::ffi::OsString {
    let mut whole = std::ffi::OsString::from(option);
    whole.push(path);
    whole
}

/// The sum of all lines of a dump. None if it counts anything but instructions (`Ir`), or is
/// incomplete: the sum is at its end.
fn total(dump: &str) -> Option<u64> {
    let value = |name| dump.lines().find_map(|line| line.strip_prefix(name));
    let events = value("events:")?.trim();
    let total = value("totals:")?.trim();
    if events == "Ir" { total.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 7\n\
        part: 1\n\ndesc: Trigger: dump\n\npositions: line\nevents: Ir\nsummary: 154927516\n\n\n\
        ob=(1) /usr/bin/true\nfl=(1) ???\nfn=(1) main\n0 154964332\n\ntotals: 154964332\n";

    #[test]
    fn the_total_is_at_the_end_of_a_dump() {
        assert_eq!(total(DUMP), Some(154_964_332));
    }

    #[test]
    fn an_incomplete_dump_or_one_of_other_events_has_no_total() {
        let cut = DUMP.split("totals:").next().unwrap();
        assert_eq!(total(cut), None);
        assert_eq!(total(&DUMP.replace("events: Ir", "events: Ir Dr Dw")), None);
        assert_eq!(total(&DUMP.replace("totals: 154964332", "totals: many")), None);
        assert_eq!(total(""), None);
    }
}
