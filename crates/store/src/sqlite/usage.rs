//! Counts of requests by account and version, as they were handed over: each time what was added
//! since. Beside everything else, no event tells of them.

use crate::Error;
use crate::usage::{Used, UsedInAll};
use model::Timestamp;
use rusqlite::{Connection, params};

/// Made by whoever serves, in files of older releases too.
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
const OF_ACCOUNT: &str = "SELECT version, requests, last FROM version_usage WHERE account = ?1";
const TOTALS: &str = "SELECT version, sum(requests), count(*) FROM version_usage GROUP BY version";

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
        statement.execute(params![used.account, used.version, requests, used.last.0])?;
    }
    Ok(())
}

pub fn of_account(connection: &Connection, account: &str) -> Result<Vec<Used>, Error> {
    let mut statement = connection.prepare_cached(OF_ACCOUNT)?;
    let rows = statement.query_map([account], |row| {
        Ok(Used {
            account: account.to_owned(),
            version: row.get(0)?,
            requests: number(row.get(1)?),
            last: Timestamp(row.get(2)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub fn in_all(connection: &Connection) -> Result<UsedInAll, rusqlite::Error> {
    let since = connection.query_row(BEGAN, [], |row| row.get(0))?;
    let mut statement = connection.prepare(TOTALS)?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, number(row.get(1)?), number(row.get(2)?))))?;
    Ok(UsedInAll { since: Timestamp(since), versions: rows.collect::<Result<_, _>>()? })
}

fn number(kept: i64) -> u64 {
    u64::try_from(kept).unwrap_or(0)
}
