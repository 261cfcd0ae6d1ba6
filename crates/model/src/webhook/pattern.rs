//! Patterns of event types: exact, `order.*`, or `*`. The service's own objects are opt-in: `*`
//! does not mean them, their name does.

use crate::schema::{Builtin, Collection, Schema};
use crate::spelling;
use std::collections::BTreeSet;

/// An endpoint fails and will be disabled if that goes on.
pub const FAILING: &str = "webhook_endpoint.failing";
/// Retention removed events before they could be delivered.
pub const EVENTS_SKIPPED: &str = "webhook_endpoint.events_skipped";
/// Sent to test an endpoint, independent of its subscriptions.
pub const PING: &str = "ping";

/// Whether a pattern means an event type.
pub fn matches(pattern: &str, kind: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => !is_own(kind),
        Some(head) => kind.starts_with(head),
        None => pattern == kind,
    }
}

/// Types of the service's own objects, such as `webhook_endpoint.disabled`.
fn is_own(kind: &str) -> bool {
    let object = kind.split('.').next().unwrap_or_default();
    matches!(object, "webhook_endpoint" | "replay" | "erasure" | PING)
}

/// Every event type that can leave the service in any version, sorted.
pub fn catalogue(schema: &Schema) -> BTreeSet<&str> {
    catalogue_of(schema, |_| true)
}

fn catalogue_of(schema: &Schema, wanted: impl Fn(&Collection) -> bool) -> BTreeSet<&str> {
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    let shown = schema.collections.iter().filter(|c| !c.internal && !c.is_view() && wanted(c));
    kinds.extend(shown.flat_map(self::kinds));
    kinds.extend(schema.events.published.iter().map(|kind| kind.name.as_str()));
    kinds.remove(PING);
    // The delivery engine's own, which no operation makes.
    kinds.extend([FAILING, EVENTS_SKIPPED]);
    kinds
}

/// The types of the events of one collection, some of them twice.
pub fn kinds(collection: &Collection) -> Vec<&str> {
    let offered = collection.operations;
    let changes = offered.update || offered.replace || collection.builtin.is_some();
    let mut kinds = Vec::new();
    for (emitted, kind) in [
        (offered.create, &collection.events.created),
        (changes, &collection.events.updated),
        (offered.delete, &collection.events.deleted),
    ] {
        kinds.extend(emitted.then_some(kind.as_str()));
    }
    for action in &collection.actions {
        kinds.push(&action.event);
        kinds.extend(action.rules.iter().filter_map(|rule| rule.event.as_deref()));
        if action.rules.iter().any(|rule| rule.event.is_none() && !rule.set.is_empty()) {
            kinds.push(&collection.events.updated);
        }
    }
    kinds.extend(collection.timed.iter().map(|timed| timed.event.as_str()));
    kinds
}

/// Why a pattern of `enabled_events` is refused. Types of other versions are accepted: the endpoint
/// gets no events of such a type until it moves to that version. The message lists the types of
/// this version.
pub fn check(schema: &Schema, pattern: &str) -> Result<(), String> {
    check_form(pattern)?;
    if pattern == "*" || catalogue(schema).iter().any(|kind| matches(pattern, kind)) {
        return Ok(());
    }
    Err(unknown(schema, pattern))
}

/// Says that a pattern names no event type, which type comes nearest, and which there are.
pub fn unknown(schema: &Schema, pattern: &str) -> String {
    let shown: String = pattern.chars().take(100).collect();
    let known = catalogue_of(schema, |collection| !collection.removed);
    let hint = match pattern.strip_suffix(".*") {
        Some(object) => {
            let objects: BTreeSet<String> = known.iter().filter_map(|kind| all_of(kind)).collect();
            spelling::hint(&format!("{object}.*"), objects.iter().map(String::as_str))
        }
        None => spelling::hint(pattern, known.iter().copied()),
    };
    let known: Vec<&str> = known.into_iter().take(40).collect();
    format!("`{shown}` names no event type{hint}; there are: {}", known.join(", "))
}

/// The pattern of all types of an object.
fn all_of(kind: &str) -> Option<String> {
    kind.rsplit_once('.').map(|(object, _)| format!("{object}.*"))
}

/// Whether it is written like a pattern; says nothing about the types there are.
pub fn check_form(pattern: &str) -> Result<(), String> {
    let form = match pattern.strip_suffix('*') {
        Some("") => true,
        Some(head) => head.ends_with('.') && head.len() > 1 && !head.contains('*'),
        None => !pattern.is_empty() && !pattern.contains('*'),
    };
    if form {
        return Ok(());
    }
    let shown: String = pattern.chars().take(100).collect();
    Err(format!("`{shown}` is no event type: write one as it is, `object.*`, or `*` for all"))
}

/// Whether events of this collection stay inside the service: they describe keys and accounts.
pub fn is_internal(schema: &Schema, collection: &str) -> bool {
    let found = schema.find(collection).map(|ix| &schema.collections[ix]);
    found.is_some_and(|c| matches!(c.builtin, Some(Builtin::Account | Builtin::Key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::schema::BOOKSHOP;

    #[test]
    fn patterns_mean_types_and_the_star_leaves_the_services_own_out() {
        for (pattern, kind, expected) in [
            ("*", "order.created", true),
            ("*", "webhook_endpoint.disabled", false),
            ("*", "ping", false),
            ("webhook_endpoint.*", "webhook_endpoint.disabled", true),
            ("order.*", "order.created", true),
            ("order.*", "orders.created", false),
            ("order.created", "order.created", true),
            ("order.created", "order.created.twice", false),
        ] {
            assert_eq!(matches(pattern, kind), expected, "{pattern} {kind}");
        }
    }

    #[test]
    fn unknown_types_and_odd_wildcards_are_refused() {
        let schema = parse::parse(BOOKSHOP).unwrap();
        for good in ["*", "order.*", "order.cancelled", "payment_intent.payment_failed"] {
            assert_eq!(check(&schema, good), Ok(()), "{good}");
        }
        for bad in ["", "**", "order*", "*.created", "order.*.*", "orders.*", "key.created", "ping"]
        {
            assert!(check(&schema, bad).is_err(), "{bad}");
        }
        for (near, meant) in [("order.craeted", "order.created"), ("oder.*", "order.*")] {
            let why = check(&schema, near).unwrap_err();
            assert!(why.contains(&format!("did you mean `{meant}`?")), "{why}");
        }
    }
}
