//! Deleting a record with everything that follows from it, in the same commit: records below it
//! and records that refer to it, each through `decide`, with its own event. All are decided before
//! the first row is touched.

use super::apply::{self, Decided, Fault, Turn};
use super::{read, timers};
use model::decide::Effect;
use model::id::Entropy;
use model::record::Fields;
use model::schema::OnDelete;
use model::write::{Change, Precondition, Response};
use model::{Code, CollectionIx, Field, Problem, Record, Schema, Scope, Timestamp, Write};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Most records that one delete takes along or changes: a commit is shared by many callers.
const ALONG: usize = 1_000;
/// Most bytes of these records, for the same reason: about a tenth of a second of work.
const ALONG_BYTES: usize = 8 << 20;
/// Records that a refused delete names: enough to see what is in the way.
const REFERRERS: usize = 3;

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
    let number = decided.current.as_ref().map_or(0, |record| record.number);
    let along = Along::gather(turn, &write, &id, number)?;
    let Steps { changed, deleted } = along.decide(turn, &write, now)?;
    for change in changed {
        apply::keep(turn, change, now)?;
    }
    for other in deleted {
        remove(turn, other, now)?;
    }
    remove(turn, decided, now)?;
    let response = Response::Deleted { id };
    apply::remember(turn, &write, &response, true)?;
    Ok(response)
}

/// A record that a delete is about, beside the one that was asked for.
struct Other {
    collection: CollectionIx,
    parent: Option<String>,
    record: Record,
}

/// A record and one of its fields that names a record which is to be deleted.
struct Referrer<'s> {
    other: Other,
    field: &'s Field,
    /// What it refers to.
    target: (CollectionIx, String),
}

/// What goes and what changes along with a record.
struct Along {
    /// Those found first, which others may be below of, come first.
    deleted: Vec<Other>,
    /// With the fields that become null.
    changed: Vec<(Other, Fields)>,
}

/// The same, decided.
struct Steps {
    changed: Vec<Decided<'static>>,
    deleted: Vec<Decided<'static>>,
}

impl Along {
    /// Finds everything first: a record that goes, too, refuses nothing, and need not be changed.
    fn gather(turn: &Turn<'_>, top: &Write, id: &str, number: i64) -> Result<Along, Fault> {
        let schema = &*turn.shared.schema;
        let mut along = Along { deleted: Vec::new(), changed: Vec::new() };
        // Which records go: a cycle of references comes to its beginning.
        let mut gone = HashSet::from([(top.collection, number)]);
        let mut targets = vec![(top.collection, id.to_owned())];
        let (mut next, mut left) = (0, ALONG_BYTES);
        let bytes = &mut left;
        while let Some((target, id)) = targets.get(next).cloned() {
            next += 1;
            let below = schema.children(target).map(|(ix, _)| (ix, None));
            let cascading = schema.referrers(target);
            let cascading = cascading.filter(|(.., f)| f.on_delete() == OnDelete::Cascade);
            for (ix, place) in below.chain(cascading.map(|(ix, place, _)| (ix, Some(place)))) {
                let room = ALONG - along.deleted.len();
                let others = match place {
                    None => children(turn, top.scope, ix, &id, room + 1, bytes, &gone)?,
                    Some(place) => {
                        let place = (ix, place);
                        referring(turn, top.scope, place, &id, room + 1, bytes, &gone)?
                    }
                };
                if others.len() > room || *bytes == 0 {
                    return Err(too_many(schema, ix));
                }
                gone.extend(others.iter().map(|other| (ix, other.record.number)));
                targets.extend(others.iter().map(|other| (ix, other.record.id.clone())));
                along.deleted.extend(others);
            }
        }
        refuse_restricted(turn, top, &targets, &gone)?;
        along.find_changes(turn, top, &targets, bytes, &gone)?;
        Ok(along)
    }

