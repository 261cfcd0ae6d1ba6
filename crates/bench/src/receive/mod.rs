//! `bench receive`: `restive receive` with durable queueing against hyper that only reads the same
//! requests, and against the least that does the same work, in turn on one core; `kills`, which
//! kills provider and receiver at random; and `cuts`, which also cuts the network between them.
//! Knows the receiver only from outside: its command line and HTTP.

mod kills;
mod post;
mod relay;

use std::path::Path;

use anyhow::{Context, Result};

pub use post::SECRET;

use crate::measure::{in_turn, measure};
use crate::options::Options;
use crate::process::Service;
use crate::report::{Bar, Sample};
use crate::stage::Stage;

const SCENARIOS: [&str; 4] = ["post-64", "post-256", "kills", "cuts"];
/// The least of the rate of the bare sink. What the bare durable receiver gets is shown: it is the
/// limit of what verifies and stores durably.
const SHARE: f64 = 0.5;

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    let mut stage = Stage::new(options, &SCENARIOS)?;
    let pinning = stage.pinning.describe();
    println!("bench receive: {pinning}");
    let done = scenarios(&mut stage);
    let notes = [
        pinning,
        "bodies of 1 KiB, signed, each with an id of its own; 200 means synced to the disk",
        "bare sink: hyper reads the body and answers 200; it neither verifies nor stores",
        "bare durable receiver: hyper, HMAC, the id, and one SQLite table in shared commits",
    ];
    stage.finish(done, &notes)
}

fn scenarios(stage: &mut Stage<'_>) -> Result<()> {
    for (name, connections) in [("post-64", 64), ("post-256", 256)] {
        if stage.wants(name) {
            throughput(stage, name, connections).context(name)?;
        }
    }
    // Long, and not a measurement: only if it is asked for.
    match stage.options.only.as_deref() {
        Some("kills") => kills::run(stage, "kills", kills::Network::Whole).context("kills"),
        Some("cuts") => kills::run(stage, "cuts", kills::Network::Cut).context("cuts"),
        _ => Ok(()),
    }
}

fn throughput(stage: &mut Stage<'_>, name: &'static str, connections: usize) -> Result<()> {
    let folder = stage.folder("inbox")?;
    let mut command = stage.pinning.command(&stage.server);
    command
        .args(["receive", "--listen", "127.0.0.1:0", "--store-only", "--data"])
        .arg(&folder)
        .env("RESTIVE_RECEIVE_SECRET", post::SECRET);
    let ours = Service::start(command)?;
    let bare = |folder: Option<&Path>| {
        let mut command = stage.pinning.command(&std::env::current_exe()?);
        command.arg("bare-receive");
        if let Some(folder) = folder {
            command.arg("--dir").arg(folder);
        }
        Service::start(command)
    };
    let (sink, durable) = (bare(None)?, bare(Some(&stage.folder("bare-inbox")?))?);
    let seconds = if stage.options.quick { 1 } else { 4 };
    let duration = std::time::Duration::from_secs(seconds);
    let posts = post::Posts::new(stage.options.body_bytes);
    let run = |service: &Service| measure(service, connections, 200, duration, &|_| posts.source());
    let rate = |sample: &Sample| sample.per_second;
    let limits = in_turn(stage.rounds(), || run(&sink), || run(&durable))?;
    let pairs = in_turn(stage.rounds(), || run(&sink), || run(&ours))?;
    let durable_pairs = in_turn(stage.rounds(), || run(&durable), || run(&ours))?;
    let limit = limits.ratio(rate);
    let limit = Bar::shown("of the bare sink", limit.middle, "×").between(&limit);
    let ratio = pairs.ratio(rate);
    let bar = Bar::at_least("of the bare sink", ratio.middle, SHARE, "×").between(&ratio);
    let ratio = durable_pairs.ratio(rate);
    let durable_bar = Bar::shown("of the bare durable receiver", ratio.middle, "×");
    let report = &mut stage.report;
    report.sample(name, "bare hyper sink", Sample::median(&pairs.limits), None);
    report.sample(name, "bare durable receiver", Sample::median(&limits.ours), Some(limit));
    report.sample(name, "restive receive", Sample::median(&pairs.ours), Some(bar));
    report.figure(name, "restive receive", durable_bar.between(&ratio));
    ours.stop()?;
    Ok(())
}
