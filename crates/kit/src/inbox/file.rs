//! The tables of an inbox and every statement on them. The writer thread calls them inside its
//! transactions. Knows neither threads nor who waits.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, Rows, params};

use super::{Error, Filter, Listed, State, Stats};
use crate::event::{Received, Revision};

/// Marks our files: "rinb".
const APPLICATION_ID: i32 = 0x7269_6e62;
const FORMAT: i32 = 1;
/// Another process, such as `restive receive retry`, may hold the file for a moment.
const BUSY: Duration = Duration::from_secs(5);
/// Bodies that contradict an earlier one are kept for the operator, the newest ones.
pub(super) const MAX_CONFLICTS: i64 = 1_000;
/// The position under which the time that counts for the retention is stored.
const OPEN_TIME: &str = "inbox.open_time";
/// Rows that one clean-up removes; the next follows. A larger slice would delay receipts.
pub(super) const CLEAN_UP_ROWS: i64 = 500;
/// Longest stored text of an error, in bytes.
const MAX_ERROR_BYTES: usize = 1_000;

const TABLES: &str = "
CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    kind TEXT,
    resource TEXT,
    revision TEXT,
    received INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    -- While it is pending: of the next attempt. Then: when it ended.
    due INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    -- Removed when the event is processed.
    body BLOB
);
CREATE INDEX pending ON events (due) WHERE state = 0;
CREATE INDEX dead ON events (due) WHERE state = 2;
CREATE INDEX ended ON events (due) WHERE state IN (1, 3, 4);
-- The newest processed state of each resource.
CREATE TABLE newest (
    resource TEXT PRIMARY KEY,
    revision TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX newest_at ON newest (at);
-- Bodies that came with the id of another event. They were not processed.
CREATE TABLE conflicts (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    received INTEGER NOT NULL,
    body BLOB NOT NULL
);
-- Where followers of a provider continue.
CREATE TABLE positions (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// For the counts: few events are skipped. To store or process an event does not write to it. Apart
/// from the tables, because a file may have been created without it.
const SKIPPED: &str = "CREATE INDEX IF NOT EXISTS skipped ON events (due) WHERE state IN (3, 4)";

pub(super) fn open(path: &Path) -> Result<Connection, Error> {
    create(path);
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, format) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(Error::Foreign("is a database of another program"));
    }
    if format > FORMAT {
        return Err(Error::Foreign("was written by a newer release"));
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // The log file is synced before a commit returns: what was acknowledged survives power loss.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // 16 MiB: each checkpoint competes with receipts for the disk.
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.set_prepared_statement_cache_capacity(32);
    if tables == 0 {
        let tables = format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; \
             PRAGMA user_version = {FORMAT}; COMMIT;"
        );
        connection.execute_batch(&tables)?;
    }
    connection.execute_batch(SKIPPED)?;
    Ok(connection)
}

/// Whether a commit returns only after a sync.
pub(super) fn set_synchronous(file: &Connection, is_full: bool) -> rusqlite::Result<()> {
    file.pragma_update(None, "synchronous", if is_full { "FULL" } else { "NORMAL" })
}

/// Moves everything from the log into the database, durably.
pub(super) fn move_log(file: &Connection) -> rusqlite::Result<bool> {
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    let is_busy: bool = file.query_row(sql, [], |row| row.get(0))?;
    Ok(!is_busy)
}

/// Events contain data of customers: a new file is for its owner only. SQLite gives the files
/// beside it the same mode. What fails here, fails again in SQLite, which says why.
fn create(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = options.open(path);
}

/// What became of an event that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    New,
    Known,
    Conflict,
}

pub(super) fn store(
    file: &Connection,
    event: &Received,
    now: i64,
    check_digest: bool,
) -> rusqlite::Result<Stored> {
    let mut insert = file.prepare_cached(
        "INSERT INTO events (id, digest, kind, resource, revision, received, due, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7) ON CONFLICT (id) DO NOTHING",
    )?;
    let revision = event.revision.as_ref().map(Revision::as_str);
    // A listed event may be written in another way than its delivery, so its body proves nothing.
    let digest: &[u8] = if check_digest { &event.digest } else { &[] };
    let inserted = insert.execute(params![
        event.id,
        digest,
        event.kind,
        event.resource,
        revision,
        now,
        event.body
    ])?;
    if inserted > 0 {
        return Ok(Stored::New);
    }
    if !check_digest {
        return Ok(Stored::Known);
    }
    let mut known = file.prepare_cached("SELECT digest FROM events WHERE id = ?1")?;
    let digest: Vec<u8> = known.query_row([&event.id], |row| row.get(0))?;
    // An earlier release stored digests of another length, which tell nothing of this one.
    if digest.len() != event.digest.len() || digest == event.digest {
        return Ok(Stored::Known);
    }
    let insert = "INSERT INTO conflicts (id, received, body) VALUES (?1, ?2, ?3)";
    file.execute(insert, params![event.id, now, event.body])?;
    let oldest = "DELETE FROM conflicts WHERE number <= (SELECT max(number) FROM conflicts) - ?1";
    file.execute(oldest, [MAX_CONFLICTS])?;
    Ok(Stored::Conflict)
}

