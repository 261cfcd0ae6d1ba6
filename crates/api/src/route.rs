//! Which resource a path names. All paths of the service can be read off `find`.

use http::Method;
use model::problem::{Code, Problem};
use model::schema::{Collection, CollectionIx, Schema};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    Health,
    Metrics,
    OpenApi,
    /// The catalogue of error codes, where every `doc_url` points.
    Errors,
    Channel(Channel),
    Resource(Target),
}

/// A way to hear of changes, and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Short and long polls of a feed.
    Poll(CollectionIx),
    /// Server-sent events.
    Stream,
    Socket,
    /// Credentials for browsers.
    Tokens,
    /// Who is online.
    Presence,
}

/// The channels of a service, each with its path.
pub fn channels(schema: &Schema) -> impl Iterator<Item = (String, Channel)> {
    let (live, resources) = (&schema.live, &schema.service.mount);
    let feeds = schema.routed().filter(|(_, collection)| collection.feed.is_some());
    let polls = feeds
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

pub struct Router {
    schema: Arc<Schema>,
    mount: String,
    /// At most 64 of them: comparing beats hashing.
    top: Vec<(String, CollectionIx)>,
    channels: Vec<(String, Channel)>,
}

impl Router {
    pub fn new(schema: Arc<Schema>) -> Router {
        let top = schema
            .routed()
            .filter(|(_, collection)| collection.parent.is_none())
            .map(|(index, collection)| (collection.name.clone(), index))
            .collect();
        let channels = channels(&schema).collect();
        Router { mount: format!("{}/", schema.service.mount), top, channels, schema }
    }

    /// Reads a path. An unknown one is a problem that says what there is.
    pub fn find(&self, path: &str) -> Result<Route, Problem> {
        match path {
            "/health" => return Ok(Route::Health),
            "/metrics" => return Ok(Route::Metrics),
            "/openapi.json" => return Ok(Route::OpenApi),
            "/errors" => return Ok(Route::Errors),
            _ => {}
        }
        let found = path.strip_prefix(&self.mount).and_then(|rest| self.resource(rest));
        if let Some(target) = found {
            return Ok(Route::Resource(target));
        }
        let channel = self.channels.iter().find(|(known, _)| known == path);
        channel.map(|(_, one)| Route::Channel(*one)).ok_or_else(|| self.unknown(path))
    }

    /// `<collection>[/<id>[/<child collection>[/<id> …]|/<action>]]`
    fn resource(&self, path: &str) -> Option<Target> {
        let mut segments = path.split('/');
        let first = segments.next()?;
        let mut collection = self.top.iter().find(|(name, _)| name == first)?.1;
        let mut parents = Vec::new();
        loop {
            let Some(id) = segments.next() else {
                return Some(Target { collection, parents, id: None, action: None });
            };
            let id = decode(id)?;
            let Some(next) = segments.next() else {
                return Some(Target { collection, parents, id: Some(id), action: None });
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
                parents,
                id: Some(id),
                action: Some(action),
            });
        }
    }

    fn unknown(&self, path: &str) -> Problem {
        let shown: String = path.chars().take(200).collect();
        let mut names: Vec<_> =
            self.top.iter().map(|(name, _)| format!("{}{name}", self.mount)).collect();
        names.extend(self.channels.iter().map(|(path, _)| path.clone()));
        names.sort();
        names.truncate(20);
        let message =
            format!("There is nothing at `{shown}`. Resources are: {}.", names.join(", "));
        Problem::new(Code::RouteNotFound, message)
    }
}

/// The path shape of a target, as metrics and OpenAPI show it.
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

/// The path of one record.
pub fn path_of(schema: &Schema, target: &Target, id: &str) -> String {
    let mut path = schema.service.mount.clone();
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

/// Whether a target has a method.
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

/// The methods of a target, as `Allow` lists them.
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

/// Undoes percent-encoding; `None` for an empty segment or one that is no UTF-8 text.
fn decode(segment: &str) -> Option<String> {
    if segment.is_empty() {
        return None;
    }
    if !segment.contains('%') {
        return Some(segment.to_owned());
    }
    percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned())
}

/// The parameters of a query string, in their order.
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
                    let message = format!("The query has text that is no UTF-8: `{shown}`.");
                    Err(Problem::new(Code::InvalidParameter, message))
                }
            }
        })
        .collect()
}
