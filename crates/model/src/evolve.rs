//! How a schema may change over existing data. Pure: given the description of the data on disk and
//! the schema to serve, it returns the steps to take and the checks to make against the rows first,
//! or the reasons to refuse. A store carries the plan out in one transaction. Data of an older date
//! version is compared with the schema as that version saw it, then brought up.

use crate::schema::{Collection, CollectionIx, Field, Kind, Schema};
use crate::version::{Versions, View};
use serde::{Deserialize, Serialize};

/// A description of the data on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// The date version whose shapes the rows have; unknown to older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub collections: Vec<StoredCollection>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredCollection {
    pub name: String,
    pub object: String,
    pub id_prefix: String,
    pub parent: Option<String>,
    pub feed: bool,
    pub fields: Vec<StoredField>,
    /// Names of the states; empty without a state machine.
    pub states: Vec<String>,
    pub state_field: Option<String>,
    pub indexes: Vec<Vec<String>>,
    /// Grows whenever the served fields change.
    pub shape: i64,
    /// Grows whenever a schema edit changed the rows: cursors hold values of the old ones.
    #[serde(default)]
    pub rewrites: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredField {
    pub name: String,
    /// Name of the kind; for arrays with that of the items.
    pub kind: String,
    pub required: bool,
    pub unique: bool,
    pub filter: bool,
    pub sort: bool,
    pub search: bool,
    pub reference: Option<String>,
    pub write_only: bool,
    /// Stored, but not served in the newest version.
    #[serde(default)]
    pub removed: bool,
    pub choices: Vec<String>,
}

/// The steps that bring the data on disk to the schema.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// Place of the version whose shapes the rows have.
    pub from: usize,
    /// The new description, to be stored next to the data.
    pub stored: Stored,
    /// Must hold in the data, or nothing is done.
    pub checks: Vec<Check>,
    pub steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
pub struct Check {
    pub collection: CollectionIx,
    pub rule: CheckRule,
    /// The message for the operator when the data breaks the rule.
    pub message: String,
}

#[derive(Debug, PartialEq)]
pub enum CheckRule {
    /// The collection has no rows.
    Empty,
    /// No row has null in this field.
    NoNulls { field: String },
    /// No row has this value in this field.
    Unused { field: String, value: String },
    /// Every row has one of these values in this field, or none.
    Among { field: String, values: Vec<String> },
    /// No two rows of one scope share a value of this field.
    NoDuplicates { field: String },
    /// Every value in this field names an existing record.
    Resolves { field: String, target: CollectionIx },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(CollectionIx),
    /// A typed column for a field, filled from the rows.
    AddColumn {
        collection: CollectionIx,
        field: String,
    },
    DropColumn {
        collection: CollectionIx,
        field: String,
    },
    /// The full-text index over other fields than before, filled from the rows.
    RebuildSearch(CollectionIx),
    /// Every row as the newest version has it, with its columns and its full-text index.
    Rewrite(CollectionIx),
    DropSearch(CollectionIx),
    /// A collection that the schema does not have any more, with its records.
    Delete(String),
    /// The values of a field that the schema does not have any more, or not of this type.
    Forget {
        collection: CollectionIx,
        field: String,
    },
    /// The initial state for rows that have none.
    FillState(CollectionIx),
}

/// Which edits of a schema an operator accepts that are neither safe nor declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Accept {
    #[default]
    Nothing,
    /// Those that clients notice.
    Changes,
    /// And those that delete data.
    Loss,
}

/// How the operator says so.
pub const ACCEPT_CHANGES: &str = "--accept-changes";
pub const ACCEPT_LOSS: &str = "--accept-data-loss";

impl Stored {
    /// Describes a schema; shapes are numbered on from those of `before`.
    fn of(schema: &Schema, before: Option<&Stored>) -> Stored {
        let kept = schema.collections.iter().filter(|collection| !collection.is_view());
        let collections = kept
            .map(|collection| {
                let mut new = describe(schema, collection);
                if let Some(old) = before.and_then(|stored| stored.find(&collection.name)) {
                    let served = |c: &StoredCollection| -> Vec<String> {
                        let public = c.fields.iter().filter(|f| !f.write_only && !f.removed);
                        public.map(|field| field.name.clone()).collect()
                    };
                    let alike = served(old) == served(&new) && old.object == new.object;
                    new.shape = old.shape + i64::from(!alike);
                    new.rewrites = old.rewrites;
                }
                new
            })
            .collect();
        Stored { version: Some(schema.service.version.clone()), collections }
    }

