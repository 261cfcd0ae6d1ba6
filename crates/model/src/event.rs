//! Events: the description of a change in the log, and the envelope in which it leaves the service.

use crate::caller::Scope;
use crate::cause::Cause;
use crate::record::{Fields, push_text};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// One entry of the log. `seq` is its place; there is one sequence for everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub seq: i64,
    pub id: String,
    pub scope: Scope,
    pub kind: String,
    pub created: Timestamp,
    /// Name of the collection and id of the record it is about.
    pub collection: String,
    pub record: String,
    pub api_version: String,
    /// The record at the event: its public JSON text.
    pub object: String,
    /// For updates: the old values of the changed fields, as a JSON object.
    pub previous: Option<String>,
    /// The parts of both that only older versions show, see `Hidden`.
    pub hidden: Option<String>,
    /// The request, the key and the user that caused it, see `origin`.
    pub request: Option<String>,
    pub idempotency_key: Option<String>,
}

/// What caused an event. The log has one text for it: the ids of the request and the key, and the
/// name of the user, separated by a space each. Earlier releases wrote the request alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin<'a> {
    pub request: Option<&'a str>,
    pub key: Option<&'a str>,
    pub user: Option<&'a str>,
}

impl<'a> Origin<'a> {
    pub fn of(cause: &'a Cause) -> Origin<'a> {
        let Cause { request, key, user, .. } = cause;
        Origin { request: request.as_deref(), key: key.as_deref(), user: user.as_deref() }
    }

    pub fn parse(text: Option<&'a str>) -> Origin<'a> {
        let mut parts = text.unwrap_or_default().splitn(3, ' ');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        Origin { request: next(), key: next(), user: next() }
    }

    /// The text in the log; none without a request: the service acted by itself.
    pub fn text(&self) -> Option<String> {
        let mut text = self.request?.to_owned();
        let parts = match (self.key, self.user) {
            (None, None) => Vec::new(),
            (key, None) => vec![key.unwrap_or_default()],
            (key, Some(user)) => vec![key.unwrap_or_default(), user],
        };
        for part in parts {
            text.push(' ');
            text.push_str(part);
        }
        Some(text)
    }
}

/// Fields that the newest version removed. Older versions show them, so the log stores them, apart
/// from the object of the newest version.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Hidden {
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub object: Fields,
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub previous: Fields,
}

impl Hidden {
    pub fn parse(text: Option<&str>) -> Hidden {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// None if there is nothing to store.
    pub fn text(&self) -> Option<String> {
        let empty = self.object.is_empty() && self.previous.is_empty();
        (!empty).then(|| serde_json::to_string(self).unwrap_or_default())
    }
}

impl Event {
    /// The envelope of spec 2.3, JSON text, in the version that the event was written under. In
    /// others: `Versions::envelope`.
    pub fn envelope(&self, pending_webhooks: u32) -> String {
        let previous = self.previous.as_deref();
        self.envelope_of(&self.api_version, &self.object, previous, pending_webhooks)
    }

    /// The envelope around the texts of a version. An event without an actor has no such member,
    /// so that events of earlier releases are sent again as they were. Every version shows it: a
    /// new version must not change what clients of the version before it read.
    pub fn envelope_of(
        &self,
        version: &str,
        object: &str,
        previous: Option<&str>,
        pending_webhooks: u32,
    ) -> String {
        let mut out = String::with_capacity(object.len() + previous.map_or(0, str::len) + 360);
        let nullable = |out: &mut String, value: Option<&str>| match value {
            Some(value) => push_text(out, value),
            None => out.push_str("null"),
        };
        out.push_str("{\"id\":");
        push_text(&mut out, &self.id);
        out.push_str(",\"object\":\"event\",\"type\":");
        push_text(&mut out, &self.kind);
        out.push_str(",\"api_version\":");
        push_text(&mut out, version);
        out.push_str(",\"created\":");
        out.push_str(itoa::Buffer::new().format(self.created.seconds()));
        out.push_str(",\"data\":{\"object\":");
        out.push_str(object);
        if let Some(previous) = previous {
            out.push_str(",\"previous_attributes\":");
            out.push_str(previous);
        }
        out.push_str("},\"livemode\":");
        out.push_str(if self.scope.livemode() { "true" } else { "false" });
        out.push_str(",\"pending_webhooks\":");
        out.push_str(itoa::Buffer::new().format(pending_webhooks));
        let origin = Origin::parse(self.request.as_deref());
        out.push_str(",\"request\":{\"id\":");
        nullable(&mut out, origin.request);
        out.push_str(",\"idempotency_key\":");
        nullable(&mut out, self.idempotency_key.as_deref());
        out.push('}');
        if origin.key.is_some() || origin.user.is_some() {
            out.push_str(",\"actor\":{\"key\":");
            nullable(&mut out, origin.key);
            out.push_str(",\"user\":");
            nullable(&mut out, origin.user);
            out.push('}');
        }
        out.push('}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_envelope_has_the_fields_that_consumers_read() {
        let mut event = Event {
            seq: 9,
            id: "evt_1".into(),
            scope: Scope::new(3, true),
            kind: "book.updated".into(),
            created: Timestamp(1_800_000_000_999),
            collection: "books".into(),
            record: "book_1".into(),
            api_version: "2026-11-01".into(),
            object: r#"{"id":"book_1","title":"\"Dune\""}"#.into(),
            previous: Some(r#"{"title":"Dune"}"#.into()),
            hidden: None,
            request: Some("req_1 key_1 ann lee".into()),
            idempotency_key: None,
        };
        let envelope: Value = serde_json::from_str(&event.envelope(2)).unwrap();
        let expected = json!({
            "id": "evt_1", "object": "event", "type": "book.updated", "api_version": "2026-11-01",
            "created": 1_800_000_000, "livemode": true, "pending_webhooks": 2,
            "data": {
                "object": { "id": "book_1", "title": "\"Dune\"" },
                "previous_attributes": { "title": "Dune" },
            },
            "request": { "id": "req_1", "idempotency_key": null },
            "actor": { "key": "key_1", "user": "ann lee" },
        });
        assert_eq!(envelope, expected);
        event.previous = None;
        event.request = Some("req_1".into());
        event.idempotency_key = Some("key \"1\"".into());
        let envelope: Value = serde_json::from_str(&event.envelope(0)).unwrap();
        assert_eq!(envelope["data"].get("previous_attributes"), None);
        assert_eq!(envelope.get("actor"), None);
        assert_eq!(envelope["request"]["idempotency_key"], "key \"1\"");
    }

    #[test]
    fn the_cause_of_an_event_is_read_as_it_was_written() {
        let all = |request, key, user| Origin { request, key, user };
        for origin in [
            all(None, None, None),
            all(Some("req_1"), None, None),
            all(Some("req_1"), Some("key_1"), None),
            all(Some("req_1"), Some("key_1"), Some("ann  lee ")),
            all(Some("req_1"), None, Some("ann")),
        ] {
            assert_eq!(Origin::parse(origin.text().as_deref()), origin);
        }
    }
}
