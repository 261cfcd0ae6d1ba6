//! One measured run of one server: a short warm-up, then the measurement; and alternating runs of
//! two servers.

use std::time::Duration;

use anyhow::Result;

use crate::load::{Load, Outcome, Source};
use crate::process::{Service, ThreadTimes};
use crate::report::{Pairs, Sample};

/// Before each measured run: connections, caches and branch predictors.
pub const WARM_UP: Duration = Duration::from_millis(300);

pub fn measure(
    service: &Service,
    connections: usize,
    expect: u16,
    duration: Duration,
    source: &dyn Fn(usize) -> Source,
) -> Result<Sample> {
    let since = |now: &Duration, before: &Duration| now.saturating_sub(*before);
    let parts = (WARM_UP, duration);
    timed(service, connections, expect, parts, source, Service::cpu, since)
}

/// A run of a fraction of a second, one of many in turn. The 10 ms steps of `measure` would be too
/// coarse, so its CPU time is that of the threads, in nanoseconds.
pub fn measure_shortly(
    service: &Service,
    connections: usize,
    expect: u16,
    duration: Duration,
    source: &dyn Fn(usize) -> Source,
) -> Result<Sample> {
    let parts = (duration / 5, duration);
    let (clock, since) = (Service::thread_times, ThreadTimes::since);
    timed(service, connections, expect, parts, source, clock, since)
}

fn timed<T>(
    service: &Service,
    connections: usize,
    expect: u16,
    (warm_up, duration): (Duration, Duration),
    source: &dyn Fn(usize) -> Source,
    clock: impl Fn(&Service) -> Result<T>,
    since: impl Fn(&T, &T) -> Duration,
) -> Result<Sample> {
    let address = service.address.as_str();
    let load = |duration| Load { address, connections, expect, duration, count: None, label: None };
    load(warm_up).run(source)?;
    let before = clock(service)?;
    let outcome = load(duration).run(source)?;
    Ok(sample(&outcome, since(&clock(service)?, &before)))
}

fn sample(outcome: &Outcome, cpu: Duration) -> Sample {
    Sample {
        per_second: outcome.per_second(),
        p50_us: outcome.latency.micros(0.5),
        p99_us: outcome.latency.micros(0.99),
        cpu_us: cpu.as_secs_f64() * 1e6 / outcome.latency.count().max(1) as f64,
    }
}

/// Alternates between both, round by round. The first one changes from round to round, so that a
/// machine that becomes slower or faster favours neither.
pub fn in_turn(
    rounds: usize,
    mut limit: impl FnMut() -> Result<Sample>,
    mut ours: impl FnMut() -> Result<Sample>,
) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    for round in 0..rounds {
        if round % 2 == 0 {
            pairs.limits.push(limit()?);
            pairs.ours.push(ours()?);
        } else {
            pairs.ours.push(ours()?);
            pairs.limits.push(limit()?);
        }
    }
    Ok(pairs)
}
