//! Patterns of event types: exact, `order.*`, or `*`. The service's own objects are opt-in: `*`
//! does not mean them, their name does.

use crate::schema::{Builtin, Collection, CollectionIx, Native, OnDelete, Schema};
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
    let is_wanted = |c: &Collection| !c.internal && !c.is_view() && wanted(c);
    let shown = schema.collections.iter().filter(|collection| is_wanted(collection));
    kinds.extend(shown.flat_map(self::kinds));
    let caused = caused(schema).into_iter();
    let caused = caused.filter(|(collection, ..)| is_wanted(&schema.collections[*collection]));
    kinds.extend(caused.map(|(_, kind, _)| kind));
    kinds.extend(schema.events.published.iter().map(|kind| kind.name.as_str()));
    kinds.remove(PING);
    // The delivery engine's own, which no operation makes.
    kinds.extend([FAILING, EVENTS_SKIPPED]);
    kinds
}

/// The types of the events of one collection, some of them twice.
pub fn kinds(collection: &Collection) -> Vec<&str> {
    sources(collection).into_iter().map(|(kind, _)| kind).collect()
}

/// What the event of a change says about the record before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// Nothing: the record is new, or deleted, or did not change.
    Absent,
    /// The old values of the fields that changed.
    Shown,
}

/// The types of the events that requests for a collection and its timers make, some of them twice.
pub fn sources(collection: &Collection) -> Vec<(&str, Previous)> {
    let offered = collection.operations;
    let changes = offered.update || offered.replace || collection.builtin.is_some();
    let mut kinds = Vec::new();
    for (emitted, kind, previous) in [
        (offered.create, &collection.events.created, Previous::Absent),
        (changes, &collection.events.updated, Previous::Shown),
        (offered.delete, &collection.events.deleted, Previous::Absent),
    ] {
        kinds.extend(emitted.then_some((kind.as_str(), previous)));
    }
    for action in &collection.actions {
        let previous = match action.native {
            Some(Native::Ping) => Previous::Absent,
            _ => Previous::Shown,
        };
        kinds.push((&action.event, previous));
        let refusals = action.rules.iter().filter_map(|rule| rule.event.as_deref());
        kinds.extend(refusals.map(|kind| (kind, Previous::Shown)));
        if action.rules.iter().any(|rule| rule.event.is_none() && !rule.set.is_empty()) {
            kinds.push((&collection.events.updated, Previous::Shown));
        }
    }
    let timed = collection.timed.iter().map(|timed| timed.event.as_str());
    kinds.extend(timed.map(|kind| (kind, Previous::Shown)));
    kinds
}

/// The events of records that the deletion of another record deletes or changes, whichever
/// operations their collection offers.
pub fn caused(schema: &Schema) -> Vec<(CollectionIx, &str, Previous)> {
    let mut found = Vec::new();
    let deletable = schema.collections.iter().enumerate().filter(|(_, c)| c.operations.delete);
    for (top, _) in deletable {
        for deleted in schema.deletes(top) {
            if deleted != top {
                let kind = &schema.collections[deleted].events.deleted;
                found.push((deleted, kind.as_str(), Previous::Absent));
            }
            let cleared = schema.referrers(deleted);
            let cleared = cleared.filter(|(.., field)| field.on_delete() == OnDelete::SetNull);
            found.extend(cleared.map(|(changed, ..)| {
                (changed, schema.collections[changed].events.updated.as_str(), Previous::Shown)
            }));
        }
    }
    found
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
        // `order.updated`: no request updates orders, but the deletion of a book changes them.
        let text = "[collections.books.fields]\ntitle = 'string'\n\
                    [collections.reviews]\nparent = 'books'\noperations = ['list']\n\
                    [collections.orders]\noperations = ['list']\n\
                    [collections.orders.fields]\nbook = { ref = 'books' }\n";
        let caused = parse::parse(text).unwrap();
        for good in ["review.deleted", "order.updated", "review.*"] {
            assert_eq!(check(&caused, good), Ok(()), "{good}");
        }
        for bad in ["review.created", "order.deleted"] {
            assert!(check(&caused, bad).is_err(), "{bad}");
        }
        for (near, meant) in [("order.craeted", "order.created"), ("oder.*", "order.*")] {
            let why = check(&schema, near).unwrap_err();
            assert!(why.contains(&format!("did you mean `{meant}`?")), "{why}");
        }
    }
}
