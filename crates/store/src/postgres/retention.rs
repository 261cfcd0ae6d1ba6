//! Retention: removes events that are too old, with their deliveries and tombstones. One node at a
//! time does it.

use super::connect::{Cells, Client};
use super::param::params;
use super::shared::Shared;
use super::{log, outbox, views};
use crate::writer::{Expiry, Slice};
use crate::{Error, SkippedRange};
use model::{Schema, Scope, Timestamp};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A sweep that lasts longer, since events become old as fast as they are removed, starts new notes
/// of skipped ranges after this: the notes show when it happened.
const SWEEP: Duration = Duration::from_secs(3600);

const OLDEST: &str = "SELECT seq FROM log ORDER BY seq LIMIT 1";
/// The log is in order of time, so a moment is found by halving, in one round trip. Events at or
/// after `high` are not before the moment; those before `low` are.
const BEFORE: &str = "WITH RECURSIVE h (low, high) AS ( \
    SELECT (SELECT min(seq) FROM log), (SELECT max(seq) FROM log) \
    UNION ALL SELECT CASE WHEN e.created < $1 THEN e.seq + 1 ELSE h.low END, \
    CASE WHEN e.created < $1 THEN h.high ELSE h.low + (h.high - h.low) / 2 END \
    FROM h CROSS JOIN LATERAL (SELECT seq, created FROM log \
    WHERE seq >= h.low + (h.high - h.low) / 2 ORDER BY seq LIMIT 1) e WHERE h.low < h.high) \
    SELECT low - 1 FROM h ORDER BY high - low LIMIT 1";
const LAST: &str =
    "SELECT max(seq) FROM (SELECT seq FROM log WHERE seq < $1 ORDER BY seq LIMIT $2) l";

/// The first event that the endpoint `w` is to be delivered again.
const FIRST_RETRY: &str = "(SELECT min(d.event) FROM deliveries d \
    WHERE d.endpoint = w.n AND d.status = 0 AND d.event > 0)";

/// Tombstones are removed by their sequence.
const FORGET: &str = "DELETE FROM tombstones WHERE (id, collection) IN \
    (SELECT id, collection FROM tombstones WHERE seq < $1 ORDER BY seq LIMIT $2)";

/// Removes tombstones whose deletion the log has forgotten, `max` at most.
pub async fn forget_deleted(client: &Client, oldest: i64, max: usize) -> Result<(), Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    client.execute(FORGET, params![oldest, max]).await.map(drop)
}

/// Sequence of the newest event before a moment; 0 if there is none.
pub async fn before(client: &Client, moment: Timestamp) -> Result<i64, Error> {
    let (newest, time) = log::newest(client).await?;
    if time < moment.0 {
        return Ok(newest);
    }
    // Null in an empty log.
    let found = client.row(BEFORE, params![moment.0]).await?;
    let last: Option<i64> = found.map_or(Ok(None), |row| row.cell(0))?;
    Ok(last.unwrap_or(0))
}

/// The oldest event that is kept; 0 in an empty log.
pub async fn oldest(client: &Client) -> Result<i64, Error> {
    client.row(OLDEST, &[]).await?.map_or(Ok(0), |row| row.cell(0))
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
/// from it.
pub async fn expire(
    client: &Client,
    shared: &Shared,
    expiry: &Expiry,
    sweep: &mut Sweep,
) -> Result<Slice, Error> {
    let newest = log::newest(client).await?.0;
    let old = before(client, expiry.moment).await?.saturating_add(1).min(newest);
    let mut slice = Slice { needed: expiry.needed, ..Slice::default() };
    let oldest = oldest(client).await?;
    if oldest >= old {
        return Ok(slice);
    }
    let needed = match expiry.needed {
        Some(needed) => needed,
        None => needed(client, shared).await?,
    };
    slice.needed = Some(needed);
    let overdue = before(client, expiry.backlog).await?.saturating_add(1);
    let values = params![old.min(overdue.max(needed)), expiry.max as i64];
    let last: Option<i64> = client.row(LAST, values).await?.map_or(Ok(None), |row| row.cell(0))?;
    let Some(last) = last else { return Ok(slice) };
    let last = fitting(client, (oldest, last), expiry.max).await?;
    if last >= needed {
        slice.expired.skipped = skip(client, shared, last, sweep).await?;
    }
    let left = remove_deliveries(client, last, expiry.max).await?;
    remove_notes(client, expiry.moment, expiry.max).await?;
    let last = left.map_or(last, |left| left - 1);
    let events = client.execute("DELETE FROM log WHERE seq <= $1", params![last]).await?;
    let events = usize::try_from(events).unwrap_or(usize::MAX);
    slice.unfinished = left.is_some();
    slice.full = slice.unfinished || events >= expiry.max;
    slice.expired.events = events;
    Ok(slice)
}

/// The last event up to which a slice has room for everything that belongs to the events. If there
/// is not enough for the first event of all, that is it: it is removed in parts.
async fn fitting(client: &Client, (oldest, last): (i64, i64), rows: usize) -> Result<i64, Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let sql = "SELECT event, 1 + attempts FROM deliveries WHERE event > 0 AND event <= $1 \
               ORDER BY event LIMIT $2";
    let mut sum = 0_i64;
    for row in client.query(sql, params![last, rows.saturating_add(1)]).await? {
        let (event, many): (i64, i64) = (row.cell(0)?, row.cell(1)?);
        sum = sum.saturating_add(many);
        if sum > rows {
            let sql = "SELECT max(seq) FROM log WHERE seq < $1";
            let row = client.row(sql, params![event]).await?;
            let before: Option<i64> = row.map_or(Ok(None), |row| row.cell(0))?;
            return Ok(before.unwrap_or(oldest));
        }
    }
    Ok(last)
}

