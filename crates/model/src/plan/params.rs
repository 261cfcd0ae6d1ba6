//! Parameters of an action, before and after an edit.

use super::Work;
use super::lines::Owner;
use crate::schema::{Action, Collection, CollectionIx, Field};

impl Work<'_> {
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
                // Nobody looks at it: what is meant where it is left out is no matter.
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
        for is in added {
            let place = format!("{place}.{}", is.name);
            if is.required && is.default.is_none() {
                let lines = owner.filled("required", is);
                let why = "calls without it would be refused";
                self.breaking(&place, "a new required parameter", why, lines);
            } else {
                self.offer(&place, "the parameter", false, true);
            }
        }
    }

    fn param(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        if is.kind == was.kind {
            return self.values(owner, place, was, is);
        }
        let what = format!("{} became {}", was.kind.described(), is.kind.described());
        self.breaking(place, what, "clients send the old type", Some(owner.convert(was)));
    }
}
