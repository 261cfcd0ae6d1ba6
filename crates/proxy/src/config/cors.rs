//! Which pages of other origins may use a route (the CORS protocol of the Fetch standard): the keys
//! of the file and their meaning. No I/O.

use std::time::Duration;

use http::{HeaderName, Method};

use super::reader::{Report, Table, Text};

/// How long browsers may remember the answer to a preflight. Chromium's own limit is two hours.
const MAX_AGE: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(24 * 60 * 60));

/// Response headers that scripts may read, besides those that they always may: what clients of an
/// API need.
const EXPOSED: [&str; 5] = ["etag", "link", "location", "request-id", "retry-after"];

/// The rules of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    pub origins: Vec<OriginPattern>,
    pub methods: Vec<Method>,
    /// Empty: all.
    pub headers: Vec<HeaderName>,
    pub expose: Vec<HeaderName>,
    /// Whether requests with cookies are allowed.
    pub credentials: bool,
    pub max_age: Duration,
}

/// An origin, or all origins of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    Any,
    /// Scheme, host and port, in lower case.
    Exact(String),
    /// `https://` and `.example.com`: every name below the domain.
    Below(String, String),
}

impl OriginPattern {
    fn parse(text: &str) -> Option<OriginPattern> {
        let text = text.to_ascii_lowercase();
        if text == "*" {
            return Some(OriginPattern::Any);
        }
        let (scheme, host) = text.split_once("://")?;
        let is_scheme = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric());
        let (is_wild, name) = match host.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, host),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-.:[]_".contains(c);
        if !is_scheme || name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        Some(match is_wild {
            true => OriginPattern::Below(format!("{scheme}://"), format!(".{name}")),
            false => OriginPattern::Exact(text),
        })
    }

    /// An origin as browsers send it.
    pub fn matches(&self, origin: &str) -> bool {
        match self {
            OriginPattern::Any => true,
            OriginPattern::Exact(exact) => exact == origin,
            OriginPattern::Below(scheme, domain) => origin
                .strip_prefix(scheme.as_str())
                .and_then(|host| host.strip_suffix(domain.as_str()))
                .is_some_and(|label| !label.is_empty() && !label.contains(['/', ':', '@'])),
        }
    }
}

/// The table `cors` of a site or a route.
pub(super) fn cors(report: &mut Report<'_>, owner: &Table<'_>) -> Option<Cors> {
    let table = owner.table(report, "cors", "`cors`")?;
    let keys = ["origins", "methods", "headers", "expose", "credentials", "max_age"];
    table.allow(report, &keys);
    let mut origins = Vec::new();
    for text in table.texts(report, "origins").unwrap_or_default() {
        match OriginPattern::parse(text.value) {
            Some(pattern) => origins.push(pattern),
            None => report.add(
                text.at,
                format!("`{}` is not `*` or an origin such as https://app.example.com", text.value),
            ),
        }
    }
    if table.value("origins").is_none() {
        report.add(table.at, "`cors` needs `origins = [\"https://app.example.com\"]`");
    }
    let credentials = table.flag(report, "credentials").unwrap_or(false);
    if credentials && origins.contains(&OriginPattern::Any) {
        let message = "`credentials` with the origin `*` would give every page the data of its \
                       visitors; name the origins";
        report.add(table.at, message);
    }
    let usual = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH];
    let usual = usual.into_iter().chain([Method::DELETE]).collect();
    let longest = Duration::from_secs(1)..=MAX_AGE.1;
    Some(Cors {
        origins,
        methods: list(report, &table, "methods", "a method").unwrap_or(usual),
        headers: headers(report, &table),
        expose: list(report, &table, "expose", "the name of a header")
            .unwrap_or_else(|| EXPOSED.map(HeaderName::from_static).to_vec()),
        credentials,
        max_age: table.duration(report, "max_age", longest).unwrap_or(MAX_AGE.0),
    })
}

/// `["*"]` is the same as no list: all headers.
fn headers(report: &mut Report<'_>, table: &Table<'_>) -> Vec<HeaderName> {
    let is_all = |texts: &Vec<Text<'_>>| texts.iter().any(|text| text.value == "*");
    match table.texts(report, "headers") {
        Some(texts) if is_all(&texts) => Vec::new(),
        _ => list(report, table, "headers", "the name of a header").unwrap_or_default(),
    }
}

fn list<T: std::str::FromStr>(
    report: &mut Report<'_>,
    table: &Table<'_>,
    key: &str,
    what: &str,
) -> Option<Vec<T>> {
    let mut found = Vec::new();
    for text in table.texts(report, key)? {
        match text.value.parse() {
            Ok(value) => found.push(value),
            Err(_) => report.add(text.at, format!("`{}` is not {what}", text.value)),
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_matched_as_a_whole() {
        for (pattern, origin, expected) in [
            ("https://a.example", "https://a.example", true),
            ("https://A.example", "https://a.example", true),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "https://a.example:8443", false),
            ("https://a.example", "https://a.example.evil", false),
            ("https://*.example.com", "https://x.y.example.com", true),
            ("https://*.example.com", "https://example.com", false),
            ("https://*.example.com", "https://evilexample.com", false),
            ("https://*.example.com", "https://evil.com:1/.example.com", false),
            ("*", "null", true),
        ] {
            let found = OriginPattern::parse(pattern).unwrap().matches(origin);
            assert_eq!(found, expected, "{pattern} {origin}");
        }
        for pattern in ["", "a.example", "https://", "https://a/b", "https://*.", "null"] {
            assert_eq!(OriginPattern::parse(pattern), None, "{pattern}");
        }
    }
}
