//! Events from before an endpoint existed, sent to it by one replay. Shown without a bar.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::http::Client;
use crate::report::Sample;

use super::arrivals::First;
use super::notes::{EVENT, Requests};
use super::sink::Sink;
use super::{Bench, CREATORS, FIRST_DELIVERY_LIMIT, per_delivery};

const EVENTS: u64 = 30_000;
const QUICK_EVENTS: u64 = 5_000;
const REPLAY_LIMIT: Duration = Duration::from_secs(180);
/// Often enough for the measurement, seldom enough not to load the server.
const LOOK: Duration = Duration::from_millis(20);

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let events = bench.count(EVENTS, QUICK_EVENTS);
    println!("==> replay: {events} events");
    let sink = Sink::start()?;
    let requests = &bench.requests;
    let service = bench.restive(&bench.stage.folder("replay")?)?;
    requests.fill(&service.address, events, CREATORS)?;
    let mut client = Client::connect(&service.address)?;
    let endpoint = Requests::made(&mut client, &requests.endpoint(&sink.url(0), &json!({})))?;
    // Events that a new endpoint gets automatically are not part of the replay.
    sink.settle()?;
    sink.take()?;
    let (began, before) = (Instant::now(), service.cpu()?);
    let body = json!({ "endpoint": endpoint, "types": [EVENT] }).to_string();
    let replay = Requests::made(&mut client, &requests.post("/v1/replays", &body))?;
    let request = requests.get(&format!("/v1/replays/{replay}"));
    wait(&mut client, &request, &sink)?;
    let (elapsed, cpu) = (began.elapsed(), service.cpu()?.saturating_sub(before));
    let first = First::of(&sink.take()?);
    let (count, duplicates) = (first.count() as u64, first.duplicates);
    ensure!(count == events, "{count} of {events} events arrived, {duplicates} twice");
    let sample = Sample {
        per_second: events as f64 / elapsed.as_secs_f64(),
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        cpu_us: per_delivery(cpu, events),
    };
    bench.stage.report.sample("replay", "restive", sample, None);
    // The client's connection is closed first, so that the drain does not wait for it.
    drop(client);
    service.stop()
}

/// Waits until the replay is done.
fn wait(client: &mut Client, request: &[u8], sink: &Sink) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = client.expect(200, request)?;
        let job: Value = serde_json::from_slice(&answer.body)?;
        match job["status"].as_str().context("a replay without status")? {
            "succeeded" => return Ok(()),
            "pending" | "running" => {}
            _ => bail!("the replay ended as {job}"),
        }
        if sink.requests() == 0 && began.elapsed() > FIRST_DELIVERY_LIMIT {
            bail!("no delivery arrived within {} s: {job}", FIRST_DELIVERY_LIMIT.as_secs());
        }
        ensure!(began.elapsed() < REPLAY_LIMIT, "after {REPLAY_LIMIT:?} the replay is {job}");
        std::thread::sleep(LOOK);
    }
}
