//! Reads `[live]`: where the live channels are and how much they take.

use super::head::CollectionTable;
use super::reader::{Report, Table, Text};
use super::{keys, naming};
use crate::schema::{Live, builtin};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Proxies and clients give up after 30 s and more.
const POLL_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(25)..=Duration::from_secs(30);
const CONNECTIONS: RangeInclusive<i64> = 1..=10_000_000;
const ORIGINS: usize = 50;
/// Other paths of the service.
const TAKEN: &[&str] =
    &["/health", "/metrics", "/openapi.json", "/asyncapi.json", "/errors", "/console"];

/// The places of the two channel paths in the file.
#[derive(Clone, Copy, Default)]
pub(super) struct Places {
    mount: usize,
    socket: usize,
}

pub(super) fn read(report: &mut Report<'_>, file: &Table<'_>, resources: &str) -> (Live, Places) {
    let mut live = Live::default();
    let Some(table) = file.table(report, "live", "[live]".to_owned()) else {
        return (live, Places::default());
    };
    table.allow(report, keys::LIVE);
    for (key, place) in [("mount", &mut live.mount), ("socket", &mut live.socket)] {
        if let Some(path) = table.text(report, key) {
            check_path(report, key, path, resources);
            path.value.clone_into(place);
        }
    }
    if live.mount == live.socket {
        report.say(table.value_at("socket"), "`mount` and `socket` must be two paths");
    }
    if let Some(timeout) = table.duration(report, "poll_timeout", POLL_TIMEOUT) {
        live.poll_timeout = timeout;
    }
    live.origins = origins(report, &table);
    for (key, limit) in [
        ("max_connections", &mut live.max_connections),
        ("max_connections_per_account", &mut live.max_connections_per_account),
    ] {
        if let Some(said) = table.integer(report, key, CONNECTIONS) {
            *limit = usize::try_from(said).unwrap_or(*limit);
        }
    }
    let places = Places { mount: table.value_at("mount"), socket: table.value_at("socket") };
    (live, places)
}

/// Looks for routes that would hide a channel, or that one would hide.
pub(super) fn check(
    report: &mut Report<'_>,
    live: &Live,
    places: Places,
    resources: &str,
    heads: &[CollectionTable<'_>],
) {
    for (path, at) in [(&live.mount, places.mount), (&live.socket, places.socket)] {
        if let Some(name) = hides(path, resources, heads) {
            report.say(at, format!("`{resources}/{name}` is a collection; choose another path"));
        }
    }
    let feeds = heads.iter().filter(|head| head.feed).map(|head| head.name.value);
    let below = live.socket.strip_prefix(&live.mount).and_then(|rest| rest.strip_prefix('/'));
    if let Some(name) = below
        && feeds.chain(["events"]).any(|one| one == name)
    {
        report.say(places.socket, format!("`{}` is another live channel", live.socket));
    }
}

/// The collection below `resources` that has the path of a channel.
pub(super) fn hides<'p>(
    path: &'p str,
    resources: &str,
    heads: &[CollectionTable<'_>],
) -> Option<&'p str> {
    let below = path.strip_prefix(resources).and_then(|rest| rest.strip_prefix('/'));
    let first = below.and_then(|rest| rest.split('/').next());
    let known = |name: &str| {
        heads.iter().any(|head| head.name.value == name) || builtin::RESERVED.contains(&name)
    };
    first.filter(|name| known(name))
}

fn check_path(report: &mut Report<'_>, key: &str, path: Text<'_>, resources: &str) {
    let segment = |segment: &str| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !segment.is_empty() && segment.bytes().all(plain)
    };
    let segments = path.value.strip_prefix('/').unwrap_or_default();
    if path.value.len() > naming::NAME_CHARS || !segments.split('/').all(segment) {
        report.say(
            path.at,
            format!(
                "`{key}` must start with a slash and have lower-case segments, such as \"/api\""
            ),
        );
    } else if TAKEN.contains(&path.value) || path.value == resources {
        report.say(path.at, format!("`{}` is another route of the service", path.value));
    }
}

/// `https://host[:port]`, as browsers write them.
pub(super) fn origins(report: &mut Report<'_>, table: &Table<'_>) -> Vec<String> {
    let Some(texts) = table.texts(report, "origins") else { return Vec::new() };
    if let Some(extra) = texts.get(ORIGINS) {
        report.say(extra.at, format!("`origins` has at most {ORIGINS} of them"));
    }
    for text in &texts {
        let host =
            text.value.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
        let fits = host.is_some_and(|(_, host)| {
            !host.is_empty() && !host.contains(['/', '*', ' ', '@']) && host.is_ascii()
        });
        // A browser leaves the usual port out, so such an origin would never be sent.
        let lower = text.value.to_ascii_lowercase();
        let is_usual =
            |scheme: &str, port: &str| lower.starts_with(scheme) && lower.ends_with(port);
        if is_usual("http://", ":80") || is_usual("https://", ":443") {
            report.say(text.at, "browsers send this origin without its port; leave the port out");
        }
        if text.value != "*" && !fits {
            report.say(
                text.at,
                "`origins` holds origins such as \"https://shop.example\", or \"*\" for all",
            );
        }
    }
    texts.into_iter().map(|text| text.value.to_ascii_lowercase()).collect()
}
