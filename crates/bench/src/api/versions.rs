//! What date versions cost: one book, read from a service that never changed, from one with twenty
//! changes behind it, and from that in its oldest version.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::count::{self, Counted};
use crate::http::Client;
use crate::measure::measure_shortly;
use crate::process::Service;
use crate::report::{Bar, Sample, Spread};

use super::Bench;
use super::books;
use super::reads::{BOOKS, CONNECTIONS};

/// Both services keep the same books.
const BOOKS_NOW: &str = r#"
[collections.books.fields]
title = { type = "string", required = true }
author = "string"
price = "number"
isbn = "string"
"#;

/// What each version changed, newest first: every field of a book more than once.
const CHANGES: [&str; 20] = [
    r#"rename = { from = "name", to = "title" }"#,
    r#"retype = { field = "price", from = { type = "integer" }, factor = 0.01 }"#,
    r#"rename = { from = "writer", to = "author" }"#,
    r#"removed = { field = { name = "shelf", type = "string" }, value = "a" }"#,
    r#"rename = { from = "code", to = "isbn" }"#,
    r#"merge = { from = [{ name = "first", type = "string", pattern = "^[^ ]*$", required = true },
       { name = "last", type = "string" }], to = "writer", by = " " }"#,
    r#"rename = { from = "heading", to = "name" }"#,
    r#"removed = { field = { name = "stock", type = "integer" }, value = 0 }"#,
    r#"rename = { from = "cost", to = "price" }"#,
    r#"rename = { from = "surname", to = "last" }"#,
    r#"rename = { from = "label", to = "heading" }"#,
    r#"removed = { field = { name = "rating", type = "number" }, value = 4.5 }"#,
    r#"optional = { field = "code", fill = "none" }"#,
    r#"rename = { from = "forename", to = "first" }"#,
    r#"rename = { from = "caption", to = "label" }"#,
    r#"removed = { field = { name = "used", type = "boolean" }, value = false }"#,
    r#"rename = { from = "number", to = "code" }"#,
    r#"rename = { from = "amount", to = "cost" }"#,
    r#"rename = { from = "words", to = "caption" }"#,
    r#"rename = { from = "family", to = "surname" }"#,
];

/// What is compared, in this order everywhere.
const SUBJECTS: [&str; 3] = ["no versions", "newest of 21", "20 changes old"];

/// One measured turn. A machine that is not ours alone changes its speed within seconds, so turns
/// are short and many.
const TURN: Duration = Duration::from_millis(100);

/// Under callgrind: so few books that they are soon made, read so often that what the server does
/// by the clock, between requests, does not show.
const COUNTED_BOOKS: u64 = 100;
const COUNTED_WARM_UP: usize = 500;
const COUNTED_READS: usize = 4_000;

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    time(bench).context("CPU time")?;
    count(bench).context("instructions")
}

/// CPU time per request. Hundreds of turns of the same two services gave 0.98 after one start and
/// 1.03 after another, so each round starts its services anew: its figure is the median of its
/// turns, and the result is the median of the rounds. Of eight full runs of one executable beside
/// other work seven gave 0.989 to 1.015 and one 1.032, where instructions gave 1.00 each time. So
/// for the newest version CPU time is shown, and instructions are judged.
fn time(bench: &mut Bench<'_>) -> Result<()> {
    let (rounds, turns) = if bench.stage.options.quick { (3, 9) } else { (9, 36) };
    println!("==> versions: {BOOKS} books, {CONNECTIONS} connections, {rounds} × {turns} turns");
    let mut samples: [Vec<Sample>; 3] = Default::default();
    let (mut unchanged, mut aged) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let round = time_round(bench, turns)?;
        unchanged.push(ratio(&round, 1, 0));
        aged.push(ratio(&round, 2, 1));
        for (all, round) in samples.iter_mut().zip(round) {
            all.extend(round);
        }
    }
    let (unchanged, aged) = (Spread::of(unchanged), Spread::of(aged));
    let bars = [
        None,
        Some(Bar::shown("CPU ratio", unchanged.middle, "× no versions").between(&unchanged)),
        Some(Bar::at_most("CPU ratio", aged.middle, 2.0, "× the newest").between(&aged)),
    ];
    for ((subject, samples), bar) in SUBJECTS.iter().zip(&samples).zip(bars) {
        bench.stage.report.sample("get, versions", subject, Sample::median(samples), bar);
    }
    bench.stage.report.note(format!(
        "versions: a CPU ratio is the median of {rounds} rounds with the least and the most of \
         them, a round the median of {turns} turns of {TURN:?} on services of its own; it is no \
         judge of 2 %, instructions are"
    ));
    Ok(())
}

