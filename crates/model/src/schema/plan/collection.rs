//! Edits of a collection: its settings, its actions and the codes of its rules.

use super::lines;
use super::{Class, Edit, Work, owner};
use crate::schema::{Action, Collection, CollectionIx, Feed, Index, Schema};

impl Work<'_> {
    pub(super) fn collection(&mut self, ix: CollectionIx, place: CollectionIx) {
        let old = &self.old.collections[ix];
        let seen = &self.view.schema.collections[place];
        if old.removed && !seen.removed {
            let what = "the collection is served again".to_owned();
            self.safe(&old.name, what, "nobody uses it yet");
        }
        // What is kept for older versions is compared like the rest: their clients use it.
        if seen.removed && !old.removed {
            let what = "the collection is not served any more".to_owned();
            let lines = owner(old).change("collection_removed = true");
            self.breaking(&old.name, what, "clients of this version use it", Some(lines));
            return;
        }
        let parent = |schema: &Schema, collection: &Collection| {
            collection.parent.map(|at| schema.collections[at].name.clone())
        };
        if parent(self.old, old) != parent(self.new, seen) {
            let what = "the parent changed".to_owned();
            let said = match parent(self.old, old) {
                Some(name) => format!("parent = {}", lines::quoted(&name)),
                None => "# without `parent`".to_owned(),
            };
            let lines = lines::put_back(&format!("collections.{}", old.name), &said);
            let why = "records cannot move to another parent; put it back";
            self.destructive(&old.name, what, why, Some(lines));
            return;
        }
        if old.feed.is_some() != seen.feed.is_some() {
            let what = "`feed` was switched".to_owned();
            let said = match &old.feed {
                Some(feed) => {
                    format!("feed = {{ live_name = {} }}", lines::quoted(&feed.live_name))
                }
                None => "feed = false".to_owned(),
            };
            let lines = lines::put_back(&format!("collections.{}", old.name), &said);
            let why = "the ids of its records would change; put it back";
            self.destructive(&old.name, what, why, Some(lines));
        }
        match old.removed {
            // No change is about what the version does not serve.
            true => self.undeclared(|work| work.parts(ix, place)),
            false => self.parts(ix, place),
        }
    }

    fn parts(&mut self, ix: CollectionIx, place: CollectionIx) {
        let old = &self.old.collections[ix];
        let before = self.edits.len();
        self.frame(ix, place);
        self.fields(old, place);
        self.actions(old, place);
        // Rules are compared in the names of the old version, which undeclared changes do not tell.
        let open = |edit: &&Edit| edit.lines.is_some() && edit.class != Class::Safe;
        let is_open = self.edits[before..].iter().any(|edit| open(&edit));
        self.codes(old, place);
        if is_open {
            if conduct(old) == conduct(&self.new.collections[place]) {
                return;
            }
            let what = "what its actions and states do is not compared".to_owned();
            self.safe(&old.name, what, "once the lines above are declared, it is");
            return;
        }
        self.states(old, place);
        for was in old.actions.iter() {
            let place_of = format!("{}.actions.{}", old.name, was.name);
            self.conduct(&place_of, (old, place), was);
        }
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
        let name = |feed: &Option<Feed>| feed.as_ref().map(|feed| feed.live_name.clone());
        if let (Some(was), Some(is)) = (name(&old.feed), name(&new.feed)) {
            self.setting(&place("feed"), &was, &is, "listeners know it under the old name");
        }
        let (were, are) = match old.feed.is_some() == new.feed.is_some() {
            true => (old.operations, new.operations),
            // Those of a feed are others.
            false => (old.operations, old.operations),
        };
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
        if old.indexes != self.indexes(at) {
            self.safe(&place("indexes"), "changed".to_owned(), "only speed depends on them");
        }
        self.told(old, new);
    }

    /// What only browsers, caches and people look at.
    fn told(&mut self, old: &Collection, new: &Collection) {
        if old.cache_control != new.cache_control {
            let place = format!("{}.cache_control", old.name);
            let what = format!("`{}` became `{}`", old.cache_control, new.cache_control);
            self.safe(&place, what, "every answer tells how long it may be kept");
        }
        self.hints(&old.name, &old.early_hints, &new.early_hints);
        if old.deprecated != new.deprecated {
            let what = "deprecated otherwise".to_owned();
            self.safe(&old.name, what, "it is served as before, and answers tell of it");
        }
        if old.description != new.description {
            self.safe(&old.name, "described otherwise".to_owned(), "only people read it");
        }
    }

    /// Those of the new file, by the old names of their fields.
    fn indexes(&self, at: CollectionIx) -> Vec<Index> {
        let lens = self.view.lens(at);
        let old = |name: &String| {
            lens.and_then(|lens| lens.name_down(name)).unwrap_or_else(|| name.clone())
        };
        let indexes = self.new.collections[at].indexes.iter();
        indexes.map(|index| Index { fields: index.fields.iter().map(old).collect() }).collect()
    }

    /// Something that is offered or not.
    pub(super) fn offer(&mut self, place: &str, what: &str, was: bool, is: bool) {
        match (was, is) {
            (true, false) => {
                self.breaking(place, format!("{what} is gone"), "clients use it", None);
            }
            (false, true) => self.safe(place, format!("{what} is new"), "nobody uses it yet"),
            _ => {}
        }
    }

    fn actions(&mut self, old: &Collection, at: CollectionIx) {
        let view = self.view;
        let new = &view.schema.collections[at];
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
            let part = (at, new.action(&was.name));
            self.params(&place, (old, was), part);
            self.handler(&place, was, &is);
            self.transition(&place, was, &is);
            if was.description != is.description {
                self.safe(&place, "described otherwise".to_owned(), "only people read it");
            }
        }
        for is in new.actions.iter().filter(|is| find(old, &is.name).is_none()) {
            let place = format!("{}.actions.{}", old.name, is.name);
            self.offer(&place, "the action", false, true);
        }
    }

    fn handler(&mut self, place: &str, was: &Action, is: &Action) {
        match (&was.handler, &is.handler) {
            (None, None) => {}
            (Some(_), None) => {
                let what = "has no handler any more".to_owned();
                self.breaking(place, what, "what it does is not decided elsewhere any more", None);
            }
            (None, Some(_)) => {
                let what = "has a handler now".to_owned();
                self.breaking(place, what, "what it does is decided elsewhere now", None);
            }
            (Some(was), Some(is)) => {
                if was.url != is.url {
                    let what = "is handled elsewhere".to_owned();
                    self.safe(place, what, "clients call it as before");
                }
                if was.timeout != is.timeout {
                    let (was, is) = (was.timeout, is.timeout);
                    let what = format!("waits for its handler for {is:?}, not {was:?}");
                    self.safe(place, what, "clients call it as before");
                }
            }
        }
    }

    /// Between which states an action leads; none in `from` are all.
    fn transition(&mut self, place: &str, was: &Action, is: &Action) {
        let lacks = |one: &Action, other: &Action| {
            let lacking = |state: &String| !one.from.contains(state);
            !one.from.is_empty() && (other.from.is_empty() || other.from.iter().any(lacking))
        };
        if lacks(is, was) {
            let what = format!("allowed in {} only", quoted(&is.from));
            self.breaking(place, what, "calls that worked would be refused", None);
        }
        if lacks(was, is) {
            let what = "allowed in more states".to_owned();
            self.safe(place, what, "calls that worked still do");
        }
        if was.to != is.to {
            let what = match (&was.to, &is.to) {
                (_, None) => "leads to no other state any more".to_owned(),
                (None, Some(is)) => format!("leads to `{is}`"),
                (Some(was), Some(is)) => format!("leads to `{is}`, not `{was}`"),
            };
            self.breaking(place, what, "clients expect the old one", None);
        }
    }

    /// Codes of refusals, which clients tell apart.
    fn codes(&mut self, old: &Collection, at: CollectionIx) {
        let kept = self.kept_codes(at);
        let mut were = codes(old);
        were.dedup();
        let mut fresh: Vec<&String> = kept.iter().filter(|code| !were.contains(code)).collect();
        for code in were.iter().filter(|code| !kept.contains(code)) {
            let what = format!("no rule answers with the code `{code}` any more");
            let to = (!fresh.is_empty()).then(|| fresh.remove(0));
            let lines = to.map(|to| owner(old).code(code, to));
            self.breaking(&old.name, what, "clients tell refusals apart by it", lines);
        }
    }

    /// The codes of the new file, as the old version has them.
    pub(super) fn kept_codes(&self, at: CollectionIx) -> Vec<String> {
        let codes = codes(&self.new.collections[at]);
        codes.iter().map(|code| self.view.code_down(at, code).to_owned()).collect()
    }
}

/// What its actions and states do, as the file says it.
fn conduct(collection: &Collection) -> String {
    let actions = collection.actions.iter().map(|action| (&action.rules, &action.set));
    format!("{:?}", (&collection.timed, actions.collect::<Vec<_>>()))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn codes(collection: &Collection) -> Vec<String> {
    let rules = collection.actions.iter().flat_map(|action| &action.rules);
    rules.map(|rule| rule.code.clone()).collect()
}
