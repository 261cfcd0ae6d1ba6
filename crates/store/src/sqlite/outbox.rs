//! The tables of deliveries: outcomes, positions, retries. The writer writes them in the
//! transactions of everyone's changes; the delivery engine reads them when it starts and when
//! something is due. Knows no rule of delivery.

use super::shared::Shared;
use super::{erasure, layout, log, read};
use crate::cluster::{BUCKET_OF, Bucket};
use crate::commit::Limit;
use crate::outbox::{
    Delivery, EndpointState, EndpointStates, Failures, Outcome, Retries, Retry, Settlement, Status,
};
use crate::{Error, event_bytes, open_replays};
use model::schema::Builtin;
use model::{Collection, CollectionIx, Record, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::time::Duration;

/// Tables that came with format 2. Rows of deliveries are numbered in the order of their first
/// outcome, which is the order of their lists. Every index costs each delivery a microsecond, so
/// there is none by endpoint: such a list looks through the account's newest deliveries.
pub const TABLES: &str = "
CREATE TABLE IF NOT EXISTS deliveries (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, event INTEGER NOT NULL,
  endpoint INTEGER NOT NULL, status INTEGER NOT NULL, attempts INTEGER NOT NULL,
  next INTEGER, manual INTEGER NOT NULL, created INTEGER NOT NULL,
  updated INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS deliveries_id ON deliveries (id);
CREATE UNIQUE INDEX IF NOT EXISTS deliveries_event ON deliveries (event, endpoint);
CREATE INDEX IF NOT EXISTS deliveries_scope ON deliveries (scope);
CREATE INDEX IF NOT EXISTS deliveries_open ON deliveries (scope, status) WHERE status <> 1;
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (endpoint, next) WHERE status = 0;
CREATE INDEX IF NOT EXISTS deliveries_waiting ON deliveries (endpoint, event) WHERE status = 0;
CREATE INDEX IF NOT EXISTS deliveries_scheduled ON deliveries (updated) WHERE status = 0;
CREATE INDEX IF NOT EXISTS deliveries_asked ON deliveries (endpoint, next)
  WHERE status = 0 AND manual > 0;
CREATE TABLE IF NOT EXISTS attempts (
  delivery INTEGER NOT NULL, n INTEGER NOT NULL, created INTEGER NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (delivery, n)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (
  endpoint INTEGER PRIMARY KEY, seq INTEGER NOT NULL, paused INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS endpoint_states (
  endpoint INTEGER PRIMARY KEY, paused INTEGER, failures INTEGER, first_failure INTEGER,
  last_failure INTEGER) STRICT;
";

/// The row of `positions` for every endpoint without a row of its own. Row numbers of
/// endpoints begin with 1.
pub const HEAD: i64 = 0;

/// Outcomes of requests that were in flight at an erasure arrive within this time: attempts end
/// after half a minute, and the rest allows for a store that failed in the meantime.
const ERASED_FOR: Duration = Duration::from_secs(600);

const INSERT: &str = "INSERT INTO deliveries (id, scope, event, endpoint, status, attempts, next, \
    manual, created, updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?8) \
    ON CONFLICT (event, endpoint) DO NOTHING";
const NUMBER: &str = "SELECT n FROM deliveries WHERE event = ?1 AND endpoint = ?2";
/// A delivery that succeeded stays succeeded: a replay that fails, or an attempt that was in flight
/// when another one succeeded, changes nothing. A requested retry makes it pending first, and it
/// stays pending if an attempt that was in flight fails. (`manual` counts the requests.)
const UPDATE: &str = "UPDATE deliveries SET \
    status = iif(status = 1, 1, iif(manual > ?6 AND ?2 <> 1, 0, ?2)), \
    attempts = attempts + ?3, \
    next = iif(status = 1, NULL, iif(manual > ?6 AND ?2 <> 1, next, ?4)), \
    manual = iif(manual > ?6 AND ?2 <> 1, manual, 0), updated = ?5 \
    WHERE n = ?1 AND event = ?7 AND endpoint = ?8";
const FIRST_ATTEMPT: &str =
    "INSERT INTO attempts (delivery, n, created, body) VALUES (?1, 1, ?2, ?3)";
/// Two senders, a replay and the schedule, may count the same attempt; rows are never lost.
const ATTEMPT: &str = "INSERT INTO attempts (delivery, n, created, body) SELECT ?1, \
    coalesce(max(n), 0) + 1, ?2, ?3 FROM attempts WHERE delivery = ?1";
/// Positions never go back: a late report of an earlier one changes nothing.
const POSITION: &str = "INSERT INTO positions (endpoint, seq) VALUES (?1, ?2) \
    ON CONFLICT (endpoint) DO UPDATE SET seq = max(seq, excluded.seq)";
const CAUGHT_UP: &str = "DELETE FROM positions WHERE endpoint = ?1";
const PAUSE: &str = "INSERT INTO endpoint_states (endpoint, paused) VALUES (?1, ?2) \
    ON CONFLICT (endpoint) DO UPDATE SET paused = excluded.paused";
const FAILURES: &str = "INSERT INTO endpoint_states (endpoint, failures, first_failure, \
    last_failure) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (endpoint) DO UPDATE SET \
    failures = excluded.failures, first_failure = excluded.first_failure, \
    last_failure = excluded.last_failure";
const PLACE: &str = "SELECT seq FROM positions WHERE endpoint = ?1";
/// One row, whatever there is of the endpoint. Each part is found by an index.
const ENDPOINT_STATE: &str = "SELECT (SELECT seq FROM positions WHERE endpoint = ?1), \
    (SELECT min(next) FROM deliveries INDEXED BY deliveries_due \
     WHERE endpoint = ?1 AND status = 0), \
    s.paused, s.failures, s.first_failure, s.last_failure \
    FROM (SELECT 1) LEFT JOIN endpoint_states s ON s.endpoint = ?1";
const GONE: &str = "DELETE FROM endpoint_states WHERE endpoint = ?1";
const REQUESTED_RETRIES: &str = "SELECT DISTINCT endpoint FROM deliveries \
    INDEXED BY deliveries_asked WHERE status = 0 AND manual > 0";
/// Removes the response body to an event that was erased while the request was in flight.
const CLEAN_ATTEMPTS: &str = concat!(
    "UPDATE attempts SET body = json_set(body, '$.response_body', NULL) WHERE delivery = \
     (SELECT n FROM deliveries WHERE event = ?1 AND endpoint = ?2) AND json_valid(body) AND EXISTS \
     (SELECT 1 FROM log WHERE seq = ?1 AND (",
    erasure::erases!("log"),
    " OR (json_valid(object) AND json_extract(object, '$.erased'))))"
);
/// Events are numbered in the order of their times.
const WAITING: &str = "SELECT created FROM log WHERE seq = \
    (SELECT min(event) FROM deliveries WHERE endpoint = ?1 AND status = 0)";
/// By an index that ends with it: there may be any number of pending deliveries, and no webhook is
/// sent before this is known.
const NEWEST_RETRY: &str =
    "SELECT max(updated) FROM deliveries INDEXED BY deliveries_scheduled WHERE status = 0";
/// Those asked for come before everything that is due by itself.
const DUE_ASKED: &str = "SELECT d.n, d.id, d.event, d.status, d.attempts, d.next, d.manual \
    FROM deliveries d INDEXED BY deliveries_asked WHERE d.endpoint = ?1 AND d.status = 0 AND \
    d.manual > 0 ORDER BY d.next";
const DUE: &str = "SELECT d.n, d.id, d.event, d.status, d.attempts, d.next, d.manual \
    FROM deliveries d INDEXED BY deliveries_due WHERE d.endpoint = ?1 AND d.status = 0 AND \
    d.next <= ?2 AND d.manual = 0 ORDER BY d.next";
const NEXT: &str = "SELECT min(next) FROM deliveries WHERE endpoint = ?1 AND status = 0 \
    AND next > ?2";
const PENDING_RETRIES: &str = "SELECT e.record, e.seq FROM deliveries d \
    INDEXED BY deliveries_waiting \
    CROSS JOIN log e ON e.seq = d.event WHERE d.endpoint = ?1 AND d.status = 0 \
    ORDER BY d.event LIMIT ?2";
const ONE: &str = "SELECT n, id, event, status, attempts, next FROM deliveries \
    WHERE event = ?1 AND endpoint = ?2";
/// Changes `updated`, which is the version of a delivery: earlier ETags are out of date.
const RETRY: &str = "UPDATE deliveries SET status = 0, next = ?2, manual = manual + 1, \
    updated = max(updated + 1, ?2) WHERE n = ?1 AND event > 0";

pub fn settle(
    connection: &Connection,
    shared: &Shared,
    settlement: &Settlement,
) -> Result<(), rusqlite::Error> {
    let erased = shared.erased_at.lock().is_some_and(|at| at.elapsed() < ERASED_FOR);
    for outcome in &settlement.outcomes {
        keep(connection, outcome)?;
        if erased && outcome.attempt.is_some() {
            let mut clean = connection.prepare_cached(CLEAN_ATTEMPTS)?;
            clean.execute([outcome.event, outcome.endpoint])?;
        }
    }
    for (endpoint, seq) in &settlement.positions {
        match seq {
            Some(seq) => connection.prepare_cached(POSITION)?.execute([endpoint, seq])?,
            None => connection.prepare_cached(CAUGHT_UP)?.execute([endpoint])?,
        };
    }
    if let Some(head) = settlement.head {
        connection.prepare_cached(POSITION)?.execute([HEAD, head])?;
    }
    for (endpoint, until) in &settlement.pauses {
        connection.prepare_cached(PAUSE)?.execute([*endpoint, until.0])?;
    }
    for (endpoint, failures) in &settlement.failures {
        let mut statement = connection.prepare_cached(FAILURES)?;
        let first = failures.map(|failures| failures.first.0);
        let last = failures.map(|failures| failures.last.0);
        let count = failures.map(|failures| failures.count);
        statement.execute(params![endpoint, count, first, last])?;
    }
    for endpoint in &settlement.gone {
        connection.prepare_cached(CAUGHT_UP)?.execute([endpoint])?;
        connection.prepare_cached(GONE)?.execute([endpoint])?;
    }
    Ok(())
}

/// The endpoint gets no event up to here any more. An endpoint without a position of its own has
/// reached the head, and the engine would not know a row that was created for it.
pub fn pass(connection: &Connection, endpoint: i64, seq: i64) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE positions SET seq = max(seq, ?2) WHERE endpoint = ?1";
    connection.prepare_cached(sql)?.execute([endpoint, seq])?;
    Ok(())
}

/// An older program kept pauses with the positions.
pub fn move_pauses(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch(
        "INSERT INTO endpoint_states (endpoint, paused) SELECT endpoint, paused FROM positions \
         WHERE paused IS NOT NULL ON CONFLICT (endpoint) DO UPDATE SET \
         paused = max(coalesce(paused, 0), excluded.paused); \
         UPDATE positions SET paused = NULL WHERE paused IS NOT NULL;",
    )
}

fn keep(connection: &Connection, outcome: &Outcome) -> Result<(), rusqlite::Error> {
    let status = outcome.status as i64;
    let next = outcome.next.map(|next| next.0);
    let made = match outcome.number {
        Some(_) => 0,
        None => connection.prepare_cached(INSERT)?.execute(params![
            outcome.id,
            outcome.scope.0,
            outcome.event,
            outcome.endpoint,
            status,
            outcome.attempts,
            next,
            outcome.now.0
        ])?,
    };
    let number = match (made, outcome.number) {
        (1, _) => connection.last_insert_rowid(),
        (_, Some(number)) => number,
        // Another sender has delivered it in the meantime, for example a replay.
        _ => connection
            .prepare_cached(NUMBER)?
            .query_row([outcome.event, outcome.endpoint], |row| row.get(0))?,
    };
    if made == 0 {
        let kept = connection.prepare_cached(UPDATE)?.execute(params![
            number,
            status,
            i64::from(outcome.attempt.is_some()),
            next,
            outcome.now.0,
            outcome.asked,
            outcome.event,
            outcome.endpoint
        ])?;
        if kept == 0 {
            // Its event was removed while it was in flight, and the delivery with it. An attempt
            // without one would collide with the next delivery of the same number.
            return Ok(());
        }
    }
    if let Some(attempt) = &outcome.attempt {
        let sql = if made == 1 { FIRST_ATTEMPT } else { ATTEMPT };
        let mut insert = connection.prepare_cached(sql)?;
        insert.execute(params![number, outcome.now.0, attempt])?;
    }
    Ok(())
}

pub fn endpoint_states(
    connection: &Connection,
    endpoints: &[i64],
) -> Result<EndpointStates, Error> {
    let head = connection.prepare_cached(PLACE)?.query_row([HEAD], |row| row.get(0)).optional()?;
    let mut statement = connection.prepare_cached(ENDPOINT_STATE)?;
    let mut states = EndpointStates { head, endpoints: Vec::new() };
    for endpoint in endpoints {
        let state = statement.query_row([*endpoint], |row| endpoint_state(*endpoint, row))?;
        let EndpointState { position, due, paused, failures, .. } = state;
        let moments = due.or(paused);
        if position.is_some() || moments.is_some() || failures.is_some() {
            states.endpoints.push(state);
        }
    }
    Ok(states)
}

fn endpoint_state(endpoint: i64, row: &Row<'_>) -> Result<EndpointState, rusqlite::Error> {
    let moment = |place: usize| -> Result<Option<Timestamp>, rusqlite::Error> {
        Ok(row.get::<_, Option<i64>>(place)?.map(Timestamp))
    };
    let failures = match (row.get(3)?, moment(4)?, moment(5)?) {
        (Some(count), Some(first), Some(last)) => Some(Failures { count, first, last }),
        _ => None,
    };
    Ok(EndpointState {
        endpoint,
        position: row.get(0)?,
        due: moment(1)?,
        paused: moment(2)?,
        failures,
    })
}

pub fn requested_retries(connection: &Connection) -> Result<Vec<i64>, Error> {
    let mut statement = connection.prepare_cached(REQUESTED_RETRIES)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub fn pending_retries(
    connection: &Connection,
    endpoint: i64,
    max: usize,
) -> Result<Vec<(String, i64)>, Error> {
    let mut statement = connection.prepare_cached(PENDING_RETRIES)?;
    let rows = statement.query_map([endpoint, max as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub fn waiting(connection: &Connection, endpoints: &[i64]) -> Result<Vec<(i64, Timestamp)>, Error> {
    let mut statement = connection.prepare_cached(WAITING)?;
    let mut found = Vec::new();
    for endpoint in endpoints {
        let oldest: Option<i64> = statement.query_row([*endpoint], |row| row.get(0)).optional()?;
        found.extend(oldest.map(|oldest| (*endpoint, Timestamp(oldest))));
    }
    Ok(found)
}

pub fn newest_retry(connection: &Connection) -> Result<Option<Timestamp>, Error> {
    let newest: Option<i64> =
        connection.prepare_cached(NEWEST_RETRY)?.query_row([], |row| row.get(0))?;
    Ok(newest.map(Timestamp))
}

pub fn retries(
    connection: &Connection,
    endpoint: i64,
    now: Timestamp,
    max: usize,
    bytes: usize,
) -> Result<Retries, Error> {
    let mut due = Vec::new();
    let mut left = bytes;
    for asked in [true, false] {
        let mut statement = connection.prepare_cached(if asked { DUE_ASKED } else { DUE })?;
        let mut rows = match asked {
            // Due whatever the clock says.
            true => statement.query([endpoint])?,
            false => statement.query([endpoint, now.0])?,
        };
        // Those without a readable event take the place of no other.
        while due.len() < max
            && let Some(row) = rows.next()?
        {
            let delivery = delivery_of(row)?;
            let asked = row.get(6)?;
            let Some(event) = log::event(connection, delivery.event)? else { continue };
            let weight = event_bytes(&event);
            if weight > left && !due.is_empty() {
                return Ok(Retries { due, next: Some(now) });
            }
            left = left.saturating_sub(weight);
            due.push(Retry { delivery, asked, event });
        }
    }
    if due.len() >= max {
        return Ok(Retries { due, next: Some(now) });
    }
    let next: Option<i64> =
        connection.prepare_cached(NEXT)?.query_row([endpoint, now.0], |row| row.get(0))?;
    Ok(Retries { due, next: next.map(Timestamp) })
}

pub fn deliveries(
    connection: &Connection,
    endpoint: i64,
    events: &[i64],
) -> Result<Vec<Delivery>, Error> {
    let mut statement = connection.prepare_cached(ONE)?;
    let mut found = Vec::new();
    for event in events {
        found.extend(statement.query_row([*event, endpoint], delivery_of).optional()?);
    }
    Ok(found)
}

fn delivery_of(row: &Row<'_>) -> Result<Delivery, rusqlite::Error> {
    Ok(Delivery {
        number: row.get(0)?,
        id: row.get(1)?,
        event: row.get(2)?,
        status: match row.get::<_, i64>(3)? {
            0 => Status::Pending,
            1 => Status::Succeeded,
            2 => Status::Failed,
            _ => Status::Skipped,
        },
        attempts: row.get(4)?,
        next: row.get::<_, Option<i64>>(5)?.map(Timestamp),
    })
}

/// Makes a delivery due now.
pub fn retry(connection: &Connection, number: i64, now: Timestamp) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(RETRY)?.execute([number, now.0])?;
    Ok(())
}

/// How many records of a collection count towards a limit.
pub fn count(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    collection: model::CollectionIx,
    limit: &Limit,
) -> Result<i64, rusqlite::Error> {
    let mut only = match limit.statuses {
        [] => String::new(),
        statuses => format!(" AND f_status IN ('{}')", statuses.join("', '")),
    };
    if let Some(field) = limit.null {
        only.push_str(&format!(" AND {}", layout::is_null(field)));
    }
    let table = &shared.tables[collection].name;
    let sql =
        format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE scope = ?1{only} LIMIT ?2)");
    connection.prepare_cached(&sql)?.query_row([scope.0, limit.most], |row| row.get(0))
}

/// Records of one table in every scope.
pub fn every(
    connection: &Connection,
    shared: &Shared,
    collection: CollectionIx,
    after: i64,
    max: usize,
) -> Result<Vec<(Scope, Record)>, Error> {
    every_with(connection, shared, collection, ("", ""), after, max)
}

/// The same, of replays only those with work left, and of accounts in these buckets.
pub fn every_served(
    connection: &Connection,
    shared: &Shared,
    collection: CollectionIx,
    buckets: Option<&[Bucket]>,
    after: i64,
    max: usize,
) -> Result<Vec<(Scope, Record)>, Error> {
    let Collection { builtin, name, .. } = &shared.schema.collections[collection];
    let (mut index, mut only) = (String::new(), String::new());
    if *builtin == Some(Builtin::Replay) {
        let name = layout::quote(&format!("i_{name}+{}", open_replays::INDEX));
        index = format!(" INDEXED BY {name}");
        only.push_str(&format!(" AND t.{}", open_replays::IS_OPEN));
    }
    if let Some(buckets) = buckets {
        let buckets: Vec<String> = buckets.iter().map(Bucket::to_string).collect();
        only.push_str(&format!(" AND ({BUCKET_OF}) IN ({})", buckets.join(", ")));
    }
    every_with(connection, shared, collection, (&index, &only), after, max)
}

fn every_with(
    connection: &Connection,
    shared: &Shared,
    collection: CollectionIx,
    (index, only): (&str, &str),
    after: i64,
    max: usize,
) -> Result<Vec<(Scope, Record)>, Error> {
    let table = &shared.tables[collection];
    let sql = format!(
        "SELECT {}, t.scope FROM {} t{index} WHERE t.n > ?1{only} ORDER BY t.n LIMIT ?2",
        table.select, table.name
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![after, max as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let record = read::record_of(row, table, &shared.schema.collections[collection])?;
        found.push((Scope(row.get(table.width)?), record));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::testbed::Bed;
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn reads_at_the_start_of_the_engine_do_not_grow_with_pending_deliveries() {
        let bed = Bed::new("[collections.books.fields]\ntitle = 'string'\n");
        let connection = Connection::open(&bed.store.shared.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        let rows = "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT 5000) \
            INSERT INTO deliveries (id, scope, event, endpoint, status, attempts, next, manual, \
            created, updated) \
            SELECT 'dlv_' || n, 20, n, n % 3, 0, 1, 9000 + n, 0, n, 70 + n FROM i";
        connection.execute_batch(rows).unwrap();
        assert_eq!(newest_retry(&connection).unwrap(), Some(Timestamp(5070)));
        let states = endpoint_states(&connection, &[1, 2, 7]).unwrap().endpoints;
        let due: Vec<_> = states.iter().map(|state| (state.endpoint, state.due)).collect();
        assert_eq!(due, [(1, Some(Timestamp(9001))), (2, Some(Timestamp(9002)))]);
        for (sql, endpoint) in [(NEWEST_RETRY, None), (ENDPOINT_STATE, Some(1))] {
            let mut statement = connection.prepare(sql).unwrap();
            let read = |row: &Row<'_>| row.get::<_, Option<i64>>(0);
            match endpoint {
                Some(endpoint) => statement.query_row([endpoint], read).unwrap(),
                None => statement.query_row([], read).unwrap(),
            };
            let steps = statement.get_status(StatementStatus::VmStep);
            assert!((1..200).contains(&steps), "{steps} steps: {sql}");
        }
    }
}
