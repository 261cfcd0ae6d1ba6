//! The proof that a change loses nothing: what a client of an older version sends comes back as it
//! was sent. Tried with samples, when the schema is read.

use super::convert::Conversion;
use super::expr::{Expr, Parsed};
use super::lens::{Lens, Lift, value_of};
use super::samples::{self, Dice, Hints};
use super::scale::is_float;
use super::{Part, Versions, View, changes_of};
use crate::record::Fields;
use crate::schema::{Field, Operation, Retyping, Schema};
use crate::validate;
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Combinations of the fields of one change that are tried: all, or so many by chance.
const COMBINATIONS: usize = 400;

/// A change through which something is lost.
pub(crate) struct Loss {
    /// Place of the version, and of the change in it.
    pub version: usize,
    pub change: usize,
    pub message: String,
}

/// One for each change that loses something. What older versions lose of the same kept fields
/// follows from it, or is told once that is mended.
pub(crate) fn losses(schema: &Schema) -> Vec<Loss> {
    if schema.versions.iter().all(|version| version.changes.is_empty()) {
        return Vec::new();
    }
    let schema = Arc::new(schema.clone());
    let versions = Versions::new(&schema);
    let mut found = Vec::new();
    for part in parts(&schema) {
        let hints = hints(&schema, part);
        let mut told = BTreeSet::new();
        let views: Vec<Arc<View>> = versions.iter().cloned().collect();
        // Each view but the newest.
        for trial in views.iter().skip(1).filter_map(|view| Trial::new(view, part)) {
            let changed = changed(&schema, trial.index, part);
            let newer = &views[..trial.index];
            for (index, field, message) in trial.lose(&hints, &changed, newer, &mut told) {
                let change = blame(&schema, index, part, &field);
                found.push(Loss { version: index - 1, change, message });
            }
        }
    }
    found
}

/// The fields of the older shape that the version before it changed. All others have been tried.
fn changed(schema: &Schema, index: usize, part: Part) -> BTreeSet<String> {
    let changes = changes_of(&schema.versions[index - 1], part);
    let places = changes.iter().flat_map(|change| {
        let operation = &change.operation;
        operation.old_places().into_iter().chain(operation.new_places())
    });
    places.map(|place| place.split('.').next().unwrap_or_default().to_owned()).collect()
}

/// What any version changed.
fn parts(schema: &Schema) -> BTreeSet<Part> {
    let changes = schema.versions.iter().flat_map(|version| &version.changes);
    changes.map(|change| (change.collection, change.action)).collect()
}

/// The change that made the field, among those of the version after which it was lost.
fn blame(schema: &Schema, index: usize, part: Part, field: &str) -> usize {
    let changes = &schema.versions[index - 1].changes;
    let of = |operation: &Operation| {
        operation.old_places().iter().any(|place| place.split('.').next() == Some(field))
    };
    let here = |place: &usize| (changes[*place].collection, changes[*place].action) == part;
    let mut places = (0..changes.len()).filter(here);
    let first = places.clone().next().unwrap_or(0);
    places.find(|place| of(&changes[*place].operation)).unwrap_or(first)
}

pub(super) fn hints(schema: &Schema, part: Part) -> Hints {
    let mut hints = Hints::default();
    for change in schema.versions.iter().flat_map(|version| changes_of(version, part)) {
        match &change.operation {
            Operation::Split { by, .. } | Operation::Merge { by, .. } => {
                hints.separators.push(by.clone());
            }
            // What is moved into an object may be a member of it before.
            Operation::Retype { by: Retyping::Map(pairs), .. } => {
                hints.values.extend(pairs.iter().map(|(was, _)| was.clone()));
            }
            Operation::Move { from, to, .. } => {
                hints.members.extend(from.member.iter().chain(&to.member).cloned());
            }
            _ => {}
        }
    }
    // One of each: only so many are tried.
    for all in [&mut hints.separators, &mut hints.members] {
        let mut seen = BTreeSet::new();
        all.retain(|one| seen.insert(one.clone()));
    }
    hints
}

/// Requests of one version.
pub(super) struct Trial<'a> {
    pub index: usize,
    pub part: Part,
    pub date: &'a str,
    pub lens: &'a Lens,
    /// What a client of the version may send.
    pub fields: Vec<&'a Field>,
    /// Whether clients read it again. Parameters of actions are only sent.
    pub read: bool,
}

