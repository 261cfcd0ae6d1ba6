//! What the file tells about versions that clients know already: dates and mounts that go, and
//! changes that are told otherwise than they were. Clients of the versions before would notice;
//! what is new is declared in a newer version.

use super::{Work, lines};
use crate::schema::{Change, Field, Kind, Operation, Schema, Version};
use serde_json::Value;

/// Where a change stands, and what it says, as two files can be compared by.
fn entry(schema: &Schema, change: &Change) -> (String, String) {
    let collection = &schema.collections[change.collection];
    let place = match change.action {
        Some(action) => format!("{}.actions.{}", collection.name, collection.actions[action].name),
        None => collection.name.clone(),
    };
    (place, format!("{:?}", normal(change.operation.clone())))
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

    /// A version that became the oldest has no changes; old names next to new ones end with them.
    fn ended(&mut self, version: &Version) {
        for change in &version.changes {
            if let Operation::Rename { from, to, beside: true } = &change.operation {
                let (place, _) = entry(self.old, change);
                self.alias(&place, from, to, false);
            }
        }
    }

    /// An old name that is, or is no longer, taken next to the new one.
    fn alias(&mut self, place: &str, from: &str, to: &str, beside: bool) {
        let place = format!("{place}.{to}");
        match beside {
            true => {
                let what = format!("`{from}` stands beside it");
                self.safe(&place, what, "the old name is taken and shown, too");
            }
            false => {
                let what = format!("`{from}` does not stand beside it any more");
                let why = "clients that use the old name would be refused, or read nothing";
                self.breaking(&place, what, why, None);
            }
        }
    }

    /// What one version changed, as both files say it.
    fn changes(&mut self, was: &Version, is: &Version) {
        let (old, new) = (self.old, self.new);
        let mut left: Vec<&Change> = is.changes.iter().collect();
        for change in &was.changes {
            let (place, text) = entry(old, change);
            let name = change.operation.name();
            let same = |it: &&Change| entry(new, it) == (place.clone(), text.clone());
            if let Some(found) = left.iter().position(same) {
                left.remove(found);
                continue;
            }
            let renamed = |it: &&Change| match (&change.operation, &it.operation) {
                (Operation::Rename { from: a, to: b, .. }, Operation::Rename { from, to, .. }) => {
                    (a, b) == (from, to) && entry(new, it).0 == place
                }
                _ => false,
            };
            if let Some(found) = left.iter().position(renamed) {
                if let Operation::Rename { from, to, beside } = &left.remove(found).operation {
                    self.alias(&place, from, to, *beside);
                }
                continue;
            }
            self.breaking(
                &place,
                format!("`{name}` of version {} is not declared so any more", was.date),
                "clients of versions before it are served otherwise; put it back",
                None,
            );
        }
        for change in left {
            self.breaking(
                &entry(new, change).0,
                format!("`{}` is new in version {}", change.operation.name(), was.date),
                "clients of versions before it are served otherwise; declare it in a newer one",
                None,
            );
        }
    }
}

/// A change without what says nothing: descriptions, the order of lists that have none, and the
/// way in which a number is written.
fn normal(mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::Move { from, field, .. } if from.member.is_none() => {
            let old = field.get_or_insert_with(|| Box::new(Field::new(&from.field, Kind::String)));
            normal_field(old);
        }
        Operation::Convert { from, .. } => normal_field(from),
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
