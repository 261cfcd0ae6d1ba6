//! Versions as data. The store and the rest of the program know the newest shape only; each older
//! date version is derived from it. The concepts, from the file to a request:
//!
//! * A `Change` of the schema file says what one version did to a collection (`schema::versions`).
//! * A `Step` applies one change to a record, down to the older shape or up to the newer one; the
//!   steps of one version are a `Stage` (`step`).
//! * A `Shape` is what a collection looks like in one version, with the stages between it and the
//!   newest. It is made by taking changes back, version by version, and refuses a change that would
//!   lose something (`shape`). Formulas of `convert` are tried with samples (`convert`).
//! * A `Lens` is what a request needs of one collection in one version: records down, bodies up,
//!   names both ways (`lens`), list queries (`query`) and errors (`explain`).
//! * A `View` is the service as one version shows it: its schema, and a lens for each collection
//!   that looks different. `Versions` are all of them, built once.
//!
//! A write of an old client changes only what it wants to change: the body that it was shown and
//! the body that it sends are both brought up, and only the fields that differ between the two are
//! written. So data that a version cannot see stays as it is.

mod convert;
mod events;
mod explain;
mod lens;
mod query;
mod samples;
pub(crate) mod shape;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use convert::conversion_fault;
pub use events::is_erased;
pub use lens::{Lens, Raised};
pub(crate) use samples::first as sample;
pub(crate) use step::head;

use crate::problem::{Code, Problem, Violation};
use crate::record::Fields;
use crate::schema::{Change, Collection, CollectionIx, Field, Operation, Schema, Version};
use crate::validate::{self, Mode};
use serde_json::Value;
use shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All versions of a service, newest first.
#[derive(Debug)]
pub struct Versions(Vec<Arc<View>>);

/// The service as one version shows it.
#[derive(Debug)]
pub struct View {
    /// Place in `Schema::versions`.
    pub index: usize,
    pub date: String,
    /// The same collections in the same places, with the fields they had.
    pub schema: Arc<Schema>,
    newest: Arc<Schema>,
    /// One for each collection, and for the parameters of each action that some version changed.
    lenses: BTreeMap<Part, Lens>,
    /// Whether any of them shows something else than is stored.
    differs: bool,
}

/// The fields of a collection, or the parameters of one of its actions.
pub type Part = (CollectionIx, Option<usize>);

impl Versions {
    pub fn new(schema: &Arc<Schema>) -> Versions {
        let mut shapes = newest_shapes(schema);
        let mut views = Vec::new();
        for index in 0..schema.versions.len() {
            if let Some(newer) = index.checked_sub(1) {
                for (part, shape) in &mut shapes {
                    // The parser has reported the changes that cannot be taken back.
                    shape.go_back(&changes_of(&schema.versions[newer], *part));
                }
            }
            views.push(Arc::new(View::new(schema, index, &shapes)));
        }
        Versions(views)
    }

    pub fn newest(&self) -> &Arc<View> {
        &self.0[0]
    }

    /// The schema of the stored rows: the newest shapes, without old names next to new ones.
    pub fn kept(&self) -> &Arc<Schema> {
        &self.0[0].newest
    }

    pub fn find(&self, date: &str) -> Option<&Arc<View>> {
        self.0.iter().find(|view| view.date == date)
    }

    /// The version whose shapes were the newest when something was written under this date. The
    /// file need not know the date any more.
    pub fn written(&self, date: &str) -> &Arc<View> {
        let known = self.0.iter().find(|view| view.date.as_str() <= date);
        known.unwrap_or(&self.0[self.0.len() - 1])
    }

    pub fn get(&self, index: usize) -> Option<&Arc<View>> {
        self.0.get(index)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<View>> {
        self.0.iter()
    }
}

impl View {
    fn new(newest: &Arc<Schema>, index: usize, shapes: &BTreeMap<Part, Shape>) -> View {
        let mut schema = Schema::clone(newest);
        let date = newest.versions[index].date.clone();
        schema.service.version.clone_from(&date);
        let mut lenses = BTreeMap::new();
        // A collection comes before its actions.
        for (&part, shape) in shapes {
            let shape = with_aliases(newest, part, index, shape);
            let old = shape.collection();
            lenses.insert(part, Lens::new(&old, &shape));
            match part {
                (at, None) => schema.collections[at] = old,
                (at, Some(action)) => schema.collections[at].actions[action].params = old.fields,
            }
        }
        crate::schema::hide_what_is_below(&mut schema.collections);
        // The newest view shares the schema, unless it shows old names as well.
        let differs = lenses.values().any(|lens| lens.differs);
        let same = index == 0 && !differs;
        let schema = if same { Arc::clone(newest) } else { Arc::new(schema) };
        View { index, date, schema, newest: Arc::clone(newest), lenses, differs }
    }

    /// None: this version shows the collection as it is stored.
    pub fn lens(&self, collection: CollectionIx) -> Option<&Lens> {
        self.lenses.get(&(collection, None)).filter(|lens| lens.differs)
    }

    /// The lens for the names in errors: a version may show a collection as it is stored, except
    /// fields that only other versions show.
    pub fn words(&self, collection: CollectionIx) -> Option<&Lens> {
        let lens = self.lenses.get(&(collection, None))?;
        let hides = |field: &Field| lens.name_down(&field.name).is_none();
        (lens.differs || lens.stored.fields.iter().any(hides)).then_some(lens)
    }

    /// None: this version has the parameters of the action as they are.
    pub(crate) fn form(&self, collection: CollectionIx, action: usize) -> Option<&Lens> {
        self.lenses.get(&(collection, Some(action))).filter(|lens| lens.differs)
    }

