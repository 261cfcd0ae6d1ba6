//! A long queue: a million events for an endpoint that was down, with a restarted server. Memory
//! must stay bounded and the speed must be that of a short queue.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::http::Client;
use crate::report::{Bar, Sample};

use super::arrivals::First;
use super::notes::Requests;
use super::sink::Sink;
use super::{Bench, FIRST_DELIVERY_LIMIT, IN_FLIGHT, MIB, TIMEOUT_SECONDS, drain, per_delivery};

const EVENTS: u64 = 1_000_000;
const QUICK_EVENTS: u64 = 50_000;
const FILL_IN_FLIGHT: usize = 256;
/// Failed deliveries are retried soon; twenty is the maximum number of retries.
const RETRY_SECONDS: [u64; 20] = [10; 20];
/// Time for the server to find the backlog, while the sink holds its responses.
const SETTLE: Duration = Duration::from_secs(2);
/// The time over which the speed is measured.
const FULL_SPEED: Duration = Duration::from_secs(20);
/// A million at 4,000 a second.
const DRAIN_LIMIT: Duration = Duration::from_secs(250);

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let events = bench.count(EVENTS, QUICK_EVENTS);
    println!("==> million: {events} events for an endpoint that is down");
    let drained = match bench.drained {
        Some(rate) => rate,
        None => Sample::median(&drain::measure(bench)?.ours).per_second,
    };
    let sink = Sink::refusing()?;
    let data = bench.stage.folder("million")?;
    let service = bench.restive(&data)?;
    let more = json!({
        "timeout": TIMEOUT_SECONDS,
        "max_in_flight": IN_FLIGHT,
        "retry_schedule": RETRY_SECONDS,
    });
    let request = bench.requests.endpoint(&sink.url(0), &more);
    Requests::made(&mut Client::connect(&service.address)?, &request)?;
    bench.requests.fill(&service.address, events, FILL_IN_FLIGHT)?;
    service.stop().context("stop before the restart")?;
    sink.hold();
    let service = bench.restive(&data)?;
    std::thread::sleep(SETTLE);
    let (waiting, _) = service.memory()?;
    let (began, before) = (Instant::now(), service.cpu()?);
    sink.release();
    sink.expect(1, FIRST_DELIVERY_LIMIT)?;
    // The first deliveries failed while the endpoint was down, and wait for their retries.
    sink.wait(FULL_SPEED, |sink| sink.answered() >= events / 10 * 9)?;
    let (elapsed, answered) = (began.elapsed(), sink.answered());
    let cpu = service.cpu()?.saturating_sub(before);
    println!("    {answered} in {:.1} s", elapsed.as_secs_f64());
    let speed = Sample {
        per_second: answered as f64 / elapsed.as_secs_f64(),
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        cpu_us: per_delivery(cpu, answered),
    };
    let to_the_end = until_drained(&sink, events, began)?;
    let (_, peak) = service.memory()?;
    let report = &mut bench.stage.report;
    let bar = Bar::at_least("rate ratio", speed.per_second / drained, 0.8, "× drain");
    report.sample("million", "restive", speed, Some(bar));
    report.bar("million", Bar::at_most("peak resident", peak as f64 / MIB, 150.0, "MiB"));
    report.bar("million", Bar::shown("resident, all waiting", waiting as f64 / MIB, "MiB"));
    report.bar("million", Bar::shown("restart", service.started_in.as_secs_f64(), "s"));
    match to_the_end {
        Some(time) => report.bar("million", Bar::shown("drained in", time.as_secs_f64(), "s")),
        None => report.note(format!("million: not drained within {DRAIN_LIMIT:?}")),
    }
    report.note(format!(
        "million: {events} events were created while the endpoint refused connections; peak since \
         the restart, while they were delivered"
    ));
    service.stop()
}

/// The time to deliver everything; None if it exceeds the limit.
fn until_drained(sink: &Sink, events: u64, began: Instant) -> Result<Option<Duration>> {
    let left = DRAIN_LIMIT.saturating_sub(began.elapsed());
    if !sink.wait(left, |sink| sink.answered() >= events)? {
        return Ok(None);
    }
    let time = began.elapsed();
    // Failed deliveries from the downtime follow their own schedule.
    sink.settle()?;
    let first = First::of(&sink.take()?);
    let (count, duplicates) = (first.count() as u64, first.duplicates);
    ensure!(count >= events, "{count} of {events} events arrived, {duplicates} twice");
    Ok(Some(time))
}
