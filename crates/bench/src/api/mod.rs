//! `bench api`: the scenarios, their order, and what they share: the servers and the length of
//! runs. Each scenario measures and then adds rows and bars to the report.

pub mod books;
mod idle;
mod million;
mod reads;
mod versions;
mod writes;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::load::Source;
use crate::measure::measure;
use crate::options::Options;
use crate::process::Service;
use crate::report::Sample;
use crate::stage::Stage;

use self::books::Requests;

/// Every scenario, by its name in `--only`.
const SCENARIOS: [&str; 10] = [
    "idle",
    "get",
    "list",
    "list-304",
    "versions",
    "create-1",
    "create-64",
    "create-256",
    "get-under-writes",
    "million",
];

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    let mut bench = Bench::new(options)?;
    let pinning = bench.stage.pinning.describe();
    println!("bench api: {pinning}");
    let done = scenarios(&mut bench);
    let notes = [
        &*format!("{pinning}; latency is seen by the client, closed loop"),
        "CPU µs is user+system time of the server process per request",
    ];
    bench.stage.finish(done, &notes)
}

fn scenarios(bench: &mut Bench<'_>) -> Result<()> {
    if bench.stage.wants("idle") {
        idle::run(bench).context("idle")?;
    }
    reads::run(bench).context("reads")?;
    if bench.stage.wants("versions") {
        versions::run(bench).context("versions")?;
    }
    writes::one_at_a_time(bench).context("create-1")?;
    writes::in_groups(bench, 64).context("create-64")?;
    writes::in_groups(bench, 256).context("create-256")?;
    if bench.stage.wants("get-under-writes") {
        reads::under_writes(bench).context("get-under-writes")?;
    }
    if bench.stage.wants("million") {
        million::run(bench).context("million")?;
    }
    Ok(())
}

struct Bench<'a> {
    stage: Stage<'a>,
    requests: Requests,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let stage = Stage::new(options, &SCENARIOS)?;
        let requests = Requests::new(stage.key.clone());
        Ok(Self { stage, requests })
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(if self.stage.options.quick { 1 } else { 4 })
    }

    /// The server under test with the built-in bookshop.
    fn restive(&self, data: &Path) -> Result<Service> {
        self.stage.restive(data, None)
    }

    /// The limit of reading, with responses as large as the server's.
    fn bare_http(&self, book_bytes: usize, list_bytes: usize) -> Result<Service> {
        let mut command = self.stage.pinning.command(&std::env::current_exe()?);
        command.args(["bare-http", "--book-bytes", &book_bytes.to_string()]);
        command.args(["--list-bytes", &list_bytes.to_string()]);
        Service::start(command)
    }

    /// One measured run, after a short warm-up.
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
