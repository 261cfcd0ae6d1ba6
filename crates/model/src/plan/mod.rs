//! The effect of an edit of the schema file on clients and data: safe, in need of a version change,
//! or destructive. Compares the old schema with the new one as the old version shows it, so a
//! declared change is no difference. Pure; `evolve` does the same for the data on disk.

mod collection;
mod conduct;
mod field;
mod history;
mod lines;
mod settings;
mod values;

use crate::evolve::{ACCEPT_CHANGES, ACCEPT_LOSS};
use crate::schema::{Change, Collection, CollectionIx, Schema, Version};
use crate::version::{Versions, View, head};
use lines::Owner;
use std::fmt;
use std::sync::Arc;

/// Reasons that several edits share.
const TAKEN: &str = "what was accepted still is";
const PEOPLE: &str = "only people read it";
const DEPRECATED: &str = "it is served as before, and responses say so";
const CALLS: &str = "clients call it as before";
const TYPES: &str = "consumers choose their code by the type";
const DECLARED: &str = "declared by `breaks`; clients notice it";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Safe,
    /// Clients would break unless a version change declares how to serve them.
    NeedsVersion,
    /// Data would be lost.
    Destructive,
}

/// One difference between two schema files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub class: Class,
    /// Where: `books.title`, `orders`, `service.mount`.
    pub place: String,
    pub what: String,
    pub why: String,
    /// TOML that declares it, where there is such a change.
    pub lines: Option<String>,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Safe => "safe",
            Class::NeedsVersion => "needs a version change",
            Class::Destructive => "destructive",
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} ({})", self.class.name(), self.place, self.what, self.why)
    }
}

/// Every edit between two schemas, in the order of the old file, additions last.
pub fn plan(old: &Schema, new: &Schema) -> Vec<Edit> {
    let schema = Arc::new(new.clone());
    let versions = Versions::new(&schema);
    let found = versions.find(&old.service.version);
    let view = found.unwrap_or_else(|| versions.newest());
    let mut work = Work { old, new, view, edits: Vec::new() };
    work.settings();
    work.history();
    work.declared();
    for (ix, collection) in declared(old) {
        match new.find(&collection.name) {
            Some(place) => work.collection(ix, place),
            None => {
                let change = owner(collection).change("collection_removed = true");
                let name = &collection.name;
                let lines = format!("{change}# [collections.{name}] stays as it was.\n");
                let why =
                    "its records would be lost; put it back, and declare `collection_removed`";
                work.destructive(name, "the collection is gone", why, lines);
            }
        }
    }
    for (_, added) in declared(new).filter(|(_, c)| old.find(&c.name).is_none()) {
        work.offer(&added.name, "the collection", false, true);
    }
    work.broken();
    work.edits
}

/// All edits with their lines, the number of edits of each class, and where to put the lines.
pub fn report(edits: &[Edit], old: &Schema) -> Vec<String> {
    let mut output = Vec::new();
    for edit in edits {
        output.push(edit.to_string());
        output
            .extend(edit.lines.iter().flat_map(|lines| lines.lines()).map(|l| format!("    {l}")));
    }
    let count = |class: Class| edits.iter().filter(|edit| edit.class == class).count();
    output.push(format!(
        "{} safe, {} in need of a version change, {} destructive",
        count(Class::Safe),
        count(Class::NeedsVersion),
        count(Class::Destructive)
    ));
    let mut lines = edits.iter().filter_map(|edit| edit.lines.as_ref());
    if lines.any(|lines| lines.contains("[[versions.changes]]")) {
        output.push(format!(
            "The lines above stand below a `[[versions]]` entry with a newer date, and \
             `service.version` is that date; {0} keeps an entry of its own. Clients of {0} go on \
             as before, except for what `breaks` names: no change hides that from them, so put it \
             back, or inform them.",
            old.service.version
        ));
    }
    output
}

/// Why a changed schema is not served over data of the old one, and what to type: the report, the
/// reasons why the data does not fit, and the flag that accepts all of it.
pub fn refusal(edits: &[Edit], old: &Schema, misfits: &[String]) -> Vec<String> {
    let mut output = report(edits, old);
    let loses = edits.iter().any(|edit| edit.class == Class::Destructive);
    if !misfits.is_empty() {
        output.push("The data does not fit either:".to_owned());
        output.extend(misfits.iter().cloned());
    }
    if misfits.is_empty() && !loses {
        output.push(format!("If no client minds, start once with {ACCEPT_CHANGES}."));
    } else if misfits.iter().all(|misfit| misfit.contains(ACCEPT_LOSS)) {
        // Other misfits say that no flag helps.
        let what = "If no client minds and that data may go, start once with";
        output.push(format!("{what} {ACCEPT_LOSS}."));
    }
    output
}

