//! From the text of a schema file to a `Schema`, or to everything that is wrong with it. Pure:
//! reads no file and knows nothing of routes or rows. The way of a file: TOML (`reader`), the
//! settings (`service`, `log`, `live`), the names of all collections (`head`), then each
//! collection's body (`collection`, `field`, `states`, `behaviour`, `refusal`, `expression`), then
//! its past (`versions`, `change`, `mount`), which is walked back and proved (`history`). The types
//! of all expressions are checked in between (`typing`).

mod behaviour;
mod change;
mod collection;
mod deprecation;
mod expression;
mod field;
mod field_check;
mod head;
mod hints;
mod history;
mod keys;
mod live;
mod log;
mod mount;
pub(crate) mod naming;
mod quantity;
mod reader;
mod refusal;
mod service;
mod states;
mod typing;
mod versions;

pub(super) use change::PLACEHOLDER;
pub use quantity::duration;
pub(super) use quantity::show as duration_text;

use crate::schema::{self, Collection, Diagnostic, Schema};
use behaviour::NamedEvent;
use reader::{Report, Table};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// Largest schema file. The bookshop has about 8 KiB.
const FILE_BYTES: usize = 1 << 20;

/// Reads a schema file. Reports all findings at once, in file order.
///
/// If the text is not TOML, reports only that: a repaired tree would yield false findings.
pub fn parse(source: &str) -> Result<Schema, Vec<Diagnostic>> {
    read(source, None)
}

/// The same, and complains about versions that are newer than `today`, a date `YYYY-MM-DD`.
pub fn parse_at(source: &str, today: &str) -> Result<Schema, Vec<Diagnostic>> {
    read(source, Some(today))
}

fn read(source: &str, today: Option<&str>) -> Result<Schema, Vec<Diagnostic>> {
    let mut report = Report::new(source);
    if source.len() > FILE_BYTES {
        report.say(0, format!("a schema file has at most {FILE_BYTES} bytes"));
        return Err(report.into_findings());
    }
    let (tree, errors) = DeTable::parse_recoverable(source);
    if !errors.is_empty() {
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            report.say(at, error.message().replace('\n', "; "));
        }
        return Err(report.into_findings());
    }
    let file = Table::new("the file", 0, tree.get_ref());
    file.allow(&mut report, keys::FILE);
    let mut service = service::read(&mut report, &file);
    let events = log::events(&mut report, &file);
    let webhooks = log::webhooks(&mut report, &file);
    let (mut live, places) = live::read(&mut report, &file, &service.mount);
    service.origins = live::origins(&mut report, &file);
    // What may use the API may also open channels.
    for origin in &service.origins {
        if !live.origins.contains(origin) {
            live.origins.push(origin.clone());
        }
    }
    let heads = head::read(&mut report, &file);
    live::check(&mut report, &live, places, &service.mount, &heads);
    let mut named = Vec::new();
    let before = report.count();
    let mut collections: Vec<Collection> =
        (0..heads.len()).map(|ix| collection::read(&mut report, &heads, ix, &mut named)).collect();
    check_events(&mut report, &collections, &named);
    check_live_names(&mut report, &collections, &heads);
    let sound = report.count() == before;
    let past = versions::read(&mut report, &file, &mut service, &mut collections, today);
    // Not before: a field that some version removed may be null.
    typing::check(&mut report, &collections);
    let mounts = mount::read(&mut report, &file, &service.mount, &past.versions, &live, &heads);
    history::walk(&mut report, &past, &collections);
    if !sound || !report.is_empty() {
        return Err(report.into_findings());
    }
    // Not before: the walk is about what each collection declares of itself.
    schema::hide_what_is_below(&mut collections);
    let versions = past.versions;
    let schema = Schema::new(service, collections);
    Ok(Schema { events, webhooks, live, versions, mounts, ..schema })
}

/// One event type, one kind of object: a consumer chooses its code by the type alone.
fn check_events(report: &mut Report<'_>, collections: &[Collection], named: &[NamedEvent]) {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for event in named {
        let owner = *owners.entry(&event.kind).or_insert(event.collection);
        if owner != event.collection {
            report.say(
                event.at,
                format!(
                    "`{}` is an event of `{}` already; name the events of two collections apart",
                    event.kind, collections[owner].name
                ),
            );
        }
        // The service emits events about its own objects under their names.
        let object = event.kind.split('.').next().unwrap_or_default();
        if naming::OBJECTS.contains(&object) && collections[event.collection].object != object {
            report.say(
                event.at,
                format!("event types of `{object}` belong to the service; choose another"),
            );
        }
    }
}

fn check_live_names(
    report: &mut Report<'_>,
    collections: &[Collection],
    heads: &[head::CollectionTable<'_>],
) {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for (collection, head) in collections.iter().zip(heads) {
        let Some(feed) = &collection.feed else { continue };
        if naming::MESSAGES.contains(&feed.live_name.as_str()) {
            report.say(
                head.table.value_at("feed"),
                format!(
                    "`{}` is a message of the live channels; declare another `live_name`",
                    feed.live_name
                ),
            );
        }
        if let Some(other) = taken.insert(&feed.live_name, &collection.name) {
            report.say(
                head.table.value_at("feed"),
                format!("the live name `{}` is that of `{other}` already", feed.live_name),
            );
        }
    }
}

#[cfg(test)]
mod tests;
