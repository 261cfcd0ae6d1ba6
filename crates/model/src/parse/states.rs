//! Reads the states of a collection and makes the field that holds them. Knows no actions.

use super::naming;
use super::reader::{Node, Report, Table, Text};
use super::{field, keys};
use crate::schema::{Field, Kind, States};
use crate::spelling;

/// Most states of a collection.
const STATES: usize = 64;

pub(super) fn read(report: &mut Report<'_>, collection: &Table<'_>) -> Option<States> {
    let what = format!("the states of {}", collection.what);
    let table = collection.table(report, "states", what)?;
    table.allow(report, keys::STATES);
    let field = match table.text(report, "field") {
        Some(text) => {
            field::check_name(report, text);
            text.value.to_owned()
        }
        None => "status".to_owned(),
    };
    if table.get("names").is_none() {
        report.say(table.at, format!("{} needs `names`, the list of states", table.what));
    }
    let listed = table.texts(report, "names").unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    if table.get("names").is_some() && !(1..=STATES).contains(&listed.len()) {
        report.say(table.value_at("names"), format!("`names` must list 1 to {STATES} states"));
    }
    for text in listed.into_iter().take(STATES) {
        if !naming::is_snake(text.value) {
            report.say(
                text.at,
                format!(
                    "the state `{}` must be lower-case words joined by underscores",
                    text.value
                ),
            );
        }
        if names.iter().any(|name| name == text.value) {
            report.say(text.at, format!("the state `{}` stands twice; remove one", text.value));
        } else {
            names.push(text.value.to_owned());
        }
    }
    let first = names.first().cloned().unwrap_or_default();
    let mut states = States { field, initial: first, names };
    if let Some(initial) = table.text(report, "initial") {
        check(report, Some(&states), initial);
        states.initial = initial.value.to_owned();
    }
    Some(states)
}

/// Reports a `state` that is not declared.
pub(super) fn check(report: &mut Report<'_>, states: Option<&States>, state: Text<'_>) {
    let Some(states) = states else {
        report.say(state.at, "the collection declares no states; add a [….states] table");
        return;
    };
    // Without any name the list itself is wrong, which has been reported.
    if !states.names.is_empty() && !states.names.iter().any(|name| name == state.value) {
        let hint = spelling::hint(state.value, states.names.iter().map(String::as_str));
        report.say(
            state.at,
            format!("unknown state `{}`{hint}; states: {}", state.value, states.names.join(", ")),
        );
    }
}

/// The field of the state when the file does not declare it.
pub(super) fn field(states: &States) -> Field {
    let mut field = Field::new(&states.field, Kind::String);
    field.read_only = true;
    field.filter = true;
    field.choices = states.names.clone();
    field.description = Some("The state; changed by actions.".to_owned());
    field
}

/// The same, with what the file says about showing it.
pub(super) fn declared_field(
    report: &mut Report<'_>,
    name: Text<'_>,
    value: Node<'_>,
    states: &States,
) -> Field {
    let targets = field::Targets { names: &[], feeds: &[] };
    let declared = field::read(report, name, value, &targets, keys::STATE_FIELD);
    if declared.kind != Kind::String {
        report.say(name.at, format!("`{}` holds the state and must be a string", name.value));
    }
    let mut field = self::field(states);
    field.sort = declared.sort;
    if declared.description.is_some() {
        field.description = declared.description;
    }
    field.deprecated = declared.deprecated;
    let said = value.get_ref().as_table().and_then(|table| table.get("filter"));
    field.filter = said.is_none_or(|_| declared.filter);
    field
}
