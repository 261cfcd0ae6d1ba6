//! Events: the description of a change in the log, and the envelope in which it leaves the service.

use crate::caller::Scope;
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
    pub request: Option<String>,
    pub idempotency_key: Option<String>,
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

    /// The envelope around the texts of a version.
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
        out.push_str(",\"request\":{\"id\":");
        nullable(&mut out, self.request.as_deref());
        out.push_str(",\"idempotency_key\":");
        nullable(&mut out, self.idempotency_key.as_deref());
        out.push_str("}}");
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
            request: Some("req_1".into()),
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
        });
        assert_eq!(envelope, expected);
        event.previous = None;
        event.idempotency_key = Some("key \"1\"".into());
        let envelope: Value = serde_json::from_str(&event.envelope(0)).unwrap();
        assert_eq!(envelope["data"].get("previous_attributes"), None);
        assert_eq!(envelope["request"]["idempotency_key"], "key \"1\"");
    }
}
