//! The cleanup of data that earlier development states stored, on SQLite: visits stored responses,
//! events and records once per file, before the file is served. Each slice is a transaction that
//! also stores the progress, so a cleanup that was interrupted continues. `crate::upgrade::Cleanup`
//! decides what is hidden.

use super::super::{checkpoint, layout};
use super::SqliteTables;
use crate::Error;
use crate::idempotency::{CREATED, UPDATED};
use crate::upgrade::{Cleanup, EventTexts, Row, Stage, Tables, fill_row, searches_states};
use model::evolve::Stored;
use model::schema::Builtin;
use model::version::Versions;
use model::{CollectionIx, Schema, Scope};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::time::{Duration, Instant};

/// Rows that a slice visits at most, and the bytes of their texts after which it ends: a crash
/// repeats no more, and the log file does not grow beyond what one slice writes.
const SLICE_ROWS: i64 = 5_000;
const SLICE_BYTES: usize = 8 << 20;
/// How often a long cleanup logs its progress.
const REPORT: Duration = Duration::from_secs(2);

/// Where the progress is stored.
const SAVED: &str = "SELECT value FROM meta WHERE name = 'cleanup'";
const SAVE: &str = "INSERT OR REPLACE INTO meta VALUES ('cleanup', ?1)";
/// A response without a text of its own shows its event. The events of endpoints are masked and
/// their responses are not, so these responses need the text of the event (?3: the collection).
const RESPONSES: &str = "SELECT r.n, r.kind, r.api_version, r.text, r.hidden, \
    l.object, l.api_version, l.record FROM remembered r LEFT JOIN log l ON l.seq = r.seq \
    AND r.text IS NULL AND r.record IS NULL AND r.kind IN (?4, ?5) AND l.collection = ?3 \
    WHERE r.n > ?1 ORDER BY r.n LIMIT ?2";
const OWN_TEXT: &str =
    "UPDATE remembered SET text = ?2, api_version = ?3, record = ?4 WHERE n = ?1";
const HIDE: &str = "UPDATE remembered SET text = ?2, hidden = ?3 WHERE n = ?1";
const EVENTS: &str = "SELECT seq, collection, api_version, object, previous, hidden FROM log \
    WHERE seq > ?1 ORDER BY seq LIMIT ?2";

/// Plans the cleanup of a file that has not had it, in the transaction that brings the file to a
/// schema. A new file needs none. A cleanup that was interrupted also hides the fields of these
/// versions.
pub fn begin<'v>(
    connection: &Connection,
    is_new: bool,
    known: impl Iterator<Item = &'v Versions>,
) -> Result<(), Error> {
    if is_new {
        return save(connection, &Cleanup::done());
    }
    let mut cleanup = saved(connection)?;
    if cleanup.stage != Stage::Done {
        known.for_each(|versions| cleanup.add(versions));
        save(connection, &cleanup)?;
    }
    Ok(())
}

/// Runs what is left of the cleanup. Returns the description of the tables, which changes with the
/// records.
pub fn run(
    connection: &mut Connection,
    versions: &Versions,
    mut stored: Stored,
) -> Result<Stored, Error> {
    let schema = &**versions.kept();
    let mut cleanup = saved(connection)?;
    let (mut total, mut reported) = (Slice::default(), Instant::now());
    while cleanup.stage != Stage::Done {
        let stage = cleanup.stage;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let slice = match stage {
            Stage::Responses => responses(&transaction, schema, &mut cleanup)?,
            Stage::Events => events(&transaction, schema, &mut cleanup)?,
            Stage::States | Stage::Done => states(&transaction, schema, &mut cleanup, &mut stored)?,
        };
        if slice.is_last {
            cleanup.advance();
        }
        save(&transaction, &cleanup)?;
        transaction.commit()?;
        if slice.changed > 0 && checkpoint::passive(connection).is_err() {
            tracing::debug!("the log file grows until the next checkpoint");
        }
        total.rows += slice.rows;
        total.changed += slice.changed;
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            let (rows, changed) = (total.rows, total.changed);
            tracing::info!(?stage, rows, changed, "data of an earlier release is cleaned up");
        }
    }
    if total.changed > 0 {
        let Slice { rows, changed, .. } = total;
        tracing::info!(rows, changed, "data of an earlier release is cleaned up: finished");
    }
    Ok(stored)
}