/// Place of the version, the field that shows it, and the message.
type Lost = (usize, String, String);

impl<'a> Trial<'a> {
    fn new(view: &'a View, part: Part) -> Option<Trial<'a>> {
        let all = match part {
            (collection, None) => &view.schema.collections[collection].fields,
            (collection, Some(action)) => {
                &view.schema.collections[collection].actions[action].params
            }
        };
        Trial::with(view, part, all)
    }

    /// With these declarations of what is sent; none where nothing changed.
    pub fn with(view: &'a View, part: Part, all: &'a [Field]) -> Option<Trial<'a>> {
        let (lens, read) = match part {
            (collection, None) => (view.lens(collection)?, true),
            (collection, Some(action)) => (view.form(collection, action)?, false),
        };
        let fields = all.iter().filter(|field| !field.read_only && !field.removed).collect();
        Some(Trial { index: view.index, part, date: &view.date, lens, fields, read })
    }

    /// What each group loses that has one of these fields; `told`: the kept fields that a loss is
    /// known of.
    fn lose(
        &self,
        hints: &Hints,
        changed: &BTreeSet<String>,
        newer: &[Arc<View>],
        told: &mut BTreeSet<String>,
    ) -> Vec<Lost> {
        // For a field that is not looked into, any value does.
        let stand_in = Value::from("abc");
        let mut groups = self.groups();
        groups.retain(|group| {
            group.iter().any(|name| changed.contains(name))
                && self.made_from(group).all(|kept| !told.contains(kept))
        });
        let grouped = |field: &&&Field| groups.iter().flatten().any(|name| *name == field.name);
        let values: BTreeMap<&str, Vec<Value>> = self
            .fields
            .iter()
            .filter(grouped)
            .map(|field| (field.name.as_str(), self.samples(field, hints)))
            .collect();
        let lost = |group: &Vec<String>| {
            let first = || self.unproved(group, &values).or_else(|| self.unmeant(group));
            if let Some(loss) = first() {
                return Some(loss);
            }
            let of = |name: &String| match values[name.as_str()].as_slice() {
                [] => std::slice::from_ref(&stand_in),
                values => values,
            };
            let choices: Vec<&[Value]> = group.iter().map(of).collect();
            let combined = combinations(&choices).into_iter().map(|chosen| {
                let chosen = chosen.into_iter().cloned();
                group.iter().cloned().zip(chosen).collect()
            });
            let all: Vec<Fields> = combined.chain(self.reaching(group, newer, hints)).collect();
            let lost = all.iter().find_map(|sample| self.check(sample, group));
            lost.or_else(|| self.unreached(group, &all))
        };
        let mut found = Vec::new();
        for group in &groups {
            let loss = lost(group);
            if loss.is_some() {
                told.extend(self.made_from(group).map(str::to_owned));
            }
            found.extend(loss);
        }
        found
    }

    fn samples(&self, field: &Field, hints: &Hints) -> Vec<Value> {
        let mut found = samples::of(field, hints);
        let made = self.lens.lifts.iter().filter(|lift| lift.sent.contains(&field.name));
        // Those of newer changes have been tried.
        let scales = made.filter_map(|lift| lift.expr.scales().pop());
        let (least, most) = (field.min.unwrap_or(f64::MIN), field.max.unwrap_or(f64::MAX));
        let lost = scales.filter_map(|scale| scale.lost(least, most)).map(Value::Number);
        let last = found.len() - usize::from(found.last().is_some_and(Value::is_null));
        found.splice(last..last, lost);
        found
    }

