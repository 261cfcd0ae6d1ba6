//! From a commit to the first byte at the sink, at a modest steady rate. The client cannot see the
//! commit itself: it is between the start of its request and the response. The bar uses the start,
//! which gives the longer time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::histogram::Histogram;
use crate::http::Client;
use crate::report::{Bar, Sample};

use super::arrivals::{First, between};
use super::notes::Requests;
use super::sink::Sink;
use super::{Bench, FIRST_DELIVERY_LIMIT, per_delivery, watch};

const PER_SECOND: u32 = 100;
const SECONDS: u64 = 20;
const QUICK_SECONDS: u64 = 5;

/// One create, from the view of its client.
pub struct Created {
    /// Id of the note.
    pub id: String,
    pub asked: Instant,
    pub answered: Instant,
}

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.count(SECONDS, QUICK_SECONDS) * u64::from(PER_SECOND);
    println!("==> latency: {count} events, {PER_SECOND} a second");
    let sink = Sink::start()?;
    let running = bench.running("latency", &sink)?;
    let mut client = running.client()?;
    let answered = sink.answered();
    let (began, before) = (Instant::now(), running.service.cpu()?);
    let created = create(&mut client, &bench.requests, count, PER_SECOND)?;
    sink.expect(answered + count, FIRST_DELIVERY_LIMIT)?;
    let (elapsed, cpu) = (began.elapsed(), running.service.cpu()?.saturating_sub(before));
    let first = First::of(&sink.take()?);
    let events = watch::events(&mut client, &bench.requests)?;
    let (mut from_asked, mut from_answered) = (Histogram::default(), Histogram::default());
    for one in &created {
        let event = events.get(&one.id).with_context(|| format!("no event of {}", one.id))?;
        let at = first.at(*event, 0).with_context(|| format!("{} did not arrive", one.id))?;
        from_asked.record(between(one.asked, at));
        from_answered.record(between(one.answered, at));
    }
    let sample = |latency: &Histogram, cpu_us| Sample {
        per_second: count as f64 / elapsed.as_secs_f64(),
        p50_us: latency.micros(0.5),
        p99_us: latency.micros(0.99),
        cpu_us,
    };
    let report = &mut bench.stage.report;
    let bar = Bar::at_most("p50", from_asked.micros(0.5) / 1_000.0, 5.0, "ms");
    let judged = sample(&from_asked, per_delivery(cpu, count));
    report.sample("latency", "request to first byte", judged, Some(bar));
    report.sample("latency", "answer to first byte", sample(&from_answered, f64::NAN), None);
    report.note(
        "latency: the commit lies between the start of the create request and its answer; an \
         event that arrived before the answer counts as 0; CPU µs includes the create",
    );
    // The client's connection is closed first, so that the drain does not wait for it.
    drop(client);
    running.service.stop()
}

/// Creates notes one by one at a steady rate; a late one does not delay those after it unless it
/// takes longer than their interval.
pub fn create(
    client: &mut Client,
    requests: &Requests,
    count: u64,
    per_second: u32,
) -> Result<Vec<Created>> {
    let began = Instant::now();
    let distance = Duration::from_secs(1) / per_second.max(1);
    let mut created = Vec::new();
    for number in 0..u32::try_from(count)? {
        let due = began + distance * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let request = requests.create();
        let asked = Instant::now();
        let answer = client.expect(201, &request)?;
        let answered = Instant::now();
        let note: serde_json::Value = serde_json::from_slice(&answer.body)?;
        let id = note["id"].as_str().context("a note without id")?.to_owned();
        created.push(Created { id, asked, answered });
    }
    ensure!(!created.is_empty(), "nothing was created");
    Ok(created)
}
