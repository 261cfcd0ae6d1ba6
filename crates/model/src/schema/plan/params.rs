//! Parameters of an action, before and after an edit.

use super::Work;
use super::field::kind_name;
use super::lines::Owner;
use crate::schema::{Action, Collection, Field};
use crate::version::Part;

impl Work<'_> {
    /// Parameters are only sent, never read.
    pub(super) fn params(&mut self, place: &str, of: (&Collection, &Action), part: Part) {
        let (collection, action) = of;
        let view = self.view;
        let (at, form) = (part.0, part.1.unwrap_or_default());
        let new = &view.schema.collections[at].actions[form].params;
        let ignored = |name: &str| view.form(at, form).is_some_and(|lens| lens.is_constant(name));
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
                Some(is) => self.param(owner, &place, was, is),
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
            let lines = Some(owner.convert(was));
            self.breaking(place, what, "clients send the old type", lines);
            return;
        }
        self.values(owner, place, was, is);
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
    }
}