/// Where an event stands among those that are pending: by the time of its next attempt, then by its
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub due: i64,
    pub number: i64,
}

impl Place {
    pub const START: Place = Place { due: i64::MIN, number: i64::MIN };

    pub fn before(self) -> Place {
        Place { number: self.number.saturating_sub(1), ..self }
    }
}

/// Two statements: with both in one condition, SQLite reads all events of the same time again.
const DUE_THEN: &str = "
SELECT due, number, resource FROM events
WHERE state = 0 AND due = ?1 AND number > ?2 ORDER BY number";
const DUE_LATER: &str = "
SELECT due, number, resource FROM events WHERE state = 0 AND due > ?1 ORDER BY due, number";

/// Looks through pending events behind a place. `look` gets the place of each and its resource, and
/// says whether to go on. Returns the time of the first event that is not due yet, or that of the
/// last one that was looked at.
pub(super) fn due(
    file: &Connection,
    after: Place,
    now: i64,
    mut look: impl FnMut(Place, Option<&str>) -> bool,
) -> rusqlite::Result<Option<i64>> {
    let mut look_through = |mut rows: Rows<'_>| {
        while let Some(row) = rows.next()? {
            let place = Place { due: row.get(0)?, number: row.get(1)? };
            if place.due > now || !look(place, row.get_ref(2)?.as_str_or_null()?) {
                return Ok(Some(place.due));
            }
        }
        Ok(None)
    };
    let mut then = file.prepare_cached(DUE_THEN)?;
    if let Some(due) = look_through(then.query(params![after.due, after.number])?)? {
        return Ok(Some(due));
    }
    look_through(file.prepare_cached(DUE_LATER)?.query([after.due])?)
}

/// An event as a worker gets it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub number: i64,
    pub id: String,
    pub kind: Option<String>,
    pub resource: Option<String>,
    pub revision: Option<Revision>,
    pub received: i64,
    pub attempts: u32,
    pub body: Vec<u8>,
    /// The newest processed state of its resource.
    pub newest: Option<String>,
}

/// None if another process has changed its state.
pub(super) fn load(file: &Connection, number: i64) -> rusqlite::Result<Option<Loaded>> {
    let mut select = file.prepare_cached(
        "SELECT number, id, kind, resource, revision, received, attempts, body,
             (SELECT newest.revision FROM newest WHERE newest.resource = events.resource)
         FROM events WHERE number = ?1 AND state = 0",
    )?;
    select.query_row([number], loaded).optional()
}

fn loaded(row: &Row<'_>) -> rusqlite::Result<Loaded> {
    Ok(Loaded {
        number: row.get(0)?,
        id: row.get(1)?,
        kind: row.get(2)?,
        resource: row.get(3)?,
        revision: row.get::<_, Option<String>>(4)?.map(Revision::stored),
        received: row.get(5)?,
        attempts: row.get(6)?,
        body: row.get::<_, Option<Vec<u8>>>(7)?.unwrap_or_default(),
        newest: row.get(8)?,
    })
}

/// Counts an attempt before it begins, so that an event that ends the process is given up, too.
pub(super) fn begin(file: &Connection, number: i64) -> rusqlite::Result<()> {
    let update = "UPDATE events SET attempts = attempts + 1 WHERE number = ?1";
    file.prepare_cached(update)?.execute([number])?;
    Ok(())
}

/// An attempt that did not begin.
pub(super) fn release(file: &Connection, number: i64) -> rusqlite::Result<()> {
    let update = "UPDATE events SET attempts = max(attempts - 1, 0) WHERE number = ?1";
    file.prepare_cached(update)?.execute([number])?;
    Ok(())
}

