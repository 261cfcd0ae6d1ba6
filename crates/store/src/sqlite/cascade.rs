//! Deleting a record with everything below it, in the same commit: each descendant through
//! `decide`, with its own event. All are decided before the first row goes.

use super::apply::{self, Decided, Fault, Turn};
use super::{read, timers};
use model::decide::Effect;
use model::id::Entropy;
use model::write::{Change, Precondition, Response};
use model::{Code, CollectionIx, Problem, Record, Scope, Timestamp, Write};
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// Most descendants one delete takes along: a commit is shared by many callers.
const DESCENDANTS: usize = 1_000;

const BURY: &str =
    "INSERT OR REPLACE INTO tombstones (id, collection, scope, seq, n) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Tombstones are found by their time, to go at last.
pub const INDEX: &str = "CREATE INDEX IF NOT EXISTS tombstones_seq ON tombstones (seq);";
const FORGET: &str = "DELETE FROM tombstones WHERE (id, collection) IN \
    (SELECT id, collection FROM tombstones WHERE seq < ?1 ORDER BY seq LIMIT ?2)";

/// Removes tombstones whose deletion the log has forgotten, `max` at most; says how many. Search
/// indexes have read the log further than that.
pub fn forget(connection: &Connection, oldest: i64, max: usize) -> Result<usize, rusqlite::Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    connection.prepare_cached(FORGET)?.execute([oldest, max])
}

pub fn erase(turn: &mut Turn<'_>, decided: Decided<'_>, now: Timestamp) -> Result<Response, Fault> {
    let write = decided.write.clone();
    let id = write.id.clone().unwrap_or_default();
    for below in descendants(turn, &write, &id, now)? {
        remove(turn, below, now)?;
    }
    remove(turn, decided, now)?;
    let response = Response::Deleted { id };
    apply::remember(turn, &write, &response, true)?;
    Ok(response)
}

/// Everything below a record, the deepest first, each with its decision.
fn descendants(
    turn: &Turn<'_>,
    top: &Write,
    id: &str,
    now: Timestamp,
) -> Result<Vec<Decided<'static>>, Fault> {
    let schema = &*turn.shared.schema;
    let mut found: Vec<Decided<'static>> = Vec::new();
    let mut open = vec![(top.collection, id.to_owned())];
    while let Some((above, parent)) = open.pop() {
        for (below, _) in schema.children(above) {
            let room = DESCENDANTS - found.len();
            let children = children(turn, top.scope, below, &parent, room + 1)?;
            if children.len() > room {
                return Err(Fault::Problem(Problem::new(
                    Code::TooManyChildren,
                    format!(
                        "The record has more than {DESCENDANTS} records below it. Delete those in \
                         `{}` first.",
                        schema.collections[below].name
                    ),
                )));
            }
            for child in children {
                let write = delete(top, below, &parent, &child.id, found.len());
                let seq = turn.next_seq + found.len() as i64;
                let decision = apply::decide(turn, &write, seq, now)?.decision;
                open.push((below, child.id.clone()));
                let write = Cow::Owned(write);
                found.push(Decided { write, current: Some(child), decision });
            }
        }
    }
    found.reverse();
    Ok(found)
}

fn children(
    turn: &Turn<'_>,
    scope: Scope,
    collection: CollectionIx,
    parent: &str,
    max: usize,
) -> Result<Vec<Record>, rusqlite::Error> {
    let table = &turn.shared.tables[collection];
    let mut statement = turn.connection.prepare_cached(&table.of_parent)?;
    let mut rows = statement.query(params![parent, scope.0, max as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read::record_of(row, table, &turn.shared.schema.collections[collection])?);
    }
    Ok(found)
}

/// The wish to delete one descendant, for the same cause.
fn delete(top: &Write, collection: CollectionIx, parent: &str, id: &str, n: usize) -> Write {
    // Its own entropy: the ids it draws must differ from those of every other write.
    let hash = Sha256::new_with_prefix(top.entropy.0).chain_update(id.as_bytes());
    let mut entropy = [0; 32];
    entropy.copy_from_slice(&hash.chain_update(n.to_be_bytes()).finalize());
    Write {
        scope: top.scope,
        collection,
        id: Some(id.to_owned()),
        parent: Some(parent.to_owned()),
        change: Change::Delete,
        view: None,
        precondition: Precondition::None,
        idempotency: None,
        cause: top.cause.clone(),
        now: top.now,
        entropy: Entropy(entropy),
    }
}

/// Removes one record as decided and leaves its tombstone.
fn remove(turn: &mut Turn<'_>, decided: Decided<'_>, now: Timestamp) -> Result<(), Fault> {
    let Decided { write, current, decision } = decided;
    let (Effect::Erase, Some(record)) = (&decision.effect, current) else { return Ok(()) };
    let table = &turn.shared.tables[write.collection];
    let collection = &turn.shared.schema.collections[write.collection];
    turn.connection.prepare_cached(&table.delete)?.execute([record.number])?;
    turn.connection.prepare_cached(BURY)?.execute(params![
        record.id,
        collection.name,
        write.scope.0,
        turn.next_seq,
        record.number
    ])?;
    if !collection.timed.is_empty() {
        timers::clear(turn.connection, collection, &record.id)?;
    }
    apply::append(turn, &write, &record.id, decision.events, now)?;
    Ok(())
}
