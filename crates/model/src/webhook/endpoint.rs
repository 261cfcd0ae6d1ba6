//! An endpoint: the settings of a record of `webhook-endpoints` for deliveries, and the values that
//! such a record must not have. Checks only the spelling of names; other code resolves them.

use super::{Reach, filter, pattern, url};
use crate::caller::Scope;
use crate::outgoing::{MAX_HEADERS_BYTES, check_header_name, check_header_value, check_secret};
use crate::problem::{Code, Violation};
use crate::record::{Fields, Record};
use crate::schema::Schema;
use crate::schema::expression::{Complaint, Expression};
use crate::time::Timestamp;
use serde_json::{Map, Value};
use std::time::Duration;

/// Secrets that sign at a time, the newest included: every one costs each delivery a hash.
pub const MAX_SECRETS: usize = 5;
/// Longest wait in a retry schedule: a week.
pub const MAX_RETRY_SECONDS: i64 = 604_800;
/// Events show this in place of the value of a header.
const MASK: &str = "********";

#[derive(Clone, Debug)]
pub struct Endpoint {
    pub id: String,
    /// Row number: the place in the log where its life begins.
    pub number: i64,
    pub scope: Scope,
    pub url: String,
    pub enabled_events: Vec<String>,
    /// Version of the payloads, where the endpoint says.
    pub api_version: Option<String>,
    pub thin: bool,
    /// One that is no expression any more lets nothing pass.
    pub filter: Option<Result<Expression, String>>,
    pub headers: Vec<(String, String)>,
    pub rate_limit: Option<u32>,
    pub max_in_flight: usize,
    pub plain_signature: bool,
    /// Seconds to wait after each failure.
    pub retry_schedule: Vec<u32>,
    pub timeout: Duration,
    /// Events of one resource one after the other.
    pub ordered: bool,
    pub enabled: bool,
    pub failing_since: Option<Timestamp>,
    pub secret: String,
    /// Each signs too until its time is over.
    pub previous_secrets: Vec<(String, Timestamp)>,
}

