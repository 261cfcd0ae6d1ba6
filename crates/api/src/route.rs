//! Finds the resource that a path names. `find` shows all paths of the service.

use crate::scope;
use crate::version::Versioning;
use http::Method;
use model::caller::ADMIN;
use model::problem::{Code, Problem};
use model::schema::{Collection, CollectionIx, Mount, Schema};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum number of paths that the error for an unknown path lists.
const MAX_LISTED: usize = 20;

/// The route of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    Health,
    Metrics,
    OpenApi,
    AsyncApi,
    /// The catalogue of error codes, to which every `doc_url` points.
    Errors,
    /// The changes of each version.
    Changelog,
    /// The login of the console.
    Login,
    /// A route of the service about itself, with the id in its path.
    Own(Own, Option<String>),
    Channel(Channel),
    Resource(Target),
}

/// A live channel, or a route that belongs to the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Short and long polls of a feed.
    Poll(CollectionIx),
    /// Server-sent events.
    Stream,
    Socket,
    /// Credentials for browsers.
    Tokens,
    /// Users who are online.
    Presence,
}

impl Channel {
    /// Whether the version with this schema has the channel.
    pub fn is_in(self, schema: &Schema) -> bool {
        !matches!(self, Channel::Poll(feed) if schema.collections[feed].removed)
    }
}

/// Routes of an account about itself, and of the service about its keys and accounts, below every
/// mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    Account,
    VersionUsage,
    Keys,
    Key,
    KeyRoll,
    Accounts,
    OneAccount,
    Requests,
    OneRequest,
    Stats,
}

impl Own {
    pub const ALL: [Own; 10] = [
        Own::Account,
        Own::VersionUsage,
        Own::Keys,
        Own::Key,
        Own::KeyRoll,
        Own::Accounts,
        Own::OneAccount,
        Own::Requests,
        Own::OneRequest,
        Own::Stats,
    ];

    /// The path below the mount. A segment in braces is an id.
    pub fn template(self) -> &'static str {
        match self {
            Own::Account => "account",
            Own::VersionUsage => "version-usage",
            Own::Keys => "keys",
            Own::Key => "keys/{key_id}",
            Own::KeyRoll => "keys/{key_id}/roll",
            Own::Accounts => "accounts",
            Own::OneAccount => "accounts/{account_id}",
            Own::Requests => "requests",
            Own::OneRequest => "requests/{request_id}",
            Own::Stats => "stats",
        }
    }

    /// The scope that a restricted key needs.
    pub fn scope(self) -> &'static str {
        match self {
            Own::Account => scope::ACCOUNT,
            Own::VersionUsage => scope::VERSION_USAGE,
            Own::Keys | Own::Key | Own::KeyRoll | Own::Accounts | Own::OneAccount => ADMIN,
            Own::Requests | Own::OneRequest => scope::REQUESTS,
            Own::Stats => scope::STATS,
        }
    }

    fn has_id(self) -> bool {
        self.template().contains('{')
    }

    /// The route of a path below a mount, with the id in it.
    fn find(path: &str) -> Option<(Own, Option<String>)> {
        Own::ALL.into_iter().find_map(|own| Some((own, own.read(path)?)))
    }

    fn read(self, path: &str) -> Option<Option<String>> {
        let (mut wanted, mut given) = (self.template().split('/'), path.split('/'));
        let mut id = None;
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(id),
                (Some(name), Some(text)) if name.starts_with('{') => id = Some(decode(text)?),
                (Some(name), Some(text)) if name == text => {}
                _ => return None,
            }
        }
    }
}

/// The channels of all versions of a service, each with its path.
pub fn channels(schema: &Schema) -> impl Iterator<Item = (String, Channel)> {
    channels_below(schema, &schema.service.mount)
}

