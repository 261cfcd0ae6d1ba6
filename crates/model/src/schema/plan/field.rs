//! Fields of a collection and parameters of an action, before and after an edit.

use super::{Work, lines};
use crate::schema::{Collection, CollectionIx, Field, Kind};

/// What a limit does to requests that were fine.
enum Limit {
    Same,
    Looser,
    Tighter,
}

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
        let mut added: Vec<&Field> = seen
            .fields
            .iter()
            .filter(|field| !field.removed && old.field(&field.name).is_none())
            .collect();
        for was in old.fields.iter().filter(|field| !field.removed) {
            let place = format!("{}.{}", old.name, was.name);
            match seen.known(&was.name) {
                Some(is) => self.field(&old.name, &place, was, is),
                None => self.gone(old, &place, was, &mut added),
            }
        }
        for is in added {
            let place = format!("{}.{}", old.name, is.name);
            let asked = is.required && is.default.is_none() && !is.read_only;
            match asked {
                true => {
                    let lines = lines::filled(&old.name, "required", is);
                    let what = "a new required field".to_owned();
                    let why = "creates without it would be refused, and records lack it";
                    self.breaking(&place, what, why, Some(lines));
                }
                false => {
                    self.safe(&place, "a new field".to_owned(), "old requests need not send it")
                }
            }
        }
    }

    /// A field that is not there any more: renamed, it seems, or dropped.
    fn gone(&mut self, old: &Collection, place: &str, was: &Field, added: &mut Vec<&Field>) {
        let alike =
            |is: &&Field| is.kind == was.kind && is.reference.is_some() == was.reference.is_some();
        match added.iter().position(alike) {
            Some(found) => {
                let is = added.remove(found);
                let what = format!("gone, and `{}` of the same type is new", is.name);
                let lines = lines::rename(&old.name, &was.name, &is.name);
                let why = "clients know the old name; if this is a rename, declare it";
                self.breaking(place, what, why, Some(lines));
            }
            None => {
                let lines = lines::removed(&old.name, &was.name);
                let why = "its data would be lost; leave it declared, and declare `removed`";
                self.destructive(place, "the field is gone".to_owned(), why, Some(lines));
            }
        }
    }

    fn field(&mut self, collection: &str, place: &str, was: &Field, is: &Field) {
        if was.kind != is.kind {
            let what = format!("{} became {}", kind_name(&was.kind), kind_name(&is.kind));
            let lines = lines::retype(collection, was, is);
            self.breaking(place, what, "clients send and read the old type", lines);
            return;
        }
        self.presence(collection, place, was, is);
        self.choices(collection, place, was, is);
        self.limits(place, was, is);
        self.flags(place, was, is);
        if was.description != is.description || was.deprecated != is.deprecated {
            self.safe(place, "described otherwise".to_owned(), "only people read it");
        }
    }

    /// Required, optional, default.
    fn presence(&mut self, collection: &str, place: &str, was: &Field, is: &Field) {
        match (was.required, is.required) {
            (false, true) => {
                let lines = lines::filled(collection, "required", is);
                let why = "requests without it would be refused";
                self.breaking(place, "became required".to_owned(), why, Some(lines));
            }
            (true, false) => {
                let lines = lines::filled(collection, "optional", is);
                let why = "clients that always found a value would read null";
                self.breaking(place, "became optional".to_owned(), why, Some(lines));
            }
            _ if was.default != is.default => {
                let lines = lines::default(collection, &was.name, was.default.as_ref());
                let why = "requests that leave it out would mean something else";
                self.breaking(place, "has another default".to_owned(), why, Some(lines));
            }
            _ => {}
        }
    }

    fn choices(&mut self, collection: &str, place: &str, was: &Field, is: &Field) {
        if was.choices.is_empty() && !is.choices.is_empty() {
            let why = "values that were taken are refused";
            self.breaking(place, "has an `enum` now".to_owned(), why, None);
        }
        if was.choices.is_empty() || is.choices.is_empty() {
            return;
        }
        let mut fresh: Vec<&String> =
            is.choices.iter().filter(|choice| !was.choices.contains(choice)).collect();
        for choice in was.choices.iter().filter(|choice| !is.choices.contains(choice)) {
            let known = if fresh.is_empty() { &is.choices[0] } else { fresh.remove(0) };
            let lines = lines::enum_map(collection, &was.name, choice, known);
            let what = format!("the value `{choice}` is gone");
            self.breaking(place, what, "clients send and read it", Some(lines));
        }
        for choice in fresh {
            let what = format!("the value `{choice}` is new");
            let why = "requests go on; readers meet a value they do not know: `enum_map` with \
                       `down` would hide it";
            self.safe(place, what, why);
        }
    }

    fn limits(&mut self, place: &str, was: &Field, is: &Field) {
        let pattern = |field: &Field| field.pattern.as_ref().map(|p| p.0.as_str().to_owned());
        let pattern = match (pattern(was), pattern(is)) {
            (old, new) if old == new => Limit::Same,
            (_, None) => Limit::Looser,
            _ => Limit::Tighter,
        };
        for (key, change) in [
            ("min", limit(was.min, is.min, true)),
            ("max", limit(was.max, is.max, false)),
            ("min_length", limit(was.min_length, is.min_length, true)),
            ("max_length", limit(was.max_length, is.max_length, false)),
            ("pattern", pattern),
        ] {
            match change {
                Limit::Same => {}
                Limit::Looser => {
                    self.safe(place, format!("`{key}` asks for less"), "what was taken still is");
                }
                Limit::Tighter => {
                    let why = "values that were taken are refused";
                    self.breaking(place, format!("`{key}` asks for more"), why, None);
                }
            }
        }
    }

    fn flags(&mut self, place: &str, was: &Field, is: &Field) {
        self.offer(place, "filtering by it", was.filterable(), is.filterable());
        self.offer(place, "sorting by it", was.sort, is.sort);
        self.offer(place, "searching in it", was.search, is.search);
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
        if was.write_only != is.write_only {
            let why = "what was secret would be served, or what was served be gone";
            self.breaking(place, "`write_only` was switched".to_owned(), why, None);
        }
        let name = |schema: &crate::Schema, field: &Field| {
            field.reference.map(|at| schema.collections[at].name.clone())
        };
        if name(self.old, was) != name(self.new, is) {
            let what = "refers to another collection".to_owned();
            self.breaking(place, what, "ids that were taken are refused", None);
        }
    }

    /// Parameters are only sent, never read.
    pub(super) fn params(&mut self, place: &str, old: &[Field], new: &[Field]) {
        let find = |fields: &[Field], name: &str| -> Option<Field> {
            fields.iter().find(|field| field.name == name).cloned()
        };
        for was in old {
            let place = format!("{place}.{}", was.name);
            match find(new, &was.name) {
                None => self.offer(&place, "the parameter", true, false),
                Some(is) if is.kind != was.kind => {
                    let what = format!("{} became {}", kind_name(&was.kind), kind_name(&is.kind));
                    self.breaking(&place, what, "clients send the old type", None);
                }
                Some(is) => {
                    if is.required && !was.required {
                        let why = "calls without it would be refused";
                        self.breaking(&place, "became required".to_owned(), why, None);
                    }
                    self.limits(&place, was, &is);
                    for choice in was
                        .choices
                        .iter()
                        .filter(|choice| !is.choices.is_empty() && !is.choices.contains(choice))
                    {
                        let what = format!("the value `{choice}` is gone");
                        self.breaking(&place, what, "clients send it", None);
                    }
                }
            }
        }
        for is in new.iter().filter(|is| find(old, &is.name).is_none()) {
            let place = format!("{place}.{}", is.name);
            match is.required {
                true => {
                    let why = "calls without it would be refused";
                    self.breaking(&place, "a new required parameter".to_owned(), why, None);
                }
                false => self.offer(&place, "the parameter", false, true),
            }
        }
    }
}
