//! The load on one proxy: lanes that send their next request as soon as the last response is
//! there (closed loop, for the cost of a request), or at a given rate (for latencies that can be
//! compared: a closed loop would load the faster proxy more).

use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinHandle, spawn_local};

use crate::histogram::Histogram;
use crate::process::Service;
use crate::report::Sample;

use super::client::{Ask, Lane, Protocol, Trust};

/// Time for connections and the last responses before a run counts as hung.
const GRACE: Duration = Duration::from_secs(20);
/// Before each measured run: connections to the backend, caches and branch predictors.
const WARM_UP: Duration = Duration::from_millis(200);
/// How often due requests are released. The runtime's own timers have steps of 1 ms, which would
/// release them in large bursts.
const TICK: Duration = Duration::from_micros(200);

pub struct Load<'a> {
    pub service: &'a Service,
    pub protocol: Protocol,
    pub trust: Option<&'a Trust>,
    pub lanes: usize,
    pub ask: Rc<Ask>,
    pub duration: Duration,
}

impl Load<'_> {
    pub fn closed(&self) -> Result<Sample> {
        self.run(|lane, encoded, until| closed_lane(lane, self.ask.clone(), encoded, until))
    }

    /// The same load at `rate` requests a second, spread evenly over the lanes.
    pub fn paced(&self, rate: f64) -> Result<Sample> {
        let (mut senders, mut pacer) = (Vec::new(), None);
        self.run(|lane, encoded, until| {
            let (sender, due) = mpsc::unbounded_channel();
            senders.push(sender);
            if senders.len() == self.lanes {
                let senders = std::mem::take(&mut senders);
                pacer = Some(std::thread::spawn(move || pace(&senders, rate, until)));
            }
            paced_lane(lane, self.ask.clone(), encoded, due)
        })
    }

    /// Connects, warms up, and measures the lanes' work and the CPU time of the proxy.
    fn run<F: Future<Output = Result<Histogram>> + 'static>(
        &self,
        mut lane: impl FnMut(Lane, Rc<[u8]>, Instant) -> F,
    ) -> Result<Sample> {
        let limit = self.duration + GRACE;
        in_runtime(limit, async {
            let encoded: Rc<[u8]> = self.ask.http1().into();
            let address = &self.service.address;
            let mut lanes = Vec::new();
            for open in Lane::open(address, self.protocol, self.trust, self.lanes).await? {
                let until = Instant::now() + WARM_UP;
                lanes.push(spawn_local(warm_up(open, self.ask.clone(), encoded.clone(), until)));
            }
            let lanes = joined(lanes).await?;
            let before = self.service.thread_times()?;
            let began = Instant::now();
            let until = began + self.duration;
            let tasks =
                lanes.into_iter().map(|open| spawn_local(lane(open, encoded.clone(), until)));
            let mut latency = Histogram::default();
            for one in joined(tasks.collect()).await? {
                latency.merge(&one);
            }
            let elapsed = began.elapsed();
            let cpu = self.service.thread_times()?.since(&before);
            let count = latency.count().max(1) as f64;
            Ok(Sample {
                per_second: count / elapsed.as_secs_f64(),
                p50_us: latency.micros(0.5),
                p99_us: latency.micros(0.99),
                cpu_us: cpu.as_secs_f64() * 1e6 / count,
            })
        })
    }
}

/// Runs on a single-threaded runtime; an error if it takes longer than the limit.
pub fn in_runtime<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let options = LocalOptions::default();
    let runtime = Builder::new_current_thread().enable_all().build_local(options)?;
    runtime.block_on(async {
        tokio::time::timeout(limit, work).await.context("the load did not end in time")?
    })
}

async fn joined<T>(tasks: Vec<JoinHandle<Result<T>>>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.context("a lane's task panicked")??);
    }
    Ok(results)
}

async fn warm_up(mut lane: Lane, ask: Rc<Ask>, encoded: Rc<[u8]>, until: Instant) -> Result<Lane> {
    while Instant::now() < until {
        lane.ask(&ask, &encoded).await?;
    }
    Ok(lane)
}

async fn closed_lane(
    mut lane: Lane,
    ask: Rc<Ask>,
    encoded: Rc<[u8]>,
    until: Instant,
) -> Result<Histogram> {
    let mut latency = Histogram::default();
    loop {
        let began = Instant::now();
        if began >= until {
            return Ok(latency);
        }
        lane.ask(&ask, &encoded).await?;
        latency.record(began.elapsed());
    }
}

/// Latency counts from the time at which the request was released, so a response that delays the
/// next request of its lane counts for both.
async fn paced_lane(
    mut lane: Lane,
    ask: Rc<Ask>,
    encoded: Rc<[u8]>,
    mut due: UnboundedReceiver<Instant>,
) -> Result<Histogram> {
    let mut latency = Histogram::default();
    while let Some(released) = due.recv().await {
        lane.ask(&ask, &encoded).await?;
        latency.record(released.elapsed());
    }
    Ok(latency)
}

/// Releases requests to one lane after the other until the end, in a thread of its own.
fn pace(lanes: &[UnboundedSender<Instant>], rate: f64, until: Instant) {
    let began = Instant::now();
    let mut released = 0;
    loop {
        // waits for: the next tick
        std::thread::sleep(TICK);
        let now = Instant::now();
        if now >= until {
            return;
        }
        let due = (now.duration_since(began).as_secs_f64() * rate) as usize;
        while released < due {
            // A lane that failed reports its error itself.
            let _ = lanes[released % lanes.len()].send(now);
            released += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_load_releases_its_rate_evenly_over_all_lanes() {
        let (first, mut first_due) = mpsc::unbounded_channel();
        let (second, mut second_due) = mpsc::unbounded_channel();
        pace(&[first, second], 1_000.0, Instant::now() + Duration::from_millis(300));
        let count = |due: &mut UnboundedReceiver<Instant>| {
            std::iter::from_fn(|| due.try_recv().ok()).count()
        };
        let (first, second) = (count(&mut first_due), count(&mut second_due));
        assert!(first == second || first == second + 1, "{first} and {second}");
        assert!((100..=300).contains(&(first + second)), "{first} and {second}");
    }
}
