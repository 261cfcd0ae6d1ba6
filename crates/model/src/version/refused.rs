//! What clients of an older schema could send, and a newer one refuses behind a declared change. A
//! limit of the newer field stands in other units, or on another side of a split, than the old one,
//! so the two cannot be compared; values are tried instead.

use super::expr::Expr;
use super::lens::{Lens, Lift, value_of};
use super::proof::{Trial, brief, combinations, hints, show};
use super::samples::{self, Hints};
use super::{Part, View};
use crate::problem::Code;
use crate::record::Fields;
use crate::schema::{Field, Kind};
use crate::validate;
use serde_json::Value;
use std::collections::BTreeMap;

/// One request that was taken and would be refused.
pub(crate) struct Refused {
    /// A field of the older schema.
    pub field: String,
    /// A field of the newer one.
    pub kept: String,
    /// What was sent, and what the newer schema says to it.
    pub what: String,
    /// The newer type has no such value, as the change says; or a limit stands in the way.
    pub unsayable: bool,
    /// Limits stand in the way, which a change can tell.
    pub limited: bool,
}

impl Refused {
    /// Whether it is about the same field, and for the same sort of reason.
    fn is_like(&self, other: &Refused) -> bool {
        self.unsayable == other.unsayable && self.kept == other.kept
    }
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

/// The first refusal of each kept field and sort, of fields that end up together.
fn refusals(trial: &Trial<'_>, group: &[String], hints: &Hints) -> Vec<Refused> {
    let concerned =
        |lift: &&Lift| lift.sent.iter().any(|name| group.contains(name)) && !lift.expr.is_as_sent();
    let lifts: Vec<&Lift> = trial.lens.lifts.iter().filter(concerned).collect();
    let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for field in trial.fields.iter().filter(|field| group.contains(&field.name)) {
        values.insert(&field.name, samples::of(field, hints));
    }
    for shown in lifts.iter().flat_map(|lift| beyond(trial.lens, &lifts, &lift.field)) {
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
    found.extend(lifts.iter().filter_map(|lift| clash(trial, lift, group)));
    // What this version does not take is found by comparing declarations.
    let takes = |sample: &Fields| {
        let mut lines = trial.lens.lines.iter().filter_map(|line| line.field.as_ref());
        lines.all(|field| match sample.get(&field.name) {
            Some(value) if !value.is_null() => validate::value(field, &mut value.clone()).is_ok(),
            _ => true,
        })
    };
    for chosen in combinations(&choices) {
        let sample: Fields = group.iter().cloned().zip(chosen.into_iter().cloned()).collect();
        if !takes(&sample) {
            continue;
        }
        let refused = lifts.iter().filter_map(|lift| refusal(trial.lens, lift, &sample, group));
        for refused in refused {
            if found.iter().all(|told| !refused.is_like(told)) {
                found.push(refused);
            }
        }
    }
    found
}

/// What the newer schema says to a sample, if it does not take it.
fn refusal(lens: &Lens, lift: &Lift, sample: &Fields, group: &[String]) -> Option<Refused> {
    let mut value = value_of(&lens.up(sample), &lift.field.name).clone();
    let unsayable = validate::is_marked(&value);
    let mut limited = false;
    let why = match validate::value(&lift.field, &mut value) {
        _ if value.is_null() => return None,
        _ if unsayable => format!("has no counterpart in `{}`", lift.field.name),
        Ok(()) => return None,
        Err(violation) => {
            limited = violation.code != Code::NotInEnum;
            let said = violation.message.trim_end_matches('.');
            format!("becomes {}: {said}", brief(&value))
        }
    };
    let first = lift.sent.iter().find(|name| group.contains(name))?;
    let what = format!("{} {why}", show(sample, group));
    let (field, kept) = (first.clone(), lift.field.name.clone());
    Some(Refused { field, kept, what, unsayable, limited })
}

/// A field that no two records may share, made of what they could.
fn clash(trial: &Trial<'_>, lift: &Lift, group: &[String]) -> Option<Refused> {
    let mut joined = false;
    let mut cut = false;
    lift.expr.visit(&mut |part| {
        joined |= matches!(part, Expr::Join { .. });
        cut |= matches!(part, Expr::Part { .. } | Expr::Member { .. });
    });
    let sent = |field: &&&Field| lift.sent.contains(&field.name);
    // What is made of a value that was alone in its kind is, too, if all of it is kept.
    let alone = !cut && trial.fields.iter().filter(sent).any(|field| field.unique);
    if !lift.field.unique || !(joined || cut) || alone {
        return None;
    }
    let first = lift.sent.iter().find(|name| group.contains(name))?;
    let what = format!("two records may say the same, but `{}` is `unique`", lift.field.name);
    let kept = lift.field.name.clone();
    let field = first.clone();
    Some(Refused { field, kept, what, unsayable: false, limited: false })
}

/// What the older version shows of values that lie just beyond the limits of a kept field; with
/// others beside it, of which it may be a part, and without.
fn beyond(lens: &Lens, all: &[&Lift], field: &Field) -> Vec<Fields> {
    let mut values: Vec<Value> = Vec::new();
    let numbers = [field.max.map(|max| max.floor() + 1.0), field.min.map(|min| min.ceil() - 1.0)];
    for number in numbers.into_iter().flatten() {
        values.extend(validate::of_kind(&field.kind, Value::from(number)));
    }
    if field.kind == Kind::String {
        let longer = field.max_length.map(|most| most.saturating_add(1));
        let shorter = field.min_length.map(|least| least.saturating_sub(1));
        let lengths = longer.into_iter().chain(shorter).filter(|length| *length <= LONGEST);
        // Letters, or digits where an older version has a number.
        let texts = lengths.flat_map(|length| ["1", "x"].map(|one| one.repeat(length)));
        values.extend(texts.map(Value::from));
    }
    let others = all.iter().filter(|lift| lift.field.name != field.name);
    let others = others.filter(|lift| lift.field.kind == Kind::String);
    let beside: Fields = others.map(|lift| (lift.field.name.clone(), Value::from("a"))).collect();
    let records = values.into_iter().flat_map(|value| {
        [beside.clone(), Fields::new()].map(|mut record| {
            record.insert(field.name.clone(), value.clone());
            record
        })
    });
    records.map(|record| lens.down(&record)).collect()
}

/// Texts that are made; a longer limit is one that hardly anyone meets.
const LONGEST: usize = 100_000;