fn channels_below<'a>(
    schema: &'a Schema,
    resources: &str,
) -> impl Iterator<Item = (String, Channel)> + use<'a> {
    let live = &schema.live;
    let polls = schema
        .feeds()
        .map(|(index, collection)| (format!("{}/{}", live.mount, collection.name), index))
        .map(|(path, index)| (path, Channel::Poll(index)));
    [
        (format!("{}/events", live.mount), Channel::Stream),
        (live.socket.clone(), Channel::Socket),
        (format!("{resources}/channel-tokens"), Channel::Tokens),
        (format!("{resources}/presence"), Channel::Presence),
    ]
    .into_iter()
    .chain(polls)
}

/// A collection, a record in it, or an action on the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub collection: CollectionIx,
    /// Index in `Schema::mounts` of the mount in the path.
    pub mount: usize,
    /// Ids of the parents, outermost first, each with its collection.
    pub parents: Vec<(CollectionIx, String)>,
    pub id: Option<String>,
    pub action: Option<usize>,
}

impl Target {
    pub fn parent_id(&self) -> Option<&str> {
        self.parents.last().map(|(_, id)| id.as_str())
    }
}

/// A mount, prepared for the comparison with paths.
struct Mounted {
    /// Its path with a trailing slash.
    prefix: String,
    /// Paths in its newest version, for the error about an unknown path.
    listed: String,
}

impl Mounted {
    fn new(schema: &Schema, path: &str) -> Mounted {
        let top = schema.routed().filter(|(_, collection)| collection.parent.is_none());
        let mut paths: Vec<_> =
            top.map(|(_, collection)| format!("{path}/{}", collection.name)).collect();
        let own = Own::ALL.into_iter().filter(|own| !own.has_id());
        paths.extend(own.map(|own| format!("{path}/{}", own.template())));
        let open = channels_below(schema, path).filter(|(_, channel)| channel.is_in(schema));
        paths.extend(open.map(|(path, _)| path));
        paths.sort();
        let more = paths.len().saturating_sub(MAX_LISTED);
        paths.truncate(MAX_LISTED);
        let mut listed = paths.join(", ");
        if more > 0 {
            listed.push_str(&format!(" and {more} more: see /openapi.json"));
        }
        Mounted { prefix: format!("{path}/"), listed }
    }
}

pub struct Router {
    schema: Arc<Schema>,
    /// Newest first, as in `Schema::mounts`.
    mounts: Vec<Mounted>,
    /// Collections of all versions: which version has which is checked once the caller is known. At
    /// most 64 of them, so comparing is faster than hashing.
    top: Vec<(String, CollectionIx)>,
    channels: Vec<(String, Channel)>,
}

impl Router {
    pub fn new(schema: Arc<Schema>, versions: &Versioning) -> Router {
        let collections = schema.collections.iter().enumerate();
        let top = collections
            .filter(|(_, collection)| !collection.internal && collection.parent.is_none())
            .map(|(index, collection)| (collection.name.clone(), index))
            .collect();
        let mut channels: Vec<(String, Channel)> = channels(&schema).collect();
        for mount in schema.mounts.iter().skip(1) {
            let below = channels_below(&schema, &mount.path);
            channels.extend(below.filter(|(path, _)| path.starts_with(&mount.path)));
        }
        let mounted =
            |mount: &Mount| Mounted::new(&versions.view(mount.newest).schema, &mount.path);
        let mounts = schema.mounts.iter().map(mounted).collect();
        Router { mounts, top, channels, schema }
    }

    /// Finds the route of a path. The error for an unknown path lists known ones.
    pub fn find(&self, path: &str) -> Result<Route, Problem> {
        let path = &*normal(path);
        match path {
            "/health" => return Ok(Route::Health),
            "/metrics" => return Ok(Route::Metrics),
            "/openapi.json" => return Ok(Route::OpenApi),
            "/asyncapi.json" => return Ok(Route::AsyncApi),
            "/errors" => return Ok(Route::Errors),
            "/changelog" => return Ok(Route::Changelog),
            "/console/login" => return Ok(Route::Login),
            _ => {}
        }
        for (place, mount) in self.mounts.iter().enumerate() {
            let Some(rest) = path.strip_prefix(&mount.prefix) else { continue };
            if let Some(target) = self.resource(place, rest) {
                return Ok(Route::Resource(target));
            }
            if let Some((own, id)) = Own::find(rest) {
                return Ok(Route::Own(own, id));
            }
        }
        let channel = self.channels.iter().find(|(known, _)| known == path);
        channel.map(|(_, one)| Route::Channel(*one)).ok_or_else(|| self.unknown(path))
    }

