//! What proxies of the operator need in order to keep responses without asking again: a feed of
//! what each commit changed (`GET /edge/changes`), and, on responses to such proxies, a header that
//! says what the response depends on. Both name records, lists and keys by hashes, so that a proxy
//! needs to know no schema and learns no id. Off without a secret.

use crate::admission::Admission;
use crate::error::{Failure, Shape};
use crate::keys;
use crate::metrics::RouteKey;
use crate::request::RequestInfo;
use crate::respond;
use crate::route;
use crate::trace::{Request, Trace};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use model::Scope;
use model::event::Event;
use model::problem::{Code, Problem};
use model::query;
use model::schema::{Builtin, Collection, CollectionIx, Schema};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use store::{Follower, Store};
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;
use wire::{Exchange, Payload, Response};

/// In a request: the secret, or the token that the feed has sent. In a response: what it depends
/// on.
const HEADER: HeaderName = HeaderName::from_static("restive-edge");
pub(crate) const PATH: &str = "/edge/changes";
/// A shorter secret could be guessed. 32: 128 random bits in hexadecimal digits.
const MIN_SECRET_CHARS: usize = 32;
/// Feeds at a time. 64: some proxies, each with several groups of servers.
const MAX_FEEDS: usize = 64;
/// The longest silence of a feed. A proxy takes one that is silent for 2 s as broken, so three in
/// a row may come late.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// A feed whose proxy takes nothing for this long ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lines that wait for the proxy. 4: the connection has a buffer of its own.
const PIECES: usize = 4;
/// Events of one line, and their bytes.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// How long a response may be used without asking. 60 s bounds what no event reports: the end of a
/// deprecated version, for example.
const MAX_SECONDS: u64 = 60;
/// How long a refusal of an unknown key may be repeated. 10 s: a client that tries again and again
/// costs the server a request in 10 s.
const REFUSAL_SECONDS: u64 = 10;

/// The secret that the server shares with the operator's proxies.
#[derive(Clone)]
pub struct EdgeSecret([u8; 32]);

impl EdgeSecret {
    pub fn new(secret: &str) -> Result<EdgeSecret, String> {
        match secret.chars().count() {
            MIN_SECRET_CHARS.. => Ok(EdgeSecret(Sha256::digest(secret.as_bytes()).into())),
            count => Err(format!(
                "has {count} characters; it needs at least {MIN_SECRET_CHARS}, such as the output \
                 of `openssl rand -hex 32`"
            )),
        }
    }

    /// Digests are compared, so that the time says nothing about the secret or its length.
    fn is(&self, sent: &[u8]) -> bool {
        Sha256::digest(sent).as_slice().ct_eq(&self.0).into()
    }
}

impl std::fmt::Debug for EdgeSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("EdgeSecret")
    }
}

pub(crate) struct Edge {
    secret: EdgeSecret,
    /// Marks the requests of proxies that read the feed. New in each process: what a proxy knows
    /// ends with the process that it heard it from.
    token: HeaderValue,
    feeds: AtomicUsize,
    is_draining: AtomicBool,
}

impl Edge {
    pub(crate) fn new(secret: EdgeSecret, random: &[u8; 32]) -> Edge {
        let token = HeaderValue::from_str(&keys::hex(random));
        let mut token = token.unwrap_or(HeaderValue::from_static(""));
        token.set_sensitive(true);
        Edge { secret, token, feeds: AtomicUsize::new(0), is_draining: AtomicBool::new(false) }
    }

    /// Ends the feeds.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether a request comes from a proxy that reads the feed.
    pub(crate) fn is_follower(&self, headers: &HeaderMap) -> bool {
        let is_same = |sent: &HeaderValue| sent.as_bytes().ct_eq(self.token.as_bytes()).into();
        !self.token.is_empty() && headers.get(HEADER).is_some_and(is_same)
    }
}

/// A place among the feeds.
struct Place(Arc<Edge>);

