//! Fields of a collection and parameters of an action, before and after an edit.

use super::history::plain;
use super::lines::{self, Owner, apart, later};
use super::retyping::{Retyped, retyped};
use super::{Class, Work, owner};
use crate::schema::{Action, Collection, CollectionIx, Field, Kind, Limits};
use crate::validate;
use crate::version::{Part, changes_of};
use serde_json::Value;

/// What a limit does to requests that were fine.
enum Limit {
    Same,
    Looser,
    Tighter,
}

/// Puts into lines where they are to stand.
type Remark = fn(&str) -> String;

/// `least`: a greater value is tighter.
fn limit<T: PartialOrd>(old: Option<T>, new: Option<T>, least: bool) -> Limit {
    match (old, new) {
        (None, None) => Limit::Same,
        (None, Some(_)) => Limit::Tighter,
        (Some(_), None) => Limit::Looser,
        (Some(old), Some(new)) if old == new => Limit::Same,
        (Some(old), Some(new)) if (new > old) == least => Limit::Tighter,
        _ => Limit::Looser,
    }
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Array(item) => format!("array of {}", item.name()),
        other => other.name().to_owned(),
    }
}

impl Work<'_> {
    /// Fields as clients of the old schema know them.
    pub(super) fn fields(&mut self, old: &Collection, at: CollectionIx) {
        let view = self.view;
        let seen = &view.schema.collections[at];
        let fresh = |field: &&Field| {
            !field.removed && field.alias_of.is_none() && old.field(&field.name).is_none()
        };
        let mut added: Vec<&Field> = seen.fields.iter().filter(fresh).collect();
        for was in old.fields.iter().filter(|field| !field.removed) {
            let place = format!("{}.{}", old.name, was.name);
            match seen.known(&was.name) {
                Some(_) if view.lens(at).is_some_and(|lens| lens.makes_up(&was.name)) => {
                    let what = "removed, and kept nowhere".to_owned();
                    let why = "its data would be lost; leave it declared, and name it in `removed`";
                    let lines = owner(old).removed(&was.name, &lines::field(self.old, was));
                    self.destructive(&place, what, why, Some(lines));
                }
                Some(is) => {
                    let remark = self.remark((at, None), &was.name);
                    self.remarked(remark, |work| work.field(owner(old), &place, was, is));
                }
                None if self.new.collections[at].field(&was.name).is_some() => {
                    let why = "clients of this version use it; what it says is kept";
                    self.breaking(&place, "not shown any more".to_owned(), why, None);
                }
                None => self.gone(old, &place, was, &mut added),
            }
        }
        self.hidden(old, &self.new.collections[at]);
        for is in added {
            let place = format!("{}.{}", old.name, is.name);
            let asked = is.required && is.default.is_none() && !is.read_only;
            match asked {
                true => {
                    let lines = owner(old).filled("required", is);
                    let what = "a new required field".to_owned();
                    let why = "creates without it would be refused, and records lack it";
                    self.breaking(&place, what, why, lines);
                }
                false => {
                    self.safe(&place, "a new field".to_owned(), "old requests need not send it")
                }
            }
        }
    }

    /// Fields that no client of the old schema's version knows, and older ones do.
    fn hidden(&mut self, old: &Collection, new: &Collection) {
        for was in old.fields.iter().filter(|field| field.removed) {
            let place = format!("{}.{}", old.name, was.name);
            match new.fields.iter().find(|field| field.name == was.name) {
                Some(is) if is.kind == was.kind => {
                    self.undeclared(|work| work.field(owner(old), &place, was, is));
                    if !is.removed {
                        let what = "shown again".to_owned();
                        self.safe(&place, what, "nobody reads it yet");
                    }
                }
                _ => {
                    let what = "the field, kept for older versions, is gone".to_owned();
                    let why = "its data would be lost; put it back";
                    let table = format!("collections.{}.fields", old.name);
                    let lines = lines::put_back(&table, &lines::field(self.old, was));
                    self.destructive(&place, what, why, Some(lines));
                }
            }
        }
    }

    /// Edits that no change can declare.
    pub(super) fn undeclared(&mut self, compare: impl FnOnce(&mut Self)) {
        let told = self.edits.len();
        compare(self);
        let bare = self.edits[told..].iter_mut().filter(|edit| edit.class == Class::NeedsVersion);
        bare.for_each(|edit| edit.lines = None);
    }

    /// Edits of a field that another change is about already: their lines say where they stand.
    fn remarked(&mut self, remark: Option<Remark>, compare: impl FnOnce(&mut Self)) {
        let told = self.edits.len();
        compare(self);
        let Some(remark) = remark else { return };
        for edit in &mut self.edits[told..] {
            edit.lines = edit.lines.take().map(|lines| remark(&lines));
        }
    }

    /// What is to be said of lines about a field that a newer version changes already.
    fn remark(&self, part: Part, field: &str) -> Option<Remark> {
        let newer = self.new.versions[..self.view.index].iter();
        let mut places = newer
            .flat_map(|version| changes_of(version, part))
            .flat_map(|change| change.operation.old_places());
        let changed = places.any(|place| place.split('.').next() == Some(field));
        changed.then_some(apart as Remark)
    }

    /// A field that is not there any more: renamed, it seems, or dropped.
    fn gone(&mut self, old: &Collection, place: &str, was: &Field, added: &mut Vec<&Field>) {
        let alike = |is: &&Field| {
            is.kind == was.kind
                && is.reference.is_some() == was.reference.is_some()
                && is.write_only == was.write_only
        };
        match added.iter().position(alike) {
            Some(found) => {
                let is = added.remove(found);
                let what = format!("gone, and `{}` of the same type is new", is.name);
                let lines = owner(old).rename(&was.name, &is.name);
                let why = "clients know the old name; if this is a rename, declare it";
                self.breaking(place, what, why, Some(lines));
                let renamed = Field { name: was.name.clone(), ..is.clone() };
                self.remarked(Some(later), |work| work.field(owner(old), place, was, &renamed));
            }
            None if old.states.as_ref().is_some_and(|states| states.field == was.name) => {
                let why = "records have states; put them back";
                let table = format!("collections.{}", old.name);
                let said = old.states.as_ref().map(lines::states).unwrap_or_default();
                let lines = lines::put_back(&table, &said);
                self.destructive(place, "the states are gone".to_owned(), why, Some(lines));
            }
            None => {
                let lines = owner(old).removed(&was.name, &lines::field(self.old, was));
                let why = "its data would be lost; leave it declared, and declare `removed`";
                self.destructive(place, "the field is gone".to_owned(), why, Some(lines));
            }
        }
    }

    fn field(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        if was.write_only != is.write_only {
            let why = "what was secret would be served, or what was served be hidden, so its data \
                       would be deleted; put it back";
            let table = format!("collections.{}.fields", owner.collection);
            let lines = lines::put_back(&table, &lines::field(self.old, was));
            self.destructive(place, "`write_only` was switched".to_owned(), why, Some(lines));
            return;
        }
        if was.kind != is.kind {
            let what = format!("{} became {}", kind_name(&was.kind), kind_name(&is.kind));
            match retyped(owner, was, is) {
                Some(Retyped { lines, left }) => {
                    let why = "clients send and read the old type";
                    self.breaking(place, what, why, Some(lines));
                    self.edits.extend(left);
                }
                None => {
                    let why = "clients send and read the old type, and its data would be lost; \
                               leave it declared, give the new one another name, and declare \
                               `removed`";
                    let lines = owner.removed(&was.name, &lines::field(self.old, was));
                    self.destructive(place, what, why, Some(lines));
                }
            }
            self.flags(owner, place, was, is);
            return;
        }
        self.values(owner, place, was, is, |work, before| work.presence(owner, place, was, before));
        self.flags(owner, place, was, is);
        if was.description != is.description {
            self.safe(place, "described otherwise".to_owned(), "only people read it");
        }
        if was.deprecated != is.deprecated {
            let what = "deprecated otherwise".to_owned();
            self.safe(place, what, "it is served as before, and answers tell of it");
        }
    }

    /// What the field takes, and then whether it must be there: one change after the other.
    fn values(
        &mut self,
        owner: Owner<'_>,
        place: &str,
        was: &Field,
        is: &Field,
        presence: impl FnOnce(&mut Self, Result<&Field, &Field>),
    ) {
        let mut before = is.clone();
        Limits::of(was).set(&mut before);
        let fits = |default: &Value| validate::value(&before, &mut default.clone()).is_ok();
        // A default that the old limits do not take goes first.
        let limits_first = is.default.as_ref().is_none_or(fits);
        let limited = limits_first && self.limits(owner, place, was, is);
        let is = if limited { &before } else { is };
        let told = self.edits.len();
        self.remarked(limited.then_some(later as Remark), |work| {
            let chosen = work.choices(owner, place, was, is);
            presence(work, chosen.as_ref().ok_or(is));
        });
        if !limits_first {
            let lines = self.edits[told..].iter().filter_map(|edit| edit.lines.as_ref());
            let dates = lines.map(|lines| lines.matches("[[versions.changes]]").count()).sum();
            let told = self.edits.len();
            self.limits(owner, place, was, is);
            for edit in &mut self.edits[told..] {
                // Of a default that nothing declares, the old limits cannot be told.
                let lines = edit.lines.take().filter(|_| dates > 0);
                edit.lines = lines.map(|lines| (0..dates).fold(lines, |it, _| later(&it)));
            }
        }
    }

    /// Required, optional, default. `Ok`: the field as it is before another change of it, which is
    /// proposed already.
    fn presence(
        &mut self,
        owner: Owner<'_>,
        place: &str,
        was: &Field,
        before: Result<&Field, &Field>,
    ) {
        let (Ok(is) | Err(is)) = before;
        let (what, why) = match (was.required, is.required) {
            (false, true) => ("became required", "requests without it would be refused"),
            // Nobody reads it.
            (true, false) if was.write_only => {
                return self.safe(place, "became optional".to_owned(), "asks for less");
            }
            // Nobody sends it, and all read a value.
            (true, false) if is.read_only && self.fills(owner, &was.name) => return,
            (true, false) => {
                ("became optional", "clients that always found a value would read null")
            }
            _ if plain(was.default.as_ref()) != plain(is.default.as_ref()) => {
                ("has another default", "requests that leave it out would mean something else")
            }
            _ => return,
        };
        let lines = owner.presence(was, is).map(|lines| match before.is_ok() {
            true => later(&lines),
            false => lines,
        });
        self.breaking(place, what.to_owned(), why, lines);
    }

    /// Whether clients of the old schema are shown something where there is nothing.
    fn fills(&self, owner: Owner<'_>, name: &str) -> bool {
        let lens = self.new.find(owner.collection).and_then(|at| self.view.lens(at));
        lens.is_some_and(|lens| lens.fills(name))
    }

    /// The field as it is before the change that is proposed, if one is.
    fn choices(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) -> Option<Field> {
        if was.choices.is_empty() && !is.choices.is_empty() {
            let why = "values that were taken are refused";
            self.breaking(place, "has an `enum` now".to_owned(), why, None);
        }
        if !was.choices.is_empty() && is.choices.is_empty() {
            let why = "requests go on; readers may meet values they do not know";
            self.safe(place, "has no `enum` any more".to_owned(), why);
        }
        if was.choices.is_empty() || is.choices.is_empty() {
            return None;
        }
        let fresh: Vec<&str> = without(&is.choices, &was.choices);
        let gone: Vec<&str> = without(&was.choices, &is.choices);
        let pairs: Vec<(&str, &str)> = gone.iter().copied().zip(fresh.iter().copied()).collect();
        // All of them are one change: a date changes a field once.
        if !pairs.is_empty() {
            let (what, why) = match pairs.as_slice() {
                [(one, _)] => (format!("the value `{one}` is gone"), "clients use it"),
                all => {
                    let names: Vec<String> =
                        all.iter().map(|(old, _)| format!("`{old}`")).collect();
                    (format!("the values {} are gone", names.join(", ")), "clients use them")
                }
            };
            let lines = owner.enum_map(&was.name, &pairs);
            self.breaking(place, what, why, Some(lines));
        }
        for choice in gone.iter().skip(pairs.len()) {
            let what = format!("the value `{choice}` is gone");
            let why = "clients use it, and no new value stands for it";
            self.breaking(place, what, why, None);
        }
        for choice in fresh.iter().skip(pairs.len()) {
            let what = format!("the value `{choice}` is new");
            let why = "requests go on; readers meet a value they do not know: `enum_map` with \
                       `down` would hide it";
            self.safe(place, what, why);
        }
        let older = |new: &str| pairs.iter().find(|(_, is)| *is == new).map(|(was, _)| *was);
        let lowered = |value: &Value| value.as_str().and_then(older).map(Value::from);
        let default = is.default.clone().map(|value| lowered(&value).unwrap_or(value));
        let unmapped = &gone[pairs.len()..];
        let choices = was.choices.iter().filter(|one| !unmapped.contains(&one.as_str())).cloned();
        let before = Field { choices: choices.collect(), default, ..is.clone() };
        (!pairs.is_empty()).then_some(before)
    }

    /// Whether a change of them is proposed.
    fn limits(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) -> bool {
        // A length of 0 asks for nothing.
        let some = |length: Option<usize>| length.filter(|length| *length > 0);
        let pattern = |field: &Field| field.pattern.as_ref().map(|p| p.0.as_str().to_owned());
        let pattern = match (pattern(was), pattern(is)) {
            (old, new) if old == new => Limit::Same,
            (_, None) => Limit::Looser,
            _ => Limit::Tighter,
        };
        let (before, after) = (Limits::of(was).told(), Limits::of(is).told());
        let told = |all: &[(&str, Value)], key: &str| {
            all.iter().find(|(one, _)| *one == key).map(|(_, limit)| limit.clone())
        };
        let mut tighter = Vec::new();
        for (key, change) in [
            ("min", limit(was.min, is.min, true)),
            ("max", limit(was.max, is.max, false)),
            ("min_length", limit(some(was.min_length), some(is.min_length), true)),
            ("max_length", limit(was.max_length, is.max_length, false)),
            ("pattern", pattern),
        ] {
            match change {
                Limit::Same => {}
                Limit::Looser => {
                    self.safe(place, format!("`{key}` asks for less"), "what was taken still is");
                }
                Limit::Tighter => {
                    let not = told(&before, key).map(|limit| format!(", not {limit}"));
                    let is = told(&after, key).unwrap_or_default();
                    tighter.push(format!("`{key}` is {is}{}", not.unwrap_or_default()));
                }
            }
        }
        if tighter.is_empty() {
            return false;
        }
        let meets = |word: &String| {
            let unchosen = Field { choices: Vec::new(), ..is.clone() };
            validate::value(&unchosen, &mut Value::from(word.as_str())).is_ok()
        };
        if !was.choices.is_empty() && was.choices.iter().all(meets) {
            self.safe(place, tighter.join("; "), "all values that were taken meet that");
            return false;
        }
        let lines = owner.limits(&was.name, &Limits::of(was));
        self.breaking(place, tighter.join("; "), "values that were taken are refused", Some(lines));
        true
    }

    fn flags(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        for (key, what, was, is) in [
            ("filter", "filtering by it", was.filterable(), is.filterable()),
            ("sort", "sorting by it", was.sort, is.sort),
        ] {
            match was && !is {
                true => {
                    let why = format!(
                        "clients use it; put it back, or where a change declares the old field, \
                         say `{key} = true` there"
                    );
                    self.breaking(place, format!("{what} is gone"), &why, None);
                }
                false => self.offer(place, what, was, is),
            }
        }
        self.search(owner, place, was.search, is.search);
        for (key, was, is, why) in [
            ("unique", was.unique, is.unique, "values that were taken are refused"),
            ("read_only", was.read_only, is.read_only, "requests that send it are refused"),
        ] {
            match (was, is) {
                (false, true) => self.breaking(place, format!("became `{key}`"), why, None),
                (true, false) => {
                    self.safe(place, format!("is not `{key}` any more"), "what was taken still is");
                }
                _ => {}
            }
        }
        let name = |schema: &crate::Schema, field: &Field| {
            field.reference.map(|at| schema.collections[at].name.clone())
        };
        if name(self.old, was) != name(self.new, is) {
            let what = match (name(self.old, was), name(self.new, is)) {
                (_, None) => "is no reference any more".to_owned(),
                (None, Some(is)) => format!("refers to `{is}`"),
                (Some(was), Some(is)) => format!("refers to `{is}`, not `{was}`"),
            };
            self.breaking(place, what, "ids that were taken are refused", None);
        }
    }

    /// One `q` looks into all fields that can be searched.
    fn search(&mut self, owner: Owner<'_>, place: &str, was: bool, is: bool) {
        let collection = self.old.find(owner.collection).map(|at| &self.old.collections[at]);
        let used = collection.is_some_and(|collection| collection.searched().next().is_some());
        match !was && is && used {
            true => {
                let what = "searching in it is new".to_owned();
                self.breaking(place, what, "searches that are made find more", None);
            }
            false => self.offer(place, "searching in it", was, is),
        }
    }

    /// Parameters are only sent, never read.
    pub(super) fn params(&mut self, place: &str, of: (&Collection, &Action), part: Part) {
        let (collection, action) = of;
        let view = self.view;
        let (at, form) = (part.0, part.1.unwrap_or_default());
        let new = &view.schema.collections[at].actions[form].params;
        let ignored = |name: &str| view.form(at, form).is_some_and(|lens| lens.makes_up(name));
        let owner = Owner { collection: &collection.name, action: Some(&action.name) };
        let old = &action.params;
        let mut added: Vec<&Field> =
            new.iter().filter(|is| !old.iter().any(|was| was.name == is.name)).collect();
        for was in old {
            let place = format!("{place}.{}", was.name);
            match new.iter().find(|is| is.name == was.name) {
                // Nobody looks at it: what is meant where it is left out is no matter.
                Some(is) if ignored(&was.name) => {
                    let (required, default) = (was.required, was.default.clone());
                    let is = Field { required, default, ..is.clone() };
                    self.undeclared(|work| work.param(owner, &place, was, &is));
                }
                Some(is) => {
                    let remark = self.remark(part, &was.name);
                    self.remarked(remark, |work| work.param(owner, &place, was, is));
                }
                None => self.param_gone(owner, &place, was, &mut added),
            }
        }
        for is in added {
            let place = format!("{place}.{}", is.name);
            match is.required && is.default.is_none() {
                true => {
                    let why = "calls without it would be refused";
                    let lines = owner.filled("required", is);
                    self.breaking(&place, "a new required parameter".to_owned(), why, lines);
                }
                false => self.offer(&place, "the parameter", false, true),
            }
        }
    }

    fn param(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        if is.kind != was.kind {
            let what = format!("{} became {}", kind_name(&was.kind), kind_name(&is.kind));
            let (lines, left) = match retyped(owner, was, is) {
                Some(Retyped { lines, left }) => (Some(lines), left),
                None => (None, Vec::new()),
            };
            self.breaking(place, what, "clients send the old type", lines);
            self.edits.extend(left);
            return;
        }
        self.values(owner, place, was, is, |work, before| match (was.required, is.required) {
            (true, false) => work.safe(place, "became optional".to_owned(), "asks for less"),
            _ => work.presence(owner, place, was, before),
        });
    }

    fn param_gone(&mut self, owner: Owner<'_>, place: &str, was: &Field, added: &mut Vec<&Field>) {
        let Some(found) = added.iter().position(|is| is.kind == was.kind) else {
            let lines = owner.ignored(was);
            let why = "calls that send it would be refused";
            self.breaking(place, "the parameter is gone".to_owned(), why, Some(lines));
            return;
        };
        let is = added.remove(found);
        let what = format!("gone, and `{}` of the same type is new", is.name);
        let why = "clients know the old name; if this is a rename, declare it";
        self.breaking(place, what, why, Some(owner.rename(&was.name, &is.name)));
        let renamed = Field { name: was.name.clone(), ..is.clone() };
        self.remarked(Some(later), |work| work.param(owner, place, was, &renamed));
    }
}

fn without<'a>(all: &'a [String], others: &[String]) -> Vec<&'a str> {
    all.iter().filter(|one| !others.contains(one)).map(String::as_str).collect()
}
