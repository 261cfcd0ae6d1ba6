//! `bench webhooks`: the scenarios, their order, and what they share: a server with one endpoint at
//! the sink, the bare limit, the length of runs. Knows the engine only from outside: its requests,
//! the API and the metrics.

pub mod arrivals;
mod drain;
mod hanging;
mod latency;
mod live;
mod million;
mod notes;
mod replay;
mod sink;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::http::Client;
use crate::options::Options;
use crate::process::Service;
use crate::report::Sample;
use crate::stage::Stage;

use self::notes::Requests;
use self::sink::Sink;

/// Every scenario, by its name in `--only`.
const SCENARIOS: [&str; 7] = ["bare", "drain", "live", "replay", "latency", "hanging", "million"];
/// Concurrent deliveries: the default of an endpoint, and the same for the bare limit.
const IN_FLIGHT: usize = 20;
/// Concurrent creating clients.
const CREATORS: usize = 64;
/// Delivered before the measurement: the concurrency grows, connections are opened.
const WARM_UP_EVENTS: u64 = 500;
/// Time limit of the first delivery.
const FIRST_DELIVERY_LIMIT: Duration = Duration::from_secs(30);
/// The longest timeout of an endpoint, in seconds: a sink that holds its responses for less makes
/// no delivery fail.
const TIMEOUT_SECONDS: u64 = 30;
const MIB: f64 = 1024.0 * 1024.0;

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    let stage = Stage::new(options, &SCENARIOS)?;
    let pinning = stage.pinning.describe();
    println!("bench webhooks: {pinning}");
    let requests = Requests::new(&stage.key);
    let schema = stage.scratch.join("notes.toml");
    std::fs::write(&schema, notes::SCHEMA)?;
    let mut bench = Bench { stage, requests, schema, drained: None };
    let done = scenarios(&mut bench);
    let notes = [
        &*format!("{pinning}; the bare loop takes the server's core, the sink the load's"),
        "CPU µs is user+system time of the delivering process per delivery",
    ];
    bench.stage.finish(done, &notes)
}

fn scenarios(bench: &mut Bench<'_>) -> Result<()> {
    // `drain` runs the bare limit itself, alternating with the server.
    if bench.stage.wants("drain") {
        drain::run(bench).context("drain")?;
    } else if bench.stage.wants("bare") {
        drain::bare(bench).context("bare")?;
    }
    let others: [(&str, Scenario); 5] = [
        ("live", live::run),
        ("replay", replay::run),
        ("latency", latency::run),
        ("hanging", hanging::run),
        ("million", million::run),
    ];
    for (name, scenario) in others {
        if bench.stage.wants(name) {
            scenario(bench).context(name)?;
        }
    }
    Ok(())
}

type Scenario = fn(&mut Bench<'_>) -> Result<()>;

struct Bench<'a> {
    stage: Stage<'a>,
    requests: Requests,
    schema: PathBuf,
    /// Deliveries per second of `drain`, once measured.
    drained: Option<f64>,
}

/// A server with an endpoint at the sink that has already received events.
struct Running {
    service: Service,
    endpoint: String,
    /// Notes so far; each was delivered.
    notes: u64,
}

impl Bench<'_> {
    /// Length of runs that are measured by time.
    fn duration(&self) -> Duration {
        Duration::from_secs(if self.stage.options.quick { 1 } else { 4 })
    }

    /// The full number, or the number of a quick run.
    fn count(&self, full: u64, quick: u64) -> u64 {
        if self.stage.options.quick { quick } else { full }
    }

    fn restive(&self, data: &Path) -> Result<Service> {
        self.stage.restive(data, Some(&self.schema))
    }

    /// One run of the bare limit against the sink, in a separate process on the server's core.
    fn bare(&self, sink: &Sink, body_bytes: u64) -> Result<Sample> {
        let mut command = self.stage.pinning.command(&std::env::current_exe()?);
        command.args(["bare-webhooks", "--target", &sink.address.to_string()]);
        command.args(["--in-flight", &IN_FLIGHT.to_string()]);
        command.args(["--body-bytes", &body_bytes.to_string()]);
        command.args(["--seconds", &self.duration().as_secs_f64().to_string()]);
        let output = command.output().context("cannot start bare-webhooks")?;
        if !output.status.success() {
            bail!("bare-webhooks: {}", String::from_utf8_lossy(&output.stderr));
        }
        sink.take()?;
        let figures: Value = serde_json::from_slice(&output.stdout)?;
        let figure = |name: &str| figures[name].as_f64().with_context(|| format!("no {name}"));
        Ok(Sample {
            per_second: figure("per_second")?,
            p50_us: figure("p50_us")?,
            p99_us: figure("p99_us")?,
            cpu_us: figure("cpu_us")?,
        })
    }

    /// A server on new data whose endpoint 0 is the sink, warmed up.
    fn running(&self, name: &str, sink: &Sink) -> Result<Running> {
        let service = self.restive(&self.stage.folder(name)?)?;
        let mut client = Client::connect(&service.address)?;
        let more = json!({ "timeout": TIMEOUT_SECONDS, "max_in_flight": IN_FLIGHT });
        let request = self.requests.endpoint(&sink.url(0), &more);
        let endpoint = Requests::made(&mut client, &request)?;
        let before = sink.answered();
        self.requests.fill(&service.address, WARM_UP_EVENTS, CREATORS)?;
        sink.expect(before + WARM_UP_EVENTS, FIRST_DELIVERY_LIMIT)?;
        // A ping may have been among them: the last note can still be in transit.
        sink.settle()?;
        let limit = FIRST_DELIVERY_LIMIT;
        watch::expect_durable(&mut client, &self.requests, WARM_UP_EVENTS, limit)?;
        sink.take()?;
        Ok(Running { service, endpoint, notes: WARM_UP_EVENTS })
    }
}

impl Running {
    /// A new connection: the server closes connections that are idle during a long load.
    fn client(&self) -> Result<Client> {
        Client::connect(&self.service.address)
    }
}

/// CPU time per delivery, in microseconds.
fn per_delivery(cpu: Duration, deliveries: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / deliveries.max(1) as f64
}
