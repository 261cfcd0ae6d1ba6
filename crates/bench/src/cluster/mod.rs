//! `bench cluster`: two nodes on one PostgreSQL against pgbench on the same server, in turn:
//! creating, reading by id, and the way of a message from one node to a subscriber of the other.
//! The nodes, the database and the load share all cores. Knows the nodes only from outside, and of
//! the database only its tables, which pgbench fills with the same rows.

mod pgbench;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::api::books::{Requests, in_turn};
use crate::http::Client;
use crate::live::crowd::{Crowd, Figures};
use crate::live::fan_out::sample;
use crate::live::subject::{Channel, Subject};
use crate::live::{DELIVERY_LIMIT, SCHEMA, figure, warm_up};
use crate::load::{Load, Outcome, Source};
use crate::measure::WARM_UP;
use crate::options::Options;
use crate::process::Service;
use crate::report::{Bar, Pairs, Sample};
use crate::stage::Stage;

use self::pgbench::Database;

const SCENARIOS: [&str; 3] = ["create", "get", "latency"];
/// The least of pgbench's rate.
const SHARE: f64 = 0.6;
/// Connections to each node.
const CONNECTIONS: usize = 64;
/// Books to read.
const BOOKS: u64 = 1_000;
/// Messages, one after the other, whose way is measured.
const MESSAGES: usize = 1_000;
const QUICK_MESSAGES: usize = 200;
/// Time between two of them: a node that is idle is to be woken.
const PAUSE: Duration = Duration::from_millis(5);
/// Most time from the publishing request to the subscriber of the other node, in ms.
const LATENCY_MS: f64 = 5.0;

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    // The database could not share the core of one of the others.
    let options = Options { pin: false, ..options.clone() };
    let database = Database::new(&options)?;
    let mut bench = Bench { stage: Stage::new(&options, &SCENARIOS)?, database };
    let done = scenarios(&mut bench);
    let notes = [
        "two nodes, PostgreSQL and the load share all cores; so do PostgreSQL and pgbench",
        "create: pgbench has two clients, which write as many rows in a transaction as the nodes \
         did on average, copied from theirs by the server: it parses and sends nothing",
        "latency: from the start of the publishing request to the receipt, commit included",
    ];
    bench.stage.finish(done, &notes)
}

fn scenarios(bench: &mut Bench<'_>) -> Result<()> {
    type Scenario = fn(&mut Bench<'_>) -> Result<()>;
    let all: [Scenario; 3] = [create, get, latency];
    for (name, scenario) in SCENARIOS.into_iter().zip(all) {
        if bench.stage.wants(name) {
            println!("==> {name}");
            scenario(bench).context(name)?;
        }
    }
    Ok(())
}

struct Bench<'a> {
    stage: Stage<'a>,
    database: Database,
}

impl Bench<'_> {
    /// Two nodes on tables of their own.
    fn nodes(&self, name: &str, schema: Option<&str>) -> Result<[Service; 2]> {
        self.database.make_schema(name)?;
        let file = schema.map(|text| {
            let file = self.stage.scratch.join(format!("{name}.toml"));
            std::fs::write(&file, text).map(|()| file)
        });
        let file = file.transpose()?;
        let node = |number: usize| {
            let data = self.stage.folder(&format!("{name}-{number}"))?;
            self.stage.node(&data, file.as_deref(), &self.database.url_of(name))
        };
        Ok([node(0)?, node(1)?])
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(if self.stage.options.quick { 2 } else { 6 })
    }
}

/// The same load on both nodes at the same time.
fn load(
    nodes: &[Service; 2],
    expect: u16,
    duration: Duration,
    source: &(dyn Fn(usize) -> Source + Sync),
) -> Result<Sample> {
    let both = |duration: Duration| -> Result<Vec<Outcome>> {
        std::thread::scope(|scope| {
            let loads = nodes.each_ref().map(|node| {
                let address = node.address.as_str();
                let (count, label, connections) = (None, None, CONNECTIONS);
                scope.spawn(move || {
                    Load { address, connections, expect, duration, count, label }.run(source)
                })
            });
            let ended = loads.map(|load| load.join().map_err(|_| anyhow::anyhow!("a load broke")));
            ended.into_iter().map(|outcome| outcome?).collect()
        })
    };
    both(WARM_UP)?;
    let outcomes = both(duration)?;
    let mut latency = crate::histogram::Histogram::default();
    let per_second = outcomes.iter().map(Outcome::per_second).sum();
    outcomes.iter().for_each(|outcome| latency.merge(&outcome.latency));
    let (p50_us, p99_us) = (latency.micros(0.5), latency.micros(0.99));
    Ok(Sample { per_second, p50_us, p99_us, cpu_us: f64::NAN })
}

