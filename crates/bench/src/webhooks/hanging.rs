//! Isolation: a thousand endpoints that all enable every event, of which ten stop responding,
//! compared with a run in which none does. Each run has its own server and data. First a burst,
//! which measures the throughput to the 990; then a few events a second, which measure the latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::histogram::Histogram;
use crate::http::Client;
use crate::load::{Load, Source};
use crate::process::{self, Service};
use crate::report::{Bar, Sample};

use super::arrivals::{Arrival, First, between};
use super::latency::{Created, create};
use super::sink::Sink;
use super::{Bench, FIRST_DELIVERY_LIMIT, per_delivery, watch};

const ENDPOINTS: u32 = 1_000;
/// The endpoints below this number hang.
const HANGING: u32 = 10;
const BURST: u64 = 200;
const QUICK_BURST: u64 = 40;
/// A rate far below the capacity of a core, so that queueing does not matter.
const STEADY_PER_SECOND: u32 = 5;
const STEADY_SECONDS: u64 = 10;
const QUICK_STEADY_SECONDS: u64 = 3;
/// While all endpoints still respond: their concurrency grows to the limit, so that an endpoint
/// that begins to hang holds as much as it can.
const WARM_UP: u64 = 30;
const PAIRS: usize = 2;
/// 200,000 deliveries at 1,000 a second.
const BURST_LIMIT: Duration = Duration::from_secs(200);
/// Both ends of the server's connections, and those of the load.
const OPEN_FILES: u64 = 4_096;

/// The notes created during a measurement, and their arrivals.
struct Measured {
    created: Vec<Created>,
    arrivals: Vec<Arrival>,
    cpu: Duration,
}

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> hanging: {HANGING} of {ENDPOINTS} endpoints");
    process::allow_files(OPEN_FILES)?;
    let mut ratios = Vec::new();
    for pair in 1..=PAIRS {
        let (clean, hung);
        // Alternating, so that a machine that becomes slower does not favour one of them.
        if pair % 2 == 1 {
            clean = one(bench, 0)?;
            hung = one(bench, HANGING)?;
        } else {
            hung = one(bench, HANGING)?;
            clean = one(bench, 0)?;
        }
        let report = &mut bench.stage.report;
        report.sample("hanging", &format!("none hangs, run {pair}"), clean, None);
        report.sample("hanging", &format!("{HANGING} hang, run {pair}"), hung, None);
        ratios.push(Sample {
            per_second: hung.per_second / clean.per_second,
            p50_us: hung.p50_us / clean.p50_us,
            p99_us: hung.p99_us / clean.p99_us,
            cpu_us: hung.cpu_us / clean.cpu_us,
        });
    }
    let ratio = Sample::median(&ratios);
    let burst = bench.count(BURST, QUICK_BURST);
    let report = &mut bench.stage.report;
    report.bar("hanging", Bar::at_least("rate ratio", ratio.per_second, 0.9, "× none hanging"));
    report.bar("hanging", Bar::at_most("p99 ratio", ratio.p99_us, 2.0, "× none hanging"));
    report.note(format!(
        "hanging: {ENDPOINTS} endpoints want every event; rows are of the {} that answer. They \
         all answer at first, until their windows are wide; then {HANGING} take requests and say \
         nothing until the timeout (20 s). req/s and CPU µs: a burst of {burst} events, first \
         request to last arrival; p50 and p99: {STEADY_PER_SECOND} events a second, request to \
         arrival. The bars are on the median of {PAIRS} pairs of runs",
        ENDPOINTS - HANGING
    ));
    Ok(())
}

