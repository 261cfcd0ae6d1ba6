//! Reads `deprecated`, `sunset` and `link`, which versions, collections and fields may have. Knows
//! dates only, not what is deprecated.

use super::reader::{Report, Table};
use crate::schema::Deprecation;
use crate::time::is_date;
use toml::de::DeValue;

const LINK_CHARS: usize = 500;

pub(super) fn read(report: &mut Report<'_>, table: &Table<'_>) -> Option<Deprecation> {
    let found = Deprecation {
        since: date(report, table, "deprecated"),
        sunset: date(report, table, "sunset"),
        link: link(report, table),
    };
    // RFC 8594 and 9745: a part of the API is deprecated before it is gone.
    if let (Some(since), Some(sunset)) = (&found.since, &found.sunset)
        && sunset < since
    {
        let message = format!("`sunset` {sunset} lies before `deprecated` {since}");
        report.say(table.value_at("sunset"), message);
    }
    (found != Deprecation::default()).then_some(found)
}

/// A date as text or as a date of TOML: both ways of writing mean the same.
pub(super) fn date(report: &mut Report<'_>, table: &Table<'_>, key: &str) -> Option<String> {
    let value = table.get(key)?;
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        _ => String::new(),
    };
    if !is_date(&text) {
        report.say(
            value.span().start,
            format!("`{key}` must be a date that exists, such as \"2026-11-01\""),
        );
        return None;
    }
    Some(text)
}

fn link(report: &mut Report<'_>, table: &Table<'_>) -> Option<String> {
    let link = table.text(report, "link")?;
    let rest = link.value.strip_prefix("https://").or_else(|| link.value.strip_prefix("http://"));
    let plain = link.value.bytes().all(|b| b.is_ascii_graphic() && !b"<>\"".contains(&b));
    if rest.is_none_or(str::is_empty) || !plain || link.value.len() > LINK_CHARS {
        report.say(link.at, "`link` must be an http:// or https:// URL of plain characters");
        return None;
    }
    Some(link.value.to_owned())
}
