//! Decide, then write. From the schema, the request and the facts that a store has loaded, decides
//! what to store, which events to emit and how to respond, or why not. Pure: a store calls this
//! inside its transaction, tests call it without one.

mod act;
mod change;
mod outcome;
mod own;
#[cfg(test)]
mod tests;

use crate::problem::{Code, Problem, Violation};
use crate::record::{Fields, Record};
use crate::schema::{Collection, CollectionIx, Field, Schema};
use crate::time::Timestamp;
use crate::version::Lens;
use crate::write::{Change, Precondition, Write};
use serde_json::Value;

/// The rows that the store loads before it calls `decide`.
pub struct Facts<'a> {
    /// The record the write names, if it exists in the write's scope (and under its parent).
    pub current: Option<&'a Record>,
    /// Whether the write's record existed once and was deleted; only asked for deletes.
    pub was_deleted: bool,
    /// Whether the write's parent exists; true for collections without one.
    pub parent_exists: bool,
    /// Those of `references(…)` that name no existing record.
    pub missing: &'a [Reference],
    /// The commit sequence that the first event of this write will get.
    pub next_seq: i64,
    /// Never earlier than that of any earlier commit.
    pub now: Timestamp,
}

/// A record that a write refers to and that must exist in the same scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub field: String,
    pub collection: CollectionIx,
    pub id: String,
}

#[derive(Debug)]
pub struct Decision {
    pub effect: Effect,
    /// Empty exactly when `effect` is `Nothing`.
    pub events: Vec<Draft>,
    /// Shown in this response only: what follows the record's text in place of its last brace.
    pub reveal: Option<String>,
    /// `Some` if the state changed: timed transitions of the record that were waiting are void, and
    /// these are scheduled instead. `None` changes no transition.
    pub timers: Option<Vec<TimerDraft>>,
    pub response: ResponseKind,
}

#[derive(Debug)]
pub enum Effect {
    Nothing,
    Put(StoredRecord),
    Erase,
    /// Only the events: the record stays as it is.
    Tell,
    /// Only the event, which is about something stored elsewhere.
    Publish {
        resource: String,
    },
}

/// A record as the store writes it.
#[derive(Debug)]
pub struct StoredRecord {
    pub id: String,
    pub fields: Fields,
    pub body: String,
    pub hidden: Option<String>,
    /// Whether every field with a typed column has the value that it had before.
    pub same_columns: bool,
}

/// An event before it has its place in the log.
#[derive(Debug)]
pub struct Draft {
    pub id: String,
    pub kind: String,
    /// Public JSON text of the record at the event.
    pub object: String,
    pub previous: Option<String>,
    /// Text of `event::Hidden`.
    pub hidden: Option<String>,
}

#[derive(Debug)]
pub struct TimerDraft {
    pub transition: usize,
    pub due: Timestamp,
}

/// Which response the store builds around the record.
#[derive(Debug)]
pub enum ResponseKind {
    Created,
    Updated,
    Deleted,
    Refused(Problem),
}

/// The records that this write refers to: the store looks up which of them are missing.
pub fn references(schema: &Schema, write: &Write) -> Vec<Reference> {
    let collection = &schema.collections[write.collection];
    if let Some((shown, lens)) = write.lens() {
        return old_references(shown, lens, write);
    }
    let (fields, values): (&[Field], &Fields) = match &write.change {
        Change::Create { fields }
        | Change::Replace { fields }
        | Change::Merge { patch: fields } => (&collection.fields, fields),
        Change::Act { action, params, .. } => (&collection.actions[*action].params, params),
        Change::Delete | Change::Timed { .. } | Change::Assign { .. } => return Vec::new(),
    };
    fields
        .iter()
        .filter(|field| !field.read_only)
        .filter_map(|field| {
            let id = values.get(&field.name).and_then(Value::as_str)?.to_owned();
            Some(Reference { field: field.name.clone(), collection: field.reference?, id })
        })
        .collect()
}

/// The same for a write of an older version, under the names of the newest.
fn old_references(shown: &Collection, lens: &Lens, write: &Write) -> Vec<Reference> {
    let sent = match &write.change {
        Change::Replace { fields } | Change::Merge { patch: fields } => fields,
        _ => return Vec::new(),
    };
    let fields = shown.fields.iter().filter(|field| !field.read_only && !field.removed);
    fields
        .filter_map(|field| {
            let id = sent.get(&field.name).and_then(Value::as_str)?.to_owned();
            let name = lens.name_up(&field.name).to_owned();
            Some(Reference { field: name, collection: field.reference?, id })
        })
        .collect()
}

