//! One publisher, thousands of subscribers: how many messages arrive in a second and in a second of
//! the server's CPU time. The next message is published when everyone has the last one, so nothing
//! can be joined: each delivery is a write of its own, in all three servers.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::{Bar, Sample};

use super::crowd::{Crowd, Figures};
use super::subject::{Channel, Subject};
use super::{Bench, DELIVERY_LIMIT, frame_bytes, warm_up};

const SUBSCRIBERS: usize = 5_000;
const QUICK_SUBSCRIBERS: usize = 1_000;
const ROUND: Duration = Duration::from_secs(4);
const QUICK_ROUND: Duration = Duration::from_secs(1);

/// A server and everyone who listens to it.
struct Show {
    subject: Subject,
    crowd: Crowd,
    request: Vec<u8>,
    samples: Vec<Sample>,
}

pub fn run(bench: &mut Bench<'_>, name: &str, channel: Channel) -> Result<()> {
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
    for _ in 0..bench.stage.rounds() {
        for show in &mut shows {
            show.round(round)?;
        }
    }
    let report = &mut bench.stage.report;
    let medians: Vec<Sample> = shows.iter().map(|show| Sample::median(&show.samples)).collect();
    for (show, sample) in shows.iter().zip(&medians) {
        show.crowd.check()?;
        report.sample(name, show.subject.name(), *sample, None);
    }
    let [bare, nchan, ours] = medians[..] else { return Ok(()) };
    let rate = |other: Sample| ours.per_second / other.per_second;
    let thrift = |other: Sample| other.cpu_us / ours.cpu_us;
    report.bar(name, Bar::at_least("delivered a second", rate(nchan), 1.3, "× nchan"));
    report.bar(name, Bar::at_least("delivered a CPU-second", thrift(nchan), 1.3, "× nchan"));
    report.bar(name, Bar::at_least("delivered a second", rate(bare), 0.8, "× bare"));
    report.bar(name, Bar::at_least("delivered a CPU-second", thrift(bare), 0.8, "× bare"));
    report.bar(name, Bar::at_most("p99", ours.p99_us / nchan.p99_us, 1.0, "× nchan"));
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
        // Whatever came while others were measured (comments, pings) is not of this round.
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
