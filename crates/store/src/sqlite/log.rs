//! The log: appending an event and reading events in order. Appending happens only inside the
//! writer's transaction.

use super::erasure;
use crate::{Error, EventPage, Repeats, event_bytes};
use model::event::Event;
use model::{Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

const APPEND: &str = "INSERT INTO log (seq, id, scope, type, created, collection, record, \
    api_version, object, previous, request, idempotency_key, hidden) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const NEWEST: &str = "SELECT seq, created FROM log ORDER BY seq DESC LIMIT 1";
/// What is read of an event: nothing that is being erased.
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT seq, id, scope, type, created, collection, record, api_version, ",
            erasure::object!("log"),
            ", ",
            erasure::or_null!("log", "previous"),
            ", ",
            erasure::origin!("log"),
            ", ",
            erasure::or_null!("log", "idempotency_key"),
            ", ",
            erasure::or_null!("log", "hidden"),
            " FROM log WHERE ",
            $condition,
            " ORDER BY seq"
        )
    };
}
const OF_ALL: &str = select!("seq > ?1");
const OF_SCOPE: &str = select!("scope = ?2 AND seq > ?1");

/// Sequence and time of the newest event; zeros in an empty log.
pub fn newest(connection: &Connection) -> Result<(i64, i64), rusqlite::Error> {
    let mut statement = connection.prepare_cached(NEWEST)?;
    let found = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(found.unwrap_or((0, 0)))
}

/// One event by its place. One that the disk has damaged is none.
pub fn event(connection: &Connection, seq: i64) -> Result<Option<Event>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(OF_ALL)?;
    let mut rows = statement.query([seq - 1])?;
    let found = rows.next()?.map(readable).transpose()?.flatten();
    Ok(found.filter(|event| event.seq == seq))
}

pub fn append(connection: &Connection, event: &Event) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(APPEND)?.execute(params![
        event.seq,
        event.id,
        event.scope.0,
        event.kind,
        event.created.0,
        event.collection,
        event.record,
        event.api_version,
        event.object,
        event.previous,
        event.request,
        event.idempotency_key,
        event.hidden
    ])?;
    Ok(())
}

static UNREADABLE: Repeats = Repeats::new();

/// Up to `max` events, and up to `bytes` of them but for the first. An event that the disk has
/// damaged is left out: those who follow the log for all accounts would otherwise stand still.
pub fn events(
    connection: &Connection,
    scope: Option<Scope>,
    after: i64,
    max: usize,
    bytes: usize,
) -> Result<EventPage, Error> {
    let mut statement =
        connection.prepare_cached(if scope.is_none() { OF_ALL } else { OF_SCOPE })?;
    let mut rows = match scope {
        None => statement.query([after])?,
        Some(scope) => statement.query([after, scope.0])?,
    };
    let (mut found, mut left) = (EventPage::default(), bytes);
    while found.events.len() < max
        && let Some(row) = rows.next()?
    {
        let Some(event) = readable(row)? else { continue };
        let weight = event_bytes(&event);
        if weight > left && !found.events.is_empty() {
            found.more = true;
            return Ok(found);
        }
        left = left.saturating_sub(weight);
        found.events.push(event);
    }
    found.more = found.events.len() >= max;
    Ok(found)
}

/// An event, unless the disk has damaged it: then this is said.
fn readable(row: &Row<'_>) -> Result<Option<Event>, rusqlite::Error> {
    let error = match event_of(row) {
        Err(error) if is_unreadable(&error) => error,
        event => return event.map(Some),
    };
    let seq: i64 = row.get(0)?;
    if let Some(times) = UNREADABLE.note(&seq.to_string()) {
        tracing::error!(
            seq,
            %error,
            times,
            "an event in the log is damaged and is left out: run `restive doctor`, restore a backup"
        );
    }
    Ok(None)
}

/// Whether a value of a row is none that was written: its page is sound for the database, which
/// does not look at the letters of a text.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error,
    };
    matches!(
        error,
        FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | Utf8Error(..)
    )
}

fn event_of(row: &Row<'_>) -> Result<Event, rusqlite::Error> {
    Ok(Event {
        seq: row.get(0)?,
        id: row.get(1)?,
        scope: Scope(row.get(2)?),
        kind: row.get(3)?,
        created: Timestamp(row.get(4)?),
        collection: row.get(5)?,
        record: row.get(6)?,
        api_version: row.get(7)?,
        object: row.get(8)?,
        previous: row.get(9)?,
        request: row.get(10)?,
        idempotency_key: row.get(11)?,
        hidden: row.get(12)?,
    })
}