/// The heart of the service.
pub fn decide(schema: &Schema, write: &Write, facts: &Facts<'_>) -> Result<Decision, Problem> {
    let collection = &schema.collections[write.collection];
    if !facts.parent_exists {
        return Err(parent_not_found(schema, write));
    }
    if let Change::Create { fields } = &write.change {
        refuse_missing(schema, facts)?;
        return match collection.builtin {
            Some(builtin) => own::create(schema, write, facts, builtin, fields),
            None => Ok(change::create(schema, write, facts, fields)),
        };
    }
    let Some(current) = facts.current else {
        return match write.change {
            Change::Delete if facts.was_deleted => Ok(change::deleted_before()),
            // The record went away before its time came: nothing is left to do.
            Change::Timed { .. } | Change::Assign { .. } => Ok(change::unchanged()),
            _ => Err(not_found(collection, write.id.as_deref().unwrap_or_default())),
        };
    };
    let stage = Stage { schema, collection, write, facts, current, before: current.fields() };
    let stale = check_precondition(&write.precondition, current).err();
    let decision = refuse_missing(schema, facts).and_then(|()| change_of(&stage));
    match (stale, decision) {
        // Errors of the request come before its conditions: RFC 9110, 13.2.1. Limits of an old
        // version are no such error: a client may send back a value beyond them that it was shown.
        (Some(_), Err(problem))
            if problem.code == Code::ValidationFailed
                && !(write.lens().is_some() && problem.is_of_limits()) =>
        {
            Err(problem)
        }
        (Some(stale), _) => Err(stale),
        (None, decision) => decision,
    }
}

/// The change of a record that is there.
fn change_of(stage: &Stage<'_>) -> Result<Decision, Problem> {
    match &stage.write.change {
        Change::Create { .. } => unreachable!("creates are decided above"),
        Change::Replace { fields } => change::replace(stage, fields),
        Change::Merge { patch } => change::merge(stage, patch),
        Change::Delete => Ok(change::delete(stage)),
        Change::Act { action, params, callout } => {
            act::act(stage, &stage.collection.actions[*action], params, callout.as_ref())
        }
        Change::Assign { fields, event } => Ok(change::assign(stage, fields, event.as_deref())),
        Change::Timed { transition } => act::timed(stage, &stage.collection.timed[*transition]),
    }
}

/// Whether an action could run now, for handlers that must be asked before the commit; or the
/// refusal of a rule, which may leave a trace and so has to be committed.
pub fn rehearse(
    schema: &Schema,
    write: &Write,
    facts: &Facts<'_>,
) -> Result<Option<Problem>, Problem> {
    match decide(schema, write, facts)?.response {
        ResponseKind::Refused(problem) => Ok(Some(problem)),
        _ => Ok(None),
    }
}

/// Everything a decision about an existing record looks at.
struct Stage<'a> {
    schema: &'a Schema,
    collection: &'a Collection,
    write: &'a Write,
    facts: &'a Facts<'a>,
    current: &'a Record,
    before: Fields,
}

/// The problem of an id that names nothing here.
pub fn not_found(collection: &Collection, id: &str) -> Problem {
    let shown: String = id.chars().take(100).collect();
    Problem::new(Code::NotFound, format!("No such {}: `{shown}`.", collection.object)).param("id")
}

fn parent_not_found(schema: &Schema, write: &Write) -> Problem {
    let parent = schema.collections[write.collection].parent.unwrap_or(write.collection);
    not_found(&schema.collections[parent], write.parent.as_deref().unwrap_or_default())
}

/// Whether the record is still the one that the client has seen.
pub fn check_precondition(precondition: &Precondition, current: &Record) -> Result<(), Problem> {
    let holds = match precondition {
        Precondition::None | Precondition::Exists => true,
        Precondition::Versions(versions) => versions.contains(&current.version),
        // HTTP dates have whole seconds.
        Precondition::UnmodifiedSince(since) => current.updated.seconds() <= since.seconds(),
        Precondition::Absent => false,
        Precondition::NoneOf(versions) => !versions.contains(&current.version),
        Precondition::All(all) => {
            return all.iter().try_for_each(|one| check_precondition(one, current));
        }
    };
    if holds {
        return Ok(());
    }
    let message = match precondition {
        Precondition::Absent | Precondition::NoneOf(_) => {
            "`If-None-Match` names what the record is now; nothing was done."
        }
        _ => "The record has changed since the version you named. Read it again, then retry.",
    };
    Err(Problem::new(Code::PreconditionFailed, message))
}

fn refuse_missing(schema: &Schema, facts: &Facts<'_>) -> Result<(), Problem> {
    if facts.missing.is_empty() {
        return Ok(());
    }
    let violations = facts.missing.iter().map(|missing| {
        let object = &schema.collections[missing.collection].object;
        let message = format!("`{}` names no {object} that exists.", missing.field);
        Violation::new(&missing.field, Code::BadReference, message)
            .value(&Value::String(missing.id.clone()))
    });
    Err(Problem::of(Code::ValidationFailed, violations.collect()))
}