impl Endpoint {
    /// Reads a stored record, write-only fields included.
    pub fn read(scope: Scope, record: &Record) -> Endpoint {
        let fields = record.fields();
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        let is = |name: &str, word: &str| fields.get(name).is_some_and(|value| value == word);
        let list = |name: &str| fields.get(name).and_then(Value::as_array);
        let instant = |name: &str| text(name).and_then(|text| Timestamp::parse(&text));
        let strings = |values: &Vec<Value>| -> Vec<String> {
            values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let headers = fields.get("headers").and_then(Value::as_object);
        let pairs = |map: &Map<String, Value>| -> Vec<(String, String)> {
            map.iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect()
        };
        let seconds = |values: &Vec<Value>| -> Vec<u32> {
            values.iter().filter_map(|value| u32::try_from(value.as_u64()?).ok()).collect()
        };
        Endpoint {
            id: record.id.clone(),
            number: record.number,
            scope,
            url: text("url").unwrap_or_default(),
            enabled_events: list("enabled_events").map(strings).unwrap_or_default(),
            api_version: text("api_version"),
            thin: is("payload", "thin"),
            filter: fields.get("filter").filter(|filter| !filter.is_null()).map(stored_filter),
            headers: headers.map(pairs).unwrap_or_default(),
            rate_limit: count("rate_limit").and_then(|limit| u32::try_from(limit).ok()),
            max_in_flight: count("max_in_flight").map_or(20, |most| most.clamp(1, 100) as usize),
            plain_signature: is("signature", "plain"),
            retry_schedule: list("retry_schedule").map(seconds).unwrap_or_default(),
            timeout: Duration::from_secs(count("timeout").unwrap_or(20).clamp(5, 30)),
            ordered: is("ordering", "resource"),
            enabled: is("status", "enabled"),
            failing_since: instant("failing_since"),
            secret: text("secret").unwrap_or_default(),
            previous_secrets: previous_secrets(&fields),
        }
    }

    /// Whether it subscribed to this type. Its filter has the last word, see `passes`.
    pub fn wants(&self, kind: &str) -> bool {
        self.enabled_events.iter().any(|wanted| pattern::matches(wanted, kind))
    }

    /// Whether its filter lets an event pass; a filter that cannot be evaluated says why.
    pub fn passes(&self, envelope: &Map<String, Value>) -> Result<bool, String> {
        match &self.filter {
            None => Ok(true),
            Some(Err(why)) => Err(why.clone()),
            Some(Ok(filter)) => filter.admits("event", envelope).map_err(|fault| fault.reason),
        }
    }
}

/// A filter that is no text lets nothing pass, like one that is no expression.
fn stored_filter(stored: &Value) -> Result<Expression, String> {
    let text = stored.as_str().ok_or_else(|| "the stored filter is not a text".to_owned())?;
    Expression::compile(text).map_err(|complaint| complaint.message)
}

/// The fields of an endpoint as events show them. The values of its headers are masked: many are
/// credentials of the receiver, and a reader of events need not be a reader of endpoints.
pub fn masked(mut fields: Fields) -> Fields {
    if let Some(Value::Object(headers)) = fields.get_mut("headers") {
        headers.values_mut().for_each(|value| *value = Value::from(MASK));
    }
    fields
}

/// The secrets before the newest, each with the end of its overlap, passed or not.
pub fn previous_secrets(fields: &Fields) -> Vec<(String, Timestamp)> {
    let pair = |secret: Option<&Value>, until: Option<&Value>| {
        Some((secret?.as_str()?.to_owned(), Timestamp::parse(until?.as_str()?)?))
    };
    let several = fields.get("previous_secrets").and_then(Value::as_array).into_iter().flatten();
    let single = pair(fields.get("previous_secret"), fields.get("previous_secret_expires_at"));
    several
        .filter_map(|kept| pair(kept.get("secret"), kept.get("expires_at")))
        .chain(single)
        .collect()
}

/// Everything wrong with an endpoint's fields beyond their types.
pub fn check(schema: &Schema, fields: &Fields) -> Vec<Violation> {
    let mut found = Vec::new();
    let reach = match schema.webhooks.development {
        true => Reach::Development,
        false => Reach::Public,
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let mut say = |name: &str, code: Code, message: String| {
        let violation = Violation::new(name, code, format!("`{name}`: {message}."));
        found.push(match fields.get(name) {
            Some(value) if name != "secret" => violation.value(value),
            _ => violation,
        });
    };
    if let Some(Err(why)) = text("url").map(|text| url::check(text, reach)) {
        say("url", Code::Unsuitable, why.trim_end_matches('.').to_owned());
    }
    for kind in fields.get("enabled_events").and_then(Value::as_array).into_iter().flatten() {
        if let Err(why) = pattern::check(schema, kind.as_str().unwrap_or_default()) {
            say("enabled_events", Code::NotInEnum, why);
        }
    }
    let known = || schema.versions.iter().map(|version| version.date.as_str());
    if let Some(version) = text("api_version").filter(|wanted| known().all(|one| one != *wanted)) {
        let known = known().collect::<Vec<_>>().join(", ");
        say("api_version", Code::NotInEnum, format!("`{version}` is none; known are: {known}"));
    }
    for Complaint { at, message } in check_filter(schema, fields) {
        let (line, column) = position(text("filter").unwrap_or_default(), at);
        say("filter", Code::Unsuitable, format!("{line}:{column}: {message}"));
    }
    let headers = fields.get("headers").and_then(Value::as_object);
    if let Some(Err(why)) = headers.map(check_headers) {
        say("headers", Code::Unsuitable, why);
    }
    for wait in fields.get("retry_schedule").and_then(Value::as_array).into_iter().flatten() {
        if !wait.as_i64().is_some_and(|wait| (1..=MAX_RETRY_SECONDS).contains(&wait)) {
            let range = format!("each wait is 1 to {MAX_RETRY_SECONDS} seconds");
            say("retry_schedule", Code::TooLarge, range);
            break;
        }
    }
    if let Some(Err(why)) = text("secret").map(check_secret) {
        say("secret", Code::Unsuitable, why.to_owned());
    }
    found
}

/// The faults of the filter, by place. It is a condition over the events that the endpoint
/// subscribes to, in its version.
fn check_filter(schema: &Schema, fields: &Fields) -> Vec<Complaint> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let Some(filter) = text("filter") else { return Vec::new() };
    let filter = match Expression::compile(filter) {
        Ok(filter) => filter,
        Err(complaint) => return vec![complaint],
    };
    let patterns = fields.get("enabled_events").and_then(Value::as_array);
    let patterns: Vec<&str> = patterns.into_iter().flatten().filter_map(Value::as_str).collect();
    let scope = filter::scope(schema, &patterns, text("api_version"));
    filter.check_condition(&scope).err().unwrap_or_default()
}

/// Line and column of a byte offset, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let found = crate::schema::Diagnostic::at(text, at, "");
    (found.line, found.column)
}

/// The secret of a rotation.
pub fn check_secret_of(fields: &Fields) -> Vec<Violation> {
    let secret = fields.get("secret").and_then(Value::as_str).unwrap_or_default();
    let wrong = |why| Violation::new("secret", Code::Unsuitable, format!("`secret`: {why}."));
    check_secret(secret).err().map(wrong).into_iter().collect()
}

fn check_headers(headers: &Map<String, Value>) -> Result<(), String> {
    let mut bytes = 0;
    for (name, value) in headers {
        check_header_name(name)?;
        let Some(text) = value.as_str() else {
            let shown: String = name.chars().take(60).collect();
            return Err(format!("the value of `{shown}` must be text"));
        };
        check_header_value(name, text)?;
        bytes += name.len() + text.len();
    }
    if bytes > MAX_HEADERS_BYTES {
        return Err(format!("all together have at most {MAX_HEADERS_BYTES} bytes"));
    }
    Ok(())
}
