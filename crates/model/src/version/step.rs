//! The changes of one version to the fields of a collection: steps that convert a record down to
//! the older shape and up to the newer one. Knows only the declarations that a step needs, and
//! nothing of requests.

use crate::record::Fields;
use crate::schema::{CONVERSION_UNITS, Field, Formula, Kind};
use crate::validate;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One change. "Old" is the shape before the version, "new" the one from it on.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Rename {
        old: String,
        new: String,
    },
    Move(Box<Move>),
    /// An object that the old shape does not have; `shown_as`: the first old field that is in it.
    Hide {
        object: String,
        shown_as: String,
    },
    /// Words of an `enum` that differ between the two shapes. All others stay.
    Words {
        field: String,
        up: Vec<(String, String)>,
        down: Vec<(String, String)>,
    },
    /// `down`: old clients read this value if there is none. Otherwise: if old clients send none,
    /// they mean this value.
    Fill {
        field: String,
        fill: Value,
        down: bool,
    },
    /// Old clients read a constant; nothing is stored.
    Constant {
        field: String,
        value: Value,
    },
    Convert(Box<Convert>),
}

/// A value that moves into an object, out of it, or from one object into another.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// A field, or a member of an object: `details.isbn`.
    pub old: String,
    pub new: String,
    /// The old field, where the old place is no member: it can hold values of its type only.
    pub field: Option<Field>,
    /// The new field, where the new place is no member.
    pub new_field: Option<Field>,
    /// The old shape has the new object, too, so clients may have put a member there.
    pub shared: bool,
    /// Whether the object must be there on the old and on the new side, also without members.
    pub required: (bool, bool),
}

/// A field whose values are computed.
#[derive(Clone, Debug)]
pub(super) struct Convert {
    pub old: Field,
    pub new: Field,
    pub up: Formula,
    pub down: Formula,
    pub lossy: bool,
    /// The fields of `record` in `up` and in `down`.
    pub old_fields: Vec<Field>,
    pub new_fields: Vec<Field>,
}

/// Why a value cannot be converted up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reason {
    /// The object has a member where the value moves to.
    Taken,
    /// The newer type has no value for it.
    Inexpressible,
}

impl Convert {
    /// Null: older clients have no value for it.
    pub fn lowered(&self, value: &Value, record: &Fields, left: &mut u64) -> Result<Value, String> {
        let given = (&self.new.kind, value);
        let made = self
            .down
            .apply(given, (&self.new_fields, record), left)
            .map_err(|fault| fault.reason)?;
        if made.is_null() { Ok(made) } else { typed(&self.old, made) }
    }

    pub fn raised(&self, value: &Value, record: &Fields, left: &mut u64) -> Result<Value, String> {
        let given = (&self.old.kind, value);
        let made =
            self.up.apply(given, (&self.old_fields, record), left).map_err(|fault| fault.reason)?;
        typed(&self.new, made)
    }
}

/// A computed value in the form in which the field stores it. Limits apply to requests only.
/// Clients do not know a word that is not in the `enum`.
fn typed(field: &Field, value: Value) -> Result<Value, String> {
    let made = value.to_string();
    let known = |value: &Value| {
        let word = value.as_str().unwrap_or_default();
        field.choices.is_empty() || field.choices.iter().any(|choice| choice == word)
    };
    let value = validate::of_kind(&field.kind, value).filter(known);
    value.ok_or_else(|| format!("{made} is no value of type {}", field.kind.name()))
}

/// The steps of one version.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage(pub Vec<Step>);

impl Stage {
    /// `left`: what the formulas may still cost.
    fn down(&self, fields: &mut Fields, left: &mut u64) {
        let record = self.snapshot(fields);
        for step in &self.0 {
            step.down(fields, &record, left);
        }
    }

    /// Returns where each value that has no counterpart was in the old shape. `left` and `check`:
    /// what the formulas may still cost to convert the record, and to check the result.
    fn up(&self, fields: &mut Fields, left: &mut u64, check: &mut u64) -> Vec<(String, Reason)> {
        let record = self.snapshot(fields);
        let mut faults = Vec::new();
        for step in &self.0 {
            step.up(fields, &record, &mut faults, left);
        }
        faults.extend(self.inexact(&record, fields, check));
        faults
    }

