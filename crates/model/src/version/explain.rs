//! What went wrong, told to a client of an older version: names, values and codes that the newest
//! version has are turned into those the client knows.

use super::View;
use super::lens::{Lens, show_one};
use crate::decide::wrong_state;
use crate::problem::{Code, Problem, Violation};
use crate::record::Fields;
use crate::schema::CollectionIx;
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
        let Some(lens) = self.lens(collection) else { return problem };
        let restated = self.restate(collection, lens, &mut problem);
        let mut problem = explained(lens, sent, problem);
        if let Some(message) = restated {
            problem.message = message;
        }
        problem
    }

    /// The state that stands in the way of an action, as this version shows it; and the message
    /// with it, made anew: states and actions may be called like fields, and are none.
    fn restate(&self, at: CollectionIx, lens: &Lens, problem: &mut Problem) -> Option<String> {
        if problem.code != Code::InvalidState {
            return None;
        }
        let collection = &self.schema.collections[at];
        let field = lens.name_up(&collection.states.as_ref()?.field);
        let Some(Value::String(state)) = problem.extra.get_mut("current_state") else {
            return None;
        };
        let old = shown(lens, field, Value::from(state.as_str()));
        if let Some(Value::String(old)) = old {
            *state = old;
        }
        let state = state.clone();
        let name = problem.message.split('`').nth(1)?;
        let action = collection.actions.iter().find(|action| action.name == name)?;
        Some(wrong_state(action, &collection.object, &state))
    }

    /// What a rule of an action says, in the words of this version. It may name parameters beside
    /// fields, and these have a past of their own. A name of both is the parameter: that is what
    /// the caller has sent.
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
        let form = self.forms.get(&(collection, action));
        let lens = self.lens(collection);
        let down = |name: &str| {
            let head = name.split('.').next().unwrap_or(name);
            let sent = params.iter().any(|param| param.name == head);
            let lens = if sent { form } else { lens };
            lens.map_or(name, |lens| lens.name_down(name)).to_owned()
        };
        problem.message = reworded(&problem.message, down);
        problem.param = problem.param.take().map(|param| down(&param));
        problem
    }

    /// The code of a refusal in this version.
    pub fn code_down<'a>(&'a self, collection: CollectionIx, code: &'a str) -> &'a str {
        let codes = self.codes.get(collection);
        codes.and_then(|codes| codes.get(code)).map_or(code, String::as_str)
    }
}

/// Names and values as the lens shows them.
pub(super) fn explained(lens: &Lens, sent: &Fields, mut problem: Problem) -> Problem {
    let down = |name: &str| lens.name_sent(lens.name_down(name), sent);
    problem.message = reworded(&problem.message, down);
    if let Some(param) = problem.param.take() {
        problem.value = problem.value.take().and_then(|value| shown(lens, &param, value));
        problem.param = Some(down(&param));
    }
    let told = !problem.violations.is_empty();
    for violation in &mut problem.violations {
        let blamed = violation.blamed.take();
        let value = violation.value.take();
        violation.value = match &blamed {
            Some(_) => value,
            None => value.and_then(|value| shown(lens, &violation.field, value)),
        };
        let name = match &blamed {
            Some(name) => lens.name_sent(name, sent),
            None => down(&violation.field),
        };
        violation.message = reworded(&violation.message, |part| match part == violation.field {
            true => name.clone(),
            false => down(part),
        });
        // "Another book has this title."
        if let Some(head) = violation.message.strip_suffix(&format!(" {}.", violation.field)) {
            violation.message = format!("{head} {name}.");
        }
        violation.field = name;
    }
    if told {
        tell_once(&mut problem.violations);
        let whole = Problem::of(problem.code, problem.violations.clone());
        (problem.message, problem.param) = (whole.message.clone(), whole.param.clone());
        problem.value.clone_from(&whole.value);
    }
    problem
}

/// Several kept fields may be wrong in one way that is one thing in this version.
fn tell_once(violations: &mut Vec<Violation>) {
    let mut told: Vec<Violation> = Vec::with_capacity(violations.len());
    for violation in violations.drain(..) {
        if !told.contains(&violation) {
            told.push(violation);
        }
    }
    *violations = told;
}

/// Names stand between backticks in messages.
fn reworded(message: &str, down: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(message.len());
    for (place, part) in message.split('`').enumerate() {
        if place > 0 {
            out.push('`');
        }
        match place % 2 {
            1 => out.push_str(&down(part)),
            _ => out.push_str(part),
        }
    }
    out
}

/// What this version shows of a kept value; nothing where more than that value would be shown.
fn shown(lens: &Lens, kept: &str, value: Value) -> Option<Value> {
    let name = lens.name_down(kept);
    let Some(line) = lens.lines.iter().find(|line| line.name == name) else {
        // A member that moved is no field; what was converted, too, cannot be taken back here.
        let lift = lens.lifts.iter().find(|lift| lift.field.name == kept);
        return lift.is_none_or(|lift| lift.expr.is_plain()).then_some(value);
    };
    match line.expr.converted() {
        Some(only) if only == kept => Some(show_one(&line.expr, kept, &value)),
        _ => None,
    }
}