    /// Whether this version has the collection.
    pub fn serves(&self, collection: CollectionIx) -> bool {
        self.schema.collections.get(collection).is_some_and(|c| !c.removed && !c.internal)
    }

    /// Whether clients of this version get events about a collection: if it has the collection, or
    /// if the event is about none.
    pub fn shows_events_of(&self, collection: &str) -> bool {
        self.schema.find(collection).is_none_or(|ix| !self.schema.collections[ix].removed)
    }

    /// Checks the parameters of an action against this version; they come back in the newest shape.
    pub fn params(
        &self,
        collection: CollectionIx,
        action: usize,
        sent: Fields,
    ) -> Result<Fields, Problem> {
        let shown = &self.schema.collections[collection].actions[action].params;
        let sent = validate::params(shown, sent)?;
        let Some(lens) = self.form(collection, action) else { return Ok(sent) };
        raised(lens, &sent).map_err(|problem| explain::explained(lens, &sent, problem))
    }

    /// Checks a body against this version. That of a create comes back in the newest shape, since
    /// it depends on nothing; those of PUT and PATCH stay as they are and are brought up by
    /// `decide`, over the record as it then is.
    pub fn body(
        &self,
        collection: CollectionIx,
        sent: Fields,
        mode: Mode,
    ) -> Result<Fields, Problem> {
        let shown = &self.schema.collections[collection];
        let (body, mut violations) = validate::checked(shown, sent, mode);
        // Clients of other versions may have written values beyond a limit of this one. A client
        // may send such a value back unchanged, which only `decide` can see.
        let lens = self.lens(collection);
        let may_be = |violation: &Violation| {
            let outgrown = || shown.known(&violation.field).is_some_and(|field| field.outgrown);
            violation.code.is_limit() && (lens.is_some() || outgrown())
        };
        // There are more unknown fields than the error lists: the writer need not see the body.
        let is_hopeless = violations.iter().any(|violation| violation.has_more);
        if is_hopeless && mode != Mode::Create {
            violations.retain(|violation| !may_be(violation));
        }
        let decided_later = mode != Mode::Create && violations.iter().any(may_be);
        if !violations.is_empty() && !decided_later {
            return Err(Problem::of(Code::ValidationFailed, violations));
        }
        let Some(lens) = lens else { return Ok(body) };
        // Compares values in their stored form: 5 and 5.0 are one number.
        let conflicts = conflicts(lens, shown, &body);
        if !conflicts.is_empty() {
            return Err(Problem::of(Code::ValidationFailed, conflicts));
        }
        if mode != Mode::Create {
            return Ok(body);
        }
        raised(lens, &body).map_err(|problem| self.explain(collection, &body, problem))
    }
}

/// A whole body in the newest shape. A required field that is missing is checked as if it were sent
/// as null. The version has filled in its own defaults already.
fn raised(lens: &Lens, sent: &Fields) -> Result<Fields, Problem> {
    let mut raised = lens.raise(sent);
    for field in lens.stored.fields.iter().filter(|field| field.required && !field.removed) {
        raised.fields.entry(field.name.clone()).or_insert(Value::Null);
    }
    lens.check(&mut raised, sent)?;
    Ok(raised.fields)
}

/// Names of one field that were sent with different values.
fn conflicts(lens: &Lens, shown: &Collection, sent: &Fields) -> Vec<Violation> {
    let mut found = Vec::new();
    for (old, new) in lens.aliases() {
        let names = lens.lines.iter().filter(|line| line.of == new);
        let mut values = names.filter_map(|line| sent.get(&line.name));
        let Some(value) = sent.get(old).filter(|value| values.any(|other| other != *value)) else {
            continue;
        };
        let message = format!(
            "`{old}` is the old name of `{new}`: send one of them, or the same value in both."
        );
        let violation = Violation::new(old, Code::Unsuitable, message);
        // An error does not repeat a value that is never served.
        let secret = shown.field(old).is_some_and(|field| field.write_only);
        found.push(if secret { violation } else { violation.value(value) });
    }
    found
}

/// The changes that a version made to a part.
pub(crate) fn changes_of(version: &Version, part: Part) -> Vec<&Change> {
    let here = |change: &&Change| (change.collection, change.action) == part;
    version.changes.iter().filter(here).collect()
}

/// The newest shapes of all collections, and of parameters that any version changed.
fn newest_shapes(schema: &Schema) -> BTreeMap<Part, Shape> {
    let changes = schema.versions.iter().flat_map(|version| &version.changes);
    let changed = changes.map(|change| (change.collection, change.action));
    let newest = |part: Part| {
        let collection = &schema.collections[part.0];
        let mut shape = match part.1 {
            Some(action) => Shape::newest(collection.form(action)),
            None => Shape::newest(collection.clone()),
        };
        shape.served = part.1.is_some() || !schema.removes(part.0);
        (part, shape)
    };
    (0..schema.collections.len()).map(|ix| (ix, None)).chain(changed).map(newest).collect()
}

/// The shape with the old names that the version at `index` has next to new ones.
fn with_aliases(schema: &Schema, part: Part, index: usize, shape: &Shape) -> Shape {
    let mut shape = shape.clone();
    for (at, version) in schema.versions.iter().enumerate().skip(index) {
        for change in changes_of(version, part) {
            if let Operation::Rename { from, to, beside: true } = &change.operation
                && let Some(name) = shape::trace(&schema.versions, part, to, at, index)
                && shape.fields.iter().all(|field| field.name != *from)
            {
                shape.add_alias(from, name);
            }
        }
    }
    shape
}
