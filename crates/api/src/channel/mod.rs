//! The live channels at the front: who may open which, what they ask for, and the credentials that
//! browsers need. What happens on an open connection is `live`'s.

mod record_writer;
mod visit;

pub use visit::ACCESS_TOKEN;

use crate::condition;
use crate::error::Failure;
use crate::finish::Outcome;
use crate::respond::{self, Reply, STREAM_POSITION};
use crate::route::{self, Channel};
use crate::services::Services;
use crate::token::{Claims, USER};
use crate::trace::Trace;
use crate::{body, cors, negotiate, scope};
use http::header::{CACHE_CONTROL, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use live::{ChannelCaller, Epoch, Full, PollRequest, PollResponse, Polled, SubscribeRequest};
use model::caller::Access;
use model::problem::{Code, Problem};
use model::schema::CollectionIx;
use record_writer::SocketWriter;
use serde_json::json;
use std::sync::Arc;
use wire::{Exchange, Payload, Response, accepted, wants_events, websocket};

/// Something between the place asked for and the answer may have been missed.
const GAP: HeaderName = HeaderName::from_static("x-stream-gap");
/// Seconds after which it makes sense to try again.
const RETRY_AFTER: u64 = 5;
/// Parameters of every channel beside its own.
const COMMON: [&str; 2] = [ACCESS_TOKEN, USER];

/// What a client was shown is nobody else's to keep. RFC 6750 2.3 demands it of what was asked for
/// with a token in the URL.
const KEPT_BY_CLIENTS: &str = "private, no-cache";

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
        _ => &["GET", "HEAD", "OPTIONS"],
    };
    let origins = &services.schema.live.origins;
    trace.page = cors::allowed(origins, &exchange.headers);
    // A socket is refused to pages of other origins in any case.
    trace.varies_by_origin = !origins.is_empty() || channel == Channel::Socket;
    if exchange.method == Method::OPTIONS || !methods.contains(&exchange.method.as_str()) {
        services.admission.take_for_address(exchange, trace)?;
        return offer(services, exchange, channel, methods, trace).map(Outcome::Reply);
    }
    // Refused before anything else is looked at; which one it is depends on the account, too.
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

