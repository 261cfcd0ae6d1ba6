//! The meaning of the keys in the configuration file. Collects all errors, so that one run of
//! `restive proxy --check` shows them together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use toml::de::DeTable;
use wire::outgoing::{Protocol, ProxyProtocol};

use super::cors::cors;
use super::reader::{Node, Report, Table, Text, table, text, wrong_type};
use super::{
    Action, Balance, CACHE_BYTES, Check, Config, ConfigError, Edits, Group, HostPattern, LOCAL,
    PathPattern, RateLimit, Route, Server, Site, Timeouts,
};

/// The longest of all times in the file.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);
const MIN_TIME: Duration = Duration::from_millis(10);
/// A weight is a share: a hundred to one is finer than anyone needs.
const MAX_WEIGHT: u32 = 100;

/// Headers that the proxy writes itself. An edit of them would break the framing of a message or
/// forge the client's address.
const OWN_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads a configuration file. `has_local`: the process has a service that routes can lead to.
pub fn parse(source: &str, has_local: bool) -> Result<Config, Vec<ConfigError>> {
    let mut report = Report::new(source);
    let tree = match DeTable::parse(source) {
        Ok(tree) => tree,
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            report.add(at, error.message().to_owned());
            return Err(report.finish());
        }
    };
    let file = Table::new("the file", 0, tree.get_ref());
    file.allow(&mut report, &["backends", "cache_size", "sites"]);
    let cache_bytes = file.bytes(&mut report, "cache_size").unwrap_or(CACHE_BYTES);
    let mut groups = groups(&mut report, &file);
    if has_local && let Ok(local) = Group::local() {
        groups.push(local);
    }
    let names: BTreeMap<&str, usize> =
        groups.iter().enumerate().map(|(place, group)| (group.name.as_str(), place)).collect();
    let tables = file.tables(&mut report, "sites", "a site");
    if tables.is_empty() {
        report.add(0, "the file has no `[[sites]]`: add one with at least one route");
    }
    let sites: Vec<Site> = tables.iter().map(|table| site(&mut report, table, &names)).collect();
    refuse_shared_hosts(&mut report, &tables, &sites);
    match report.finish() {
        errors if errors.is_empty() => Ok(Config { groups, sites, cache_bytes }),
        errors => Err(errors),
    }
}

/// Two sites with one host: only the first would ever be used.
fn refuse_shared_hosts(report: &mut Report<'_>, tables: &[Table<'_>], sites: &[Site]) {
    for (place, (table, site)) in tables.iter().zip(sites).enumerate() {
        let earlier = &sites[..place];
        if site.hosts.is_empty() && earlier.iter().any(|other| other.hosts.is_empty()) {
            report.add(table.at, "another site without `hosts` comes before this one");
        }
        for host in &site.hosts {
            if earlier.iter().any(|other| other.hosts.contains(host)) {
                report.add(table.at, "another site with the same host comes before this one");
            }
        }
    }
}

fn groups(report: &mut Report<'_>, file: &Table<'_>) -> Vec<Group> {
    let Some(all) = file.table(report, "backends", "`backends`") else { return Vec::new() };
    let mut groups = Vec::new();
    for (name, value) in all.entries() {
        match table(value, format!("backend `{}`", name.value)) {
            Some(_) if name.value == LOCAL => {
                let message = "the backend `self` is the API in this process (`restive serve \
                               --edge`); give this one another name";
                report.add(name.at, message);
            }
            Some(table) => groups.push(group(report, name, &table)),
            None => wrong_type(report, value, name.value, "a table"),
        }
    }
    groups
}

const GROUP_KEYS: &[&str] =
    &["to", "balance", "check", "max_active", "max_waiting", "protocol", "send_proxy", "follow"];

