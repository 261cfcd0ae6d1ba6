//! The shape of a collection in some version: its fields, and how they are made from the newest
//! ones and back. Begins as the newest shape; `undo` takes changes back, newest first.

use super::expr::Expr;
use crate::record::Fields;
use crate::schema::{Change, Collection, Field, Limits, Operation, Path, States};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Largest expression of one field. Twenty changes of a field have about that many parts; splits
/// of merges of splits grow without bound.
const PARTS: usize = 2_000;

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub fields: Vec<Field>,
    pub states: Option<States>,
    /// Whether this version has the collection at all.
    pub served: bool,
    /// What makes each field of this shape, over the kept record.
    pub(super) down: BTreeMap<String, Expr>,
    /// What makes each kept field, over what is sent in this shape.
    pub(super) up: BTreeMap<String, Expr>,
    /// Codes of rules: the newest and this version's.
    pub codes: BTreeMap<String, String>,
    /// Kept fields that what is sent in this shape is held to other limits of.
    pub(super) limits: BTreeMap<String, Limits>,
    /// The reference to the parent, which nothing changes.
    fixed: Option<String>,
}

/// Why a change cannot be taken back.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// No field of this name.
    Missing(String),
    /// Anything else, as a sentence.
    Wrong(String),
}

impl Shape {
    pub fn newest(collection: &Collection) -> Shape {
        let names = || collection.fields.iter().map(|field| field.name.clone());
        let rules = collection.actions.iter().flat_map(|action| &action.rules);
        let parent = collection.fields.first().filter(|_| collection.parent.is_some());
        Shape {
            fields: collection.fields.clone(),
            states: collection.states.clone(),
            served: !collection.removed,
            down: names().map(|name| (name.clone(), Expr::Kept(name))).collect(),
            up: names().map(|name| (name.clone(), Expr::Sent(name))).collect(),
            codes: rules.map(|rule| (rule.code.clone(), rule.code.clone())).collect(),
            limits: BTreeMap::new(),
            fixed: parent.map(|field| field.name.clone()),
        }
    }