    pub fn lifts_of(&self, group: &[String]) -> impl Iterator<Item = &'a Lift> {
        let lifts = self.lens.lifts.iter();
        lifts.filter(|lift| lift.sent.iter().any(|name| group.contains(name)))
    }

    /// The kept fields that are made from these.
    fn made_from(&self, group: &[String]) -> impl Iterator<Item = &str> {
        self.lifts_of(group).map(|lift| lift.field.name.as_str())
    }

    /// Whether clients read the field, or only write it.
    fn is_read(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name && !field.write_only)
    }

    /// A field that the change looks into, and that no value could be made for.
    fn unproved(&self, group: &[String], values: &BTreeMap<&str, Vec<Value>>) -> Option<Lost> {
        let lacks = |name: &&String| values[name.as_str()].iter().all(Value::is_null);
        let looked_into = |name: &&String| {
            let lifts = self.lens.lifts.iter().filter(|lift| lift.sent.contains(name));
            lifts.into_iter().any(|lift| lift.expr.looks_into(name))
        };
        let name = group.iter().filter(lacks).find(looked_into)?;
        let field = self.fields.iter().find(|field| field.name == **name)?;
        let taken_by = match (&field.pattern, field.min_length.or(field.max_length)) {
            (Some(_), None) => "its `pattern` takes",
            (Some(_), Some(_)) => "its `pattern` and its length take",
            (None, _) => "its declaration takes",
        };
        let message = format!(
            "nothing proves that this change loses nothing: no value of `{name}` could be made \
             that {taken_by}; declare it in a simpler way"
        );
        Some((self.index, name.clone(), message))
    }

    /// A field whose default or `fill` the newest version refuses: so it does all requests without
    /// the field.
    fn unmeant(&self, group: &[String]) -> Option<Lost> {
        let fields = self.fields.iter().filter(|field| group.contains(&field.name));
        for field in fields.filter(|field| !field.required || field.default.is_some()) {
            let meant = field.default.clone().unwrap_or_default();
            let sample = Fields::from_iter([(field.name.clone(), meant)]);
            let raised = self.lens.up(&sample);
            let alone = |lift: &&Lift| lift.sent == [field.name.as_str()];
            for lift in self.lifts_of(group).filter(alone) {
                let mut value = value_of(&raised, &lift.field.name).clone();
                let why = match validate::value(&lift.field, &mut value) {
                    _ if value.is_null() => continue,
                    _ if validate::is_marked(&value) => {
                        format!("has no counterpart in `{}`", lift.field.name)
                    }
                    Ok(()) => continue,
                    Err(violation) => violation.message.trim_end_matches('.').to_owned(),
                };
                let message = format!(
                    "this change refuses what older clients may send: what a request of version \
                     {} without `{}` means is refused: {why}",
                    self.date, field.name
                );
                return Some((self.index, field.name.clone(), message));
            }
        }
        None
    }

    /// Fields that end up together, each in one group; those that nothing happened to are left out.
    pub fn groups(&self) -> Vec<Vec<String>> {
        let known = |name: &String| self.fields.iter().any(|field| field.name == *name);
        let changed = self.lens.lifts.iter().filter(|lift| {
            let name = &lift.field.name;
            let shown = self.lens.lines.iter().find(|line| line.name == *name);
            lift.expr != Expr::sent(name) || shown.is_none_or(|line| line.expr != Expr::kept(name))
        });
        let mut groups: Vec<Vec<String>> = Vec::new();
        for lift in changed {
            let mut group: Vec<String> =
                lift.sent.iter().filter(|name| known(name)).cloned().collect();
            // One that shares a field with others is tried with theirs: a request without what it
            // must have proves nothing.
            let shares = |other: &mut Vec<String>| other.iter().any(|name| group.contains(name));
            let others: Vec<String> = groups.extract_if(.., shares).flatten().collect();
            for name in others {
                if !group.contains(&name) {
                    group.push(name);
                }
            }
            groups.push(group);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// A request with it is refused, not changed.
    fn is_refused(&self, raised: &Fields, group: &[String]) -> bool {
        self.lifts_of(group).any(|lift| {
            let value = value_of(raised, &lift.field.name);
            let of_kind = || validate::of_kind(&lift.field.kind, value.clone()).is_some();
            validate::is_marked(value) || !value.is_null() && !of_kind()
        })
    }

    /// Fields of which newer versions refused all that was tried, which proves nothing.
    fn unreached(&self, group: &[String], all: &[Fields]) -> Option<Lost> {
        let said = |sample: &&Fields| sample.values().any(|value| !value.is_null());
        let proves = |sample: &Fields| !self.is_refused(&self.lens.up(sample), group);
        let sample = all.iter().find(said)?;
        if all.iter().filter(said).any(proves) {
            return None;
        }
        let message = format!(
            "nothing proves that this change loses nothing: newer versions refuse all that was \
             tried, such as {}, sent in version {}; declare what they take in a simpler way",
            show(sample, group),
            self.date
        );
        Some((self.index, group[0].clone(), message))
    }

    fn check(&self, sample: &Fields, group: &[String]) -> Option<Lost> {
        let raised = self.lens.up(sample);
        for lift in self.lifts_of(group) {
            let value = value_of(&raised, &lift.field.name);
            // A request with it is refused, not changed; only a text may be no number at all.
            if validate::is_marked(value) {
                let what = match lift.expr.lacks_counterpart(sample) {
                    true => format!("has no counterpart in `{}`", lift.field.name),
                    false => self.lost_digits(lift, sample, &raised)?,
                };
                return Some(self.lost(sample, group, &lift.sent, &what));
            }
            let kind = &lift.field.kind;
            if !value.is_null() && validate::of_kind(kind, value.clone()).is_none() {
                return None;
            }
        }
        if !self.read {
            return self.emptied(sample, &raised, group);
        }
        let back = self.lens.down(&raised);
        let again = OnceCell::new();
        let differs = |name: &&String| {
            let (sent, read) = (value_of(sample, name), value_of(&back, name));
            // The nearest is shown as it is from then on.
            let stays = || {
                let again = again.get_or_init(|| self.lens.down(&self.lens.up(&back)));
                value_of(again, name) == read
            };
            let is_near = || self.takes_nearest(name) && differ_in_numbers(sent, read) && stays();
            sent != read && self.is_read(name) && !is_near()
        };
        let name = group.iter().filter(differs).find(|name| {
            // What is not sent may come back as what it means.
            let (sent, read) = (value_of(sample, name), value_of(&back, name));
            let mut meant = sample.clone();
            meant.insert((*name).clone(), read.clone());
            let means = || self.is_filled(name) || same(&self.lens.up(&meant), &raised);
            !(is_more(sent, read) && means())
        });
        let Some(name) = name else { return self.emptied(sample, &raised, group) };
        let shown = show(&back, group);
        let (index, _, message) =
            self.lost(sample, group, group, &format!("comes back as {shown}"));
        Some((index, name.clone(), message))
    }

    /// How floats come back that lose digits, since those of the other unit stand elsewhere. None
    /// of whole numbers with more digits than floats hold, which have no counterpart.
    fn lost_digits(&self, lift: &Lift, sample: &Fields, raised: &Fields) -> Option<String> {
        let source = Parsed { sent: Some(sample), kept: None };
        let is_float = |place: &Expr| place.eval(&source).as_number().is_some_and(is_float);
        let of_floats = lift.expr.scales().iter().all(|scale| scale.is_of_floats());
        let nearest = lift.expr.eval(&source);
        if !of_floats || !nearest.is_number() || !lift.multiplied.iter().any(is_float) {
            return None;
        }
        let mut kept = raised.clone();
        kept.insert(lift.field.name.clone(), nearest.into_owned());
        let shown = show(&self.lens.down(&kept), &lift.sent);
        let others = match lift.expr.scales().len() {
            1 => "",
            _ => ", and in newer ones with a `factor`,",
        };
        Some(format!(
            "comes back as {shown}; `nearest = true` in the change{others} says that the nearest \
             number will do"
        ))
    }

    /// Whether a change says so of a field.
    fn takes_nearest(&self, name: &String) -> bool {
        let nearest = self.lens.lifts.iter().filter(|lift| lift.nearest);
        nearest.flat_map(|lift| &lift.multiplied).any(|place| place.sent_names().contains(name))
    }

    /// Whether the schema declares a value for requests without the field.
    fn is_filled(&self, name: &str) -> bool {
        let mut found = false;
        for lift in self.lens.lifts.iter().filter(|lift| lift.sent.iter().any(|sent| sent == name))
        {
            lift.expr.visit(&mut |part| {
                found |= matches!(part, Expr::Convert { of, by, .. }
                    if by.fills() && of.sent_names().iter().any(|sent| sent == name));
            });
        }
        found
    }

    /// A field that the sample leaves without the value it must have: whoever sends that is
    /// refused, although the version allows it.
    fn emptied(&self, sample: &Fields, raised: &Fields, group: &[String]) -> Option<Lost> {
        // Where there is a default, null is what hardly anyone sends.
        let filled = |name: &String| {
            let field = self.fields.iter().find(|field| field.name == *name);
            field.is_some_and(|field| field.default.is_some()) && value_of(sample, name).is_null()
        };
        let lift = self.lens.lifts.iter().find(|lift| {
            lift.must_be_there()
                && value_of(raised, &lift.field.name).is_null()
                && lift.sent.iter().any(|name| group.contains(name))
                && !lift.sent.iter().any(filled)
        })?;
        let message = format!(
            "this change refuses what older clients may send: {}, sent in version {}, leaves \
             `{}` empty, which is required; declare `required` with a `fill` in a newer version \
             of its own, or make it optional",
            show(sample, &lift.sent),
            self.date,
            lift.field.name
        );
        Some((self.index, lift.sent.first().cloned().unwrap_or_default(), message))
    }

    fn lost(&self, sample: &Fields, group: &[String], names: &[String], what: &str) -> Lost {
        let shown = show(sample, names);
        let message =
            format!("this change loses data: {shown}, sent in version {}, {what}", self.date);
        (self.index, group.first().cloned().unwrap_or_default(), message)
    }
}

impl Lift {
    /// Whether a request without it is refused.
    fn must_be_there(&self) -> bool {
        let field = &self.field;
        field.required && !field.read_only && !field.removed && field.default.is_none()
    }
}

impl Expr {
    /// Whether a value that the old field takes, and should have a counterpart, has none.
    fn lacks_counterpart(&self, sample: &Fields) -> bool {
        let source = Parsed { sent: Some(sample), kept: None };
        let mut found = false;
        self.visit(&mut |part| {
            if let Expr::Convert { of, by, .. } = part
                && let Conversion::FromText(_) | Conversion::Only(_) = by
            {
                let broken = validate::is_marked(&part.eval(&source));
                found |= broken && !validate::is_marked(&of.eval(&source));
            }
        });
        found
    }
}

/// One value of each field: all combinations, or where these are too many, each value with the
/// first of all others and with as little of them as can be, and then some by chance.
pub(super) fn combinations<'v>(choices: &[&'v [Value]]) -> Vec<Vec<&'v Value>> {
    let counts = choices.iter().map(|values| values.len());
    if counts.clone().any(|count| count == 0) {
        return Vec::new();
    }
    let all = counts.into_iter().try_fold(1usize, usize::checked_mul).unwrap_or(usize::MAX);
    if all <= COMBINATIONS {
        let at = |mut number: usize| -> Vec<&Value> {
            let pick = |values: &&'v [Value]| {
                let place = number % values.len();
                number /= values.len();
                &values[place]
            };
            choices.iter().map(pick).collect()
        };
        return (0..all).map(at).collect();
    }
    // Null stands last, where it is taken.
    let first = |values: &&'v [Value]| &values[0];
    let least = |values: &&'v [Value]| values.last().filter(|v| v.is_null()).unwrap_or(&values[0]);
    let bases: [Vec<&Value>; 2] =
        [choices.iter().map(first).collect(), choices.iter().map(least).collect()];
    let mut found = Vec::new();
    for (place, values) in choices.iter().enumerate() {
        for (value, base) in values.iter().flat_map(|v| bases.iter().map(move |base| (v, base))) {
            let mut one = base.clone();
            one[place] = value;
            found.push(one);
        }
    }
    let mut dice = Dice(0);
    let mut pick = |values: &&'v [Value]| &values[dice.below(values.len())];
    found.extend((0..COMBINATIONS).map(|_| choices.iter().map(&mut pick).collect()));
    found
}

/// Whether two values are the same but for numbers.
fn differ_in_numbers(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => true,
        (Value::Object(one), Value::Object(other)) => {
            let mut names = one.keys().chain(other.keys());
            names.all(|name| differ_in_numbers(value_of(one, name), value_of(other, name)))
        }
        (one, other) => one == other,
    }
}

/// Whether the one is all that the other says, and that says more.
fn is_more(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.iter().all(|(name, value)| other.get(name) == Some(value))
        }
        (one, _) => one.is_null(),
    }
}

/// Whether two records say the same; a missing field says null.
fn same(one: &Fields, other: &Fields) -> bool {
    one.keys().chain(other.keys()).all(|name| value_of(one, name) == value_of(other, name))
}

pub(super) fn show(fields: &Fields, names: &[String]) -> String {
    let members = names.iter().map(|name| format!("{name} = {}", brief(value_of(fields, name))));
    format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
}

/// The text of a value, or the beginning of it.
pub(super) fn brief(value: &Value) -> String {
    const SHOWN_CHARS: usize = 60;
    let text = value.to_string();
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
