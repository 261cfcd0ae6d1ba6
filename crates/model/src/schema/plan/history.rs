//! What the file tells about versions that clients know already: dates and mounts that go, and
//! changes that are told otherwise than they were. Clients of the versions before would notice;
//! what is new is declared in a newer version.

use super::{Work, lines};
use crate::schema::{Change, Field, Kind, Operation, Retyping, Schema, Version};
use serde_json::Value;

/// A change in words that two files can be compared by.
struct Entry {
    /// `books`, or `books.actions.sell` for parameters.
    place: String,
    operation: Operation,
    text: String,
}

impl Entry {
    fn new(schema: &Schema, change: &Change) -> Entry {
        let collection = &schema.collections[change.collection];
        let place = match change.action {
            Some(action) => {
                format!("{}.actions.{}", collection.name, collection.actions[action].name)
            }
            None => collection.name.clone(),
        };
        let operation = change.operation.clone();
        Entry { text: text(operation.clone()), place, operation }
    }

    fn is(&self, other: &Entry) -> bool {
        (&self.place, &self.text) == (&other.place, &other.text)
    }

    /// Whether it is the same change with other details.
    fn resembles(&self, other: &Entry) -> bool {
        let (one, two) = (&self.operation, &other.operation);
        self.place == other.place
            && one.name() == two.name()
            && one.old_places() == two.old_places()
            && one.new_places() == two.new_places()
    }
}

impl Work<'_> {
    pub(super) fn history(&mut self) {
        let (old, new) = (self.old, self.new);
        self.dates();
        self.told_of_versions();
        self.mounts();
        // The oldest has no changes: no client sees what was before it.
        let oldest = |schema: &Schema, at: usize| at + 1 == schema.versions.len();
        for (at, version) in old.versions.iter().enumerate().filter(|(at, _)| !oldest(old, *at)) {
            let kept = new.versions.iter().position(|kept| kept.date == version.date);
            match kept {
                Some(kept) if !oldest(new, kept) => {
                    self.changes(&old.versions[at], &new.versions[kept]);
                }
                Some(_) => self.ended(&old.versions[at]),
                None => {}
            }
        }
        for version in &new.versions {
            let known = old.versions.iter().any(|known| known.date == version.date);
            let between = version.date < old.service.version && !version.changes.is_empty();
            if between && !known {
                let what =
                    format!("version {} is new, and older than the newest was", version.date);
                let why = "clients of versions before it are served otherwise; let it be newer";
                self.breaking("versions", what, why, None);
            }
        }
    }

    fn dates(&mut self) {
        let (old, new) = (self.old, self.new);
        for version in &old.versions {
            if new.versions.iter().any(|kept| kept.date == version.date) {
                continue;
            }
            let older = new.versions.iter().find(|kept| kept.date < version.date);
            let instead = older.or(new.versions.last()).map_or("", |kept| &kept.date);
            let records = match version.date == old.service.version {
                true => "; records, which have its shape, are taken for the newest version's",
                false => "",
            };
            let why = format!(
                "requests that name it would be refused, accounts and endpoints that are pinned to \
                 it be served {instead}{records}"
            );
            let mut lines = lines::version(&version.date);
            if let [only] = new.versions.as_slice() {
                let newest = lines::version(&only.date);
                let said = "# Newest first; an entry that is there already stays.";
                lines = match only.date > version.date {
                    true => format!("{said}\n{newest}{lines}"),
                    false => format!("{said}\n{lines}{newest}"),
                };
            }
            self.breaking(
                "versions",
                format!("version {} is gone", version.date),
                &why,
                Some(lines),
            );
        }
    }

    /// What people and headers tell of a version.
    fn told_of_versions(&mut self) {
        let (old, new) = (self.old, self.new);
        for was in &old.versions {
            let Some(is) = new.versions.iter().find(|kept| kept.date == was.date) else { continue };
            if was.deprecated != is.deprecated {
                let what = format!("version {} is deprecated otherwise", was.date);
                self.safe("versions", what, "it is served as before, and answers tell of it");
            }
            if was.description != is.description {
                let what = format!("version {} is described otherwise", was.date);
                self.safe("versions", what, "only people read it");
            }
        }
    }

    fn mounts(&mut self) {
        let (old, new) = (self.old, self.new);
        for mount in &old.mounts {
            let Some(kept) = new.mounts.iter().find(|kept| kept.path == mount.path) else {
                let date = &old.versions[mount.newest].date;
                let lines = lines::mount(&mount.path, date, *date == new.service.version);
                let what = format!("the mount `{}` is gone", mount.path);
                let why = "clients would find nothing under their URLs";
                self.breaking("mounts", what, why, Some(lines));
                continue;
            };
            for version in &old.versions[mount.newest..=mount.oldest] {
                let place = new.versions.iter().position(|one| one.date == version.date);
                if place.is_some_and(|place| !(kept.newest..=kept.oldest).contains(&place)) {
                    let what = format!("`{}` does not serve {} any more", mount.path, version.date);
                    let why = "clients of the version know its URLs";
                    self.breaking("mounts", what, why, None);
                }
            }
        }
        for mount in &new.mounts {
            if !old.mounts.iter().any(|known| known.path == mount.path) {
                let what = format!("the mount `{}` is new", mount.path);
                self.safe("mounts", what, "nobody asks below it yet");
            }
        }
    }

    /// A version that became the oldest tells no changes; old names beside new ones end with them.
    fn ended(&mut self, version: &Version) {
        for change in &version.changes {
            let entry = Entry::new(self.old, change);
            if let Operation::Rename { from, to, beside: true } = &entry.operation {
                self.alone(&entry.place, from, to);
            }
        }
    }

    fn alone(&mut self, place: &str, from: &str, to: &str) {
        let what = format!("`{from}` does not stand beside it any more");
        let why = "clients that use the old name would be refused, or read nothing";
        self.breaking(&format!("{place}.{to}"), what, why, None);
    }

    fn nearest(&mut self, place: &str, is: bool) {
        if is {
            let what = "a number that the new unit has none for becomes the nearest";
            self.safe(place, what.to_owned(), "requests with such numbers were refused so far");
        } else {
            let what = "a number that the new unit has none for is refused";
            let why = "so far the nearest was kept; put `nearest = true` back";
            self.breaking(place, what.to_owned(), why, None);
        }
    }

    /// What one version changed, as both files tell it.
    fn changes(&mut self, was: &Version, is: &Version) {
        let before: Vec<Entry> = was.changes.iter().map(|one| Entry::new(self.old, one)).collect();
        let mut after: Vec<Entry> =
            is.changes.iter().map(|one| Entry::new(self.new, one)).collect();
        after.retain(|entry| !before.iter().any(|known| known.is(entry)));
        let kept: Vec<Entry> = is.changes.iter().map(|one| Entry::new(self.new, one)).collect();
        for entry in before.iter().filter(|entry| !kept.iter().any(|one| one.is(entry))) {
            let name = entry.operation.name();
            let alike = after.iter().position(|other| other.resembles(entry));
            match alike.map(|at| after.remove(at)) {
                Some(other) => self.retold(entry, &other, &was.date),
                None => self.breaking(
                    &entry.place,
                    format!("`{name}` of version {} is not declared any more", was.date),
                    "clients of versions before it are served otherwise; put it back",
                    None,
                ),
            }
        }
        for entry in after {
            self.breaking(
                &entry.place,
                format!("`{}` is new in version {}", entry.operation.name(), was.date),
                "clients of versions before it are served otherwise; declare it in a newer one",
                None,
            );
        }
    }

    fn retold(&mut self, was: &Entry, is: &Entry, date: &str) {
        if let (
            Operation::Rename { from, to, beside: was_beside },
            Operation::Rename { beside, .. },
        ) = (&was.operation, &is.operation)
            && was_beside != beside
        {
            match beside {
                true => {
                    let what = format!("`{from}` stands beside it");
                    let place = format!("{}.{to}", was.place);
                    self.safe(&place, what, "the old name is taken and shown, too");
                }
                false => self.alone(&was.place, from, to),
            }
            return;
        }
        if let Operation::Retype { field, by: Retyping::Factor { nearest, .. }, .. } = &is.operation
            && text(exact(was.operation.clone())) == text(exact(is.operation.clone()))
        {
            return self.nearest(&format!("{}.{field}", is.place), *nearest);
        }
        let what = format!("`{}` of version {date} says something else", was.operation.name());
        let why = "clients of versions before it are served otherwise; put it back, and declare \
                   what changed in a newer one";
        self.breaking(&was.place, what, why, None);
    }
}