fn group(report: &mut Report<'_>, name: Text<'_>, table: &Table<'_>) -> Group {
    table.allow(report, GROUP_KEYS);
    let mut group = Group::new(name.value);
    group.servers = servers(report, table);
    if let Some(balance) = table.word(report, "balance", BALANCES) {
        group.balance = balance;
    }
    if let Some(value) = table.value("check") {
        group.check = check(report, value);
    }
    if let Some(most) = table.integer(report, "max_active", 1..=1_000_000) {
        group.max_active = most as usize;
    }
    if let Some(most) = table.integer(report, "max_waiting", 0..=1_000_000) {
        group.max_waiting = most as usize;
    }
    if let Some(protocol) = table.word(report, "protocol", PROTOCOLS) {
        group.protocol = protocol;
    }
    group.is_followed = table.flag(report, "follow").unwrap_or(false);
    group.send_proxy = table.word(report, "send_proxy", PROXY_PROTOCOLS);
    if group.send_proxy.is_some() {
        let at = table.value("protocol").map_or(table.at, |value| value.span().start);
        if group.protocol == Protocol::Http2 {
            report.add(at, "`send_proxy` names one client, and HTTP/2 connections have several");
        }
        group.protocol = Protocol::Http1;
    }
    group
}

const PROTOCOLS: &[(&str, Protocol)] =
    &[("auto", Protocol::Negotiated), ("http1", Protocol::Http1), ("http2", Protocol::Http2)];

