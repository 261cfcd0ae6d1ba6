//! Size: a million books, created through the API. Deep pages must cost as much as the first,
//! memory must stay bounded, and a restart must not read everything.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::http::Client;
use crate::process::Service;
use crate::report::{Bar, Sample};

use super::Bench;
use super::books::in_turn;

const BOOKS: u64 = 1_000_000;
const QUICK_BOOKS: u64 = 50_000;
/// Rows per page of the walk: the largest page.
const STRIDE: usize = 100;
/// Positions measured around the middle and before the end.
const PLACES: usize = 64;
const CONNECTIONS: usize = 16;
const MIB: f64 = 1024.0 * 1024.0;

/// Cursors into the list, found by walking from its first page to its last.
struct Places {
    middle: Vec<String>,
    end: Vec<String>,
    rows: u64,
}

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let books = if bench.stage.options.quick { QUICK_BOOKS } else { BOOKS };
    println!("==> million: {books} books");
    let data = bench.stage.folder("million")?;
    let service = bench.restive(&data)?;
    bench.requests.fill(&service.address, books)?;
    println!("    walking all pages of {STRIDE}");
    let places = walk(bench, &service, books)?;
    ensure!(places.rows == books, "the pages hold {} rows of {books}", places.rows);
    depths(bench, &service, &places)?;
    let (resident, peak) = service.memory()?;
    let bar = Bar::at_most("resident", resident as f64 / MIB, 200.0, "MiB");
    bench.stage.report.bar("million", bar);
    bench.stage.report.note(format!(
        "million: {books} books created through the API; a walk over all pages found each; \
         resident memory peaked at {:.0} MiB",
        peak as f64 / MIB
    ));
    service.stop().context("stop before the restart")?;
    let service = bench.restive(&data)?;
    let seconds = service.started_in.as_secs_f64();
    bench.stage.report.bar("million", Bar::at_most("restart", seconds, 2.0, "s"));
    // The server must respond, not only listen.
    Client::connect(&service.address)?.expect(200, &bench.requests.page(20, None))?;
    service.stop()
}

fn walk(bench: &Bench<'_>, service: &Service, books: u64) -> Result<Places> {
    let mut client = Client::connect(&service.address)?;
    let half = (PLACES * STRIDE / 2) as u64;
    let around_middle = (books / 2).saturating_sub(half)..books / 2 + half;
    let mut middle = Vec::new();
    let mut end = VecDeque::new();
    let mut rows = 0;
    let mut cursor: Option<String> = None;
    loop {
        let page = bench.requests.read_page(&mut client, STRIDE, cursor.as_deref())?;
        rows += page.rows as u64;
        let Some(next) = page.next_cursor else { break };
        ensure!(rows <= books, "the pages do not end");
        if around_middle.contains(&rows) {
            middle.push(next.clone());
        }
        end.push_back(next.clone());
        if end.len() > PLACES {
            end.pop_front();
        }
        cursor = Some(next);
    }
    ensure!(!middle.is_empty() && !end.is_empty(), "the walk met no place to measure");
    Ok(Places { middle, end: end.into(), rows })
}

fn depths(bench: &mut Bench<'_>, service: &Service, places: &Places) -> Result<()> {
    let page = |cursor: &String| bench.requests.page(20, Some(cursor));
    let subjects: [(&str, Arc<[Vec<u8>]>); 3] = [
        ("first page", Arc::new([bench.requests.page(20, None)])),
        ("middle pages", places.middle.iter().map(page).collect()),
        ("last pages", places.end.iter().map(page).collect()),
    ];
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for _ in 0..bench.stage.rounds() {
        for ((_, requests), samples) in subjects.iter().zip(&mut samples) {
            let source = in_turn(Arc::clone(requests));
            samples.push(bench.measure(service, CONNECTIONS, 200, &source)?);
        }
    }
    let medians = samples.map(|rounds| Sample::median(&rounds));
    for ((name, _), median) in subjects.iter().zip(medians) {
        let cpu = median.cpu_us / medians[0].cpu_us;
        let latency = median.p50_us / medians[0].p50_us;
        // The worse of the two ratios counts.
        let bar = Bar::at_most("CPU and p50 ratio", cpu.max(latency), 1.5, "× first page");
        bench.stage.report.sample("million", name, median, (*name != "first page").then_some(bar));
    }
    Ok(())
}