    /// Values of conversions without `lossy` that would not be shown as they were sent.
    fn inexact(&self, sent: &Fields, raised: &Fields, left: &mut u64) -> Vec<(String, Reason)> {
        if self.conversions().all(|it| it.lossy) {
            return Vec::new();
        }
        let mut shown = raised.clone();
        self.down(&mut shown, left);
        let differs = |name: &&String| {
            let (was, is) = (value_at(sent, name), value_at(&shown, name));
            // A value that could not be raised at all is reported already.
            !was.is_null() && !value_at(raised, name).is_null() && was != is
        };
        let exact = self.conversions().filter(|it| !it.lossy).map(|it| &it.old.name);
        exact.filter(differs).map(|name| (name.clone(), Reason::Inexpressible)).collect()
    }

    /// Formulas see the record as it is before the version's first step.
    fn snapshot(&self, fields: &Fields) -> Fields {
        if self.conversions().next().is_some() { fields.clone() } else { Fields::new() }
    }

    pub fn conversions(&self) -> impl Iterator<Item = &Convert> {
        self.0.iter().filter_map(|step| match step {
            Step::Convert(it) => Some(&**it),
            _ => None,
        })
    }
}

impl Step {
    fn down(&self, fields: &mut Fields, record: &Fields, left: &mut u64) {
        match self {
            Step::Rename { old, new } => rename(fields, new, old),
            Step::Move(it) => {
                let mut value = take(fields, &it.new);
                // Newer clients may put anything into an object.
                if let Some(field) = &it.field {
                    value = typed(field, value).unwrap_or_default();
                }
                put(fields, &it.old, value, it.required.0);
            }
            Step::Hide { object, .. } => drop(fields.remove(object)),
            Step::Words { field, down, .. } => translate(fields, field, down),
            Step::Fill { field, fill, down: true } => fill_in(fields, field, fill),
            Step::Fill { .. } => {}
            Step::Constant { field, value } => drop(fields.insert(field.clone(), value.clone())),
            Step::Convert(it) => {
                let name = &it.new.name;
                if let Some(value) = fields.get_mut(name).filter(|value| !value.is_null()) {
                    *value = it.lowered(value, record, left).unwrap_or_default();
                }
            }
        }
    }

    fn up(
        &self,
        fields: &mut Fields,
        record: &Fields,
        faults: &mut Vec<(String, Reason)>,
        left: &mut u64,
    ) {
        match self {
            Step::Rename { old, new } => rename(fields, old, new),
            Step::Move(it) => {
                let mut value = take(fields, &it.old);
                // Clients of a version before this one may have sent a member of any type.
                if let Some(field) = it.field.as_ref().filter(|_| !value.is_null()) {
                    value = typed(field, value).unwrap_or_else(|_| {
                        faults.push((it.old.clone(), Reason::Inexpressible));
                        Value::Null
                    });
                }
                if it.shared && it.new.contains('.') && !value_at(fields, &it.new).is_null() {
                    faults.push((it.new.clone(), Reason::Taken));
                }
                put(fields, &it.new, value, it.required.1);
            }
            Step::Hide { .. } | Step::Fill { down: true, .. } => {}
            Step::Words { field, up, .. } => translate(fields, field, up),
            Step::Fill { field, fill, .. } => fill_in(fields, field, fill),
            Step::Constant { field, .. } => drop(fields.remove(field)),
            Step::Convert(it) => {
                let name = &it.old.name;
                let Some(value) = fields.get_mut(name).filter(|value| !value.is_null()) else {
                    return;
                };
                match it.raised(value, record, left) {
                    Ok(raised) => *value = raised,
                    Err(_) => {
                        *value = Value::Null;
                        faults.push((name.clone(), Reason::Inexpressible));
                    }
                }
            }
        }
    }

    /// Where a path of the newer shape is in the older one; none where that does not have it.
    fn older(&self, path: String) -> Option<String> {
        match self {
            Step::Rename { old, new } => Some(moved(&path, new, old).unwrap_or(path)),
            Step::Move(it) => {
                let Some(found) = moved(&path, &it.new, &it.old) else { return Some(path) };
                // Only objects have members.
                let flat = it.field.as_ref().is_some_and(|field| field.kind != Kind::Object);
                (found == it.old || !flat).then_some(found)
            }
            Step::Hide { object, shown_as } if path == *object => Some(shown_as.clone()),
            Step::Hide { object, .. } => (!is_within(&path, object)).then_some(path),
            // The members of a computed value are others.
            Step::Convert(it) if is_within(&path, &it.new.name) => Some(it.old.name.clone()),
            _ => Some(path),
        }
    }

