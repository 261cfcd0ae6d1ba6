//! One collection seen from one older version. Records go down through it, requests go up. Built
//! once per version from the stages between it and the newest.

use super::shape::Shape;
use super::step::{Place, Reason, Stages, Unraised, head, is_within, value_at};
use crate::problem::{Code, Problem, Violation};
use crate::raw::{Raw, push_member};
use crate::record::{Fields, Record};
use crate::schema::{Collection, Field, Kind};
use crate::validate;
use crate::value;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub struct Lens {
    pub(super) stages: Stages,
    /// Fields of the version, in the order they are served.
    pub(super) lines: Vec<Line>,
    /// The newest collection, with the limits that apply to bodies of this version.
    pub(crate) stored: Arc<Collection>,
    /// Codes of rules: the newest and this version's.
    pub(super) codes: BTreeMap<String, String>,
    /// Whether the version shows the collection differently from how it is stored.
    pub(super) differs: bool,
}

/// A field of the version.
#[derive(Debug)]
pub(super) struct Line {
    pub name: String,
    /// None: assigned by the service.
    pub field: Option<Field>,
    /// The name by which the stages know it: that of the field it is an old name of, or its own.
    pub of: String,
    /// Where it is stored; none: it is a constant.
    pub place: Option<Place>,
}

/// Stored fields that were made from a body of an older version, and the faults of the body.
#[derive(Debug, Default)]
pub struct Raised {
    pub fields: Fields,
    pub(crate) faults: Vec<Violation>,
}

impl Lens {
    pub(super) fn new(old: &Collection, shape: &Shape) -> Lens {
        let stored = shape.stored();
        let same = shape.stages.0.is_empty()
            && stored.public_names().eq(old.public_names())
            && Arc::ptr_eq(&stored, &shape.newest);
        Lens {
            stages: shape.stages.clone(),
            lines: lines(old, &shape.stages),
            stored,
            codes: shape.codes.clone(),
            differs: !same,
        }
    }

    /// Stored fields as this version shows them. Includes write-only ones where they are given:
    /// the encoder leaves them out.
    pub fn down(&self, fields: &Fields) -> Fields {
        let mut lowered = fields.clone();
        self.stages.down(&mut lowered);
        let mut shown = Fields::new();
        for line in &self.lines {
            let value = value_of(&lowered, &line.of);
            if !value.is_null() || line.field.as_ref().is_some_and(Field::is_served) {
                shown.insert(line.name.clone(), value.clone());
            }
        }
        shown
    }

    /// The text of a record in this version: `record::encode` of `down`, but copies the values that
    /// are shown as they are stored.
    pub fn show(&self, record: &Record) -> String {
        let raw = Raw::read(&record.body, record.hidden.as_deref());
        let mut lowered = Fields::new();
        if self.lines.iter().any(|line| line.is_served() && line.copied().is_none()) {
            lowered = record.fields();
            self.stages.down(&mut lowered);
        }
        let mut out = String::with_capacity(record.body.len() + 64);
        for line in self.lines.iter().filter(|line| line.is_served()) {
            match line.copied() {
                Some(stored) => push_member(&mut out, &line.name, raw.text(stored)),
                None => {
                    push_member(&mut out, &line.name, &value_of(&lowered, &line.of).to_string());
                }
            }
        }
        out + "}"
    }

    /// A whole record or body of this version in the newest shape; null where that has no value.
    pub fn up(&self, fields: &Fields) -> Fields {
        let Raised { mut fields, faults } = self.raise(fields);
        for fault in faults {
            if let Some(value) = fields.get_mut(&fault.field).filter(|it| !it.is_object()) {
                *value = Value::Null;
            }
        }
        fields
    }

    /// The same, with the faults.
    pub(crate) fn raise(&self, sent: &Fields) -> Raised {
        let mut fields = self.fold(sent);
        let unraised = self.stages.up(&mut fields);
        let faults = unraised.iter().map(|one| self.fault(one, sent)).collect();
        Raised { fields, faults }
    }

