//! The rows of stored responses. A narrow row per key, inserted in the commit of its write. What a
//! row means is `crate::idempotency`'s.

use super::connect::{Cells, Client, Step};
use super::erasure;
use super::param::{Param, decoded, params};
use crate::Error;
use crate::idempotency::{self, Key, NewRow, Stored};
use crate::upgrade::ResponseTexts;
use model::{Scope, Timestamp};
use tokio_postgres::Row;

/// Expired rows removed at once at most.
const EXPIRED_ROWS: i64 = 500;
/// An update that changed nothing answers with the whole record. A text of so many bytes or more is
/// stored once, and later rows share it: requests of a few bytes must not fill the disk.
const SHARED_BYTES: usize = 1024;

const FIND: &str = concat!(
    "SELECT q.place, r.fingerprint, r.kind, r.seq, r.number, r.updated, \
     coalesce(r.record, l.record), coalesce(r.text, ",
    erasure::object!("l"),
    "), r.request, r.text IS NULL, coalesce(r.api_version, l.api_version), r.hidden, ",
    erasure::or_null!("l", "hidden"),
    ", r.text IS NOT NULL AND (",
    erasure::erases!("l"),
    " OR EXISTS (SELECT 1 FROM erasing y WHERE y.scope = r.scope AND y.record = r.record \
     AND y.answers >= r.n)), l.record, r.n, \
     r.kind = 1 AND r.record IS NOT NULL AND r.text IS NULL \
     FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[]) \
     q(scope, digest, expired, place) \
     JOIN remembered r ON r.scope = q.scope AND r.digest = q.digest AND r.created > q.expired \
     LEFT JOIN log l ON l.seq = r.seq"
);
const ABOUT: &str = "SELECT n FROM remembered WHERE scope = $1 AND record = $2 \
    AND text IS NOT NULL AND n > $3 AND n <= $4 ORDER BY n LIMIT 1";
const SHOWING_EVENT: &str = "SELECT n, record FROM remembered \
    WHERE seq = $1 AND text IS NOT NULL AND n > $2 ORDER BY n LIMIT $3";
const TEXT: &str = "SELECT kind, record, text FROM remembered WHERE n = $1";
const ERASE: &str = "UPDATE remembered SET text = $2, hidden = NULL WHERE n = $1";
/// The text that row $4 shares: that of the last row before it which has one of the same record in
/// the same version.
const SHARED: &str = "SELECT h.text, h.hidden, h.api_version, EXISTS (SELECT 1 FROM erasing y \
    WHERE y.scope = h.scope AND y.record = h.record AND y.answers >= h.n) \
    FROM remembered h WHERE h.seq = $1 AND h.text IS NOT NULL \
    AND h.scope = $2 AND h.record = $3 AND h.kind = 1 AND h.n < $4 ORDER BY h.n DESC LIMIT 1";
/// Whether the row that would be found later has this text, and lasts long enough.
const MAY_SHARE: &str = "SELECT h.created > $4 AND h.text = $5 \
    AND h.hidden IS NOT DISTINCT FROM $6 AND h.api_version IS NOT DISTINCT FROM $7 \
    AND NOT EXISTS (SELECT 1 FROM erasing y WHERE y.scope = h.scope AND y.record = h.record) \
    FROM remembered h WHERE h.seq = $1 AND h.text IS NOT NULL \
    AND h.scope = $2 AND h.record = $3 AND h.kind = 1 ORDER BY h.n DESC LIMIT 1";
/// An expired row gives up its key; others may share its text.
pub const GIVE_UP_KEYS: &str = "UPDATE remembered r SET digest = \
    substr(sha256(r.digest || int8send(r.n)), 1, 16) \
    FROM unnest($1::bigint[], $2::bytea[]) q(scope, digest) \
    WHERE r.scope = q.scope AND r.digest = q.digest";
pub const KEEP: &str = "INSERT INTO remembered (scope, digest, fingerprint, created, kind, seq, \
    number, updated, record, text, request, api_version, hidden) SELECT scope, digest, \
    fingerprint, created, kind, seq, number, updated, record, text, request, api_version, hidden \
    FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], \
    $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[]) \
    WITH ORDINALITY q(scope, digest, fingerprint, created, kind, seq, number, updated, record, \
    text, request, api_version, hidden, place) ORDER BY place";
