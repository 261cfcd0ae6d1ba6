//! Finds the site and the route of a request: the site by host, the route by path. No I/O.

use std::sync::Arc;

use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;

use crate::config::{HostPattern, PathPattern, Route, Site};
use crate::limit::Limiter;
use crate::metrics::RouteMetrics;

/// The sites and routes, in the order in which they are tried.
pub(crate) struct Routes {
    pub(crate) sites: Vec<ServedSite>,
}

pub(crate) struct ServedSite {
    /// The first host; the label in metrics.
    pub(crate) name: String,
    hosts: Vec<HostPattern>,
    pub(crate) security_headers: bool,
    pub(crate) routes: Vec<ServedRoute>,
}

pub(crate) struct ServedRoute {
    pub(crate) route: Arc<Route>,
    /// Names the route with all its settings in the cache.
    pub(crate) identity: u64,
    /// The path as the least strict server reads it.
    loose: PathPattern,
    pub(crate) state: Arc<RouteState>,
}

/// What a route counts. A reload keeps it.
#[derive(Default)]
pub(crate) struct RouteState {
    pub(crate) limiter: Limiter,
    pub(crate) metrics: RouteMetrics,
}

impl Routes {
    /// Routes that `before` has as well keep their counters.
    pub(crate) fn new(sites: Vec<Site>, before: Option<&Routes>) -> Routes {
        let served = |site: Site| {
            let name = site.hosts.first().map_or("*".to_owned(), ToString::to_string);
            let same = before.and_then(|before| before.sites.iter().find(|old| old.name == name));
            let state = |path: &PathPattern| {
                let old = same?.routes.iter().find(|old| old.route.path == *path)?;
                Some(old.state.clone())
            };
            let mut routes: Vec<ServedRoute> = site
                .routes
                .into_iter()
                .map(|route| ServedRoute {
                    state: state(&route.path).unwrap_or_default(),
                    loose: loose_pattern(&route.path),
                    identity: 0,
                    route: Arc::new(route),
                })
                .collect();
            routes.sort_by_key(|served| std::cmp::Reverse(served.route.path.precedence()));
            let security_headers = site.security_headers;
            ServedSite { name, hosts: site.hosts, security_headers, routes }
        };
        Routes { sites: sites.into_iter().map(served).collect() }
    }

    /// The site of a host: an exact name first, then the longest domain, then the site for all
    /// others.
    pub(crate) fn site(&self, host: &str) -> Option<&ServedSite> {
        if let [only] = &self.sites[..]
            && only.hosts.is_empty()
        {
            return Some(only);
        }
        let name = without_port(host).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let best = |site: &&ServedSite| site.hosts.iter().filter_map(|h| rank(h, name)).max();
        let found = self.sites.iter().filter(|site| best(site).is_some()).max_by_key(best);
        found.or_else(|| self.sites.iter().find(|site| site.hosts.is_empty()))
    }
}

/// How well a pattern matches: the exact name is best, then the longest domain.
fn rank(pattern: &HostPattern, name: &str) -> Option<usize> {
    match pattern {
        _ if !pattern.matches(name) => None,
        HostPattern::Exact(_) => Some(usize::MAX),
        HostPattern::Below(domain) => Some(domain.len()),
    }
}