impl Place {
    fn take(edge: &Arc<Edge>) -> Option<Place> {
        let place = Place(edge.clone());
        (edge.feeds.fetch_add(1, Ordering::Relaxed) < MAX_FEEDS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.feeds.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers `GET /edge/changes`.
pub(crate) fn changes(
    edge: &Arc<Edge>,
    (schema, store): (&Arc<Schema>, &Arc<dyn Store>),
    admission: &Admission,
    exchange: &Exchange,
    trace: &mut Trace,
) -> Result<Response, Failure> {
    trace.is_for_operators = true;
    let sent = exchange.headers.get(HEADER);
    if !sent.is_some_and(|sent| edge.secret.is(sent.as_bytes())) {
        admission.take_for_address(exchange, trace)?;
        let message = "The header `Restive-Edge` must have the edge secret of this server.";
        return Err(Problem::new(Code::PermissionDenied, message).param("Restive-Edge").into());
    }
    if exchange.method != Method::GET {
        return Err(respond::not_allowed(&exchange.method, &["GET"]).into());
    }
    let Some(place) = Place::take(edge) else {
        let message = format!("{MAX_FEEDS} feeds are open; close some.");
        return Err(Problem::new(Code::Overloaded, message).retry_after(1).into());
    };
    let (sender, body) = Payload::channel(None, PIECES);
    tokio::spawn(Feed { schema: schema.clone(), store: store.clone(), sender, place }.run());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Response { status: StatusCode::OK, headers, body, ..Response::default() })
}

/// One proxy that reads the feed.
struct Feed {
    schema: Arc<Schema>,
    store: Arc<dyn Store>,
    sender: wire::Sender,
    place: Place,
}

impl Feed {
    /// Sends `change <position> <hash>…` for what was committed, and `current <position>` if
    /// everything up to there was sent and nothing else was committed when the log was read.
    async fn run(self) {
        let Feed { schema, store, sender, place } = self;
        let newest = store.position();
        let begin = *newest.borrow();
        let mut follower = Follower::new(store, None, begin);
        let token = place.0.token.to_str().unwrap_or_default();
        let mut text = format!("hello {token}\ncurrent {begin}\n");
        loop {
            if place.0.is_draining.load(Ordering::Relaxed) {
                let _ = timeout(PATIENCE, sender.finish(None)).await;
                return;
            }
            if !matches!(timeout(PATIENCE, sender.send(text)).await, Ok(Ok(()))) {
                return;
            }
            text = match timeout(HEARTBEAT, follower.ready()).await {
                Err(_) => format!("current {}\n", follower.position()),
                Ok(Err(_)) => return,
                Ok(Ok(())) => {
                    let known = *newest.borrow();
                    match follower.read(BATCH, BATCH_BYTES).await {
                        Ok(events) => {
                            let position = follower.position();
                            lines(&schema, &events, position, position >= known)
                        }
                        Err(error) => {
                            tracing::error!(%error, "the feed of changes cannot read the log");
                            return;
                        }
                    }
                }
            };
        }
    }
}

fn lines(schema: &Schema, events: &[Event], position: i64, is_current: bool) -> String {
    let mut changed: Vec<u64> = events.iter().flat_map(|event| changed(schema, event)).collect();
    changed.sort_unstable();
    changed.dedup();
    let mut text = String::with_capacity(40 + 17 * changed.len());
    // Writing to a string cannot fail.
    let _ = write!(text, "change {position}");
    for one in changed {
        let _ = write!(text, " {one:x}");
    }
    text.push('\n');
    if is_current {
        let _ = writeln!(text, "current {position}");
    }
    text
}

/// What an event changes.
fn changed(schema: &Schema, event: &Event) -> Vec<u64> {
    let found = schema.find(&event.collection).map(|index| &schema.collections[index]);
    match found.map(|collection| collection.builtin) {
        Some(None) => vec![
            hash(Part::List(event.scope, &event.collection)),
            hash(Part::Record(event.scope, &event.collection, &event.record)),
        ],
        Some(Some(Builtin::Key)) => vec![hash(Part::Keys(event.scope)), hash(Part::AllKeys)],
        Some(Some(Builtin::Account)) => vec![hash(Part::Account(&event.record))],
        // Responses with other collections of the service itself are always validated.
        Some(Some(
            Builtin::Event
            | Builtin::Endpoint
            | Builtin::Delivery
            | Builtin::Attempt
            | Builtin::Replay,
        )) => Vec::new(),
        Some(Some(Builtin::Erasure)) | None => vec![hash(Part::Scope(event.scope))],
    }
}

/// What a response can depend on, and an event can change.
#[derive(Hash)]
enum Part<'a> {
    /// Everything of an account and mode.
    Scope(Scope),
    List(Scope, &'a str),
    Record(Scope, &'a str, &'a str),
    /// The keys of an account and mode.
    Keys(Scope),
    AllKeys,
    Account(&'a str),
}

/// Stable within the process, which is as long as a proxy compares hashes. Two parts with one hash
/// cost a validation.
fn hash(part: Part<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    hasher.finish()
}

/// What the response to a read depends on. `None` if it may change without an event that the feed
/// reports, or by a message over a socket, which a proxy does not see.
pub(crate) fn dependencies(schema: &Schema, request: &RequestInfo) -> Option<Vec<u64>> {
    if !matches!(request.method, Method::GET | Method::HEAD) || request.target.action.is_some() {
        return None;
    }
    let (target, scope) = (&request.target, request.caller().scope);
    let collection = |index: CollectionIx| {
        let found: &Collection = &schema.collections[index];
        (found.builtin.is_none() && found.feed.is_none()).then_some(found.name.as_str())
    };
    let own = collection(target.collection)?;
    let mut parts = vec![match &target.id {
        Some(id) => hash(Part::Record(scope, own, id)),
        None => hash(Part::List(scope, own)),
    }];
    for (parent, id) in &target.parents {
        parts.push(hash(Part::Record(scope, collection(*parent)?, id)));
    }
    for embedded in embedded(request)? {
        parts.push(hash(Part::List(scope, collection(embedded)?)));
    }
    parts.push(hash(Part::Scope(scope)));
    parts.push(hash(Part::Keys(scope)));
    parts.push(hash(Part::Account(&request.caller().account)));
    Some(parts)
}

/// The collections whose records are embedded. `None` for a page behind a cursor: it is read as of
/// the first page, from a log that forgets.
fn embedded(request: &RequestInfo) -> Option<Vec<CollectionIx>> {
    if request.query().is_empty() {
        return Some(Vec::new());
    }
    let pairs = route::query_pairs(request.query()).ok()?;
    let (schema, index) = (&request.version.schema, request.target.collection);
    let view = match request.target.id {
        Some(_) => query::view(schema, index, &pairs).ok()?,
        None => {
            let asked = query::list(schema, index, None, &pairs).ok()?;
            if asked.after.is_some() {
                return None;
            }
            asked.view
        }
    };
    Some(view.expand.collections())
}

/// Adds the header for the proxy: the position that includes the effects of the request, and what
/// the response depends on.
pub(crate) fn attest(
    (schema, store): (&Schema, &dyn Store),
    status: StatusCode,
    headers: &mut HeaderMap,
    request: &Request,
) {
    let trace = &request.trace;
    let position = *store.position().borrow();
    let mut text = format!("position={position}");
    if let Some(identity) = &trace.identity {
        // Writing to a string cannot fail.
        let _ = write!(text, "; scope={:x}", hash(Part::Scope(identity.caller.scope)));
    }
    let is_shown = status == StatusCode::OK || status == StatusCode::NOT_MODIFIED;
    if let Some(parts) = trace.dependencies.as_ref().filter(|_| is_shown) {
        depend(&mut text, &parts.0, seconds_valid(trace));
    } else if let Some((part, seconds)) = refusal(request)
        && let Some(path) = collection_path(schema, trace)
    {
        let _ = write!(text, "; refused={path}");
        depend(&mut text, &[part], seconds);
    }
    if let Ok(mut value) = HeaderValue::try_from(text) {
        respond::mark_unique(&mut value);
        headers.insert(HEADER, value);
    }
}

fn depend(text: &mut String, parts: &[u64], seconds: u64) {
    if seconds == 0 {
        return;
    }
    let _ = write!(text, "; seconds={seconds}; depends=");
    for (place, part) in parts.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{part:x}");
    }
}

/// Whole seconds for which the key is valid, up to the limit.
fn seconds_valid(trace: &Trace) -> u64 {
    let Some(identity) = &trace.identity else { return 0 };
    let Some(expires) = identity.expires else { return MAX_SECONDS };
    u64::try_from((expires.0 - trace.now.0) / 1_000).unwrap_or(0).min(MAX_SECONDS)
}

/// A refusal that every request with this key gets, until the part changes or the seconds are over.
/// Only in the error format that the proxy writes itself.
fn refusal(request: &Request) -> Option<(u64, u64)> {
    let trace = &request.trace;
    if request.shape != Shape::Structured {
        return None;
    }
    match (trace.error.as_ref()?.code.as_str(), &trace.identity) {
        ("invalid_api_key", None) => Some((hash(Part::AllKeys), REFUSAL_SECONDS)),
        ("rate_limited", Some(identity)) => {
            let quota = trace.quota.filter(|quota| quota.remaining == 0)?;
            // The last second of the window is a part of one.
            let seconds = (quota.seconds_left() - 1).min(MAX_SECONDS);
            Some((hash(Part::Keys(identity.caller.scope)), seconds))
        }
        _ => None,
    }
}

/// The path of the outermost collection: below it every request needs a key.
fn collection_path(schema: &Schema, trace: &Trace) -> Option<String> {
    let Some(RouteKey::Resource { collection, .. }) = trace.route else { return None };
    let mut outer = schema.collections.get(collection)?;
    while let Some(parent) = outer.parent {
        outer = schema.collections.get(parent)?;
    }
    let mount = schema.mounts.get(trace.mount?)?;
    Some(format!("{}/{}", mount.path, outer.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_is_accepted() {
        let text = "0123456789abcdef0123456789abcdef";
        let secret = EdgeSecret::new(text).unwrap();
        for (sent, expected) in
            [(text, true), (&text[1..], false), ("", false), (&text.to_uppercase(), false)]
        {
            assert_eq!(secret.is(sent.as_bytes()), expected, "{sent}");
        }
        assert!(EdgeSecret::new(&text[1..]).unwrap_err().contains("31 characters"));
        assert!(!format!("{secret:?}").contains("0123"));
    }

    #[test]
    fn only_the_token_marks_requests_of_proxies() {
        let secret = EdgeSecret::new("0123456789abcdef0123456789abcdef").unwrap();
        let edge = Edge::new(secret, &[7; 32]);
        let is_follower = |value: &str| {
            edge.is_follower(&HeaderMap::from_iter([(HEADER, value.parse().unwrap())]))
        };
        assert!(is_follower(&"07".repeat(32)));
        for sent in ["", "07", "0123456789abcdef0123456789abcdef", &"08".repeat(32)] {
            assert!(!is_follower(sent), "{sent}");
        }
        assert!(!edge.is_follower(&HeaderMap::new()));
    }
}
