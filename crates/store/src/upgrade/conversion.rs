//! Bringing events and stored responses to a version that the schema file still has, when it drops
//! the one that they were written under. Only the file that was served before knows how.

use super::Tables;
use crate::{Error, idempotency};
use model::CollectionIx;
use model::event::Hidden;
use model::evolve::Accept;
use model::record::parse_object;
use model::version::{Versions, View};
use serde_json::Value;

/// The texts of an event.
pub struct EventTexts {
    pub seq: i64,
    pub collection: String,
    pub object: String,
    pub previous: Option<String>,
    pub hidden: Option<String>,
}

impl EventTexts {
    /// The bytes of its texts.
    pub fn bytes(&self) -> usize {
        let optional = [&self.previous, &self.hidden].into_iter().flatten();
        self.object.len() + optional.map(String::len).sum::<usize>()
    }
}

/// A stored response with a text of its own.
pub struct ResponseTexts {
    pub number: i64,
    pub kind: i64,
    pub text: String,
    pub hidden: Option<String>,
}

/// Converts everything that was written under a date that `now` lacks. Refuses if an event has a
/// value that the newest version cannot express, unless `accept` allows that it is lost.
pub fn convert_log(
    tables: &impl Tables,
    before: &Versions,
    now: &Versions,
    accept: Accept,
) -> Result<(), Error> {
    let (to, name) = target(before, now);
    for view in before.iter().filter(|view| now.find(&view.date).is_none()) {
        let from = &view.date;
        let (events, lost) = convert_events(tables, before, from, (to, name))?;
        if lost > 0 && accept != Accept::Loss {
            let message = format!(
                "version {from} is gone from the file, and {lost} of its events have values that \
                 version {name} cannot express: they would become null in the log. Keep the \
                 version, or start with --accept-data-loss"
            );
            return Err(Error::Refused(vec![message]));
        }
        let responses =
            each_response(tables, from, |ResponseTexts { number, kind, text, hidden }| {
                let texts = (text, hidden);
                let (text, hidden) = idempotency::converted(before, from, to, kind, texts);
                tables.set_response(number, name, (&text, hidden.as_deref()))
            })?;
        if events + responses > 0 {
            let to = name;
            tracing::info!(%from, %to, events, responses, "converted: the version is gone");
        }
    }
    Ok(())
}

/// The version to convert to, as the old file knows it, and its name now: the newest there was.
/// Where that is gone, too, the one that is the newest again; where the old file does not know that
/// one, its newest stands for it.
fn target<'v>(before: &'v Versions, now: &'v Versions) -> (&'v View, &'v str) {
    let (newest, date) = (before.newest(), &now.newest().date);
    match (now.find(&newest.date), before.find(date)) {
        (Some(_), _) => (newest, &newest.date),
        (None, Some(again)) => (again, date),
        (None, None) => (newest, date),
    }
}

/// Removes the fields of a collection that are write-only from its events and stored responses, by
/// the name that each version has for them.
pub fn hide(tables: &impl Tables, versions: &Versions, ix: CollectionIx) -> Result<(), Error> {
    let name = &versions.kept().collections[ix].name;
    for view in versions.iter() {
        let fields = view.schema.collections[ix].fields.iter().filter(|field| field.write_only);
        let names: Vec<&str> = fields.map(|field| field.name.as_str()).collect();
        let mut last = 0;
        loop {
            let page = tables.events_of(&view.date, last)?;
            let Some(newest) = page.last() else { break };
            last = newest.seq;
            for mut event in page.into_iter().filter(|event| event.collection == *name) {
                if hide_in(&mut event, &names) {
                    tables.set_event(&view.date, &event)?;
                }
            }
        }
        let object = &view.schema.collections[ix].object;
        each_response(tables, &view.date, |ResponseTexts { number, kind, text, hidden }| {
            let texts = (text.as_str(), hidden.as_deref());
            match idempotency::without(kind, texts, object, &names) {
                Some((text, hidden)) => {
                    tables.set_response(number, &view.date, (&text, hidden.as_deref()))
                }
                None => Ok(()),
            }
        })?;
    }
    Ok(())
}

/// Visits the stored responses of a version, a page at a time; returns how many there are.
fn each_response(
    tables: &impl Tables,
    date: &str,
    mut visit: impl FnMut(ResponseTexts) -> Result<(), Error>,
) -> Result<usize, Error> {
    let (mut last, mut count) = (0, 0);
    loop {
        let page = tables.responses_of(date, last)?;
        let Some(newest) = page.last() else { return Ok(count) };
        last = newest.number;
        count += page.len();
        page.into_iter().try_for_each(&mut visit)?;
    }
}

/// Whether the event had one of the fields.
pub fn hide_in(event: &mut EventTexts, names: &[&str]) -> bool {
    let object = without(&event.object, names);
    let previous = event.previous.as_deref().and_then(|text| without(text, names));
    let mut hidden = Hidden::parse(event.hidden.as_deref());
    let mut had = object.is_some() || previous.is_some();
    for name in names {
        let parts = [&mut hidden.object, &mut hidden.previous];
        had |= parts.into_iter().filter_map(|fields| fields.remove(*name)).count() > 0;
    }
    event.object = object.unwrap_or_else(|| std::mem::take(&mut event.object));
    event.previous = previous.or_else(|| event.previous.take());
    event.hidden = hidden.text();
    had
}

/// An object without some fields; `None` if it has none of them.
fn without(text: &str, names: &[&str]) -> Option<String> {
    let mut fields = parse_object(text);
    let had = names.iter().filter_map(|name| fields.remove(*name)).count() > 0;
    had.then(|| Value::Object(fields).to_string())
}

fn convert_events(
    tables: &impl Tables,
    before: &Versions,
    date: &str,
    (to, name): (&View, &str),
) -> Result<(usize, usize), Error> {
    let (mut last, mut count, mut lost) = (0, 0, 0);
    loop {
        let page = tables.events_of(date, last)?;
        let Some(newest) = page.last() else { return Ok((count, lost)) };
        last = newest.seq;
        count += page.len();
        for mut event in page {
            let hidden = event.hidden.as_deref();
            if !before.survives(&event.collection, date, &event.object, hidden) {
                lost += 1;
            }
            let texts = (&*event.object, event.previous.as_deref(), event.hidden.as_deref());
            if let Some(converted) = before.converted(&event.collection, date, texts, to) {
                (event.object, event.previous, event.hidden) = converted;
            }
            tables.set_event(name, &event)?;
        }
    }
}
