//! What an edit of the schema file means for clients and data that exist: safe, in need of a
//! version change, or destructive. Compares the old schema with the new one as it looks from the
//! old one's version, so what a change entry declares is no difference. Pure; `evolve` does the
//! same for what is on disk.

mod field;
mod lines;

use super::evolve::{ACCEPT_CHANGES, ACCEPT_LOSS};
use super::{Action, Collection, CollectionIx, Schema};
use crate::version::{Versions, View};
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Safe,
    /// Clients would break unless a version change tells how they are to be served.
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
    work.service(found.is_some());
    work.declared();
    for (ix, collection) in declared(old) {
        match new.find(&collection.name) {
            Some(place) => work.collection(ix, place),
            None => work.destructive(
                &collection.name,
                "the collection is gone".to_owned(),
                "its records would be lost; put it back, and declare `collection_removed`",
                Some(lines::change(&collection.name, "collection_removed = true")),
            ),
        }
    }
    for (_, added) in declared(new).filter(|(_, c)| old.find(&c.name).is_none()) {
        work.safe(&added.name, "the collection is new".to_owned(), "nobody asks for it yet");
    }
    work.edits
}

/// All edits with their lines, and how many there are of each class.
pub fn report(edits: &[Edit]) -> Vec<String> {
    let mut told = Vec::new();
    for edit in edits {
        told.push(edit.to_string());
        told.extend(edit.lines.iter().flat_map(|lines| lines.lines()).map(|l| format!("    {l}")));
    }
    let count = |class: Class| edits.iter().filter(|edit| edit.class == class).count();
    told.push(format!(
        "{} safe, {} in need of a version change, {} destructive",
        count(Class::Safe),
        count(Class::NeedsVersion),
        count(Class::Destructive)
    ));
    told
}

