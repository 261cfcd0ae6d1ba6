//! Counts of requests by account and subject. Each call adds what was counted since the last one.
//! No event reports them.

use crate::Error;
use crate::usage::{KEPT_KEYS, KEY_SUBJECT, NAMED_ACCOUNTS, SubjectUse, Used, UsedInAll};
use model::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;

/// Created by the server, in files of older releases too. At first the subjects were versions only,
/// hence the name of the column. Rows `keys.<id>` say when a key was last used; totals leave them
/// out, because there are many keys.
pub const TABLE: &str = "
CREATE TABLE IF NOT EXISTS version_usage (
  account TEXT NOT NULL, version TEXT NOT NULL, requests INTEGER NOT NULL, last INTEGER NOT NULL,
  PRIMARY KEY (account, version)) STRICT, WITHOUT ROWID;
";

const SINCE: &str = "INSERT OR IGNORE INTO meta VALUES ('version_usage_since', ?1)";
const BEGAN: &str = "SELECT value FROM meta WHERE name = 'version_usage_since'";
const ADD: &str = "INSERT INTO version_usage VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (account, version) DO UPDATE SET \
    requests = requests + excluded.requests, last = max(last, excluded.last)";
/// The rows of keys are those between `keys.` and `keys/`.
const FORGET_KEYS: &str = "DELETE FROM version_usage WHERE account = ?1 AND version IN \
    (SELECT version FROM version_usage WHERE account = ?1 AND version > 'keys.' \
    AND version < 'keys/' ORDER BY last DESC, version LIMIT -1 OFFSET ?2)";
const OF_ACCOUNT: &str = "SELECT version, requests, last FROM version_usage WHERE account = ?1";
const TOTALS: &str = "SELECT version, sum(requests), count(*) FROM version_usage \
    WHERE version NOT GLOB 'keys.*' GROUP BY version";
const LATEST: &str = "SELECT version, account, requests FROM (SELECT *, row_number() OVER \
    (PARTITION BY version ORDER BY last DESC, account) AS place FROM version_usage \
    WHERE version NOT GLOB 'keys.*') \
    WHERE place <= ?1 ORDER BY version, place";

/// Makes the table, and writes down when counting began.
pub fn begin(connection: &Connection, now: Timestamp) -> Result<(), rusqlite::Error> {
    connection.execute_batch(TABLE)?;
    if !connection.prepare(BEGAN)?.exists([])? {
        connection.execute(SINCE, [now.0])?;
    }
    Ok(())
}

pub fn add(connection: &Connection, added: &[Used]) -> Result<(), Error> {
    let mut statement = connection.prepare_cached(ADD)?;
    for used in added {
        let requests = i64::try_from(used.requests).unwrap_or(i64::MAX);
        statement.execute(params![used.account, used.subject, requests, used.last.0])?;
    }
    let mut forget = connection.prepare_cached(FORGET_KEYS)?;
    let of_keys = added.iter().filter(|used| used.subject.starts_with(KEY_SUBJECT));
    let accounts: BTreeSet<&str> = of_keys.map(|used| used.account.as_str()).collect();
    for account in accounts {
        forget.execute(params![account, i64::try_from(KEPT_KEYS).unwrap_or(i64::MAX)])?;
    }
    Ok(())
}

pub fn of_account(connection: &Connection, account: &str) -> Result<Vec<Used>, Error> {
    let mut statement = connection.prepare_cached(OF_ACCOUNT)?;
    let rows = statement.query_map([account], |row| {
        Ok(Used {
            account: account.to_owned(),
            subject: row.get(0)?,
            requests: number(row.get(1)?),
            last: Timestamp(row.get(2)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub fn in_all(connection: &Connection) -> Result<UsedInAll, rusqlite::Error> {
    let since = connection.query_row(BEGAN, [], |row| row.get(0))?;
    let mut statement = connection.prepare(TOTALS)?;
    let subjects = statement.query_map([], |row| {
        let (requests, accounts) = (number(row.get(1)?), number(row.get(2)?));
        Ok(SubjectUse { subject: row.get(0)?, requests, accounts, latest: Vec::new() })
    })?;
    let mut subjects: Vec<SubjectUse> = subjects.collect::<Result<_, _>>()?;
    let mut statement = connection.prepare(LATEST)?;
    let mut rows = statement.query([i64::try_from(NAMED_ACCOUNTS).unwrap_or(i64::MAX)])?;
    while let Some(row) = rows.next()? {
        let subject: String = row.get(0)?;
        if let Some(found) = subjects.iter_mut().find(|one| one.subject == subject) {
            found.latest.push((row.get(1)?, number(row.get(2)?)));
        }
    }
    Ok(UsedInAll { since: Timestamp(since), subjects })
}

fn number(kept: i64) -> u64 {
    u64::try_from(kept).unwrap_or(0)
}
