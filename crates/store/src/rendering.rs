//! How rows that are not records are shown as records: events as envelopes, deliveries as objects.

use model::event::Event;
use model::record::{push_json, push_text};
use model::version::Versions;
use model::{Record, Timestamp};
use serde_json::Value;

/// Values of `status` of a delivery, in the order of their stored numbers (see `outbox::Status`).
pub const STATUSES: [&str; 4] = ["pending", "succeeded", "failed", "skipped"];

/// An event as a record: in the newest version, with what older ones need; without `versions`, as
/// it was written. `pending` is the number of deliveries that are still to come.
pub fn event(event: &Event, versions: Option<&Versions>, pending: u32) -> Record {
    let (body, hidden) = match versions {
        Some(versions) => (versions.envelope(event, 0, pending), versions.note(event)),
        None => (event.envelope(pending), None),
    };
    Record {
        id: event.id.clone(),
        number: event.seq,
        version: event.seq,
        updated: event.created,
        body,
        hidden,
    }
}

/// A delivery as it is shown.
#[derive(Clone, Debug)]
pub struct DeliveryRow {
    pub number: i64,
    pub id: String,
    /// Stored number of the status.
    pub status: i64,
    pub attempts: i64,
    pub next: Option<Timestamp>,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// Sequence of the event; negative if the delivery stands for events that were removed.
    pub event_seq: i64,
    /// Ids of event and endpoint, while they exist.
    pub event: Option<String>,
    /// The type of the event, while it exists.
    pub event_type: Option<String>,
    pub endpoint: Option<String>,
}

impl DeliveryRow {
    pub fn record(&self) -> Record {
        Record {
            id: self.id.clone(),
            number: self.number,
            version: self.updated.0,
            updated: self.updated,
            body: self.body(),
            hidden: None,
        }
    }

    fn body(&self) -> String {
        let mut out = String::with_capacity(320);
        let mut member = |name: &str, value: Value| {
            out.push(if out.is_empty() { '{' } else { ',' });
            push_text(&mut out, name);
            out.push(':');
            push_json(&mut out, &value);
        };
        let status = usize::try_from(self.status).unwrap_or(0);
        member("id", self.id.as_str().into());
        member("object", "delivery".into());
        member("event", self.event.as_deref().into());
        member("event_type", self.event_type.as_deref().into());
        member("endpoint", self.endpoint.as_deref().into());
        member("status", STATUSES.get(status).copied().unwrap_or(STATUSES[0]).into());
        member("attempts", self.attempts.into());
        member("next_attempt_at", self.next.map(Timestamp::to_iso).into());
        member("created_at", self.created.to_iso().into());
        member("updated_at", self.updated.to_iso().into());
        out.push('}');
        out
    }

    /// Makes it due now. The time of the change is its version, so it always grows.
    pub fn retry(&mut self, now: Timestamp) {
        self.status = 0;
        self.next = Some(now);
        self.updated = Timestamp((self.updated.0 + 1).max(now.0));
    }
}
