//! Create, PUT, PATCH and DELETE.

use super::{Decision, Facts, ResponseKind, Stage, outcome, own};
use crate::id;
use crate::problem::{Code, Problem, Violation};
use crate::record::Fields;
use crate::schema::{Builtin, Collection, Feed, Kind, Schema};
use crate::validate::{self, ASSIGNED, Mode};
use crate::value;
use crate::version::{Lens, Raised};
use crate::write::Write;
use serde_json::Value;

pub fn create(schema: &Schema, write: &Write, facts: &Facts<'_>, fields: &Fields) -> Decision {
    let collection = &schema.collections[write.collection];
    let mut fields = fields.clone();
    // A feed's ids are places in the log, so that `since=<id>` is a position.
    let (id, id_value) = match &collection.feed {
        Some(_) => {
            let id = facts.next_seq.to_string();
            let value = Feed::id_value(&id);
            (id, value)
        }
        None => {
            let id = id::make(&collection.id_prefix, facts.now, &write.entropy, 0);
            (id.clone(), Value::String(id))
        }
    };
    fields.insert("id".into(), id_value);
    fields.insert("object".into(), Value::String(collection.object.clone()));
    if let (Some(name), Some(parent)) = (schema.parent_field(write.collection), &write.parent) {
        fields.insert(name.to_owned(), Value::String(parent.clone()));
    }
    if let Some(states) = &collection.states {
        fields.insert(states.field.clone(), Value::String(states.initial.clone()));
    }
    let now = Value::String(facts.now.to_iso());
    fields.insert("created_at".into(), now.clone());
    fields.insert("updated_at".into(), now);
    outcome::created(collection, id, fields, &write.entropy, facts.now)
}

/// PUT: writable fields get exactly the values that were sent; assigned and read-only ones stay.
pub fn replace(stage: &Stage<'_>, sent: &Fields) -> Result<Decision, Problem> {
    if let Some((shown, lens)) = stage.write.lens() {
        let changes = lens.replace(&stage.before, sent);
        return raise(stage, shown, lens, (Mode::Replace, sent), changes);
    }
    refuse_assigned(stage, sent)?;
    refuse_beyond(stage, Mode::Replace, sent)?;
    let mut after = kept_by_service(stage);
    for field in stage.collection.fields.iter().filter(|f| !f.read_only && !f.removed) {
        if let Some(value) = sent.get(&field.name) {
            after.insert(field.name.clone(), value.clone());
        }
    }
    Ok(update(stage, after))
}

/// PATCH: RFC 7396 over the writable fields. A removed field is null: records have a fixed set.
pub fn merge(stage: &Stage<'_>, patch: &Fields) -> Result<Decision, Problem> {
    if let Some((shown, lens)) = stage.write.lens() {
        let changes = lens.merge(&stage.before, patch);
        return raise(stage, shown, lens, (Mode::Merge, patch), changes);
    }
    refuse_assigned(stage, patch)?;
    refuse_beyond(stage, Mode::Merge, patch)?;
    let mut after = stage.before.clone();
    let mut violations = Vec::new();
    for field in stage.collection.fields.iter().filter(|field| !field.read_only) {
        let Some(change) = patch.get(&field.name) else { continue };
        let target = after.entry(field.name.clone()).or_insert(Value::Null);
        if field.kind == Kind::Object && change.is_object() {
            value::merge(target, change.clone());
            if let Err(violation) = validate::value(field, target) {
                violations.push(violation);
            }
        } else {
            *target = change.clone();
        }
    }
    refuse(violations)?;
    if stage.collection.builtin == Some(Builtin::Endpoint) {
        own::check_merged(stage.schema, patch, &after)?;
    }
    Ok(update(stage, after))
}

/// PUT and PATCH of an older version: the changes that `lens` found, over the current record.
fn raise(
    stage: &Stage<'_>,
    shown: &Collection,
    lens: &Lens,
    (mode, sent): (Mode, &Fields),
    mut changes: Raised,
) -> Result<Decision, Problem> {
    let current = lens.down(&stage.before);
    let assigned = |(name, value)| {
        let mut violation = validate::read_only(lens.name_up(name));
        violation.report_as(name, Some(value));
        violation
    };
    let mut violations: Vec<Violation> =
        differing(shown, &current, sent).into_iter().map(assigned).collect();
    let beyond = beyond(shown, &current, mode, sent);
    lens.leave_out(&mut changes, &beyond);
    violations.extend(beyond);
    if let Err(problem) = lens.check(&mut changes, sent) {
        violations.extend(problem.violations.iter().cloned());
    }
    refuse(violations)?;
    let mut after = stage.before.clone();
    after.extend(changes.fields);
    Ok(update(stage, after))
}

