//! The end of events: those that are too old go.

use super::shared::Shared;
use super::{outbox, search, views};
use crate::{Error, Expired, SkippedRange};
use model::{Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A sweep that lasts longer, since events become old as fast as they go, notes skipped ranges anew
/// after this: whoever reads the notes sees when it happened.
const SWEEP: Duration = Duration::from_secs(3600);

/// The log is in order of time, so a moment is found by halving.
const OLDEST: &str = "SELECT seq FROM log ORDER BY seq LIMIT 1";
const AT: &str = "SELECT seq, created FROM log WHERE seq >= ?1 ORDER BY seq LIMIT 1";
const LAST: &str =
    "SELECT max(seq) FROM (SELECT seq FROM log WHERE seq < ?1 ORDER BY seq LIMIT ?2)";

/// Sequence of the newest event before a moment; 0 if there is none.
pub fn before(connection: &Connection, moment: Timestamp) -> Result<i64, Error> {
    let (newest, time) = super::log::newest(connection)?;
    if time < moment.0 {
        return Ok(newest);
    }
    let oldest: Option<i64> =
        connection.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    let Some(oldest) = oldest else { return Ok(0) };
    // Events at or after `high` are not before the moment; those before `low` are.
    let (mut low, mut high) = (oldest, newest);
    let mut statement = connection.prepare_cached(AT)?;
    while low < high {
        let middle = low + (high - low) / 2;
        let (seq, created): (i64, i64) =
            statement.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))?;
        match created < moment.0 {
            true => low = seq + 1,
            false => high = middle,
        }
    }
    Ok(low - 1)
}

/// The oldest event that is kept; 0 in an empty log.
pub fn oldest(connection: &Connection) -> Result<i64, rusqlite::Error> {
    let found = connection.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(0))
}

/// What may be removed.
pub struct Expiry {
    pub moment: Timestamp,
    /// From before this also what some endpoint has not been delivered.
    pub backlog: Timestamp,
    pub max: usize,
    /// The first event that some endpoint is still to be delivered.
    pub needed: i64,
}

/// What one sweep over the log has skipped: slices follow one another until nothing is left to
/// remove, and each endpoint has one note for all of them.
pub struct Sweep {
    began: Instant,
    /// By the row numbers of endpoints.
    notes: HashMap<i64, Note>,
}

/// A delivery that stands for events which were not delivered. Its event is the last of them,
/// negative.
#[derive(Clone)]
struct Note {
    number: i64,
    id: String,
    first: i64,
    last: i64,
    created: Timestamp,
}

impl Sweep {
    pub fn new() -> Sweep {
        Sweep { began: Instant::now(), notes: HashMap::new() }
    }

    /// To be called after a slice that is durable.
    pub fn went_on(&mut self, removed: usize) {
        if removed == 0 || self.began.elapsed() > SWEEP {
            *self = Sweep::new();
        }
    }
}

/// Removes events from before a moment. The newest one stays whatever its age: the sequence goes on
/// from it. What the search indexes have not read of the others they read now: on a full disk they
/// could not before, and the pages of the events are what they need for it. Returns how far the
/// indexes have come by that.
pub fn expire(
    connection: &Connection,
    shared: &Shared,
    expiry: &Expiry,
    sweep: &mut Sweep,
) -> Result<(Expired, Option<i64>), Error> {
    let newest = super::log::newest(connection)?.0;
    let old = before(connection, expiry.moment)?.saturating_add(1);
    let overdue = before(connection, expiry.backlog)?.saturating_add(1);
    let end = old.min(newest).min(overdue.max(expiry.needed));
    let last: Option<i64> = connection
        .prepare_cached(LAST)?
        .query_row(params![end, expiry.max as i64], |row| row.get(0))?;
    let Some(last) = last else { return Ok((Expired::default(), None)) };
    let unread = match search::lag(shared) > 0 {
        true => Some(search::unread(connection, shared, last)?).filter(|unread| !unread.is_none()),
        false => None,
    };
    // No more than what the indexes have read.
    let last = unread.as_ref().map_or(last, |unread| last.min(unread.upto));
    let skipped = match last >= expiry.needed {
        true => skip(connection, shared, last, sweep)?,
        false => Vec::new(),
    };
    for sql in [
        "DELETE FROM attempts WHERE delivery IN (SELECT n FROM deliveries WHERE event > 0 AND \
         event <= ?1)",
        "DELETE FROM deliveries WHERE event > 0 AND event <= ?1",
    ] {
        connection.prepare_cached(sql)?.execute([last])?;
    }
    // Skipped ranges have no event that could take them along.
    for sql in [
        "DELETE FROM attempts WHERE delivery IN (SELECT n FROM deliveries WHERE event < 0 AND \
         created < ?1)",
        "DELETE FROM deliveries WHERE event < 0 AND created < ?1",
    ] {
        connection.prepare_cached(sql)?.execute([expiry.moment.0])?;
    }
    let events = connection.prepare_cached("DELETE FROM log WHERE seq <= ?1")?.execute([last])?;
    if let Some(unread) = &unread {
        search::index(connection, shared, unread)?;
    }
    Ok((Expired { events, skipped }, unread.map(|unread| unread.upto)))
}