    /// PATCH: the stored fields that change, with their whole new values.
    pub fn merge(&self, current: &Fields, patch: &Fields) -> Raised {
        let shown = self.down(current);
        let mut wanted = shown.clone();
        for (name, change) in self.fold(patch) {
            let field = self.line(&name).and_then(|line| line.field.as_ref());
            let object = field.is_some_and(|field| field.kind == Kind::Object);
            let target = wanted.entry(name).or_insert(Value::Null);
            match object && change.is_object() {
                true => value::merge(target, change),
                false => *target = change,
            }
        }
        self.change(&shown, &wanted, current)
    }

    /// PUT: the stored fields that change. Data that this version cannot see does not change.
    pub fn replace(&self, current: &Fields, sent: &Fields) -> Raised {
        let shown = self.down(current);
        let mut wanted = self.fold(sent);
        for line in self.lines.iter().filter(|line| line.is_assigned()) {
            wanted.extend(shown.get(&line.name).map(|value| (line.name.clone(), value.clone())));
        }
        self.change(&shown, &wanted, current)
    }

    /// Changes only the fields in which the request differs from what the client was shown. So a
    /// client that sends back what it read changes nothing, even if this version shows several
    /// stored values alike.
    fn change(&self, shown: &Fields, wanted: &Fields, current: &Fields) -> Raised {
        let (mut was, mut is) = (self.fold(shown), self.fold(wanted));
        let unraised_before = self.stages.up(&mut was);
        let mut unraised = self.stages.up(&mut is);
        // A value that could not be raised before and is sent back as it was shown stays as it is
        // stored. A change of another field must not make a value unraisable: it would become null.
        unraised.retain(|one| {
            let assigned = self.line(&one.sent).is_some_and(Line::is_assigned);
            let is_changed = value_at(shown, &one.sent) != value_at(wanted, &one.sent);
            let was_unraised = unraised_before.iter().any(|before| before.sent == one.sent);
            !assigned && (is_changed || !was_unraised)
        });
        let faults = unraised.iter().map(|one| self.fault(one, wanted)).collect();
        let mut raised = Raised { fields: Fields::new(), faults };
        for field in self.stored.fields.iter().filter(|field| !field.read_only) {
            let (was, is) = (value_of(&was, &field.name), value_of(&is, &field.name));
            let kept = value_of(current, &field.name);
            let seen = |line: &Line| line.place.as_ref().is_some_and(|it| it.path == field.name);
            let changed = || patched(kept, was, is, self.lines.iter().any(seen));
            if let Some(changed) = (was != is).then(changed).filter(|changed| changed != kept) {
                raised.fields.insert(field.name.clone(), changed);
            }
        }
        raised
    }

    /// A violation of a stored field, in the words of this version.
    fn fault(&self, unraised: &Unraised, sent: &Fields) -> Violation {
        let Unraised { sent: name, kept, reason } = unraised;
        let message = match reason {
            Reason::Taken => format!("`{name}`: the newest version has another value there."),
            Reason::Inexpressible => {
                format!("`{name}` has a value that newer versions of this service cannot express.")
            }
        };
        let mut violation = Violation::new(kept, Code::Unsuitable, message);
        let secret = self.line(name).is_some_and(Line::is_secret);
        violation.report_as(name, (!secret).then_some(value_at(sent, name)));
        violation
    }

    /// Checks stored fields that were made from a body of this version.
    pub(crate) fn check(&self, raised: &mut Raised, sent: &Fields) -> Result<(), Problem> {
        let mut violations = raised.faults.clone();
        if let Err(mut problem) = validate::raised(&self.stored, &mut raised.fields) {
            problem.violations.iter_mut().for_each(|violation| self.reword(violation, sent));
            let known = |field: &str| raised.faults.iter().any(|fault| fault.field == field);
            violations.extend(problem.violations.iter().filter(|it| !known(&it.field)).cloned());
        }
        match violations.is_empty() {
            true => Ok(()),
            false => Err(Problem::of(Code::ValidationFailed, violations)),
        }
    }

