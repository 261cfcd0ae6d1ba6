//! A service with a history, and its records in each version. Versions are counted from the newest,
//! which is 0.

use super::change::{Change, How, Place, Unsayable, of};
use super::shape::{Field, Fields, Shape};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The content of a schema file.
#[derive(Debug)]
pub struct Plan {
    /// Dates of the versions, newest first.
    pub dates: Vec<&'static str>,
    /// The first version that is served below `/v1`; newer ones are below `/v2`.
    pub turn: Option<usize>,
    /// Others may refer to the first collection.
    pub collections: Vec<Collection>,
}

impl Plan {
    /// Its features: kinds of changes and of collections.
    pub fn traits(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        found.extend(self.turn.map(|_| "mounts".to_owned()));
        for it in &self.collections {
            found.extend(it.parent.map(|_| "children".to_owned()));
            let form = it.action.iter().map(|action| (&*action.form, "form"));
            // A rule names the first field.
            let unseen = |version| it.telling(version, &it.shapes[0].fields[0].name).is_empty();
            let served = |version: &usize| it.is_served(*version);
            if it.shapes[0].code.is_some() && (0..it.shapes.len()).filter(served).any(unseen) {
                found.insert("unseen".to_owned());
            }
            let own = (it, if it.feed { "feed" } else { "records" });
            for (part, what) in [own].into_iter().chain(form) {
                for change in part.steps.iter().flatten() {
                    found.insert(format!("{what} {}", word(change)));
                    if let Change::Rename { beside: true, .. } = change {
                        found.insert(format!("{what} beside"));
                    }
                    if let Change::Retype { how, .. } = change {
                        found.insert(format!("{what} {}", word(how)));
                    }
                }
            }
        }
        found
    }

    /// The path below which a version is served.
    pub fn mount(&self, version: usize) -> &'static str {
        if self.turn.is_some_and(|turn| version < turn) { "/v2" } else { "/v1" }
    }
}

#[derive(Debug)]
pub struct Collection {
    pub name: &'static str,
    pub object: &'static str,
    pub feed: bool,
    /// Index of the parent collection.
    pub parent: Option<usize>,
    /// By version.
    pub shapes: Vec<Shape>,
    /// By version: its changes from the next older one.
    pub steps: Vec<Vec<Change>>,
    pub action: Option<Action>,
}

/// `mark`, which copies some parameters into fields.
#[derive(Debug)]
pub struct Action {
    /// Its parameters with their history, like a collection.
    pub form: Box<Collection>,
    /// Parameters of the newest version, and the fields that they set.
    pub takes: Vec<(String, String)>,
}

impl Action {
    /// The stored record after a client of a version calls it.
    pub fn done(
        &self,
        version: usize,
        kept: &Fields,
        params: &Fields,
    ) -> Result<Fields, Unsayable> {
        let said = self.form.created(version, params)?;
        let mut after = kept.clone();
        for (param, field) in &self.takes {
            after.insert(field.clone(), of(&said, param));
        }
        Ok(after)
    }
}

impl Collection {
    pub fn is_served(&self, version: usize) -> bool {
        self.shapes[version].served
    }

    /// All changes since a version, newest first.
    fn since(&self, version: usize) -> Vec<&Change> {
        self.steps[..version].iter().flatten().collect()
    }

    /// A stored record in a version, including hidden fields.
    fn lowered(&self, version: usize, kept: &Fields) -> Fields {
        let mut record = kept.clone();
        self.since(version).iter().for_each(|change| change.down(&mut record));
        record
    }

    /// The fields that a version shows of a stored record.
    pub fn shown(&self, version: usize, kept: &Fields) -> Fields {
        let record = self.lowered(version, kept);
        let visible = self.shapes[version].visible();
        let value = |field: &Field| of(&record, field.of.as_ref().unwrap_or(&field.name));
        visible.map(|field| (field.name.clone(), value(field))).collect()
    }

    /// The places in a version of a field of the newest: fields and paths of members.
    pub fn telling(&self, version: usize, newest: &str) -> BTreeSet<String> {
        let mut places = BTreeSet::from([Place { field: newest.to_owned(), member: None }]);
        for change in self.since(version) {
            places = places.into_iter().flat_map(|place| change.places(place)).collect();
        }
        places.into_iter().map(Place::path).collect()
    }

    /// The stored record after a create by a client of a version.
    pub fn created(&self, version: usize, body: &Fields) -> Result<Fields, Unsayable> {
        let (body, mut record) = (self.folded(version, body), Fields::new());
        for field in self.shapes[version].fields.iter().filter(|field| field.of.is_none()) {
            let default = field.default.clone().filter(|_| field.is_plain()).unwrap_or_default();
            let value = body.get(&field.name).cloned().unwrap_or(default);
            record.insert(field.name.clone(), value);
        }
        for change in self.since(version).into_iter().rev() {
            change.up(&mut record)?;
        }
        Ok(record)
    }

