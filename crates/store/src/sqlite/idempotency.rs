//! The rows of stored responses. A narrow row per key, inserted in the commit of its write. What a
//! row means is `crate::idempotency`'s.

use super::erasure;
use crate::idempotency::{self, Key, NewRow, Stored};
use crate::upgrade::ResponseTexts;
use model::{Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// Expired rows removed at once at most, and the bytes after which a slice ends (it has one row at
/// least): the next commit waits for it.
const EXPIRED_ROWS: i64 = 500;
const EXPIRED_BYTES: i64 = 256 << 10;
/// An update that changed nothing answers with the whole record. A text of so many bytes or more is
/// stored once, and later rows share it: requests of a few bytes must not fill the disk.
const SHARED_BYTES: usize = 1024;

const FIND: &str = concat!(
    "SELECT r.fingerprint, r.kind, r.seq, r.number, r.updated, \
     coalesce(r.record, l.record), coalesce(r.text, ",
    erasure::object!("l"),
    "), r.request, r.text IS NULL, coalesce(r.api_version, l.api_version), r.hidden, ",
    erasure::or_null!("l", "hidden"),
    ", r.text IS NOT NULL AND (",
    erasure::erases!("l"),
    " OR EXISTS (SELECT 1 FROM erasing y WHERE y.scope = r.scope AND y.record = r.record \
     AND y.answers >= r.n)), l.record, r.n, \
     r.kind = 1 AND r.record IS NOT NULL AND r.text IS NULL \
     FROM remembered r LEFT JOIN log l ON l.seq = r.seq WHERE r.scope = ?1 AND r.digest = ?2 \
     AND r.created > ?3"
);
const ABOUT: &str = "SELECT n FROM remembered WHERE scope = ?1 AND record = ?2 \
    AND text IS NOT NULL AND n > ?3 AND n <= ?4 ORDER BY n LIMIT 1";
const SHOWING_EVENT: &str = "SELECT n, record FROM remembered INDEXED BY remembered_told \
    WHERE seq = ?1 AND text IS NOT NULL AND n > ?2 ORDER BY n LIMIT ?3";
const TEXT: &str = "SELECT kind, record, text FROM remembered WHERE n = ?1";
const ERASE: &str = "UPDATE remembered SET text = ?2, hidden = NULL WHERE n = ?1";
/// The text that row ?4 shares: that of the last row before it which has one of the same record in
/// the same version.
const SHARED: &str = "SELECT h.text, h.hidden, h.api_version, EXISTS (SELECT 1 FROM erasing y \
    WHERE y.scope = h.scope AND y.record = h.record AND y.answers >= h.n) \
    FROM remembered h INDEXED BY remembered_told WHERE h.seq = ?1 AND h.text IS NOT NULL \
    AND h.scope = ?2 AND h.record = ?3 AND h.kind = 1 AND h.n < ?4 ORDER BY h.n DESC LIMIT 1";
/// Whether the row that would be found later has this text, and lasts long enough.
const MAY_SHARE: &str = "SELECT h.created > ?4 AND h.text = ?5 AND h.hidden IS ?6 \
    AND h.api_version IS ?7 AND NOT EXISTS (SELECT 1 FROM erasing y WHERE y.scope = h.scope \
    AND y.record = h.record) \
    FROM remembered h INDEXED BY remembered_told WHERE h.seq = ?1 AND h.text IS NOT NULL \
    AND h.scope = ?2 AND h.record = ?3 AND h.kind = 1 ORDER BY h.n DESC LIMIT 1";
/// An expired row gives up its key; others may share its text.
const GIVE_UP_KEY: &str =
    "UPDATE remembered SET digest = randomblob(16) WHERE scope = ?1 AND digest = ?2";
const KEEP: &str = "INSERT INTO remembered (scope, digest, fingerprint, created, kind, \
    seq, number, updated, record, text, request, api_version, hidden) VALUES (?1, ?2, ?3, ?4, ?5, \
    ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (scope, digest) DO NOTHING";
/// Rows are numbered in time order, so the oldest are found without an index on time.
const OLDEST: &str = "SELECT n, created, coalesce(octet_length(text), 0) + \
    coalesce(octet_length(hidden), 0) FROM remembered ORDER BY n LIMIT ?1";
const EXPIRE: &str = "DELETE FROM remembered WHERE n <= ?1";

/// The response stored under a key, unless it has expired.
pub fn find(
    connection: &Connection,
    scope: Scope,
    key: Key,
) -> Result<Option<Stored>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(FIND)?;
    let found = statement.query_row(params![scope.0, key.digest, key.expired.0], |row| {
        let from_event: bool = row.get(8)?;
        let shares = row.get::<_, bool>(15)?.then_some(row.get(14)?);
        let stored = Stored {
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
        };
        Ok((stored, shares))
    });
    match found.optional()? {
        Some((stored, Some(n))) => with_shared_text(connection, scope, stored, n),
        found => Ok(found.map(|(stored, _)| stored)),
    }
}