    /// Rewords a violation of a converted field: the limits of the stored field are in a unit that
    /// the client does not know.
    pub(crate) fn reword(&self, violation: &mut Violation, sent: &Fields) {
        let of = |line: &&Line| {
            let place = line.place.as_ref();
            place.is_some_and(|it| it.converted && it.field() == violation.field)
        };
        let Some(line) = self.lines.iter().find(of) else { return };
        let value = value_of(sent, &line.name);
        if violation.code == Code::Required && value.is_null() {
            return;
        }
        violation.message =
            format!("`{}` has a value that newer versions of this service refuse.", line.name);
        violation.report_as(&line.name, (!line.is_secret()).then_some(value));
    }

    /// Drops values made from fields that are already known to be wrong.
    pub(crate) fn leave_out(&self, raised: &mut Raised, wrong: &[Violation]) {
        for place in wrong.iter().filter_map(|violation| self.place(&violation.field)) {
            raised.fields.remove(place.field());
            raised.faults.retain(|fault| fault.field != place.field());
        }
    }

    /// `previous_attributes` in this version, from the stored record after the change and the old
    /// values of the fields that changed.
    pub fn previous(&self, after: &Fields, previous: &Fields) -> Fields {
        let mut found = differing(after, previous, |fields| self.down(fields));
        found.retain(|name, _| self.line(name).is_some_and(Line::is_served));
        found
    }

    /// The other way: `previous_attributes` that were written in this version, in the newest shape.
    pub fn previous_up(&self, after: &Fields, previous: &Fields) -> Fields {
        differing(after, previous, |fields| self.up(fields))
    }

    /// The name of a stored field, or of a member of one, in this version. None if the version does
    /// not show it. A name that is not a field stays the same.
    pub fn name_down(&self, newest: &str) -> Option<String> {
        if self.stored.field(head(newest)).is_none() {
            return Some(newest.to_owned());
        }
        let path = self.stages.older(newest)?;
        self.line(head(&path))?;
        // In this version, the path may be that of another value.
        let kept = self.stages.newer(&path)?.path;
        (is_within(&kept, newest) || is_within(newest, &kept)).then_some(path)
    }

    /// The stored field that a field of this version shows.
    pub fn name_up<'a>(&'a self, name: &'a str) -> &'a str {
        self.place(name).map_or(name, Place::field)
    }

    /// Whether the version shows the field as a constant, which is not stored.
    pub(crate) fn is_constant(&self, name: &str) -> bool {
        self.line(name).is_some_and(|line| line.place.is_none())
    }

    /// Whether the version shows a value of the field if none is stored.
    pub(crate) fn fills(&self, name: &str) -> bool {
        self.place(name).is_some_and(|place| place.filled)
    }

    /// Whether the version shows the values of a stored field, or of a member of one, unchanged.
    pub(crate) fn keeps_values(&self, kept: &str) -> bool {
        let path = self.name_down(kept);
        let place = path.and_then(|path| self.stages.newer(&path));
        place.is_none_or(|place| !place.worded && !place.converted)
    }

    /// By object of this version: its members that are fields by now, and so have their type. None
    /// of them is required.
    pub fn members(&self) -> BTreeMap<String, Vec<Field>> {
        self.stages.members()
    }