/// Why a changed schema is not served over data of the old one, and what to type: the report, why
/// the data does not fit if it does not, and the flag that accepts all of it.
pub fn refusal(edits: &[Edit], old: &Schema, misfits: Option<&Vec<String>>) -> Vec<String> {
    let mut told = report(edits);
    if edits.iter().any(|edit| edit.class != Class::Safe && edit.lines.is_some()) {
        told.push(format!(
            "Clients of {0} go on as before if the lines above stand below a `[[versions]]` entry \
             with a newer date, and `service.version` is that date; {0} keeps an entry of its own.",
            old.service.version
        ));
    }
    let Some(misfits) = misfits else {
        told.push(format!("If no client minds, start once with {ACCEPT_CHANGES}."));
        return told;
    };
    told.push("The data does not fit either:".to_owned());
    told.extend(misfits.iter().cloned());
    // The others say that no flag helps.
    if misfits.iter().all(|misfit| misfit.contains(ACCEPT_LOSS)) {
        told.push(format!(
            "If no client minds and that data may go, start once with {ACCEPT_LOSS}."
        ));
    }
    told
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
    fn safe(&mut self, place: &str, what: String, why: &str) {
        self.push(Class::Safe, place, what, why, None);
    }

    fn breaking(&mut self, place: &str, what: String, why: &str, lines: Option<String>) {
        self.push(Class::NeedsVersion, place, what, why, lines);
    }

    fn destructive(&mut self, place: &str, what: String, why: &str, lines: Option<String>) {
        self.push(Class::Destructive, place, what, why, lines);
    }

    fn push(&mut self, class: Class, place: &str, what: String, why: &str, lines: Option<String>) {
        let (place, why) = (place.to_owned(), why.to_owned());
        self.edits.push(Edit { class, place, what, why, lines });
    }

    /// A setting that clients rely on.
    fn setting(&mut self, place: &str, old: &str, new: &str, why: &str) {
        if old != new {
            let what = format!("`{old}` became `{new}`");
            self.breaking(place, what, why, None);
        }
    }

    /// What version entries newer than the old schema tell.
    fn declared(&mut self) {
        for version in &self.new.versions[..self.view.index] {
            for change in &version.changes {
                let place = &self.new.collections[change.collection].name;
                let what = match &change.description {
                    Some(description) => description.clone(),
                    None => format!("`{}` of version {}", change.operation.name(), version.date),
                };
                self.edits.push(Edit {
                    class: Class::Safe,
                    place: place.clone(),
                    what,
                    why: format!("declared; clients of {} are served as before", self.view.date),
                    lines: None,
                });
            }
        }
    }

    fn service(&mut self, found: bool) {
        let (old, new) = (self.old, self.new);
        for version in &old.versions {
            let known = new.versions.iter().any(|kept| kept.date == version.date);
            // Without entries there is one version, whose date may be set anew.
            if !known && (found || old.versions.len() > 1 || new.versions.len() > 1) {
                self.breaking(
                    "versions",
                    format!("version {} is gone", version.date),
                    "clients that are pinned to it would be refused",
                    Some(lines::version(&version.date)),
                );
            }
        }
        for mount in &old.mounts {
            if !new.mounts.iter().any(|kept| kept.path == mount.path) {
                let date = &old.versions[mount.newest].date;
                self.breaking(
                    "mounts",
                    format!("the mount `{}` is gone", mount.path),
                    "clients would find nothing under their URLs",
                    Some(lines::mount(&mount.path, date)),
                );
            }
        }
        let shape = |schema: &Schema| format!("{:?}", schema.service.errors).to_lowercase();
        self.setting("service.errors", &shape(old), &shape(new), "clients read the other shape");
        let why = "clients connect to the old path";
        self.setting("live.mount", &old.live.mount, &new.live.mount, why);
        self.setting("live.socket", &old.live.socket, &new.live.socket, why);
        if new.service.max_body_bytes < old.service.max_body_bytes {
            let what = "the largest body is smaller".to_owned();
            self.breaking("service.max_body", what, "bodies that were taken are refused", None);
        }
        for kind in &old.events.published {
            if !new.events.published.iter().any(|kept| kept.name == kind.name) {
                let what = format!("the event type `{}` is gone", kind.name);
                self.breaking("events.types", what, "applications publish it", None);
            }
        }
    }

    fn collection(&mut self, ix: CollectionIx, place: CollectionIx) {
        let old = &self.old.collections[ix];
        let seen = &self.view.schema.collections[place];
        if old.removed {
            return;
        }
        if seen.removed {
            let what = "the collection is not served any more".to_owned();
            let lines = lines::change(&old.name, "collection_removed = true");
            self.breaking(&old.name, what, "clients of this version use it", Some(lines));
            return;
        }
        let parent = |schema: &Schema, collection: &Collection| {
            collection.parent.map(|at| schema.collections[at].name.clone())
        };
        if parent(self.old, old) != parent(self.new, seen) {
            let what = "the parent changed".to_owned();
            self.destructive(&old.name, what, "records cannot move to another parent", None);
            return;
        }
        if old.feed.is_some() != seen.feed.is_some() {
            let what = "`feed` was switched".to_owned();
            self.destructive(&old.name, what, "the ids of its records would change", None);
            return;
        }
        self.frame(ix, place);
        self.fields(old, place);
        self.actions(old, seen);
        self.codes(old, place);
    }

    /// Settings around the fields.
    fn frame(&mut self, ix: CollectionIx, at: CollectionIx) {
        let (old, new) = (&self.old.collections[ix], &self.view.schema.collections[at]);
        let place = |key: &str| format!("{}.{key}", old.name);
        let why = "it stands in every record and event";
        self.setting(&place("object"), &old.object, &new.object, why);
        let why = "new ids would look otherwise";
        self.setting(&place("id_prefix"), &old.id_prefix, &new.id_prefix, why);
        let why = "consumers choose their code by the type";
        let (were, are) = (&old.events, &new.events);
        self.setting(&place("events.created"), &were.created, &are.created, why);
        self.setting(&place("events.updated"), &were.updated, &are.updated, why);
        self.setting(&place("events.deleted"), &were.deleted, &are.deleted, why);
        let name = |feed: &Option<super::Feed>| feed.as_ref().map(|feed| feed.live_name.clone());
        if let (Some(was), Some(is)) = (name(&old.feed), name(&new.feed)) {
            self.setting(&place("feed"), &was, &is, "listeners know it under the old name");
        }
        let (were, are) = (old.operations, new.operations);
        for (name, was, is) in [
            ("list", were.list, are.list),
            ("get", were.get, are.get),
            ("create", were.create, are.create),
            ("replace", were.replace, are.replace),
            ("update", were.update, are.update),
            ("delete", were.delete, are.delete),
        ] {
            self.offer(&place("operations"), &format!("the operation `{name}`"), was, is);
        }
        for (key, was, is) in [
            ("require_if_match", old.require_if_match, new.require_if_match),
            ("require_idempotency_key", old.require_idempotency_key, new.require_idempotency_key),
        ] {
            match (was, is) {
                (false, true) => {
                    let why = "requests without the header would be refused";
                    self.breaking(&place(key), "switched on".to_owned(), why, None);
                }
                (true, false) => self.safe(&place(key), "switched off".to_owned(), "asks for less"),
                _ => {}
            }
        }
        if old.indexes != new.indexes && self.view.lens(at).is_none() {
            self.safe(&place("indexes"), "changed".to_owned(), "only speed depends on them");
        }
        if old.description != new.description {
            self.safe(&old.name, "described otherwise".to_owned(), "only people read it");
        }
    }

    /// Something that is offered or not.
    fn offer(&mut self, place: &str, what: &str, was: bool, is: bool) {
        match (was, is) {
            (true, false) => {
                self.breaking(place, format!("{what} is gone"), "clients use it", None);
            }
            (false, true) => self.safe(place, format!("{what} is new"), "nobody uses it yet"),
            _ => {}
        }
    }

    fn actions(&mut self, old: &Collection, new: &Collection) {
        let find = |collection: &Collection, name: &str| -> Option<Action> {
            collection.action(name).map(|at| collection.actions[at].clone())
        };
        for was in &old.actions {
            let place = format!("{}.actions.{}", old.name, was.name);
            let Some(is) = find(new, &was.name) else {
                self.offer(&place, "the action", true, false);
                continue;
            };
            let why = "consumers choose their code by the type";
            self.setting(&format!("{place}.event"), &was.event, &is.event, why);
            self.params(&place, &was.params, &is.params);
            let narrower = !is.from.is_empty()
                && (was.from.is_empty() || was.from.iter().any(|state| !is.from.contains(state)));
            if narrower {
                let what = "allowed in fewer states".to_owned();
                self.breaking(&place, what, "calls that worked would be refused", None);
            }
            if was.to != is.to {
                let what = "leads to another state".to_owned();
                self.breaking(&place, what, "clients expect the old one", None);
            }
        }
        for is in new.actions.iter().filter(|is| find(old, &is.name).is_none()) {
            let place = format!("{}.actions.{}", old.name, is.name);
            self.offer(&place, "the action", false, true);
        }
    }

    /// Codes of refusals, which clients tell apart.
    fn codes(&mut self, old: &Collection, at: CollectionIx) {
        let codes = |collection: &Collection| -> Vec<String> {
            let rules = collection.actions.iter().flat_map(|action| &action.rules);
            rules.map(|rule| rule.code.clone()).collect()
        };
        let kept: Vec<String> = codes(&self.new.collections[at])
            .iter()
            .map(|code| self.view.code_down(at, code).to_owned())
            .collect();
        for code in codes(old).into_iter().filter(|code| !kept.contains(code)) {
            let what = format!("no rule answers with the code `{code}` any more");
            let lines = lines::code(&old.name, &code);
            self.breaking(&old.name, what, "clients tell refusals apart by it", Some(lines));
        }
    }
}

#[cfg(test)]
mod tests;