/// Ends an event: processed, or not to be processed.
pub(super) fn end(
    file: &Connection,
    number: i64,
    state: State,
    now: i64,
    error: Option<&str>,
) -> rusqlite::Result<()> {
    let keeps_body = state == State::Dead;
    let mut update = file.prepare_cached(
        "UPDATE events SET state = ?2, due = ?3, error = ?4, body = CASE ?5 WHEN 1 THEN body END
         WHERE number = ?1 AND state = 0",
    )?;
    update.execute(params![number, state as i64, now, error.map(cut), keeps_body])?;
    Ok(())
}

/// Remembers the state of a resource that was processed.
pub(super) fn remember(
    file: &Connection,
    resource: &str,
    revision: &Revision,
    newest: Option<&str>,
    now: i64,
) -> rusqlite::Result<()> {
    // One of another kind replaces it: the provider has changed its format.
    if newest.is_some_and(|newest| revision.is_before(newest)) {
        return Ok(());
    }
    let insert = "INSERT INTO newest VALUES (?1, ?2, ?3)
        ON CONFLICT (resource) DO UPDATE SET revision = ?2, at = ?3";
    file.prepare_cached(insert)?.execute(params![resource, revision.as_str(), now])?;
    Ok(())
}

pub(super) fn newest_revision(
    file: &Connection,
    resource: &str,
) -> rusqlite::Result<Option<String>> {
    let select = "SELECT revision FROM newest WHERE resource = ?1";
    file.prepare_cached(select)?.query_row([resource], |row| row.get(0)).optional()
}

/// A failed attempt that is repeated.
pub(super) fn postpone(
    file: &Connection,
    number: i64,
    due: i64,
    error: &str,
) -> rusqlite::Result<()> {
    let update = "UPDATE events SET due = ?2, error = ?3 WHERE number = ?1 AND state = 0";
    file.prepare_cached(update)?.execute(params![number, due, cut(error)])?;
    Ok(())
}

fn cut(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]
}

/// Removes a slice of what is not newer than `before`. True if there may be more.
pub(super) fn clean_up(file: &Connection, before: i64) -> rusqlite::Result<bool> {
    let events = "DELETE FROM events WHERE number IN (
        SELECT number FROM events WHERE state IN (1, 3, 4) AND due <= ?1 ORDER BY due LIMIT ?2)";
    let newest = "DELETE FROM newest WHERE resource IN (
        SELECT resource FROM newest WHERE at <= ?1 ORDER BY at LIMIT ?2)";
    let events = file.execute(events, [before, CLEAN_UP_ROWS])?;
    let newest = file.execute(newest, [before, CLEAN_UP_ROWS])?;
    Ok(events.max(newest) as i64 == CLEAN_UP_ROWS)
}

/// When the last event was received.
pub(super) fn newest_time(file: &Connection) -> rusqlite::Result<Option<i64>> {
    let last = "SELECT received FROM events ORDER BY number DESC LIMIT 1";
    file.query_row(last, [], |row| row.get(0)).optional()
}

/// Makes pending events that are due later than `latest` due `now`: the clock was ahead when they
/// failed.
pub(super) fn limit_due(file: &Connection, now: i64, latest: i64) -> rusqlite::Result<()> {
    let later = "SELECT EXISTS (SELECT 1 FROM events WHERE state = 0 AND due > ?1)";
    // Usually there are none. Then nothing is written: another process may be writing.
    if file.query_row(later, [latest], |row| row.get(0))? {
        file.execute("UPDATE events SET due = ?1 WHERE state = 0 AND due > ?2", [now, latest])?;
    }
    Ok(())
}

/// Where the clock of the open time ended.
pub(super) fn open_time(file: &Connection) -> rusqlite::Result<Option<i64>> {
    let text = position(file, OPEN_TIME)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Another process may have the file open, too: the later time counts.
pub(super) fn set_open_time(file: &Connection, ms: i64) -> rusqlite::Result<()> {
    let known = open_time(file)?.unwrap_or(i64::MIN);
    set_position(file, OPEN_TIME, &ms.max(known).to_string())
}

/// One pass over the pending events.
const COUNT_PENDING: &str = "
SELECT count(*), coalesce(sum(attempts > 0), 0), min(received) FROM events WHERE state = 0";
/// Each condition is that of an index, word for word: otherwise SQLite reads the whole table. Rows
/// that ended are the most by far, and here none of them is read.
const COUNT_OTHERS: &str = "
SELECT (SELECT count(*) FROM events WHERE state IN (1, 3, 4)),
    (SELECT count(*) FROM events WHERE state IN (3, 4)),
    (SELECT count(*) FROM events WHERE state = 2),
    (SELECT count(*) FROM conflicts)";

pub(super) fn stats(file: &Connection, now: i64) -> rusqlite::Result<Stats> {
    let (pending, retrying, oldest) = file.query_row(COUNT_PENDING, [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<i64>>(2)?))
    })?;
    let age = oldest.map_or(0, |oldest| now.saturating_sub(oldest).max(0));
    file.query_row(COUNT_OTHERS, [], |row| {
        let (ended, skipped): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok(Stats {
            pending,
            retrying,
            dead: row.get(2)?,
            processed: ended - skipped,
            skipped,
            conflicts: row.get(3)?,
            oldest_pending: Duration::from_millis(u64::try_from(age).unwrap_or_default()),
        })
    })
}