    /// Pairs of names that mean one field, the old one first.
    pub(super) fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        let aliases = self.lines.iter().filter(|line| line.name != line.of);
        aliases.map(|line| (line.name.as_str(), line.of.as_str()))
    }

    /// Old names that are taken next to new ones, as the new ones.
    fn fold(&self, sent: &Fields) -> Fields {
        let mut folded = sent.clone();
        for (name, of) in self.aliases() {
            if let Some(value) = folded.remove(name) {
                folded.entry(of.to_owned()).or_insert(value);
            }
        }
        folded
    }

    /// The name by which a client has sent a field of this version, or a member of one.
    pub(super) fn name_sent(&self, name: &str, sent: &Fields) -> String {
        let head = head(name);
        let is_sent = |(old, of): &(&str, &str)| *of == head && sent.contains_key(*old);
        let alias = self.aliases().find(is_sent).filter(|_| !sent.contains_key(head));
        format!("{}{}", alias.map_or(head, |(old, _)| old), &name[head.len()..])
    }

    pub(super) fn line(&self, name: &str) -> Option<&Line> {
        let mut lines = self.lines.iter().filter(|line| line.name == name);
        // A parameter may be called like what every record has.
        lines.clone().find(|line| line.field.is_some()).or_else(|| lines.next())
    }

    fn place(&self, name: &str) -> Option<&Place> {
        self.line(name)?.place.as_ref()
    }
}

impl Line {
    fn is_served(&self) -> bool {
        self.field.as_ref().is_none_or(Field::is_served)
    }

    /// Whether clients cannot set it.
    fn is_assigned(&self) -> bool {
        self.field.as_ref().is_none_or(|field| field.read_only)
    }

    fn is_secret(&self) -> bool {
        self.field.as_ref().is_some_and(|field| field.write_only)
    }

    /// The stored field that is shown unchanged.
    fn copied(&self) -> Option<&str> {
        self.place.as_ref().filter(|place| place.is_copy()).map(|place| place.path.as_str())
    }
}

/// The old values of the fields that differ after both states of a record are converted.
fn differing(after: &Fields, previous: &Fields, convert: impl Fn(&Fields) -> Fields) -> Fields {
    let mut before = after.clone();
    before.extend(previous.iter().map(|(name, value)| (name.clone(), value.clone())));
    let (was, is) = (convert(&before), convert(after));
    let names = was.keys().chain(is.keys()).filter(|name| *name != "updated_at");
    names
        .filter(|name| value_of(&was, name) != value_of(&is, name))
        .map(|name| (name.clone(), value_of(&was, name).clone()))
        .collect()
}

pub(super) fn value_of<'a>(fields: &'a Fields, name: &str) -> &'a Value {
    fields.get(name).unwrap_or(&Value::Null)
}

/// A stored value after a client changed `was` to `is`. Members of an object that are the same on
/// both sides keep their stored values: this version may not see all of them. `seen`: the version
/// shows the object itself, so that its clients can remove it.
fn patched(kept: &Value, was: &Value, is: &Value, seen: bool) -> Value {
    let mut members = match (kept, is) {
        (Value::Object(members), Value::Object(_) | Value::Null) => members.clone(),
        _ => return is.clone(),
    };
    let of = |object: &Value| object.as_object().cloned().unwrap_or_default();
    let (mut before, after) = (of(was), of(is));
    for (name, value) in after {
        if before.remove(&name).as_ref() != Some(&value) {
            members.insert(name, value);
        }
    }
    before.keys().for_each(|gone| drop(members.remove(gone)));
    if members.is_empty() && seen { is.clone() } else { Value::Object(members) }
}

/// Fields that clients of the version know, between those that the service assigns.
fn lines(old: &Collection, stages: &Stages) -> Vec<Line> {
    let line = |name: &str, field: Option<&Field>| {
        let of = field.and_then(|field| field.alias_of.as_deref()).unwrap_or(name).to_owned();
        let place = match field {
            Some(_) => stages.newer(&of),
            None => Some(Place { path: name.to_owned(), ..Place::default() }),
        };
        Line { name: name.to_owned(), field: field.cloned(), of, place }
    };
    let known = old.fields.iter().filter(|field| !field.removed);
    let assigned = |names: &'static [&'static str]| names.iter().map(|name| line(name, None));
    assigned(&["id", "object"])
        .chain(known.map(|field| line(&field.name, Some(field))))
        .chain(assigned(old.timestamps()))
        .collect()
}
