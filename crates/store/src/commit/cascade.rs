//! Deleting a record with everything that follows from it, in the same commit: records below it and
//! records that refer to it, each through `decide`, with its own event. All are found and decided
//! before the first effect.

use super::effects::Effects;
use super::overlay::Lookup;
use super::{Failure, Rows, guarded};
use model::decide::{Decision, Effect as Decided, Facts};
use model::id::Entropy;
use model::record::Fields;
use model::schema::OnDelete;
use model::write::{Change, Precondition};
use model::{Code, CollectionIx, Field, Problem, Record, Schema, Scope, Write, decide};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

/// Most records that one delete deletes or changes besides its own: many callers share a commit.
const ALONG: usize = 1_000;
/// Most bytes of these records, for the same reason: about a tenth of a second of work.
const ALONG_BYTES: usize = 8 << 20;
/// Referring records that a refused delete names: enough to see what is in the way.
const REFERRERS: usize = 3;

/// A question for records that depend on one record.
pub struct Dependents<'a> {
    pub scope: Scope,
    pub collection: CollectionIx,
    pub by: By<'a>,
    /// No more records than this. Reading ends, too, once they have as many `bytes`.
    pub max: usize,
    pub bytes: usize,
    /// Records to leave out, by collection and number.
    pub except: &'a HashSet<(CollectionIx, i64)>,
}

#[derive(Clone, Copy)]
pub enum By<'a> {
    /// Children of this parent.
    Parent(&'a str),
    /// Records whose field, by its place, refers to this id.
    Field(usize, &'a str),
}

/// A record that depends on another one.
#[derive(Clone, Debug)]
pub struct Dependent {
    pub parent: Option<String>,
    pub record: Record,
}

impl Dependent {
    /// The size of the texts in memory.
    pub fn bytes(&self) -> usize {
        self.record.body.len() + self.record.hidden.as_ref().map_or(0, String::len)
    }
}

/// A record that a delete deletes or changes besides its own.
struct Other {
    collection: CollectionIx,
    parent: Option<String>,
    record: Record,
}

/// A record and one of its fields that refers to a record which is to be deleted.
struct Referrer<'s> {
    other: Other,
    field: &'s Field,
    /// What it refers to.
    target: (CollectionIx, String),
}

/// The effects of a delete of `current`, as decided.
pub fn delete<R: Rows>(
    lookup: &mut Lookup<'_, R>,
    write: &Write,
    current: Record,
    decision: Decision,
    effects: &mut Effects<'_>,
) -> Result<(), Failure> {
    let schema = lookup.schema;
    let mut along = Along { deleted: Vec::new(), changed: Vec::new(), bytes: ALONG_BYTES };
    along.gather(lookup, write, &current)?;
    let decided = along.decide(schema, write, effects)?;
    for (write, record, Decision { effect, events, timers, .. }) in decided {
        match effect {
            Decided::Put(kept) => effects.put(&write, Some(&record), kept, events, timers),
            Decided::Erase => effects.delete(&write, record, events),
            // It is already as it shall be.
            _ => {}
        }
    }
    effects.delete(write, current, decision.events);
    Ok(())
}

/// What is deleted and changed along with a record.
struct Along {
    /// Those found first, which others may be below of, come first.
    deleted: Vec<Other>,
    /// With the fields that become null.
    changed: Vec<(Other, Fields)>,
    /// What is left of `ALONG_BYTES`.
    bytes: usize,
}

impl Along {
    /// Finds everything first: a record that is deleted, too, refuses nothing and is not changed.
    fn gather<R: Rows>(
        &mut self,
        lookup: &mut Lookup<'_, R>,
        top: &Write,
        current: &Record,
    ) -> Result<(), Failure> {
        let schema = lookup.schema;
        // Records that are deleted: a cycle of references returns to its beginning.
        let mut gone = HashSet::from([(top.collection, current.number)]);
        let mut targets = vec![(top.collection, current.id.clone())];
        let mut next = 0;
        while let Some((target, id)) = targets.get(next).cloned() {
            next += 1;
            let below = schema.children(target).map(|(ix, _)| (ix, By::Parent(&id)));
            let cascading = schema.referrers(target);
            let cascading = cascading.filter(|(.., f)| f.on_delete() == OnDelete::Cascade);
            let cascading = cascading.map(|(ix, place, _)| (ix, By::Field(place, &id)));
            for (ix, by) in below.chain(cascading) {
                let room = ALONG - self.deleted.len();
                let others = self.find(lookup, top.scope, (ix, by), room + 1, &gone)?;
                if others.len() > room || self.bytes == 0 {
                    return Err(too_many(schema, ix));
                }
                gone.extend(others.iter().map(|other| (ix, other.record.number)));
                targets.extend(others.iter().map(|other| (ix, other.record.id.clone())));
                self.deleted.extend(others);
            }
        }
        refuse_restricted(lookup, top, &targets, &gone)?;
        self.find_changes(lookup, top, &targets, &gone)
    }