/// Every subject in turn, on services of this round.
fn time_round(bench: &Bench<'_>, turns: usize) -> Result<[Vec<Sample>; 3]> {
    let start = |name, schema: &str| {
        let (data, schema) = folder(bench, name, schema)?;
        bench.stage.restive(&data, Some(&schema))
    };
    let plain = start("plain", BOOKS_NOW)?;
    let versioned = start("versioned", &with_past())?;
    let plain_ids = fill(bench, &plain, BOOKS)?;
    let ids = fill(bench, &versioned, BOOKS)?;
    let subjects = [
        (&plain, newest(bench, &plain, &plain_ids)?),
        (&versioned, newest(bench, &versioned, &ids)?),
        (&versioned, oldest(bench, &versioned, &ids)?),
    ];
    let sources = subjects.map(|(service, requests)| (service, books::in_turn(requests)));
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for turn in 0..turns {
        for place in 0..sources.len() {
            // Another one begins each time, so that none is always the first or the last.
            let place = (place + turn) % sources.len();
            let (service, source) = &sources[place];
            samples[place].push(measure_shortly(service, CONNECTIONS, 200, TURN, source)?);
        }
    }
    drop(sources);
    plain.stop()?;
    versioned.stop()?;
    Ok(samples)
}

/// The median of the turns' own ratios.
fn ratio(samples: &[Vec<Sample>; 3], ours: usize, limit: usize) -> f64 {
    let turns = samples[ours].iter().zip(&samples[limit]);
    Spread::of(turns.map(|(ours, limit)| ours.cpu_us / limit.cpu_us).collect()).middle
}

/// Instructions of one request, outside the kernel. They repeat to a fraction of a percent, so they
/// can tell 2 % from nothing.
fn count(bench: &mut Bench<'_>) -> Result<()> {
    if !count::available() {
        bench.stage.report.note(
            "versions: instructions were NOT counted, for valgrind is missing: nothing in this \
             run judges what the newest version costs over no versions (≤ 1.02)",
        );
        return Ok(());
    }
    let rounds = if bench.stage.options.quick { 1 } else { 3 };
    println!("==> versions: instructions of {COUNTED_READS} requests, {rounds} times");
    let mut counts: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for (all, count) in counts.iter_mut().zip(count_round(bench)?) {
            all.push(count);
        }
    }
    let ratios = |ours: usize, limit: usize| {
        let rounds = counts[ours].iter().zip(&counts[limit]);
        Spread::of(rounds.map(|(ours, limit)| ours / limit).collect())
    };
    let (unchanged, aged) = (ratios(1, 0), ratios(2, 1));
    let what = "instruction ratio";
    let bars = [
        None,
        Some(Bar::at_most(what, unchanged.middle, 1.02, "× no versions").between(&unchanged)),
        Some(Bar::at_most(what, aged.middle, 2.0, "× the newest").between(&aged)),
    ];
    let report = &mut bench.stage.report;
    for ((subject, counts), bar) in SUBJECTS.iter().zip(counts).zip(bars) {
        let counts = Spread::of(counts);
        let figure = Bar::shown("instructions", counts.middle, "a request").between(&counts);
        report.figure("get, versions, counted", subject, figure);
        if let Some(bar) = bar {
            report.figure("get, versions, counted", subject, bar);
        }
    }
    report.note(format!(
        "versions: instructions are those outside the kernel, by callgrind, of {COUNTED_READS} \
         requests over one warm connection; starts of each service: {rounds}"
    ));
    Ok(())
}

