//! From the publishing request to the receipt, at a modest rate: the time for the commit, and for
//! the writes to earlier subscribers. The bare loop has only the latter. The load never sleeps:
//! waking its core for each message would be charged to the server's writes, which remote
//! subscribers would not cause.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::report::{Bar, Sample};

use super::crowd::{Crowd, Figures};
use super::fan_out::sample;
use super::subject::{Channel, Subject};
use super::{Bench, DELIVERY_LIMIT, frame_bytes, warm_up};

const SUBSCRIBERS: usize = 1_000;
const PER_SECOND: u32 = 20;
/// A publisher with a late response does not delay the next message.
const PUBLISHERS: usize = 4;
const MESSAGES: usize = 100;
const QUICK_MESSAGES: usize = 40;

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let messages = u32::try_from(bench.count(MESSAGES, QUICK_MESSAGES))?;
    println!("==> latency: {PER_SECOND} messages a second, {SUBSCRIBERS} subscribers");
    for (name, channel) in [("latency, SSE", Channel::Sse), ("latency, WebSocket", Channel::Socket)]
    {
        let (bare, ours) = (Subject::bare(bench.stage.pinning)?, bench.restive("latency")?);
        let bytes = frame_bytes(&ours, channel)?;
        let (mut limits, mut samples) = (Vec::new(), Vec::new());
        for _ in 0..bench.stage.rounds() {
            limits.push(measure(&bare, channel, bytes, messages)?);
            samples.push(measure(&ours, channel, bytes, messages)?);
        }
        let ours = Sample::median(&samples);
        let bar = Bar::at_most("p50", ours.p50_us / 1_000.0, 2.0, "ms");
        let report = &mut bench.stage.report;
        report.sample(name, bare.name(), Sample::median(&limits), None);
        report.sample(name, "restive", ours, Some(bar));
    }
    Ok(())
}

fn measure(subject: &Subject, channel: Channel, bytes: usize, messages: u32) -> Result<Sample> {
    let crowd = Crowd::open(subject.address(), &subject.subscribe(channel), SUBSCRIBERS)?;
    let mut crowd = crowd.publishers(subject.address(), PUBLISHERS)?;
    let request = subject.publish(channel, bytes);
    warm_up(&mut crowd, &request)?;
    crowd.figures = Figures::default();
    let (began, before) = (Instant::now(), subject.service.cpu()?);
    for number in 0..messages {
        let due = began + Duration::from_secs(1) / PER_SECOND * number;
        while Instant::now() < due {
            crowd.turn(Duration::ZERO)?;
        }
        ensure!(crowd.publish(&request)?, "no message is answered in time");
    }
    crowd.catch_up(DELIVERY_LIMIT)?;
    let (elapsed, cpu) = (began.elapsed(), subject.service.cpu()?.saturating_sub(before));
    crowd.check()?;
    Ok(sample(&crowd.figures, elapsed, cpu))
}