    fn find<R: Rows>(
        &mut self,
        lookup: &mut Lookup<'_, R>,
        scope: Scope,
        (collection, by): (CollectionIx, By<'_>),
        max: usize,
        except: &HashSet<(CollectionIx, i64)>,
    ) -> Result<Vec<Other>, Failure> {
        let wanted = Dependents { scope, collection, by, max, bytes: self.bytes, except };
        let found = lookup.dependents(&wanted)?;
        let bytes: usize = found.iter().map(Dependent::bytes).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        let other = |Dependent { parent, record }| Other { collection, parent, record };
        Ok(found.into_iter().map(other).collect())
    }

    /// Finds the records whose references become null.
    fn find_changes<R: Rows>(
        &mut self,
        lookup: &mut Lookup<'_, R>,
        top: &Write,
        targets: &[(CollectionIx, String)],
        gone: &HashSet<(CollectionIx, i64)>,
    ) -> Result<(), Failure> {
        let schema = lookup.schema;
        let mut places: HashMap<(CollectionIx, i64), usize> = HashMap::new();
        for (target, id) in targets {
            let fields = schema.referrers(*target);
            for (ix, place, field) in fields.filter(|(.., f)| f.on_delete() == OnDelete::SetNull) {
                let room = ALONG - self.deleted.len();
                let by = (ix, By::Field(place, id));
                for other in self.find(lookup, top.scope, by, room + 1, gone)? {
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
                if self.bytes == 0 {
                    return Err(too_many(schema, ix));
                }
            }
        }
        Ok(())
    }

    /// Changes first, then deletes, the last ones found first: a follower of the log never sees a
    /// reference to a record whose deletion it has seen.
    fn decide(
        self,
        schema: &Schema,
        top: &Write,
        effects: &Effects<'_>,
    ) -> Result<Vec<(Write, Record, Decision)>, Failure> {
        let changed = self.changed.into_iter().map(|(other, fields)| {
            let change = Change::Assign { fields, event: None };
            (other, change)
        });
        let deleted = self.deleted.into_iter().rev().map(|other| (other, Change::Delete));
        let decide = |(n, (other, change)): (usize, (Other, Change))| {
            let write = derived(top, &other, change, n);
            let facts = Facts {
                current: Some(&other.record),
                was_deleted: false,
                parent_exists: true,
                missing: &[],
                next_seq: effects.next_seq + n as i64,
                now: effects.now,
            };
            let decision = guarded(|| decide::decide(schema, &write, &facts))?;
            Ok((write, other.record, decision.map_err(Failure::Refused)?))
        };
        changed.chain(deleted).enumerate().map(decide).collect()
    }
}

fn too_many(schema: &Schema, collection: CollectionIx) -> Failure {
    Failure::Refused(Problem::new(
        Code::TooManyChildren,
        format!(
            "More than {ALONG} records, or {} MiB of them, are below the record or refer to it, \
             directly or through others. Delete or change those in `{}` first.",
            ALONG_BYTES >> 20,
            schema.collections[collection].name
        ),
    ))
}

/// Refuses a delete if a record that stays refers to one that goes, and forbids that.
fn refuse_restricted<R: Rows>(
    lookup: &mut Lookup<'_, R>,
    top: &Write,
    targets: &[(CollectionIx, String)],
    gone: &HashSet<(CollectionIx, i64)>,
) -> Result<(), Failure> {
    let schema = lookup.schema;
    let mut found: Vec<Referrer<'_>> = Vec::new();
    for (target, id) in targets {
        let fields = schema.referrers(*target);
        for (ix, place, field) in fields.filter(|(.., f)| f.on_delete() == OnDelete::Restrict) {
            let others = lookup.dependents(&Dependents {
                scope: top.scope,
                collection: ix,
                by: By::Field(place, id),
                max: REFERRERS + 1 - found.len(),
                bytes: usize::MAX,
                except: gone,
            })?;
            let referrer = |Dependent { parent, record }| {
                let other = Other { collection: ix, parent, record };
                Referrer { other, field, target: (*target, id.clone()) }
            };
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

fn still_referenced(schema: &Schema, top: &Write, found: &[Referrer<'_>]) -> Failure {
    let mut reasons: Vec<String> = Vec::new();
    let mut referrers: Vec<Value> = Vec::new();
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
        reasons.push(format!("the {object} `{id}` refers to {what} by `{name}`"));
        referrers.push(json!({ "object": object, "id": id, "field": name }));
    }
    let more = if found.len() > REFERRERS { "; there are more" } else { "" };
    let message = format!(
        "The {} cannot be deleted: {}{more}. Delete those records, or change what they refer to, \
         first.",
        schema.collections[top.collection].object,
        reasons.join("; ")
    );
    Failure::Refused(Problem::new(Code::StillReferenced, message).extra("referrers", referrers))
}

/// The write that changes or deletes another record, for the same cause.
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
