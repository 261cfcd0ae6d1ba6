//! Reads what records of a collection do: actions, their rules, and timed transitions. Knows one
//! collection, its fields and states, and the names of its children.

use super::expression;
use super::field::{self, Targets};
use super::field_check;
use super::reader::{self, Report, Table, Text};
use super::{keys, naming, refusal, states};
use crate::outgoing;
use crate::schema::rule::Template;
use crate::schema::{
    Action, Assignment, Collection, CollectionIx, Field, Handler, Setting, States, Timed,
};
use crate::spelling;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Most actions of a collection, parameters of an action, rules of an action, timed transitions.
const ACTIONS: usize = 32;
const PARAMS: usize = 32;
const RULES: usize = 32;
const TIMED: usize = 32;

const AFTER: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(365 * 86_400);

/// Shorter is no network call; longer, and the caller of the action has given up.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// An event type and the place that brings it into being.
pub(super) struct NamedEvent {
    pub kind: String,
    pub at: usize,
    pub collection: CollectionIx,
}

/// The declarations that the parts of a behaviour are checked against.
pub(super) struct Host<'a> {
    pub object: &'a str,
    pub fields: &'a [Field],
    /// The reference to the parent, which nothing may change.
    pub parent_field: Option<&'a str>,
    pub states: Option<&'a States>,
}

pub(super) fn read(
    report: &mut Report<'_>,
    table: &Table<'_>,
    collection: &mut Collection,
    children: &[&str],
    ix: CollectionIx,
    named: &mut Vec<NamedEvent>,
) {
    let first = collection.fields.first().filter(|_| collection.parent.is_some());
    let host = Host {
        object: &collection.object,
        fields: &collection.fields,
        parent_field: first.map(|field| field.name.as_str()),
        states: collection.states.as_ref(),
    };
    let mut kinds = Vec::new();
    let actions = read_actions(report, table, &host, children, &mut kinds);
    let timed = read_timed(report, table, &host, &mut kinds);
    named.extend(kinds.into_iter().map(|(kind, at)| NamedEvent { kind, at, collection: ix }));
    collection.actions = actions;
    collection.timed = timed;
}

fn read_actions(
    report: &mut Report<'_>,
    table: &Table<'_>,
    host: &Host<'_>,
    children: &[&str],
    kinds: &mut Vec<(String, usize)>,
) -> Vec<Action> {
    let what = format!("the actions of {}", table.what);
    let Some(actions) = table.table(report, "actions", what) else { return Vec::new() };
    if actions.entries.len() > ACTIONS {
        report.say(actions.at, format!("a collection has at most {ACTIONS} actions"));
    }
    let mut found = Vec::new();
    for (name, value) in actions.entries.iter().take(ACTIONS) {
        if !naming::is_path_segment(name.value) {
            report.say(
                name.at,
                format!(
                    "the action name `{}` must be lower-case words joined by single hyphens",
                    name.value
                ),
            );
        }
        if children.contains(&name.value) {
            report.say(
                name.at,
                format!("`{}` is a child collection already; one path cannot be both", name.value),
            );
        }
        let Some(inner) = value.get_ref().as_table() else {
            reader::expected(report, value, name.value, "a table");
            continue;
        };
        let action = Table::new(format!("action `{}`", name.value), name.at, inner);
        found.push(read_action(report, *name, &action, host, kinds));
    }
    found
}

fn read_action(
    report: &mut Report<'_>,
    name: Text<'_>,
    table: &Table<'_>,
    host: &Host<'_>,
    kinds: &mut Vec<(String, usize)>,
) -> Action {
    table.allow(report, keys::ACTION);
    let params = read_params(report, table);
    let mut rules = Vec::new();
    let listed = table.tables(report, "rules", "rule");
    if listed.len() > RULES {
        report.say(table.value_at("rules"), format!("an action has at most {RULES} rules"));
    }
    for rule in listed.iter().take(RULES) {
        rules.extend(refusal::read(report, rule, host, kinds));
    }
    let to = read_state(report, table, "to", host);
    let default = default_event(host, to.as_deref(), &name.value.replace('-', "_"));
    let (event, at) = event(report, table, "action ", "event", default);
    kinds.push((event.clone(), at));
    Action {
        name: name.value.to_owned(),
        description: table.owned_text(report, "description"),
        from: read_from(report, table, host),
        to,
        set: read_set(report, table, host),
        rules,
        event,
        handler: read_handler(report, table),
        native: None,
        params,
    }
}