    pub fn find(&self, name: &str) -> Option<&StoredCollection> {
        self.collections.iter().find(|collection| collection.name == name)
    }

    /// Number of the collection's shape; 1 for one that is not described.
    pub fn shape(&self, name: &str) -> i64 {
        self.find(name).map_or(1, |collection| collection.shape)
    }

    /// How often schema edits changed the collection's rows.
    pub fn rewrites(&self, name: &str) -> i64 {
        self.find(name).map_or(0, |collection| collection.rewrites)
    }
}

/// The plan, or every reason why there is none.
pub fn evolve(
    stored: Option<&Stored>,
    versions: &Versions,
    accept: Accept,
) -> Result<Plan, Vec<String>> {
    let schema = &**versions.kept();
    let mut new = Stored::of(schema, stored);
    let empty = Stored::default();
    let old = stored.unwrap_or(&empty);
    let view = origin(old, &new, versions);
    let work = Work::of(old, &new, view, schema, accept);
    if !work.refusals.is_empty() {
        return Err(work.refusals);
    }
    for step in &work.steps {
        let (Step::Rewrite(ix) | Step::Forget { collection: ix, .. } | Step::FillState(ix)) = step
        else {
            continue;
        };
        let name = &schema.collections[*ix].name;
        if let Some(rewritten) = new.collections.iter_mut().find(|one| one.name == *name) {
            rewritten.shape = old.shape(name) + 1;
            rewritten.rewrites = old.rewrites(name) + 1;
        }
    }
    Ok(Plan { from: view.index, stored: new, checks: work.checks, steps: work.steps })
}

/// The version whose shapes the rows have. If the file does not know that version any more, it is
/// the newest, since the file does not say how to bring them up. If no version was recorded, it is
/// the newest if that fits the data, or else the oldest that fits.
fn origin<'v>(old: &Stored, new: &Stored, versions: &'v Versions) -> &'v View {
    if let Some(date) = &old.version {
        return versions.find(date).unwrap_or_else(|| versions.newest());
    }
    let alike = |new: &StoredCollection| {
        old.find(&new.name)
            .is_none_or(|old| StoredCollection { shape: old.shape, ..new.clone() } == *old)
    };
    let fits = |view: &&std::sync::Arc<View>| {
        Work::of(old, new, view, versions.kept(), Accept::Nothing).refusals.is_empty()
    };
    match new.collections.iter().all(alike) {
        true => versions.newest(),
        false => versions.iter().rev().find(fits).unwrap_or_else(|| versions.newest()),
    }
}

#[derive(Default)]
struct Work {
    accept: Accept,
    refusals: Vec<String>,
    checks: Vec<Check>,
    steps: Vec<Step>,
}

impl Work {
    fn of(old: &Stored, new: &Stored, view: &View, schema: &Schema, accept: Accept) -> Work {
        let mut work = Work { accept, ..Work::default() };
        for gone in old.collections.iter().filter(|c| schema.find(&c.name).is_none()) {
            let why = format!(
                "collection `{}` was removed; its data would be lost. Put it back into the schema",
                gone.name
            );
            work.lose(why, &[Step::Delete(gone.name.clone())]);
        }
        let kept = schema.collections.iter().enumerate().filter(|(_, c)| !c.is_view());
        for (ix, collection) in kept {
            let differs = view.index > 0 && view.lens(ix).is_some();
            match (old.find(&collection.name), new.find(&collection.name)) {
                (Some(before), Some(_)) if differs => work.rewrite(view, ix, before),
                (Some(before), Some(after)) => work.compare(schema, ix, before, after),
                _ => work.steps.push(Step::Create(ix)),
            }
        }
        work
    }

    /// The data must have the shape of the version; then all of it is brought up.
    fn rewrite(&mut self, view: &View, ix: CollectionIx, old: &StoredCollection) {
        let steps = self.steps.len();
        let had = describe(&view.schema, &view.schema.collections[ix]);
        self.compare(&view.schema, ix, old, &had);
        let made_up =
            |field: &&StoredField| view.lens(ix).is_some_and(|l| l.is_constant(&field.name));
        for field in old.fields.iter().filter(made_up) {
            let why = format!(
                "collection `{}`: field `{}` is removed and kept nowhere; its data would be lost. \
                 Leave it declared, and name it in `removed`",
                old.name, field.name
            );
            self.lose(why, &[]);
        }
        let steps = self.steps.split_off(steps);
        let (fills, others): (Vec<Step>, Vec<Step>) =
            steps.into_iter().partition(|step| matches!(step, Step::FillState(_)));
        self.steps.extend(others.into_iter().filter(|step| matches!(step, Step::Forget { .. })));
        self.steps.push(Step::Rewrite(ix));
        self.steps.extend(fills);
    }