fn text(operation: Operation) -> String {
    format!("{:?}", normal(operation))
}

/// A change without the word that the nearest number will do.
fn exact(mut operation: Operation) -> Operation {
    if let Operation::Retype { by: Retyping::Factor { nearest, .. }, .. } = &mut operation {
        *nearest = false;
    }
    operation
}

/// A change without what says nothing: descriptions, the order of lists that have none, and the
/// way in which a number is written.
fn normal(mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::Move { from, field, .. } if from.member.is_none() => {
            let old = field.get_or_insert_with(|| Box::new(Field::new(&from.field, Kind::String)));
            normal_field(old);
        }
        Operation::Split { from, .. } => normal_field(from),
        Operation::Merge { from, .. } => from.iter_mut().for_each(normal_field),
        Operation::Retype { from, by, .. } => {
            normal_field(from);
            if let Retyping::Map(pairs) = by {
                for (old, new) in pairs.iter_mut() {
                    (*old, *new) = (plain_value(old), plain_value(new));
                }
                pairs.sort_by_key(|(old, _)| old.to_string());
            }
        }
        Operation::EnumMap { values, down, .. } => {
            values.sort();
            down.sort();
        }
        Operation::Limits { was, .. } => was.min_length = was.min_length.filter(|min| *min > 0),
        Operation::Default { was, .. } => *was = plain(was.as_ref()),
        Operation::Optional { fill, .. } | Operation::Required { fill, .. } => {
            *fill = plain_value(fill);
        }
        Operation::Gone { field, value } => {
            normal_field(field);
            *value = plain_value(value);
        }
        _ => {}
    }
    operation
}

fn normal_field(field: &mut Field) {
    field.description = None;
    // Compared as lists of the version can be asked.
    (field.filter, field.sort) = (false, false);
    field.choices.sort();
    field.default = plain(field.default.as_ref());
}

/// Whole numbers as such, however they are written.
pub(super) fn plain(value: Option<&Value>) -> Option<Value> {
    value.map(plain_value)
}

fn plain_value(value: &Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < EXACT => Value::from(float as i64),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(plain_value).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), plain_value(value))).collect()
        }
        other => other.clone(),
    }
}
