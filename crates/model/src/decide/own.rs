//! The behaviour of the service's own collections beyond their fields: checks, pings and secrets of
//! endpoints, published events, bounds of replays.

use super::{Decision, Draft, Effect, Facts, ResponseKind, Stage, change, outcome};
use crate::id;
use crate::outgoing;
use crate::problem::{Code, Problem, Violation};
use crate::record::{Fields, push_json};
use crate::schema::{Builtin, Native, Schema};
use crate::time::Timestamp;
use crate::webhook::{endpoint, pattern};
use crate::write::Write;
use serde_json::{Value, json};

/// The second id drawn for an event of one write: the ping that follows a new endpoint.
const PING_DRAW: u32 = 2;

pub fn create(
    schema: &Schema,
    write: &Write,
    facts: &Facts<'_>,
    builtin: Builtin,
    fields: &Fields,
) -> Result<Decision, Problem> {
    match builtin {
        Builtin::Endpoint => {
            refuse(endpoint::check(schema, fields))?;
            let mut decision = change::create(schema, write, facts, fields);
            decision.reveal = reveal(fields);
            if let Some(created) = decision.events.first() {
                let object = created.object.clone();
                decision.events.push(ping(write, facts.now, PING_DRAW, object));
            }
            Ok(decision)
        }
        Builtin::Event => publish(schema, write, facts, fields),
        Builtin::Replay => {
            let mut fields = fields.clone();
            let until = fields.entry("until").or_insert(Value::Null);
            if until.is_null() {
                *until = Value::String(facts.now.to_iso());
            }
            refuse(check_replay(schema, &fields))?;
            Ok(change::create(schema, write, facts, &fields))
        }
        _ => Ok(change::create(schema, write, facts, fields)),
    }
}

/// Checks an endpoint as a PATCH would leave it. Fields that the PATCH does not change were valid
/// once. If the schema has changed since, that is no reason to refuse another change.
pub fn check_merged(schema: &Schema, patch: &Fields, after: &Fields) -> Result<(), Problem> {
    let mut found = endpoint::check(schema, after);
    // The fields that a filter can name depend on the subscribed event types.
    let retyped = ["enabled_events", "api_version"].iter().any(|name| patch.contains_key(*name));
    found.retain(|violation| {
        patch.contains_key(&violation.field) || retyped && violation.field == "filter"
    });
    if patch.contains_key("secret") {
        let message = "`secret` is changed by the action `rotate-secret`.";
        found.push(Violation::new("secret", Code::ReadOnly, message));
    }
    refuse(found)
}

pub fn act(stage: &Stage<'_>, native: Native, params: &Fields) -> Result<Decision, Problem> {
    match native {
        Native::Ping => {
            let object = outcome::shown(stage);
            let event = ping(stage.write, stage.facts.now, outcome::EVENT_DRAW, object);
            let mut decision = outcome::nothing(ResponseKind::Updated);
            decision.effect = Effect::Tell;
            decision.events.push(event);
            Ok(decision)
        }
        Native::RotateSecret => rotate(stage, params),
        Native::Retry => Ok(outcome::nothing(ResponseKind::Updated)),
    }
}

fn rotate(stage: &Stage<'_>, params: &Fields) -> Result<Decision, Problem> {
    let secret = params.get("secret").cloned().unwrap_or(Value::Null);
    let mut sent = Fields::new();
    sent.insert("secret".into(), secret.clone());
    refuse(endpoint::check_secret_of(&sent))?;
    let mut after = stage.before.clone();
    let overlap =
        params.get("overlap").and_then(Value::as_i64).unwrap_or(outgoing::OVERLAP_SECONDS);
    let now = stage.facts.now;
    let until = Timestamp(now.0.saturating_add(overlap * 1000));
    let mut previous = endpoint::previous_secrets(&after);
    previous.retain(|(_, until)| *until > now);
    let old = after.insert("secret".into(), secret);
    match (overlap, old) {
        // A client that cannot wait no longer trusts any of them.
        (0, _) => previous.clear(),
        (_, Some(Value::String(old))) => previous.insert(0, (old, until)),
        _ => {}
    }
    if previous.len() >= endpoint::MAX_SECRETS {
        return Err(too_many_secrets(&previous));
    }
    let kept = previous
        .iter()
        .map(|(secret, until)| json!({ "secret": secret, "expires_at": until.to_iso() }));
    after.insert("previous_secrets".into(), kept.collect());
    after.insert("previous_secret".into(), Value::Null);
    after.insert("previous_secret_expires_at".into(), Value::Null);
    let kind = &stage.collection.events.updated;
    let mut decision = outcome::changed(stage, after, kind, ResponseKind::Updated);
    decision.reveal = reveal(&sent);
    Ok(decision)
}

