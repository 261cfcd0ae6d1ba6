//! The catalogue of event types of one version: what the object of each event is, and whether it
//! comes with old values. Contracts and generated clients are made from it.

use super::pattern::{self, EVENTS_SKIPPED, FAILING, PING, Previous};
use crate::schema::{Builtin, CollectionIx, Schema};
use std::collections::BTreeMap;

/// One type of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKind<'a> {
    pub name: &'a str,
    pub about: About,
    /// Whether some of its events have `previous_attributes`.
    pub has_previous: bool,
    pub description: Option<&'a str>,
}

/// What the object of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Record(CollectionIx),
    /// Whatever the application that published the event sent.
    Published,
}

/// Every type that can leave the service in this version, by name. `ping` is among them: an
/// endpoint receives it, but nobody can subscribe to it.
pub fn of(schema: &Schema) -> Vec<EventKind<'_>> {
    let mut kinds = BTreeMap::new();
    let mut add = |name, about, previous: Previous, description| {
        let kind = EventKind { name, about, has_previous: false, description };
        let kind: &mut EventKind<'_> = kinds.entry(name).or_insert(kind);
        kind.has_previous |= previous == Previous::Shown;
    };
    let is_shown = |collection: CollectionIx| {
        let collection = &schema.collections[collection];
        !collection.internal && !collection.removed && !collection.is_view()
    };
    for (collection, declared) in schema.collections.iter().enumerate() {
        for (name, previous) in pattern::sources(declared) {
            if is_shown(collection) {
                add(name, About::Record(collection), previous, None);
            }
        }
    }
    for (collection, name, previous) in pattern::caused(schema) {
        if is_shown(collection) {
            add(name, About::Record(collection), previous, None);
        }
    }
    let endpoints = schema.own(Builtin::Endpoint);
    for (name, previous, description) in [
        (FAILING, Previous::Shown, "Deliveries fail; the endpoint will be disabled."),
        (EVENTS_SKIPPED, Previous::Shown, "Events were removed before they could be delivered."),
        (PING, Previous::Absent, "A test of the endpoint."),
    ] {
        add(name, About::Record(endpoints), previous, Some(description));
    }
    for published in &schema.events.published {
        let description = published.description.as_deref();
        add(&published.name, About::Published, Previous::Shown, description);
    }
    kinds.into_values().collect()
}

/// Whether clients of the live channels can receive events of a type.
pub fn is_live(kind: &EventKind<'_>) -> bool {
    kind.name != PING
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::schema::BOOKSHOP;

    #[test]
    fn every_type_has_its_object_and_says_whether_old_values_come_with_it() {
        let schema = parse::parse(BOOKSHOP).unwrap();
        let all = of(&schema);
        let find = |name: &str| all.iter().find(|kind| kind.name == name).unwrap();
        for (name, collection, previous) in [
            ("book.created", "books", false),
            ("book.updated", "books", true),
            ("book.deleted", "books", false),
            ("order.cancelled", "orders", true),
            ("payment_intent.payment_failed", "payment-intents", true),
            ("payment_intent.succeeded", "payment-intents", true),
            ("message.created", "messages", false),
            ("webhook_endpoint.failing", "webhook-endpoints", true),
            ("ping", "webhook-endpoints", false),
        ] {
            let kind = find(name);
            assert_eq!(kind.about, About::Record(schema.find(collection).unwrap()), "{name}");
            assert_eq!(kind.has_previous, previous, "{name}");
        }
        assert_eq!(find("report.ready").about, About::Published);
        let mut live: Vec<&str> =
            all.iter().filter(|kind| is_live(kind)).map(|kind| kind.name).collect();
        live.sort_unstable();
        let known: Vec<&str> = pattern::catalogue(&schema).into_iter().collect();
        assert_eq!(live, known, "the catalogue has exactly the types that a subscription can name");
    }
}
