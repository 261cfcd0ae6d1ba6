//! Erasing what events show of one resource, on request. The request commits at once, and no read
//! returns the payloads from then on: the resource is in the table `erasing`, which every read of
//! the log checks in its own snapshot. The rows themselves are cleaned in slices
//! between the writer's batches, also after a restart. Ids and outcomes of erased events stay.

use super::idempotency;
use crate::Error;
use crate::writer::Turns;
use model::Scope;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::{Duration, Instant};

/// Rows cleaned in one slice at most.
const SLICE_ROWS: usize = 500;
/// How long a slice takes: the next commit waits for it.
const SLICE_TIME: Duration = Duration::from_millis(2);

/// Erasures that are not finished: events before `upto` and stored responses up to `answers` are
/// erased. Cleaned so far: events before `seq`; of that event, deliveries up to `delivery`,
/// attempts of the next delivery up to `attempt`, and responses that show the event up to `told`;
/// responses about the resource up to `answer`.
pub const PENDING: &str = "
CREATE TABLE IF NOT EXISTS erasing (
  scope INTEGER NOT NULL, record TEXT NOT NULL, upto INTEGER NOT NULL, answers INTEGER NOT NULL,
  seq INTEGER NOT NULL, delivery INTEGER NOT NULL, answer INTEGER NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0, told INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, record)) STRICT, WITHOUT ROWID;
";

/// What an erasure is found by: the account's own rows alone. (`log_record` led to the rows of
/// every account that has an event about a resource of this name.)
pub const INDEXES: &str = "
CREATE INDEX IF NOT EXISTS log_about ON log (scope, record);
DROP INDEX IF EXISTS log_record;
CREATE INDEX IF NOT EXISTS remembered_about ON remembered (scope, record) WHERE text IS NOT NULL;
CREATE INDEX IF NOT EXISTS remembered_told ON remembered (seq) WHERE text IS NOT NULL;
";

/// Whether the event of a row of the log is to be erased. The argument is the name of the table.
macro_rules! erases {
    ($log:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM erasing x WHERE x.scope = ",
            $log,
            ".scope AND x.record = ",
            $log,
            ".record AND x.upto > ",
            $log,
            ".seq)"
        )
    };
}

/// What is left of an event's object.
macro_rules! remains {
    ($log:literal) => {
        concat!(
            "json_object('id', ",
            $log,
            ".record, 'object', iif(json_valid(",
            $log,
            ".object), json_extract(",
            $log,
            ".object, '$.object'), NULL), 'erased', json('true'))"
        )
    };
}

/// The object of an event, as it may be read.
macro_rules! object {
    ($log:literal) => {
        concat!(
            "iif(",
            $crate::sqlite::erasure::erases!($log),
            ", ",
            $crate::sqlite::erasure::remains!($log),
            ", ",
            $log,
            ".object)"
        )
    };
}

/// Another text of an event that an erasure removes, as it may be read.
macro_rules! or_null {
    ($log:literal, $column:literal) => {
        concat!("iif(", $crate::sqlite::erasure::erases!($log), ", NULL, ", $log, ".", $column, ")")
    };
}

/// What caused an event, as it may be read: the request stays, who made it is erased.
macro_rules! origin {
    ($log:literal) => {
        concat!(
            "iif(",
            $crate::sqlite::erasure::erases!($log),
            ", substr(",
            $log,
            ".request, 1, instr(",
            $log,
            ".request || ' ', ' ') - 1), ",
            $log,
            ".request)"
        )
    };
}
pub(super) use {erases, object, or_null, origin, remains};

const COUNT: &str = "SELECT count(*) FROM log WHERE scope = ?1 AND record = ?2 \
    AND seq > ?3 AND seq <= ?4";
const BEGIN: &str = "INSERT INTO erasing (scope, record, upto, answers, seq, delivery, answer) \
    SELECT ?1, ?2, ?3, coalesce(max(n), 0), 0, 0, 0 FROM remembered WHERE true \
    ON CONFLICT (scope, record) DO UPDATE SET upto = excluded.upto, answers = excluded.answers";
const NEXT: &str = "SELECT scope, record, upto, answers, seq, delivery, answer, attempt, told \
    FROM erasing WHERE (scope, record) > (?1, ?2) ORDER BY scope, record LIMIT 1";
const SAVE: &str = "UPDATE erasing SET seq = ?3, delivery = ?4, answer = ?5, attempt = ?6, \
    told = ?7 WHERE scope = ?1 AND record = ?2";
const END: &str = "DELETE FROM erasing WHERE scope = ?1 AND record = ?2";
const EVENT: &str = "SELECT seq FROM log WHERE scope = ?1 AND record = ?2 AND seq >= ?3 \
    AND seq < ?4 ORDER BY seq LIMIT 1";
const DELIVERIES: &str = "SELECT n FROM deliveries WHERE event = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
const ATTEMPTS: &str = "SELECT n FROM attempts WHERE delivery = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
const CLEAN_ATTEMPT: &str = "UPDATE attempts SET body = json_set(body, '$.response_body', NULL) \
    WHERE delivery = ?1 AND n = ?2 AND json_valid(body)";
