//! Explains what the proxy does with a request, without sending it: `restive proxy explain`.

use http::{Method, Uri};
use wire::outgoing::{Protocol, ProxyProtocol};

use crate::cache::Origin;
use crate::config::{Action, Config, Cors, Edits, Group, OriginPattern, Route};
use crate::forward::is_long_poll;
use crate::route::{self, Routes};

/// What happens with event streams.
const SHARED: &str =
    "clients of a restive backend with the same credential and filter share an event stream";

/// A fact and its value. A fact may have several.
pub type Row = (&'static str, String);

/// What happens, in order; an error is a reason why the request would not be routed.
pub fn explain(config: Config, method: &Method, url: &Uri) -> Result<Vec<Row>, String> {
    let host = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let normal = route::normal(url.path());
    let bad_path = |_| "400: the path has several readings, or invalid escapes".to_owned();
    let normal = normal.map_err(bad_path)?;
    let path = normal.as_deref().unwrap_or(url.path());
    let groups = config.groups;
    let routes = Routes::new(config.sites, None);
    let site = routes.site(host).ok_or(format!("421: no site has the host `{host}`"))?;
    let served = site.route(path).map_err(bad_path)?;
    let route = &served.ok_or(format!("404: no route matches `{path}`"))?.route;
    let mut out = Vec::new();
    row(&mut out, "site", &site.name);
    row(&mut out, "route", &route.path.to_string());
    match &route.action {
        Action::Redirect { to, status } => row(&mut out, "redirect", &format!("{status} {to}")),
        Action::Files { folder } => row(&mut out, "files", &folder.display().to_string()),
        Action::Forward { group, strip_prefix } => {
            let group = &groups[*group];
            let servers = group.servers.iter().map(|server| match server.weight {
                1 => server.url.clone(),
                weight => format!("{} (weight {weight})", server.url),
            });
            let servers: Vec<String> = servers.collect();
            row(&mut out, "backend", &group.name);
            row(&mut out, "servers", &servers.join(", "));
            row(&mut out, "balance", group.balance.name());
            let check = group.check.as_ref().map_or("off".to_owned(), |check| {
                format!("GET {} every {:?}", check.path, check.interval)
            });
            row(&mut out, "check", &check);
            row(&mut out, "protocol", protocol(group));
            if let Some(prefix) = strip_prefix {
                row(&mut out, "strip", prefix);
            }
            let prefix = strip_prefix.as_deref();
            if let Ok(forwarded) = route::forwarded(path, url.query(), prefix) {
                describe_cache(&mut out, route, method, url, forwarded.as_str());
            }
            let fanout = if route.fanout { SHARED } else { "off" };
            row(&mut out, "fan-out", fanout);
            let hints =
                if route.early_hints { "links that an earlier response had" } else { "off" };
            row(&mut out, "early hints", hints);
            row(&mut out, "retry", retry_class(method));
            let times = route.timeouts;
            let read = match is_long_poll(method, url) {
                true => times.long_poll,
                false => times.read,
            };
            let times =
                format!("connect {:?}, send {:?}, read {read:?}", times.connect, times.send);
            row(&mut out, "timeouts", &times);
            row(&mut out, "max body", &format!("{} bytes", route.max_body_bytes));
        }
    }
    describe_edits(&mut out, route);
    if let Some(cors) = &route.cors {
        row(&mut out, "cors", &describe_cors(cors));
    }
    let compress = if route.compress { "br or gzip, for text of 1 KiB and more" } else { "off" };
    row(&mut out, "compress", compress);
    if let Some(limit) = route.rate_limit {
        let text = format!("{} requests per client and {:?}", limit.requests, limit.window);
        row(&mut out, "rate limit", &text);
    }
    Ok(out)
}

fn row(out: &mut Vec<Row>, name: &'static str, value: &str) {
    out.push((name, value.to_owned()));
}

fn protocol(group: &Group) -> &'static str {
    match (group.protocol, group.send_proxy) {
        (_, Some(ProxyProtocol::V1)) => "HTTP/1.1 behind a PROXY header, version 1",
        (_, Some(ProxyProtocol::V2)) => "HTTP/1.1 behind a PROXY header, version 2",
        (Protocol::Negotiated, None) => "HTTP/1.1, or over TLS what the server prefers",
        (Protocol::Http1, None) => "HTTP/1.1",
        (Protocol::Http2, None) => "HTTP/2",
    }
}

/// What the cache does with the request, and the key by which it stores the response.
fn describe_cache(out: &mut Vec<Row>, route: &Route, method: &Method, url: &Uri, path: &str) {
    if !route.cache || is_long_poll(method, url) {
        return row(out, "cache", "off");
    }
    let is_secure = url.scheme_str() == Some("https");
    let host = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let key = Origin::new(is_secure, host).key(0, path);
    match *method {
        Method::GET | Method::HEAD => {
            row(out, "cache", "for as long as the response says; private responses are not stored");
            row(out, "cache key", key.text());
        }
        Method::OPTIONS | Method::TRACE => row(out, "cache", "not used for this method"),
        _ => row(out, "cache", &format!("removes {}", key.text())),
    }
}

fn retry_class(method: &Method) -> &'static str {
    match crate::forward::is_idempotent(method) {
        true => "another server after a failed connection, a lost connection or 503",
        false => "another server only if nothing was sent",
    }
}

fn describe_cors(cors: &Cors) -> String {
    let origins = cors.origins.iter().map(|origin| match origin {
        OriginPattern::Any => "*".to_owned(),
        OriginPattern::Exact(origin) => origin.clone(),
        OriginPattern::Below(scheme, domain) => format!("{scheme}*{domain}"),
    });
    let credentials = if cors.credentials { ", with credentials" } else { "" };
    format!("{}{credentials}", origins.collect::<Vec<_>>().join(", "))
}

fn describe_edits(out: &mut Vec<Row>, route: &Route) {
    for (name, Edits { remove, set }) in
        [("request", &route.request_headers), ("response", &route.response_headers)]
    {
        for header in remove {
            row(out, name, &format!("remove {header}"));
        }
        for (header, value) in set {
            row(out, name, &format!("set {header}: {}", value.to_str().unwrap_or("(binary)")));
        }
    }
}
