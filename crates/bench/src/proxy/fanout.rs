//! Many clients of one event stream, directly at a server and through `restive proxy`. The clients
//! of the proxy must cost its backend one stream, and receive events about as fast as those of the
//! server. The next event is published when all clients have the last one, so events cannot be
//! joined: each delivery is a separate write.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::entropy::Entropy;
use crate::http::Client;
use crate::live::crowd::{Crowd, Figures};
use crate::live::fan_out::sample;
use crate::live::subject::{Channel, Subject};
use crate::live::{DELIVERY_LIMIT, SCHEMA, figure, warm_up};
use crate::metrics;
use crate::process::{Service, allow_files};
use crate::report::{Bar, Pairs, Sample};

use super::Bench;
use super::steady::wait_until;
use super::subject::restive;

const CLIENTS: usize = 5_000;
const QUICK_CLIENTS: usize = 1_000;
/// Many, because each round is one ratio and the speed of the machine changes between them.
const ROUNDS: usize = 7;
const QUICK_ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(3);
const QUICK_ROUND: Duration = Duration::from_secs(1);
/// Files besides the connections: the executable, the database, pipes.
const SPARE_FILES: usize = 500;
/// For the proxy to know its backend, and for the last client to have joined.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const BACKEND_STREAMS: &str = "restive_live_connections{channel=\"sse\"}";
const IS_RESTIVE: &str = "restive_proxy_backend_restive";

/// A crowd of clients, and the process that serves them.
struct Side<'a> {
    name: &'static str,
    service: &'a Service,
    crowd: Crowd,
    request: Vec<u8>,
    samples: Vec<Sample>,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let count = if bench.quick { QUICK_CLIENTS } else { CLIENTS };
    let (rounds, round) = if bench.quick { (QUICK_ROUNDS, QUICK_ROUND) } else { (ROUNDS, ROUND) };
    println!("==> fanout: {count} clients of one event stream, directly and through the proxy");
    // This process has both crowds.
    allow_files((2 * count + SPARE_FILES) as u64)?;
    let folder = tempfile::tempdir()?;
    let key = format!("sk_test_{}", Entropy::new()?.letters(32));
    let start = |command, name| server(command, &folder, name, &key);
    let direct = start(bench.pinning.command(&bench.server), "direct")?;
    let backend = start(Command::new(&bench.server), "backend")?;
    let proxy = proxy(bench, &folder, &backend)?;

    let mut sides = [
        Side::open("direct", &direct.service, &direct, count)?,
        Side::open("proxy", &proxy, &backend, count)?,
    ];
    let streams = || figure(&backend, BACKEND_STREAMS);
    // A missed bar, and not an error, if it stays more.
    let _ = wait_until("the clients share", SETTLE_LIMIT, || Ok(streams()? == 1));
    for _ in 0..rounds {
        for side in &mut sides {
            side.round(round)?;
        }
    }
    let streams = streams()? as f64;
    let report = &mut bench.report;
    for side in &sides {
        side.crowd.check()?;
        report.sample("fanout", side.name, Sample::median(&side.samples), None);
    }
    let [direct, proxy] = sides.map(|side| side.samples);
    let pairs = Pairs { limits: direct, ours: proxy };
    report.figure("fanout", "proxy", Bar::at_most("backend streams", streams, 1.0, ""));
    let rate = pairs.ratio(|sample| sample.per_second);
    let bar = Bar::at_least("delivered a second", rate.middle, 0.8, "× direct");
    report.figure("fanout", "proxy", bar.between(&rate));
    let cost = pairs.ratio(|sample| sample.cpu_us);
    let bar = Bar::shown("CPU per event", cost.middle, "× direct");
    report.figure("fanout", "proxy", bar.between(&cost));
    report.note(format!(
        "fanout: {count} clients; CPU µs is per delivered event: of the server, or of the proxy \
         alone, whose backend runs on the core of the load"
    ));
    Ok(())
}

/// A server with one feed and without a request limit.
fn server(mut command: Command, folder: &TempDir, name: &str, key: &str) -> Result<Subject> {
    let schema = folder.path().join("messages.toml");
    std::fs::write(&schema, SCHEMA)?;
    command.args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "off"]);
    command.arg("--data").arg(folder.path().join(name)).arg("--schema").arg(schema);
    command.env("RESTIVE_BOOTSTRAP_KEY", key);
    Ok(Subject::restive(Service::start(command)?, key))
}

/// A proxy that knows that its backend is a restive server.
fn proxy(bench: &Bench, folder: &TempDir, backend: &Subject) -> Result<Service> {
    let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let data: &Path = &folder.path().join("proxy");
    let mut command = restive(bench.pinning, &bench.server, data);
    command.args(["--to", backend.address(), "--metrics-listen", &metrics]);
    let proxy = Service::start(command)?;
    let request = b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n";
    wait_until("the proxy knows its backend", SETTLE_LIMIT, || {
        let page = metrics::page(&mut Client::connect(&metrics)?, request)?;
        let mut lines = page.lines().filter(|line| line.starts_with(IS_RESTIVE));
        Ok(lines.next().context("no such metric")?.ends_with(" 1"))
    })?;
    Ok(proxy)
}

impl<'a> Side<'a> {
    /// `publisher` has the events; `service` delivers them.
    fn open(
        name: &'static str,
        service: &'a Service,
        publisher: &Subject,
        count: usize,
    ) -> Result<Side<'a>> {
        let request = publisher.subscribe(Channel::Sse);
        let crowd = Crowd::open(&service.address, &request, count)?;
        let mut crowd = crowd.publishers(publisher.address(), 1)?;
        let request = publisher.publish(Channel::Sse, 0);
        warm_up(&mut crowd, &request)?;
        Ok(Side { name, service, crowd, request, samples: Vec::new() })
    }

    fn round(&mut self, duration: Duration) -> Result<()> {
        // Comments that arrived while the other side was measured do not belong to this round.
        self.crowd.turn(Duration::ZERO)?;
        self.crowd.figures = Figures::default();
        let (began, before) = (Instant::now(), self.service.cpu()?);
        while began.elapsed() < duration {
            self.crowd.publish(&self.request)?;
            self.crowd.catch_up(DELIVERY_LIMIT)?;
        }
        let (elapsed, cpu) = (began.elapsed(), self.service.cpu()?.saturating_sub(before));
        self.samples.push(sample(&self.crowd.figures, elapsed, cpu));
        Ok(())
    }
}
