//! Stored responses to idempotency keys: what a row holds of a response, and which response a row
//! stands for. Where an event shows the same record, the row holds no copy of it.

use crate::Remembered;
use model::event::Hidden;
use model::record::{self, parse_object};
use model::version::{Versions, View};
use model::write::{Idempotency, Response};
use model::{Collection, Field, Problem, Record, Scope, Timestamp, Write};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How long a response is stored (design, section 4).
const STORED_MS: i64 = 24 * 60 * 60 * 1000;
/// How long other rows may share the text of a row. Rows are removed so much later than they
/// expire: the text outlasts those that share it.
const SHARED_MS: i64 = 6 * 60 * 60 * 1000;

/// The kind of a response, as it is stored.
pub const CREATED: i64 = 0;
pub const UPDATED: i64 = 1;
pub const REFUSED: i64 = 2;
pub const DELETED: i64 = 3;

/// An idempotency key as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub digest: [u8; 16],
    /// A response that was stored at this time or before has expired.
    pub expired: Timestamp,
}

/// The key as it is looked up.
pub fn key(key: &str, now: Timestamp) -> Key {
    Key { digest: digest(key), expired: expired(now) }
}

/// Responses from this time or before have expired.
pub fn expired(now: Timestamp) -> Timestamp {
    Timestamp(now.0 - STORED_MS)
}

/// Rows from this time or before can be removed.
pub fn removed(now: Timestamp) -> Timestamp {
    Timestamp(now.0 - STORED_MS - SHARED_MS)
}

/// Rows from after this time may share their text with a row from now.
pub fn shared_since(now: Timestamp) -> Timestamp {
    Timestamp(now.0 - SHARED_MS)
}

fn digest(key: &str) -> [u8; 16] {
    let hash = Sha256::digest(key.as_bytes());
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash[..16]);
    digest
}

/// A row as it is read, completed by its event.
#[derive(Clone, Debug)]
pub struct Stored {
    pub fingerprint: [u8; 32],
    pub kind: i64,
    pub seq: i64,
    pub number: i64,
    pub updated: i64,
    /// Id of the record; that of the event's, if the row has none.
    pub record: String,
    /// Text of the response; that of the event's object, if the row has none.
    pub text: String,
    /// Whether the text is the event's.
    pub from_event: bool,
    pub request: String,
    /// The version that the text was written under.
    pub api_version: Option<String>,
    /// What only older versions show: of the row, or `event::Hidden` of the event.
    pub hidden: Option<String>,
    /// The text must be erased before it is shown. Where it shows a resource of another event, that
    /// is the one.
    pub erased: bool,
    pub event_record: Option<String>,
}

impl Stored {
    /// The response that the row stands for, in the newest version.
    pub fn response(mut self, versions: &Versions) -> Remembered {
        if self.erased {
            let about = self.event_record.as_deref();
            self.text = erased(self.kind, &self.record, about, &self.text);
        }
        let newest = &versions.kept().service.version;
        let written = self.api_version.take().filter(|date| date != newest);
        let as_written = written.map(|date| (date, self.text.clone()));
        let response = match self.kind {
            CREATED => Response::Created(self.take_record(versions, as_written.as_ref())),
            UPDATED => Response::Updated(self.take_record(versions, as_written.as_ref())),
            DELETED => Response::Deleted { id: std::mem::take(&mut self.record) },
            _ => {
                Response::Refused(serde_json::from_str(&self.text).unwrap_or_else(|_| unreadable()))
            }
        };
        let is_record = matches!(response, Response::Created(_) | Response::Updated(_));
        let as_written = as_written.filter(|_| is_record);
        let Stored { fingerprint, request, .. } = self;
        Remembered { fingerprint, response, as_written, request }
    }