/// Removes deliveries of events up to `last` with their attempts, the first ones first and so many
/// rows at most. Returns the event of the first one that is left.
async fn remove_deliveries(client: &Client, last: i64, rows: usize) -> Result<Option<i64>, Error> {
    let sql = "SELECT d.n, d.event, (SELECT count(*) FROM attempts a WHERE a.delivery = d.n) \
               FROM deliveries d WHERE d.event > 0 AND d.event <= $1 ORDER BY d.event LIMIT $2";
    let mut room = i64::try_from(rows).unwrap_or(i64::MAX);
    let (mut gone, mut left) = (Vec::new(), None);
    for row in client.query(sql, params![last, room.saturating_add(1)]).await? {
        let (delivery, attempts): (i64, i64) = (row.cell(0)?, row.cell(2)?);
        if attempts >= room {
            remove_attempts(client, delivery, room).await?;
            left = Some(row.cell(1)?);
            break;
        }
        gone.push(delivery);
        room -= attempts + 1;
    }
    remove_whole(client, gone).await?;
    Ok(left)
}

async fn remove_whole(client: &Client, deliveries: Vec<i64>) -> Result<(), Error> {
    if deliveries.is_empty() {
        return Ok(());
    }
    for sql in [
        "DELETE FROM attempts WHERE delivery = ANY($1)",
        "DELETE FROM deliveries WHERE n = ANY($1)",
    ] {
        client.execute(sql, params![deliveries.clone()]).await?;
    }
    Ok(())
}

/// So many at most.
async fn remove_attempts(client: &Client, delivery: i64, max: i64) -> Result<(), Error> {
    let sql = "DELETE FROM attempts WHERE delivery = $1 AND n IN (SELECT n FROM attempts \
               WHERE delivery = $1 ORDER BY n LIMIT $2)";
    client.execute(sql, params![delivery, max]).await.map(drop)
}

/// Skipped ranges have no event that could take them along. The notes of the first events are the
/// oldest ones, but for those of one sweep.
async fn remove_notes(client: &Client, moment: Timestamp, max: usize) -> Result<(), Error> {
    let sql = "SELECT n FROM (SELECT n, created FROM deliveries WHERE event < 0 \
               ORDER BY event DESC LIMIT $2) d WHERE created < $1";
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = client.query(sql, params![moment.0, max]).await?;
    let notes = rows.iter().map(|row| row.cell(0)).collect::<Result<Vec<i64>, _>>()?;
    remove_whole(client, notes).await
}

/// The first event that some enabled endpoint is still to be delivered, or to be delivered again.
/// Looks at every endpoint: not to be asked for each slice.
pub async fn needed(client: &Client, shared: &Shared) -> Result<i64, Error> {
    let row = client.row(&needed_sql(&shared.schema), &[]).await?;
    let first: Option<i64> = row.map_or(Ok(None), |row| row.cell(0))?;
    Ok(first.unwrap_or(i64::MAX))
}

