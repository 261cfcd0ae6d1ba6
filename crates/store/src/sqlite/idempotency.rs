//! Remembered answers. A narrow row per key, made in the commit of the write it belongs to: records
//! are rebuilt from their event, so no body is kept twice. Knows no rule.

use super::shared::Shared;
use super::{erasure, retell};
use crate::Remembered;
use model::event::Hidden;
use model::problem::Problem;
use model::record::{self, parse_object};
use model::version::{Versions, View};
use model::write::Response;
use model::{Record, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How long a key is remembered (design, section 4).
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// Most expired rows removed at once: a commit must not wait for more.
const EXPIRED_AT_ONCE: i64 = 500;

const CREATED: i64 = 0;
const UPDATED: i64 = 1;
const REFUSED: i64 = 2;
const DELETED: i64 = 3;

const FIND: &str = concat!(
    "SELECT r.fingerprint, r.created, r.kind, r.seq, r.number, r.updated, \
     coalesce(r.record, l.record), coalesce(r.text, ",
    erasure::object!("l"),
    "), r.request, r.text IS NULL, coalesce(r.api_version, l.api_version), r.hidden, ",
    erasure::aside!("l", "hidden"),
    ", r.text IS NOT NULL AND (",
    erasure::erases!("l"),
    " OR EXISTS (SELECT 1 FROM erasing y WHERE y.scope = r.scope AND y.record = r.record \
     AND y.answers >= r.n)), l.record \
     FROM remembered r LEFT JOIN log l ON l.seq = r.seq WHERE r.scope = ?1 AND r.digest = ?2"
);
const ABOUT: &str = "SELECT n FROM remembered WHERE scope = ?1 AND record = ?2 \
    AND text IS NOT NULL AND n > ?3 AND n <= ?4 ORDER BY n LIMIT 1";
const TOLD_BY: &str = "SELECT n, record FROM remembered INDEXED BY remembered_told \
    WHERE seq = ?1 AND text IS NOT NULL AND n > ?2 ORDER BY n LIMIT ?3";
const TEXT: &str = "SELECT kind, record, text FROM remembered WHERE n = ?1";
const ERASE: &str = "UPDATE remembered SET text = ?2, hidden = NULL WHERE n = ?1";
const KEEP: &str = "INSERT OR REPLACE INTO remembered (scope, digest, fingerprint, created, kind, \
    seq, number, updated, record, text, request, api_version, hidden) VALUES (?1, ?2, ?3, ?4, ?5, \
    ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
/// Rows are numbered in time order, so the oldest are found without an index on time.
const EXPIRE: &str = "DELETE FROM remembered WHERE n <= (SELECT max(n) FROM \
    (SELECT n, created FROM remembered ORDER BY n LIMIT ?1) WHERE created <= ?2)";

fn digest(key: &str) -> [u8; 16] {
    let hash = Sha256::digest(key.as_bytes());
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash[..16]);
    digest
}

/// What the key answered, unless that is too long ago.
pub fn find(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    key: &str,
    now: Timestamp,
) -> Result<Option<Remembered>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(FIND)?;
    let found = statement
        .query_row(params![scope.0, digest(key)], |row| {
            let created: i64 = row.get(1)?;
            if created <= now.0 - KEPT_MS {
                return Ok(None);
            }
            let (id, text): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
            let (id, mut text) = (id.unwrap_or_default(), text.unwrap_or_default());
            if row.get(13)? {
                let about: Option<String> = row.get(14)?;
                text = erased(row.get(2)?, &id, about.as_deref(), &text);
            }
            let written: Option<String> = row.get(10)?;
            let as_written = written
                .filter(|date| *date != shared.schema.service.version)
                .map(|date| (date, text.clone()));
            let record = |id, body| -> Result<Record, rusqlite::Error> {
                let hidden = hidden(row)?;
                let (body, hidden) = match &as_written {
                    Some((date, _)) => raised(&shared.versions, date, body, hidden),
                    None => (body, hidden),
                };
                Ok(Record {
                    id,
                    number: row.get(4)?,
                    version: row.get(3)?,
                    updated: Timestamp(row.get(5)?),
                    body,
                    hidden,
                })
            };
            let response = match row.get::<_, i64>(2)? {
                CREATED => Response::Created(record(id, text)?),
                UPDATED => Response::Updated(record(id, text)?),
                DELETED => Response::Deleted { id },
                _ => {
                    Response::Refused(serde_json::from_str(&text).unwrap_or_else(|_| unreadable()))
                }
            };
            let is_record = matches!(response, Response::Created(_) | Response::Updated(_));
            let as_written = as_written.filter(|_| is_record);
            let (fingerprint, request) = (row.get(0)?, row.get(8)?);
            Ok(Some(Remembered { fingerprint, response, as_written, request }))
        })
        .optional()?;
    Ok(found.flatten())
}

/// The next answer about a record, of those after the first and up to the second number.
pub fn next_about(
    connection: &Connection,
    scope: i64,
    record: &str,
    (after, upto): (i64, i64),
) -> Result<Option<i64>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(ABOUT)?;
    statement.query_row(params![scope, record, after, upto], |row| row.get(0)).optional()
}

