//! Retention: removes events that are too old, with their deliveries and tombstones.

use super::shared::Shared;
use super::{outbox, search, views};
use crate::writer::{Expiry, Slice};
use crate::{Error, SkippedRange};
use model::{Schema, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A sweep that lasts longer, since events become old as fast as they are removed, starts new notes
/// of skipped ranges after this: the notes show when it happened.
const SWEEP: Duration = Duration::from_secs(3600);

/// The log is in order of time, so a moment is found by halving.
const OLDEST: &str = "SELECT seq FROM log ORDER BY seq LIMIT 1";
const AT: &str = "SELECT seq, created FROM log WHERE seq >= ?1 ORDER BY seq LIMIT 1";
const LAST: &str =
    "SELECT max(seq) FROM (SELECT seq FROM log WHERE seq < ?1 ORDER BY seq LIMIT ?2)";

/// The first event that the endpoint `w` is to be delivered again.
const FIRST_RETRY: &str = "(SELECT min(d.event) FROM deliveries d INDEXED BY deliveries_waiting \
    WHERE d.endpoint = w.n AND d.status = 0 AND d.event > 0)";

/// Tombstones are removed by their sequence.
pub const INDEX: &str = "CREATE INDEX IF NOT EXISTS tombstones_seq ON tombstones (seq);";
const FORGET: &str = "DELETE FROM tombstones WHERE (id, collection) IN \
    (SELECT id, collection FROM tombstones WHERE seq < ?1 ORDER BY seq LIMIT ?2)";

/// Removes tombstones whose deletion the log has forgotten, `max` at most; says how many. Search
/// indexes have read the log further than that.
pub fn forget_deleted(
    connection: &Connection,
    oldest: i64,
    max: usize,
) -> Result<usize, rusqlite::Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    connection.prepare_cached(FORGET)?.execute([oldest, max])
}

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

/// What one sweep over the log has skipped: slices follow one another until nothing is left to
/// remove, and each endpoint has one note for all of them.
pub struct Sweep {
    began: Instant,
    /// By the row numbers of endpoints.
    notes: HashMap<i64, Note>,
}

/// A delivery in place of events that were not delivered. Its event is the negated sequence of the
/// last one.
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
    pub fn went_on(&mut self, removed: bool) {
        if !removed || self.began.elapsed() > SWEEP {
            *self = Sweep::new();
        }
    }
}

/// Removes events from before a moment. The newest one stays whatever its age: the sequence goes on
/// from it. What the search indexes have not read of the others they read now: on a full disk they
/// could not before, and the pages of the events are what they need for it.
pub fn expire(
    connection: &Connection,
    shared: &Shared,
    expiry: &Expiry,
    sweep: &mut Sweep,
) -> Result<Slice, Error> {
    let newest = super::log::newest(connection)?.0;
    let old = before(connection, expiry.moment)?.saturating_add(1).min(newest);
    let mut slice = Slice { needed: expiry.needed, ..Slice::default() };
    let oldest = oldest(connection)?;
    if oldest >= old {
        return Ok(slice);
    }
    let needed = match expiry.needed {
        Some(needed) => needed,
        None => needed(connection, shared)?,
    };
    slice.needed = Some(needed);
    let overdue = before(connection, expiry.backlog)?.saturating_add(1);
    let last: Option<i64> = connection
        .prepare_cached(LAST)?
        .query_row(params![old.min(overdue.max(needed)), expiry.max as i64], |row| row.get(0))?;
    let Some(last) = last else { return Ok(slice) };
    let unread = match shared.state.search_lag() > 0 {
        true => Some(search::unread(connection, shared, last)?).filter(|unread| !unread.is_none()),
        false => None,
    };
    // No more than what the indexes have read.
    let last = unread.as_ref().map_or(last, |unread| last.min(unread.upto));
    let last = fitting(connection, (oldest, last), expiry.max)?;
    if last >= needed {
        slice.expired.skipped = skip(connection, shared, last, sweep)?;
    }
    let left = remove_deliveries(connection, last, expiry.max)?;
    remove_notes(connection, expiry.moment, expiry.max)?;
    let last = left.map_or(last, |left| left - 1);
    let mut remove = connection.prepare_cached("DELETE FROM log WHERE seq <= ?1")?;
    let mut events = 0;
    if let Some(unread) = unread {
        slice.searched = Some(search::index(connection, shared, unread.until(last), |seq| {
            events += remove.execute([seq])?;
            Ok(())
        })?);
    }
    events += remove.execute([slice.searched.map_or(last, |searched| last.min(searched))])?;
    slice.unfinished = left.is_some() || slice.searched.is_some_and(|searched| searched < last);
    slice.full = slice.unfinished || events >= expiry.max;
    slice.expired.events = events;
    Ok(slice)
}