impl ServedSite {
    /// The route of a path in its normal form. A path that another server could read as that of
    /// another route is refused: rules of the proxy would be evaded.
    pub(crate) fn route(&self, path: &str) -> Result<Option<&ServedRoute>, BadPath> {
        let found = self.routes.iter().position(|served| served.route.path.matches(path));
        if let Some(loose) = loose(path)? {
            let other = self.routes.iter().position(|served| served.loose.matches(&loose));
            if other != found {
                return Err(BadPath);
            }
        }
        Ok(found.map(|place| &self.routes[place]))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Why a path is not routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPath;

/// The path in its normal form (RFC 3986 6.2.2): escapes of unreserved characters are decoded and
/// hex digits are in upper case, so that every spelling of a path has the same route. A path with
/// dot segments is refused: the backend could resolve it to another route.
pub(crate) fn normal(path: &str) -> Result<Option<String>, BadPath> {
    let normal = match path.contains('%') {
        true => Some(decode_unreserved(path)?),
        false => None,
    };
    let shown = normal.as_deref().unwrap_or(path);
    // Some servers take a backslash for a slash.
    let mut segments = shown.split(['/', '\\']);
    match segments.any(|segment| matches!(segment, "." | "..")) {
        true => Err(BadPath),
        false => Ok(normal.filter(|normal| normal != path)),
    }
}

/// The path and query for the backend. The query stays as it is.
pub(crate) fn forwarded(
    path: &str,
    query: Option<&str>,
    strip_prefix: Option<&str>,
) -> Result<PathAndQuery, BadPath> {
    let stripped = strip_prefix.and_then(|prefix| path.strip_prefix(prefix));
    let path = match stripped {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => {
            // Two slashes at the beginning would be the name of a host for some servers.
            let slashes = rest.len() - rest.trim_start_matches('/').len();
            &rest[slashes - 1..]
        }
        _ => path,
    };
    let whole = match query {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    whole.map_err(|_| BadPath)
}

/// How often a path may be encoded: a server that decodes more often is not known.
const MAX_ENCODINGS: usize = 3;

/// The path as the least strict server reads it: escapes decoded, also those of escapes, `\\` as
/// `/`, parameters of segments (`;…`) removed, and several slashes as one. None if that is the path
/// itself. A path in which this makes dot segments is refused.
fn loose(path: &str) -> Result<Option<String>, BadPath> {
    if !path.contains(['%', ';', '\\']) && !path.contains("//") {
        return Ok(None);
    }
    let mut decoded = path.to_owned();
    for _ in 0..MAX_ENCODINGS {
        if !decoded.contains('%') {
            break;
        }
        let bytes = percent_decode_str(&decoded).collect::<Vec<u8>>();
        decoded = String::from_utf8_lossy(&bytes).into_owned();
    }
    let mut loose = String::with_capacity(decoded.len());
    for segment in decoded.split(['/', '\\']) {
        let name = segment.split(';').next().unwrap_or_default();
        if matches!(name, "." | "..") {
            return Err(BadPath);
        }
        if !name.is_empty() {
            loose.push('/');
            loose.push_str(name);
        }
    }
    if loose.is_empty() || decoded.ends_with(['/', '\\']) {
        loose.push('/');
    }
    Ok(Some(loose))
}

/// The pattern that loose paths are compared with.
fn loose_pattern(pattern: &PathPattern) -> PathPattern {
    let read = |path: &str| match loose(path) {
        Ok(Some(loose)) => loose,
        Ok(None) | Err(BadPath) => path.to_owned(),
    };
    match pattern {
        PathPattern::Exact(path) => PathPattern::Exact(read(path)),
        PathPattern::Prefix(path) => PathPattern::Prefix(read(path)),
    }
}

fn decode_unreserved(path: &str) -> Result<String, BadPath> {
    let mut normal = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        normal.push_str(before);
        let digits = after.get(..2).filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or(BadPath)?;
        let byte = u8::from_str_radix(digits, 16).map_err(|_| BadPath)?;
        match byte {
            // No server expects it, and text functions in C end there.
            0 => return Err(BadPath),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                normal.push(char::from(byte));
            }
            _ => {
                normal.push('%');
                normal.push_str(&digits.to_ascii_uppercase());
            }
        }
        rest = &after[2..];
    }
    normal.push_str(rest);
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Action;

    fn site(hosts: &[&str], paths: &[&str]) -> Site {
        let route = |path: &&str| {
            let action = Action::Files { folder: path.into() };
            Route::new(PathPattern::parse(path).unwrap(), action)
        };
        Site {
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            routes: paths.iter().map(route).collect(),
            security_headers: true,
        }
    }

    #[test]
    fn the_best_host_and_the_longest_path_win() {
        let sites = vec![
            site(&[], &["/*"]),
            site(&["*.example.com"], &["/*", "/v1/*", "/v1/books", "/v1/books/*"]),
            site(&["*.a.example.com"], &["/a/*"]),
            site(&["a.example.com"], &["/b/*"]),
        ];
        let routes = Routes::new(sites, None);
        let path = |host: &str, path: &str| {
            let route = routes.site(host)?.route(path).unwrap()?;
            Some(route.route.path.to_string())
        };
        for (host, asked, expected) in [
            ("other.org", "/x", Some("/*")),
            ("example.com", "/v1", Some("/*")),
            ("x.example.com:8443", "/v1", Some("/v1/*")),
            ("X.EXAMPLE.com.", "/v1/books", Some("/v1/books")),
            ("x.example.com", "/v1/books/1", Some("/v1/books/*")),
            ("x.example.com", "/v1/book", Some("/v1/*")),
            ("x.example.com", "/v12", Some("/*")),
            ("a.example.com", "/b/1", Some("/b/*")),
            ("a.example.com", "/a/1", None),
            ("b.a.example.com", "/a/1", Some("/a/*")),
        ] {
            assert_eq!(path(host, asked).as_deref(), expected, "{host} {asked}");
        }
    }

    #[test]
    fn a_path_that_servers_read_as_that_of_another_route_is_refused() {
        let routes = Routes::new(vec![site(&[], &["/*", "/admin/*", "/a%20b/*", "/x"])], None);
        let site = routes.site("a").unwrap();
        for (path, expected) in [
            ("/admin/x", Ok(Some("/admin/*"))),
            ("/admin//x", Ok(Some("/admin/*"))),
            ("/admin/x;y=1", Ok(Some("/admin/*"))),
            ("/admin/a%2Fb", Ok(Some("/admin/*"))),
            ("/books/a%2Fb;c", Ok(Some("/*"))),
            ("/a%20b/c", Ok(Some("/a%20b/*"))),
            ("/100%25", Ok(Some("/*"))),
            ("//", Ok(Some("/*"))),
            ("/x", Ok(Some("/x"))),
            ("/admin%2Fx", Err(BadPath)),
            ("/admin%252Fx", Err(BadPath)),
            ("/admin%5Cx", Err(BadPath)),
            ("/admin\\x", Err(BadPath)),
            ("//admin", Err(BadPath)),
            ("//admin/x", Err(BadPath)),
            ("/admin;x", Err(BadPath)),
            ("/admin%3Bx", Err(BadPath)),
            ("/;/admin/x", Err(BadPath)),
            ("/x;y", Err(BadPath)),
            ("/books/..;/admin", Err(BadPath)),
            ("/books/..%2Fadmin", Err(BadPath)),
            ("/books/..%5Cadmin", Err(BadPath)),
            ("/books/%252e%252e/admin", Err(BadPath)),
        ] {
            let found = site.route(path).map(|found| found.map(|r| r.route.path.to_string()));
            let expected = expected.map(|path| path.map(str::to_owned));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn paths_have_one_spelling_and_no_dot_segments() {
        for (path, expected) in [
            ("/v1/books", Ok(None)),
            ("/%761/b", Ok(Some("/v1/b"))),
            ("/a%2fb%c3%a9", Ok(Some("/a%2Fb%C3%A9"))),
            ("/a%2Fb", Ok(None)),
            ("/a/..b/...", Ok(None)),
            ("/a/../b", Err(BadPath)),
            ("/a/./b", Err(BadPath)),
            ("/a/..", Err(BadPath)),
            ("/a/%2e%2E/b", Err(BadPath)),
            ("/a\\..\\b", Err(BadPath)),
            ("/a%00", Err(BadPath)),
            ("/a%zz", Err(BadPath)),
            ("/a%2", Err(BadPath)),
        ] {
            let found = normal(path);
            assert_eq!(found.as_ref().map(|path| path.as_deref()), expected.as_ref().map(|p| *p));
        }
    }
}
