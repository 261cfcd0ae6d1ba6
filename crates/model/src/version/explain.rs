//! Problems in the words of an older version: replaces names, values and codes of the newest
//! version by those the client knows.

use super::View;
use super::lens::Lens;
use super::step::head;
use crate::problem::{Code, Problem, Violation};
use crate::record::Fields;
use crate::schema::{CollectionIx, Field, Kind};
use serde_json::Value;

impl View {
    /// The problem in the words of this version, and by the names that were sent.
    pub fn explain(
        &self,
        collection: CollectionIx,
        sent: &Fields,
        mut problem: Problem,
    ) -> Problem {
        if let Some(declared) = &mut problem.declared {
            declared.code = self.code_down(collection, &declared.code).to_owned();
        }
        let Some(lens) = self.words(collection) else { return problem };
        let restated = self.restate(collection, lens, &mut problem);
        let mut problem = explained(lens, sent, problem);
        if let Some(message) = restated {
            problem.message = message;
        }
        problem
    }

    /// Replaces the state that prevents an action by the one this version shows, and rebuilds the
    /// message with it: `reworded` would take states and actions for fields of the same name.
    fn restate(&self, at: CollectionIx, lens: &Lens, problem: &mut Problem) -> Option<String> {
        if problem.code != Code::InvalidState {
            return None;
        }
        let collection = &self.schema.collections[at];
        let field = lens.name_up(&collection.states.as_ref()?.field);
        let Value::String(state) = problem.extra.get_mut("current_state")? else { return None };
        let old = shown(lens, field, Value::from(state.as_str()));
        if let Some(Value::String(old)) = old {
            *state = old;
        }
        let state = state.clone();
        let name = problem.message.split('`').nth(1)?;
        let action = collection.actions.iter().find(|action| action.name == name)?;
        Some(action.wrong_state(&collection.object, &state))
    }

    /// The refusal by a rule of an action, in the words of this version. It may name parameters as
    /// well as fields, and each has its own old names. If both have a name, it means the parameter:
    /// the caller sent that.
    pub fn explain_rule(
        &self,
        collection: CollectionIx,
        action: usize,
        mut problem: Problem,
    ) -> Problem {
        let Some(declared) = &mut problem.declared else {
            return self.explain(collection, &Fields::new(), problem);
        };
        declared.code = self.code_down(collection, &declared.code).to_owned();
        let params = &self.newest.collections[collection].actions[action].params;
        let form = self.form(collection, action);
        let lens = self.words(collection);
        let down = |name: &str| {
            let head = head(name);
            let sent =
                |param: &Field| param.name == head && (name == head || param.kind == Kind::Object);
            let lens = if params.iter().any(sent) { form } else { lens };
            lens.map_or_else(|| Some(name.to_owned()), |lens| lens.name_down(name))
        };
        problem.message = reworded(&problem.message, down);
        problem.param = problem.param.take().and_then(|param| down(&param));
        problem
    }

    /// The code of a refusal in this version.
    pub fn code_down<'a>(&'a self, collection: CollectionIx, code: &'a str) -> &'a str {
        let lens = self.lenses.get(&(collection, None));
        lens.and_then(|lens| lens.codes.get(code)).map_or(code, String::as_str)
    }
}

/// Names and values as the lens shows them.
pub(super) fn explained(lens: &Lens, sent: &Fields, mut problem: Problem) -> Problem {
    let down = |name: &str| Some(lens.name_sent(&lens.name_down(name)?, sent));
    problem.message = reworded(&problem.message, down);
    if let Some(param) = problem.param.take() {
        problem.value = problem.value.take().and_then(|value| shown(lens, &param, value));
        problem.param = down(&param);
    }
    if problem.violations.is_empty() {
        return problem;
    }
    // Violations of fields that the version does not have go into the message only, last.
    let (mut reported, mut unseen) = (Vec::new(), Vec::new());
    for mut violation in std::mem::take(&mut problem.violations) {
        match translate(lens, sent, &mut violation) {
            // Several stored fields with one error may be one field in this version.
            true if reported.contains(&violation) => {}
            true => reported.push(violation),
            false => unseen.push(violation),
        }
    }
    problem.message = Problem::of(problem.code, [&*reported, &*unseen].concat()).message.clone();
    problem.param = reported.first().map(|first| first.field.clone());
    problem.value = reported.first().and_then(|first| first.value.clone());
    problem.violations = reported;
    problem
}

/// Translates one violation. Returns whether the version has the field.
fn translate(lens: &Lens, sent: &Fields, violation: &mut Violation) -> bool {
    let down = |name: &str| Some(lens.name_sent(&lens.name_down(name)?, sent));
    let name = match violation.reported_as.take() {
        Some(name) => Some(lens.name_sent(&name, sent)),
        None => {
            let value = violation.value.take();
            violation.value = value.and_then(|value| shown(lens, &violation.field, value));
            down(&violation.field)
        }
    };
    violation.message = reworded(&violation.message, |part| match part == violation.field {
        true => name.clone(),
        false => down(part),
    });
    let seen = name.is_some();
    violation.field = name.unwrap_or_default();
    seen
}

/// Replaces names that a version does not have.
const UNSEEN: &str = "…";

/// Replaces the names in a message, which are between backticks.
fn reworded(message: &str, down: impl Fn(&str) -> Option<String>) -> String {
    let mut unseen = false;
    let parts = message.split('`').enumerate().map(|(place, part)| match place % 2 {
        1 => down(part).unwrap_or_else(|| {
            unseen = true;
            UNSEEN.to_owned()
        }),
        _ => part.to_owned(),
    });
    let message = parts.collect::<Vec<_>>().join("`");
    if unseen { format!("{message} (`{UNSEEN}` is of another version.)") } else { message }
}

/// A stored value as this version shows it. None if the version would show more than that value.
fn shown(lens: &Lens, kept: &str, value: Value) -> Option<Value> {
    let name = lens.name_down(kept)?;
    match lens.line(&name).map(|line| line.place.as_ref()) {
        Some(Some(place)) if place.path == kept => lens.stages.show(kept, value, &name),
        Some(_) => None,
        // A member is not a field: the version shows it as it is stored.
        None => Some(value),
    }
}
