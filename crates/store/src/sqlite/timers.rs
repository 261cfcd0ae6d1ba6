//! Timed transitions that wait. A timer names its transition by its states, not by its place in the
//! schema, so that an edited schema cannot fire another one.

use super::shared::Shared;
use crate::upkeep::transition_name;
use crate::{Due, Error, Timer, UnknownTimer};
use model::decide::TimerDraft;
use model::{Collection, Schema, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::atomic::Ordering;

/// For the timers of one account.
pub const INDEX: &str = "CREATE INDEX IF NOT EXISTS timers_scope ON timers (scope, due);";
/// Scopes looked at in one turn when more is due than a turn can take: some hundred microseconds.
const SCOPES: usize = 256;
/// Due at the end of time: a timer that cannot fire. It goes when its record changes.
const NEVER: i64 = i64::MAX;

const DUE: &str = "SELECT due, scope, collection, parent, record, transition FROM timers \
    WHERE due < ?2 ORDER BY due, n LIMIT ?1";
const SCOPE: &str = "SELECT scope FROM timers WHERE scope > ?1 ORDER BY scope LIMIT 1";
const IS_DUE: &str = "SELECT 1 FROM timers WHERE scope = ?1 AND due <= ?2 LIMIT 1";
const DUE_OF_SCOPE: &str = "SELECT due, scope, collection, parent, record, transition FROM timers \
    WHERE scope = ?1 AND due <= ?2 ORDER BY due, n LIMIT ?3";
const SET_ASIDE: &str = "UPDATE timers SET due = ?4 \
    WHERE record = ?1 AND collection = ?2 AND transition = ?3";
const CLEAR: &str = "DELETE FROM timers WHERE record = ?1 AND collection = ?2";
const REMOVE: &str = "DELETE FROM timers WHERE record = ?1 AND collection = ?2 AND transition = ?3";
const SET: &str = "INSERT INTO timers (due, scope, collection, parent, record, transition) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Timers that are due, and when the next one will be. When more are due than a turn can take,
/// every account has its part of the turn.
pub fn due(
    connection: &Connection,
    shared: &Shared,
    now: Timestamp,
    max: usize,
) -> Result<Due, Error> {
    let mut found = Due::default();
    let mut statement = connection.prepare_cached(DUE)?;
    let most = i64::try_from(max).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = statement.query([most, NEVER])?;
    while let Some(row) = rows.next()? {
        let due = Timestamp(row.get(0)?);
        if due > now {
            found.next = Some(due);
            return Ok(found);
        }
        if found.timers.len() + found.unknown.len() == max {
            found = in_turns(connection, shared, now, max)?;
            found.next = Some(due);
            return Ok(found);
        }
        found.add(shared, row)?;
    }
    Ok(found)
}

fn in_turns(
    connection: &Connection,
    shared: &Shared,
    now: Timestamp,
    max: usize,
) -> Result<Due, Error> {
    let scopes = scopes_due(connection, shared, now)?;
    let share = i64::try_from((max / scopes.len().max(1)).max(1)).unwrap_or(i64::MAX);
    let mut found = Due::default();
    let mut statement = connection.prepare_cached(DUE_OF_SCOPE)?;
    for scope in scopes.into_iter().take(max) {
        let mut rows = statement.query(params![scope, now.0, share])?;
        while let Some(row) = rows.next()? {
            found.add(shared, row)?;
        }
        shared.timer_turn.store(scope, Ordering::Relaxed);
    }
    Ok(found)
}

/// Scopes with something due, beginning after the last one that had its turn. So many are looked at
/// in one turn; the next one goes on from there.
fn scopes_due(
    connection: &Connection,
    shared: &Shared,
    now: Timestamp,
) -> Result<Vec<i64>, rusqlite::Error> {
    let (mut scope, mut is_due) =
        (connection.prepare_cached(SCOPE)?, connection.prepare_cached(IS_DUE)?);
    let first = shared.timer_turn.load(Ordering::Relaxed);
    let (mut last, mut around, mut found) = (first, false, Vec::new());
    for _ in 0..SCOPES {
        let next: Option<i64> = scope.query_row([last], |row| row.get(0)).optional()?;
        match next.filter(|next| !around || *next <= first) {
            Some(next) => last = next,
            None if around => break,
            None => {
                (last, around) = (i64::MIN, true);
                continue;
            }
        }
        if is_due.exists([last, now.0])? {
            found.push(last);
        }
    }
    shared.timer_turn.store(last, Ordering::Relaxed);
    Ok(found)
}

impl Due {
    fn add(&mut self, shared: &Shared, row: &Row<'_>) -> Result<(), rusqlite::Error> {
        let (name, transition): (String, String) = (row.get(2)?, row.get(5)?);
        let Some((collection, place)) = resolve(&shared.schema, &name, &transition) else {
            self.unknown.push(UnknownTimer { collection: name, id: row.get(4)?, transition });
            return Ok(());
        };
        self.timers.push(Timer {
            scope: Scope(row.get(1)?),
            collection,
            parent: row.get(3)?,
            id: row.get(4)?,
            transition: place,
            due: Timestamp(row.get(0)?),
        });
        Ok(())
    }
}

/// Keeps a timer that cannot fire, but never reports it as due.
pub fn set_aside(connection: &Connection, timer: &UnknownTimer) -> Result<(), rusqlite::Error> {
    let UnknownTimer { collection, id, transition } = timer;
    connection.prepare_cached(SET_ASIDE)?.execute(params![id, collection, transition, NEVER])?;
    Ok(())
}

/// Replaces the timers of a record.
pub fn replace(
    connection: &Connection,
    scope: Scope,
    (collection, parent, record): (&Collection, Option<&str>, &str),
    timers: &[TimerDraft],
) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(CLEAR)?.execute(params![record, collection.name])?;
    for timer in timers {
        let Some(transition) = transition_name(collection, timer.transition) else { continue };
        connection.prepare_cached(SET)?.execute(params![
            timer.due.0,
            scope.0,
            collection.name,
            parent,
            record,
            transition
        ])?;
    }
    Ok(())
}

/// Removes one timer of a record.
pub fn remove(
    connection: &Connection,
    collection: &Collection,
    record: &str,
    transition: usize,
) -> Result<(), rusqlite::Error> {
    let Some(name) = transition_name(collection, transition) else { return Ok(()) };
    connection.prepare_cached(REMOVE)?.execute(params![record, collection.name, name])?;
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
    let names = places.filter_map(|place| {
        Some((place, transition_name(old, place)?, transition_name(new, place)?))
    });
    let renamed: Vec<_> = names.filter(|(_, old, new)| old != new).collect();
    for (place, old, _) in &renamed {
        connection.execute(RENAME, params![new.name, old, format!("> {place}")])?;
    }
    for (place, _, now) in &renamed {
        connection.execute(RENAME, params![new.name, format!("> {place}"), now])?;
    }
    Ok(())
}

fn resolve(schema: &Schema, collection: &str, transition: &str) -> Option<(usize, usize)> {
    let ix = schema.find(collection)?;
    let found = &schema.collections[ix];
    let named = |place: &usize| transition_name(found, *place).as_deref() == Some(transition);
    Some((ix, (0..found.timed.len()).find(named)?))
}