/// Answers with a text of their own that tell what an event tells, after one of them and `max` at
/// most, each with the record that it is about.
pub fn told_by(
    connection: &Connection,
    seq: i64,
    after: i64,
    max: usize,
) -> Result<Vec<(i64, Option<String>)>, rusqlite::Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(TOLD_BY)?;
    statement.query_map([seq, after, max], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Removes from an answer what it says of a resource, its own record if none is given.
pub fn erase(connection: &Connection, n: i64, about: Option<&str>) -> Result<(), rusqlite::Error> {
    let text = connection.prepare_cached(TEXT)?.query_row([n], |row| {
        let (id, text): (Option<String>, String) = (row.get(1)?, row.get(2)?);
        Ok(erased(row.get(0)?, &id.unwrap_or_default(), about, &text))
    })?;
    connection.prepare_cached(ERASE)?.execute(params![n, text])?;
    Ok(())
}

/// What is left of a remembered text: that there was an answer, and what it was about.
fn erased(kind: i64, id: &str, about: Option<&str>, text: &str) -> String {
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

fn unreadable() -> Problem {
    Problem::new(model::Code::Internal, "the remembered answer is unreadable")
}

/// What is kept of a remembered record beside its text.
fn hidden(row: &Row<'_>) -> Result<Option<String>, rusqlite::Error> {
    match row.get(9)? {
        // The event tells of it.
        true => {
            let text: Option<String> = row.get(12)?;
            let object = Hidden::parse(text.as_deref()).object;
            Ok((!object.is_empty()).then(|| Value::Object(object).to_string()))
        }
        false => row.get(11),
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

/// Tells records anew that were answered under a date which is gone; says how many.
pub fn retell(
    connection: &Connection,
    before: &Versions,
    date: &str,
    (to, told_as): retell::Target<'_>,
) -> Result<usize, rusqlite::Error> {
    let mut select = connection.prepare(
        "SELECT n, kind, text, hidden FROM remembered WHERE text IS NOT NULL AND api_version = ?1",
    )?;
    let rows = select.query_map([date], |row| {
        let texts: (String, Option<String>) = (row.get(2)?, row.get(3)?);
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, texts))
    })?;
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let sql = "UPDATE remembered SET api_version = ?2, text = ?3, hidden = ?4 WHERE n = ?1";
    let mut update = connection.prepare(sql)?;
    for (n, kind, texts) in &rows {
        let (text, hidden) = match *kind {
            CREATED | UPDATED => {
                let (text, hidden) = texts.clone();
                let (text, hidden) = raised(before, date, text, hidden);
                lowered(to, text, hidden)
            }
            _ => texts.clone(),
        };
        update.execute(params![n, told_as, text, hidden])?;
    }
    Ok(rows.len())
}

/// Says of rows that do not under which version they were written.
pub fn date(connection: &Connection, version: &str) -> Result<(), rusqlite::Error> {
    const DATE: &str = "UPDATE remembered SET api_version = ?1 \
        WHERE text IS NOT NULL AND api_version IS NULL";
    connection.execute(DATE, [version]).map(drop)
}

/// What to keep of a write's answer.
pub struct Keeping<'a> {
    pub scope: Scope,
    pub key: &'a str,
    pub fingerprint: &'a [u8; 32],
    pub request: &'a str,
    pub now: Timestamp,
    /// Whether the write's last event holds the body that was answered.
    pub has_event: bool,
    /// The record that the write names.
    pub about: Option<&'a str>,
    /// Otherwise: what older versions show beside the body, a JSON object.
    pub hidden: Option<String>,
}

pub fn keep(
    connection: &Connection,
    version: &str,
    keeping: &Keeping<'_>,
    response: &Response,
) -> Result<(), rusqlite::Error> {
    let none = || (0, 0, 0);
    let whole = |record: &Record| (record.version, record.number, record.updated.0);
    let (kind, (seq, number, updated), record, text) = match response {
        Response::Created(record) => (CREATED, whole(record), record_text(keeping, record), None),
        Response::Updated(record) => (UPDATED, whole(record), record_text(keeping, record), None),
        Response::Deleted { id } => (DELETED, none(), Some((id.as_str(), None)), None),
        Response::Refused(problem) => {
            let text = serde_json::to_string(problem)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
            (REFUSED, none(), None, Some(text))
        }
    };
    let (id, body) = record.map_or((None, None), |(id, body)| (Some(id), body));
    // A refusal tells of the record, too: an erasure must find it.
    let id = id.or(keeping.about.filter(|_| kind == REFUSED));
    // What an event tells of says itself under which version.
    let version = (!keeping.has_event).then_some(version);
    connection.prepare_cached(KEEP)?.execute(params![
        keeping.scope.0,
        digest(keeping.key),
        keeping.fingerprint,
        keeping.now.0,
        kind,
        seq,
        number,
        updated,
        id,
        text.as_deref().or(body),
        keeping.request,
        version,
        keeping.hidden
    ])?;
    Ok(())
}

/// An answer without an event of its own (an update that changed nothing) keeps its record whole.
fn record_text<'a>(
    keeping: &Keeping<'_>,
    record: &'a Record,
) -> Option<(&'a str, Option<&'a str>)> {
    (!keeping.has_event).then_some((record.id.as_str(), Some(record.body.as_str())))
}

/// Removes some expired rows; true when more may be left.
pub fn expire(connection: &Connection, now: Timestamp) -> Result<bool, rusqlite::Error> {
    let mut statement = connection.prepare_cached(EXPIRE)?;
    let removed = statement.execute(params![EXPIRED_AT_ONCE, now.0 - KEPT_MS])?;
    Ok(removed as i64 == EXPIRED_AT_ONCE)
}