/// The progress. One that cannot be read is none: the cleanup can be repeated.
fn saved(connection: &Connection) -> Result<Cleanup, Error> {
    let text: Option<String> = connection.query_row(SAVED, [], |row| row.get(0)).optional()?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

fn save(connection: &Connection, cleanup: &Cleanup) -> Result<(), Error> {
    let text = serde_json::to_string(cleanup).map_err(|error| Error::Failed(Box::new(error)))?;
    connection.prepare_cached(SAVE)?.execute([text])?;
    Ok(())
}

/// What a slice did.
#[derive(Default)]
struct Slice {
    rows: i64,
    changed: i64,
    bytes: usize,
    /// Whether nothing is left of the stage.
    is_last: bool,
}

impl Slice {
    fn is_full(&self) -> bool {
        self.bytes >= SLICE_BYTES
    }

    /// Ends a slice that read until there was no row, or no room.
    fn end(mut self) -> Slice {
        self.is_last = !self.is_full() && self.rows < SLICE_ROWS;
        self
    }
}

/// The name of the collection of webhook endpoints; none has an empty name.
fn endpoints(schema: &Schema) -> &str {
    let found = schema.collections.get(schema.own(Builtin::Endpoint));
    found.map_or("", |collection| &collection.name)
}

fn responses(
    connection: &Connection,
    schema: &Schema,
    cleanup: &mut Cleanup,
) -> Result<Slice, Error> {
    let mut slice = Slice::default();
    let mut select = connection.prepare_cached(RESPONSES)?;
    let bound = params![cleanup.after, SLICE_ROWS, endpoints(schema), CREATED, UPDATED];
    let mut rows = select.query(bound)?;
    while let (false, Some(row)) = (slice.is_full(), rows.next()?) {
        let number = row.get(0)?;
        let shown: Option<String> = row.get(5)?;
        let text: Option<String> = row.get(3)?;
        slice.rows += 1;
        slice.bytes += [&shown, &text].into_iter().flatten().map(String::len).sum::<usize>();
        cleanup.after = number;
        // No version is one that no schema knows.
        let version: Option<String> = row.get(if shown.is_some() { 6 } else { 2 })?;
        let version = version.unwrap_or_default();
        if let Some(shown) = &shown {
            let record: String = row.get(7)?;
            let own = params![number, shown, version, record];
            connection.prepare_cached(OWN_TEXT)?.execute(own)?;
            slice.changed += 1;
        }
        let Some(text) = shown.or(text) else { continue };
        let hidden: Option<String> = row.get(4)?;
        let texts = (text.as_str(), hidden.as_deref());
        if let Some((text, hidden)) = cleanup.hide_in_response(&version, row.get(1)?, texts) {
            connection.prepare_cached(HIDE)?.execute(params![number, text, hidden])?;
            slice.changed += 1;
        }
    }
    Ok(slice.end())
}

fn events(connection: &Connection, schema: &Schema, cleanup: &mut Cleanup) -> Result<Slice, Error> {
    let endpoints = endpoints(schema);
    let tables = SqliteTables { connection, schema, tables: Vec::new() };
    let mut slice = Slice::default();
    let mut select = connection.prepare_cached(EVENTS)?;
    let mut rows = select.query(params![cleanup.after, SLICE_ROWS])?;
    while let (false, Some(row)) = (slice.is_full(), rows.next()?) {
        let (seq, collection): (i64, String) = (row.get(0)?, row.get(1)?);
        slice.rows += 1;
        cleanup.after = seq;
        if !cleanup.concerns(&collection, endpoints) {
            continue;
        }
        let version: String = row.get(2)?;
        let (object, previous, hidden) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let mut event = EventTexts { seq, collection, object, previous, hidden };
        slice.bytes += event.bytes();
        if cleanup.hide_in_event(&version, endpoints, &mut event) {
            tables.set_event(&version, &event)?;
            slice.changed += 1;
        }
    }
    Ok(slice.end())
}

/// Fills the states of one collection, by the order of their names.
fn states(
    connection: &Connection,
    schema: &Schema,
    cleanup: &mut Cleanup,
    stored: &mut Stored,
) -> Result<Slice, Error> {
    let numbered = schema.collections.iter().enumerate();
    let with_states = numbered.filter(|(_, one)| one.states.is_some() && !one.is_view());
    let left = with_states.filter(|(_, one)| one.name >= cleanup.collection);
    let Some((ix, collection)) = left.min_by_key(|(_, one)| &one.name) else {
        return Ok(Slice { is_last: true, ..Slice::default() });
    };
    if collection.name != cleanup.collection {
        cleanup.collection.clone_from(&collection.name);
        (cleanup.after, cleanup.filled) = (0, false);
    }
    let tables = SqliteTables { connection, schema, tables: layout::tables(schema, stored) };
    let mut slice = fill_slice(&tables, ix, cleanup)?;
    if slice.changed > 0 && !cleanup.filled {
        cleanup.filled = true;
        note_rewrite(connection, stored, &collection.name)?;
    }
    if slice.is_last {
        if cleanup.filled && searches_states(collection) {
            tables.rebuild_search(ix)?;
        }
        // The name after this one: no name contains the character.
        cleanup.collection.push('\0');
        slice.is_last = false;
    }
    Ok(slice)
}

fn fill_slice(
    tables: &SqliteTables<'_>,
    ix: CollectionIx,
    cleanup: &mut Cleanup,
) -> Result<Slice, Error> {
    let mut slice = Slice::default();
    let mut select = tables.connection.prepare(&format!(
        "SELECT n, scope, id, body, hidden FROM {} WHERE n > ?1 ORDER BY n LIMIT ?2",
        tables.tables[ix].name
    ))?;
    let mut rows = select.query(params![cleanup.after, SLICE_ROWS])?;
    while let (false, Some(row)) = (slice.is_full(), rows.next()?) {
        let (number, scope, id) = (row.get(0)?, Scope(row.get(1)?), row.get(2)?);
        let (body, hidden): (String, Option<String>) = (row.get(3)?, row.get(4)?);
        slice.rows += 1;
        slice.bytes += body.len() + hidden.as_ref().map_or(0, String::len);
        cleanup.after = number;
        let row = Row { number, scope, id, body, hidden };
        // Most records have no null: they need not be parsed.
        if row.body.contains("null") && fill_row(tables, tables.schema, ix, &row)? {
            slice.changed += 1;
        }
    }
    Ok(slice.end())
}

/// Notes that rows of a collection changed without a new version of the records: entity tags and
/// cursors of the old ones do not hold.
fn note_rewrite(connection: &Connection, stored: &mut Stored, name: &str) -> Result<(), Error> {
    let found = stored.collections.iter_mut().find(|collection| collection.name == name);
    if let Some(collection) = found {
        collection.shape += 1;
        collection.rewrites += 1;
    }
    let text = serde_json::to_string(stored).map_err(|error| Error::Failed(Box::new(error)))?;
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?1)", [text])?;
    Ok(())
}
