//! The end of events: those that are too old go, and the payloads of one resource go when somebody
//! asks for it. Ids and outcomes of erased events stay.

use super::apply::Fault;
use crate::Error;
use model::write::{Change, Write};
use model::{Code, Problem, Scope, Timestamp, Violation};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

/// The log is in order of time, so a moment is found by halving.
const OLDEST: &str = "SELECT seq FROM log ORDER BY seq LIMIT 1";
const AT: &str = "SELECT seq, created FROM log WHERE seq >= ?1 ORDER BY seq LIMIT 1";
const LAST: &str =
    "SELECT max(seq) FROM (SELECT seq FROM log WHERE seq < ?1 ORDER BY seq LIMIT ?2)";

/// Sequence of the newest event before a moment; 0 if there is none.
pub fn before(connection: &Connection, moment: Timestamp) -> Result<i64, Error> {
    let (newest, time) = super::log::newest(connection)?;
    if time < moment.0 {
        return Ok(newest);
    }
    let oldest: Option<i64> =
        connection.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    let Some(oldest) = oldest else { return Ok(0) };
    // Events at or after `high` are not before the moment; those before `low` are.
    let (mut low, mut high) = (oldest, newest);
    let mut statement = connection.prepare_cached(AT)?;
    while low < high {
        let middle = low + (high - low) / 2;
        let (seq, created): (i64, i64) =
            statement.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))?;
        match created < moment.0 {
            true => low = seq + 1,
            false => high = middle,
        }
    }
    Ok(low - 1)
}

/// The oldest event that is kept; 0 in an empty log.
pub fn oldest(connection: &Connection) -> Result<i64, rusqlite::Error> {
    let found = connection.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(0))
}

/// Removes events from before a moment, `max` at most. The newest one stays whatever its age: the
/// sequence goes on from it. So do those that a search index has not read.
pub fn expire(
    connection: &Connection,
    moment: Timestamp,
    searched: i64,
    max: usize,
) -> Result<usize, Error> {
    let newest = super::log::newest(connection)?.0;
    let end = before(connection, moment)?.saturating_add(1).min(newest).min(searched);
    let last: Option<i64> =
        connection.prepare_cached(LAST)?.query_row(params![end, max as i64], |row| row.get(0))?;
    let Some(last) = last else { return Ok(0) };
    for sql in [
        "DELETE FROM attempts WHERE delivery IN (SELECT n FROM deliveries WHERE event <= ?1)",
        "DELETE FROM deliveries WHERE event <= ?1",
    ] {
        connection.prepare_cached(sql)?.execute([last])?;
    }
    Ok(connection.prepare_cached("DELETE FROM log WHERE seq <= ?1")?.execute([last])?)
}

/// The erasure as it shall be kept: with the number of events it is about.
pub fn counted(connection: &Connection, write: &Write) -> Result<Write, Fault> {
    let mut counted = write.clone();
    let Change::Create { fields } = &mut counted.change else { return Ok(counted) };
    let resource = fields.get("resource").and_then(Value::as_str).unwrap_or_default();
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM log WHERE record = ?1 AND scope = ?2")?
        .query_row(params![resource, write.scope.0], |row| row.get(0))?;
    if count == 0 {
        let message = "No event is about this `resource`.";
        let violation = Violation::new("resource", Code::BadReference, message);
        let violation = violation.value(&Value::String(resource.to_owned()));
        return Err(Fault::Problem(Problem::of(Code::ValidationFailed, vec![violation])));
    }
    fields.insert("events".into(), count.into());
    Ok(counted)
}

/// Removes what events say of a resource, and what endpoints answered to them.
pub fn erase(connection: &Connection, scope: Scope, write: &Write) -> Result<(), rusqlite::Error> {
    let Change::Create { fields } = &write.change else { return Ok(()) };
    let resource = fields.get("resource").and_then(Value::as_str).unwrap_or_default();
    for sql in [
        "UPDATE attempts SET body = json_set(body, '$.response_body', NULL) WHERE delivery IN \
         (SELECT d.n FROM deliveries d WHERE d.event IN \
         (SELECT seq FROM log WHERE record = ?1 AND scope = ?2))",
        "UPDATE log SET object = json_object('id', record, 'object', \
         json_extract(object, '$.object'), 'erased', json('true')), previous = NULL, hidden = NULL \
         WHERE record = ?1 AND scope = ?2",
    ] {
        connection.prepare_cached(sql)?.execute(params![resource, scope.0])?;
    }
    Ok(())
}
