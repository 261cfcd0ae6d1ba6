//! Whose fault it is: where a kept field is made from several that a client sends, the one with
//! which it is wrong in that way. Only looked for when a request is refused already.

use super::lens::{Lens, Lift, value_of};
use crate::problem::{Problem, Violation};
use crate::record::Fields;
use crate::schema::Collection;
use crate::validate;

impl Lens {
    /// Checks kept fields that were made from a body of this version. `make` does that again for
    /// some fields of the body, as if nothing else were sent.
    pub fn check(
        &self,
        newest: &Collection,
        made: &mut Fields,
        sent: &Fields,
        make: impl Fn(&Fields) -> Fields,
    ) -> Result<(), Problem> {
        let newest = self.held_to(newest);
        validate::raised(newest, made).map_err(|mut problem| {
            let sent = self.fold(sent);
            for violation in &mut problem.violations {
                self.blame(newest, violation, &sent, &make);
                self.retell(violation, &sent);
            }
            problem
        })
    }

    /// Drops kept fields that are made from what is wrong by itself.
    pub(crate) fn leave_out(&self, made: &mut Fields, told: &[Violation]) {
        let wrong = |name: &String| told.iter().any(|violation| violation.field == *name);
        for lift in self.lifts.iter().filter(|lift| lift.sent.iter().any(wrong)) {
            made.remove(&lift.field.name);
        }
    }

    /// Blames the first field that the write changes, as this version shows it: what a kept field
    /// may not be beside those of other records, it becomes by that.
    pub fn blame_change(&self, violation: &mut Violation, before: &Fields, after: &Fields) {
        let Some(lift) = self.made_from_several(&violation.field) else { return };
        let (before, after) = (self.down(before), self.down(after));
        let differs = |name: &&String| value_of(&before, name) != value_of(&after, name);
        let Some(name) = lift.sent.iter().find(differs) else { return };
        violation.blame(name, lift.is_echoed().then(|| value_of(&after, name)));
    }

    /// Tells of what the service sets in a kept field, and may not, as if a client of this version
    /// had sent what it would be shown.
    pub fn blame_set(&self, newest: &Collection, violation: &mut Violation, after: &Fields) {
        if self.name_down(&violation.field).is_some() {
            let sent = self.down(after);
            self.blame(self.held_to(newest), violation, &sent, &|part| self.up(part));
            self.retell(violation, &sent);
        }
    }

    /// What was sent is put together field by field, until the kept one is wrong.
    fn blame(
        &self,
        newest: &Collection,
        violation: &mut Violation,
        sent: &Fields,
        make: &impl Fn(&Fields) -> Fields,
    ) {
        let Some(lift) = self.made_from_several(&violation.field) else { return };
        let mut part = Fields::new();
        for name in &lift.sent {
            let Some(value) = sent.get(name) else { continue };
            part.insert(name.clone(), value.clone());
            let mut made = make(&part);
            // Nothing yet is nothing wrong.
            made.retain(|kept, value| *kept == lift.field.name && !value.is_null());
            let wrong = validate::raised(newest, &mut made).err();
            let same = |problem: Problem| problem.violations[0].code == violation.code;
            if wrong.is_some_and(same) {
                violation.blame(name, lift.is_echoed().then_some(value));
                return;
            }
        }
    }

    fn made_from_several(&self, kept: &str) -> Option<&Lift> {
        self.lifts.iter().find(|lift| lift.field.name == kept && lift.sent.len() > 1)
    }
}

impl Lift {
    /// Whether an error may repeat what was sent.
    fn is_echoed(&self) -> bool {
        !self.field.write_only
    }
}
