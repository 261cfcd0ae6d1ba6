//! Reads one rule: when it refuses an action, what it answers and what it changes in the record.
//! Knows the action's collection through `Host`.

use super::behaviour::{self, Host};
use super::expression;
use super::reader::{self, Report, Table};
use super::{keys, naming};
use crate::schema::Rule;
use serde_json::{Map, Value};

/// A refusal is the caller's to mend; 5xx would blame the service and be retried.
const STATUS: std::ops::RangeInclusive<i64> = 400..=499;

/// The request was understood and cannot be carried out as it is.
const STATUS_DEFAULT: u16 = 422;
const KIND_DEFAULT: &str = "invalid_request_error";
const CODE_DEFAULT: &str = "guard_failed";

/// Members of every error body, which `extra` may not replace.
const MEMBERS: &[&str] =
    &["type", "code", "message", "param", "value", "doc_url", "request_id", "errors"];

pub(super) fn read(
    report: &mut Report<'_>,
    table: &Table<'_>,
    host: &Host<'_>,
    kinds: &mut Vec<(String, usize)>,
) -> Option<Rule> {
    table.allow(report, keys::RULE);
    let when = table.need_text(report, "when");
    let when = when.and_then(|text| expression::compile(report, text));
    let message = table.need_text(report, "message");
    let status = table.integer(report, "status", STATUS);
    let word = |report: &mut Report<'_>, key: &str, default: &str| {
        let Some(text) = table.text(report, key) else { return default.to_owned() };
        if !naming::is_snake(text.value) {
            report
                .say(text.at, format!("`{key}` must be in snake_case, such as \"card_declined\""));
        }
        text.value.to_owned()
    };
    let kind = word(report, "type", KIND_DEFAULT);
    let code = word(report, "code", CODE_DEFAULT);
    let extra = read_extra(report, table);
    let set = behaviour::read_set(report, table, host);
    let to = behaviour::read_state(report, table, "to", host);
    let event = read_event(report, table, kinds);
    Some(Rule {
        when: when?,
        status: status.and_then(|status| u16::try_from(status).ok()).unwrap_or(STATUS_DEFAULT),
        kind,
        code,
        message: message?.value.to_owned(),
        param: table.owned_text(report, "param"),
        extra,
        set,
        to,
        event,
    })
}

/// Each change has its event and each event its change; a rule must say both or neither.
fn read_event(
    report: &mut Report<'_>,
    table: &Table<'_>,
    kinds: &mut Vec<(String, usize)>,
) -> Option<String> {
    let changes = ["set", "to"].into_iter().find_map(|key| table.key_at(key));
    match (table.key_at("event"), changes) {
        (None, Some(at)) => {
            report.say(at, "a rule that changes the record must name the `event` that reports it");
        }
        (Some(at), None) => {
            report.say(at, "`event` reports a change; add `set` or `to`, or remove it");
        }
        _ => {}
    }
    table.get("event")?;
    let (event, at) = behaviour::event(report, table, "", "event", String::new());
    // Not a string: reported already, and nothing to compare.
    if !event.is_empty() {
        kinds.push((event.clone(), at));
    }
    Some(event)
}

fn read_extra(report: &mut Report<'_>, table: &Table<'_>) -> Map<String, Value> {
    let mut found = Map::new();
    let Some(extra) = table.table(report, "extra", "`extra`".to_owned()) else { return found };
    for (name, value) in &extra.entries {
        if MEMBERS.contains(&name.value) {
            report.say(
                name.at,
                format!("`{}` is a member of every error body; choose another name", name.value),
            );
        } else if !naming::is_snake(name.value) {
            report.say(name.at, format!("`{}` must be in snake_case", name.value));
        }
        if let Some(json) = reader::json(report, value) {
            found.insert(name.value.to_owned(), json);
        }
    }
    found
}