const CLEAN_EVENT: &str = concat!(
    "UPDATE log SET object = ",
    remains!("log"),
    ", previous = NULL, hidden = NULL, idempotency_key = NULL, \
     request = substr(request, 1, instr(request || ' ', ' ') - 1) WHERE seq = ?1"
);

/// How many events are about a resource, after the first sequence and up to the second.
pub fn count(
    connection: &Connection,
    scope: Scope,
    resource: &str,
    (after, upto): (i64, i64),
) -> Result<i64, rusqlite::Error> {
    connection
        .prepare_cached(COUNT)?
        .query_row(params![scope.0, resource, after, upto], |row| row.get(0))
}

/// From this commit on, no read returns what events before `upto` show of the resource.
pub fn begin(
    connection: &Connection,
    scope: Scope,
    resource: &str,
    upto: i64,
) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(BEGIN)?.execute(params![scope.0, resource, upto])?;
    Ok(())
}

/// An erasure that is not finished.
struct Pending {
    scope: i64,
    record: String,
    upto: i64,
    answers: i64,
    seq: i64,
    delivery: i64,
    answer: i64,
    attempt: i64,
    told: i64,
}

impl Pending {
    /// Everything before this event is clean.
    fn come_to(&mut self, seq: i64) {
        (self.seq, self.delivery, self.attempt, self.told) = (seq, 0, 0, 0);
    }
}

/// Cleans some rows of the one erasure that has its turn. Returns whether any is left.
pub fn slice(connection: &Connection, turns: &mut Turns) -> Result<bool, Error> {
    let mut pending = match next(connection, turns)? {
        Ok(pending) => pending,
        Err(left) => return Ok(left),
    };
    let mut budget = Budget { began: Instant::now(), rows: SLICE_ROWS };
    let finished = clean_answers(connection, &mut pending, &mut budget)?
        && clean_events(connection, &mut pending, &mut budget)?;
    let Pending { scope, record, seq, delivery, answer, attempt, told, .. } = pending;
    match finished {
        true => connection.prepare_cached(END)?.execute(params![scope, record])?,
        false => {
            let mut save = connection.prepare_cached(SAVE)?;
            save.execute(params![scope, record, seq, delivery, answer, attempt, told])?
        }
    };
    Ok(true)
}

/// The erasure that has its turn now; otherwise whether any is left.
fn next(
    connection: &Connection,
    turns: &mut Turns,
) -> Result<Result<Pending, bool>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(NEXT)?;
    let mut left = false;
    for mut after in turns.starts() {
        loop {
            let found = statement.query_row(params![after.0, after.1], |row| {
                Ok(Pending {
                    scope: row.get(0)?,
                    record: row.get(1)?,
                    upto: row.get(2)?,
                    answers: row.get(3)?,
                    seq: row.get(4)?,
                    delivery: row.get(5)?,
                    answer: row.get(6)?,
                    attempt: row.get(7)?,
                    told: row.get(8)?,
                })
            });
            let Some(found) = found.optional()? else { break };
            if turns.take(found.scope, &found.record) {
                return Ok(Ok(found));
            }
            left = true;
            after = (found.scope, found.record);
        }
    }
    Ok(Err(left))
}

/// What is left of a slice.
struct Budget {
    began: Instant,
    rows: usize,
}

impl Budget {
    /// Counts one row; `false` when the slice is over.
    fn take(&mut self) -> bool {
        self.rows = self.rows.saturating_sub(1);
        self.rows > 0 && self.began.elapsed() < SLICE_TIME
    }
}

