//! The cost and latency of a request through each proxy: plain, over TLS, over HTTP/2, with large
//! bodies, and from the cache. The proxies stay up and are measured in turn, round by round.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http::{Client, header};
use crate::report::{Bar, Pairs, Report, Sample};

use super::Bench;
use super::backend::{self, BODY_BYTES, CACHED};
use super::client::{Ask, Protocol};
use super::load::Load;
use super::subject::{Certificate, Kind, Setup, Subject, installed};

const LANES: usize = 64;
const LARGE_BYTES: usize = 256 << 10;
/// Large responses: as many lanes would be limited by the client.
const LARGE_LANES: usize = 16;
/// The rate of the latency measurement, of what nginx serves in a closed loop: busy, without the
/// queues of a saturated core.
const RATE_PART: f64 = 0.4;
/// A p99 counts as worse from 10 % above nginx's: two runs of one proxy differ by as much.
const P99_LIMIT: f64 = 1.1;

/// Misses of all proxies together in the measured runs. They may last longer than the response is
/// fresh, and HAProxy then sends a request for each lane.
const MAX_MISSES: u64 = 4 * LANES as u64;

struct Scenario {
    name: &'static str,
    protocol: Protocol,
    ask: Rc<Ask>,
    lanes: usize,
    /// The bar for the CPU time, as a multiple of nginx's.
    cpu_limit: f64,
    cached: bool,
}

fn scenario(name: &str) -> Scenario {
    let ask = |path, authorized, body_bytes| Rc::new(Ask { path, authorized, body_bytes });
    let plain = Scenario {
        name: "get 1 KB",
        protocol: Protocol::Http1,
        ask: ask("/v1/books/book_1", true, BODY_BYTES),
        lanes: LANES,
        cpu_limit: 1.0,
        cached: false,
    };
    match name {
        "tls" => Scenario { name: "TLS get 1 KB", protocol: Protocol::Http1Tls, ..plain },
        "h2" => Scenario { name: "TLS h2 get 1 KB", protocol: Protocol::Http2Tls, ..plain },
        "large" => {
            let ask = ask("/v1/books?all", true, LARGE_BYTES);
            Scenario { name: "get 256 KB", ask, lanes: LARGE_LANES, cpu_limit: 0.7, ..plain }
        }
        "cached" => {
            let ask = ask(CACHED, false, BODY_BYTES);
            Scenario { name: "cached 1 KB", ask, cached: true, ..plain }
        }
        _ => plain,
    }
}

/// Samples of one proxy, by round.
#[derive(Default)]
struct Rounds {
    closed: Vec<Sample>,
    paced: Vec<Sample>,
}

pub fn run(bench: &mut Bench, name: &str) -> Result<()> {
    let scenario = scenario(name);
    println!("==> {name}: {} bytes, {} in flight", scenario.ask.body_bytes, scenario.lanes);
    installed(&["nginx", "haproxy"])?;
    let (book, list) = (BODY_BYTES.to_string(), LARGE_BYTES.to_string());
    let backend = match scenario.cached {
        true => bench.bare_backend(&["bare-backend"])?,
        false => {
            bench.bare_backend(&["bare-http", "--book-bytes", &book, "--list-bytes", &list])?
        }
    };
    let secure = scenario.protocol != Protocol::Http1;
    let certificate = secure.then(Certificate::make).transpose()?;
    let setup = Setup {
        pinning: bench.pinning,
        server: &bench.server,
        backend: &backend.address,
        certificate: certificate.as_ref(),
        cache: scenario.cached,
        connections: 1_000,
    };
    let subjects = Kind::ALL.into_iter().map(|kind| setup.start(kind));
    let subjects: Vec<Subject> = subjects.collect::<Result<_>>()?;
    if scenario.cached {
        for subject in &subjects {
            stores(subject, &scenario.ask, &backend.address)?;
        }
    }
    let (rounds, duration) = match bench.quick {
        true => (3, Duration::from_millis(300)),
        false => (5, Duration::from_secs(1)),
    };
    let asked = if scenario.cached { backend::count(&backend.address)? } else { 0 };
    let (results, rate) = measure(&scenario, &subjects, certificate.as_ref(), rounds, duration)?;
    if scenario.cached {
        let misses = backend::count(&backend.address)? - asked;
        ensure!(misses <= MAX_MISSES, "{misses} of the measured requests reached the backend");
    }
    report(&mut bench.report, &scenario, &results, rate);
    Ok(())
}

