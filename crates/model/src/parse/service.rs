//! Reads `[service]`: the settings of the whole service. Knows no collection.

use super::reader::{self, Report, Table, Text};
use super::{deprecation, hints, keys, naming, quantity};
use crate::schema::{ErrorShape, RateLimit, Service};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::DeValue;

/// First segments of the routes that are no resources.
const ROUTES: &[&str] =
    &["api", "ws", "health", "metrics", "openapi.json", "asyncapi.json", "console"];

const MAX_PAGE: RangeInclusive<i64> = 1..=1000;

/// One KiB holds any sensible record; above 64 MiB a JSON body belongs into a file store.
const MAX_BODY_BYTES: RangeInclusive<u64> = 1 << 10..=64 << 20;

const REQUESTS: RangeInclusive<i64> = 1..=1_000_000;
const WINDOW: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

impl Default for Service {
    fn default() -> Service {
        Service {
            name: "restive".to_owned(),
            description: None,
            version: "2026-11-01".to_owned(),
            mount: "/v1".to_owned(),
            errors: ErrorShape::Structured,
            rate_limit: RateLimit { requests: 6000, window: Duration::from_secs(60) },
            early_hints: Vec::new(),
            max_page: 100,
            max_body_bytes: 1 << 20,
            origins: Vec::new(),
        }
    }
}

pub(super) fn read(report: &mut Report<'_>, file: &Table<'_>) -> Service {
    let mut service = Service::default();
    let Some(table) = file.table(report, "service", "[service]".to_owned()) else {
        return service;
    };
    table.allow(report, keys::SERVICE);
    if let Some(name) = table.text(report, "name") {
        let fits = (1..=naming::NAME_CHARS).contains(&name.value.chars().count())
            && !name.value.chars().any(char::is_control);
        if !fits {
            report.say(name.at, format!("`name` must have 1 to {} characters", naming::NAME_CHARS));
        }
        service.name = name.value.to_owned();
    }
    service.description = table.owned_text(report, "description");
    read_version(report, &table, &mut service);
    if let Some(mount) = table.text(report, "mount") {
        check_mount(report, "mount", mount);
        service.mount = mount.value.to_owned();
    }
    if let Some(errors) = table.text(report, "errors") {
        match errors.value {
            "structured" => service.errors = ErrorShape::Structured,
            "flat" => service.errors = ErrorShape::Flat,
            _ => report.say(errors.at, "`errors` must be \"structured\" or \"flat\""),
        }
    }
    if let Some(page) = table.integer(report, "max_page", MAX_PAGE) {
        service.max_page = u32::try_from(page).unwrap_or(service.max_page);
    }
    service.early_hints = hints::read(report, &table);
    read_max_body(report, &table, &mut service);
    read_rate_limit(report, &table, &mut service);
    service
}

fn read_version(report: &mut Report<'_>, table: &Table<'_>, service: &mut Service) {
    if let Some(version) = deprecation::date(report, table, "version") {
        service.version = version;
    }
}

pub(super) fn check_mount(report: &mut Report<'_>, key: &str, mount: Text<'_>) {
    let segment = |segment: &str| {
        !segment.is_empty()
            && segment.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let segments = mount.value.strip_prefix('/').unwrap_or_default();
    if mount.value.len() > naming::NAME_CHARS || !segments.split('/').all(segment) {
        report.say(
            mount.at,
            format!(
                "`{key}` must start with a slash and have lower-case segments, such as \"/v1\""
            ),
        );
    } else if let Some(taken) =
        ROUTES.iter().find(|route| segments.split('/').next() == Some(route))
    {
        report.say(mount.at, format!("`/{taken}` is a route of the service; choose another mount"));
    }
}

fn read_max_body(report: &mut Report<'_>, table: &Table<'_>, service: &mut Service) {
    let Some(value) = table.get("max_body") else { return };
    let bytes = match value.get_ref() {
        DeValue::String(text) => quantity::size_bytes(text),
        DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
        _ => return reader::expected(report, value, "max_body", "a size such as \"1 MiB\""),
    };
    match bytes.filter(|bytes| MAX_BODY_BYTES.contains(bytes)).map(usize::try_from) {
        Some(Ok(bytes)) => service.max_body_bytes = bytes,
        _ => report.say(
            value.span().start,
            "`max_body` must be from \"1 KiB\" to \"64 MiB\", or that many bytes",
        ),
    }
}

fn read_rate_limit(report: &mut Report<'_>, table: &Table<'_>, service: &mut Service) {
    let what = "`rate_limit`".to_owned();
    let Some(limit) = table.table(report, "rate_limit", what) else { return };
    limit.allow(report, keys::RATE_LIMIT);
    if let Some(requests) = limit.integer(report, "requests", REQUESTS) {
        service.rate_limit.requests = u32::try_from(requests).unwrap_or(u32::MAX);
    }
    if let Some(window) = limit.duration(report, "window", WINDOW) {
        service.rate_limit.window = window;
    }
}