    /// Finds the records whose references become null.
    fn find_changes(
        &mut self,
        turn: &Turn<'_>,
        top: &Write,
        targets: &[(CollectionIx, String)],
        bytes: &mut usize,
        gone: &HashSet<(CollectionIx, i64)>,
    ) -> Result<(), Fault> {
        let schema = &*turn.shared.schema;
        let mut places: HashMap<(CollectionIx, i64), usize> = HashMap::new();
        for (target, id) in targets {
            let fields = schema.referrers(*target);
            for (ix, place, field) in fields.filter(|(.., f)| f.on_delete() == OnDelete::SetNull) {
                let room = ALONG - self.deleted.len();
                let place = (ix, place);
                for other in referring(turn, top.scope, place, id, room + 1, bytes, gone)? {
                    let key = (ix, other.record.number);
                    let at = *places.entry(key).or_insert(self.changed.len());
                    if at == self.changed.len() {
                        self.changed.push((other, Fields::new()));
                    }
                    self.changed[at].1.insert(field.name.clone(), Value::Null);
                    if self.changed.len() > room {
                        return Err(too_many(schema, ix));
                    }
                }
                if *bytes == 0 {
                    return Err(too_many(schema, ix));
                }
            }
        }
        Ok(())
    }

    /// Changes first, then deletes, the last ones found first: whoever follows the log never sees a
    /// reference to a record that it has seen go.
    fn decide(self, turn: &Turn<'_>, top: &Write, now: Timestamp) -> Result<Steps, Fault> {
        let mut count = 0;
        let mut decide = |other: Other, change: Change| {
            let write = derived(top, &other, change, count);
            let decision = apply::decide(turn, &write, turn.next_seq + count as i64, now)?.decision;
            count += 1;
            let (write, current) = (Cow::Owned(write), Some(other.record));
            Ok::<_, Fault>(Decided { write, current, decision })
        };
        let changed = self.changed.into_iter().map(|(other, fields)| {
            let change = Change::Assign { fields, event: None };
            decide(other, change)
        });
        let changed = changed.collect::<Result<Vec<_>, _>>()?;
        let deleted = self.deleted.into_iter().rev();
        let deleted = deleted.map(|other| decide(other, Change::Delete));
        Ok(Steps { changed, deleted: deleted.collect::<Result<_, _>>()? })
    }
}

fn too_many(schema: &Schema, collection: CollectionIx) -> Fault {
    Fault::Problem(Problem::new(
        Code::TooManyChildren,
        format!(
            "More than {ALONG} records, or {} MiB of them, are below the record or refer to it, \
             directly or through others. Delete or change those in `{}` first.",
            ALONG_BYTES >> 20,
            schema.collections[collection].name
        ),
    ))
}