    /// The mount of a path, even if the path is unknown.
    pub fn mount(&self, path: &str) -> Option<usize> {
        let path = normal(path);
        let below = |prefix: &str| path.starts_with(prefix) || path == prefix.trim_end_matches('/');
        self.mounts.iter().position(|mount| below(&mount.prefix))
    }

    /// `<collection>[/<id>[/<child collection>[/<id> …]|/<action>]]`
    fn resource(&self, mount: usize, path: &str) -> Option<Target> {
        let mut segments = path.split('/');
        let first = segments.next()?;
        let mut collection = self.top.iter().find(|(name, _)| name == first)?.1;
        let mut parents = Vec::new();
        loop {
            let Some(id) = segments.next() else {
                return Some(Target { collection, mount, parents, id: None, action: None });
            };
            let id = decode(id)?;
            let Some(next) = segments.next() else {
                return Some(Target { collection, mount, parents, id: Some(id), action: None });
            };
            let mut children = self.schema.children(collection);
            if let Some((child, _)) = children.find(|(_, child)| child.name == next) {
                parents.push((collection, id));
                collection = child;
                continue;
            }
            let action = self.schema.collections[collection].action(next)?;
            return segments.next().is_none().then_some(Target {
                collection,
                mount,
                parents,
                id: Some(id),
                action: Some(action),
            });
        }
    }

    pub fn unknown(&self, path: &str) -> Problem {
        let asked = self.mounts.iter().find(|mount| path.starts_with(&mount.prefix));
        let names = &asked.unwrap_or(&self.mounts[0]).listed;
        let known: Vec<_> = self.schema.mounts.iter().map(|mount| mount.path.as_str()).collect();
        let is_mounted =
            |mount: &&str| known.iter().any(|known| known.split('/').nth(1) == mount.get(1..));
        if let Some(mount) = version_segment(path).filter(|mount| !is_mounted(mount)) {
            let word = if known.len() == 1 { "there is" } else { "there are" };
            let listed = known.join(", ");
            let message =
                format!("There is no `{mount}`; {word}: {listed}. Resources are: {names}.");
            return Problem::new(Code::RouteNotFound, message).extra("mounts", known);
        }
        let shown: String = path.chars().take(200).collect();
        let message = format!("The path `{shown}` does not exist. Resources are: {names}.");
        Problem::new(Code::RouteNotFound, message)
    }
}

/// The path template of a target, for metrics and OpenAPI.
pub fn template(
    schema: &Schema,
    collection: CollectionIx,
    item: bool,
    action: Option<usize>,
) -> String {
    let this = &schema.collections[collection];
    let mut path = match this.parent {
        Some(parent) => template(schema, parent, true, None),
        None => schema.service.mount.clone(),
    };
    path.push('/');
    path.push_str(&this.name);
    if item || action.is_some() {
        path.push_str(&format!("/{{{}_id}}", this.object));
    }
    if let Some(action) = action {
        path.push('/');
        path.push_str(&this.actions[action].name);
    }
    path
}

/// The first segment of a path if it looks like a URL version: `/v2`.
fn version_segment(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let ends = digits > 0 && matches!(rest.as_bytes().get(digits), None | Some(b'/'));
    ends.then(|| path.split_at(2 + digits).0)
}

/// The mount path of the target.
pub fn mount_of<'a>(schema: &'a Schema, target: &Target) -> &'a str {
    schema.mounts.get(target.mount).map_or(&schema.service.mount, |mount| &mount.path)
}

/// The path of one record, below the mount of the request.
pub fn path_of(schema: &Schema, target: &Target, id: &str) -> String {
    let mut path = mount_of(schema, target).to_owned();
    for (collection, parent) in &target.parents {
        path.push('/');
        path.push_str(&schema.collections[*collection].name);
        path.push('/');
        path.push_str(parent);
    }
    path.push('/');
    path.push_str(&schema.collections[target.collection].name);
    path.push('/');
    path.push_str(id);
    path
}

