//! The cost of date versions: one book, read from a service without a history, from one with twenty
//! changes, and from that in its oldest version; with and without the version header.

use std::collections::BTreeMap;
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

/// Both services store the same books.
const BOOKS_NOW: &str = r#"
[collections.books.fields]
title = { type = "string", required = true }
author = "string"
price = "number"
isbn = "string"
"#;

/// The changes of each version, newest first: every field of a book more than once.
const CHANGES: [&str; 20] = [
    r#"rename = { from = "name", to = "title" }"#,
    r#"convert = { field = "price", from = "integer", up = "double(value) / 100.0",
       down = "int(math.round(value * 100.0))", lossy = true }"#,
    r#"rename = { from = "writer", to = "author" }"#,
    r#"removed = { field = { name = "shelf", type = "string" }, value = "a" }"#,
    r#"rename = { from = "code", to = "isbn" }"#,
    r#"rename = { from = "first", to = "writer" }"#,
    r#"rename = { from = "heading", to = "name" }"#,
    r#"removed = { field = { name = "stock", type = "integer" }, value = 0 }"#,
    r#"rename = { from = "cost", to = "price" }"#,
    r#"removed = { field = { name = "last", type = "string" }, value = "" }"#,
    r#"rename = { from = "label", to = "heading" }"#,
    r#"removed = { field = { name = "rating", type = "number" }, value = 4.5 }"#,
    r#"optional = { field = "code", fill = "none" }"#,
    r#"rename = { from = "forename", to = "first" }"#,
    r#"rename = { from = "caption", to = "label" }"#,
    r#"removed = { field = { name = "used", type = "boolean" }, value = false }"#,
    r#"rename = { from = "number", to = "code" }"#,
    r#"rename = { from = "amount", to = "cost" }"#,
    r#"rename = { from = "words", to = "caption" }"#,
    r#"rename = { from = "given", to = "forename" }"#,
];

/// One kind of request.
struct Subject {
    name: &'static str,
    on: On,
    /// The version in the requests, as an index into the history.
    version: Option<usize>,
}

/// The service of a subject.
#[derive(Clone, Copy, PartialEq)]
enum On {
    /// A service without a history.
    Plain,
    /// A second one like it: its ratio shows how reliable a comparison is.
    Control,
    Versioned,
}

const OLDEST: usize = CHANGES.len();

const SUBJECTS: [Subject; 6] = [
    Subject { name: "no versions", on: On::Plain, version: None },
    Subject { name: "no versions, again", on: On::Control, version: None },
    Subject { name: "newest of 21", on: On::Versioned, version: None },
    Subject { name: "no versions, date named", on: On::Plain, version: Some(0) },
    Subject { name: "newest of 21, named", on: On::Versioned, version: Some(0) },
    Subject { name: "20 changes old", on: On::Versioned, version: Some(OLDEST) },
];

/// A subject, the subject that it is compared with, the name of the comparison, and the largest
/// allowed ratio.
const COMPARED: [(usize, usize, &str, Option<f64>); 4] = [
    (1, 0, "× no versions", None),
    (2, 0, "× no versions", Some(1.02)),
    (4, 3, "× no versions", Some(1.02)),
    (5, 2, "× the newest", Some(2.0)),
];

/// Length of one measured turn. The speed of a shared machine changes within seconds, so turns are
/// short and many.
const TURN: Duration = Duration::from_millis(100);

/// Under callgrind: few books, so that they are created quickly, read so often that periodic work
/// of the server does not show.
const COUNTED_BOOKS: u64 = 100;
const COUNTED_WARM_UP: usize = 500;
const COUNTED_READS: usize = 4_000;

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    time(bench).context("CPU time")?;
    count(bench).context("instructions")
}