/// Rows are numbered in time order, so the oldest are found without an index on time.
const EXPIRE: &str = "DELETE FROM remembered WHERE n IN (SELECT n FROM (SELECT n, created FROM \
    remembered ORDER BY n LIMIT $2 FOR UPDATE SKIP LOCKED) r WHERE r.created <= $1)";

/// A key that is looked up, and the place of the one who asks.
pub struct Asked {
    pub scope: Scope,
    pub key: Key,
    pub place: usize,
}

/// The statement that finds the responses stored under some keys, unless they have expired.
pub fn question(asked: &[Asked]) -> Step {
    let values: [Param<'_>; 4] = [
        asked.iter().map(|one| one.scope.0).collect::<Vec<i64>>().into(),
        asked.iter().map(|one| &one.key.digest[..]).collect::<Vec<&[u8]>>().into(),
        asked.iter().map(|one| one.key.expired.0).collect::<Vec<i64>>().into(),
        asked.iter().map(|one| one.place as i64).collect::<Vec<i64>>().into(),
    ];
    Step::new(FIND, &values)
}

/// The responses in its rows, each with the place of the one who asked.
pub async fn answers(
    client: &Client,
    asked: &[Asked],
    rows: &[Row],
) -> Result<Vec<(usize, Stored)>, Error> {
    let mut found = Vec::new();
    for row in rows {
        let place = usize::try_from(row.cell::<i64>(0)?).unwrap_or(0);
        let stored = stored_of(row)?;
        if !row.cell::<bool>(16)? {
            found.push((place, stored));
            continue;
        }
        let scope = asked.iter().find(|one| one.place == place).map(|one| one.scope);
        let (Some(scope), n) = (scope, row.cell(15)?) else { continue };
        if let Some(stored) = with_shared_text(client, scope, stored, n).await? {
            found.push((place, stored));
        }
    }
    Ok(found)
}

/// The response stored under one key.
pub async fn find(client: &Client, scope: Scope, key: Key) -> Result<Option<Stored>, Error> {
    let asked = [Asked { scope, key, place: 0 }];
    let Step { sql, values } = question(&asked);
    let rows = client.query(&sql, &values).await?;
    Ok(answers(client, &asked, &rows).await?.pop().map(|(_, stored)| stored))
}

fn stored_of(row: &Row) -> Result<Stored, Error> {
    let from_event: bool = row.cell(9)?;
    let fingerprint = row.cell::<&[u8]>(1)?.try_into().unwrap_or([0; 32]);
    Ok(Stored {
        fingerprint,
        kind: row.cell(2)?,
        seq: row.cell(3)?,
        number: row.cell(4)?,
        updated: row.cell(5)?,
        record: decoded(row.cell::<Option<String>>(6)?.unwrap_or_default()),
        text: row.cell::<Option<String>>(7)?.unwrap_or_default(),
        request: row.cell(8)?,
        from_event,
        api_version: row.cell(10)?,
        hidden: row.cell(if from_event { 12 } else { 11 })?,
        erased: row.cell::<Option<bool>>(13)?.unwrap_or(false),
        event_record: row.cell(14)?,
    })
}

/// A row with the text that it shares. Without that text the row stands for nothing.
async fn with_shared_text(
    client: &Client,
    scope: Scope,
    stored: Stored,
    n: i64,
) -> Result<Option<Stored>, Error> {
    let values = params![stored.seq, scope.0, &stored.record, n];
    let Some(row) = client.row(SHARED, values).await? else { return Ok(None) };
    let (text, hidden) = (row.cell(0)?, row.cell(1)?);
    let (api_version, erased) = (row.cell(2)?, row.cell(3)?);
    let (from_event, event_record) = (false, None);
    Ok(Some(Stored { text, hidden, api_version, erased, from_event, event_record, ..stored }))
}

/// The next row about a record, after the first number and up to the second.
pub async fn next_about(
    client: &Client,
    scope: i64,
    record: &str,
    (after, upto): (i64, i64),
) -> Result<Option<i64>, Error> {
    let row = client.row(ABOUT, params![scope, record, after, upto]).await?;
    row.map(|row| row.cell(0)).transpose()
}

/// Rows with a text of their own that show the same as an event, after a number and `max` at most,
/// each with its record.
pub async fn showing_event(
    client: &Client,
    seq: i64,
    after: i64,
    max: usize,
) -> Result<Vec<(i64, Option<String>)>, Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = client.query(SHOWING_EVENT, params![seq, after, max]).await?;
    rows.iter().map(|row| Ok((row.cell(0)?, row.cell(1)?))).collect()
}

