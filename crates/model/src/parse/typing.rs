//! Checks every expression of the file against the types of its collection: rules must be true or
//! false, and assigned values must fit their fields. Knows the places of expressions;
//! `schema::expression` finds their types.

use super::expression::place;
use super::field_check;
use super::reader::Report;
use crate::schema::expression::{Complaint, Expression, Scope, misfit};
use crate::schema::rule::Template;
use crate::schema::{Assignment, Collection};

pub(super) fn check(report: &mut Report<'_>, collections: &[Collection]) {
    for collection in collections {
        for action in &collection.actions {
            let scope = Scope::of_action(collection, &action.params);
            for rule in &action.rules {
                if let Err(complaints) = rule.when.check_condition(&scope) {
                    say(report, &rule.when, complaints);
                }
                check_set(report, collection, &rule.set, &scope);
            }
            check_set(report, collection, &action.set, &scope);
        }
        let scope = Scope::of_transition(collection);
        for timed in &collection.timed {
            check_set(report, collection, &timed.set, &scope);
        }
    }
}

fn check_set(report: &mut Report<'_>, collection: &Collection, set: &[Assignment], scope: &Scope) {
    for assignment in set {
        let (Template::Computed(expression), Some(field)) =
            (&assignment.value, collection.field(&assignment.field))
        else {
            continue;
        };
        let found = match expression.check(scope) {
            Ok(found) => found,
            Err(complaints) => {
                say(report, expression, complaints);
                continue;
            }
        };
        let literal =
            expression.literal().and_then(|value| field_check::conforms(field, &value).err());
        if let Some(reason) = misfit(field, &found).or(literal) {
            let message = format!("the value of `{}` {reason}", field.name);
            say(report, expression, vec![Complaint { at: 0, message }]);
        }
    }
}

pub(super) fn say(report: &mut Report<'_>, expression: &Expression, complaints: Vec<Complaint>) {
    for complaint in complaints {
        report.say(place(expression.origin, complaint.at), complaint.message);
    }
}