/// CPU time per request. Hundreds of turns of the same two services gave 0.98 after one start and
/// 1.03 after another, so there are many rounds, each starts its services again, and the result is
/// the median of the rounds.
fn time(bench: &mut Bench<'_>) -> Result<()> {
    let (rounds, turns) = if bench.stage.options.quick { (6, 6) } else { (30, 8) };
    println!("==> versions: {BOOKS} books, {CONNECTIONS} connections, {rounds} × {turns} turns");
    let mut samples: [Vec<Sample>; 6] = Default::default();
    let mut ratios: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds {
        let round = time_round(bench, round, turns)?;
        for (all, (ours, limit, ..)) in ratios.iter_mut().zip(COMPARED) {
            all.push(ratio(&round[ours], &round[limit]));
        }
        for (all, round) in samples.iter_mut().zip(round) {
            all.extend(round);
        }
    }
    let mut bars = bars("CPU ratio", ratios);
    for (place, (subject, samples)) in SUBJECTS.iter().zip(&samples).enumerate() {
        let bar = bars.remove(&place);
        bench.stage.report.sample("get, versions", subject.name, Sample::median(samples), bar);
    }
    bench.stage.report.note(format!(
        "versions: a CPU ratio is the median of {rounds} rounds with the least and the most of \
         them, a round the median of {turns} turns of {TURN:?} on services of its own; that of \
         \"{}\" would be 1 on a machine without other work",
        SUBJECTS[1].name
    ));
    Ok(())
}

/// By the index of the subject.
fn bars(what: &'static str, ratios: [Vec<f64>; 4]) -> BTreeMap<usize, Bar> {
    let bar = |((ours, _, unit, most), ratios): ((usize, usize, _, Option<f64>), _)| {
        let ratios = Spread::of(ratios);
        let bar = match most {
            Some(most) => Bar::at_most(what, ratios.middle, most, unit),
            None => Bar::shown(what, ratios.middle, unit),
        };
        (ours, bar.between(&ratios))
    };
    COMPARED.into_iter().zip(ratios).map(bar).collect()
}

/// Every subject in turn, on the services of this round. A control that always started after the
/// compared service gave 0.98 and 0.97, so each is the first, second and third equally often.
fn time_round(bench: &Bench<'_>, round: usize, turns: usize) -> Result<[Vec<Sample>; 6]> {
    let mut order = [On::Plain, On::Control, On::Versioned];
    order.rotate_left(round % 3);
    if round % 6 >= 3 {
        order.reverse();
    }
    let mut services = Vec::new();
    for on in order {
        let (data, schema) = folder(bench, on)?;
        let service = bench.stage.restive(&data, Some(&schema))?;
        let ids = fill(bench, &service, BOOKS)?;
        services.push((on, service, ids));
    }
    let mut sources = Vec::new();
    for subject in &SUBJECTS {
        let found = services.iter().find(|(on, ..)| *on == subject.on);
        let (_, service, ids) = found.context("a subject without a service")?;
        sources.push((service, books::in_turn(requests(bench, subject, service, ids)?)));
    }
    let mut samples: [Vec<Sample>; 6] = Default::default();
    for turn in 0..turns {
        for step in 0..sources.len() {
            // Another subject begins each time, and the order alternates, so that none is always
            // first or always after the same one.
            let place = (step + turn / 2) % sources.len();
            let place = if turn % 2 == 0 { place } else { sources.len() - 1 - place };
            let (service, source) = &sources[place];
            samples[place].push(measure_shortly(service, CONNECTIONS, 200, TURN, source)?);
        }
    }
    drop(sources);
    services.into_iter().try_for_each(|(_, service, _)| service.stop())?;
    Ok(samples)
}

/// The median of the turns' own ratios.
fn ratio(ours: &[Sample], limit: &[Sample]) -> f64 {
    let turns = ours.iter().zip(limit);
    Spread::of(turns.map(|(ours, limit)| ours.cpu_us / limit.cpu_us).collect()).middle
}

/// Instructions of one request, outside the kernel. They are reproducible to a fraction of a
/// percent.
fn count(bench: &mut Bench<'_>) -> Result<()> {
    if !count::available() {
        bench.stage.report.note(
            "versions: instructions were NOT counted, for valgrind is missing; CPU time alone \
             has been judged",
        );
        return Ok(());
    }
    let rounds = if bench.stage.options.quick { 1 } else { 3 };
    println!("==> versions: instructions of {COUNTED_READS} requests, {rounds} times");
    let mut counts: [Vec<f64>; 6] = Default::default();
    for _ in 0..rounds {
        for (all, count) in counts.iter_mut().zip(count_round(bench)?) {
            all.push(count);
        }
    }
    let ratios = COMPARED.map(|(ours, limit, ..)| {
        counts[ours].iter().zip(&counts[limit]).map(|(ours, limit)| ours / limit).collect()
    });
    let mut bars = bars("instruction ratio", ratios);
    let report = &mut bench.stage.report;
    for (place, (subject, counts)) in SUBJECTS.iter().zip(counts).enumerate() {
        let counts = Spread::of(counts);
        let figure = Bar::shown("instructions", counts.middle, "a request").between(&counts);
        report.figure("get, versions, counted", subject.name, figure);
        if let Some(bar) = bars.remove(&place) {
            report.figure("get, versions, counted", subject.name, bar);
        }
    }
    report.note(format!(
        "versions: instructions are those outside the kernel, by callgrind, of {COUNTED_READS} \
         requests over one warm connection; starts of each service: {rounds}"
    ));
    Ok(())
}