    /// Follows a path of the older shape into the newer one.
    fn newer(&self, place: &mut Place) -> Option<()> {
        let path = &mut place.path;
        match self {
            Step::Rename { old, new } => {
                if let Some(found) = moved(path, old, new) {
                    *path = found;
                }
            }
            Step::Move(it) => {
                if let Some(found) = moved(path, &it.old, &it.new) {
                    *path = found;
                    place.moved = true;
                } else {
                    // An object with a member that is elsewhere.
                    place.moved |= *path == head(&it.old) || *path == head(&it.new);
                }
            }
            Step::Words { field, .. } => place.worded |= head(path) == field,
            Step::Fill { field, down: true, .. } if head(path) == field => {
                place.filled = true;
                // Newer than a conversion, it may still be shown as null.
                place.certain |= place.is_listable();
            }
            Step::Convert(it) => {
                let converts = head(path) == it.old.name;
                place.lossy |= converts && it.lossy;
                place.converted |= converts;
            }
            Step::Constant { field, .. } if head(path) == field => return None,
            Step::Hide { .. } | Step::Fill { .. } | Step::Constant { .. } => {}
        }
        Some(())
    }
}

/// Where a field of an older shape is stored, and which kinds of change are between.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Place {
    /// A stored field, or a member of one.
    pub path: String,
    pub moved: bool,
    pub worded: bool,
    /// Old clients read a value where none is stored.
    pub filled: bool,
    /// They never read null.
    pub certain: bool,
    pub converted: bool,
    pub lossy: bool,
}

impl Place {
    /// The stored field.
    pub fn field(&self) -> &str {
        head(&self.path)
    }

    /// Whether the stored value is shown as it is.
    pub fn is_copy(&self) -> bool {
        !(self.moved || self.worded || self.filled || self.converted)
    }

    /// Whether lists can be filtered and sorted by it: a column has its values, except for words of
    /// an `enum` and for null.
    pub fn is_listable(&self) -> bool {
        !self.moved && !self.converted
    }
}

/// The stages between the newest shape and an older one, newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages(pub Vec<Stage>);

impl Stages {
    pub fn down(&self, fields: &mut Fields) {
        let mut left = CONVERSION_UNITS;
        self.0.iter().for_each(|stage| stage.down(fields, &mut left));
    }

    /// Brings fields of the older shape up. Returns for each value that has no counterpart where it
    /// was sent and where it would be stored.
    pub fn up(&self, fields: &mut Fields) -> Vec<Unraised> {
        let mut found = Vec::new();
        let (mut left, mut check) = (CONVERSION_UNITS, CONVERSION_UNITS);
        for (at, stage) in self.0.iter().enumerate().rev() {
            for (path, reason) in stage.up(fields, &mut left, &mut check) {
                let older = self.0[at + 1..].iter().try_fold(path.clone(), older);
                let kept = newer(&self.0[..=at], path);
                let kept = kept.map(|place| place.field().to_owned());
                if let (Some(sent), Some(kept)) = (older, kept) {
                    found.push(Unraised { sent, kept, reason });
                }
            }
        }
        found
    }

    /// Where a stored path is in the older shape.
    pub fn older(&self, path: &str) -> Option<String> {
        self.0.iter().try_fold(path.to_owned(), older)
    }

    /// Where a path of the older shape is stored; none where it is a constant.
    pub fn newer(&self, path: &str) -> Option<Place> {
        newer(&self.0, path.to_owned())
    }

