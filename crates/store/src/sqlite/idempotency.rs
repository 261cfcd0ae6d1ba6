//! The rows of stored responses. A narrow row per key, inserted in the commit of its write. What a
//! row means is `crate::idempotency`'s.

use super::erasure;
use crate::idempotency::{self, Key, NewRow, Stored};
use model::{Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Most expired rows removed at once: a commit must not wait for more.
const EXPIRED_AT_ONCE: i64 = 500;

const FIND: &str = concat!(
    "SELECT r.fingerprint, r.kind, r.seq, r.number, r.updated, \
     coalesce(r.record, l.record), coalesce(r.text, ",
    erasure::object!("l"),
    "), r.request, r.text IS NULL, coalesce(r.api_version, l.api_version), r.hidden, ",
    erasure::or_null!("l", "hidden"),
    ", r.text IS NOT NULL AND (",
    erasure::erases!("l"),
    " OR EXISTS (SELECT 1 FROM erasing y WHERE y.scope = r.scope AND y.record = r.record \
     AND y.answers >= r.n)), l.record \
     FROM remembered r LEFT JOIN log l ON l.seq = r.seq WHERE r.scope = ?1 AND r.digest = ?2 \
     AND r.created > ?3"
);
const ABOUT: &str = "SELECT n FROM remembered WHERE scope = ?1 AND record = ?2 \
    AND text IS NOT NULL AND n > ?3 AND n <= ?4 ORDER BY n LIMIT 1";
const SHOWING_EVENT: &str = "SELECT n, record FROM remembered INDEXED BY remembered_told \
    WHERE seq = ?1 AND text IS NOT NULL AND n > ?2 ORDER BY n LIMIT ?3";
const TEXT: &str = "SELECT kind, record, text FROM remembered WHERE n = ?1";
const ERASE: &str = "UPDATE remembered SET text = ?2, hidden = NULL WHERE n = ?1";
const KEEP: &str = "INSERT OR REPLACE INTO remembered (scope, digest, fingerprint, created, kind, \
    seq, number, updated, record, text, request, api_version, hidden) VALUES (?1, ?2, ?3, ?4, ?5, \
    ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
/// Rows are numbered in time order, so the oldest are found without an index on time.
const EXPIRE: &str = "DELETE FROM remembered WHERE n <= (SELECT max(n) FROM \
    (SELECT n, created FROM remembered ORDER BY n LIMIT ?1) WHERE created <= ?2)";

/// The response stored under a key, unless it has expired.
pub fn find(
    connection: &Connection,
    scope: Scope,
    key: Key,
) -> Result<Option<Stored>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(FIND)?;
    let found = statement.query_row(params![scope.0, key.digest, key.expired.0], |row| {
        let from_event: bool = row.get(8)?;
        Ok(Stored {
            fingerprint: row.get(0)?,
            kind: row.get(1)?,
            seq: row.get(2)?,
            number: row.get(3)?,
            updated: row.get(4)?,
            record: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
            text: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            request: row.get(7)?,
            from_event,
            api_version: row.get(9)?,
            hidden: row.get(if from_event { 11 } else { 10 })?,
            erased: row.get(12)?,
            event_record: row.get(13)?,
        })
    });
    found.optional()
}

/// The next row about a record, after the first number and up to the second.
pub fn next_about(
    connection: &Connection,
    scope: i64,
    record: &str,
    (after, upto): (i64, i64),
) -> Result<Option<i64>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(ABOUT)?;
    statement.query_row(params![scope, record, after, upto], |row| row.get(0)).optional()
}

/// Rows with a text of their own that show the same as an event, after a number and `max` at most,
/// each with its record.
pub fn showing_event(
    connection: &Connection,
    seq: i64,
    after: i64,
    max: usize,
) -> Result<Vec<(i64, Option<String>)>, rusqlite::Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(SHOWING_EVENT)?;
    statement.query_map([seq, after, max], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Erases a resource from a row's text, its own record if none is given.
pub fn erase(connection: &Connection, n: i64, about: Option<&str>) -> Result<(), rusqlite::Error> {
    let text = connection.prepare_cached(TEXT)?.query_row([n], |row| {
        let (id, text): (Option<String>, String) = (row.get(1)?, row.get(2)?);
        Ok(idempotency::erased(row.get(0)?, &id.unwrap_or_default(), about, &text))
    })?;
    connection.prepare_cached(ERASE)?.execute(params![n, text])?;
    Ok(())
}

/// Rows with a text of their own that were written under a version: number, kind and texts.
#[allow(clippy::type_complexity)]
pub fn written_under(
    connection: &Connection,
    date: &str,
) -> Result<Vec<(i64, i64, (String, Option<String>))>, rusqlite::Error> {
    let sql =
        "SELECT n, kind, text, hidden FROM remembered WHERE text IS NOT NULL AND api_version = ?1";
    let mut select = connection.prepare(sql)?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, (row.get(2)?, row.get(3)?)));
    select.query_map([date], row)?.collect()
}

pub fn set_texts(
    connection: &Connection,
    n: i64,
    version: &str,
    (text, hidden): (&str, Option<&str>),
) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE remembered SET api_version = ?2, text = ?3, hidden = ?4 WHERE n = ?1";
    connection.prepare_cached(sql)?.execute(params![n, version, text, hidden])?;
    Ok(())
}

/// Sets the version of rows that have none.
pub fn date(connection: &Connection, version: &str) -> Result<(), rusqlite::Error> {
    const DATE: &str = "UPDATE remembered SET api_version = ?1 \
        WHERE text IS NOT NULL AND api_version IS NULL";
    connection.execute(DATE, [version]).map(drop)
}

pub fn insert(connection: &Connection, row: &NewRow) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(KEEP)?.execute(params![
        row.scope.0,
        row.digest,
        row.fingerprint,
        row.created.0,
        row.kind,
        row.seq,
        row.number,
        row.updated,
        row.record,
        row.text,
        row.request,
        row.api_version,
        row.hidden
    ])?;
    Ok(())
}

/// Removes some expired rows; true when more may be left.
pub fn expire(connection: &Connection, now: Timestamp) -> Result<bool, rusqlite::Error> {
    let mut statement = connection.prepare_cached(EXPIRE)?;
    let removed = statement.execute(params![EXPIRED_AT_ONCE, idempotency::expired(now).0])?;
    Ok(removed as i64 == EXPIRED_AT_ONCE)
}