    /// Data has no place any more: it goes, if that was accepted.
    fn lose(&mut self, why: String, steps: &[Step]) {
        match self.accept {
            Accept::Loss => self.steps.extend_from_slice(steps),
            _ => self.refuse(format!("{why}, or start with {ACCEPT_LOSS} to delete it.")),
        }
    }

    fn refuse(&mut self, message: String) {
        self.refusals.push(message);
    }

    fn check(&mut self, collection: CollectionIx, rule: CheckRule, message: String) {
        self.checks.push(Check { collection, rule, message });
    }

    fn compare(
        &mut self,
        schema: &Schema,
        ix: CollectionIx,
        old: &StoredCollection,
        new: &StoredCollection,
    ) {
        let name = &new.name;
        if old.parent != new.parent {
            let show = |parent: &Option<String>| match parent {
                Some(parent) => format!("`{parent}`"),
                None => "none".to_owned(),
            };
            self.refuse(format!(
                "collection `{name}`: the parent changed from {} to {}. Records cannot move; put \
                 it back, or declare a new collection.",
                show(&old.parent),
                show(&new.parent)
            ));
        }
        if old.feed != new.feed {
            self.refuse(format!(
                "collection `{name}`: `feed` was switched {}. The ids of its records would change; \
                 put it back, or declare a new collection.",
                if new.feed { "on" } else { "off" }
            ));
        }
        for before in &old.fields {
            match new.fields.iter().find(|field| field.name == before.name) {
                Some(after) => self.compare_field(schema, ix, before, after),
                None => {
                    let why = format!(
                        "collection `{name}`: field `{}` was removed; its data would be lost. Put \
                         it back",
                        before.name
                    );
                    self.lose(why, &forget(ix, before));
                }
            }
        }
        // An old name next to a new one is not stored.
        for field in schema.collections[ix].fields.iter().filter(|field| field.alias_of.is_none()) {
            if !old.fields.iter().any(|before| before.name == field.name) {
                self.added_field(ix, name, field);
            }
        }
        self.compare_states(ix, old, new);
        self.compare_search(ix, old, new);
    }

    fn added_field(&mut self, ix: CollectionIx, collection: &str, field: &Field) {
        if field.required && field.default.is_none() {
            self.check(
                ix,
                CheckRule::Empty,
                format!(
                    "collection `{collection}`: the new field `{}` is required, but records exist \
                     that lack it. Make it optional, fill it in, then require it.",
                    field.name
                ),
            );
        }
        if field.has_column() {
            self.steps.push(Step::AddColumn { collection: ix, field: field.name.clone() });
        }
    }

    fn compare_field(
        &mut self,
        schema: &Schema,
        ix: CollectionIx,
        old: &StoredField,
        new: &StoredField,
    ) {
        let collection = &schema.collections[ix].name;
        let place = format!("collection `{collection}`: field `{}`", new.name);
        let misfit = if old.kind != new.kind {
            Some(format!("the type changed from {} to {}", old.kind, new.kind))
        } else if old.write_only != new.write_only {
            let switched = if new.write_only { "on" } else { "off" };
            Some(format!("`write_only` was switched {switched}"))
        } else {
            None
        };
        if let Some(misfit) = misfit {
            let why = format!("{place}: {misfit}. Put it back, or add a new field");
            self.lose(why, &forget(ix, old));
            if let Some(field) = schema.collections[ix].field(&new.name) {
                self.added_field(ix, collection, field);
            }
            return;
        }
        // A field that only older versions show is stored apart in the row.
        if old.removed != new.removed && !self.steps.contains(&Step::Rewrite(ix)) {
            self.steps.push(Step::Rewrite(ix));
        }
        let field = new.name.clone();
        match (old.has_column(), new.has_column()) {
            (false, true) => {
                self.steps.push(Step::AddColumn { collection: ix, field: field.clone() });
            }
            (true, false) => {
                self.steps.push(Step::DropColumn { collection: ix, field: field.clone() });
            }
            _ => {}
        }
        if new.required && !old.required {
            let message = format!(
                "{place} became required, but records exist in which it is null. Fill them in \
                 first, or leave it optional."
            );
            self.check(ix, CheckRule::NoNulls { field: field.clone() }, message);
        }
        if new.unique && !old.unique {
            let message = format!(
                "{place} became unique, but records share a value. Change them first, or leave it \
                 as it is."
            );
            self.check(ix, CheckRule::NoDuplicates { field: field.clone() }, message);
        }
        if new.reference != old.reference
            && let Some(target) = schema.collections[ix].field(&field).and_then(|f| f.reference)
        {
            let message = format!(
                "{place} became a reference to `{}`, but records exist whose value names none. \
                 Change them first, or leave it as it is.",
                schema.collections[target].name
            );
            self.check(ix, CheckRule::Resolves { field: field.clone(), target }, message);
        }
        // New choices of a field without any restrict like a limit: they apply to new writes.
        for value in old.choices.iter().filter(|_| !new.choices.is_empty()) {
            if !new.choices.contains(value) {
                let message = format!(
                    "{place}: the value `{value}` was removed, but records still have it. Change \
                     them first, or put it back."
                );
                let rule = CheckRule::Unused { field: field.clone(), value: value.clone() };
                self.check(ix, rule, message);
            }
        }
    }