/// The first retry of each endpoint is found by the index: most deliveries are none.
fn needed_sql(schema: &Schema) -> String {
    format!(
        "SELECT min(least({} + 1, {FIRST_RETRY})) FROM {} w WHERE w.f_status = 'enabled'",
        views::POSITION_OF_ENDPOINT,
        views::endpoints_table(schema)
    )
}

/// Notes for each enabled endpoint that it will not be delivered events up to `last`, and moves its
/// position there.
async fn skip(
    client: &Client,
    shared: &Shared,
    last: i64,
    sweep: &mut Sweep,
) -> Result<Vec<SkippedRange>, Error> {
    let sql = format!(
        "SELECT w.n, w.id, w.scope, w.first FROM (SELECT w.n, w.id, w.scope, least({0} + 1, \
         {FIRST_RETRY}) AS first FROM {1} w WHERE w.f_status = 'enabled') w \
         WHERE w.first <= $1 AND EXISTS (SELECT 1 FROM log e WHERE e.scope = w.scope AND \
         e.seq >= w.first AND e.seq <= $1) ORDER BY w.n",
        views::POSITION_OF_ENDPOINT,
        views::endpoints_table(&shared.schema)
    );
    let until = "SELECT created FROM log WHERE seq = $1";
    let until = client.row(until, params![last]).await?;
    let until: i64 = until.map_or(Ok(0), |row| row.cell(0))?;
    let now = (shared.clock)();
    let mut skipped = Vec::new();
    for row in client.query(&sql, params![last]).await? {
        let endpoint = row.cell(0)?;
        let mut range = SkippedRange {
            endpoint: row.cell(1)?,
            scope: Scope(row.cell(2)?),
            first: row.cell(3)?,
            last,
            until: Timestamp(until),
        };
        let known = sweep.notes.get(&endpoint).cloned();
        let note = note_skipped(client, endpoint, &range, known.as_ref(), now).await?;
        outbox::pass(client, endpoint, last).await?;
        range.first = note.first;
        sweep.notes.insert(endpoint, note);
        skipped.push(range);
    }
    Ok(skipped)
}

/// Extends the note of this sweep, or makes one.
async fn note_skipped(
    client: &Client,
    endpoint: i64,
    range: &SkippedRange,
    known: Option<&Note>,
    now: Timestamp,
) -> Result<Note, Error> {
    let note = match known {
        Some(known) => extend(client, endpoint, range, known, now).await?,
        None => None,
    };
    let note = match note {
        Some(note) => note,
        None => begin(client, endpoint, range, now).await?,
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
    let sql = "INSERT INTO attempts (delivery, n, created, body) VALUES ($1, 1, $2, $3) \
               ON CONFLICT (delivery, n) DO UPDATE SET created = excluded.created, \
               body = excluded.body";
    client.execute(sql, params![note.number, note.created.0, attempt.to_string()]).await?;
    Ok(note)
}

/// `None` when the note is not there any more: its transaction was rolled back, or its time is
/// over.
async fn extend(
    client: &Client,
    endpoint: i64,
    range: &SkippedRange,
    known: &Note,
    now: Timestamp,
) -> Result<Option<Note>, Error> {
    let sql = "UPDATE deliveries SET event = $1, updated = greatest(updated + 1, $2) \
               WHERE n = $3 AND event = $4 AND endpoint = $5 AND id = $6";
    let values = params![-range.last, now.0, known.number, -known.last, endpoint, &known.id];
    let extended = client.execute(sql, values).await?;
    let first = known.first.min(range.first);
    Ok((extended == 1).then(|| Note { first, last: range.last, ..known.clone() }))
}

async fn begin(
    client: &Client,
    endpoint: i64,
    range: &SkippedRange,
    now: Timestamp,
) -> Result<Note, Error> {
    let sql = "INSERT INTO deliveries (id, scope, event, endpoint, status, attempts, next, \
               manual, created, updated) VALUES ('dlv_' || replace(gen_random_uuid()::text, '-', \
               ''), $1, $2, $3, 3, 1, NULL, 0, $4, $4) ON CONFLICT (event, endpoint) DO UPDATE \
               SET updated = excluded.updated RETURNING n, id, created";
    let SkippedRange { first, last, .. } = *range;
    let row = client.row(sql, params![range.scope.0, -last, endpoint, now.0]).await?;
    let row = row.ok_or_else(|| Error::Failed("no row was returned".into()))?;
    let (number, id, created) = (row.cell(0)?, row.cell(1)?, Timestamp(row.cell(2)?));
    Ok(Note { number, id, first, last, created })
}
