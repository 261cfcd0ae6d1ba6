//! Reads `[[versions]]`: the dates, newest to oldest, and what each of them changed. Whether the
//! changes fit the collections and one another is for `history`.

use super::reader::{Report, Table};
use super::{change, deprecation, keys};
use crate::schema::{Collection, Operation, Service, Version};
use crate::version::shape;

/// A version a month for fifteen years.
const VERSIONS: usize = 200;
/// More is another service.
const CHANGES: usize = 200;

/// The versions, and the places of their changes in the file.
#[derive(Default)]
pub(super) struct Past {
    pub versions: Vec<Version>,
    /// By version and change.
    pub places: Vec<Vec<usize>>,
}

pub(super) fn read(
    report: &mut Report<'_>,
    file: &Table<'_>,
    service: &mut Service,
    collections: &mut [Collection],
    today: Option<&str>,
) -> Past {
    let tables = file.tables(report, "versions", "version");
    if tables.len() > VERSIONS {
        report.say(file.value_at("versions"), format!("there are at most {VERSIONS} versions"));
    }
    let mut past = Past::default();
    for table in tables.iter().take(VERSIONS) {
        table.allow(report, keys::VERSION);
        let date = read_date(report, table, past.versions.last(), today);
        let listed = list_changes(report, table);
        let (breaks, listed): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|one| one.get("breaks").is_some());
        let (changes, places) = read_changes(report, &listed, collections);
        past.places.push(places);
        past.versions.push(Version {
            date,
            description: table.owned_text(report, "description"),
            deprecated: deprecation::read(report, table),
            changes,
            breaks: breaks.iter().filter_map(|one| change::read_break(report, one)).collect(),
        });
    }
    let tells = |version: &Version| !version.changes.is_empty() || !version.breaks.is_empty();
    let last = tables.last().filter(|_| past.versions.last().is_some_and(tells));
    if let Some(at) = last.and_then(|table| table.key_at("changes")) {
        report.say(at, "the oldest version has no changes: no client sees what was before it");
    }
    let Some(first) = past.versions.first().map(|version| version.date.clone()) else {
        check_present(report, file, service, today);
        past.versions.push(Version::new(&service.version));
        past.places.push(Vec::new());
        return past;
    };
    check_newest(report, file, service, &first);
    mark_removed(collections, &past.versions);
    mark_outgrown(collections, &past.versions);
    past
}

fn read_date(
    report: &mut Report<'_>,
    table: &Table<'_>,
    newer: Option<&Version>,
    today: Option<&str>,
) -> String {
    if table.get("date").is_none() {
        report.say(table.at, "version needs `date`");
    }
    let Some(date) = deprecation::date(report, table, "date") else { return String::new() };
    let at = table.value_at("date");
    if let Some(newer) = newer.filter(|newer| !newer.date.is_empty() && newer.date <= date) {
        report.say(
            at,
            format!("versions stand newest first, each date once; {date} follows {}", newer.date),
        );
    }
    if let Some(today) = today.filter(|today| date.as_str() > *today) {
        report.say(at, format!("version {date} lies in the future; today is {today}"));
    }
    date
}

fn list_changes<'t>(report: &mut Report<'_>, table: &Table<'t>) -> Vec<Table<'t>> {
    let mut listed = table.tables(report, "changes", "change");
    if listed.len() > CHANGES {
        report.say(table.value_at("changes"), format!("a version has at most {CHANGES} changes"));
    }
    listed.truncate(CHANGES);
    listed
}

fn read_changes(
    report: &mut Report<'_>,
    listed: &[Table<'_>],
    collections: &[Collection],
) -> (Vec<crate::schema::Change>, Vec<usize>) {
    listed.iter().filter_map(|one| change::read(report, one, collections)).unzip()
}

/// The only version is that of the service.
fn check_present(
    report: &mut Report<'_>,
    file: &Table<'_>,
    service: &Service,
    today: Option<&str>,
) {
    let table = file.get("service").and_then(|value| value.get_ref().as_table());
    let said = table.and_then(|table| table.get("version"));
    if let (Some(said), Some(today)) = (said, today)
        && service.version.as_str() > today
    {
        let message = format!("version {} lies in the future; today is {today}", service.version);
        report.say(said.span().start, message);
    }
}

/// The newest version is the service's; it need not be written twice.
fn check_newest(report: &mut Report<'_>, file: &Table<'_>, service: &mut Service, first: &str) {
    let table = file.get("service").and_then(|value| value.get_ref().as_table());
    let said = table.and_then(|table| table.get("version"));
    match said {
        Some(said) if service.version != first && !first.is_empty() => report.say(
            said.span().start,
            format!("`version` must be the first of [[versions]], {first}"),
        ),
        Some(_) => {}
        None => first.clone_into(&mut service.version),
    }
}

/// The newest shape hides what some version removed.
fn mark_removed(collections: &mut [Collection], versions: &[Version]) {
    let changes = versions.iter().flat_map(|version| &version.changes);
    for change in changes.filter(|change| change.action.is_none()) {
        let collection = &mut collections[change.collection];
        match &change.operation {
            Operation::Removed { field } => {
                let state = collection.states.as_ref().map(|states| states.field.as_str());
                let removable = state != Some(field.as_str());
                let found = collection.fields.iter_mut().find(|declared| declared.name == *field);
                if let Some(found) = found.filter(|_| removable) {
                    found.removed = true;
                }
            }
            Operation::CollectionRemoved => collection.removed = true,
            _ => {}
        }
    }
}

/// Fields whose limits were others for clients of some version.
fn mark_outgrown(collections: &mut [Collection], versions: &[Version]) {
    for (at, version) in versions.iter().enumerate() {
        for change in version.changes.iter().filter(|change| change.action.is_none()) {
            let Operation::Limits { field, .. } = &change.operation else { continue };
            let newest = shape::trace(versions, (change.collection, None), field, at, 0);
            let fields = &mut collections[change.collection].fields;
            let found = fields.iter_mut().find(|field| Some(field.name.as_str()) == newest);
            found.into_iter().for_each(|field| field.outgrown = true);
        }
    }
}