    fn compare_states(&mut self, ix: CollectionIx, old: &StoredCollection, new: &StoredCollection) {
        let Some(field) = &new.state_field else { return };
        // A field of another kind loses its values, so its records get the initial state.
        let is_kept = |old: &&StoredField| old.kind == Kind::String.name() && !old.write_only;
        let existed = old.fields.iter().filter(is_kept).any(|before| before.name == *field);
        if existed && old.state_field.as_ref() != Some(field) {
            let message = format!(
                "collection `{}`: the field `{field}` became the state, but records have values \
                 that are no state. Change them first, or add their values to `names`.",
                new.name
            );
            let rule = CheckRule::Among { field: field.clone(), values: new.states.clone() };
            self.check(ix, rule, message);
            self.steps.push(Step::FillState(ix));
        }
        for value in &old.states {
            let rule = CheckRule::Unused { field: field.clone(), value: value.clone() };
            if !new.states.contains(value) && !self.checks.iter().any(|check| check.rule == rule) {
                let message = format!(
                    "collection `{}`: the state `{value}` was removed, but records are in it. Move \
                     them on first, or put it back.",
                    new.name
                );
                self.check(ix, rule, message);
            }
        }
    }

    fn compare_search(&mut self, ix: CollectionIx, old: &StoredCollection, new: &StoredCollection) {
        let before: Vec<&str> = old.searched().collect();
        let after: Vec<&str> = new.searched().collect();
        if before != after {
            self.steps.push(match after.is_empty() {
                true => Step::DropSearch(ix),
                false => Step::RebuildSearch(ix),
            });
        }
    }
}

impl StoredCollection {
    fn searched(&self) -> impl Iterator<Item = &str> {
        let fields = self.fields.iter().filter(|field| field.search && !field.write_only);
        fields.map(|field| field.name.as_str())
    }
}

impl StoredField {
    fn has_column(&self) -> bool {
        self.unique || self.filter || self.sort || self.reference.is_some()
    }
}

/// The step that removes a field from its rows.
fn forget(collection: CollectionIx, field: &StoredField) -> Vec<Step> {
    let name = || field.name.clone();
    let column = field.has_column().then(|| Step::DropColumn { collection, field: name() });
    let search = field.search.then_some(Step::RebuildSearch(collection));
    let rows = Step::Forget { collection, field: name() };
    column.into_iter().chain([rows]).chain(search).collect()
}

fn describe(schema: &Schema, collection: &Collection) -> StoredCollection {
    let name_of = |ix: CollectionIx| schema.collections[ix].name.clone();
    StoredCollection {
        name: collection.name.clone(),
        object: collection.object.clone(),
        id_prefix: collection.id_prefix.clone(),
        parent: collection.parent.map(name_of),
        feed: collection.feed.is_some(),
        fields: collection
            .fields
            .iter()
            .filter(|field| field.alias_of.is_none())
            .map(|field| StoredField {
                name: field.name.clone(),
                kind: field.kind.described(),
                required: field.required,
                unique: field.unique,
                filter: field.filter,
                sort: field.sort,
                search: field.search && !field.removed,
                reference: field.reference.map(name_of),
                write_only: field.write_only,
                removed: field.removed,
                choices: field.choices.clone(),
            })
            .collect(),
        states: collection.states.as_ref().map_or_else(Vec::new, |states| states.names.clone()),
        state_field: collection.states.as_ref().map(|states| states.field.clone()),
        indexes: collection.indexes.iter().map(|index| index.fields.clone()).collect(),
        shape: 1,
        rewrites: 0,
    }
}