/// The last event up to which a slice has room for everything that belongs to the events. If there
/// is not enough for the first event of all, that is it: it is removed in parts.
fn fitting(
    connection: &Connection,
    (oldest, last): (i64, i64),
    rows: usize,
) -> Result<i64, rusqlite::Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let sql = "SELECT event, 1 + attempts FROM deliveries WHERE event > 0 AND event <= ?1 \
               ORDER BY event LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([last, rows.saturating_add(1)])?;
    let mut sum = 0_i64;
    while let Some(row) = found.next()? {
        let (event, many): (i64, i64) = (row.get(0)?, row.get(1)?);
        sum = sum.saturating_add(many);
        if sum > rows {
            let sql = "SELECT max(seq) FROM log WHERE seq < ?1";
            let before: Option<i64> =
                connection.prepare_cached(sql)?.query_row([event], |row| row.get(0))?;
            return Ok(before.unwrap_or(oldest));
        }
    }
    Ok(last)
}

/// Removes deliveries of events up to `last` with their attempts, the first ones first and so many
/// rows at most. Returns the event of the first one that is left.
fn remove_deliveries(
    connection: &Connection,
    last: i64,
    rows: usize,
) -> Result<Option<i64>, rusqlite::Error> {
    let sql = "SELECT n, event FROM deliveries WHERE event > 0 AND event <= ?1 ORDER BY event \
               LIMIT ?2";
    let mut room = i64::try_from(rows).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map([last, room.saturating_add(1)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    for (delivery, event) in found.collect::<Result<Vec<_>, _>>()? {
        room -= remove_attempts(connection, delivery, room)?;
        if room <= 0 {
            return Ok(Some(event));
        }
        connection.prepare_cached("DELETE FROM deliveries WHERE n = ?1")?.execute([delivery])?;
        room -= 1;
    }
    Ok(None)
}

/// So many at most; says how many.
fn remove_attempts(
    connection: &Connection,
    delivery: i64,
    max: i64,
) -> Result<i64, rusqlite::Error> {
    let sql = "DELETE FROM attempts WHERE delivery = ?1 AND n IN (SELECT n FROM attempts \
               WHERE delivery = ?1 ORDER BY n LIMIT ?2)";
    let gone = connection.prepare_cached(sql)?.execute([delivery, max])?;
    Ok(i64::try_from(gone).unwrap_or(i64::MAX))
}

/// Skipped ranges have no event that could take them along. The notes of the first events are the
/// oldest ones, but for those of one sweep.
fn remove_notes(
    connection: &Connection,
    moment: Timestamp,
    max: usize,
) -> Result<(), rusqlite::Error> {
    let sql = "SELECT n FROM (SELECT n, created FROM deliveries WHERE event < 0 \
               ORDER BY event DESC LIMIT ?2) WHERE created < ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let found = statement.query_map([moment.0, max], |row| row.get(0))?;
    for note in found.collect::<Result<Vec<i64>, _>>()? {
        // A note has one attempt.
        remove_attempts(connection, note, max)?;
        connection.prepare_cached("DELETE FROM deliveries WHERE n = ?1")?.execute([note])?;
    }
    Ok(())
}

/// The first event that some enabled endpoint is still to be delivered, or to be delivered again.
/// Looks at every endpoint: not to be asked for each slice.
pub fn needed(connection: &Connection, shared: &Shared) -> Result<i64, Error> {
    let sql = needed_sql(&shared.schema);
    let first: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    Ok(first.unwrap_or(i64::MAX))
}

/// The first retry of each endpoint is found by the index: most deliveries are none.
fn needed_sql(schema: &Schema) -> String {
    format!(
        "SELECT min(min({} + 1, coalesce({FIRST_RETRY}, {}))) FROM {} w WHERE \
         w.f_status = 'enabled'",
        views::POSITION_OF_ENDPOINT,
        i64::MAX,
        views::endpoints_table(schema)
    )
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
        "SELECT w.n, w.id, w.scope, min({0} + 1, coalesce({FIRST_RETRY}, ?1 + 1)) AS first \
         FROM {1} w WHERE w.f_status = 'enabled' AND first <= ?1 AND EXISTS (SELECT 1 FROM log e \
         WHERE e.scope = w.scope AND e.seq >= first AND e.seq <= ?1)",
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

#[cfg(test)]
mod tests {
    use super::super::testbed::Bed;
    use super::super::{layout, outbox};
    use super::*;

    #[test]
    fn an_event_with_many_deliveries_goes_in_parts() {
        const ROWS: usize = 100;
        let connection = Connection::open_in_memory().unwrap();
        for sql in [layout::BASE, outbox::TABLES] {
            connection.execute_batch(sql).unwrap();
        }
        connection
            .execute_batch(
                "INSERT INTO log (seq, id, scope, type, created, collection, record, api_version, \
                 object) SELECT value, value, 20, 't', 1, 'books', 'b', 'v', '{}' FROM \
                 json_each('[5, 6, 7]');
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 300)
                 INSERT INTO deliveries (n, id, scope, event, endpoint, status, attempts, manual, \
                 created, updated) SELECT i, i, 20, 6, i, 1, iif(i = 9, 250, 2), 0, 1, 1 FROM c;
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 250)
                 INSERT INTO attempts SELECT d.n, i, 1, '{}' FROM deliveries d JOIN c ON \
                 i <= d.attempts;",
            )
            .unwrap();
        let rows = "SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM attempts)";
        let rows = || connection.query_row(rows, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(fitting(&connection, (5, 7), ROWS).unwrap(), 5, "before the large one");
        assert_eq!(fitting(&connection, (5, 7), 5_000).unwrap(), 7);
        assert_eq!(remove_deliveries(&connection, 5, ROWS).unwrap(), None);
        connection.execute_batch("DELETE FROM log WHERE seq = 5").unwrap();
        assert_eq!(fitting(&connection, (6, 7), ROWS).unwrap(), 6, "the large one, in parts");
        let mut before = rows();
        while let Some(event) = remove_deliveries(&connection, 6, ROWS).unwrap() {
            assert_eq!(event, 6, "it stays");
            let now = rows();
            assert!(now < before && before - now <= ROWS as i64, "{before} to {now}");
            before = now;
        }
        assert_eq!(rows(), 0);
    }

    #[tokio::test]
    async fn needed_events_are_found_without_a_scan_of_all_deliveries() {
        let bed = Bed::new("[collections.books.fields]\ntitle = 'string'\n");
        let shared = &bed.store.shared;
        let connection = Connection::open(&shared.path).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {}", needed_sql(&shared.schema));
        let mut statement = connection.prepare(&sql).unwrap();
        let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let steps = steps.collect::<Result<Vec<_>, _>>().unwrap();
        let walks = steps.iter().filter(|step| step.starts_with("SCAN"));
        let walks: Vec<_> = walks.filter(|step| !step.starts_with("SCAN w")).collect();
        assert!(walks.is_empty(), "{steps:?}");
        let by_index = "SEARCH d USING COVERING INDEX deliveries_waiting (endpoint=? AND event>?)";
        assert!(steps.iter().any(|step| step == by_index), "{steps:?}");
    }
}