/// The first event that some enabled endpoint is still to be delivered, or to be delivered again.
/// Looks at every endpoint and every retry: not to be asked for each slice.
pub fn needed(connection: &Connection, shared: &Shared) -> Result<i64, Error> {
    let sql = format!(
        "SELECT min(seq) FROM (SELECT min({0}) + 1 AS seq FROM {1} w WHERE w.f_status = 'enabled' \
         UNION ALL SELECT min(d.event) FROM deliveries d WHERE d.status = 0 AND d.event > 0 AND \
         EXISTS (SELECT 1 FROM {1} e WHERE e.n = d.endpoint AND e.f_status = 'enabled'))",
        views::POSITION_OF_ENDPOINT,
        views::endpoints_table(&shared.schema)
    );
    let first: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    Ok(first.unwrap_or(i64::MAX))
}

/// Notes for each enabled endpoint that it will not be delivered events up to `last`, and moves its
/// position there.
fn skip(
    connection: &Connection,
    shared: &Shared,
    last: i64,
    sweep: &mut Sweep,
) -> Result<Vec<SkippedRange>, Error> {
    let sql = format!(
        "SELECT w.n, w.id, w.scope, min({0} + 1, coalesce((SELECT min(event) FROM deliveries d \
         WHERE d.endpoint = w.n AND d.status = 0 AND d.event > 0), ?1 + 1)) AS first FROM {1} w \
         WHERE w.f_status = 'enabled' AND first <= ?1 AND EXISTS (SELECT 1 FROM log e WHERE \
         e.scope = w.scope AND e.seq >= first AND e.seq <= ?1)",
        views::POSITION_OF_ENDPOINT,
        views::endpoints_table(&shared.schema)
    );
    let until: i64 = connection
        .prepare_cached("SELECT created FROM log WHERE seq = ?1")?
        .query_row([last], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_map([last], |row| {
        let range = SkippedRange {
            endpoint: row.get(1)?,
            scope: Scope(row.get(2)?),
            first: row.get(3)?,
            last,
            until: Timestamp(until),
        };
        Ok((row.get(0)?, range))
    })?;
    let found = found.collect::<Result<Vec<(i64, SkippedRange)>, _>>()?;
    let now = (shared.clock)();
    let mut skipped = Vec::with_capacity(found.len());
    for (endpoint, mut range) in found {
        let note = note_skipped(connection, endpoint, &range, sweep.notes.get(&endpoint), now)?;
        outbox::pass(connection, endpoint, last)?;
        range.first = note.first;
        sweep.notes.insert(endpoint, note);
        skipped.push(range);
    }
    Ok(skipped)
}

/// Extends the note of this sweep, or makes one.
fn note_skipped(
    connection: &Connection,
    endpoint: i64,
    range: &SkippedRange,
    known: Option<&Note>,
    now: Timestamp,
) -> Result<Note, rusqlite::Error> {
    let note = match known {
        Some(known) => extend(connection, endpoint, range, known, now)?,
        None => None,
    };
    let note = match note {
        Some(note) => note,
        None => begin(connection, endpoint, range, now)?,
    };
    let message = format!(
        "Events up to number {} were removed from the log before they could be delivered: \
         `events.max_backlog` was over.",
        range.last
    );
    let id = &note.id;
    let attempt = serde_json::json!({
        "id": format!("att_{}_1", id.trim_start_matches("dlv_")), "object": "attempt",
        "delivery": id, "number": 1, "trigger": "event", "status": null, "error": "expired",
        "error_message": message, "latency": null, "remote_address": null,
        "response_headers": null, "response_body": null, "next_attempt_at": null,
        "next_attempt_reason": null, "created_at": note.created.to_iso(),
        "updated_at": now.to_iso(),
    });
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO attempts (delivery, n, created, body) VALUES (?1, 1, ?2, ?3)",
        )?
        .execute(params![note.number, note.created.0, attempt.to_string()])?;
    Ok(note)
}

/// `None` when the note is not there any more: its transaction was rolled back, or its time is
/// over.
fn extend(
    connection: &Connection,
    endpoint: i64,
    range: &SkippedRange,
    known: &Note,
    now: Timestamp,
) -> Result<Option<Note>, rusqlite::Error> {
    let extended = connection
        .prepare_cached(
            "UPDATE deliveries SET event = ?1, updated = max(updated + 1, ?2) WHERE n = ?3 AND \
             event = ?4 AND endpoint = ?5 AND id = ?6",
        )?
        .execute(params![-range.last, now.0, known.number, -known.last, endpoint, known.id])?;
    let first = known.first.min(range.first);
    Ok((extended == 1).then(|| Note { first, last: range.last, ..known.clone() }))
}

fn begin(
    connection: &Connection,
    endpoint: i64,
    range: &SkippedRange,
    now: Timestamp,
) -> Result<Note, rusqlite::Error> {
    let sql = "INSERT INTO deliveries (id, scope, event, endpoint, status, attempts, next, \
               manual, created, updated) VALUES ('dlv_' || lower(hex(randomblob(16))), ?1, ?2, \
               ?3, 3, 1, NULL, 0, ?4, ?4) ON CONFLICT (event, endpoint) DO UPDATE SET updated = \
               excluded.updated RETURNING n, id, created";
    let SkippedRange { first, last, .. } = *range;
    let mut insert = connection.prepare_cached(sql)?;
    insert.query_row(params![range.scope.0, -last, endpoint, now.0], |row| {
        let (number, id, created) = (row.get(0)?, row.get(1)?, Timestamp(row.get(2)?));
        Ok(Note { number, id, first, last, created })
    })
}
