//! Edits that no version change can hide from clients of older versions. The file declares them by
//! `breaks`, in the words of the plan, and the changelog lists them.

use super::{Class, Edit, Work, lines};
use crate::schema::Version;

/// Said of edits that are declared so.
const DECLARED: &str = "declared by `breaks`; clients notice it";

impl Work<'_> {
    /// Of those that nothing else is proposed for: takes what newer versions declare for safe, and
    /// proposes to declare the others. `breaks` repeats where and what.
    pub(super) fn broken(&mut self) {
        let newer = |version: &&Version| version.date > self.old.service.version;
        let newer = self.new.versions.iter().filter(newer);
        let declared: Vec<&str> =
            newer.flat_map(|version| version.breaks.iter().map(|one| &*one.edit)).collect();
        let open = |edit: &&mut Edit| edit.class == Class::NeedsVersion && edit.lines.is_none();
        for edit in self.edits.iter_mut().filter(open) {
            let words = format!("{}: {}", edit.place, edit.what);
            if declared.contains(&&*words) {
                (edit.class, edit.why) = (Class::Safe, DECLARED.to_owned());
            } else {
                edit.lines = Some(lines::breaks(&words));
            }
        }
    }
}