    fn take_record(&mut self, versions: &Versions, written: Option<&(String, String)>) -> Record {
        let hidden = self.hidden.take();
        let hidden = match self.from_event {
            true => {
                let object = Hidden::parse(hidden.as_deref()).object;
                (!object.is_empty()).then(|| Value::Object(object).to_string())
            }
            false => hidden,
        };
        let body = std::mem::take(&mut self.text);
        let (body, hidden) = match written {
            Some((date, _)) => raised(versions, date, body, hidden),
            None => (body, hidden),
        };
        let (number, version) = (self.number, self.seq);
        let id = std::mem::take(&mut self.record);
        Record { id, number, version, updated: Timestamp(self.updated), body, hidden }
    }
}

/// A row to be inserted.
#[derive(Debug)]
pub struct NewRow {
    pub scope: Scope,
    pub digest: [u8; 16],
    pub fingerprint: [u8; 32],
    pub created: Timestamp,
    pub kind: i64,
    pub seq: i64,
    pub number: i64,
    pub updated: i64,
    pub record: Option<String>,
    pub text: Option<String>,
    pub request: String,
    pub api_version: Option<String>,
    pub hidden: Option<String>,
}

/// A response that is to be stored.
#[derive(Clone, Copy)]
pub enum Answer<'a> {
    Created(&'a Record),
    Updated(&'a Record),
    Deleted(&'a str),
    Refused(&'a Problem),
}

impl<'a> From<&'a Response> for Answer<'a> {
    fn from(response: &'a Response) -> Answer<'a> {
        match response {
            Response::Created(record) => Answer::Created(record),
            Response::Updated(record) => Answer::Updated(record),
            Response::Deleted { id } => Answer::Deleted(id),
            Response::Refused(problem) => Answer::Refused(problem),
        }
    }
}

/// The row of a write's response, if the write has a key. `has_event`: the write's last event shows
/// the record that was answered.
pub fn row(
    collection: &Collection,
    version: &str,
    write: &Write,
    now: Timestamp,
    answer: Answer<'_>,
    has_event: bool,
) -> Option<NewRow> {
    let Idempotency { key, fingerprint } = write.idempotency.as_ref()?;
    let (kind, record) = match answer {
        Answer::Created(record) => (CREATED, Some(record)),
        Answer::Updated(record) => (UPDATED, Some(record)),
        Answer::Deleted(_) => (DELETED, None),
        Answer::Refused(_) => (REFUSED, None),
    };
    // Without an event (an update that changed nothing), the row holds the whole record; the store
    // may share its text with the row of an earlier one.
    let whole = record.filter(|_| !has_event);
    let id = match answer {
        Answer::Deleted(id) => Some(id),
        // A refusal is about the record, too: an erasure must find it.
        Answer::Refused(_) => write.id.as_deref(),
        _ => whole.map(|record| record.id.as_str()),
    };
    let text = match answer {
        // A problem is plain data, which always has a text.
        Answer::Refused(problem) => Some(serde_json::to_string(problem).unwrap_or_default()),
        _ => whole.map(|record| record.body.clone()),
    };
    Some(NewRow {
        scope: write.scope,
        digest: digest(key),
        fingerprint: *fingerprint,
        created: now,
        kind,
        seq: record.map_or(0, |record| record.version),
        number: record.map_or(0, |record| record.number),
        updated: record.map_or(0, |record| record.updated.0),
        record: id.map(String::from),
        text,
        request: write.cause.request.clone().unwrap_or_default(),
        // An event names its version itself.
        api_version: (!has_event).then(|| version.to_owned()),
        hidden: whole.and_then(|record| shown_by_older_versions(collection, record)),
    })
}

fn shown_by_older_versions(collection: &Collection, record: &Record) -> Option<String> {
    let mut removed = collection.fields.iter().filter(|field| field.removed && !field.write_only);
    let first = removed.next()?;
    let hidden = parse_object(record.hidden.as_deref()?);
    let pair = |field: &Field| Some((field.name.clone(), hidden.get(&field.name)?.clone()));
    let shown = std::iter::once(first).chain(removed).filter_map(pair).collect();
    Some(Value::Object(shown).to_string())
}

/// What is left of a stored text after an erasure: that there was a response, and its subject.
/// `about`: the resource that is erased, the row's own record if none is given.
pub fn erased(kind: i64, id: &str, about: Option<&str>, text: &str) -> String {
    let fields = parse_object(text);
    let marker =
        |id: &str, object: Option<&Value>| json!({"id": id, "object": object, "erased": true});
    if kind == REFUSED {
        let mut problem: Problem = serde_json::from_str(text).unwrap_or_else(|_| unreadable());
        problem.message = "What this answer said was erased.".to_owned();
        (problem.param, problem.value) = (None, None);
        problem.violations.clear();
        problem.extra.clear();
        return serde_json::to_string(&problem).unwrap_or_default();
    }
    match about.filter(|about| *about != id) {
        // A published event: its envelope stays.
        Some(about) => {
            let mut fields = fields;
            let object = fields.get("data").and_then(|data| data.get("object")?.get("object"));
            let data = json!({"object": marker(about, object)});
            fields.insert("data".into(), data);
            Value::Object(fields).to_string()
        }
        None => marker(id, fields.get("object")).to_string(),
    }
}

/// A stored text and its hidden part without some fields of a kind of object; `None` if the
/// response is about another kind, or has none of them.
pub fn without(
    kind: i64,
    (text, hidden): (&str, Option<&str>),
    object: &str,
    names: &[&str],
) -> Option<(String, Option<String>)> {
    if kind == REFUSED {
        let mut problem: Problem = serde_json::from_str(text).ok()?;
        let named = |field: &str| names.iter().any(|name| field.split('.').next() == Some(*name));
        let mut had = false;
        if problem.param.as_deref().is_some_and(named) {
            had |= problem.value.take().is_some();
        }
        for violation in problem.violations.iter_mut().filter(|one| named(&one.field)) {
            had |= violation.value.take().is_some();
        }
        return had.then(|| (serde_json::to_string(&problem).unwrap_or_default(), None));
    }
    let (mut fields, mut kept) = (parse_object(text), parse_object(hidden.unwrap_or("{}")));
    if fields.get("object").and_then(Value::as_str) != Some(object) {
        return None;
    }
    let removed = names.iter().flat_map(|name| [fields.remove(*name), kept.remove(*name)]);
    if removed.flatten().count() == 0 {
        return None;
    }
    let kept = hidden.is_some().then(|| Value::Object(kept).to_string());
    Some((Value::Object(fields).to_string(), kept))
}

fn unreadable() -> Problem {
    Problem::new(model::Code::Internal, "the stored response is unreadable")
}

/// A stored text and its hidden part, converted from a version that is gone to another one.
pub fn converted(
    before: &Versions,
    date: &str,
    to: &View,
    kind: i64,
    (text, hidden): (String, Option<String>),
) -> (String, Option<String>) {
    match kind {
        CREATED | UPDATED => {
            let (text, hidden) = raised(before, date, text, hidden);
            lowered(to, text, hidden)
        }
        _ => (text, hidden),
    }
}

/// A record that was written under a date, in the newest shape.
fn raised(
    versions: &Versions,
    written: &str,
    body: String,
    hidden: Option<String>,
) -> (String, Option<String>) {
    // The record itself says what it is.
    let object = parse_object(&body);
    let named = object.get("object").and_then(Value::as_str).unwrap_or_default();
    let found = versions.kept().collections.iter().position(|c| c.object == named);
    match found {
        Some(ix) => versions.record(ix, written, body, hidden),
        None => (body, hidden),
    }
}

/// A record of the newest shape in that of a version.
fn lowered(to: &View, body: String, hidden: Option<String>) -> (String, Option<String>) {
    let mut fields = parse_object(&body);
    let named = fields.get("object").and_then(Value::as_str).unwrap_or_default();
    let found = to.schema.collections.iter().position(|c| c.object == named);
    let Some((ix, lens)) = found.and_then(|ix| Some((ix, to.lens(ix)?))) else {
        return (body, hidden);
    };
    if to.index == 0 {
        return (body, hidden);
    }
    fields.extend(parse_object(hidden.as_deref().unwrap_or("{}")));
    let shape = &to.schema.collections[ix];
    let shown = lens.down(&fields);
    (record::encode(shape, &shown), record::encode_hidden(shape, &shown))
}