/// Whether a target supports a method.
pub fn offers(collection: &Collection, target: &Target, method: &Method) -> bool {
    let offered = collection.operations;
    match (target.id.is_some(), target.action.is_some(), method) {
        (_, _, &Method::OPTIONS) => true,
        (_, true, method) => method == Method::POST,
        (true, false, &Method::GET | &Method::HEAD) => offered.get,
        (true, false, &Method::PUT) => offered.replace,
        (true, false, &Method::PATCH) => offered.update,
        (true, false, &Method::DELETE) => offered.delete,
        (false, false, &Method::GET | &Method::HEAD) => offered.list,
        (false, false, &Method::POST) => offered.create,
        _ => false,
    }
}

/// The methods of a target, for `Allow`.
pub fn methods(collection: &Collection, target: &Target) -> Vec<&'static str> {
    const ALL: [(&str, Method); 7] = [
        ("GET", Method::GET),
        ("HEAD", Method::HEAD),
        ("POST", Method::POST),
        ("PUT", Method::PUT),
        ("PATCH", Method::PATCH),
        ("DELETE", Method::DELETE),
        ("OPTIONS", Method::OPTIONS),
    ];
    let offered = ALL.iter().filter(|(_, method)| offers(collection, target, method));
    offered.map(|(name, _)| *name).collect()
}

/// The path with unreserved characters decoded (RFC 3986 6.2.2.2): names consist of them. Other
/// encoded characters, such as a slash, stay encoded until their segment is read as an id.
fn normal(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut parts = path.split('%');
    let mut normal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok()).map(char::from);
        match byte.filter(|c| c.is_ascii_alphanumeric() || "-._~".contains(*c)) {
            Some(letter) => {
                normal.push(letter);
                normal.push_str(&part[2..]);
            }
            None => {
                normal.push('%');
                normal.push_str(part);
            }
        }
    }
    Cow::Owned(normal)
}

/// Percent-decodes a segment; `None` if it is empty or not UTF-8.
fn decode(segment: &str) -> Option<String> {
    if segment.is_empty() {
        return None;
    }
    if !segment.contains('%') {
        return Some(segment.to_owned());
    }
    percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned())
}

/// For routes without query parameters.
pub fn refuse_parameters(query: &str) -> Result<(), Problem> {
    match query_pairs(query)?.first() {
        Some((name, _)) => Err(Problem::unknown_parameter(name, &[])),
        None => Ok(()),
    }
}

/// The parameters of a query string, in order.
pub fn query_pairs(query: &str) -> Result<Vec<(String, String)>, Problem> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8().map(|text| text.into_owned())
    };
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode(name), decode(value)) {
                (Ok(name), Ok(value)) => Ok((name, value)),
                _ => {
                    let shown: String = pair.chars().take(80).collect();
                    let message = format!("The query contains text that is not UTF-8: `{shown}`.");
                    Err(Problem::new(Code::InvalidParameter, message))
                }
            }
        })
        .collect()
}

/// The same, and each parameter only once: two values would be ambiguous.
pub fn parameters(query: &str) -> Result<Vec<(String, String)>, Problem> {
    let pairs = query_pairs(query)?;
    let mut seen = HashSet::new();
    if let Some((name, _)) = pairs.iter().find(|(name, _)| !seen.insert(name)) {
        let shown: String = name.chars().take(100).collect();
        let message = format!("`{shown}` is given more than once; send it once.");
        return Err(Problem::new(Code::InvalidParameter, message).param(shown));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_parameter_is_refused() {
        assert_eq!(parameters("since=1&wait=true").unwrap().len(), 2);
        assert!(parameters("").unwrap().is_empty());
        for twice in ["since=1&since=2", "since=1&wait=true&since=1", "access_token&access_token"] {
            let problem = parameters(twice).unwrap_err();
            assert_eq!(problem.code, Code::InvalidParameter, "{twice}");
        }
    }
}