/// One run on a new server, in which the endpoints below `hanging` stop responding.
fn one(bench: &Bench<'_>, hanging: u32) -> Result<Sample> {
    println!("    {hanging} hang");
    let sink = Sink::start()?;
    let data = bench.stage.folder("hanging")?;
    let service = bench.restive(&data)?;
    endpoints(bench, &service, &sink)?;
    sink.settle()?;
    let answering = ENDPOINTS - hanging;
    let before = sink.answered();
    create(&mut Client::connect(&service.address)?, &bench.requests, WARM_UP, u32::MAX)?;
    sink.expect(before + 1, FIRST_DELIVERY_LIMIT)?;
    sink.expect(before + WARM_UP * u64::from(ENDPOINTS), BURST_LIMIT)?;
    sink.settle()?;
    sink.hang(hanging);
    let steady = bench.count(STEADY_SECONDS, QUICK_STEADY_SECONDS) * u64::from(STEADY_PER_SECOND);
    let part = |count, per_second| measure(bench, &service, &sink, answering, count, per_second);
    let burst = part(bench.count(BURST, QUICK_BURST), u32::MAX)?;
    let steady = part(steady, STEADY_PER_SECOND)?;
    let latency = latency(bench, &mut Client::connect(&service.address)?, &steady)?;
    let sample = Sample {
        per_second: throughput(&burst)?,
        p50_us: latency.micros(0.5),
        p99_us: latency.micros(0.99),
        cpu_us: per_delivery(burst.cpu, burst.arrivals.len() as u64),
    };
    service.stop()?;
    std::fs::remove_dir_all(data)?;
    Ok(sample)
}

/// Each with its own path on the sink.
fn endpoints(bench: &Bench<'_>, service: &Service, sink: &Sink) -> Result<()> {
    const CREATORS: usize = 16;
    let next = Arc::new(AtomicU32::new(0));
    let urls: Arc<[Vec<u8>]> = (0..ENDPOINTS)
        .map(|number| bench.requests.endpoint(&sink.url(number), &json!({})))
        .collect();
    let source = |_| -> Source {
        let (next, urls) = (Arc::clone(&next), Arc::clone(&urls));
        Box::new(move |request| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            request.extend_from_slice(&urls[number as usize % urls.len()]);
        })
    };
    let load = Load {
        address: &service.address,
        connections: CREATORS,
        expect: 201,
        duration: FIRST_DELIVERY_LIMIT,
        count: Some(ENDPOINTS.into()),
        label: None,
    };
    let made = load.run(&source)?.latency.count();
    ensure!(made == u64::from(ENDPOINTS), "only {made} of {ENDPOINTS} endpoints were made");
    Ok(())
}

/// Creates notes at this rate and waits until each has arrived.
fn measure(
    bench: &Bench<'_>,
    service: &Service,
    sink: &Sink,
    answering: u32,
    count: u64,
    per_second: u32,
) -> Result<Measured> {
    sink.take()?;
    let wanted = sink.answered() + count * u64::from(answering);
    let before = service.cpu()?;
    let mut client = Client::connect(&service.address)?;
    let created = create(&mut client, &bench.requests, count, per_second)?;
    sink.expect(wanted, BURST_LIMIT)?;
    let cpu = service.cpu()?.saturating_sub(before);
    // Compares only deliveries to endpoints that respond in both runs.
    let mut arrivals = sink.take()?;
    arrivals.retain(|arrival| arrival.endpoint >= HANGING);
    Ok(Measured { created, arrivals, cpu })
}

/// Deliveries a second, from the first request to the last arrival.
fn throughput(burst: &Measured) -> Result<f64> {
    let began = burst.created.first().context("nothing was created")?.asked;
    let ended = burst.arrivals.iter().map(|arrival| arrival.at).max();
    let elapsed = between(began, ended.context("nothing arrived")?);
    Ok(First::of(&burst.arrivals).count() as f64 / elapsed.as_secs_f64())
}

/// From the start of each create to the first byte at each responding endpoint.
fn latency(bench: &Bench<'_>, client: &mut Client, steady: &Measured) -> Result<Histogram> {
    let events = watch::events(client, &bench.requests)?;
    let first = First::of(&steady.arrivals);
    let mut latency = Histogram::default();
    for one in &steady.created {
        let event = events.get(&one.id).with_context(|| format!("no event of {}", one.id))?;
        for endpoint in HANGING..ENDPOINTS {
            let at = first.at(*event, endpoint);
            let at = at.with_context(|| format!("{} did not reach {endpoint}", one.id))?;
            latency.record(between(one.asked, at));
        }
    }
    Ok(latency)
}
