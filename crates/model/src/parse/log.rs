//! Reads `[events]`, the log and what may be published into it, and `[webhooks]`.

use super::reader::{self, Report, Table};
use super::{keys, naming};
use crate::schema::{EventType, Events, Webhooks};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Remembered answers are rebuilt from events for a day; beyond ten years nobody asks.
const RETENTION: RangeInclusive<Duration> =
    Duration::from_secs(2 * 86_400)..=Duration::from_secs(3_650 * 86_400);
const BACKLOG: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(365 * 86_400);
const TYPES: usize = 500;

pub(super) fn events(report: &mut Report<'_>, file: &Table<'_>) -> Events {
    let mut events = Events::default();
    let Some(table) = file.table(report, "events", "[events]".to_owned()) else { return events };
    table.allow(report, keys::LOG);
    if let Some(retention) = table.duration(report, "retention", RETENTION) {
        events.retention = retention;
    }
    if let Some(max_backlog) = table.duration(report, "max_backlog", BACKLOG) {
        events.max_backlog = max_backlog;
    }
    let what = "the published types".to_owned();
    let Some(types) = table.table(report, "types", what) else { return events };
    if types.entries.len() > TYPES {
        report.say(types.at, format!("there are at most {TYPES} published types"));
    }
    for (name, value) in types.entries.iter().take(TYPES) {
        let Some(inner) = value.get_ref().as_table() else {
            reader::expected(report, value, name.value, "a table");
            continue;
        };
        let kind = Table::new(format!("event type `{}`", name.value), name.at, inner);
        kind.allow(report, keys::PUBLISHED);
        let object = name.value.split('.').next().unwrap_or_default();
        if !naming::is_event_type(name.value) {
            let message =
                format!("`{}` is no event type; write one such as \"report.ready\"", name.value);
            report.say(name.at, message);
        } else if naming::OBJECTS.contains(&object) {
            report.say(name.at, format!("event types of `{object}` belong to the service"));
        }
        let description = kind.owned_text(report, "description");
        events.published.push(EventType { name: name.value.to_owned(), description });
    }
    events
}

pub(super) fn webhooks(report: &mut Report<'_>, file: &Table<'_>) -> Webhooks {
    let mut webhooks = Webhooks::default();
    let Some(table) = file.table(report, "webhooks", "[webhooks]".to_owned()) else {
        return webhooks;
    };
    table.allow(report, keys::WEBHOOKS);
    webhooks.development = table.flag(report, "development").unwrap_or_default();
    webhooks
}
