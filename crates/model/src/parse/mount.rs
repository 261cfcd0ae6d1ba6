//! Reads `[[mounts]]`: older URL versions next to `service.mount`. Each serves the date versions
//! from its own down to where the next one begins.

use super::head::CollectionTable;
use super::reader::{Report, Table};
use super::{deprecation, keys, live, service};
use crate::schema::{Live, Mount, Version};

const MOUNTS: usize = 16;

pub(super) fn read(
    report: &mut Report<'_>,
    file: &Table<'_>,
    newest: &str,
    versions: &[Version],
    live: &Live,
    heads: &[CollectionTable<'_>],
) -> Vec<Mount> {
    let tables = file.tables(report, "mounts", "mount");
    if tables.len() > MOUNTS {
        report.say(file.value_at("mounts"), format!("there are at most {MOUNTS} mounts"));
    }
    let mut mounts = vec![Mount { path: newest.to_owned(), newest: 0, oldest: versions.len() - 1 }];
    for table in tables.iter().take(MOUNTS) {
        table.allow(report, keys::MOUNT);
        let path = table.need_text(report, "path");
        if let Some(path) = path {
            service::check_mount(report, "path", path);
            let collides = |other: &&Mount| below(path.value, &other.path);
            if let Some(other) = mounts.iter().find(collides) {
                report.say(
                    path.at,
                    format!("`{}` and the mount `{}` collide", path.value, other.path),
                );
            } else if let Some(channel) = hidden(path.value, live, heads) {
                report.say(
                    path.at,
                    format!("`{}` and the live channel `{channel}` collide", path.value),
                );
            }
        }
        let Some(place) = read_version(report, table, versions) else { continue };
        let before = mounts.last_mut().filter(|before| before.newest < place);
        match (before, path) {
            (Some(before), Some(path)) => {
                before.oldest = place - 1;
                let path = path.value.to_owned();
                mounts.push(Mount { path, newest: place, oldest: versions.len() - 1 });
            }
            (None, _) => report.say(
                table.value_at("version"),
                "mounts stand newest first; each begins with an older version than the one before, \
                 and the newest version is served below `mount` of [service]",
            ),
            (_, None) => {}
        }
    }
    mounts
}

fn read_version(report: &mut Report<'_>, table: &Table<'_>, versions: &[Version]) -> Option<usize> {
    if table.get("version").is_none() {
        report.say(table.at, "mount needs `version`");
    }
    let date = deprecation::date(report, table, "version")?;
    let found = versions.iter().position(|version| version.date == date);
    if found.is_none() {
        // One that is not a date has been reported.
        let dates = versions.iter().map(|version| version.date.as_str());
        let known: Vec<&str> = dates.filter(|date| !date.is_empty()).collect();
        report.say(
            table.value_at("version"),
            format!("there is no version {date}; versions: {}", known.join(", ")),
        );
    }
    found
}

/// Whether one path is the other, or below it.
fn below(one: &str, other: &str) -> bool {
    let within = |path: &str, base: &str| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    within(one, other) || within(other, one)
}

/// The live channel that a mount would hide, or that would hide it.
fn hidden<'l>(path: &str, live: &'l Live, heads: &[CollectionTable<'_>]) -> Option<&'l str> {
    let channels = [live.mount.as_str(), live.socket.as_str()];
    channels
        .into_iter()
        .find(|channel| *channel == path || live::hides(channel, path, heads).is_some())
}
