//! Readers that read nothing while the log grows: the cost of each to the server. Two equal periods
//! of publishing on one server, the second one with the stalled readers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use socket2::{Domain, Socket, Type};

use crate::report::Bar;

use super::crowd::Crowd;
use super::subject::{Channel, Subject};
use super::{Bench, DELIVERY_LIMIT, LOG_READS, figure};

const READERS: usize = 100;
const STRETCH: Duration = Duration::from_secs(60);
const QUICK_STRETCH: Duration = Duration::from_secs(10);
const LAG: &str = "restive_live_lag_events";
/// The server looks at a stalled reader only periodically, every 25 s.
const MAX_READS: f64 = 4.0;
/// A reader this many events behind counts as stalled.
const BEHIND: u64 = 500;
const FILL_LIMIT: Duration = Duration::from_secs(120);
const PER_SECOND: u32 = 1_000;
/// Messages published together, in one commit if possible.
const BURST: u32 = 10;
/// The smallest buffer that the system grants: bytes in sockets are not measured.
const RECEIVE_BYTES: usize = 4096;

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let stretch = if bench.stage.options.quick { QUICK_STRETCH } else { STRETCH };
    println!("==> stalled: {READERS} readers, {PER_SECOND} messages a second, {stretch:?}");
    let subject = bench.restive("stalled")?;
    // One normal reader for comparison: it must not be slowed down.
    let crowd = Crowd::open(subject.address(), &subject.subscribe(Channel::Sse), 1)?;
    let mut crowd = crowd.publishers(subject.address(), BURST as usize)?;
    let without = publish(&subject, &mut crowd, stretch)?;
    let stalled = (0..READERS).map(|_| stall(&subject)).collect::<Result<Vec<_>>>()?;
    // The system buffers some megabytes for each before the server notices the stall.
    let began = Instant::now();
    while figure(&subject, LAG)? < BEHIND {
        publish(&subject, &mut crowd, Duration::from_secs(1))?;
        ensure!(began.elapsed() < FILL_LIMIT, "nobody is stalled after {FILL_LIMIT:?}");
    }
    let reads = figure(&subject, LOG_READS)?;
    let with = publish(&subject, &mut crowd, stretch)?;
    crowd.check()?;
    let reads = (figure(&subject, LOG_READS)? - reads) as f64 / READERS as f64;
    let open = figure(&subject, "restive_live_connections{channel=\"sse\"}")?;
    ensure!(open == READERS as u64 + 1, "{open} streams are open");
    let lag = figure(&subject, LAG)?;
    let each = (with as f64 - without as f64) / 1024.0 / READERS as f64;
    let report = &mut bench.stage.report;
    report.bar("stalled", Bar::shown("resident without", without as f64 / 1_048_576.0, "MiB"));
    report.bar("stalled", Bar::at_most("memory of a stalled reader", each, 64.0, "KiB"));
    report.bar("stalled", Bar::at_most("reads of the log for each", reads, MAX_READS, ""));
    report.bar("stalled", Bar::shown("behind at the end", lag as f64, "events"));
    drop((stalled, crowd));
    subject.service.stop()
}

/// Publishes for a while; returns the resident memory at the end.
fn publish(subject: &Subject, crowd: &mut Crowd, stretch: Duration) -> Result<u64> {
    let request = subject.publish(Channel::Sse, 0);
    let began = Instant::now();
    let bursts = u32::try_from(stretch.as_millis())? * PER_SECOND / 1_000 / BURST;
    let mut late = 0;
    for number in 0..bursts {
        let due = began + Duration::from_secs(1) * BURST / PER_SECOND * number;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            crowd.turn(left)?;
        }
        for _ in 0..BURST {
            while !crowd.publish(&request)? {
                late += 1;
                crowd.turn(Duration::from_millis(10))?;
            }
        }
    }
    crowd.catch_up(DELIVERY_LIMIT)?;
    let rate = f64::from(bursts * BURST) / began.elapsed().as_secs_f64();
    if stretch >= QUICK_STRETCH {
        println!("    {rate:.0} messages a second, {late} waits for an answer");
        ensure!(rate > f64::from(PER_SECOND) * 0.9, "only {rate:.0} messages a second");
    }
    Ok(subject.service.memory()?.0)
}

/// A subscriber that never reads.
fn stall(subject: &Subject) -> Result<Socket> {
    let address: std::net::SocketAddr = subject.address().parse()?;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    socket.connect(&address.into()).context("cannot connect")?;
    socket.send(&subject.subscribe(Channel::Sse))?;
    Ok(socket)
}
