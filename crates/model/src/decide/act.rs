//! Actions and timed transitions: the state machine, its guards, what they set and what they
//! refuse.

use super::{Decision, ResponseKind, Stage, change, outcome, own};
use crate::problem::{Code, Problem};
use crate::record::Fields;
use crate::schema::rule::{Expression, Fault, Inputs, Rule, Template};
use crate::schema::{Action, Assignment, Field, Kind, Timed};
use crate::validate::{self, ASSIGNED};
use crate::write::{Callout, Change};
use serde_json::Value;

pub fn act(
    stage: &Stage<'_>,
    action: &Action,
    params: &Fields,
    callout: Option<&Callout>,
) -> Result<Decision, Problem> {
    refuse_wrong_state(stage, action)?;
    if let Some(native) = action.native {
        return own::act(stage, native, params);
    }
    let inputs = Inputs {
        record: &record_scene(stage),
        request: &complete(
            action.params.iter().map(|field| field.name.as_str()),
            &action.params,
            params,
        ),
        client: stage.write.cause.client,
        now: stage.facts.now.to_iso(),
    };
    for rule in &action.rules {
        if rule.when.holds(&inputs).map_err(|fault| rule_failed(action, &rule.when, &fault))? {
            return refuse(stage, rule, &inputs);
        }
    }
    let mut after = stage.before.clone();
    assign(stage, &mut after, &action.set, &inputs)?;
    match callout {
        Some(Callout::Refuse(problem)) => {
            return Ok(outcome::nothing(ResponseKind::Refused(problem.clone())));
        }
        Some(Callout::Change(fields)) => apply_callout(stage, &mut after, fields)?,
        None => {}
    }
    enter(stage, &mut after, action.to.as_deref());
    Ok(outcome::changed(stage, after, &action.event, ResponseKind::Updated))
}

/// Happens only if the record is still in the state whose time ran out.
pub fn timed(stage: &Stage<'_>, timed: &Timed) -> Result<Decision, Problem> {
    if outcome::state(stage.collection, &stage.before) != Some(timed.from.as_str()) {
        return Ok(change::unchanged());
    }
    let inputs = Inputs {
        record: &record_scene(stage),
        request: &Fields::new(),
        client: None,
        now: stage.facts.now.to_iso(),
    };
    let mut after = stage.before.clone();
    assign(stage, &mut after, &timed.set, &inputs)?;
    enter(stage, &mut after, Some(&timed.to));
    Ok(outcome::changed(stage, after, &timed.event, ResponseKind::Updated))
}

/// A record whose state is unknown has no state that `from` lists.
fn refuse_wrong_state(stage: &Stage<'_>, action: &Action) -> Result<(), Problem> {
    let Some(states) = &stage.collection.states else { return Ok(()) };
    let state = outcome::state(stage.collection, &stage.before);
    let allows = |action: &Action| {
        action.from.is_empty() || action.from.iter().any(|one| state == Some(one.as_str()))
    };
    if allows(action) {
        return Ok(());
    }
    let allowed: Vec<Value> = stage
        .collection
        .actions
        .iter()
        .filter(|action| allows(action))
        .map(|action| Value::String(action.name.clone()))
        .collect();
    let object = &stage.collection.object;
    let message = match state {
        Some(state) => action.wrong_state(object, state),
        None => format!("`{}` is not possible: the {object} has no known state.", action.name),
    };
    Err(Problem::new(Code::InvalidState, message)
        .param(states.field.as_str())
        .extra("current_state", state)
        .extra("allowed", allowed))
}

/// A declared refusal. It may still set fields, move the state and emit an event: a declined card
/// leaves a trace.
fn refuse(stage: &Stage<'_>, rule: &Rule, inputs: &Inputs<'_>) -> Result<Decision, Problem> {
    let problem = rule.refusal();
    if rule.set.is_empty() && rule.to.is_none() && rule.event.is_none() {
        return Ok(outcome::nothing(ResponseKind::Refused(problem)));
    }
    let mut after = stage.before.clone();
    assign(stage, &mut after, &rule.set, inputs)?;
    enter(stage, &mut after, rule.to.as_deref());
    let kind = rule.event.as_deref().unwrap_or(&stage.collection.events.updated);
    Ok(outcome::changed(stage, after, kind, ResponseKind::Refused(problem)))
}

/// A guard that cannot be evaluated guards nothing, so it refuses. The client is not to blame.
fn rule_failed(action: &Action, when: &Expression, fault: &Fault) -> Problem {
    let message =
        format!("A rule of `{}` could not be evaluated; nothing was changed.", action.name);
    Problem::new(Code::RuleFailed, message).cause(in_schema(when, fault))
}

fn not_computed(field: &str, value: &Template, fault: &Fault) -> Problem {
    let message = format!("`{field}` could not be computed; nothing was changed.");
    let cause = match value {
        Template::Computed(expression) => in_schema(expression, fault),
        Template::Fixed(_) => fault.to_string(),
    };
    Problem::new(Code::RuleFailed, message).param(field).cause(cause)
}