fn create(bench: &mut Bench<'_>) -> Result<()> {
    const CLIENTS: u64 = 2;
    let nodes = bench.nodes("bench_create", None)?;
    let requests = Requests::new(bench.stage.key.clone());
    let source = |_| requests.creates();
    // Before the first round: how large the batches are.
    let writes_and_commits = || -> Result<[u64; 2]> {
        let mut sums = [0; 2];
        for node in &nodes {
            let mut client = Client::connect(&node.address)?;
            let page = crate::metrics::page(&mut client, &requests.get(crate::metrics::PATH))?;
            for (sum, name) in
                sums.iter_mut().zip(["restive_writes_total", "restive_commits_total"])
            {
                *sum += crate::metrics::figure(&page, name)?;
            }
        }
        Ok(sums)
    };
    requests.fill(&nodes[0].address, BOOKS)?;
    let before = writes_and_commits()?;
    load(&nodes, 201, bench.duration(), &source)?;
    let after = writes_and_commits()?;
    let batch = ((after[0] - before[0]) / (after[1] - before[1]).max(1)).max(1);
    println!("    {batch} writes in a commit on average");
    let script = bench.database.creates("bench_create", batch, CLIENTS)?;
    let mut pairs = Pairs::default();
    for _ in 0..bench.stage.rounds() {
        let limit = bench.database.run(&script, CLIENTS as usize, bench.duration())?;
        let rows = batch as f64;
        pairs.limits.push(Sample { per_second: limit.per_second * rows, ..limit });
        pairs.ours.push(load(&nodes, 201, bench.duration(), &source)?);
    }
    let note = format!("create: {batch} writes in a commit on average");
    bench.stage.report.note(note);
    judge(bench, "create", "pgbench, 2 clients", &pairs);
    nodes.into_iter().try_for_each(Service::stop)
}

fn get(bench: &mut Bench<'_>) -> Result<()> {
    let nodes = bench.nodes("bench_get", None)?;
    let requests = Requests::new(bench.stage.key.clone());
    requests.fill(&nodes[0].address, BOOKS)?;
    let mut client = Client::connect(&nodes[0].address)?;
    let ids = requests.ids(&mut client, usize::try_from(BOOKS)?)?;
    ensure!(ids.len() as u64 == BOOKS, "{} of {BOOKS} books are listed", ids.len());
    let gets: Arc<[Vec<u8>]> =
        ids.iter().map(|id| requests.get(&format!("/v1/books/{id}"))).collect();
    let source = in_turn(gets);
    let script = bench.database.point_select("bench_get", BOOKS)?;
    const CLIENTS: usize = 16;
    let mut pairs = Pairs::default();
    for _ in 0..bench.stage.rounds() {
        pairs.limits.push(bench.database.run(&script, CLIENTS, bench.duration())?);
        pairs.ours.push(load(&nodes, 200, bench.duration(), &source)?);
    }
    judge(bench, "get", "pgbench, 16 clients", &pairs);
    nodes.into_iter().try_for_each(Service::stop)
}

fn judge(bench: &mut Bench<'_>, name: &str, limit: &str, pairs: &Pairs) {
    let ratio = pairs.ratio(|sample| sample.per_second);
    let bar = Bar::at_least("of pgbench", ratio.middle, SHARE, "×").between(&ratio);
    bench.stage.report.sample(name, limit, Sample::median(&pairs.limits), None);
    bench.stage.report.sample(name, "restive, 2 nodes", Sample::median(&pairs.ours), Some(bar));
}

/// One message after the other, published at one node and read from a stream of the other.
fn latency(bench: &mut Bench<'_>) -> Result<()> {
    let [first, second] = bench.nodes("bench_latency", Some(SCHEMA))?;
    let key = bench.stage.key.clone();
    let (first, second) = (Subject::restive(first, &key), Subject::restive(second, &key));
    let crowd = Crowd::open(second.address(), &second.subscribe(Channel::Sse), 1)?;
    let mut crowd = crowd.publishers(first.address(), 1)?;
    let request = first.publish(Channel::Sse, 0);
    warm_up(&mut crowd, &request)?;
    crowd.figures = Figures::default();
    let began = Instant::now();
    let count = if bench.stage.options.quick { QUICK_MESSAGES } else { MESSAGES };
    for _ in 0..count {
        ensure!(crowd.publish(&request)?, "no message is answered in time");
        crowd.catch_up(DELIVERY_LIMIT)?;
        let until = Instant::now() + PAUSE;
        while Instant::now() < until {
            crowd.turn(until.saturating_duration_since(Instant::now()))?;
        }
    }
    crowd.check()?;
    let elapsed = began.elapsed();
    let found = Sample { cpu_us: f64::NAN, ..sample(&crowd.figures, elapsed, Duration::ZERO) };
    let bar = Bar::at_most("p50", found.p50_us / 1_000.0, LATENCY_MS, "ms");
    bench.stage.report.sample("latency", "restive, 2 nodes", found, Some(bar));
    ensure!(figure(&first, "restive_cluster_nodes")? == 2, "the nodes do not share the database");
    drop(crowd);
    first.service.stop()?;
    second.service.stop()
}
