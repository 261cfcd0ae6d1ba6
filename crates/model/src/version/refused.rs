//! What clients of an older schema could send, and a newer one refuses behind a declared change. A
//! limit of the newer field stands in other units, or on another side of a split, than the old one,
//! so the two cannot be compared; values are tried instead.

use super::lens::{Lens, Lift, value_of};
use super::proof::{Trial, brief, combinations, hints, show};
use super::samples::{self, Hints};
use super::{Part, View, expr::Expr};
use crate::record::Fields;
use crate::schema::{Field, Kind};
use crate::validate;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One request that was taken and would be refused.
pub(crate) struct Refused {
    /// A field of the older schema.
    pub field: String,
    /// What was sent, and what the newer schema says to it.
    pub what: String,
    /// The newer type has no such value, as the change says; or a limit stands in the way.
    pub unsayable: bool,
}

impl View {
    /// What clients of this version may send, by the declarations of the older schema, and the
    /// newest version refuses.
    pub(crate) fn refuses(&self, part: Part, sent: &[Field]) -> Vec<Refused> {
        let hints = hints(&self.newest, part);
        let Some(trial) = Trial::with(self, part, sent) else { return Vec::new() };
        let groups = trial.groups();
        groups.iter().flat_map(|group| refusals(&trial, group, &hints)).collect()
    }
}

/// The first refusal of each sort, of fields that end up together.
fn refusals(trial: &Trial<'_>, group: &[String], hints: &Hints) -> Vec<Refused> {
    let concerned =
        |lift: &&Lift| lift.sent.iter().any(|name| group.contains(name)) && !is_as_sent(&lift.expr);
    let lifts: Vec<&Lift> = trial.lens.lifts.iter().filter(concerned).collect();
    let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for field in trial.fields.iter().filter(|field| group.contains(&field.name)) {
        values.insert(&field.name, samples::of(field, hints));
    }
    for shown in lifts.iter().flat_map(|lift| beyond(trial.lens, &lift.field)) {
        for field in trial.fields.iter().filter(|field| group.contains(&field.name)) {
            let value = value_of(&shown, &field.name);
            let fits = || validate::value(field, &mut value.clone()).is_ok();
            if !value.is_null() && fits() {
                values.entry(&field.name).or_default().insert(0, value.clone());
            }
        }
    }
    let choices: Vec<&[Value]> =
        group.iter().map(|name| values[name.as_str()].as_slice()).collect();
    let mut found: Vec<Refused> = Vec::new();
    for chosen in combinations(&choices) {
        let sample: Fields = group.iter().cloned().zip(chosen.into_iter().cloned()).collect();
        let refused = lifts.iter().find_map(|lift| refusal(trial.lens, lift, &sample, group));
        found.extend(refused.filter(|new| found.iter().all(|old| old.unsayable != new.unsayable)));
    }
    found
}

/// What the newer schema says to a sample, if it does not take it.
fn refusal(lens: &Lens, lift: &Lift, sample: &Fields, group: &[String]) -> Option<Refused> {
    let mut value = value_of(&lens.up(sample), &lift.field.name).clone();
    let unsayable = validate::is_marked(&value);
    let why = match validate::value(&lift.field, &mut value) {
        _ if value.is_null() => return None,
        _ if unsayable => format!("has no counterpart in `{}`", lift.field.name),
        Ok(()) => return None,
        Err(violation) => {
            let said = violation.message.trim_end_matches('.');
            format!("becomes {}: {said}", brief(&value))
        }
    };
    let first = lift.sent.iter().find(|name| group.contains(name))?;
    let what = format!("{} {why}", show(sample, group));
    Some(Refused { field: first.clone(), what, unsayable })
}

/// Whether the field is kept as it is sent: its limits are compared one by one.
fn is_as_sent(expr: &Expr) -> bool {
    match expr {
        Expr::Sent(_) => true,
        Expr::Convert { of, by, .. } => by.fills() && is_as_sent(of),
        _ => false,
    }
}

/// What the older version shows of values that lie just beyond the limits of a kept field.
fn beyond(lens: &Lens, field: &Field) -> Vec<Fields> {
    let mut values: Vec<Value> = Vec::new();
    let numbers = [field.max.map(|max| max.floor() + 1.0), field.min.map(|min| min.ceil() - 1.0)];
    for number in numbers.into_iter().flatten() {
        values.extend(validate::of_kind(&field.kind, Value::from(number)));
    }
    if field.kind == Kind::String {
        let longer = field.max_length.map(|most| most.saturating_add(1));
        let shorter = field.min_length.map(|least| least.saturating_sub(1));
        let lengths = longer.into_iter().chain(shorter).filter(|length| *length <= LONGEST);
        values.extend(lengths.map(|length| Value::from("x".repeat(length))));
    }
    let record = |value| Map::from_iter([(field.name.clone(), value)]);
    values.into_iter().map(|value| lens.down(&record(value))).collect()
}

/// Texts that are made; a longer limit is one that hardly anyone meets.
const LONGEST: usize = 100_000;
