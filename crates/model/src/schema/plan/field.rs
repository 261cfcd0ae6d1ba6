//! Fields of a collection, before and after an edit.

use super::lines::{self, Owner};
use super::{Class, Work, owner};
use crate::schema::{Collection, CollectionIx, Field, Kind};

pub(super) fn kind_name(kind: &Kind) -> String {
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
                Some(_) if view.lens(at).is_some_and(|lens| lens.is_constant(&was.name)) => {
                    let what = "removed, and kept nowhere".to_owned();
                    let why = "its data would be lost; leave it declared, and name it in `removed`";
                    let lines = owner(old).removed(&was.name, &lines::field(self.old, was));
                    self.destructive(&place, what, why, Some(lines));
                }
                Some(is) => self.field(owner(old), &place, was, is),
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
            let why = "clients send and read the old type, and values that are not converted would \
                       be lost";
            self.destructive(place, what, why, Some(owner.convert(was)));
            self.flags(owner, place, was, is);
            return;
        }
        self.values(owner, place, was, is);
        self.flags(owner, place, was, is);
        if was.description != is.description {
            self.safe(place, "described otherwise".to_owned(), "only people read it");
        }
        if was.deprecated != is.deprecated {
            let what = "deprecated otherwise".to_owned();
            self.safe(place, what, "it is served as before, and answers tell of it");
        }
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
        } else if is.reference.is_some() && was.on_delete != is.on_delete {
            let what = format!("`on_delete` is `{}`", is.on_delete().name());
            self.safe(place, what, "it holds for deletes from now on");
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
}
