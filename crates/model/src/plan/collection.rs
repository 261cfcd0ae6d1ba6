//! Edits of a collection: its settings, its actions and the codes of its rules.

use super::lines;
use super::{CALLS, Class, DEPRECATED, Edit, PEOPLE, TYPES, Work, owner, quoted_names};
use crate::schema::{Action, Collection, CollectionIx, Schema};

impl Work<'_> {
    pub(super) fn collection(&mut self, ix: CollectionIx, place: CollectionIx) {
        let old = &self.old.collections[ix];
        let seen = &self.view.schema.collections[place];
        if old.removed && !seen.removed {
            self.safe(&old.name, "the collection is served again", "nobody uses it yet");
        }
        // A collection that only older versions serve is compared like the others: their clients
        // use it.
        if seen.removed && !old.removed {
            let lines = owner(old).change("collection_removed = true");
            let what = "the collection is not served any more";
            let why = "clients of this version use it";
            return self.breaking(&old.name, what, why, Some(lines));
        }
        let table = format!("collections.{}", old.name);
        let parent = |schema: &Schema, collection: &Collection| {
            collection.parent.map(|at| schema.collections[at].name.clone())
        };
        let was = parent(self.old, old);
        if was != parent(self.new, seen) {
            let said = was.map(|name| format!("parent = {}", lines::quoted(&name)));
            let said = said.as_deref().unwrap_or("# without `parent`");
            let why = "records cannot move to another parent; put it back";
            return self.put_back(&old.name, "the parent changed", why, (&table, said));
        }
        if old.feed.is_some() != seen.feed.is_some() {
            let name = old.feed.as_ref().map(|feed| lines::quoted(&feed.live_name));
            let said = name.map(|name| format!("feed = {{ live_name = {name} }}"));
            let said = said.as_deref().unwrap_or("feed = false");
            let why = "the ids of its records would change; put it back";
            self.put_back(&old.name, "`feed` was switched", why, (&table, said));
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
        // Rules are compared in the names of the old version, which are unknown before a rename is
        // declared.
        let open = |edit: &Edit| edit.lines.is_some() && edit.class != Class::Safe;
        let is_open = self.edits[before..].iter().any(open);
        self.codes(old, place);
        if !is_open {
            self.states(old, place);
            for was in &old.actions {
                self.conduct(&format!("{}.actions.{}", old.name, was.name), (old, place), was);
            }
        } else if conduct(old) != conduct(&self.new.collections[place]) {
            let what = "what its actions and states do is not compared";
            self.safe(&old.name, what, "once the lines above are declared, it is");
        }
    }

    /// Settings around the fields.
    fn frame(&mut self, ix: CollectionIx, at: CollectionIx) {
        let (old, new) = (&self.old.collections[ix], &self.view.schema.collections[at]);
        let place = |key: &str| format!("{}.{key}", old.name);
        let (were, are) = (&old.events, &new.events);
        for (key, was, is, why) in [
            ("object", &old.object, &new.object, "it stands in every record and event"),
            ("id_prefix", &old.id_prefix, &new.id_prefix, "new ids would look otherwise"),
            ("events.created", &were.created, &are.created, TYPES),
            ("events.updated", &were.updated, &are.updated, TYPES),
            ("events.deleted", &were.deleted, &are.deleted, TYPES),
        ] {
            self.setting(&place(key), was, is, why);
        }
        // The operations of a feed are others.
        let (mut were, are) = (old.operations, new.operations);
        match (&old.feed, &new.feed) {
            (Some(was), Some(is)) => {
                let why = "listeners know it under the old name";
                self.setting(&place("feed"), &was.live_name, &is.live_name, why);
            }
            (None, None) => {}
            _ => were = are,
        }
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
            if is && !was {
                let why = "requests without the header would be refused";
                self.breaks(&place(key), "switched on", why);
            } else {
                self.note(&place(key), &was, &is, "switched off", "asks for less");
            }
        }
        let what = "deprecated otherwise";
        self.note(&old.name, &old.deprecated, &new.deprecated, what, DEPRECATED);
        let what = "described otherwise";
        self.note(&old.name, &old.description, &new.description, what, PEOPLE);
    }

    fn actions(&mut self, old: &Collection, at: CollectionIx) {
        let new = &self.view.schema.collections[at];
        let place = |action: &Action| format!("{}.actions.{}", old.name, action.name);
        for was in &old.actions {
            let Some(found) = new.action(&was.name) else {
                self.offer(&place(was), "the action", true, false);
                continue;
            };
            let (place, is) = (place(was), &new.actions[found]);
            self.setting(&format!("{place}.event"), &was.event, &is.event, TYPES);
            self.params(&place, (old, was), (at, found));
            self.handler(&place, was, is);
            self.transition(&place, was, is);
            let what = "described otherwise";
            self.note(&place, &was.description, &is.description, what, PEOPLE);
        }
        for is in new.actions.iter().filter(|is| old.action(&is.name).is_none()) {
            self.offer(&place(is), "the action", false, true);
        }
    }

    fn handler(&mut self, place: &str, was: &Action, is: &Action) {
        let decided = "what it does is decided somewhere else";
        match (&was.handler, &is.handler) {
            (None, None) => {}
            (Some(_), None) => self.breaks(place, "has no handler any more", decided),
            (None, Some(_)) => self.breaks(place, "has a handler now", decided),
            (Some(was), Some(is)) => {
                self.note(place, &was.url, &is.url, "is handled elsewhere", CALLS);
                let (was, is) = (was.timeout, is.timeout);
                let what = format!("waits for its handler for {is:?}, not {was:?}");
                self.note(place, &was, &is, &what, CALLS);
            }
        }
    }

    /// The states between which an action leads; an empty `from` means all.
    fn transition(&mut self, place: &str, was: &Action, is: &Action) {
        let lacks = |one: &Action, other: &Action| {
            let lacking = |state: &String| !one.from.contains(state);
            !one.from.is_empty() && (other.from.is_empty() || other.from.iter().any(lacking))
        };
        if lacks(is, was) {
            let what = format!("allowed in {} only", quoted_names(&is.from));
            self.breaks(place, what, "calls that worked would be refused");
        }
        if lacks(was, is) {
            self.safe(place, "allowed in more states", "calls that worked still do");
        }
        if was.to != is.to {
            let what = match (&was.to, &is.to) {
                (_, None) => "leads to no other state any more".to_owned(),
                (None, Some(is)) => format!("leads to `{is}`"),
                (Some(was), Some(is)) => format!("leads to `{is}`, not `{was}`"),
            };
            self.breaks(place, what, "clients expect the old one");
        }
    }

    /// Codes of refusals, by which clients distinguish them.
    fn codes(&mut self, old: &Collection, at: CollectionIx) {
        let kept = self.kept_codes(at);
        let mut were = codes(old);
        were.dedup();
        let mut fresh = kept.iter().filter(|code| !were.contains(code));
        for code in were.iter().filter(|code| !kept.contains(code)) {
            let what = format!("no rule answers with the code `{code}` any more");
            let lines = fresh.next().map(|to| owner(old).renamed("code", code, to));
            self.breaking(&old.name, what, "clients tell refusals apart by it", lines);
        }
    }

    /// The codes of the new file, as the old version has them.
    pub(super) fn kept_codes(&self, at: CollectionIx) -> Vec<String> {
        let codes = codes(&self.new.collections[at]);
        codes.iter().map(|code| self.view.code_down(at, code).to_owned()).collect()
    }
}

/// The actions and states as the file declares them.
fn conduct(collection: &Collection) -> String {
    let actions = collection.actions.iter().map(|action| (&action.rules, &action.set));
    format!("{:?}", (&collection.timed, actions.collect::<Vec<_>>()))
}

fn codes(collection: &Collection) -> Vec<String> {
    let rules = collection.actions.iter().flat_map(|action| &action.rules);
    rules.map(|rule| rule.code.clone()).collect()
}