/// The collection or the action that a change is about.
fn place_of(schema: &Schema, change: &Change) -> String {
    let collection = &schema.collections[change.collection];
    match change.action {
        Some(action) => format!("{}.actions.{}", collection.name, collection.actions[action].name),
        None => collection.name.clone(),
    }
}

/// Whose fields the lines are about.
fn owner(collection: &Collection) -> Owner<'_> {
    Owner { collection: &collection.name, action: None }
}

/// Each between backticks.
fn quoted_names(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The collections of the file, without the service's own.
fn declared(schema: &Schema) -> impl Iterator<Item = (CollectionIx, &Collection)> {
    schema.collections.iter().enumerate().filter(|(_, collection)| collection.builtin.is_none())
}

struct Work<'a> {
    old: &'a Schema,
    new: &'a Schema,
    /// The new schema as clients of the old one see it.
    view: &'a View,
    edits: Vec<Edit>,
}

impl Work<'_> {
    fn safe(&mut self, place: &str, what: impl Into<String>, why: &str) {
        self.push(Class::Safe, place, what.into(), why, None);
    }

    /// An edit that no change hides from clients.
    fn breaks(&mut self, place: &str, what: impl Into<String>, why: &str) {
        self.push(Class::NeedsVersion, place, what.into(), why, None);
    }

    /// An edit that clients notice, with the change that hides it from them, if there is one.
    fn breaking(&mut self, place: &str, what: impl Into<String>, why: &str, lines: Option<String>) {
        self.push(Class::NeedsVersion, place, what.into(), why, lines);
    }

    fn destructive(&mut self, place: &str, what: impl Into<String>, why: &str, lines: String) {
        self.push(Class::Destructive, place, what.into(), why, Some(lines));
    }

    /// An edit that loses data, unless the table of the file says again what it `said`.
    fn put_back(&mut self, place: &str, what: &str, why: &str, (table, said): (&str, &str)) {
        self.destructive(place, what, why, format!("# Below [{table}], as it was:\n{said}\n"));
    }

    /// Reports a difference that clients need not notice, if there is one.
    fn note<T: PartialEq>(&mut self, place: &str, was: &T, is: &T, what: &str, why: &str) {
        if was != is {
            self.safe(place, what, why);
        }
    }

    /// A part of the API that may be offered or not.
    fn offer(&mut self, place: &str, what: &str, was: bool, is: bool) {
        match (was, is) {
            (true, false) => self.breaks(place, format!("{what} is gone"), "clients use it"),
            (false, true) => self.safe(place, format!("{what} is new"), "nobody uses it yet"),
            _ => {}
        }
    }

    /// The same for each of these names.
    fn offers(&mut self, place: &str, what: &str, were: &[String], are: &[String]) {
        for name in were.iter().chain(are.iter().filter(|name| !were.contains(name))) {
            let what = format!("{what} `{name}`");
            self.offer(place, &what, were.contains(name), are.contains(name));
        }
    }

    fn push(&mut self, class: Class, place: &str, what: String, why: &str, lines: Option<String>) {
        let (place, why) = (place.to_owned(), why.to_owned());
        let known = |edit: &Edit| edit.place == place && edit.lines.is_some();
        let again = self.edits.iter().any(known) || self.is_changed(&place);
        let lines = lines.map(|lines| if again { lines::apart(&lines) } else { lines });
        self.edits.push(Edit { class, place, what, why, lines });
    }

    /// Whether a newer version changes the field at this place already.
    fn is_changed(&self, place: &str) -> bool {
        let newer = self.new.versions[..self.view.index].iter();
        let mut changes = newer.flat_map(|version| &version.changes);
        changes.any(|change| {
            let owner = place_of(self.new, change);
            let old = change.operation.old_place();
            old.is_some_and(|old| place == format!("{owner}.{}", head(&old)))
        })
    }

    /// A setting that clients rely on.
    fn setting(&mut self, place: &str, old: &str, new: &str, why: &str) {
        if old != new {
            let what = format!("`{old}` became `{new}`");
            self.breaks(place, what, why);
        }
    }

    /// The changes of version entries that are newer than the old schema.
    fn declared(&mut self) {
        for version in &self.new.versions[..self.view.index] {
            if version.changes.is_empty() && version.breaks.is_empty() {
                let what = format!("version {} is new and changes nothing", version.date);
                self.safe("versions", what, "new clients are pinned to it");
            }
            let why = format!("declared; clients of {} are served as before", self.view.date);
            for change in &version.changes {
                let name = change.operation.name();
                let what = format!("`{name}` of version {}", version.date);
                let what = change.description.clone().unwrap_or(what);
                self.safe(&self.new.collections[change.collection].name, what, &why);
            }
        }
    }

    /// Edits that no version change hides from older clients: the file declares them by `breaks`,
    /// which repeats where and what. Those that a newer version declares are safe; the plan
    /// proposes to declare the others.
    fn broken(&mut self) {
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

#[cfg(test)]
mod tests;
