//! What date versions cost: one book, read from a service that never changed, from one with twenty
//! changes behind it, and from that in its oldest version.

use std::sync::Arc;

use anyhow::{Context, Result};

use crate::http::Client;
use crate::measure::in_turn;
use crate::process::Service;
use crate::report::{Bar, Sample};

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

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> versions: {BOOKS} books, {CONNECTIONS} connections");
    let (plain, plain_books) = start(bench, "plain", BOOKS_NOW)?;
    let (versioned, ids) = start(bench, "versioned", &with_past())?;
    let newest = requests(&ids, |target| bench.requests.get(target));
    let oldest = date(CHANGES.len());
    let old = requests(&ids, |target| bench.requests.get_in(target, &oldest));
    shows_old(&versioned, &old)?;
    let plain_books = requests(&plain_books, |target| bench.requests.get(target));
    let read = |service, requests: &Requests| {
        bench.measure(service, CONNECTIONS, 200, &books::in_turn(Arc::clone(requests)))
    };
    let rounds = if bench.stage.options.quick { 3 } else { 9 };
    let unchanged = in_turn(rounds, || read(&plain, &plain_books), || read(&versioned, &newest))?;
    let aged = in_turn(rounds, || read(&versioned, &newest), || read(&versioned, &old))?;
    let ratio = unchanged.ratio(|sample| sample.cpu_us);
    let bar = Bar::at_most("CPU ratio", ratio.middle, 1.02, "× no versions").between(&ratio);
    let report = &mut bench.stage.report;
    report.sample("get, versions", "no versions", Sample::median(&unchanged.limits), None);
    report.sample("get, versions", "newest of 21", Sample::median(&unchanged.ours), Some(bar));
    let ratio = aged.ratio(|sample| sample.cpu_us);
    let bar = Bar::at_most("CPU ratio", ratio.middle, 2.0, "× the newest").between(&ratio);
    report.sample("get, versions", "20 changes old", Sample::median(&aged.ours), Some(bar));
    report.note("versions: a ratio is the median of its rounds' own, with the least and the most");
    plain.stop()?;
    versioned.stop()
}

type Requests = Arc<[Vec<u8>]>;

/// A service of this schema with its books, and their ids.
fn start(bench: &Bench<'_>, name: &str, schema: &str) -> Result<(Service, Vec<String>)> {
    let data = bench.stage.folder(name)?;
    let file = bench.stage.scratch.join(format!("{name}.toml"));
    std::fs::write(&file, schema)?;
    let service = bench.stage.restive(&data, Some(&file))?;
    bench.requests.fill(&service.address, BOOKS)?;
    let mut client = Client::connect(&service.address)?;
    let ids = bench.requests.ids(&mut client, usize::try_from(BOOKS)?)?;
    anyhow::ensure!(ids.len() as u64 == BOOKS, "{} of {BOOKS} books are listed", ids.len());
    Ok((service, ids))
}

fn requests(ids: &[String], get: impl Fn(&str) -> Vec<u8>) -> Requests {
    ids.iter().map(|id| get(&format!("/v1/books/{id}"))).collect()
}

/// A comparison with an answer in the newest shape would prove nothing.
fn shows_old(service: &Service, requests: &Requests) -> Result<()> {
    let mut client = Client::connect(&service.address)?;
    let answer = client.expect(200, &requests[0])?;
    let book: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let shown = book["words"].as_str().zip(book["amount"].as_i64());
    shown.with_context(|| format!("not in the oldest version: {book}"))?;
    Ok(())
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