/// Each subject once, one service after the other.
fn count_round(bench: &Bench<'_>) -> Result<[f64; 3]> {
    let start = |name, schema: &str| {
        let (data, schema) = folder(bench, name, schema)?;
        bench.stage.restive_counted(&data, Some(&schema))
    };
    let mut plain = start("plain", BOOKS_NOW)?;
    let ids = fill(bench, &plain.service, COUNTED_BOOKS)?;
    let requests = newest(bench, &plain.service, &ids)?;
    let of_plain = count_reads(&mut plain, &requests)?;
    plain.stop()?;
    let mut versioned = start("versioned", &with_past())?;
    let ids = fill(bench, &versioned.service, COUNTED_BOOKS)?;
    let requests = newest(bench, &versioned.service, &ids)?;
    let of_newest = count_reads(&mut versioned, &requests)?;
    let requests = oldest(bench, &versioned.service, &ids)?;
    let of_oldest = count_reads(&mut versioned, &requests)?;
    versioned.stop()?;
    Ok([of_plain, of_newest, of_oldest])
}

fn count_reads(counted: &mut Counted, requests: &Requests) -> Result<f64> {
    let mut client = Client::connect(&counted.service.address)?;
    let mut read = |times| -> Result<()> {
        for request in requests.iter().cycle().take(times) {
            client.expect(200, request)?;
        }
        Ok(())
    };
    read(COUNTED_WARM_UP)?;
    let instructions = counted.instructions(|| read(COUNTED_READS))?;
    Ok(instructions as f64 / COUNTED_READS as f64)
}

type Requests = Arc<[Vec<u8>]>;

/// Where a service of this schema is to live.
fn folder(bench: &Bench<'_>, name: &str, schema: &str) -> Result<(PathBuf, PathBuf)> {
    let data = bench.stage.folder(name)?;
    let file = bench.stage.scratch.join(format!("{name}.toml"));
    std::fs::write(&file, schema)?;
    Ok((data, file))
}

/// That many books, and their ids. Every service gets the same ones: how long a title or a price is
/// shows in the figures.
fn fill(bench: &Bench<'_>, service: &Service, count: u64) -> Result<Vec<String>> {
    let requests = books::Requests::new(bench.stage.key.clone());
    requests.fill(&service.address, count)?;
    let mut client = Client::connect(&service.address)?;
    let ids = requests.ids(&mut client, usize::try_from(count)?)?;
    anyhow::ensure!(ids.len() as u64 == count, "{} of {count} books are listed", ids.len());
    Ok(ids)
}

fn newest(bench: &Bench<'_>, service: &Service, ids: &[String]) -> Result<Requests> {
    let get = |id| bench.requests.get(&format!("/v1/books/{id}"));
    showing("title", service, ids.iter().map(get).collect())
}

fn oldest(bench: &Bench<'_>, service: &Service, ids: &[String]) -> Result<Requests> {
    let date = date(CHANGES.len());
    let get = |id| bench.requests.get_in(&format!("/v1/books/{id}"), &date);
    showing("words", service, ids.iter().map(get).collect())
}

/// A comparison with an answer in another shape would prove nothing.
fn showing(member: &str, service: &Service, requests: Requests) -> Result<Requests> {
    let mut client = Client::connect(&service.address)?;
    let answer = client.expect(200, &requests[0])?;
    let book: serde_json::Value = serde_json::from_slice(&answer.body)?;
    anyhow::ensure!(book[member].is_string(), "not in the version that has `{member}`: {book}");
    Ok(requests)
}

/// The schema with all versions; the oldest changed nothing.
fn with_past() -> String {
    let mut text = String::new();
    for (place, change) in CHANGES.iter().enumerate() {
        let date = date(place);
        text.push_str(&format!(
            "[[versions]]\ndate = \"{date}\"\n[[versions.changes]]\ncollection = \"books\"\n\
             {change}\n"
        ));
    }
    text.push_str(&format!("[[versions]]\ndate = \"{}\"\n", date(CHANGES.len())));
    text + BOOKS_NOW
}

/// One a year.
fn date(place: usize) -> String {
    format!("{}-01-01", 2026 - place)
}