/// Refuses a delete that records refuse which stay.
fn refuse_restricted(
    turn: &Turn<'_>,
    top: &Write,
    targets: &[(CollectionIx, String)],
    gone: &HashSet<(CollectionIx, i64)>,
) -> Result<(), Fault> {
    let schema = &*turn.shared.schema;
    let mut found: Vec<Referrer<'_>> = Vec::new();
    for (target, id) in targets {
        let fields = schema.referrers(*target);
        for (ix, place, field) in fields.filter(|(.., f)| f.on_delete() == OnDelete::Restrict) {
            let room = REFERRERS + 1 - found.len();
            let mut any = usize::MAX;
            let others = referring(turn, top.scope, (ix, place), id, room, &mut any, gone)?;
            let target = (*target, id.clone());
            let referrer = |other| Referrer { other, field, target: target.clone() };
            found.extend(others.into_iter().map(referrer));
            if found.len() > REFERRERS {
                return Err(still_referenced(schema, top, &found));
            }
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(still_referenced(schema, top, &found)),
    }
}

fn still_referenced(schema: &Schema, top: &Write, found: &[Referrer<'_>]) -> Fault {
    let mut said: Vec<String> = Vec::new();
    let mut told: Vec<Value> = Vec::new();
    for Referrer { other, field, target } in found.iter().take(REFERRERS) {
        let ix = other.collection;
        let view = top.view.as_ref();
        let object =
            view.map_or(&schema.collections[ix].object, |view| &view.schema.collections[ix].object);
        let name = view.and_then(|view| view.words(ix)?.name_down(&field.name));
        let name = name.unwrap_or_else(|| field.name.clone());
        let id = &other.record.id;
        let what = match target.0 == top.collection && Some(&target.1) == top.id.as_ref() {
            true => "it".to_owned(),
            false => format!("`{}`, which would be deleted with it", target.1),
        };
        said.push(format!("the {object} `{id}` refers to {what} by `{name}`"));
        told.push(json!({ "object": object, "id": id, "field": name }));
    }
    let more = if found.len() > REFERRERS { "; there are more" } else { "" };
    let message = format!(
        "The {} cannot be deleted: {}{more}. Delete those records, or change what they refer to, \
         first.",
        schema.collections[top.collection].object,
        said.join("; ")
    );
    Fault::Problem(Problem::new(Code::StillReferenced, message).extra("referrers", told))
}

/// Records whose field names another one, but for those that go already.
fn referring(
    turn: &Turn<'_>,
    scope: Scope,
    (ix, place): (CollectionIx, usize),
    id: &str,
    max: usize,
    bytes: &mut usize,
    gone: &HashSet<(CollectionIx, i64)>,
) -> Result<Vec<Other>, rusqlite::Error> {
    let (table, collection) = (&turn.shared.tables[ix], &turn.shared.schema.collections[ix]);
    let Some((_, column)) = table.columns.iter().find(|(at, _)| *at == place) else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "SELECT {}, t.parent FROM {} t WHERE t.scope = ?1 AND t.{column} = ?2",
        table.select, table.name
    );
    let mut statement = turn.connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.0, id])?;
    let mut found = Vec::new();
    while found.len() < max
        && *bytes > 0
        && let Some(row) = rows.next()?
    {
        if gone.contains(&(ix, row.get(0)?)) {
            continue;
        }
        let record = read::record_of(row, table, collection)?;
        *bytes = bytes.saturating_sub(record.body.len());
        found.push(Other { collection: ix, parent: row.get(table.width)?, record });
    }
    Ok(found)
}

fn children(
    turn: &Turn<'_>,
    scope: Scope,
    collection: CollectionIx,
    parent: &str,
    max: usize,
    bytes: &mut usize,
    gone: &HashSet<(CollectionIx, i64)>,
) -> Result<Vec<Other>, rusqlite::Error> {
    let table = &turn.shared.tables[collection];
    let mut statement = turn.connection.prepare_cached(&table.of_parent)?;
    let most = i64::try_from(max + gone.len()).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![parent, scope.0, most])?;
    let mut found = Vec::new();
    while found.len() < max
        && *bytes > 0
        && let Some(row) = rows.next()?
    {
        if gone.contains(&(collection, row.get(0)?)) {
            continue;
        }
        let record = read::record_of(row, table, &turn.shared.schema.collections[collection])?;
        *bytes = bytes.saturating_sub(record.body.len());
        found.push(Other { collection, parent: Some(parent.to_owned()), record });
    }
    Ok(found)
}

/// The wish to change or delete another record, for the same cause.
fn derived(top: &Write, other: &Other, change: Change, n: usize) -> Write {
    let Other { collection, parent, record } = other;
    // Its own entropy: the ids it draws must differ from those of every other write.
    let hash = Sha256::new_with_prefix(top.entropy.0).chain_update(record.id.as_bytes());
    let mut entropy = [0; 32];
    entropy.copy_from_slice(&hash.chain_update(n.to_be_bytes()).finalize());
    Write {
        scope: top.scope,
        collection: *collection,
        id: Some(record.id.clone()),
        parent: parent.clone(),
        change,
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
