//! Events: what the log keeps of a change, and the envelope in which it leaves the service.

use crate::caller::Scope;
use crate::record::push_json;
use crate::time::Timestamp;
use serde_json::Value;

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
    /// For updates: the old values of what changed, as a JSON object.
    pub previous: Option<String>,
    pub request: Option<String>,
    pub idempotency_key: Option<String>,
}

impl Event {
    /// The envelope of spec 2.3, JSON text.
    pub fn envelope(&self, pending_webhooks: u32) -> String {
        let mut out = String::with_capacity(self.object.len() + 360);
        let text = |out: &mut String, value: &str| push_json(out, &Value::String(value.to_owned()));
        let nullable = |out: &mut String, value: Option<&str>| match value {
            Some(value) => push_json(out, &Value::String(value.to_owned())),
            None => out.push_str("null"),
        };
        out.push_str("{\"id\":");
        text(&mut out, &self.id);
        out.push_str(",\"object\":\"event\",\"type\":");
        text(&mut out, &self.kind);
        out.push_str(",\"api_version\":");
        text(&mut out, &self.api_version);
        out.push_str(&format!(",\"created\":{}", self.created.seconds()));
        out.push_str(",\"data\":{\"object\":");
        out.push_str(&self.object);
        if let Some(previous) = &self.previous {
            out.push_str(",\"previous_attributes\":");
            out.push_str(previous);
        }
        out.push_str("},\"livemode\":");
        out.push_str(if self.scope.livemode() { "true" } else { "false" });
        out.push_str(&format!(",\"pending_webhooks\":{pending_webhooks}"));
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
    use serde_json::json;

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
