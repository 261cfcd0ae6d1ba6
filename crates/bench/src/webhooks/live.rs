//! Delivery during creates: clients create in a closed loop while the server delivers on the same
//! core. Shown without a bar: the rate is what creating leaves over.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::load::Load;
use crate::report::{Bar, Sample};

use super::sink::Sink;
use super::{Bench, CREATORS, per_delivery};

/// Time limit of the remaining deliveries after the creates end.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> live: {CREATORS} clients create");
    let sink = Sink::start()?;
    let running = bench.running("live", &sink)?;
    let service = &running.service;
    let answered = sink.answered();
    let (began, before) = (Instant::now(), service.cpu()?);
    let (count, label) = (None, None);
    let (address, duration) = (service.address.as_str(), bench.duration() * 2);
    let load = Load { address, connections: CREATORS, expect: 201, duration, count, label };
    let made = load.run(&|_| bench.requests.creates())?.latency.count();
    let (elapsed, during) = (began.elapsed(), sink.answered() - answered);
    let ended = Instant::now();
    sink.expect(answered + made, CATCH_UP_LIMIT)?;
    let catch_up = ended.elapsed();
    let cpu = service.cpu()?.saturating_sub(before);
    let sample = Sample {
        per_second: during as f64 / elapsed.as_secs_f64(),
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        cpu_us: per_delivery(cpu, made),
    };
    let bar = Bar::shown("behind at the end", catch_up.as_secs_f64(), "s");
    bench.stage.report.sample("live", "restive", sample, Some(bar));
    bench.stage.report.note(format!(
        "live: {:.0} events a second were created meanwhile; CPU µs includes creating them",
        made as f64 / elapsed.as_secs_f64()
    ));
    running.service.stop()
}