/// Cleans answers that were remembered for requests about the resource; whether all are clean.
fn clean_answers(
    connection: &Connection,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, rusqlite::Error> {
    while let Some(n) = idempotency::next_about(
        connection,
        pending.scope,
        &pending.record,
        (pending.answer, pending.answers),
    )? {
        idempotency::erase(connection, n, None)?;
        pending.answer = n;
        if !budget.take() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Cleans events and what endpoints answered to them; whether all are clean.
fn clean_events(
    connection: &Connection,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, rusqlite::Error> {
    let mut event = connection.prepare_cached(EVENT)?;
    loop {
        let bounds = params![pending.scope, pending.record, pending.seq, pending.upto];
        let found: Option<i64> = event.query_row(bounds, |row| row.get(0)).optional()?;
        let Some(seq) = found else { return Ok(true) };
        if seq != pending.seq {
            pending.come_to(seq);
        }
        if !clean_deliveries(connection, pending, budget)?
            || !clean_told(connection, pending, budget)?
        {
            return Ok(false);
        }
        connection.prepare_cached(CLEAN_EVENT)?.execute([seq])?;
        pending.come_to(seq + 1);
        if !budget.take() {
            return Ok(false);
        }
    }
}

/// Cleans stored responses that show what the event at `pending.seq` shows. One event may have any
/// number of them: each update that changed nothing leaves one.
fn clean_told(
    connection: &Connection,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, rusqlite::Error> {
    loop {
        let told = idempotency::showing_event(connection, pending.seq, pending.told, SLICE_ROWS)?;
        if told.is_empty() {
            return Ok(true);
        }
        for (n, about) in told {
            // Answers about the resource itself were cleaned before any event.
            let is_clean = n <= pending.answers && about.as_ref() == Some(&pending.record);
            if !is_clean {
                idempotency::erase(connection, n, Some(&pending.record))?;
            }
            pending.told = n;
            if !budget.take() {
                return Ok(false);
            }
        }
    }
}

/// Removes the bodies that endpoints answered with to the event at `pending.seq`.
fn clean_deliveries(
    connection: &Connection,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, rusqlite::Error> {
    loop {
        let rows = page(connection, DELIVERIES, pending.seq, pending.delivery)?;
        if rows.is_empty() {
            return Ok(true);
        }
        for delivery in rows {
            if !clean_attempts(connection, delivery, pending, budget)? {
                return Ok(false);
            }
            (pending.delivery, pending.attempt) = (delivery, 0);
            if !budget.take() {
                return Ok(false);
            }
        }
    }
}

/// A delivery may have any number of attempts: each requested retry adds one.
fn clean_attempts(
    connection: &Connection,
    delivery: i64,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, rusqlite::Error> {
    loop {
        let rows = page(connection, ATTEMPTS, delivery, pending.attempt)?;
        if rows.is_empty() {
            return Ok(true);
        }
        for attempt in rows {
            connection.prepare_cached(CLEAN_ATTEMPT)?.execute([delivery, attempt])?;
            pending.attempt = attempt;
            if !budget.take() {
                return Ok(false);
            }
        }
    }
}

/// Numbers of the next rows after one of them: no more than a slice takes.
fn page(
    connection: &Connection,
    sql: &str,
    of: i64,
    after: i64,
) -> Result<Vec<i64>, rusqlite::Error> {
    let most = i64::try_from(SLICE_ROWS).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([of, after, most], |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{layout, outbox};
    use super::*;

    /// One event of one resource, with thousands of remembered answers and of attempts.
    fn file() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for sql in [layout::BASE, outbox::TABLES, PENDING, INDEXES] {
            connection.execute_batch(sql).unwrap();
        }
        connection
            .execute_batch(
                "INSERT INTO log (seq, id, scope, type, created, collection, record, api_version, \
                 object) VALUES (7, 'evt_7', 20, 'book.created', 1, 'books', 'book_1', \
                 '2026-01-01', '{\"id\":\"book_1\",\"object\":\"book\",\"title\":\"Secret\"}');
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 3000)
                 INSERT INTO remembered (scope, digest, fingerprint, created, kind, seq, number, \
                 updated, record, text, request) SELECT 20, randomblob(16), x'00', 1, 1, 7, 7, 1, \
                 iif(i % 2, 'book_1', 'evt_7'), \
                 '{\"object\":\"event\",\"data\":{\"object\":{\"title\":\"Secret\"}}}', 'req_1' \
                 FROM c;
                 INSERT INTO deliveries (n, id, scope, event, endpoint, status, attempts, manual, \
                 created, updated) VALUES (1, 'dlv_1', 20, 7, 3, 1, 1, 0, 1, 1), \
                 (2, 'dlv_2', 20, 7, 4, 1, 1, 0, 1, 1);
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 2000)
                 INSERT INTO attempts SELECT 1 + i % 2, i, 1, \
                 '{\"response_body\":\"Secret\"}' FROM c;
                 INSERT INTO erasing (scope, record, upto, answers, seq, delivery, answer) \
                 VALUES (20, 'book_1', 8, 2990, 0, 0, 0);",
            )
            .unwrap();
        connection
    }

    #[test]
    fn an_erasure_slice_is_bounded_for_every_event() {
        let (connection, mut turns, mut slices) = (file(), Turns::new(), 0);
        loop {
            let before = connection.total_changes();
            let left = slice(&connection, &mut turns).unwrap();
            // Beside the rows themselves it saves how far it came.
            let changed = connection.total_changes() - before;
            assert!(changed <= SLICE_ROWS as u64 + 1, "{changed} rows in one slice");
            slices += 1;
            assert!(slices < 10_000, "it never ends");
            if !left {
                break;
            }
        }
        let secrets = "SELECT (SELECT count(*) FROM log WHERE object LIKE '%Secret%') + \
            (SELECT count(*) FROM remembered WHERE text LIKE '%Secret%') + \
            (SELECT count(*) FROM attempts WHERE body LIKE '%Secret%')";
        let secrets: i64 = connection.query_row(secrets, [], |row| row.get(0)).unwrap();
        assert_eq!(secrets, 0);
        assert!(slices > 5_000 / SLICE_ROWS, "{slices} slices");
    }
}
