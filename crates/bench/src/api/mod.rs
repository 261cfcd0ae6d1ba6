//! `bench api`: which scenarios, in which order, and what they share: the servers, the scratch
//! folder, the length of runs. Each scenario measures, then hands rows and bars to the report.

mod books;
mod idle;
mod million;
mod reads;
mod writes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::entropy::Entropy;
use crate::load::Source;
use crate::measure::measure;
use crate::options::Options;
use crate::process::{Pinning, Service};
use crate::report::{Report, Sample};

use self::books::Requests;

/// Every scenario by the name `--only` takes.
const SCENARIOS: [&str; 9] = [
    "idle",
    "get",
    "list",
    "list-304",
    "create-1",
    "create-64",
    "create-256",
    "get-under-writes",
    "million",
];

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    let mut bench = Bench::new(options)?;
    println!("bench api: {}", bench.pinning.describe());
    let done = scenarios(&mut bench);
    // Millions of rows must not stay behind, whatever happened.
    let cleaned = fs::remove_dir_all(&bench.scratch);
    let pinning = bench.pinning.describe();
    bench.report.note(format!("{pinning}; latency is seen by the client, closed loop"));
    bench.report.note("CPU µs is user+system time of the server process per request");
    bench.report.print();
    done?;
    cleaned.context("cannot remove the scratch folder")?;
    if let Some(file) = &options.json {
        bench.report.save(file)?;
    }
    Ok(bench.report.passed())
}

fn scenarios(bench: &mut Bench<'_>) -> Result<()> {
    if bench.wants("idle") {
        idle::run(bench).context("idle")?;
    }
    reads::run(bench).context("reads")?;
    writes::one_at_a_time(bench).context("create-1")?;
    writes::in_groups(bench, 64).context("create-64")?;
    writes::in_groups(bench, 256).context("create-256")?;
    if bench.wants("get-under-writes") {
        reads::under_writes(bench).context("get-under-writes")?;
    }
    if bench.wants("million") {
        million::run(bench).context("million")?;
    }
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    pinning: Pinning,
    report: Report,
    server: PathBuf,
    scratch: PathBuf,
    requests: Requests,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        // First of all: threads started later inherit the core.
        let pinning = Pinning::claim(options.pin);
        let server = options.server.clone().context("--server FILE is missing")?;
        if let Some(only) = options.only.as_deref()
            && !SCENARIOS.iter().any(|name| selects(only, name))
        {
            bail!("--only {only}: there are {}", SCENARIOS.join(" "));
        }
        let own = std::env::current_exe()?;
        // Beside the executables, not in /tmp: that may be memory, where fsync costs nothing.
        let target = own.parent().and_then(Path::parent).context("no target folder")?;
        let scratch = target.join(format!("bench-data-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let key = format!("sk_test_{}", Entropy::new()?.letters(32));
        let requests = Requests::new(key);
        Ok(Self { options, pinning, report: Report::default(), server, scratch, requests })
    }

    fn wants(&self, name: &str) -> bool {
        self.options.only.as_deref().is_none_or(|only| selects(only, name))
    }

    /// Rounds of one scenario, alternating between the subjects; the median counts.
    fn rounds(&self) -> usize {
        if self.options.quick { 2 } else { 3 }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(if self.options.quick { 1 } else { 4 })
    }

    /// An empty folder on the disk that is measured.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The server under test with the data that is in `data`. Auth, ETag and metrics are on; the
    /// request limit alone is off, since a bench is nothing but requests.
    fn restive(&self, data: &Path) -> Result<Service> {
        let mut command = self.pinning.command(&self.server);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "off", "--data"])
            .arg(data)
            .env("RESTIVE_BOOTSTRAP_KEY", self.requests.key());
        Service::start(command)
    }

    /// The limit of reading, with pages as large as the server's.
    fn bare_http(&self, book_bytes: usize, list_bytes: usize) -> Result<Service> {
        let mut command = self.pinning.command(&std::env::current_exe()?);
        command.args(["bare-http", "--book-bytes", &book_bytes.to_string()]);
        command.args(["--list-bytes", &list_bytes.to_string()]);
        Service::start(command)
    }

    /// One measured run, after a short one that is not.
    fn measure(
        &self,
        service: &Service,
        connections: usize,
        expect: u16,
        source: &dyn Fn(usize) -> Source,
    ) -> Result<Sample> {
        measure(service, connections, expect, self.duration(), source)
    }
}

/// `--only create` means all of `create-…`.
fn selects(only: &str, name: &str) -> bool {
    name == only
        || name.strip_prefix(only).is_some_and(|rest| rest.starts_with('-') && only == "create")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selects_by_name_or_all_creates() {
        assert!(selects("get", "get") && !selects("get", "get-under-writes"));
        assert!(selects("create", "create-64") && selects("create-64", "create-64"));
        assert!(!selects("list", "list-304") && !selects("create-6", "create-64"));
    }
}
