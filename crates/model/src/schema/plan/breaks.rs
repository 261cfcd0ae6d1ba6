//! Edits that clients of older versions are not spared: no change stands between. The file declares
//! them by `breaks`, in the words of the plan, and the changelog tells of them.

use super::{Class, Edit, Work, lines};

impl Work<'_> {
    /// Of those that nothing else is proposed for: takes what is declared for safe, and proposes to
    /// declare the others.
    pub(super) fn broken(&mut self) {
        let newer = self.new.versions.iter().filter(|one| one.date > self.old.service.version);
        let told: Vec<(&str, &str)> = newer
            .flat_map(|version| version.breaks.iter().map(|one| (&*version.date, &*one.edit)))
            .collect();
        let mut used = Vec::new();
        let bare = |edit: &&mut Edit| edit.class == Class::NeedsVersion && edit.lines.is_none();
        for edit in self.edits.iter_mut().filter(bare) {
            let words = edit.words();
            match told.iter().find(|(_, told)| *told == words) {
                Some(found) => {
                    used.push(*found);
                    edit.class = Class::Safe;
                    "declared by `breaks`; clients notice it".clone_into(&mut edit.why);
                }
                None => edit.lines = Some(lines::breaks(&words)),
            }
        }
        for (date, words) in told.into_iter().filter(|one| !used.contains(one)) {
            let is_there = self.edits.iter().any(|edit| edit.words() == words);
            let which = match is_there {
                true => "which other lines are for",
                false => "which is no edit here",
            };
            let what = format!("`breaks` of version {date} tells `{words}`, {which}");
            self.safe("versions", what, "the changelog tells of it all the same");
        }
    }
}

impl Edit {
    /// Where and what, as `breaks` repeats it.
    fn words(&self) -> String {
        format!("{}: {}", self.place, self.what)
    }
}
