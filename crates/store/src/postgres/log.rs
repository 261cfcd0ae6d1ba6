//! The log: reading events in order, and the newest one. Appending is in `write`.

use super::connect::{Cells, Client};
use super::erasure;
use super::param::{decoded, params};
use crate::{Error, EventPage, event_bytes};
use model::event::Event;
use model::{Scope, Timestamp};
use tokio_postgres::Row;

pub const NEWEST: &str = "SELECT seq, created FROM log ORDER BY seq DESC LIMIT 1";
/// Rows that are read at once: `max` may be any number, and a limit in bytes ends the read.
const PART: usize = 1_000;

/// What is read of an event: nothing that is being erased. The limit inside keeps the database from
/// asking for each column anew whether it is.
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT seq, id, scope, type, created, collection, record, api_version, ",
            erasure::object!("log", "log.erases"),
            ", ",
            erasure::or_null!("log", "previous", "log.erases"),
            ", ",
            erasure::origin!("log", "log.erases"),
            ", ",
            erasure::or_null!("log", "idempotency_key", "log.erases"),
            ", ",
            erasure::or_null!("log", "hidden", "log.erases"),
            " FROM (SELECT *, ",
            erasure::erases!("log"),
            " AS erases FROM log WHERE ",
            $condition,
            " ORDER BY seq LIMIT $2) log ORDER BY seq"
        )
    };
}
const OF_ALL: &str = select!("seq > $1");
const OF_SCOPE: &str = select!("scope = $3 AND seq > $1");
/// Of events that have a number: each of these.
const THESE: &str = select!("seq = ANY($1)");

/// Sequence and time of the newest event; zeros in an empty log.
pub async fn newest(client: &Client) -> Result<(i64, i64), Error> {
    match client.row(NEWEST, &[]).await? {
        Some(row) => Ok((row.cell(0)?, row.cell(1)?)),
        None => Ok((0, 0)),
    }
}

/// Those of these events that exist.
pub async fn these(client: &Client, seqs: Vec<i64>) -> Result<Vec<Event>, Error> {
    let most = seqs.len() as i64;
    let rows = client.query(THESE, params![seqs, most]).await?;
    rows.iter().map(event_of).collect()
}

/// Up to `max` events, and up to `bytes` of them but for the first.
pub async fn events(
    client: &Client,
    scope: Option<Scope>,
    after: i64,
    max: usize,
    bytes: usize,
) -> Result<EventPage, Error> {
    let (mut found, mut left, mut after) = (EventPage::default(), bytes, after);
    loop {
        let most = (max - found.events.len()).min(PART);
        // Few first where bytes are limited: events may be large.
        let most = match bytes {
            usize::MAX => most,
            _ if found.events.is_empty() => most.min(64),
            _ => most,
        };
        let rows = match scope {
            None => client.query(OF_ALL, params![after, most as i64]).await?,
            Some(scope) => client.query(OF_SCOPE, params![after, most as i64, scope.0]).await?,
        };
        for row in &rows {
            let event = event_of(row)?;
            let weight = event_bytes(&event);
            if weight > left && !found.events.is_empty() {
                found.more = true;
                return Ok(found);
            }
            left = left.saturating_sub(weight);
            after = event.seq;
            found.events.push(event);
        }
        found.more = found.events.len() >= max;
        if found.more || rows.len() < most {
            return Ok(found);
        }
    }
}

fn event_of(row: &Row) -> Result<Event, Error> {
    Ok(Event {
        seq: row.cell(0)?,
        id: row.cell(1)?,
        scope: Scope(row.cell(2)?),
        kind: row.cell(3)?,
        created: Timestamp(row.cell(4)?),
        collection: row.cell(5)?,
        record: decoded(row.cell(6)?),
        api_version: row.cell(7)?,
        object: row.cell(8)?,
        previous: row.cell(9)?,
        request: row.cell(10)?,
        idempotency_key: row.cell(11)?,
        hidden: row.cell(12)?,
    })
}
