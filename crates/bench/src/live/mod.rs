//! `bench live`: the cost of open connections. The scenarios, their order, and what they share: the
//! server with one feed, its competitor and its limit. Knows the server only from outside.

mod burst;
pub mod crowd;
pub mod fan_out;
mod idle;
mod latency;
mod reconnect;
mod stalled;
pub mod subject;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::http::Client;
use crate::metrics;
use crate::options::Options;
use crate::process::allow_files;
use crate::stage::Stage;

use self::crowd::Crowd;
use self::subject::{Channel, Subject};

/// Every scenario, by its name in `--only`.
const SCENARIOS: [(&str, Scenario); 10] = [
    ("fan-out-sse", |bench| fan_out::run(bench, "fan-out-sse", Channel::Sse)),
    ("fan-out-ws", |bench| fan_out::run(bench, "fan-out-ws", Channel::Socket)),
    ("idle-sse", |bench| idle::streams(bench, "idle-sse", Channel::Sse)),
    ("idle-ws", |bench| idle::streams(bench, "idle-ws", Channel::Socket)),
    ("idle-poll", idle::polls),
    ("idle-h2", idle::multiplexed),
    ("burst", burst::run),
    ("stalled", stalled::run),
    ("reconnect", reconnect::run),
    ("latency", latency::run),
];
/// One feed only: the bench measures the delivery of its messages.
pub const SCHEMA: &str = "\
[service]
name = \"bench\"

[collections.messages]
feed = true

[collections.messages.fields]
text = { type = \"string\", required = true }
";
/// How often connections had to read the log because events were no longer in memory.
const LOG_READS: &str = "restive_live_log_reads_total";
/// Time limit of the delivery of a message.
pub const DELIVERY_LIMIT: Duration = Duration::from_secs(30);
/// Open files of this process and of each server: the connections of the largest scenario, and some
/// spare.
const FILES: u64 = 16_500;
/// Messages sent before anything is measured.
const WARM_UP_MESSAGES: usize = 10;

type Scenario = fn(&mut Bench<'_>) -> Result<()>;

struct Bench<'a> {
    stage: Stage<'a>,
    schema: PathBuf,
}

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    let names = SCENARIOS.map(|(name, _)| name);
    let stage = Stage::new(options, &names)?;
    let pinning = stage.pinning.describe();
    println!("bench live: {pinning}");
    let schema = stage.scratch.join("messages.toml");
    std::fs::write(&schema, SCHEMA)?;
    let mut bench = Bench { stage, schema };
    let done = scenarios(&mut bench);
    let notes = [
        pinning,
        "req/s is messages delivered in a second, over all subscribers; latencies are from the \
         start of the publishing request to the receipt by each of them",
        "CPU µs is user+system time of the server process per delivered message, publishing \
         included",
    ];
    bench.stage.finish(done, &notes)
}

fn scenarios(bench: &mut Bench<'_>) -> Result<()> {
    allow_files(FILES)?;
    for (name, scenario) in SCENARIOS {
        if bench.stage.wants(name) {
            scenario(bench).context(name)?;
        }
    }
    Ok(())
}

impl Bench<'_> {
    /// The full number, or the number of a quick run.
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.stage.options.quick { quick } else { full }
    }

    /// Our server on new data.
    fn restive(&self, name: &str) -> Result<Subject> {
        let data = self.stage.folder(name)?;
        let service = self.stage.restive(&data, Some(&self.schema))?;
        Ok(Subject::restive(service, &self.stage.key))
    }
}

/// The size of one of our messages on the wire of a subscriber, in bytes.
fn frame_bytes(restive: &Subject, channel: Channel) -> Result<usize> {
    let crowd = Crowd::open(restive.address(), &restive.subscribe(channel), 1)?;
    let mut crowd = crowd.publishers(restive.address(), 1)?;
    warm_up(&mut crowd, &restive.publish(channel, 0))?;
    Ok(usize::try_from(crowd.figures.bytes)? / WARM_UP_MESSAGES)
}

/// A few messages to all subscribers, one after the other.
pub fn warm_up(crowd: &mut Crowd, request: &[u8]) -> Result<()> {
    for _ in 0..WARM_UP_MESSAGES {
        crowd.publish(request)?;
        crowd.catch_up(DELIVERY_LIMIT)?;
    }
    Ok(())
}

/// One metric of the server.
pub fn figure(restive: &Subject, name: &str) -> Result<u64> {
    let mut client = Client::connect(restive.address())?;
    let page = metrics::page(&mut client, &restive.get(metrics::PATH, ""))?;
    metrics::figure(&page, name)
}