/// A row with the text that it shares. Without that text the row stands for nothing.
fn with_shared_text(
    connection: &Connection,
    scope: Scope,
    stored: Stored,
    n: i64,
) -> Result<Option<Stored>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(SHARED)?;
    let found = statement.query_row(params![stored.seq, scope.0, stored.record, n], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let Some((text, hidden, api_version, erased)) = found.optional()? else { return Ok(None) };
    let (from_event, event_record) = (false, None);
    Ok(Some(Stored { text, hidden, api_version, erased, from_event, event_record, ..stored }))
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

/// Rows with a text of their own that were written under a version, after a number: `max_rows` at
/// most, and none after the one with which they have `max_bytes`.
pub fn written_under(
    connection: &Connection,
    date: &str,
    after: i64,
    (max_rows, max_bytes): (i64, usize),
) -> Result<Vec<ResponseTexts>, rusqlite::Error> {
    let sql = "SELECT n, kind, text, hidden FROM remembered WHERE n > ?1 AND text IS NOT NULL \
        AND api_version = ?2 ORDER BY n LIMIT ?3";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(params![after, date, max_rows])?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (number, kind) = (row.get(0)?, row.get(1)?);
        let found = ResponseTexts { number, kind, text: row.get(2)?, hidden: row.get(3)? };
        bytes += found.text.len() + found.hidden.as_ref().map_or(0, String::len);
        page.push(found);
        if bytes >= max_bytes {
            break;
        }
    }
    Ok(page)
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
    let shares = may_share(connection, row)?;
    let text = row.text.as_deref().filter(|_| !shares);
    let api_version = row.api_version.as_deref().filter(|_| !shares);
    let hidden = row.hidden.as_deref().filter(|_| !shares);
    let mut keep = connection.prepare_cached(KEEP)?;
    let values = params![
        row.scope.0,
        row.digest,
        row.fingerprint,
        row.created.0,
        row.kind,
        row.seq,
        row.number,
        row.updated,
        row.record,
        text,
        row.request,
        api_version,
        hidden
    ];
    if keep.execute(values)? == 0 {
        connection.prepare_cached(GIVE_UP_KEY)?.execute(params![row.scope.0, row.digest])?;
        keep.execute(values)?;
    }
    Ok(())
}

/// Whether the row can do without a text of its own.
fn may_share(connection: &Connection, row: &NewRow) -> Result<bool, rusqlite::Error> {
    let large = row.text.as_ref().is_some_and(|text| text.len() >= SHARED_BYTES);
    if row.kind != idempotency::UPDATED || !large {
        return Ok(false);
    }
    let lasts = idempotency::shared_since(row.created).0;
    let found = connection.prepare_cached(MAY_SHARE)?.query_row(
        params![row.seq, row.scope.0, row.record, lasts, row.text, row.hidden, row.api_version],
        |row| row.get(0),
    );
    Ok(found.optional()?.unwrap_or(false))
}

