//! From the publishing request to the receipt, at a modest rate: what a message waits for the
//! commit and for those before it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::report::Bar;

use super::crowd::{Crowd, Figures};
use super::fan_out::sample;
use super::subject::Channel;
use super::{Bench, DELIVERY_LIMIT, warm_up};

const SUBSCRIBERS: usize = 1_000;
const PER_SECOND: u32 = 20;
/// One who is answered late does not delay the next message.
const PUBLISHERS: usize = 4;
const MESSAGES: usize = 300;
const QUICK_MESSAGES: usize = 60;

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let messages = u32::try_from(bench.count(MESSAGES, QUICK_MESSAGES))?;
    for (name, channel) in [("latency, SSE", Channel::Sse), ("latency, WebSocket", Channel::Socket)]
    {
        println!("==> {name}: {messages} messages, {PER_SECOND} a second, {SUBSCRIBERS} readers");
        let subject = bench.restive("latency")?;
        let crowd = Crowd::open(subject.address(), &subject.subscribe(channel), SUBSCRIBERS)?;
        let mut crowd = crowd.publishers(subject.address(), PUBLISHERS)?;
        let request = subject.publish(channel, 0);
        warm_up(&mut crowd, &request)?;
        crowd.figures = Figures::default();
        let (began, before) = (Instant::now(), subject.service.cpu()?);
        for number in 0..messages {
            let due = began + Duration::from_secs(1) / PER_SECOND * number;
            loop {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                crowd.turn(left)?;
            }
            ensure!(crowd.publish(&request)?, "no message is answered in time");
        }
        crowd.catch_up(DELIVERY_LIMIT)?;
        let (elapsed, cpu) = (began.elapsed(), subject.service.cpu()?.saturating_sub(before));
        crowd.check()?;
        let sample = sample(&crowd.figures, elapsed, cpu);
        let bar = Bar::at_most("p50", sample.p50_us / 1_000.0, 2.0, "ms");
        bench.stage.report.sample(name, "restive", sample, Some(bar));
        drop(crowd);
        subject.service.stop()?;
    }
    Ok(())
}
