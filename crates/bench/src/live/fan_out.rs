//! One publisher, thousands of subscribers: messages delivered per second and per second of the
//! server's CPU time. The next message is published when all subscribers have the last one, so
//! messages cannot be joined: each delivery is a separate write, in all three servers.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::{Bar, Pairs, Sample};

use super::crowd::{Crowd, Figures};
use super::subject::{Channel, Subject};
use super::{Bench, DELIVERY_LIMIT, frame_bytes, warm_up};

const SUBSCRIBERS: usize = 5_000;
const QUICK_SUBSCRIBERS: usize = 1_000;
/// Many, because each round is one ratio and the speed of the machine changes between them.
const ROUNDS: usize = 7;
const QUICK_ROUNDS: usize = 2;
const ROUND: Duration = Duration::from_secs(3);
const QUICK_ROUND: Duration = Duration::from_secs(1);

/// A server and its subscribers.
struct Show {
    subject: Subject,
    crowd: Crowd,
    request: Vec<u8>,
    samples: Vec<Sample>,
}

pub(super) fn run(bench: &mut Bench<'_>, name: &str, channel: Channel) -> Result<()> {
    let count = bench.count(SUBSCRIBERS, QUICK_SUBSCRIBERS);
    let round = if bench.stage.options.quick { QUICK_ROUND } else { ROUND };
    let restive = bench.restive(name)?;
    let bytes = frame_bytes(&restive, channel)?;
    println!("==> {name}: {count} subscribers, messages of {bytes} bytes");
    let pinning = bench.stage.pinning;
    let subjects = [Subject::bare(pinning)?, Subject::nchan(pinning)?, restive];
    let mut shows = Vec::new();
    for subject in subjects {
        shows.push(Show::open(subject, channel, count, bytes)?);
    }
    let rounds = if bench.stage.options.quick { QUICK_ROUNDS } else { ROUNDS };
    for _ in 0..rounds {
        for show in &mut shows {
            show.round(round)?;
        }
    }
    let report = &mut bench.stage.report;
    for show in &shows {
        show.crowd.check()?;
        report.sample(name, show.subject.name(), Sample::median(&show.samples), None);
    }
    let samples = shows.into_iter().map(|show| show.samples).collect::<Vec<_>>();
    let [bare, nchan, ours] = &samples[..] else { return Ok(()) };
    for (limits, least, unit) in [(nchan, 1.3, "× nchan"), (bare, 0.8, "× bare")] {
        let pairs = Pairs { limits: limits.clone(), ours: ours.clone() };
        let rate = pairs.ratio(|sample| sample.per_second);
        let bar = Bar::at_least("delivered a second", rate.middle, least, unit);
        report.bar(name, bar.between(&rate));
        let thrift = pairs.ratio(|sample| 1.0 / sample.cpu_us);
        let bar = Bar::at_least("delivered a CPU-second", thrift.middle, least, unit);
        report.bar(name, bar.between(&thrift));
    }
    let pairs = Pairs { limits: nchan.clone(), ours: ours.clone() };
    let tail = pairs.ratio(|sample| sample.p99_us);
    report.bar(name, Bar::at_most("p99", tail.middle, 1.0, "× nchan").between(&tail));
    Ok(())
}

impl Show {
    fn open(subject: Subject, channel: Channel, count: usize, bytes: usize) -> Result<Show> {
        let crowd = Crowd::open(subject.address(), &subject.subscribe(channel), count)?;
        let mut crowd = crowd.publishers(subject.address(), 1)?;
        let request = subject.publish(channel, bytes);
        warm_up(&mut crowd, &request)?;
        Ok(Show { subject, crowd, request, samples: Vec::new() })
    }

    fn round(&mut self, duration: Duration) -> Result<()> {
        // Bytes that arrived while others were measured (comments, pings) do not belong to this
        // round.
        self.crowd.turn(Duration::ZERO)?;
        self.crowd.figures = Figures::default();
        let (began, before) = (Instant::now(), self.subject.service.cpu()?);
        while began.elapsed() < duration {
            self.crowd.publish(&self.request)?;
            self.crowd.catch_up(DELIVERY_LIMIT)?;
        }
        let (elapsed, cpu) = (began.elapsed(), self.subject.service.cpu()?.saturating_sub(before));
        self.samples.push(sample(&self.crowd.figures, elapsed, cpu));
        Ok(())
    }
}

pub fn sample(figures: &Figures, elapsed: Duration, cpu: Duration) -> Sample {
    let count = figures.latency.count().max(1) as f64;
    Sample {
        per_second: count / elapsed.as_secs_f64(),
        p50_us: figures.latency.micros(0.5),
        p99_us: figures.latency.micros(0.99),
        cpu_us: cpu.as_secs_f64() * 1e6 / count,
    }
}
