//! What the file says about versions that clients know already: dates and mounts that go, and
//! changes that are declared otherwise than they were. Clients of the versions before would notice;
//! what is new is declared in a newer version.

use super::{DEPRECATED, PEOPLE, Work, lines, place_of};
use crate::schema::{Change, Operation, Schema, Version};

/// Where a change stands, and what it says, as two files can be compared by.
fn entry(schema: &Schema, change: &Change) -> (String, String) {
    (place_of(schema, change), format!("{:?}", change.operation))
}

impl Work<'_> {
    pub(super) fn history(&mut self) {
        let (old, new) = (self.old, self.new);
        // The oldest has no changes: no client sees what was before it.
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
                self.breaking("versions", what, why, None);
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
                    self.breaking("mounts", what, why, None);
                }
            }
        }
        for mount in &new.mounts {
            if !old.mounts.iter().any(|known| known.path == mount.path) {
                self.offer("mounts", &format!("the mount `{}`", mount.path), false, true);
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
        if beside {
            let what = format!("`{from}` stands beside it");
            return self.safe(&place, what, "the old name is taken and shown, too");
        }
        let what = format!("`{from}` does not stand beside it any more");
        let why = "clients that use the old name would be refused, or read nothing";
        self.breaking(&place, what, why, None);
    }

    /// What one version changed, as both files say it.
    fn changes(&mut self, was: &Version, is: &Version) {
        let (old, new) = (self.old, self.new);
        let mut left: Vec<&Change> = is.changes.iter().collect();
        for change in &was.changes {
            let (place, text) = entry(old, change);
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
            if let Some(found) = left.iter().position(renamed)
                && let Operation::Rename { from, to, beside } = &left.remove(found).operation
            {
                self.alias(&place, from, to, *beside);
                continue;
            }
            let name = change.operation.name();
            let what = format!("`{name}` of version {} is not declared so any more", was.date);
            let why = "clients of versions before it are served otherwise; put it back";
            self.breaking(&place, what, why, None);
        }
        for change in left {
            let what = format!("`{}` is new in version {}", change.operation.name(), was.date);
            let why =
                "clients of versions before it are served otherwise; declare it in a newer one";
            self.breaking(&entry(new, change).0, what, why, None);
        }
    }
}