/// Fields that the service itself sets, read-only fields included.
pub fn assign(stage: &Stage<'_>, fields: &Fields, event: Option<&str>) -> Decision {
    let mut after = stage.before.clone();
    after.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    if same(&stage.before, &after) {
        return unchanged();
    }
    let kind = event.unwrap_or(&stage.collection.events.updated);
    outcome::changed(stage, after, kind, ResponseKind::Updated)
}

pub fn delete(stage: &Stage<'_>) -> Decision {
    outcome::erased(stage)
}

/// A repeated DELETE is as good as the first.
pub fn deleted_before() -> Decision {
    outcome::nothing(ResponseKind::Deleted)
}

pub fn unchanged() -> Decision {
    outcome::nothing(ResponseKind::Updated)
}

/// A change that changes nothing is no change: no event, no new version.
fn update(stage: &Stage<'_>, after: Fields) -> Decision {
    if same(&stage.before, &after) {
        return unchanged();
    }
    outcome::changed(stage, after, &stage.collection.events.updated, ResponseKind::Updated)
}

/// Whether two records say the same; a missing field says null.
fn same(before: &Fields, after: &Fields) -> bool {
    let value = |fields: &Fields, name: &str| fields.get(name).cloned().unwrap_or(Value::Null);
    before.keys().chain(after.keys()).all(|name| value(before, name) == value(after, name))
}

fn kept_by_service(stage: &Stage<'_>) -> Fields {
    // A version cannot erase fields that it does not know.
    let kept = stage.collection.fields.iter().filter(|field| field.read_only || field.removed);
    let names = ASSIGNED.iter().copied().chain(kept.map(|field| field.name.as_str()));
    names.filter_map(|name| Some((name.to_owned(), stage.before.get(name)?.clone()))).collect()
}

/// Fields the service assigns may be sent back as they are, and not otherwise.
fn refuse_assigned(stage: &Stage<'_>, sent: &Fields) -> Result<(), Problem> {
    let differing = differing(stage.collection, &stage.before, sent);
    let violations = differing.into_iter().map(|(name, v)| validate::read_only(name).value(v));
    refuse(violations.collect())
}

/// Values beyond a limit that does not apply to older versions, unless the client wrote them.
fn refuse_beyond(stage: &Stage<'_>, mode: Mode, sent: &Fields) -> Result<(), Problem> {
    match stage.collection.fields.iter().any(|field| field.outgrown) {
        true => refuse(beyond(stage.collection, &stage.before, mode, sent)),
        false => Ok(()),
    }
}

/// Values that a version does not accept and that the record does not have already.
fn beyond(shown: &Collection, current: &Fields, mode: Mode, sent: &Fields) -> Vec<Violation> {
    let (sent, mut violations) = validate::checked(shown, sent.clone(), mode);
    let value = |fields: &Fields, name: &str| fields.get(name).cloned().unwrap_or_default();
    // A client cannot send back what it is never shown, so do not reveal whether it matches.
    let secret = |name: &str| shown.known(name).is_some_and(|field| field.write_only);
    violations.retain(|Violation { field, .. }| {
        secret(field) || value(current, field) != value(&sent, field)
    });
    for violation in &mut violations {
        let (name, value) = (violation.field.clone(), violation.value.take());
        violation.report_as(&name, value.as_ref());
    }
    violations
}

/// Assigned fields that were sent with another value than the record has.
fn differing<'s>(
    collection: &Collection,
    current: &Fields,
    sent: &'s Fields,
) -> Vec<(&'s str, &'s Value)> {
    let is_assigned = |name: &str| {
        ASSIGNED.contains(&name) || collection.field(name).is_some_and(|field| field.read_only)
    };
    let current = |name: &str| current.get(name).unwrap_or(&Value::Null);
    sent.iter()
        .filter(|(name, value)| is_assigned(name) && current(name) != *value)
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

fn refuse(violations: Vec<Violation>) -> Result<(), Problem> {
    match violations.is_empty() {
        true => Ok(()),
        false => Err(Problem::of(Code::ValidationFailed, violations)),
    }
}