/// Erases a resource from a row's text, its own record if none is given.
pub async fn erase(client: &Client, n: i64, about: Option<&str>) -> Result<(), Error> {
    let Some(row) = client.row(TEXT, params![n]).await? else { return Ok(()) };
    let (id, text): (Option<String>, String) = (row.cell(1)?, row.cell(2)?);
    let text = idempotency::erased(row.cell(0)?, &id.unwrap_or_default(), about, &text);
    client.execute(ERASE, params![n, &text]).await.map(drop)
}

/// Rows with a text of their own that were written under a version, after a number: `max_rows` at
/// most, and none after the one with which they have `max_bytes`.
pub async fn written_under(
    client: &Client,
    date: &str,
    after: i64,
    (max_rows, max_bytes): (i64, usize),
) -> Result<Vec<ResponseTexts>, Error> {
    let sql = "SELECT n, kind, text, hidden FROM remembered WHERE n > $1 AND text IS NOT NULL \
        AND api_version = $2 ORDER BY n LIMIT $3";
    let (mut page, mut bytes) = (Vec::new(), 0);
    for row in client.query(sql, params![after, date, max_rows]).await? {
        let (number, kind) = (row.cell(0)?, row.cell(1)?);
        let found = ResponseTexts { number, kind, text: row.cell(2)?, hidden: row.cell(3)? };
        bytes += found.text.len() + found.hidden.as_ref().map_or(0, String::len);
        page.push(found);
        if bytes >= max_bytes {
            break;
        }
    }
    Ok(page)
}

pub async fn set_texts(
    client: &Client,
    n: i64,
    version: &str,
    (text, hidden): (&str, Option<&str>),
) -> Result<(), Error> {
    let sql = "UPDATE remembered SET api_version = $2, text = $3, hidden = $4 WHERE n = $1";
    client.execute(sql, params![n, version, text, hidden]).await.map(drop)
}

/// Whether the row can do without a text of its own.
pub async fn may_share(client: &Client, row: &NewRow) -> Result<bool, Error> {
    let lasts = idempotency::shared_since(row.created).0;
    let values = params![
        row.seq,
        row.scope.0,
        row.record.as_deref(),
        lasts,
        row.text.as_deref(),
        row.hidden.as_deref(),
        row.api_version.as_deref()
    ];
    let found = client.row(MAY_SHARE, values).await?;
    found.map_or(Ok(false), |row| Ok(row.cell::<Option<bool>>(0)?.unwrap_or(false)))
}

/// Whether it is worth asking.
pub fn is_large_update(row: &NewRow) -> bool {
    let large = row.text.as_ref().is_some_and(|text| text.len() >= SHARED_BYTES);
    row.kind == idempotency::UPDATED && large
}

/// The values of `KEEP`.
pub fn values(rows: &[NewRow]) -> Vec<Param<'static>> {
    let whole = |of: fn(&NewRow) -> i64| Param::from(rows.iter().map(of).collect::<Vec<i64>>());
    let text = |of: fn(&NewRow) -> Option<&str>| {
        Param::from(rows.iter().map(of).collect::<Vec<Option<&str>>>()).owned()
    };
    let blob =
        |of: fn(&NewRow) -> &[u8]| Param::from(rows.iter().map(of).collect::<Vec<&[u8]>>()).owned();
    vec![
        whole(|row| row.scope.0),
        blob(|row| &row.digest),
        blob(|row| &row.fingerprint),
        whole(|row| row.created.0),
        whole(|row| row.kind),
        whole(|row| row.seq),
        whole(|row| row.number),
        whole(|row| row.updated),
        text(|row| row.record.as_deref()),
        text(|row| row.text.as_deref()),
        text(|row| Some(&row.request)),
        text(|row| row.api_version.as_deref()),
        text(|row| row.hidden.as_deref()),
    ]
}

/// Removes some expired rows; true when more may be left.
pub async fn expire(client: &Client, now: Timestamp) -> Result<bool, Error> {
    let values = params![idempotency::removed(now).0, EXPIRED_ROWS];
    Ok(client.execute(EXPIRE, values).await? as i64 == EXPIRED_ROWS)
}
