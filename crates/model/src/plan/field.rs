//! Fields of a collection and parameters of its actions, before and after an edit.

use super::lines::{self, Owner};
use super::{Class, DEPRECATED, PEOPLE, TAKEN, Work, owner};
use crate::schema::{Action, Collection, CollectionIx, Field};

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
                    let why = "its data would be lost; leave it declared, and name it in `removed`";
                    let lines = owner(old).removed(was, &lines::field(self.old, was));
                    self.destructive(&place, "removed, and kept nowhere", why, lines);
                }
                Some(is) => self.field(owner(old), &place, was, is),
                None if self.new.collections[at].field(&was.name).is_some() => {
                    let why = "clients of this version use it; what it says is kept";
                    self.breaks(&place, "not shown any more", why);
                }
                None => self.gone(old, &place, was, &mut added),
            }
        }
        self.hidden(old, &self.new.collections[at]);
        let why = "creates without it would be refused, and records lack it";
        self.added(owner(old), &old.name, &added, ("field", why));
    }

    /// Fields or parameters that the old schema does not have; `why`: why a required one breaks.
    fn added(&mut self, of: Owner<'_>, place: &str, added: &[&Field], (noun, why): (&str, &str)) {
        for is in added {
            let place = format!("{place}.{}", is.name);
            if is.required && is.default.is_none() && !is.read_only {
                let lines = of.filled("required", is);
                self.breaking(&place, format!("a new required {noun}"), why, lines);
            } else {
                self.offer(&place, &format!("the {noun}"), false, true);
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
                    self.note(&place, &is.removed, &true, "shown again", "nobody reads it yet");
                }
                _ => {
                    let what = "the field, kept for older versions, is gone";
                    let why = "its data would be lost; put it back";
                    self.put_field_back(owner(old), was, what, why);
                }
            }
        }
    }

    fn put_field_back(&mut self, owner: Owner<'_>, was: &Field, what: &str, why: &str) {
        let place = format!("{}.{}", owner.collection, was.name);
        let table = format!("collections.{}.fields", owner.collection);
        self.put_back(&place, what, why, (&table, &lines::field(self.old, was)));
    }

    /// Edits that no change can declare.
    pub(super) fn undeclared(&mut self, compare: impl FnOnce(&mut Self)) {
        let before = self.edits.len();
        compare(self);
        let bare = self.edits[before..].iter_mut().filter(|edit| edit.class == Class::NeedsVersion);
        bare.for_each(|edit| edit.lines = None);
    }

    /// A field that is gone: renamed, it seems, or dropped.
    fn gone(&mut self, old: &Collection, place: &str, was: &Field, added: &mut Vec<&Field>) {
        let alike = |is: &&Field| {
            is.kind == was.kind
                && is.reference.is_some() == was.reference.is_some()
                && is.write_only == was.write_only
        };
        if self.renamed(owner(old), place, was, added, alike) {
            return;
        }
        if let Some(states) = old.states.as_ref().filter(|states| states.field == was.name) {
            let (table, said) = (format!("collections.{}", old.name), lines::states(states));
            let why = "records have states; put them back";
            return self.put_back(place, "the states are gone", why, (&table, &said));
        }
        let lines = owner(old).removed(was, &lines::field(self.old, was));
        let why = "its data would be lost; leave it declared, and declare `removed`";
        self.destructive(place, "the field is gone", why, lines);
    }

    /// Proposes to rename a field, or a parameter, to one that is new and alike, if there is one.
    pub(super) fn renamed(
        &mut self,
        owner: Owner<'_>,
        place: &str,
        was: &Field,
        added: &mut Vec<&Field>,
        alike: impl Fn(&&Field) -> bool,
    ) -> bool {
        let Some(found) = added.iter().position(alike) else { return false };
        let is = added.remove(found);
        let what = format!("gone, and `{}` of the same type is new", is.name);
        let why = "clients know the old name; if this is a rename, declare it";
        self.breaking(place, what, why, Some(owner.renamed("rename", &was.name, &is.name)));
        true
    }

    fn field(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        if was.write_only != is.write_only {
            let why = "what was secret would be served, or what was served be hidden, so its data \
                       would be deleted; put it back";
            return self.put_field_back(owner, was, "`write_only` was switched", why);
        }
        if was.kind == is.kind {
            self.values(owner, place, was, is);
        } else {
            let what = format!("{} became {}", was.kind.described(), is.kind.described());
            let why = "clients send and read the old type, and values that are not converted would \
                       be lost";
            self.destructive(place, what, why, owner.convert(was));
        }
        self.flags(owner, place, was, is);
        let what = "described otherwise";
        self.note(place, &was.description, &is.description, what, PEOPLE);
        self.note(place, &was.deprecated, &is.deprecated, "deprecated otherwise", DEPRECATED);
    }

    fn flags(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        self.offer(place, "filtering by it", was.filterable(), is.filterable());
        self.offer(place, "sorting by it", was.sort, is.sort);
        // One `q` looks into all fields that can be searched.
        let collection = self.old.find(owner.collection).map(|at| &self.old.collections[at]);
        let used = collection.is_some_and(|collection| collection.searched().next().is_some());
        if !was.search && is.search && used {
            let why = "searches that are made find more";
            self.breaks(place, "searching in it is new", why);
        } else {
            self.offer(place, "searching in it", was.search, is.search);
        }
        for (key, was, is, why) in [
            ("unique", was.unique, is.unique, "values that were accepted are refused"),
            ("read_only", was.read_only, is.read_only, "requests that send it are refused"),
        ] {
            match (was, is) {
                (false, true) => self.breaks(place, format!("became `{key}`"), why),
                _ => self.note(place, &was, &is, &format!("is not `{key}` any more"), TAKEN),
            }
        }
        let [was_of, is_of] = [(self.old, was), (self.new, is)]
            .map(|(schema, field)| field.reference.map(|at| &*schema.collections[at].name));
        let what = match (was_of, is_of) {
            (was_of, is_of) if was_of == is_of => {
                let what = format!("`on_delete` is `{}`", is.on_delete().name());
                let why = "it holds for deletes from now on";
                return self.note(place, &was.on_delete, &is.on_delete, &what, why);
            }
            (_, None) => "is no reference any more".to_owned(),
            (None, Some(is)) => format!("refers to `{is}`"),
            (Some(was), Some(is)) => format!("refers to `{is}`, not `{was}`"),
        };
        self.breaks(place, what, "ids that were accepted are refused");
    }

    /// Parameters are only sent, never read.
    pub(super) fn params(
        &mut self,
        place: &str,
        (collection, action): (&Collection, &Action),
        (at, form): (CollectionIx, usize),
    ) {
        let (old, view) = (&action.params, self.view);
        let new = &view.schema.collections[at].actions[form].params;
        let ignored = |name: &str| view.form(at, form).is_some_and(|lens| lens.is_constant(name));
        let owner = Owner { collection: &collection.name, action: Some(&action.name) };
        let fresh = |is: &&Field| !old.iter().any(|was| was.name == is.name);
        let mut added: Vec<&Field> = new.iter().filter(fresh).collect();
        for was in old {
            let place = format!("{place}.{}", was.name);
            match new.iter().find(|is| is.name == was.name) {
                // The service ignores it, so its default does not matter.
                Some(is) if ignored(&was.name) => {
                    let (required, default) = (was.required, was.default.clone());
                    let is = Field { required, default, ..is.clone() };
                    self.undeclared(|work| work.param(owner, &place, was, &is));
                }
                Some(is) => self.param(owner, &place, was, is),
                None if self.renamed(owner, &place, was, &mut added, |is| is.kind == was.kind) => {}
                None => {
                    let why = "calls that send it would be refused";
                    self.breaking(&place, "the parameter is gone", why, Some(owner.ignored(was)));
                }
            }
        }
        self.added(owner, place, &added, ("parameter", "calls without it would be refused"));
    }

    fn param(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        if is.kind == was.kind {
            return self.values(owner, place, was, is);
        }
        let what = format!("{} became {}", was.kind.described(), is.kind.described());
        self.breaking(place, what, "clients send the old type", Some(owner.convert(was)));
    }
}
