//! The sustained rate: waiting events are delivered as fast as the server can, compared with the
//! bare limit in the same run. The sink holds its responses back while the events are created; the
//! time runs from its first response until every outcome is durable.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::report::{Bar, Pairs, Sample};

use super::arrivals::First;
use super::sink::Sink;
use super::{Bench, CREATORS, Running, per_delivery, watch};

const EVENTS: u64 = 30_000;
const QUICK_EVENTS: u64 = 5_000;
/// Size of an event if no server was measured.
const BODY_BYTES: u64 = 1_024;
/// Creating, settling and the turn of the bare limit must take less than the timeout of the held
/// deliveries, 30 s.
const FILL_LIMIT: Duration = Duration::from_secs(20);
const ROUNDS: usize = 7;
/// After creating: remaining work for the creates does not belong to the drain.
const SETTLE: Duration = Duration::from_secs(1);
/// At 250 a second, half the rate of a competitor with two more systems.
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
    let pairs = measure(bench)?;
    let report = &mut bench.stage.report;
    report.sample("drain", "bare hyper client", Sample::median(&pairs.limits), None);
    let rate = pairs.ratio(|sample| sample.per_second);
    let bar = Bar::at_least("rate ratio", rate.middle, 0.4, "× bare").between(&rate);
    report.sample("drain", "restive", Sample::median(&pairs.ours), Some(bar));
    let cpu = pairs.ratio(|sample| sample.cpu_us);
    report.bar("drain", Bar::at_most("CPU ratio", cpu.middle, 3.0, "× bare").between(&cpu));
    Ok(())
}

/// The bare limit and the server alternate, round by round.
pub fn measure(bench: &mut Bench<'_>) -> Result<Pairs> {
    let events = bench.count(EVENTS, QUICK_EVENTS);
    // One sink each, so that both have separate connections and sizes.
    let (limits_sink, sink) = (Sink::start()?, Sink::start()?);
    let mut running = bench.running("drain", &sink)?;
    let rounds = if bench.stage.options.quick { bench.stage.rounds() } else { ROUNDS };
    let mut pairs = Pairs::default();
    for round in 0..rounds {
        // Both close in time, next to the drain itself: filling takes longer than both. The first
        // one changes from round to round.
        let made = fill(bench, &running, &sink, events)?;
        // Bodies as large as the server's.
        let limit = || bench.bare(&limits_sink, sink.body_bytes());
        let before = if round % 2 == 0 { Some(limit()?) } else { None };
        pairs.ours.push(drain(bench, &mut running, &sink, made)?);
        pairs.limits.push(before.map_or_else(limit, Ok)?);
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
    bench.drained = Some(Sample::median(&pairs.ours).per_second);
    Ok(pairs)
}

/// Creates events that wait because the sink does not respond; returns their number.
fn fill(bench: &Bench<'_>, running: &Running, sink: &Sink, events: u64) -> Result<u64> {
    sink.hold();
    let address = &running.service.address;
    let made = bench.requests.fill_within(address, events, CREATORS, FILL_LIMIT)?;
    std::thread::sleep(SETTLE);
    Ok(made)
}

fn drain(bench: &Bench<'_>, running: &mut Running, sink: &Sink, made: u64) -> Result<Sample> {
    let (requests, service) = (&bench.requests, &running.service);
    let mut client = running.client()?;
    let succeeded = watch::succeeded(&mut client, requests)?;
    let answered = sink.answered();
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
