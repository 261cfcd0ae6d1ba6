//! Edits of versions that clients know already: removed dates and mounts, and changed declarations.
//! Clients of older versions would notice them. New changes belong in a newer version.

use super::{DEPRECATED, PEOPLE, Work, lines, place_of};
use crate::schema::{Change, Operation, Schema, Version};

/// The place and the operation of a change, in a form that can be compared between two files, and
/// whether the old name of a field is served next to the new one.
fn entry(schema: &Schema, change: &Change) -> ((String, String), bool) {
    let mut operation = change.operation.clone();
    let mut is_beside = false;
    if let Operation::Rename { beside, .. } = &mut operation {
        is_beside = std::mem::take(beside);
    }
    ((place_of(schema, change), format!("{operation:?}")), is_beside)
}

impl Work<'_> {
    pub(super) fn history(&mut self) {
        let (old, new) = (self.old, self.new);
        // The oldest version has no changes: no client knows an earlier shape.
        let oldest = |schema: &Schema, at: usize| at + 1 == schema.versions.len();
        for (at, was) in old.versions.iter().enumerate() {
            let Some(kept) = new.versions.iter().position(|kept| kept.date == was.date) else {
                self.date_gone(was);
                continue;
            };
            let is = &new.versions[kept];
            let what = format!("version {} is deprecated otherwise", was.date);
            self.note("versions", &was.deprecated, &is.deprecated, &what, DEPRECATED);
            let what = format!("version {} is described otherwise", was.date);
            self.note("versions", &was.description, &is.description, &what, PEOPLE);
            match (oldest(old, at), oldest(new, kept)) {
                (true, _) => {}
                (false, false) => self.changes(was, is),
                (false, true) => self.ended(was),
            }
        }
        self.mounts();
        for version in &new.versions {
            let known = old.versions.iter().any(|known| known.date == version.date);
            if version.date < old.service.version && !version.changes.is_empty() && !known {
                let what =
                    format!("version {} is new, and older than the newest was", version.date);
                let why = "clients of versions before it are served otherwise; let it be newer";
                self.breaks("versions", what, why);
            }
        }
    }

    fn date_gone(&mut self, version: &Version) {
        let new = self.new;
        let older = new.versions.iter().find(|kept| kept.date < version.date);
        let instead = older.or(new.versions.last()).map_or("", |kept| &kept.date);
        let records = match version.date == self.old.service.version {
            true => "; records, which have its shape, are taken for the newest version's",
            false => "",
        };
        let why = format!(
            "requests that name it would be refused, accounts and endpoints that are pinned to it \
             be served {instead}{records}"
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
        self.breaking("versions", format!("version {} is gone", version.date), &why, Some(lines));
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
                if place.is_some_and(|place| !kept.serves(place)) {
                    let what = format!("`{}` does not serve {} any more", mount.path, version.date);
                    let why = "clients of the version know its URLs";
                    self.breaks("mounts", what, why);
                }
            }
        }
        for mount in &new.mounts {
            if !old.mounts.iter().any(|known| known.path == mount.path) {
                self.offer("mounts", &format!("the mount `{}`", mount.path), false, true);
            }
        }
    }

    /// A version that became the oldest has no changes, so its old names next to new ones end.
    fn ended(&mut self, version: &Version) {
        for change in &version.changes {
            if entry(self.old, change).1 {
                self.alias(change, false);
            }
        }
    }

    /// A renamed field whose old name is now, or is no longer, served next to the new one.
    fn alias(&mut self, change: &Change, beside: bool) {
        let Operation::Rename { from, to, .. } = &change.operation else { return };
        let place = format!("{}.{to}", place_of(self.old, change));
        if beside {
            let what = format!("`{from}` stands beside it");
            return self.safe(&place, what, "the old name is taken and shown, too");
        }
        let what = format!("`{from}` does not stand beside it any more");
        let why = "clients that use the old name would be refused, or read nothing";
        self.breaks(&place, what, why);
    }

    /// Compares the changes of one version in both files.
    fn changes(&mut self, was: &Version, is: &Version) {
        let (old, new) = (self.old, self.new);
        let mut left: Vec<&Change> = is.changes.iter().collect();
        for change in &was.changes {
            let (declared, was_beside) = entry(old, change);
            if let Some(found) = left.iter().position(|it| entry(new, it).0 == declared) {
                let is_beside = entry(new, left.remove(found)).1;
                if is_beside != was_beside {
                    self.alias(change, is_beside);
                }
                continue;
            }
            let name = change.operation.name();
            let what = format!("`{name}` of version {} is not declared so any more", was.date);
            let why = "clients of versions before it are served otherwise; put it back";
            self.breaks(&declared.0, what, why);
        }
        for change in left {
            let what = format!("`{}` is new in version {}", change.operation.name(), was.date);
            let why =
                "clients of versions before it are served otherwise; declare it in a newer one";
            self.breaks(&place_of(new, change), what, why);
        }
    }
}