const PROXY_PROTOCOLS: &[(&str, ProxyProtocol)] =
    &[("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];

const BALANCES: &[(&str, Balance)] = &[
    ("round_robin", Balance::RoundRobin),
    ("least_connections", Balance::LeastConnections),
    ("client_hash", Balance::ClientHash),
];

/// Addresses, or tables with an address and a weight.
fn servers(report: &mut Report<'_>, owner: &Table<'_>) -> Vec<Server> {
    let list = owner.value("to").and_then(|value| value.get_ref().as_array());
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        let example = "`to = [\"127.0.0.1:8080\"]`";
        report.add(owner.at, format!("a backend needs a list of servers: {example}"));
        return Vec::new();
    };
    let mut servers = Vec::new();
    for item in list.iter() {
        let (url, weight) = match (text(item), table(item, "a server")) {
            (Some(url), _) => (Some(url), 1),
            (None, Some(table)) => {
                table.allow(report, &["url", "weight"]);
                let weight = table.integer(report, "weight", 1..=MAX_WEIGHT).unwrap_or(1);
                (table.text(report, "url"), weight)
            }
            (None, None) => {
                wrong_type(report, item, "to", "a list of addresses");
                continue;
            }
        };
        let Some(url) = url else { continue };
        match Server::parse(url.value, weight) {
            Ok(server) => servers.push(server),
            Err(why) => report.add(url.at, format!("`{}` {why}", url.value)),
        }
    }
    servers
}

/// `"off"`, a path, or a table.
fn check(report: &mut Report<'_>, value: Node<'_>) -> Option<Check> {
    let mut check = Check::default();
    if let Some(text) = text(value) {
        match text.value {
            "off" => return None,
            path if path.starts_with('/') => check.path = path.to_owned(),
            _ => report.add(text.at, "`check` is \"off\" or a path such as \"/health\""),
        }
        return Some(check);
    }
    let Some(table) = table(value, "`check`") else {
        wrong_type(report, value, "check", "\"off\", a path or a table");
        return None;
    };
    table.allow(report, &["path", "interval", "timeout", "rise", "fall"]);
    if let Some(path) = table.text(report, "path") {
        match path.value.starts_with('/') {
            true => check.path = path.value.to_owned(),
            false => report.add(path.at, "`path` must begin with `/`"),
        }
    }
    for (key, time) in [("interval", &mut check.interval), ("timeout", &mut check.timeout)] {
        if let Some(found) = table.duration(report, key, MIN_TIME..=MAX_TIME) {
            *time = found;
        }
    }
    for (key, count) in [("rise", &mut check.rise), ("fall", &mut check.fall)] {
        if let Some(found) = table.integer(report, key, 1..=100) {
            *count = found;
        }
    }
    Some(check)
}

fn site(report: &mut Report<'_>, table: &Table<'_>, groups: &BTreeMap<&str, usize>) -> Site {
    table.allow(report, &["hosts", "routes", "security_headers", "cors", "compress"]);
    let mut hosts = Vec::new();
    for host in table.texts(report, "hosts").unwrap_or_default() {
        match HostPattern::parse(host.value) {
            Ok(pattern) => hosts.push(pattern),
            Err(why) => report.add(host.at, why),
        }
    }
    let tables = table.tables(report, "routes", "a route");
    if tables.is_empty() {
        report.add(table.at, "a site needs at least one `[[sites.routes]]`");
    }
    let site_cors = cors(report, table);
    let compress = table.flag(report, "compress").unwrap_or(true);
    let mut routes: Vec<Route> = Vec::new();
    for table in &tables {
        let Some(mut route) = route(report, table, groups) else { continue };
        if route.cors.is_none() {
            route.cors.clone_from(&site_cors);
        }
        if table.value("compress").is_none() {
            route.compress = compress;
        }
        if routes.iter().any(|other| other.path == route.path) {
            report.add(table.at, format!("another route has the path `{}`", route.path));
        }
        routes.push(route);
    }
    let security_headers = table.flag(report, "security_headers").unwrap_or(true);
    Site { hosts, routes, security_headers }
}

const ROUTE_KEYS: &[&str] = &[
    "path",
    "to",
    "strip_prefix",
    "files",
    "redirect",
    "status",
    "timeouts",
    "max_body",
    "request_headers",
    "response_headers",
    "rate_limit",
    "cors",
    "compress",
    "cache",
    "fanout",
    "early_hints",
];

fn route(
    report: &mut Report<'_>,
    table: &Table<'_>,
    groups: &BTreeMap<&str, usize>,
) -> Option<Route> {
    table.allow(report, ROUTE_KEYS);
    let path = match table.text(report, "path") {
        Some(path) => match PathPattern::parse(path.value) {
            Ok(pattern) => Some(pattern),
            Err(why) => {
                report.add(path.at, why);
                None
            }
        },
        None => Some(PathPattern::Prefix("/".to_owned())),
    };
    let action = action(report, table, groups);
    let mut route = Route::new(path?, action?);
    if let Some(times) = table.table(report, "timeouts", "`timeouts`") {
        route.timeouts = timeouts(report, &times);
    }
    if let Some(bytes) = table.bytes(report, "max_body") {
        route.max_body_bytes = bytes;
    }
    route.cors = cors(report, table);
    if let Some(compress) = table.flag(report, "compress") {
        route.compress = compress;
    }
    route.request_headers = edits(report, table, "request_headers");
    route.response_headers = edits(report, table, "response_headers");
    if let Some(text) = table.text(report, "rate_limit") {
        route.rate_limit = RateLimit::parse(text.value);
        if route.rate_limit.is_none() {
            report.add(text.at, "`rate_limit` is requests per window, such as \"100/1s\"");
        }
    }
    if let Some(cache) = table.word(report, "cache", &[("on", true), ("off", false)]) {
        route.cache = cache;
    }
    if let Some(fanout) = table.word(report, "fanout", &[("on", true), ("off", false)]) {
        route.fanout = fanout;
    }
    if let Some(early) = table.word(report, "early_hints", &[("on", true), ("off", false)]) {
        route.early_hints = early;
    }
    Some(route)
}

/// Exactly one of `to`, `files` and `redirect`.
fn action(
    report: &mut Report<'_>,
    table: &Table<'_>,
    groups: &BTreeMap<&str, usize>,
) -> Option<Action> {
    let given: Vec<&str> =
        ["to", "files", "redirect"].into_iter().filter(|key| table.value(key).is_some()).collect();
    for (key, owner) in [("strip_prefix", "to"), ("status", "redirect")] {
        if let Some(value) = table.value(key).filter(|_| given != [owner]) {
            report.add(value.span().start, format!("`{key}` belongs to a route with `{owner}`"));
        }
    }
    match given[..] {
        ["to"] => forward(report, table, groups),
        ["files"] => {
            let folder = PathBuf::from(table.text(report, "files")?.value);
            Some(Action::Files { folder })
        }
        ["redirect"] => redirect(report, table),
        _ => {
            let message = "a route has exactly one of `to` (the name of a backend), `files` (a \
                           folder) and `redirect` (a URL)";
            report.add(table.at, message);
            None
        }
    }
}

fn forward(
    report: &mut Report<'_>,
    table: &Table<'_>,
    groups: &BTreeMap<&str, usize>,
) -> Option<Action> {
    let to = table.text(report, "to")?;
    let group = groups.get(to.value).copied();
    if group.is_none() && to.value == LOCAL {
        let message = "`self` is the API in the process of `restive serve --edge`; a proxy of its \
                       own has none";
        report.add(to.at, message);
    } else if group.is_none() {
        let known: Vec<&str> = groups.keys().copied().collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
        report.add(to.at, format!("no backend is called `{}`; known: {known}", to.value));
    }
    let strip_prefix = table.text(report, "strip_prefix").and_then(|prefix| {
        let valid = prefix.value.starts_with('/') && !prefix.value.ends_with('/');
        if !valid {
            report.add(prefix.at, "`strip_prefix` begins with `/` and does not end with `/`");
        }
        valid.then(|| prefix.value.to_owned())
    });
    Some(Action::Forward { group: group?, strip_prefix })
}

fn redirect(report: &mut Report<'_>, table: &Table<'_>) -> Option<Action> {
    let to = table.text(report, "redirect")?;
    if HeaderValue::from_str(to.value).is_err() || to.value.is_empty() {
        report.add(to.at, "`redirect` is a path or URL; `{path}` in it stands for the path");
        return None;
    }
    let status = match table.integer(report, "status", 301..=308) {
        None => StatusCode::PERMANENT_REDIRECT,
        Some(code @ (301 | 302 | 303 | 307 | 308)) => StatusCode::from_u16(code as u16).ok()?,
        Some(_) => {
            let at = table.value("status").map_or(table.at, |value| value.span().start);
            report.add(at, "`status` is one of 301, 302, 303, 307, 308");
            return None;
        }
    };
    Some(Action::Redirect { to: to.value.to_owned(), status })
}

fn timeouts(report: &mut Report<'_>, table: &Table<'_>) -> Timeouts {
    table.allow(report, &["connect", "send", "read", "long_poll"]);
    let mut times = Timeouts::default();
    for (key, time) in [
        ("connect", &mut times.connect),
        ("send", &mut times.send),
        ("read", &mut times.read),
        ("long_poll", &mut times.long_poll),
    ] {
        if let Some(found) = table.duration(report, key, MIN_TIME..=MAX_TIME) {
            *time = found;
        }
    }
    times
}

fn edits(report: &mut Report<'_>, owner: &Table<'_>, key: &str) -> Edits {
    let mut edits = Edits::default();
    let Some(table) = owner.table(report, key, format!("`{key}`")) else { return edits };
    table.allow(report, &["set", "remove"]);
    for name in table.texts(report, "remove").unwrap_or_default() {
        edits.remove.extend(header_name(report, name));
    }
    let Some(set) = table.table(report, "set", "`set`") else { return edits };
    for (name, value) in set.entries() {
        let Some(header) = header_name(report, name) else { continue };
        match text(value).map(|text| HeaderValue::from_str(text.value)) {
            Some(Ok(value)) => edits.set.push((header, value)),
            _ => wrong_type(report, value, name.value, "the text of a header"),
        }
    }
    edits
}

fn header_name(report: &mut Report<'_>, text: Text<'_>) -> Option<HeaderName> {
    let name: Option<HeaderName> = text.value.parse().ok();
    match name {
        None => report.add(text.at, format!("`{}` is not the name of a header", text.value)),
        Some(ref name) if OWN_HEADERS.contains(&name.as_str()) => {
            report.add(text.at, format!("the proxy itself writes `{name}`"));
            return None;
        }
        Some(_) => {}
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
[backends.api]
to = ["127.0.0.1:8080", { url = "http://10.0.0.2:8080", weight = 3 }]
balance = "least_connections"
check = { path = "/ready", interval = "1s", rise = 1, fall = 2 }
max_active = 100

[backends.pages]
to = ["https://pages.example.com"]
check = "off"

[[sites]]
hosts = ["example.com", "*.example.com"]

[[sites.routes]]
path = "/v1/*"
to = "api"
timeouts = { read = "120s" }
max_body = "10MiB"
rate_limit = "100/1s"
request_headers = { set = { x-env = "test" }, remove = ["x-debug"] }

[[sites.routes]]
path = "/old/*"
redirect = "https://example.com/new"
status = 301

[[sites.routes]]
files = "public"

[[sites]]
security_headers = false
[[sites.routes]]
to = "pages"
"#;

    #[test]
    fn a_full_file_is_read() {
        let config = parse(FULL, false).unwrap();
        let [api, pages] = &config.groups[..] else { panic!("{config:?}") };
        assert_eq!((api.servers.len(), api.servers[1].weight, api.max_active), (2, 3, 100));
        assert_eq!(api.balance, Balance::LeastConnections);
        assert_eq!(api.check.as_ref().map(|c| (c.path.as_str(), c.fall)), Some(("/ready", 2)));
        assert!(pages.check.is_none());
        let site = &config.sites[0];
        assert_eq!(site.routes.len(), 3);
        assert_eq!(site.routes[0].timeouts.read, Duration::from_secs(120));
        assert_eq!(site.routes[0].max_body_bytes, 10 << 20);
        assert!(!config.sites[1].security_headers);
    }

    #[test]
    fn routes_lead_to_the_service_in_the_process_only_where_there_is_one() {
        let file = "[[sites]]\n[[sites.routes]]\nto = \"self\"\n";
        assert!(parse(file, true).unwrap().groups[0].is_local);
        let errors = parse(file, false).unwrap_err();
        assert_eq!((errors[0].line, errors[0].column), (3, 6), "{errors:?}");
        assert!(errors[0].message.contains("restive serve --edge"), "{errors:?}");
        let own = format!("[backends.self]\nto = [\"127.0.0.1:1\"]\n{file}");
        let errors = parse(&own, true).unwrap_err();
        assert!(errors[0].message.contains("another name"), "{errors:?}");
    }

    #[test]
    fn every_error_is_reported_with_its_position() {
        let file = "[backends.a]\nto = [\"127.0.0.1\", 5]\nbalanc = \"x\"\n[[sites]]\n\
                    hosts = [\"a b\"]\n[[sites.routes]]\npath = \"v1\"\nto = \"b\"\n\
                    [[sites.routes]]\npath = \"/x\"\nto = \"a\"\nfiles = \"y\"\n\
                    max_body = \"1MB\"\n\
                    request_headers = { set = { connection = \"x\" } }\n";
        let errors = parse(file, false).unwrap_err();
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        for (position, part) in [
            ("2:7", "has no port"),
            ("2:20", "a list of addresses"),
            ("3:1", "did you mean `balance`"),
            ("5:10", "not a host name"),
            ("7:8", "not a path"),
            ("8:6", "no backend is called `b`; known: a"),
            ("9:1", "exactly one of"),
        ] {
            let found = shown.iter().any(|line| line.starts_with(position) && line.contains(part));
            assert!(found, "{position} {part}: {shown:#?}");
        }
    }

    #[test]
    fn files_that_are_no_toml_or_have_no_site_are_refused() {
        for (file, part) in [
            ("", "no `[[sites]]`"),
            ("sites = 5", "a list of tables"),
            ("[[sites]", "1:"),
            ("[[sites]]", "at least one"),
            ("[[sites]]\n[[sites.routes]]\nfiles=\"a\"\n[[sites.routes]]\nfiles=\"b\"", "another"),
            (
                "[[sites]]\n[[sites.routes]]\nfiles=\"a\"\n[[sites]]\n[[sites.routes]]\nfiles=\"b\"",
                "another site without",
            ),
            ("[[sites]]\n[[sites.routes]]\nredirect=\"/\"\nstatus=300", "from 301"),
            ("[[sites]]\n[[sites.routes]]\nfiles=\"a\"\nrate_limit=\"1\"", "requests per window"),
        ] {
            let errors = parse(file, false).unwrap_err();
            let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert!(text.iter().any(|line| line.contains(part)), "{file}: {text:?}");
        }
    }
}