/// The second request must be answered from the cache.
fn stores(subject: &Subject, ask: &Ask, backend: &str) -> Result<()> {
    let mut client = Client::connect(&subject.service.address)?;
    client.expect(200, &ask.http1())?;
    let before = backend::count(backend)?;
    let second = client.expect(200, &ask.http1())?;
    let asked = backend::count(backend)? - before;
    let status = header(&second.head, b"cache-status");
    let name = subject.kind.name();
    ensure!(asked == 0, "{name} has no cache hit: its second response came from the backend");
    let hit = status.is_some_and(|status| status.contains("hit"));
    ensure!(
        hit || subject.kind != Kind::Restive,
        "restive served from its cache without `Cache-Status: …; hit`, but with {status:?}"
    );
    Ok(())
}

/// Each round measures every proxy once; the order changes from round to round. Also returns the
/// rate of the paced loads.
fn measure(
    scenario: &Scenario,
    subjects: &[Subject],
    certificate: Option<&Certificate>,
    rounds: usize,
    duration: Duration,
) -> Result<(Vec<Rounds>, f64)> {
    let loads: Vec<Load<'_>> = subjects
        .iter()
        .map(|subject| Load {
            service: &subject.service,
            protocol: scenario.protocol,
            trust: certificate.map(|certificate| &certificate.trust),
            lanes: scenario.lanes,
            ask: scenario.ask.clone(),
            duration,
        })
        .collect();
    let nginx = subjects.iter().position(|subject| subject.kind == Kind::Nginx);
    let full = loads[nginx.context("nginx is not among the proxies")?].closed().context("nginx")?;
    let rate = (full.per_second * RATE_PART / 100.0).round().max(1.0) * 100.0;
    let mut results: Vec<Rounds> = subjects.iter().map(|_| Rounds::default()).collect();
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            let place = (round + turn) % subjects.len();
            let name = subjects[place].kind.name();
            results[place].closed.push(loads[place].closed().context(name)?);
            results[place].paced.push(loads[place].paced(rate).context(name)?);
        }
    }
    Ok((results, rate))
}

/// `results` in the order of [`Kind::ALL`].
fn report(report: &mut Report, scenario: &Scenario, results: &[Rounds], rate: f64) {
    let limits = &results[0];
    let full = format!("{}, closed loop", scenario.name);
    for (kind, rounds) in Kind::ALL.into_iter().zip(results) {
        let pairs = Pairs { limits: limits.closed.clone(), ours: rounds.closed.clone() };
        let ratio = pairs.ratio(|sample| sample.cpu_us);
        let bar = Bar::at_most("CPU ratio", ratio.middle, scenario.cpu_limit, "× nginx");
        let bar = (kind == Kind::Restive).then(|| bar.between(&ratio));
        report.sample(&full, kind.name(), Sample::median(&rounds.closed), bar);
    }
    let paced = format!("{}, {rate:.0}/s", scenario.name);
    for (kind, rounds) in Kind::ALL.into_iter().zip(results) {
        let pairs = Pairs { limits: limits.paced.clone(), ours: rounds.paced.clone() };
        let ratio = pairs.ratio(|sample| sample.p99_us);
        let bar = Bar::at_most("p99 ratio", ratio.middle, P99_LIMIT, "× nginx");
        let bar = (kind == Kind::Restive).then(|| bar.between(&ratio));
        report.sample(&paced, kind.name(), Sample::median(&rounds.paced), bar);
    }
}