pub(super) fn list(file: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Listed>> {
    let mut select = file.prepare(
        "SELECT id, kind, resource, state, attempts, received, due, error FROM events
         WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR id = ?2)
         ORDER BY number DESC LIMIT ?3",
    )?;
    let state = filter.state.map(|state| state as i64);
    let rows = select.query_map(params![state, filter.id, filter.limit], |row| {
        Ok(Listed {
            id: row.get(0)?,
            kind: row.get(1)?,
            resource: row.get(2)?,
            state: State::from_number(row.get(3)?),
            attempts: row.get(4)?,
            received_ms: row.get(5)?,
            due_ms: row.get(6)?,
            error: row.get(7)?,
        })
    })?;
    rows.collect()
}

pub(super) fn body(file: &Connection, id: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let select = "SELECT body FROM events WHERE id = ?1";
    let found = file.query_row(select, [id], |row| row.get::<_, Option<Vec<u8>>>(0));
    Ok(found.optional()?.flatten())
}

/// Two statements: with both cases in one condition, SQLite uses no index.
const RETRY_ONE: &str = "
UPDATE events SET state = 0, due = received, attempts = 0 WHERE id = ?1 AND state IN (0, 2)";
const RETRY_DEAD: &str = "
UPDATE events SET state = 0, due = received, attempts = 0 WHERE state = 2";

/// Has events tried now, from the first attempt on: one, or all dead letters. Processed events have
/// no body left and are not found.
/// They are due at the time of receipt: it is past by the clock of the process that hands them
/// out, which may differ from this one's.
pub(super) fn retry(file: &Connection, id: Option<&str>) -> rusqlite::Result<usize> {
    match id {
        Some(id) => file.execute(RETRY_ONE, [id]),
        None => file.execute(RETRY_DEAD, []),
    }
}

/// Gives up an event that was not processed. Its id stays known.
pub(super) fn drop_event(file: &Connection, id: &str, now: i64) -> rusqlite::Result<usize> {
    let update = "UPDATE events SET state = 4, due = ?2, body = NULL
        WHERE id = ?1 AND state IN (0, 2)";
    file.execute(update, params![id, now])
}

pub(super) fn position(file: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let select = "SELECT value FROM positions WHERE name = ?1";
    file.query_row(select, [name], |row| row.get(0)).optional()
}

pub(super) fn set_position(file: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    let insert = "INSERT INTO positions VALUES (?1, ?2)
        ON CONFLICT (name) DO UPDATE SET value = ?2";
    file.execute(insert, [name, value])?;
    Ok(())
}

/// Changes when another process commits.
pub(super) fn data_version(file: &Connection) -> rusqlite::Result<i64> {
    file.pragma_query_value(None, "data_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How SQLite runs a statement: its scans and searches.
    fn plan(file: &Connection, sql: &str) -> Vec<String> {
        let mut explain = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        for number in 1..=explain.parameter_count() {
            explain.raw_bind_parameter(number, 1).unwrap();
        }
        let mut rows = explain.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get(3).unwrap());
        }
        steps
    }

    #[test]
    fn no_question_reads_events_that_it_does_not_need() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inbox.db");
        // As a file from before that index.
        open(&path).unwrap().execute_batch("DROP INDEX skipped").unwrap();
        let file = open(&path).unwrap();
        for (sql, index) in [
            (COUNT_PENDING, "INDEX pending"),
            (COUNT_OTHERS, "INDEX"),
            (RETRY_ONE, "INDEX sqlite_autoindex_events_1 (id=?)"),
            (RETRY_DEAD, "INDEX dead"),
            (DUE_THEN, "INDEX pending (due=? AND rowid>?)"),
            (DUE_LATER, "INDEX pending (due>?)"),
        ] {
            let steps = plan(&file, sql);
            let events: Vec<_> = steps.iter().filter(|step| step.contains(" events")).collect();
            assert!(!events.is_empty(), "{sql}: {steps:?}");
            assert!(events.iter().all(|step| step.contains(index)), "{sql}: {steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
        }
    }
}
