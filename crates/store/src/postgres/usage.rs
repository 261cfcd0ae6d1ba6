//! Counts of requests by account and subject. Each call adds what was counted since the last one.
//! No event reports them.

use super::connect::{Cells, Client};
use super::param::{Param, params};
use crate::Error;
use crate::usage::{KEPT_KEYS, KEY_SUBJECT, NAMED_ACCOUNTS, SubjectUse, Used, UsedInAll};
use model::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

const SINCE: &str =
    "INSERT INTO meta VALUES ('version_usage_since', $1::bigint::text) ON CONFLICT DO NOTHING";
const BEGAN: &str = "SELECT value::bigint FROM meta WHERE name = 'version_usage_since'";
/// In one order: two nodes that add for the same accounts wait for each other, and never both.
const ADD: &str = "INSERT INTO version_usage (account, version, requests, last) \
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) \
    q(account, version, requests, last) ORDER BY account, version \
    ON CONFLICT (account, version) DO UPDATE SET \
    requests = version_usage.requests + excluded.requests, \
    last = greatest(version_usage.last, excluded.last)";
/// The rows of keys are those between `keys.` and `keys/`.
const FORGET_KEYS: &str = "DELETE FROM version_usage u USING unnest($1::text[]) a(account), \
    LATERAL (SELECT k.version FROM version_usage k WHERE k.account = a.account \
    AND k.version > 'keys.' AND k.version < 'keys/' ORDER BY k.last DESC, k.version OFFSET $2) o \
    WHERE u.account = a.account AND u.version = o.version";
const OF_ACCOUNT: &str = "SELECT version, requests, last FROM version_usage WHERE account = $1 \
    ORDER BY version";
const TOTALS: &str = "SELECT version, sum(requests)::bigint, count(*) FROM version_usage \
    WHERE version NOT LIKE 'keys.%' GROUP BY version ORDER BY version";
const LATEST: &str = "SELECT version, account, requests FROM (SELECT *, row_number() OVER \
    (PARTITION BY version ORDER BY last DESC, account) AS place FROM version_usage \
    WHERE version NOT LIKE 'keys.%') u \
    WHERE place <= $1 ORDER BY version, place";

/// Writes down when counting began.
pub async fn begin(client: &Client, now: Timestamp) -> Result<(), Error> {
    client.execute(SINCE, params![now.0]).await.map(drop)
}

pub async fn add(client: &Client, added: &[Used]) -> Result<(), Error> {
    // A statement changes a row once.
    let mut sums: BTreeMap<(&str, &str), (u64, i64)> = BTreeMap::new();
    for used in added {
        let sum = sums.entry((&used.account, &used.subject)).or_default();
        *sum = (sum.0.saturating_add(used.requests), sum.1.max(used.last.0));
    }
    let requests = |sum: &(u64, i64)| i64::try_from(sum.0).unwrap_or(i64::MAX);
    let values: [Param<'_>; 4] = [
        sums.keys().map(|key| key.0).collect::<Vec<&str>>().into(),
        sums.keys().map(|key| key.1).collect::<Vec<&str>>().into(),
        sums.values().map(requests).collect::<Vec<i64>>().into(),
        sums.values().map(|sum| sum.1).collect::<Vec<i64>>().into(),
    ];
    client.execute(ADD, &values).await?;
    let of_keys = sums.keys().filter(|(_, subject)| subject.starts_with(KEY_SUBJECT));
    let accounts: BTreeSet<&str> = of_keys.map(|(account, _)| *account).collect();
    if accounts.is_empty() {
        return Ok(());
    }
    let kept = i64::try_from(KEPT_KEYS).unwrap_or(i64::MAX);
    let values: [Param<'_>; 2] = [accounts.into_iter().collect::<Vec<&str>>().into(), kept.into()];
    client.execute(FORGET_KEYS, &values).await.map(drop)
}

pub async fn of_account(client: &Client, account: &str) -> Result<Vec<Used>, Error> {
    let rows = client.query(OF_ACCOUNT, params![account]).await?;
    let used = |row: &tokio_postgres::Row| {
        Ok(Used {
            account: account.to_owned(),
            subject: row.cell(0)?,
            requests: number(row.cell(1)?),
            last: Timestamp(row.cell(2)?),
        })
    };
    rows.iter().map(used).collect()
}

pub async fn in_all(client: &Client) -> Result<UsedInAll, Error> {
    let since = client.row(BEGAN, &[]).await?.map_or(Ok(0), |row| row.cell(0))?;
    let mut subjects = Vec::new();
    for row in client.query(TOTALS, &[]).await? {
        let (requests, accounts) = (number(row.cell(1)?), number(row.cell(2)?));
        let latest = Vec::new();
        subjects.push(SubjectUse { subject: row.cell(0)?, requests, accounts, latest });
    }
    let most = i64::try_from(NAMED_ACCOUNTS).unwrap_or(i64::MAX);
    for row in client.query(LATEST, params![most]).await? {
        let subject: String = row.cell(0)?;
        if let Some(found) = subjects.iter_mut().find(|one| one.subject == subject) {
            found.latest.push((row.cell(1)?, number(row.cell(2)?)));
        }
    }
    Ok(UsedInAll { since: Timestamp(since), subjects })
}

fn number(kept: i64) -> u64 {
    u64::try_from(kept).unwrap_or(0)
}