    /// The stored record after a PATCH by a client of a version.
    pub fn patched(
        &self,
        version: usize,
        kept: &Fields,
        patch: &Fields,
    ) -> Result<Fields, Unsayable> {
        self.written(version, kept, |wanted| {
            for (name, value) in &self.folded(version, patch) {
                merge(wanted.entry(name.clone()).or_insert(Value::Null), value);
            }
        })
    }

    /// The stored record after a PUT by a client of a version: omitted fields are erased.
    pub fn replaced(
        &self,
        version: usize,
        kept: &Fields,
        body: &Fields,
    ) -> Result<Fields, Unsayable> {
        let body = self.folded(version, body);
        self.written(version, kept, |wanted| {
            for field in self.shapes[version].writable() {
                let default = || field.default.clone().unwrap_or_default();
                let value = body.get(&field.name).cloned().unwrap_or_else(default);
                wanted.insert(field.name.clone(), value);
            }
        })
    }

    /// The stored record after a client of a version changes the fields it knows.
    fn written(
        &self,
        version: usize,
        kept: &Fields,
        edit: impl FnOnce(&mut Fields),
    ) -> Result<Fields, Unsayable> {
        let changes = self.since(version);
        let mut states = vec![kept.clone()];
        for change in &changes {
            let mut older = states[states.len() - 1].clone();
            change.down(&mut older);
            states.push(older);
        }
        let mut wanted = states[changes.len()].clone();
        edit(&mut wanted);
        for (place, change) in changes.iter().enumerate().rev() {
            wanted = change.write(&states[place], &states[place + 1], &wanted)?;
        }
        Ok(wanted)
    }

    /// The old values of fields that changed for clients of a version.
    pub fn previous(&self, version: usize, before: &Fields, after: &Fields) -> Fields {
        let (before, after) = (self.shown(version, before), self.shown(version, after));
        before.into_iter().filter(|(name, value)| of(&after, name) != *value).collect()
    }

    /// The stored fields that searches of a version use.
    pub fn searched(&self, version: usize) -> impl Iterator<Item = &Field> {
        let hides = move |name: &str| {
            self.shapes[version].fields.iter().any(|field| field.hidden && field.name == name)
        };
        self.shapes[0].fields.iter().filter(move |field| field.search && !hides(&field.name))
    }

    /// Whether a field had fractions that newer versions cannot represent, whatever changed later.
    pub fn became_cents(&self, version: usize, field: &Field) -> bool {
        let mut name = field.name.as_str();
        for change in self.since(version).into_iter().rev() {
            match change {
                Change::Retype { field, how: How::Cents, .. } if field == name => return true,
                Change::Rename { from, to, .. } if from == name => name = to,
                change if !change.keeps(name) => return false,
                _ => {}
            }
        }
        false
    }

    /// Adds the old names that still work to newer versions.
    pub fn with_aliases(mut self) -> Collection {
        for (at, step) in self.steps.iter().enumerate() {
            for change in step {
                let Change::Rename { from, to, beside: true } = change else { continue };
                for version in 0..=at {
                    let name = traced(to, &self.steps[version..at]).unwrap();
                    let field = self.shapes[version].get(name).clone();
                    let alias = Field { name: from.clone(), of: Some(name.to_owned()), ..field };
                    self.shapes[version].fields.push(alias);
                }
            }
        }
        self
    }

    /// A body of a version without the old names that still work.
    pub fn folded(&self, version: usize, body: &Fields) -> Fields {
        let mut folded = body.clone();
        for (name, new) in self.shapes[version].aliases() {
            if let Some(value) = folded.remove(name) {
                folded.insert(new.clone(), value);
            }
        }
        folded
    }
}

/// The name of a field after these steps, newest first; `None` if it became part of another or was
/// removed.
pub fn traced<'a>(mut name: &'a str, steps: &'a [Vec<Change>]) -> Option<&'a str> {
    for change in steps.iter().flatten().rev() {
        match change {
            Change::Rename { from, to, .. } if from == name => name = to,
            Change::Gone { field, .. } if field.name == name => return None,
            change if !change.keeps(name) => return None,
            _ => {}
        }
    }
    Some(name)
}

/// The name of a variant.
fn word(variant: &impl Debug) -> String {
    let text = format!("{variant:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// RFC 7396, for objects of one level.
fn merge(target: &mut Value, change: &Value) {
    let (Some(members), true) = (change.as_object(), target.is_object() || target.is_null()) else {
        *target = change.clone();
        return;
    };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    for (name, value) in members {
        match value {
            Value::Null => drop(merged.remove(name)),
            value => drop(merged.insert(name.clone(), value.clone())),
        }
    }
    *target = Value::Object(merged);
}
