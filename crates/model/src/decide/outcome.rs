//! Turns a record before and after a change into the texts to store, the events with their previous
//! attributes, and the timed transitions of a newly entered state.

use super::{Decision, Draft, Effect, ResponseKind, Stage, StoredRecord, TimerDraft};
use crate::event::Hidden;
use crate::id::{self, Entropy};
use crate::record::{self, Fields};
use crate::schema::{Builtin, Collection, Field};
use crate::time::Timestamp;
use crate::webhook::endpoint;
use serde_json::Value;

/// Ids drawn from a write's entropy: 0 is the record's, 1 the (first) event's.
pub const EVENT_DRAW: u32 = 1;

/// A record that came to be.
pub fn created(
    collection: &Collection,
    id: String,
    fields: Fields,
    entropy: &Entropy,
    now: Timestamp,
) -> Decision {
    let body = record::encode(collection, &fields);
    let event = Draft {
        id: id::make("evt", now, entropy, EVENT_DRAW),
        kind: collection.events.created.clone(),
        object: event_object(collection, &fields, &body),
        previous: None,
        hidden: removed(collection, None, &fields),
    };
    let timers = timers(collection, &fields, now);
    let hidden = record::encode_hidden(collection, &fields);
    Decision {
        effect: Effect::Put(StoredRecord { id, fields, body, hidden, same_columns: false }),
        events: vec![event],
        timers: Some(timers),
        response: ResponseKind::Created,
        reveal: None,
    }
}

/// A record that changed from `stage.before` to `after`; `updated_at` is set here.
pub fn changed(
    stage: &Stage<'_>,
    mut after: Fields,
    kind: &str,
    response: ResponseKind,
) -> Decision {
    let now = stage.facts.now;
    after.insert("updated_at".into(), Value::String(now.to_iso()));
    let body = record::encode(stage.collection, &after);
    let event = Draft {
        id: id::make("evt", now, &stage.write.entropy, EVENT_DRAW),
        kind: kind.to_owned(),
        object: event_object(stage.collection, &after, &body),
        previous: Some(previous(stage.collection, &stage.before, &after)),
        hidden: removed(stage.collection, Some(&stage.before), &after),
    };
    let entered = state(stage.collection, &stage.before) != state(stage.collection, &after);
    let hidden = record::encode_hidden(stage.collection, &after);
    let same = |field: &Field| {
        let (before, now) = (stage.before.get(&field.name), after.get(&field.name));
        before.unwrap_or(&Value::Null) == now.unwrap_or(&Value::Null)
    };
    let same_columns = stage.collection.columns().all(same);
    let id = stage.current.id.clone();
    Decision {
        timers: entered.then(|| timers(stage.collection, &after, now)),
        effect: Effect::Put(StoredRecord { id, fields: after, body, hidden, same_columns }),
        events: vec![event],
        response,
        reveal: None,
    }
}

/// A record that went away; the event shows its last state.
pub fn erased(stage: &Stage<'_>) -> Decision {
    let event = Draft {
        id: id::make("evt", stage.facts.now, &stage.write.entropy, EVENT_DRAW),
        kind: stage.collection.events.deleted.clone(),
        object: shown(stage),
        previous: None,
        hidden: removed(stage.collection, None, &stage.before),
    };
    Decision {
        effect: Effect::Erase,
        events: vec![event],
        timers: Some(Vec::new()),
        response: ResponseKind::Deleted,
        reveal: None,
    }
}

pub fn nothing(response: ResponseKind) -> Decision {
    Decision { effect: Effect::Nothing, events: Vec::new(), timers: None, response, reveal: None }
}

/// The record before a change, as events show it.
pub fn shown(stage: &Stage<'_>) -> String {
    event_object(stage.collection, &stage.before, &record::encode(stage.collection, &stage.before))
}

/// A record as events show it; `body` is its public text.
fn event_object(collection: &Collection, fields: &Fields, body: &str) -> String {
    match collection.builtin {
        Some(Builtin::Endpoint) => record::encode(collection, &endpoint::masked(fields.clone())),
        _ => body.to_owned(),
    }
}

/// The current state, where the collection has states.
pub fn state<'a>(collection: &Collection, fields: &'a Fields) -> Option<&'a str> {
    fields.get(&collection.states.as_ref()?.field)?.as_str()
}

fn timers(collection: &Collection, fields: &Fields, now: Timestamp) -> Vec<TimerDraft> {
    let Some(state) = state(collection, fields) else { return Vec::new() };
    let due = |after: std::time::Duration| {
        Timestamp(now.0.saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)))
    };
    let entered = collection.timed.iter().enumerate().filter(|(_, timed)| timed.from == state);
    entered.map(|(transition, timed)| TimerDraft { transition, due: due(timed.after) }).collect()
}

/// Old values of the public fields that differ. `updated_at` always differs and says nothing.
fn previous(collection: &Collection, before: &Fields, after: &Fields) -> String {
    let names = collection.public_names().filter(|name| *name != "updated_at");
    let mut previous = differing(names, before, after);
    if collection.builtin == Some(Builtin::Endpoint) {
        previous = endpoint::masked(previous);
    }
    Value::Object(previous).to_string()
}

/// Fields that older versions show in addition to the public ones; none in most collections.
fn removed(collection: &Collection, before: Option<&Fields>, after: &Fields) -> Option<String> {
    let fields = collection.fields.iter().filter(|field| field.removed && !field.write_only);
    let names = fields.map(|field| field.name.as_str());
    let object = names
        .clone()
        .filter_map(|name| Some((name.to_owned(), after.get(name)?.clone())))
        .collect();
    let previous = before.map(|before| differing(names, before, after)).unwrap_or_default();
    Hidden { object, previous }.text()
}

fn differing<'a>(names: impl Iterator<Item = &'a str>, before: &Fields, after: &Fields) -> Fields {
    let value = |fields: &Fields, name: &str| fields.get(name).cloned().unwrap_or(Value::Null);
    let differing = names.filter(|name| {
        before.get(*name).unwrap_or(&Value::Null) != after.get(*name).unwrap_or(&Value::Null)
    });
    differing.map(|name| (name.to_owned(), value(before, name))).collect()
}
