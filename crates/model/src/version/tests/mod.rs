//! Old clients keep working: what each change means for them, alone and in chains.

mod chains;
mod errors;
mod limits;
mod operations;
mod properties;
mod events;

use super::*;
use crate::parse::parse;
use crate::record::{self, Record};
use crate::time::Timestamp;
use serde_json::{Value, json};

/// Euros became cents.
pub(super) const CENTS: &str = "convert = { field = 'price', from = 'number', \
                                up = 'int(math.round(value * 100.0))', \
                                down = 'double(value) / 100.0' }";

/// A service with one collection: its fields, and versions with their changes, newest first. The
/// oldest version is added.
pub(super) fn service(fields: &str, versions: &[&str]) -> Versions {
    let schema = parse(&file(fields, versions)).unwrap_or_else(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        panic!("{}\n{}", lines.join("\n"), file(fields, versions))
    });
    Versions::new(&Arc::new(schema))
}

pub(super) fn file(fields: &str, versions: &[&str]) -> String {
    let mut text = format!("[collections.books.fields]\n{fields}\n");
    for (place, changes) in versions.iter().enumerate() {
        text += &format!("[[versions]]\ndate = \"{}\"\n", date(versions.len() - place));
        for change in changes.lines().filter(|line| !line.trim().is_empty()) {
            text += &format!("[[versions.changes]]\ncollection = \"books\"\n{}\n", change.trim());
        }
    }
    text + &format!("[[versions]]\ndate = \"{}\"\n", date(0))
}

pub(super) fn date(number: usize) -> String {
    format!("{}-01-01", 2000 + number)
}

pub(super) fn object(value: Value) -> Fields {
    value.as_object().unwrap().clone()
}

/// The oldest view, and its lens of the one collection.
pub(super) fn oldest(versions: &Versions) -> (&Arc<View>, &Lens) {
    let view = versions.iter().last().unwrap();
    (view, view.lens(0).unwrap())
}

/// A stored record with these fields.
pub(super) fn record(collection: &Collection, fields: &Fields) -> Record {
    stored(record::encode(collection, fields), record::encode_hidden(collection, fields))
}

pub(super) fn stored(body: String, hidden: Option<String>) -> Record {
    Record { id: "book_1".into(), number: 1, version: 1, updated: Timestamp(0), body, hidden }
}
