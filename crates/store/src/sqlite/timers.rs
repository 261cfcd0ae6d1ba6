//! Timed transitions that wait. A timer names its transition by its states, not by its place in the
//! schema, so that an edited schema cannot fire another one.

use super::shared::Shared;
use crate::{Due, Error, Timer};
use model::decide::TimerDraft;
use model::{Collection, Schema, Scope, Timestamp, Write};
use rusqlite::{Connection, params};

const DUE: &str = "SELECT due, scope, collection, parent, record, transition FROM timers \
    ORDER BY due, n LIMIT ?1";
const CLEAR: &str = "DELETE FROM timers WHERE record = ?1 AND collection = ?2";
const VOID: &str = "DELETE FROM timers WHERE record = ?1 AND collection = ?2 AND transition = ?3";
const SET: &str = "INSERT INTO timers (due, scope, collection, parent, record, transition) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Timers that are due, and when the next one will be.
pub fn due(
    connection: &Connection,
    shared: &Shared,
    now: Timestamp,
    max: usize,
) -> Result<Due, Error> {
    let mut statement = connection.prepare_cached(DUE)?;
    let mut rows = statement.query([i64::try_from(max).unwrap_or(i64::MAX).saturating_add(1)])?;
    let mut found = Due::default();
    while let Some(row) = rows.next()? {
        let due = Timestamp(row.get(0)?);
        if due > now || found.timers.len() == max {
            found.next = Some(due);
            break;
        }
        let name: String = row.get(2)?;
        let transition: String = row.get(5)?;
        if let Some((collection, transition)) = resolve(&shared.schema, &name, &transition) {
            found.timers.push(Timer {
                scope: Scope(row.get(1)?),
                collection,
                parent: row.get(3)?,
                id: row.get(4)?,
                transition,
                due,
            });
        }
    }
    Ok(found)
}

/// Replaces the timers of a record.
pub fn replace(
    connection: &Connection,
    collection: &Collection,
    write: &Write,
    record: &str,
    timers: &[TimerDraft],
) -> Result<(), rusqlite::Error> {
    if collection.timed.is_empty() {
        return Ok(());
    }
    clear(connection, collection, record)?;
    for timer in timers {
        let Some(transition) = name_of(collection, timer.transition) else { continue };
        connection.prepare_cached(SET)?.execute(params![
            timer.due.0,
            write.scope.0,
            collection.name,
            write.parent,
            record,
            transition
        ])?;
    }
    Ok(())
}

pub fn clear(
    connection: &Connection,
    collection: &Collection,
    record: &str,
) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(CLEAR)?.execute(params![record, collection.name])?;
    Ok(())
}

/// Removes one timer that came to nothing.
pub fn void(
    connection: &Connection,
    collection: &Collection,
    record: &str,
    transition: usize,
) -> Result<(), rusqlite::Error> {
    let Some(name) = name_of(collection, transition) else { return Ok(()) };
    connection.prepare_cached(VOID)?.execute(params![record, collection.name, name])?;
    Ok(())
}

/// Removes the timers whose transition the schema no longer has.
pub fn drop_unknown(connection: &Connection, schema: &Schema) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare("SELECT DISTINCT collection, transition FROM timers")?;
    let kinds = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<(String, String)>, _>>()?;
    for (collection, transition) in kinds {
        if resolve(schema, &collection, &transition).is_none() {
            connection.execute(
                "DELETE FROM timers WHERE collection = ?1 AND transition = ?2",
                params![collection, transition],
            )?;
        }
    }
    Ok(())
}

/// Timers follow their transitions when the states get other names. Both collections have the same
/// transitions in the same places.
pub fn rename(
    connection: &Connection,
    old: &Collection,
    new: &Collection,
) -> Result<(), rusqlite::Error> {
    const RENAME: &str =
        "UPDATE timers SET transition = ?3 WHERE collection = ?1 AND transition = ?2";
    // In two steps: names may be exchanged.
    let places = 0..new.timed.len();
    let names =
        places.filter_map(|place| Some((place, name_of(old, place)?, name_of(new, place)?)));
    let renamed: Vec<_> = names.filter(|(_, old, new)| old != new).collect();
    for (place, old, _) in &renamed {
        connection.execute(RENAME, params![new.name, old, format!("> {place}")])?;
    }
    for (place, _, now) in &renamed {
        connection.execute(RENAME, params![new.name, format!("> {place}"), now])?;
    }
    Ok(())
}

fn name_of(collection: &Collection, transition: usize) -> Option<String> {
    let timed = collection.timed.get(transition)?;
    Some(format!("{} > {}", timed.from, timed.to))
}

fn resolve(schema: &Schema, collection: &str, transition: &str) -> Option<(usize, usize)> {
    let ix = schema.find(collection)?;
    let found = &schema.collections[ix];
    let named = |place: &usize| name_of(found, *place).as_deref() == Some(transition);
    Some((ix, (0..found.timed.len()).find(named)?))
}
