//! The sustained rate: events that wait are delivered as fast as the server can, against the bare
//! limit in the same run. The sink holds its answers back while the events are created; the clock
//! runs from the moment it answers until every outcome is durable.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::report::{Bar, Sample};

use super::arrivals::First;
use super::sink::Sink;
use super::{Bench, CREATORS, Running, per_delivery, watch};

const EVENTS: u64 = 30_000;
const QUICK_EVENTS: u64 = 5_000;
/// Of an event, where the server is not there to tell.
const BODY_BYTES: u64 = 1_024;
/// Creating and settling must take less than the timeout of the deliveries that are held, 30 s.
const FILL_LIMIT: Duration = Duration::from_secs(20);
/// After creating: what the server still does for the creates is not the drain's.
const SETTLE: Duration = Duration::from_secs(1);
/// At 250 a second, half of what a peer with two more systems reaches.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// The bare limit alone.
pub fn bare(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> bare");
    let sink = Sink::start()?;
    let rounds = (0..bench.stage.rounds()).map(|_| bench.bare(&sink, BODY_BYTES));
    let rounds: Vec<Sample> = rounds.collect::<Result<_>>()?;
    bench.stage.report.sample("bare", "bare hyper client", Sample::median(&rounds), None);
    bench.stage.report.note(format!("bare: bodies of {} bytes", sink.body_bytes()));
    Ok(())
}

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> drain: {} events that wait", bench.count(EVENTS, QUICK_EVENTS));
    let (bare, ours) = measure(bench)?;
    let report = &mut bench.stage.report;
    report.sample("drain", "bare hyper client", bare, None);
    let rate = Bar::at_least("rate ratio", ours.per_second / bare.per_second, 0.4, "× bare");
    report.sample("drain", "restive", ours, Some(rate));
    report.bar("drain", Bar::at_most("CPU ratio", ours.cpu_us / bare.cpu_us, 3.0, "× bare"));
    Ok(())
}

/// Both subjects in turn, round by round: the bare limit and the server.
pub fn measure(bench: &mut Bench<'_>) -> Result<(Sample, Sample)> {
    let events = bench.count(EVENTS, QUICK_EVENTS);
    // One sink each, so that both begin with connections of their own and sizes can be told.
    let (limits_sink, sink) = (Sink::start()?, Sink::start()?);
    let mut running = bench.running("drain", &sink)?;
    let (mut limits, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.stage.rounds() {
        // Bodies as large as the server's.
        limits.push(bench.bare(&limits_sink, sink.body_bytes())?);
        ours.push(round(bench, &mut running, &sink, events)?);
    }
    let kept = watch::kept(&mut running.client()?, &bench.requests, &running.endpoint)?;
    let (bare, server) = (limits_sink.body_bytes(), sink.body_bytes());
    ensure!(kept as u64 >= running.notes, "{kept} of {} deliveries are kept", running.notes);
    bench.stage.report.note(format!(
        "drain: {events} events wait in each round; req/s counts from the moment the sink answers \
         until the last outcome is durable; bodies of {server} bytes, the bare loop's {bare}; \
         afterwards each of the {} deliveries was found in /v1/deliveries as succeeded",
        running.notes
    ));
    running.service.stop()?;
    let ours = Sample::median(&ours);
    bench.drained = Some(ours.per_second);
    Ok((Sample::median(&limits), ours))
}

fn round(bench: &Bench<'_>, running: &mut Running, sink: &Sink, events: u64) -> Result<Sample> {
    let (requests, service) = (&bench.requests, &running.service);
    let succeeded = watch::succeeded(&mut running.client()?, requests)?;
    let answered = sink.answered();
    sink.hold();
    let made = requests.fill_within(&service.address, events, CREATORS, FILL_LIMIT)?;
    std::thread::sleep(SETTLE);
    let mut client = running.client()?;
    let (began, before) = (Instant::now(), service.cpu()?);
    sink.release();
    sink.expect(answered + made, DRAIN_LIMIT)?;
    watch::expect_durable(&mut client, requests, succeeded + made, DRAIN_LIMIT)?;
    let (elapsed, cpu) = (began.elapsed(), service.cpu()?.saturating_sub(before));
    let first = First::of(&sink.take()?);
    let (count, duplicates) = (first.count() as u64, first.duplicates);
    ensure!(count == made, "{count} of {made} events arrived, {duplicates} twice");
    running.notes += made;
    Ok(Sample {
        per_second: made as f64 / elapsed.as_secs_f64(),
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        cpu_us: per_delivery(cpu, made),
    })
}
