//! Where events are forwarded: `--forward-to` and `--route`.

use model::webhook::pattern;
use std::fmt;
use std::str::FromStr;

/// A URL, split for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Such as `http://localhost:3000`.
    pub origin: String,
    /// Path and query.
    pub path: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        // As in other tools: localhost:3000/hook, and a port alone.
        let host = text.split(['/', '?']).next().unwrap_or_default();
        let is_port = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit());
        let whole = match (text.contains("://"), is_port) {
            (true, _) => text.to_owned(),
            (false, true) => format!("http://localhost:{text}"),
            (false, false) => format!("http://{text}"),
        };
        let invalid = || "write a URL such as http://localhost:3000/hook".to_owned();
        let url: http::Uri = whole.parse().map_err(|_| invalid())?;
        let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
        let (Some(scheme), Some(authority)) = (scheme, url.authority()) else {
            return Err(invalid());
        };
        if authority.as_str().contains('@') {
            return Err("the URL must not contain credentials".to_owned());
        }
        if !has_port_or_none(authority) {
            return Err(format!("`{authority}` has no valid port; ports are 1 to 65535"));
        }
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Target { origin: format!("{scheme}://{authority}"), path })
    }
}

/// The parser takes anything for a port.
fn has_port_or_none(authority: &http::uri::Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    rest == Some("") || authority.port_u16().is_some_and(|port| port > 0)
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.origin, self.path)
    }
}

/// Some types go elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pattern: String,
    to: Destination,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Destination {
    /// On the server of `--forward-to`.
    Path(String),
    Url(Target),
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Route, String> {
        let message = "write a pattern and a path or URL, such as order.*=/orders";
        let (kinds, to) = text.split_once('=').ok_or(message)?;
        pattern::check_form(kinds)?;
        let to = match to.starts_with('/') {
            true => Destination::Path(to.to_owned()),
            false => Destination::Url(to.parse()?),
        };
        Ok(Route { pattern: kinds.to_owned(), to })
    }
}

impl Route {
    /// The server of the route, if it is another one.
    pub fn origin(&self) -> Option<&str> {
        match &self.to {
            Destination::Path(_) => None,
            Destination::Url(target) => Some(&target.origin),
        }
    }
}

/// Where an event of this type goes.
pub fn choose(kind: &str, routes: &[Route], other: &Target) -> Target {
    let route = routes.iter().find(|route| pattern::matches(&route.pattern, kind));
    match route.map(|route| &route.to) {
        None => other.clone(),
        Some(Destination::Url(target)) => target.clone(),
        Some(Destination::Path(path)) => {
            Target { origin: other.origin.clone(), path: path.clone() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_route_that_matches_decides() {
        let other: Target = "localhost:3000/hook?a=1".parse().unwrap();
        assert_eq!("[::1]:80".parse::<Target>().unwrap().to_string(), "http://[::1]:80/");
        assert_eq!("3000?a".parse::<Target>().unwrap().to_string(), "http://localhost:3000/?a");
        let routes = ["order.paid=/paid", "order.*=/orders", "book.*=https://books.test:8443"];
        let routes: Vec<Route> = routes.iter().map(|route| route.parse().unwrap()).collect();
        for (kind, expected) in [
            ("order.paid", "http://localhost:3000/paid"),
            ("order.created", "http://localhost:3000/orders"),
            ("book.created", "https://books.test:8443/"),
            ("review.created", "http://localhost:3000/hook?a=1"),
        ] {
            assert_eq!(choose(kind, &routes, &other).to_string(), expected, "{kind}");
        }
    }

    #[test]
    fn bad_targets_and_routes_are_refused() {
        let ports = ["a:xx", "a:", "a:0", "a:70000", "70000", "http://[::1]:x/"];
        for text in ["", "ftp://a/b", "http://", "a b", "https://user:pw@a"].iter().chain(&ports) {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        for text in ["order.*", "=/a", "order.*=", "or*der=/a", "order.*=ftp://x"] {
            assert!(text.parse::<Route>().is_err(), "{text}");
        }
    }
}