/// What a channel offers, to those who ask for that or for something else.
fn offer(
    services: &Services,
    exchange: &Exchange,
    channel: Channel,
    methods: &[&str],
    trace: &Trace,
) -> Result<Reply, Failure> {
    let asks = exchange.method == Method::OPTIONS;
    // A page whose preflight is refused could not read why: what it then asks for is.
    if asks && trace.page.is_some() {
        return Ok(cors::preflight(respond::options(methods), methods));
    }
    if let Channel::Poll(feed) = channel {
        let asked = trace.asked_version(&services.versions, exchange);
        services.versions.check_served(asked, None, feed)?;
    }
    match asks {
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
    let visitor = visit::visitor(services, exchange, &pairs, trace).await?;
    negotiate::check_accept(&exchange.headers)?;
    let collection = &services.schema.collections[feed];
    visit::may_read(&visitor, collection)?;
    let view = services.versions.view(visitor.version);
    if !view.serves(feed) {
        return Err(services.versions.missing(view, feed).into());
    }
    trace
        .note_deprecated(&services.notices, &services.notices.used(visitor.version, feed, &[], ""));
    let epoch = Epoch(services.store.epoch());
    let asking = PollRequest::read(feed, epoch, services.schema.service.max_page, &pairs, &COMMON)?;
    // Looked at before the tag is: what is committed in between must not be behind the position.
    let position = *services.store.position().borrow();
    let tag = poll_tag(services, &visitor, feed, &pairs);
    condition::of_read(&exchange.headers, Some(&tag), None)?;
    if !asking.wait && condition::is_fresh(&exchange.headers, &tag, None) {
        let reply = respond::not_modified(KEPT_BY_CLIENTS, tag);
        return Ok(reply.header(STREAM_POSITION, epoch.at(position).to_string()).into());
    }
    match live::poll(&services.channels.hub, &visitor, asking).await? {
        Polled::Full(full) => Err(refusal(full).into()),
        Polled::Now(answer) if asking.wait => Ok(polled(epoch, answer).into()),
        Polled::Now(answer) => {
            let reply = polled(epoch, answer).vary().header(ETAG, tag);
            Ok(reply.header(CACHE_CONTROL, KEPT_BY_CLIENTS).into())
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

/// Changes with every record of the feed, and costs no query.
fn poll_tag(
    services: &Services,
    visitor: &ChannelCaller,
    feed: CollectionIx,
    pairs: &Pairs,
) -> String {
    let seq = services.store.collection_seq(visitor.scope, feed);
    let (scope, version) = (visitor.scope.0, visitor.version);
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
    let visitor = match visit::visitor(services, exchange, &pairs, trace).await {
        // An EventSource would never come back after an error that passes by itself.
        Err(Failure::Problem(problem))
            if matches!(problem.code, Code::RateLimited | Code::Overloaded)
                && wants_events(&exchange.headers) =>
        {
            return Ok(Outcome::Open(live::retry_later(&services.channels.hub, Full::Account)));
        }
        other => other?,
    };
    if !takes_events(&exchange.headers) {
        let message = "This is an event stream; the Accept header must take text/event-stream.";
        return Err(Problem::new(Code::NotAcceptable, message).param("Accept").into());
    }
    let epoch = Epoch(services.store.epoch());
    let schema = &services.versions.view(visitor.version).schema;
    let asked = SubscribeRequest::read(schema, epoch, &pairs, &exchange.headers, &COMMON)?;
    visitor.check(schema, &services.schema, &asked.interest)?;
    trace.note_deprecated(
        &services.notices,
        &services.notices.subscribed(visitor.version, &asked.interest.types),
    );
    condition::of_read(&exchange.headers, None, None)?;
    if exchange.method == Method::HEAD {
        // A body of unknown length: nobody can say how long a stream will be.
        let (_, body) = Payload::channel(None, 1);
        let (status, headers) = (StatusCode::OK, live::sse_headers());
        return Ok(Outcome::Open(Response { status, headers, body, ..Response::default() }));
    }
    match live::open_sse(&services.channels.hub, &visitor, asked) {
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
    if !cors::may_connect(&services.schema.live.origins, &exchange.headers) {
        services.admission.take_for_address(exchange, trace)?;
        let message = "Pages of this origin may not open a WebSocket here; `origins` of [live] in \
                       the schema file names those that may.";
        return Err(Problem::new(Code::PermissionDenied, message).param("Origin").into());
    }
    let mut offered = websocket::offered_protocols(&exchange.headers)
        .filter(|name| !name.starts_with(visit::TOKEN_PROTOCOL));
    if accepted.protocol.is_none() && offered.next().is_some() {
        services.admission.take_for_address(exchange, trace)?;
        let message =
            format!("None of the offered subprotocols is known; offer `{}`.", live::PROTOCOL);
        let problem = Problem::new(Code::InvalidHeader, message);
        return Err(problem.param("Sec-WebSocket-Protocol").into());
    }
    let visitor = visit::visitor(services, exchange, &pairs, trace).await?;
    let epoch = Epoch(services.store.epoch());
    let schema = &services.versions.view(visitor.version).schema;
    let asked = SubscribeRequest::read(schema, epoch, &pairs, &exchange.headers, &COMMON)?;
    visitor.check(schema, &services.schema, &asked.interest)?;
    trace.note_deprecated(
        &services.notices,
        &services.notices.subscribed(visitor.version, &asked.interest.types),
    );
    condition::of_read(&exchange.headers, None, None)?;
    let ticket = live::admit(&services.channels.hub, visitor.scope).map_err(refusal)?;
    let Some(identity) = trace.identity.clone() else { return Err(missing().into()) };
    let version = services.versions.view(trace.version.unwrap_or(0)).clone();
    let writer =
        Arc::new(SocketWriter::new(services.clone(), identity, version, &visitor, exchange.client));
    Ok(Outcome::Open(live::open_socket(visitor, asked, accepted, ticket, writer)))
}

/// Sends a client of event streams away from the full door, where nothing more is known of it.
pub fn retry_later(services: &Services) -> Response {
    let mut response = live::retry_later(&services.channels.hub, Full::Server);
    // Any page may be told to come again. One that may not read it would never do so.
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
            (Code::Overloaded, "There are as many open connections as there may be. Come again.")
        }
        Full::Account => {
            (Code::TooManyConnections, "The account has as many open connections as it may have.")
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
    let identity = services.admission.identify(exchange, trace).await?;
    trace.choose_version(&services.versions, exchange, &identity)?;
    let body = services.bodies.read(exchange, &identity, trace).await;
    services.admission.take(&identity, trace)?;
    scope::check(&identity.caller, scope::CHANNEL_TOKENS, Access::Write)?;
    let body = body?;
    negotiate::check_accept(&exchange.headers)?;
    if !body.is_empty() {
        negotiate::check_content_type(&exchange.method, &exchange.headers)?;
    }
    let fields = body::object(&body, true)?;
    let schema = &services.versions.view(trace.version.unwrap_or(0)).schema;
    let claims = Claims::read(schema, &identity.caller, fields, trace.now)?;
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
    services.admission.take(&identity, trace)?;
    scope::check(&identity.caller, scope::PRESENCE, Access::Read)?;
    negotiate::check_accept(&exchange.headers)?;
    if let Some((name, _)) = pairs.first() {
        return Err(Problem::unknown_parameter(name, &[]).into());
    }
    let position = *services.store.position().borrow();
    let (users, total) = services.channels.hub.presence.list(identity.caller.scope);
    let shown = |present: &live::Present| {
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
    fn streams_go_to_those_who_take_them_and_only_those_who_name_them_come_again() {
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