fn too_many_secrets(previous: &[(String, Timestamp)]) -> Problem {
    let most = endpoint::MAX_SECRETS;
    let next = previous.iter().map(|(_, until)| *until).min().map(Timestamp::to_iso);
    let message = format!(
        "{most} secrets of this endpoint sign already, the most there may be. The overlap of the \
         next one ends at {}; `overlap` 0 ends all older ones at once.",
        next.unwrap_or_default()
    );
    Problem::new(Code::TooManyRecords, message)
}

/// The secret that is shown once, at the end of the record.
fn reveal(fields: &Fields) -> Option<String> {
    let mut text = String::from(",\"secret\":");
    push_json(&mut text, fields.get("secret")?);
    text.push('}');
    Some(text)
}

fn ping(write: &Write, now: Timestamp, draw: u32, object: String) -> Draft {
    let id = id::make("evt", now, &write.entropy, draw);
    Draft { id, kind: pattern::PING.to_owned(), object, previous: None, hidden: None }
}

/// An event an application publishes: it is its own change.
fn publish(
    schema: &Schema,
    write: &Write,
    facts: &Facts<'_>,
    fields: &Fields,
) -> Result<Decision, Problem> {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let mut found = Vec::new();
    if !schema.events.published.iter().any(|published| published.name == kind) {
        let known: Vec<_> = schema.events.published.iter().map(|t| t.name.as_str()).collect();
        let message = match known.is_empty() {
            true => "No event types are declared; add them to [events.types] in the schema.".into(),
            false => format!("`type` must be one of the declared: {}.", known.join(", ")),
        };
        let sent = Value::String(kind.to_owned());
        found.push(Violation::new("type", Code::NotInEnum, message).value(&sent));
    }
    let data = fields.get("data").and_then(Value::as_object);
    let member = |name: &str| data.and_then(|data| data.get(name));
    if !member("object").is_some_and(Value::is_object) {
        let message = "`data` must have a member `object` that is an object.";
        found.push(Violation::new("data", Code::Required, message));
    }
    if member("previous_attributes").is_some_and(|previous| !previous.is_object()) {
        let message = "`data.previous_attributes` must be an object.";
        found.push(Violation::new("data", Code::WrongType, message));
    }
    let known = ["object", "previous_attributes"];
    if data.is_some_and(|data| data.keys().any(|name| !known.contains(&name.as_str()))) {
        let message = "`data` holds `object` and, for updates, `previous_attributes`.";
        found.push(Violation::new("data", Code::UnknownField, message));
    }
    refuse(found)?;
    let text = |name: &str| member(name).map(|value| value.to_string());
    let event = Draft {
        id: id::make("evt", facts.now, &write.entropy, outcome::EVENT_DRAW),
        kind: kind.to_owned(),
        object: text("object").unwrap_or_default(),
        previous: text("previous_attributes"),
        hidden: None,
    };
    let mut decision = outcome::nothing(ResponseKind::Created);
    decision.effect = Effect::Publish {
        resource: fields.get("resource").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    decision.events.push(event);
    Ok(decision)
}

fn check_replay(schema: &Schema, fields: &Fields) -> Vec<Violation> {
    let mut found = Vec::new();
    for kind in fields.get("types").and_then(Value::as_array).into_iter().flatten() {
        if let Err(why) = pattern::check(schema, kind.as_str().unwrap_or_default()) {
            found.push(Violation::new("types", Code::NotInEnum, format!("`types`: {why}.")));
        }
    }
    let instant = |name: &str| fields.get(name).and_then(Value::as_str).and_then(Timestamp::parse);
    if let (Some(since), Some(until)) = (instant("since"), instant("until"))
        && since >= until
    {
        let message = "`until` must be later than `since`.";
        found.push(Violation::new("until", Code::Unsuitable, message));
    }
    found
}

fn refuse(found: Vec<Violation>) -> Result<(), Problem> {
    match found.is_empty() {
        true => Ok(()),
        false => Err(Problem::of(Code::ValidationFailed, found)),
    }
}
