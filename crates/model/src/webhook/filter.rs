//! The names in the filter of an endpoint: the events that the endpoint subscribed to, as they are
//! sent in its version.

use super::pattern;
use crate::schema::expression::{Events, Scope};
use crate::schema::{EventNames, Schema};
use crate::version::Versions;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The scope of a filter over the events of these patterns. Without a version, over those of all
/// versions: the endpoint follows its account.
pub fn scope(schema: &Schema, patterns: &[&str], version: Option<&str>) -> Scope {
    let wanted = |kind: &str| patterns.iter().any(|wanted| pattern::matches(wanted, kind));
    let mut events = Events::default();
    // All versions, subscribed to or not: a replay can be requested for any of them.
    events.types.extend(pattern::catalogue(schema).into_iter().map(str::to_owned));
    events.types.insert(pattern::PING.to_owned());
    if schema.versions.len() < 2 {
        events.types.extend(names(schema));
        add_records(&mut events, schema, &wanted);
    } else {
        let versions = Versions::new(&Arc::new(schema.clone()));
        let shown = |date: &str| version.is_none_or(|version| version == date);
        events.types.extend(versions.iter().flat_map(|view| names(&view.schema)));
        for view in versions.iter().filter(|view| shown(&view.date)) {
            add_records(&mut events, &view.schema, &wanted);
        }
    }
    // Published events, and the service's own objects.
    let published = schema.events.published.iter().map(|kind| kind.name.as_str());
    let own = schema.collections.iter().filter(|collection| collection.builtin.is_some());
    let own = own.flat_map(pattern::kinds).chain([pattern::FAILING, pattern::EVENTS_SKIPPED]);
    let others = published.chain(own).filter(|kind| wanted(kind));
    others.for_each(|kind| events.add(kind, None));
    events.scope()
}

/// The types of all events that the collections can have had, also by operations that are not
/// offered any more.
fn names(schema: &Schema) -> BTreeSet<String> {
    let shown = schema.collections.iter().filter(|collection| !collection.internal);
    let names = shown.flat_map(|collection| {
        let EventNames { created, updated, deleted } = &collection.events;
        let usual = [created, updated, deleted].map(String::as_str);
        pattern::kinds(collection).into_iter().chain(usual)
    });
    names.map(str::to_owned).collect()
}

fn add_records(events: &mut Events, schema: &Schema, wanted: &impl Fn(&str) -> bool) {
    for collection in &schema.collections {
        if collection.internal || collection.removed || collection.builtin.is_some() {
            continue;
        }
        for kind in pattern::kinds(collection).into_iter().filter(|kind| wanted(kind)) {
            events.add(kind, Some(collection));
        }
    }
}