/// The event type of a transition is named after the state that it leads to, whether an action or a
/// timer makes it. A state whose name is that of another change, such as `created`, names no event
/// type: consumers could not distinguish the two.
fn default_event(host: &Host<'_>, to: Option<&str>, otherwise: &str) -> String {
    let taken = ["created", "updated", "deleted"];
    let name = to.filter(|to| !taken.contains(to)).unwrap_or(otherwise);
    format!("{}.{name}", host.object)
}

fn read_params(report: &mut Report<'_>, table: &Table<'_>) -> Vec<Field> {
    let what = format!("the params of {}", table.what);
    let Some(params) = table.table(report, "params", what) else { return Vec::new() };
    if params.entries.len() > PARAMS {
        report.say(params.at, format!("an action has at most {PARAMS} params"));
    }
    let targets = Targets { names: &[], feeds: &[] };
    let mut found = Vec::new();
    for (name, value) in params.entries.iter().take(PARAMS) {
        check_param_name(report, *name);
        found.push(field::read(report, *name, value, &targets, keys::PARAM));
    }
    found
}

/// Says why a parameter cannot have this name. It is sent in a body and never filtered by, so the
/// names that lists take for themselves are free.
pub(super) fn check_param_name(report: &mut Report<'_>, name: Text<'_>) {
    if !naming::is_snake(name.value) {
        report.say(name.at, format!("the parameter `{}` must be in snake_case", name.value));
    }
}

/// One state or a list of them.
fn read_from(report: &mut Report<'_>, table: &Table<'_>, host: &Host<'_>) -> Vec<String> {
    let Some(value) = table.get("from") else { return Vec::new() };
    let listed = match reader::text(value) {
        Some(single) => vec![single],
        None => table.texts(report, "from").unwrap_or_default(),
    };
    if value.get_ref().as_array().is_some_and(|list| list.is_empty()) {
        report.say(
            value.span().start,
            "`from` must name at least one state; leave it out to allow all",
        );
    }
    let mut found: Vec<String> = Vec::new();
    for state in listed {
        states::check(report, host.states, state);
        if found.iter().any(|earlier| earlier == state.value) {
            report.say(state.at, format!("`{}` stands twice in `from`", state.value));
        } else {
            found.push(state.value.to_owned());
        }
    }
    found
}

pub(super) fn read_state(
    report: &mut Report<'_>,
    table: &Table<'_>,
    key: &str,
    host: &Host<'_>,
) -> Option<String> {
    let state = table.text(report, key)?;
    states::check(report, host.states, state);
    Some(state.value.to_owned())
}

/// Fields to set, in file order. A string that begins with `=` is computed.
pub(super) fn read_set(
    report: &mut Report<'_>,
    table: &Table<'_>,
    host: &Host<'_>,
) -> Vec<Assignment> {
    let what = format!("`set` of {}", table.what);
    let Some(set) = table.table(report, "set", what) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in &set.entries {
        let Some(field) = settable(report, *name, host) else { continue };
        let computed = reader::text(value)
            .and_then(|text| Some(Text { value: text.value.strip_prefix('=')?, at: text.at }));
        let template = match computed {
            Some(text) => expression::compile(report, text).map(Template::Computed),
            None => reader::json(report, value).and_then(|json| {
                let fits = field_check::conforms(field, &json);
                if let Err(reason) = &fits {
                    report
                        .say(value.span().start, format!("the value of `{}` {reason}", name.value));
                }
                fits.ok().map(|()| Template::Fixed(field::normal(&field.kind, json)))
            }),
        };
        found.extend(template.map(|value| Assignment { field: name.value.to_owned(), value }));
    }
    found
}

fn settable<'h>(report: &mut Report<'_>, name: Text<'_>, host: &Host<'h>) -> Option<&'h Field> {
    if host.states.is_some_and(|states| states.field == name.value) {
        report.say(name.at, format!("`{}` is the state; change it with `to`", name.value));
        return None;
    }
    if host.parent_field == Some(name.value) || naming::ASSIGNED.contains(&name.value) {
        report
            .say(name.at, format!("`{}` is assigned by the service; it cannot be set", name.value));
        return None;
    }
    let found = host.fields.iter().find(|field| field.name == name.value);
    if found.is_none() {
        let hint = spelling::hint(name.value, host.fields.iter().map(|field| field.name.as_str()));
        report.say(name.at, format!("`{}` is not declared in fields{hint}", name.value));
    }
    found
}

/// The event type under `key`, or the default, and where it comes from.
pub(super) fn event(
    report: &mut Report<'_>,
    table: &Table<'_>,
    what: &str,
    key: &str,
    default: String,
) -> (String, usize) {
    let Some(text) = table.text(report, key) else { return (default, table.at) };
    if !naming::is_event_type(text.value) {
        report.say(
            text.at,
            format!(
                "the {what}event type `{}` must be lower-case words joined by dots, such as \
                 \"order.cancelled\"",
                text.value
            ),
        );
    }
    (text.value.to_owned(), text.at)
}