    /// Takes back what one version did to the collection. Says of each change that could not be
    /// taken back, by its place, why; the shape is then as if it were not there.
    pub fn undo(&mut self, changes: &[&Change]) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            let before = self.clone();
            let done = match &change.operation {
                Operation::Move { to, .. } if is_seen(changes, &to.field) => {
                    self.undo_one(&change.operation, true)
                }
                operation => self.undo_one(operation, false),
            };
            let done = done.and_then(|()| self.within_limits());
            if let Err(fault) = done {
                *self = before;
                let others = match &fault {
                    Fault::Missing(_) => self.missing(&change.operation),
                    Fault::Wrong(_) => Vec::new(),
                };
                let others = others.into_iter().filter(|other| *other != fault);
                faults.extend(others.map(|fault| (place, fault)));
                faults.push((place, fault));
            }
        }
        self.hide_new_objects(changes);
        faults
    }

    /// Objects that came with the version: what this shape cannot see of them stays as it is.
    fn hide_new_objects(&mut self, changes: &[&Change]) {
        for change in changes {
            let Operation::Move { to, .. } = &change.operation else { continue };
            let hidden = to.member.is_some() && !is_seen(changes, &to.field);
            let Some(kept) = self.down.get(&to.field).filter(|_| hidden) else {
                continue;
            };
            let unseen = BTreeMap::from([(to.field.clone(), kept.clone())]);
            self.substitute(&unseen);
            self.forget(&to.field);
        }
    }

    fn within_limits(&self) -> Result<(), Fault> {
        match self.down.values().chain(self.up.values()).any(|expr| expr.size() > PARTS) {
            true => Err(Fault::Wrong(format!(
                "the changes of this field add up to more than {PARTS} steps"
            ))),
            false => Ok(()),
        }
    }

    /// The field of this name that clients of this version know.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name && !field.removed)
    }

    /// The place of a field that a change may touch.
    pub(super) fn place(&self, name: &str) -> Result<usize, Fault> {
        self.not_fixed(name)?;
        let found = self.fields.iter().position(|field| field.name == name && !field.removed);
        found.ok_or_else(|| Fault::Missing(name.to_owned()))
    }

    /// All fields that the change needs and this shape lacks.
    fn missing(&self, operation: &Operation) -> Vec<Fault> {
        let mut needed = operation.new_places();
        if let Operation::Move { from: Path { field, member: Some(_) }, .. } = operation {
            needed.push(field.clone());
        }
        let names: BTreeSet<&str> =
            needed.iter().map(|place| place.split('.').next().unwrap_or(place)).collect();
        let faults = names.into_iter().filter_map(|name| self.place(name).err());
        faults.filter(|fault| matches!(fault, Fault::Missing(_))).collect()
    }

    pub(super) fn not_fixed(&self, name: &str) -> Result<(), Fault> {
        match self.fixed.as_deref() == Some(name) {
            true => Err(Fault::Wrong(format!(
                "`{name}` is the reference to the parent, which cannot change"
            ))),
            false => Ok(()),
        }
    }

    /// Complains when the name is taken in the newer shape.
    pub(super) fn free(&self, name: &str) -> Result<(), Fault> {
        match self.fields.iter().any(|field| field.name == name) {
            true => Err(Fault::Wrong(format!(
                "`{name}` is a field of the newer version, too; the old one needs another name"
            ))),
            false => Ok(()),
        }
    }

    /// What makes the field in this shape.
    pub(super) fn lowered(&self, name: &str) -> Expr {
        self.down.get(name).cloned().unwrap_or(Expr::Fixed(Value::Null))
    }

    pub(super) fn substitute(&mut self, sent: &BTreeMap<String, Expr>) {
        for expr in self.up.values_mut() {
            *expr = expr.substitute(sent);
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.fields.retain(|field| field.name != name);
        self.down.remove(name);
    }

    /// The collection as this version shows it.
    pub fn collection(&self, newest: &Collection) -> Collection {
        let mut collection = newest.clone();
        collection.removed = !self.served;
        collection.fields = self.fields.clone();
        for field in &mut collection.fields {
            self.limit_queries(field);
            field.voidable = !self.always_says(&field.name, newest);
        }
        collection.states = self.states.clone();
        collection.indexes.retain(|index| {
            index.fields.iter().all(|name| self.down.get(name) == Some(&Expr::kept(name)))
        });
        self.restate(&mut collection);
        collection
    }

    /// The newest collection with the limits that hold for what is sent in this shape; none where
    /// they are its own.
    pub(super) fn held_to(&self, newest: &Collection) -> Option<Collection> {
        let mut held = newest.clone();
        for (name, limits) in &self.limits {
            held.fields.iter_mut().filter(|field| field.name == *name).for_each(|f| limits.set(f));
        }
        (!self.limits.is_empty()).then_some(held)
    }

    /// Whether the field has a value whatever is kept. What every body must have is kept, unless
    /// there are newer clients that do not know it.
    fn always_says(&self, name: &str, newest: &Collection) -> bool {
        let sent = |field: &Field| field.required && !field.removed;
        let kept = |name: &str| newest.field(name).is_some_and(sent);
        let fits = |expr: &Expr| {
            let made_from = expr.converted().and_then(|name| newest.field(name));
            made_from.is_none_or(|field| expr.has_room_for(&field.kind))
        };
        self.down.get(name).is_some_and(|expr| expr.always_says(&kept) && fits(expr))
    }

    /// Nobody asks for what is not shown, and only one kept field can be `unique`.
    fn limit_queries(&self, field: &mut Field) {
        let Some(expr) = self.down.get(&field.name) else { return };
        field.unique &= expr.converted().is_some();
        field.filter &= !field.write_only;
        field.sort &= !field.write_only;
        // That is the order of a search.
        field.sort &= field.name != "rank";
    }

    /// Actions speak of states in the words of the version.
    fn restate(&self, collection: &mut Collection) {
        let Some(states) = &self.states else { return };
        let Some(expr) = self.down.get(&states.field) else { return };
        let Some(kept) = expr.converted() else { return };
        let old = |state: &mut String| {
            let kept = (kept.to_owned(), Value::from(state.as_str()));
            let record: Fields = std::iter::once(kept).collect();
            let source = super::expr::Parsed { sent: None, kept: Some(&record) };
            if let Some(text) = expr.eval(&source).as_str() {
                *state = text.to_owned();
            }
        };
        for action in &mut collection.actions {
            action.from.iter_mut().chain(action.to.iter_mut()).for_each(old);
        }
        for timed in &mut collection.timed {
            [&mut timed.from, &mut timed.to].into_iter().for_each(old);
        }
    }

    /// Shows and takes an old name beside a field of this shape.
    pub fn beside(&mut self, name: &str, of: &str) {
        let Some(place) = self.fields.iter().position(|field| field.name == of) else { return };
        let mut field = self.fields[place].clone();
        name.clone_into(&mut field.name);
        field.alias_of = Some(of.to_owned());
        self.fields.insert(place + 1, field);
        self.down.insert(name.to_owned(), self.lowered(of));
    }
}

/// The name that a field, renamed to `name` by the version at `from`, has in the one at `to`; none
/// once it is more than renamed.
pub(crate) fn trace<'a>(
    versions: &'a [crate::schema::Version],
    part: super::Part,
    mut name: &'a str,
    from: usize,
    to: usize,
) -> Option<&'a str> {
    for version in versions[to..from].iter().rev() {
        for change in super::changes_of(version, part) {
            match &change.operation {
                Operation::Rename { from, to, .. } if from == name => name = to,
                operation if ends(operation, name) => return None,
                _ => {}
            }
        }
    }
    Some(name)
}

/// Whether the older shape has the object, too: it says so, or a member of it moves away.
fn is_seen(changes: &[&Change], object: &str) -> bool {
    changes.iter().any(|change| match &change.operation {
        Operation::Move { from, to, existing, .. } => {
            *existing && to.field == object || from.member.is_some() && from.field == object
        }
        _ => false,
    })
}

/// Whether the field is another one, or none, after this.
fn ends(operation: &Operation, name: &str) -> bool {
    let among = |places: Vec<String>| places.iter().any(|place| place == name);
    let goes_on = among(operation.new_places()) && !matches!(operation, Operation::Removed { .. });
    among(operation.old_places()) && !goes_on
}
