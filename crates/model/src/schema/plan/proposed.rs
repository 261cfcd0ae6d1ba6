//! The new schema as it is once the lines that were proposed stand in it. What is told beside them
//! is told of that schema: a rule that names a renamed value says the same, a state that has
//! another name is none that is new.

use super::lines::{AFTER, APART};
use super::{Class, Edit};
use crate::schema::parse;
use crate::schema::{Change, Operation, Schema, Version};

/// Ends the dates of versions that stand in no file.
const THOUGHT: char = '~';

/// Whether a version is one of those.
pub(super) fn is_thought(version: &Version) -> bool {
    version.date.contains(THOUGHT)
}

/// The changes that the lines of an edit declare, each with its place among dates of their own;
/// none where they are something else.
fn changes(edit: &Edit, new: &Schema) -> Option<Vec<(usize, Change)>> {
    let lines = edit.lines.as_ref().filter(|_| edit.class == Class::NeedsVersion)?;
    let mut found = Vec::new();
    for (place, lines) in lines.split(APART).enumerate() {
        // The rest of the line says why.
        let lines = if place == 0 { lines } else { lines.split_once('\n')?.1 };
        let changes = parse::changes(lines, &new.collections).unwrap_or_default();
        found.extend(changes.into_iter().map(|change| (place, change)));
    }
    let of_fields = |(_, change): &(usize, Change)| {
        !matches!(change.operation, Operation::CollectionAdded | Operation::CollectionRemoved)
    };
    (!found.is_empty() && found.iter().all(of_fields)).then_some(found)
}

/// Whether lines of a change are proposed that `with` declares.
pub(super) fn is_proposal(edit: &Edit, new: &Schema) -> bool {
    changes(edit, new).is_some()
}

/// None where nothing is proposed, or no version of the old schema is there to be changed from.
pub(super) fn with(old: &Schema, new: &Schema, edits: &[Edit]) -> Option<Schema> {
    let mut declared = new.clone();
    let mut newest = Version::new(&format!("{}{THOUGHT}", new.service.version));
    let mut before: Vec<Version> = Vec::new();
    for edit in edits {
        let is_after = edit.lines.as_ref().is_some_and(|lines| lines.starts_with(AFTER));
        for (place, change) in changes(edit, new).unwrap_or_default() {
            if is_after {
                newest.changes.push(change);
                continue;
            }
            while before.len() <= place {
                // Later ones are older.
                let date = format!("{}{THOUGHT}{}", old.service.version, 9 - before.len());
                before.push(Version::new(&date));
            }
            before[place].changes.push(change);
        }
    }
    if newest.changes.is_empty() && before.is_empty() {
        return None;
    }
    let at = new.versions.iter().position(|known| known.date == old.service.version)?;
    let count = before.len();
    declared.versions.splice(at..at, before);
    for mount in &mut declared.mounts {
        mount.newest += if mount.newest >= at { count } else { 0 };
        mount.oldest += if mount.oldest >= at { count } else { 0 };
    }
    if !newest.changes.is_empty() {
        declared.versions.insert(0, newest);
        for mount in &mut declared.mounts {
            (mount.newest, mount.oldest) = (mount.newest + 1, mount.oldest + 1);
        }
    }
    declared.service.version.clone_from(&declared.versions[0].date);
    Some(declared)
}
