//! Edits that clients of older versions are not spared: no change stands between. The file declares
//! them by `breaks`, in the words of the plan, and the changelog tells of them.

use super::{Class, Edit, Work, lines};
use crate::schema::Schema;

/// Said of edits that are declared so.
const DECLARED: &str = "declared by `breaks`; clients notice it";

/// The breaks of newer versions, each with its date.
fn declared<'a>(old: &'a Schema, new: &'a Schema) -> impl Iterator<Item = (&'a str, &'a str)> {
    let newer = new.versions.iter().filter(|version| version.date > old.service.version);
    newer.flat_map(|version| version.breaks.iter().map(|one| (&*version.date, &*one.edit)))
}

impl Work<'_> {
    /// Of those that nothing else is proposed for: takes what is declared for safe, and proposes to
    /// declare the others.
    pub(super) fn broken(&mut self) {
        for edit in self.edits.iter_mut().filter(|edit| edit.class == Class::NeedsVersion) {
            if edit.lines.is_none() {
                edit.declare(self.old, self.new);
            }
        }
    }
}

impl Edit {
    /// Where and what, as `breaks` repeats it.
    fn words(&self) -> String {
        format!("{}: {}", self.place, self.what)
    }

    /// As declared by `breaks`, or to be so.
    fn declare(&mut self, old: &Schema, new: &Schema) {
        let words = self.words();
        if declared(old, new).any(|(_, edit)| edit == words) {
            (self.class, self.why, self.lines) = (Class::Safe, DECLARED.to_owned(), None);
        } else {
            self.lines = Some(lines::breaks(&words));
        }
    }
}

/// What the file declares so and need not, or cannot.
pub(super) fn unused(old: &Schema, new: &Schema, edits: &[Edit]) -> Vec<Edit> {
    let mut found = Vec::new();
    for (date, words) in declared(old, new) {
        let edit = edits.iter().find(|edit| edit.words() == words);
        let which = match edit {
            Some(edit) if edit.why == DECLARED => continue,
            Some(_) => "which other lines are for",
            None => "which is no edit here",
        };
        found.push(Edit {
            class: Class::Safe,
            place: "versions".to_owned(),
            what: format!("`breaks` of version {date} tells `{words}`, {which}"),
            why: "the changelog tells of it all the same".to_owned(),
            lines: None,
        });
    }
    found
}
