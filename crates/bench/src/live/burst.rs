//! Messages that are committed together and sent together: many publishers at once, and the cost of
//! a delivery when several messages share a write.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::Bar;

use super::crowd::{Crowd, Figures};
use super::fan_out::sample;
use super::subject::Channel;
use super::{Bench, DELIVERY_LIMIT, warm_up};

const SUBSCRIBERS: usize = 5_000;
const QUICK_SUBSCRIBERS: usize = 1_000;
const BURST: usize = 16;
const DURATION: Duration = Duration::from_secs(10);
const QUICK_DURATION: Duration = Duration::from_secs(2);

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.count(SUBSCRIBERS, QUICK_SUBSCRIBERS);
    let duration = if bench.stage.options.quick { QUICK_DURATION } else { DURATION };
    for (name, channel) in [("burst, SSE", Channel::Sse), ("burst, WebSocket", Channel::Socket)] {
        println!("==> {name}: bursts of {BURST} messages to {count} subscribers");
        let subject = bench.restive("burst")?;
        let crowd = Crowd::open(subject.address(), &subject.subscribe(channel), count)?;
        let mut crowd = crowd.publishers(subject.address(), BURST)?;
        let request = subject.publish(channel, 0);
        warm_up(&mut crowd, &request)?;
        crowd.figures = Figures::default();
        let (began, before) = (Instant::now(), subject.service.cpu()?);
        while began.elapsed() < duration {
            for _ in 0..BURST {
                crowd.publish(&request)?;
            }
            crowd.catch_up(DELIVERY_LIMIT)?;
        }
        let (elapsed, cpu) = (began.elapsed(), subject.service.cpu()?.saturating_sub(before));
        crowd.check()?;
        let sample = sample(&crowd.figures, elapsed, cpu);
        let joined = crowd.figures.latency.count() as f64 / crowd.figures.reads.max(1) as f64;
        let report = &mut bench.stage.report;
        let bar = Bar::at_most("CPU per delivery", sample.cpu_us, 1.5, "µs");
        report.sample(name, "restive", sample, Some(bar));
        report.bar(name, Bar::shown("messages in a read", joined, "(at most as many a write)"));
        // Connections are closed first, so that the drain does not wait for them.
        drop(crowd);
        subject.service.stop()?;
    }
    Ok(())
}