/// Removes some expired rows; true when more may be left.
pub fn expire(connection: &Connection, now: Timestamp) -> Result<bool, rusqlite::Error> {
    let mut statement = connection.prepare_cached(OLDEST)?;
    let (mut rows, oldest) = (statement.query([EXPIRED_ROWS])?, idempotency::removed(now).0);
    let (mut last, mut count, mut bytes) = (None, 0, 0);
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(1)? > oldest || bytes >= EXPIRED_BYTES {
            break;
        }
        bytes += row.get::<_, i64>(2)?;
        if last.is_some() && bytes > EXPIRED_BYTES {
            break;
        }
        (last, count) = (Some(row.get::<_, i64>(0)?), count + 1);
    }
    drop(rows);
    let Some(last) = last else { return Ok(false) };
    connection.prepare_cached(EXPIRE)?.execute([last])?;
    Ok(count == EXPIRED_ROWS || bytes >= EXPIRED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::testbed::Bed;
    use super::*;

    #[test]
    fn a_page_of_stored_responses_is_bounded_by_their_number_and_their_bytes() {
        let bed = Bed::new("[collections.books.fields]\ntitle = 'string'\n");
        let mut connection = Connection::open(&bed.store.shared.path).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        let transaction = connection.transaction().unwrap();
        let insert = "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT 10) \
            INSERT INTO remembered (n, scope, digest, fingerprint, created, kind, seq, number, \
            updated, text, request, api_version) SELECT 1000 + n, 20, randomblob(16), \
            zeroblob(32), 1, 1, 1, 1, 1, hex(zeroblob(50)), '', iif(n = 3, 'other', 'now') FROM i";
        transaction.execute(insert, []).unwrap();
        let page = |after: i64, max: (i64, usize)| -> Vec<i64> {
            let page = written_under(&transaction, "now", after, max).unwrap();
            page.iter().map(|row| row.number - 1000).collect()
        };
        assert_eq!(page(0, (3, 1 << 20)), [1, 2, 4]);
        assert_eq!(page(1004, (3, 1 << 20)), [5, 6, 7]);
        assert_eq!(page(1001, (100, 250)), [2, 4, 5], "the row with which it is full is the last");
        assert_eq!(page(1008, (100, 1)), [9], "one row at least");
        assert!(page(1010, (100, 1)).is_empty());
    }

    #[test]
    fn a_slice_of_expired_rows_is_bounded_by_their_bytes_and_their_number() {
        let bed = Bed::new("[collections.books.fields]\ntitle = 'string'\n");
        let mut connection = Connection::open(&bed.store.shared.path).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        let now = Timestamp(1_700_000_000_000);
        // The writer must not remove them first.
        let transaction = connection.transaction().unwrap();
        for (rows, bytes, slices) in [(10, 100_000, 5), (3, 1_000_000, 3), (1200, 0, 3)] {
            let insert = "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i \
                LIMIT ?1) INSERT INTO remembered (scope, digest, fingerprint, created, kind, seq, \
                number, updated, text, request) SELECT 20, randomblob(16), zeroblob(32), 1, 1, 1, \
                1, 1, iif(?2 > 0, hex(zeroblob(?2 / 2)), NULL), '' FROM i";
            transaction.execute(insert, [rows, bytes]).unwrap();
            let mut needed = 1;
            while expire(&transaction, now).unwrap() {
                needed += 1;
            }
            let left = "SELECT count(*) FROM remembered";
            let left: i64 = transaction.query_row(left, [], |row| row.get(0)).unwrap();
            assert_eq!(left, 0, "{rows} rows of {bytes} bytes");
            assert!((slices..=slices + 1).contains(&needed), "{needed} slices of {rows} rows");
        }
    }
}
