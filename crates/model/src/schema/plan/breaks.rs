//! Edits that clients of older versions are not spared: no change stands between. The file declares
//! them by `breaks`, in the words of the plan, and the changelog tells of them.

use super::{Class, Edit, Work, lines};

impl Work<'_> {
    /// Takes those that are declared for safe, and proposes to declare the others that nothing else
    /// is proposed for.
    pub(super) fn broken(&mut self) {
        let newer = self.new.versions.iter().filter(|one| one.date > self.old.service.version);
        let told: Vec<(&str, &str)> = newer
            .flat_map(|version| version.breaks.iter().map(|one| (&*version.date, &*one.edit)))
            .collect();
        let mut used = Vec::new();
        for edit in self.edits.iter_mut().filter(|edit| edit.class == Class::NeedsVersion) {
            let words = edit.words();
            match told.iter().find(|(_, told)| *told == words) {
                Some(found) => {
                    used.push(*found);
                    edit.class = Class::Safe;
                    "declared by `breaks`; clients notice it".clone_into(&mut edit.why);
                    edit.lines = None;
                }
                None if edit.lines.is_none() => edit.lines = Some(lines::breaks(&words)),
                None => {}
            }
        }
        for (date, words) in told.into_iter().filter(|one| !used.contains(one)) {
            let what = format!("`breaks` of version {date} tells `{words}`, which is no edit here");
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