/// Each subject once, one service after the other.
fn count_round(bench: &Bench<'_>) -> Result<[f64; 6]> {
    let mut counts = [0.0; 6];
    for on in [On::Plain, On::Control, On::Versioned] {
        let (data, schema) = folder(bench, on)?;
        let mut counted = bench.stage.restive_counted(&data, Some(&schema))?;
        let ids = fill(bench, &counted.service, COUNTED_BOOKS)?;
        let asked = SUBJECTS.iter().zip(&mut counts).filter(|(subject, _)| subject.on == on);
        for (subject, count) in asked {
            let requests = requests(bench, subject, &counted.service, &ids)?;
            *count = count_reads(&mut counted, &requests)?;
        }
        counted.stop()?;
    }
    Ok(counts)
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

/// The folder of such a service, and its schema.
fn folder(bench: &Bench<'_>, on: On) -> Result<(PathBuf, PathBuf)> {
    let (name, schema) = match on {
        On::Plain => ("plain", without_history()),
        On::Control => ("control", without_history()),
        On::Versioned => ("versioned", with_history()),
    };
    let data = bench.stage.folder(name)?;
    let file = bench.stage.scratch.join(format!("{name}.toml"));
    std::fs::write(&file, schema)?;
    Ok((data, file))
}

/// Creates this many books and returns their ids. Every service gets the same ones: the length of a
/// title or a price affects the figures.
fn fill(bench: &Bench<'_>, service: &Service, count: u64) -> Result<Vec<String>> {
    let requests = books::Requests::new(bench.stage.key.clone());
    requests.fill(&service.address, count)?;
    let mut client = Client::connect(&service.address)?;
    let ids = requests.ids(&mut client, usize::try_from(count)?)?;
    anyhow::ensure!(ids.len() as u64 == count, "{} of {count} books are listed", ids.len());
    Ok(ids)
}

/// One for each book.
fn requests(
    bench: &Bench<'_>,
    subject: &Subject,
    service: &Service,
    ids: &[String],
) -> Result<Requests> {
    let get = |id| {
        let path = format!("/v1/books/{id}");
        match subject.version {
            Some(place) => bench.requests.get_in(&path, &date(place)),
            None => bench.requests.get(&path),
        }
    };
    let title = if subject.version == Some(OLDEST) { "words" } else { "title" };
    showing(title, service, ids.iter().map(get).collect())
}

/// Checks that responses have the expected shape; a comparison with another shape would prove
/// nothing.
fn showing(member: &str, service: &Service, requests: Requests) -> Result<Requests> {
    let mut client = Client::connect(&service.address)?;
    let answer = client.expect(200, &requests[0])?;
    let book: serde_json::Value = serde_json::from_slice(&answer.body)?;
    anyhow::ensure!(book[member].is_string(), "not in the version that has `{member}`: {book}");
    Ok(requests)
}

/// The schema of a service with only the newest version.
fn without_history() -> String {
    format!("[service]\nversion = \"{}\"\n{BOOKS_NOW}", date(0))
}

/// The schema with all versions; the oldest changed nothing.
fn with_history() -> String {
    let mut text = String::new();
    for (place, change) in CHANGES.iter().enumerate() {
        let date = date(place);
        text.push_str(&format!(
            "[[versions]]\ndate = \"{date}\"\n[[versions.changes]]\ncollection = \"books\"\n\
             {change}\n"
        ));
    }
    text.push_str(&format!("[[versions]]\ndate = \"{}\"\n", date(OLDEST)));
    text + BOOKS_NOW
}

/// One a year.
fn date(place: usize) -> String {
    format!("{}-01-01", 2026 - place)
}