/// For the log: the place of the expression in the file, its text and its fault.
fn in_schema(expression: &Expression, fault: &Fault) -> String {
    format!("schema file:{fault}: `{}`", expression.text)
}

fn enter(stage: &Stage<'_>, after: &mut Fields, to: Option<&str>) {
    if let (Some(states), Some(to)) = (&stage.collection.states, to) {
        after.insert(states.field.clone(), Value::String(to.to_owned()));
    }
}

fn assign(
    stage: &Stage<'_>,
    after: &mut Fields,
    set: &[Assignment],
    inputs: &Inputs<'_>,
) -> Result<(), Problem> {
    let held_to = stage.write.held_to(stage.collection);
    // A transition has no caller: what clients of any version may have written is taken.
    let excused = |field: &Field, code: Code| {
        let timed = matches!(stage.write.change, Change::Timed { .. });
        timed && field.outgrown && code.is_limit()
    };
    let mut violations = Vec::new();
    for assignment in set {
        let failed = |fault: Fault| not_computed(&assignment.field, &assignment.value, &fault);
        let mut value = assignment.value.value(inputs).map_err(failed)?;
        if value.is_null() && stage.collection.field(&assignment.field).is_some_and(|f| f.required)
        {
            return Err(failed(
                assignment.value.fault("the value is null, and the field required"),
            ));
        }
        if let Some(field) = held_to.field(&assignment.field)
            && !value.is_null()
            && stage.before.get(&assignment.field) != Some(&value)
            && let Err(violation) = validate::value(field, &mut value)
            && !excused(field, violation.code)
        {
            violations.push(violation);
        }
        after.insert(assignment.field.clone(), value);
    }
    if violations.is_empty() {
        return Ok(());
    }
    for violation in &mut violations {
        stage.write.reword(violation, after);
    }
    Err(Problem::of(Code::ValidationFailed, violations))
}

/// A handler may set what `set` may: any declared field but the state, the parent and what the
/// service assigns. Anything else, and any value that does not fit, is the handler's fault.
fn apply_callout(stage: &Stage<'_>, after: &mut Fields, change: &Fields) -> Result<(), Problem> {
    for (name, value) in change {
        let fault = |what: String| {
            let message = format!(
                "The action's handler gave an answer that cannot be used: {what} Nothing was \
                 changed."
            );
            Problem::new(Code::HandlerInvalid, message.clone()).cause(message)
        };
        let shown: String = name.chars().take(100).collect();
        let unchanged = stage.before.get(name) == Some(value);
        let states = stage.collection.states.as_ref();
        if states.is_some_and(|states| states.field == *name) {
            return Err(fault(format!("`{shown}` is the state, which `to` of the action sets.")));
        }
        let parent = stage.schema.parent_field(stage.write.collection);
        if ASSIGNED.contains(&name.as_str()) || parent == Some(name.as_str()) {
            return Err(fault(format!("`{shown}` is assigned by the service.")));
        }
        let held_to = stage.write.held_to(stage.collection);
        let field = held_to.field(name).filter(|field| field.alias_of.is_none());
        let field = field.ok_or_else(|| fault(format!("`{shown}` is no field.")))?;
        let mut value = value.clone();
        if value.is_null() {
            if field.required {
                return Err(fault(format!("`{name}` is required.")));
            }
        } else if !unchanged {
            // Clients of other versions may have written values beyond a limit.
            validate::value(field, &mut value).map_err(|violation| fault(violation.message))?;
        }
        after.insert(name.clone(), value);
    }
    Ok(())
}

fn record_scene(stage: &Stage<'_>) -> Fields {
    let fields = stage.collection.fields.iter().map(|field| field.name.as_str());
    let names = stage.collection.public_names().chain(fields);
    complete(names, &stage.collection.fields, &stage.before)
}

/// Missing keys are errors in CEL, so every known name is present, and null if unset. CEL does not
/// multiply 2 by 1.5 either, so a `number` is a `double`, even if it is stored as a whole number.
fn complete<'a>(
    names: impl Iterator<Item = &'a str>,
    declared: &[Field],
    fields: &Fields,
) -> Fields {
    let mut all: Fields = names.map(|name| (name.to_owned(), Value::Null)).collect();
    all.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    for field in declared {
        if let Some(value) = all.get_mut(&field.name) {
            with_fractions(&field.kind, value);
        }
    }
    all
}

fn with_fractions(kind: &Kind, value: &mut Value) {
    match (kind, &mut *value) {
        (Kind::Number, Value::Number(number)) => {
            if let Some(float) = number.as_f64() {
                *value = Value::from(float);
            }
        }
        (Kind::Array(item), Value::Array(items)) => {
            items.iter_mut().for_each(|value| with_fractions(item, value));
        }
        _ => {}
    }
}