    /// By object of the older shape: its members that are fields by now, each as that field.
    pub fn members(&self) -> BTreeMap<String, Vec<Field>> {
        let mut found: BTreeMap<String, Vec<Field>> = BTreeMap::new();
        for (at, stage) in self.0.iter().enumerate() {
            for step in &stage.0 {
                let Step::Move(it) = step else { continue };
                let path = self.0[at + 1..].iter().try_fold(it.old.clone(), older);
                let path = path.as_deref().and_then(|path| path.split_once('.'));
                let (Some((object, member)), Some(field)) = (path, &it.new_field) else { continue };
                let mut field = field.clone();
                member.clone_into(&mut field.name);
                // These belong to the field, not to the member.
                (field.required, field.default, field.deprecated) = (false, None, None);
                (field.write_only, field.read_only) = (false, false);
                found.entry(object.to_owned()).or_default().push(field);
            }
        }
        found
    }

    pub fn converts(&self) -> bool {
        self.conversions().next().is_some()
    }

    /// The most that the formulas can cost over a record of so many bytes, in one direction.
    pub fn units(&self, bytes: usize) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let units = |it: &Convert| it.up.units(bytes).max(it.down.units(bytes));
        let sum = self.conversions().map(units).fold(0, u64::saturating_add);
        sum.min(CONVERSION_UNITS)
    }

    fn conversions(&self) -> impl Iterator<Item = &Convert> {
        self.0.iter().flat_map(Stage::conversions)
    }

    /// The value that a field of the older shape has if a stored field, or a member of one, has
    /// this value and nothing else is stored.
    pub fn show(&self, path: &str, value: Value, field: &str) -> Option<Value> {
        let mut record = Fields::from_iter([(path.to_owned(), value)]);
        self.down(&mut record);
        record.remove(field)
    }
}

/// A value that has no counterpart in the newest shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unraised {
    pub sent: String,
    pub kept: String,
    pub reason: Reason,
}

fn older(path: String, stage: &Stage) -> Option<String> {
    stage.0.iter().try_fold(path, |path, step| step.older(path))
}

fn newer(stages: &[Stage], path: String) -> Option<Place> {
    let mut place = Place { path, ..Place::default() };
    for step in stages.iter().rev().flat_map(|stage| &stage.0) {
        step.newer(&mut place)?;
    }
    Some(place)
}

/// The field of a path.
pub(crate) fn head(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// Whether the path is the other one, or that of a member of it.
pub(super) fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The path with its beginning replaced, if it is within `from`.
fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    is_within(path, from).then(|| format!("{to}{}", &path[from.len()..]))
}

fn rename(fields: &mut Fields, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

fn translate(fields: &mut Fields, field: &str, words: &[(String, String)]) {
    if let Some(Value::String(word)) = fields.get_mut(field) {
        *word = translated(word, words).to_owned();
    }
}

/// The word on the other side of a change; words that it does not name are the same there.
pub(super) fn translated<'w>(word: &'w str, words: &'w [(String, String)]) -> &'w str {
    words.iter().find(|(from, _)| from == word).map_or(word, |(_, to)| to)
}

fn fill_in(fields: &mut Fields, field: &str, fill: &Value) {
    if fields.get(field).is_none_or(Value::is_null) {
        fields.insert(field.to_owned(), fill.clone());
    }
}

pub(super) fn value_at<'f>(fields: &'f Fields, path: &str) -> &'f Value {
    let value = fields.get(head(path)).unwrap_or(&Value::Null);
    let member = path.split_once('.').map(|(_, member)| member);
    member.map_or(value, |member| value.get(member).unwrap_or(&Value::Null))
}

fn take(fields: &mut Fields, path: &str) -> Value {
    let taken = match path.split_once('.') {
        Some((object, member)) => {
            let members = fields.get_mut(object).and_then(Value::as_object_mut);
            members.and_then(|members| members.remove(member))
        }
        None => fields.remove(path),
    };
    taken.unwrap_or_default()
}

/// `required`: where there is no object and no value, there is an object without members.
fn put(fields: &mut Fields, path: &str, value: Value, required: bool) {
    let Some((name, member)) = path.split_once('.') else {
        if !value.is_null() {
            fields.insert(path.to_owned(), value);
        }
        return;
    };
    if value.is_null() && !required && !fields.contains_key(name) {
        return;
    }
    let object = fields.entry(name.to_owned()).or_insert(Value::Null);
    if object.is_null() && (required || !value.is_null()) {
        *object = Value::Object(Map::new());
    }
    if let Some(members) = object.as_object_mut() {
        match value.is_null() {
            true => drop(members.remove(member)),
            false => drop(members.insert(member.to_owned(), value)),
        }
    }
}
