//! Reading: one book, a list of 20, an unchanged list, each compared with the bare HTTP server; and
//! one book while others write at full speed.

use std::sync::Arc;

use anyhow::{Context, Result};

use crate::http::Client;
use crate::load::{Load, Source};
use crate::measure::WARM_UP;
use crate::process::Service;
use crate::report::{Bar, Sample};

use super::Bench;
use super::books::in_turn;

/// Books to read: too many for the CPU's first cache, few enough to be warm.
pub const BOOKS: u64 = 1_000;
pub const CONNECTIONS: usize = 64;
const WRITERS: usize = 64;
/// Few enough that waiting in the generator is not measured.
const PROBES: usize = 4;

type Requests = Arc<[Vec<u8>]>;

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    if !["get", "list", "list-304"].iter().any(|name| bench.stage.wants(name)) {
        return Ok(());
    }
    println!("==> reads: {BOOKS} books, {CONNECTIONS} connections");
    let data = bench.stage.folder("reads")?;
    let service = bench.restive(&data)?;
    bench.requests.fill(&service.address, BOOKS)?;
    let mut client = Client::connect(&service.address)?;
    let books = book_requests(bench, &mut client)?;
    let list: Requests = Arc::new([bench.requests.page(20, None)]);
    let etag = bench.requests.list_etag(&mut client, 20)?;
    let unchanged = bench.requests.get_if_none_match("/v1/books?limit=20", &etag);
    let book_bytes = client.expect(200, &books[0])?.body.len();
    let list_bytes = client.expect(200, &list[0])?.body.len();
    bench
        .stage
        .report
        .note(format!("bare hyper answers pages of {book_bytes} and {list_bytes} bytes"));
    drop(client);
    let bare = bench.bare_http(book_bytes, list_bytes)?;
    for (name, expect, requests, limit) in [
        ("get", 200, books, Some(2.0)),
        ("list", 200, list, Some(4.0)),
        ("list-304", 304, Arc::new([unchanged]) as Requests, None),
    ] {
        if bench.stage.wants(name) {
            compare(bench, [&bare, &service], name, expect, requests, limit)?;
        }
    }
    service.stop()
}

/// Both subjects alternate, round by round; the bar applies to CPU per request.
fn compare(
    bench: &mut Bench<'_>,
    [bare, service]: [&Service; 2],
    name: &str,
    expect: u16,
    requests: Requests,
    limit: Option<f64>,
) -> Result<()> {
    println!("==> {name}");
    let source = in_turn(requests);
    let (mut limits, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.stage.rounds() {
        limits.push(bench.measure(bare, CONNECTIONS, expect, &source)?);
        ours.push(bench.measure(service, CONNECTIONS, expect, &source)?);
    }
    let (bare, ours) = (Sample::median(&limits), Sample::median(&ours));
    let ratio = ours.cpu_us / bare.cpu_us;
    bench.stage.report.sample(name, "bare hyper", bare, None);
    let bar = match limit {
        Some(limit) => Bar::at_most("CPU ratio", ratio, limit, "× bare"),
        None => Bar::shown("CPU ratio", ratio, "× bare"),
    };
    bench.stage.report.sample(name, "restive", ours, Some(bar));
    Ok(())
}

/// GET one by few connections, first alone, then while 64 connections create books.
pub fn under_writes(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> get-under-writes: {PROBES} readers, {WRITERS} writers");
    let data = bench.stage.folder("mixed")?;
    let service = bench.restive(&data)?;
    bench.requests.fill(&service.address, BOOKS)?;
    let mut client = Client::connect(&service.address)?;
    let source = in_turn(book_requests(bench, &mut client)?);
    drop(client);
    let (mut idle, mut loaded, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.stage.rounds() {
        idle.push(bench.measure(&service, PROBES, 200, &source)?);
        let (sample, rate) = while_writing(bench, &service, &source)?;
        loaded.push(sample);
        rates.push(rate);
    }
    let (idle, loaded) = (Sample::median(&idle), Sample::median(&loaded));
    let ratio = loaded.p99_us / idle.p99_us;
    bench.stage.report.sample("get, nobody writes", "restive", idle, None);
    let bar = Bar::at_most("p99 ratio", ratio, 3.0, "× idle");
    bench.stage.report.sample("get, 64 write", "restive", loaded, Some(bar));
    let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    bench.stage.report.note(format!(
        "get-under-writes: {PROBES} connections read in a closed loop; meanwhile {WRITERS} others, \
         in a thread of their own on the load's core, created {} books a second; CPU µs of that \
         row includes the writes",
        rates.join(", ")
    ));
    service.stop()
}

/// The sample of the readers and the rate of the writers.
fn while_writing(
    bench: &Bench<'_>,
    service: &Service,
    source: &dyn Fn(usize) -> Source,
) -> Result<(Sample, f64)> {
    let address = service.address.as_str();
    // The writers start before the warm-up of the readers and stop after their end.
    let duration = bench.duration() + WARM_UP * 3;
    let (count, label) = (None, None);
    let writers = Load { address, connections: WRITERS, expect: 201, duration, count, label };
    let requests = bench.requests.clone();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writers.run(&|_| requests.creates()));
        let sample = bench.measure(service, PROBES, 200, source);
        let written = writing.join().map_err(|_| anyhow::anyhow!("the writers broke"))?;
        Ok((sample?, written.context("the writers")?.per_second()))
    })
}

fn book_requests(bench: &Bench<'_>, client: &mut Client) -> Result<Requests> {
    let ids = bench.requests.ids(client, usize::try_from(BOOKS)?)?;
    anyhow::ensure!(ids.len() as u64 == BOOKS, "{} of {BOOKS} books are listed", ids.len());
    Ok(ids.iter().map(|id| bench.requests.get(&format!("/v1/books/{id}"))).collect())
}