fn read_handler(report: &mut Report<'_>, table: &Table<'_>) -> Option<Handler> {
    let value = table.get("handler")?;
    let (url, timeout, secret, headers) = match reader::text(value) {
        Some(url) => (url, TIMEOUT_DEFAULT, None, Vec::new()),
        None => {
            let handler = table.table(report, "handler", "`handler`".to_owned())?;
            handler.allow(report, keys::HANDLER);
            let timeout = handler.duration(report, "timeout", TIMEOUT);
            let (secret, headers) = (read_secret(report, &handler), read_headers(report, &handler));
            let url = handler.need_text(report, "url")?;
            (url, timeout.unwrap_or(TIMEOUT_DEFAULT), secret, headers)
        }
    };
    let rest = url.value.strip_prefix("http://").or_else(|| url.value.strip_prefix("https://"));
    let has_host =
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#']));
    if !has_host || url.value.len() > 2000 || !url.value.bytes().all(|b| b.is_ascii_graphic()) {
        report.say(url.at, "the handler must be an http:// or https:// URL with a host");
    }
    Some(Handler { url: url.value.to_owned(), timeout, secret, headers })
}

/// The secret itself does not belong in the file, which others can read.
fn read_secret(report: &mut Report<'_>, handler: &Table<'_>) -> Option<Setting> {
    let text = handler.text(report, "secret")?;
    match Setting::new(text.value) {
        Ok(setting) if setting.is_reference() => return Some(setting),
        Ok(_) => report.say(
            text.at,
            "`secret` must name an environment variable, such as \"${HANDLER_SECRET}\"; a secret \
             does not belong in the file",
        ),
        Err(why) => report.say(text.at, format!("`secret`: {why}")),
    }
    None
}

fn read_headers(report: &mut Report<'_>, handler: &Table<'_>) -> Vec<(String, Setting)> {
    let what = "`headers` of the handler".to_owned();
    let Some(headers) = handler.table(report, "headers", what) else { return Vec::new() };
    let mut found: Vec<(String, Setting)> = Vec::new();
    for (name, value) in &headers.entries {
        let lower = name.value.to_ascii_lowercase();
        if let Err(why) = outgoing::check_header_name(name.value) {
            report.say(name.at, why);
        } else if lower == "idempotency-key" {
            report.say(name.at, format!("`{}` is set by the service; choose another", name.value));
        } else if found.iter().any(|(known, _)| known.eq_ignore_ascii_case(&lower)) {
            report.say(name.at, format!("`{}` stands twice in `headers`", name.value));
        }
        let Some(text) = reader::text(value) else {
            reader::expected(report, value, name.value, "a string");
            continue;
        };
        let setting = outgoing::check_header_value(name.value, text.value)
            .and_then(|()| Setting::new(text.value));
        match setting {
            Ok(setting) => found.push((name.value.to_owned(), setting)),
            Err(why) => report.say(text.at, why),
        }
    }
    let bytes: usize = headers.entries.iter().map(|(name, _)| name.value.len()).sum();
    if bytes > outgoing::MAX_HEADERS_BYTES {
        let most = outgoing::MAX_HEADERS_BYTES;
        report.say(headers.at, format!("all headers together have at most {most} bytes"));
    }
    found
}

fn read_timed(
    report: &mut Report<'_>,
    table: &Table<'_>,
    host: &Host<'_>,
    kinds: &mut Vec<(String, usize)>,
) -> Vec<Timed> {
    let listed = table.tables(report, "timed", "timed transition");
    if listed.len() > TIMED {
        report.say(
            table.value_at("timed"),
            format!("a collection has at most {TIMED} timed transitions"),
        );
    }
    let mut found = Vec::new();
    for timed in listed.iter().take(TIMED) {
        timed.allow(report, keys::TIMED);
        for key in ["from", "to", "after"] {
            if timed.get(key).is_none() {
                report.say(timed.at, format!("{} needs `{key}`", timed.what));
            }
        }
        let from = read_state(report, timed, "from", host);
        let to = read_state(report, timed, "to", host);
        if from.is_some() && from == to {
            report.say(timed.value_at("to"), "a timed transition must lead to another state");
        }
        let after = timed.duration(report, "after", AFTER);
        let default = default_event(host, to.as_deref(), "timed");
        let (event, at) = event(report, timed, "", "event", default);
        kinds.push((event.clone(), at));
        let set = read_set(report, timed, host);
        if let (Some(from), Some(to), Some(after)) = (from, to, after) {
            found.push(Timed { from, to, after, set, event });
        }
    }
    found
}
