//! The routes of the live channels: checks who may open which channel and what they ask for, and
//! issues the tokens that browsers need. The crate `live` handles open connections.

mod record_writer;
mod channel_caller;

pub use channel_caller::ACCESS_TOKEN;

use crate::condition;
use crate::error::Failure;
use crate::finish::Outcome;
use crate::respond::{self, Reply, STREAM_POSITION};
use crate::route::{self, Channel};
use crate::services::Services;
use crate::token::{Claims, USER};
use crate::trace::Trace;
use crate::{body, confirmed_body, cors, negotiate, scope};
use http::header::{CACHE_CONTROL, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use live::{ChannelCaller, Epoch, Full, PollRequest, PollResponse, Polled, SubscribeRequest};
use model::caller::Access;
use model::problem::{Code, Problem};
use model::schema::CollectionIx;
use record_writer::SocketWriter;
use serde_json::json;
use std::sync::Arc;
use store::cluster::PresentUser;
use wire::{Exchange, Payload, Response, accepted, wants_events, websocket};

/// Sent if events between the requested position and the response may have been missed.
const GAP: HeaderName = HeaderName::from_static("x-stream-gap");
/// A proxy that holds long polls itself sends it. A poll that would be held is returned, with the
/// milliseconds for which it would have been held.
const HOLD: HeaderName = HeaderName::from_static("restive-hold");
/// Seconds after which a refused client may try again.
const RETRY_AFTER: u64 = 5;
/// Parameters of every channel, in addition to its own.
const COMMON: [&str; 2] = [ACCESS_TOKEN, USER];

/// No shared cache may store a response. RFC 6750 2.3 requires it for requests with a token in the
/// URL.
const CLIENT_CACHE_ONLY: &str = "private, no-cache";

type Pairs = [(String, String)];

/// Answers a request to a channel.
pub async fn serve(
    services: &Arc<Services>,
    exchange: &mut Exchange,
    channel: Channel,
    request_id: &str,
    trace: &mut Trace,
) -> Result<Outcome, Failure> {
    let methods: &[&str] = match channel {
        Channel::Tokens => &["POST", "OPTIONS"],
        Channel::Socket => &["GET", "OPTIONS"],
        // A poll is a list of the feed.
        Channel::Poll(feed) if !services.schema.collections[feed].operations.list => &["OPTIONS"],
        _ => &["GET", "HEAD", "OPTIONS"],
    };
    let origins = &services.schema.live.origins;
    cors::check_single(&exchange.headers)?;
    trace.page = cors::allowed(origins, &exchange.headers);
    // A socket checks the origin even if the schema lists none.
    trace.varies_by_origin = !origins.is_empty() || channel == Channel::Socket;
    if exchange.method == Method::OPTIONS || !methods.contains(&exchange.method.as_str()) {
        services.admission.take_for_address(exchange, trace)?;
        return offer(services, exchange, channel, methods, trace).map(Outcome::Reply);
    }
    // An unknown version is refused before anything else. The version itself also depends on the
    // account, which is not known yet.
    services.versions.choose(&exchange.headers, None, trace.mount)?;
    let outcome = match channel {
        Channel::Tokens => tokens(services, exchange, trace).await.map(Outcome::Reply),
        Channel::Presence => presence(services, exchange, trace).await.map(Outcome::Reply),
        Channel::Poll(feed) => poll(services, exchange, feed, trace).await,
        Channel::Stream => stream(services, exchange, trace).await,
        Channel::Socket => socket(services, exchange, request_id, trace).await,
    };
    if let (Some(identity), Some(version)) = (&trace.identity, trace.version) {
        identity.account.usage.count(version, trace.now);
    }
    outcome
}

/// The response to OPTIONS and to methods that the channel does not support.
fn offer(
    services: &Services,
    exchange: &Exchange,
    channel: Channel,
    methods: &[&str],
    trace: &Trace,
) -> Result<Reply, Failure> {
    let is_options = exchange.method == Method::OPTIONS;
    // A page cannot read why its preflight was refused. Allow the preflight; the actual request
    // then gets the error.
    if is_options && trace.page.is_some() {
        return Ok(cors::preflight(respond::options(methods), methods));
    }
    if let Channel::Poll(feed) = channel {
        let asked = trace.asked_version(&services.versions, exchange);
        services.versions.check_served(asked, None, feed)?;
    }
    match is_options {
        true => Ok(respond::options(methods)),
        false => Err(respond::not_allowed(&exchange.method, methods).into()),
    }
}

/// `GET /api/messages?since=<id>[&wait=true]`
async fn poll(
    services: &Arc<Services>,
    exchange: &Exchange,
    feed: CollectionIx,
    trace: &mut Trace,
) -> Result<Outcome, Failure> {
    let pairs = route::parameters(exchange.uri.query().unwrap_or_default())?;
    let caller = channel_caller::identify(services, exchange, &pairs, trace).await?;
    negotiate::check_accept(&exchange.headers)?;
    let collection = &services.schema.collections[feed];
    channel_caller::may_read(&caller, collection)?;
    let view = services.versions.view(caller.version);
    if !view.serves(feed) {
        return Err(services.versions.missing(view, feed).into());
    }
    trace.note_deprecated(
        &services.deprecations,
        &services.deprecations.used(caller.version, feed, &[], ""),
    );
    let epoch = Epoch(services.store.epoch());
    let asking = PollRequest::read(feed, epoch, services.schema.service.max_page, &pairs, &COMMON)?;
    if condition::is_sent(&exchange.headers)
        || asking.is_ahead_of(*services.store.position().borrow())
    {
        // Another server may have committed: the tag must know it.
        services.store.fresh().await?;
    }
    // Read the position before the tag: a record committed in between must not be older than the
    // position.
    let position = *services.store.position().borrow();
    let tag = poll_tag(services, &caller, feed, &pairs);
    condition::of_read(&exchange.headers, Some(&tag), None)?;
    if !asking.wait && condition::is_fresh(&exchange.headers, &tag, None) {
        let reply = respond::not_modified(Some(HeaderValue::from_static(CLIENT_CACHE_ONLY)), tag);
        return Ok(reply.header(STREAM_POSITION, epoch.at(position).to_string()).into());
    }
    let hub = &services.channels.hub;
    let is_held_here = asking.wait && !exchange.headers.contains_key(HOLD);
    match live::poll(hub, &caller, PollRequest { wait: is_held_here, ..asking }).await? {
        Polled::Full(full) => Err(refusal(full).into()),
        Polled::Now(answer) if asking.wait => {
            let would_be_held = !is_held_here && answer.body == "[]" && !answer.gap;
            let time = live::hold_time(hub, &caller).filter(|_| would_be_held);
            let reply = polled(epoch, answer);
            Ok(match time {
                Some(time) => reply.header(HOLD, time.as_millis().to_string()),
                None => reply,
            }
            .into())
        }
        Polled::Now(answer) => {
            let reply = polled(epoch, answer).vary().header(ETAG, tag);
            Ok(reply.header(CACHE_CONTROL, CLIENT_CACHE_ONLY).into())
        }
        Polled::Waiting(held) => {
            Ok(Outcome::Wait(Box::pin(async move { Ok(polled(epoch, held.wait().await)) })))
        }
    }
}

fn polled(epoch: Epoch, answer: PollResponse) -> Reply {
    let position = epoch.at(answer.position).to_string();
    let reply = Reply::json(StatusCode::OK, answer.body).header(STREAM_POSITION, position);
    let reply = respond::no_store(reply);
    if answer.gap { reply.header(GAP, "true") } else { reply }
}

/// Changes with every record of the feed, and needs no query.
fn poll_tag(
    services: &Services,
    caller: &ChannelCaller,
    feed: CollectionIx,
    pairs: &Pairs,
) -> String {
    let seq = services.store.collection_seq(caller.scope, feed);
    let (scope, version) = (caller.scope.0, caller.version);
    let mut asked = format!("poll {scope} {} {version}", services.store.epoch());
    for (name, value) in pairs.iter().filter(|(name, _)| !COMMON.contains(&name.as_str())) {
        asked.push_str(&format!("&{name}={value}"));
    }
    condition::list_tag(seq, crate::operation::digest_number(asked.as_bytes()))
}

/// `GET /api/events`
async fn stream(
    services: &Arc<Services>,
    exchange: &Exchange,
    trace: &mut Trace,
) -> Result<Outcome, Failure> {
    let pairs = route::parameters(exchange.uri.query().unwrap_or_default())?;
    let caller = match channel_caller::identify(services, exchange, &pairs, trace).await {
        // An EventSource does not reconnect after an error status, but this error is temporary.
        Err(Failure::Problem(problem))
            if matches!(problem.code, Code::RateLimited | Code::Overloaded)
                && wants_events(&exchange.headers) =>
        {
            return Ok(Outcome::Open(live::retry_later(&services.channels.hub, Full::Account)));
        }
        other => other?,
    };
    if !takes_events(&exchange.headers) {
        let message = "This is an event stream; the Accept header must allow text/event-stream.";
        return Err(Problem::new(Code::NotAcceptable, message).param("Accept").into());
    }
    let epoch = Epoch(services.store.epoch());
    let schema = &services.versions.view(caller.version).schema;
    let asked = SubscribeRequest::read(schema, epoch, &pairs, &exchange.headers, &COMMON)?;
    if asked.is_ahead_of(*services.store.position().borrow()) {
        services.store.fresh().await?;
    }
    caller.check(schema, &services.schema, &asked.interest)?;
    trace.note_deprecated(
        &services.deprecations,
        &services.deprecations.subscribed(caller.version, &asked.interest.types),
    );
    condition::of_read(&exchange.headers, None, None)?;
    if exchange.method == Method::HEAD {
        // The body has no declared length: a stream has no known end.
        let (_, body) = Payload::channel(None, 1);
        let (status, headers) = (StatusCode::OK, live::sse_headers());
        return Ok(Outcome::Open(Response { status, headers, body, ..Response::default() }));
    }
    match live::open_sse(&services.channels.hub, &caller, asked) {
        Ok(response) => Ok(Outcome::Open(response)),
        Err(full) if wants_events(&exchange.headers) => {
            Ok(Outcome::Open(live::retry_later(&services.channels.hub, full)))
        }
        Err(full) => Err(refusal(full).into()),
    }
}

fn takes_events(headers: &HeaderMap) -> bool {
    let mut ranges = accepted(headers).peekable();
    let known = ["text/event-stream", "text/*", "*/*"];
    ranges.peek().is_none()
        || ranges.any(|range| known.iter().any(|k| range.eq_ignore_ascii_case(k)))
}

/// `GET /ws`
async fn socket(
    services: &Arc<Services>,
    exchange: &Exchange,
    request_id: &str,
    trace: &mut Trace,
) -> Result<Outcome, Failure> {
    let pairs = route::parameters(exchange.uri.query().unwrap_or_default())?;
    let options = websocket::Options { protocols: &[live::PROTOCOL], compress: true };
    let accepted =
        websocket::accept(&exchange.method, exchange.version, &exchange.headers, &options);
    let accepted = match accepted {
        Ok(accepted) => accepted,
        Err(refused) => {
            services.admission.take_for_address(exchange, trace)?;
            let code = match refused.status {
                StatusCode::UPGRADE_REQUIRED => Code::UpgradeRequired,
                _ => Code::InvalidHeader,
            };
            let problem = Problem::new(code, refused.reason);
            let mut reply = respond::problem(&problem, services.error_shape(), request_id);
            reply.headers.extend(refused.headers);
            return Ok(reply.into());
        }
    };
    if !cors::may_connect(&services.schema.live.origins, exchange) {
        services.admission.take_for_address(exchange, trace)?;
        let message = "Pages of this origin may not open a WebSocket; `origins` of [live] in \
                       the schema file lists the allowed origins. A page of the service itself \
                       must use its scheme; a proxy that ends TLS must be trusted and send \
                       X-Forwarded-Proto.";
        return Err(Problem::new(Code::PermissionDenied, message).param("Origin").into());
    }
    let mut offered = websocket::offered_protocols(&exchange.headers)
        .filter(|name| !name.starts_with(channel_caller::TOKEN_PROTOCOL));
    if accepted.protocol.is_none() && offered.next().is_some() {
        services.admission.take_for_address(exchange, trace)?;
        let message =
            format!("None of the offered subprotocols is supported; offer `{}`.", live::PROTOCOL);
        let problem = Problem::new(Code::InvalidHeader, message);
        return Err(problem.param("Sec-WebSocket-Protocol").into());
    }
    let caller = channel_caller::identify(services, exchange, &pairs, trace).await?;
    let epoch = Epoch(services.store.epoch());
    let schema = &services.versions.view(caller.version).schema;
    let asked = SubscribeRequest::read(schema, epoch, &pairs, &exchange.headers, &COMMON)?;
    if asked.is_ahead_of(*services.store.position().borrow()) {
        services.store.fresh().await?;
    }
    caller.check(schema, &services.schema, &asked.interest)?;
    trace.note_deprecated(
        &services.deprecations,
        &services.deprecations.subscribed(caller.version, &asked.interest.types),
    );
    condition::of_read(&exchange.headers, None, None)?;
    let ticket = live::admit(&services.channels.hub, caller.scope).map_err(refusal)?;
    let Some(identity) = trace.identity.clone() else { return Err(missing().into()) };
    let version = services.versions.view(trace.version.unwrap_or(0)).clone();
    let client = exchange.is_client_known.then_some(exchange.client);
    let writer = Arc::new(SocketWriter::new(services.clone(), identity, version, &caller, client));
    Ok(Outcome::Open(live::open_socket(caller, asked, accepted, ticket, writer)))
}

/// The response to a client of event streams that the listener refused for lack of room. Nothing
/// more is known about the client.
pub fn retry_later(services: &Services) -> Response {
    let mut response = live::retry_later(&services.channels.hub, Full::Server);
    // Allow every origin: a page that cannot read the response would never reconnect.
    if !services.schema.live.origins.is_empty() {
        cors::share(&mut response.headers, HeaderValue::from_static("*"));
    }
    response
}

fn missing() -> Problem {
    Problem::new(Code::AuthenticationRequired, "No credentials were sent.")
}

fn refusal(full: Full) -> Problem {
    let (code, message) = match full {
        Full::Server => {
            (Code::Overloaded, "The server has no room for another connection. Try again later.")
        }
        Full::Account => {
            (Code::TooManyConnections, "The account has reached its limit of open connections.")
        }
    };
    Problem::new(code, message).retry_after(RETRY_AFTER)
}

/// `POST /v1/channel-tokens`
async fn tokens(
    services: &Arc<Services>,
    exchange: &mut Exchange,
    trace: &mut Trace,
) -> Result<Reply, Failure> {
    let mut identity = services.admission.identify(exchange, trace).await?;
    trace.choose_version(&services.versions, exchange, &identity)?;
    services.admission.take(&identity, trace).await?;
    let body = confirmed_body::read(services, exchange, &mut identity, trace).await?;
    scope::check(&identity.caller, scope::CHANNEL_TOKENS, Access::Write)?;
    let body = body?;
    negotiate::check_accept(&exchange.headers)?;
    if !body.is_empty() {
        negotiate::check_content_type(&exchange.method, &exchange.headers)?;
    }
    let fields = body::object(&body, true)?;
    let schema = &services.versions.view(trace.version.unwrap_or(0)).schema;
    let claims = Claims::read(schema, &identity.caller, fields, trace.now)?;
    live::check_token(&channel_caller::permit_of(services, &claims), schema, &services.schema)?;
    condition::of_nothing(&exchange.headers)?;
    let made = services.channels.tokens.make(&claims)?;
    let shown = json!({
        "object": "channel_token",
        "token": made,
        "user": claims.user,
        "types": claims.types,
        "publish": claims.publish,
        "resources": claims.resources,
        "parents": claims.parents,
        "expires_at": model::Timestamp(claims.expires).to_iso(),
        "livemode": identity.caller.scope.livemode(),
    });
    Ok(respond::no_store(Reply::json(StatusCode::CREATED, shown.to_string())))
}

/// `GET /v1/presence`
async fn presence(
    services: &Arc<Services>,
    exchange: &Exchange,
    trace: &mut Trace,
) -> Result<Reply, Failure> {
    let pairs = route::parameters(exchange.uri.query().unwrap_or_default())?;
    let identity = services.admission.identify(exchange, trace).await?;
    trace.choose_version(&services.versions, exchange, &identity)?;
    services.admission.take(&identity, trace).await?;
    scope::check(&identity.caller, scope::PRESENCE, Access::Read)?;
    negotiate::check_accept(&exchange.headers)?;
    if let Some((name, _)) = pairs.first() {
        return Err(Problem::unknown_parameter(name, &[]).into());
    }
    let position = *services.store.position().borrow();
    let (users, total) = services.channels.hub.present(identity.caller.scope).await;
    let shown = |present: &PresentUser| {
        json!({
            "object": "presence",
            "user": present.user,
            "connections": present.connections,
            "since": present.since.to_iso(),
        })
    };
    let data: Vec<_> = users.iter().map(shown).collect();
    let body = json!({
        "object": "list",
        "data": data,
        "pagination": { "total": total, "has_more": total > users.len() },
    });
    let position = Epoch(services.store.epoch()).at(position).to_string();
    let reply = Reply::json(StatusCode::OK, body.to_string()).header(STREAM_POSITION, position);
    Ok(respond::no_store(reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::ACCEPT;

    fn accepting(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(text))])
    }

    #[test]
    fn streams_open_for_clients_that_accept_them_and_only_eventsources_are_asked_to_retry() {
        assert!(takes_events(&HeaderMap::new()) && !wants_events(&HeaderMap::new()));
        for (accept, takes, wants) in [
            ("text/event-stream", true, true),
            ("application/json, Text/Event-Stream;q=0.5", true, true),
            ("*/*", true, false),
            ("text/*", true, false),
            ("application/json", false, false),
            ("text/html, application/xml;q=0.9", false, false),
        ] {
            let headers = accepting(accept);
            assert_eq!(
                (takes_events(&headers), wants_events(&headers)),
                (takes, wants),
                "{accept}"
            );
        }
    }
}
