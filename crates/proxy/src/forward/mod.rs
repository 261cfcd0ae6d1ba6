//! Forwards a request to a server of its group and the response back. A request goes to another
//! server only if that cannot repeat an effect.

pub(crate) mod headers;
mod local;
mod repeat;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, Version};
use wire::outgoing::{Call, CallTimeouts, Client, Opened, OutgoingFault, Retry, Stage, Target};
use wire::{Chunks, Cut, Exchange, Hints, Payload, Response, Service};

use crate::balance::{Backend, InProgress, Pool};
use crate::config::{Edits, Route, Timeouts};
use crate::error::Failure;
use crate::fanout::{self, Asked, Fanout, HOLD, PollSlot, STREAM_POSITION, is_event_stream};
use crate::follow::{Basis, Evidence, Follow, RESTIVE_EDGE, Said};
use crate::metrics::Outcome;
use headers::Sender;
use repeat::Repeat;

/// Request bodies up to this size are held, so that the request can go to another server.
const REPLAY_BYTES: u64 = 64 * 1024;
/// The most servers that one request goes to.
const MAX_ATTEMPTS: usize = 3;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Streams and tunnels without a byte for this long are closed.
const STREAM_IDLE: Duration = Duration::from_secs(60 * 60);

/// The links of a page that a client gets before it.
pub(crate) type Links = Arc<[HeaderValue]>;

/// What a request is forwarded with.
pub(crate) struct Forward<'a> {
    pub(crate) client: &'a Client,
    /// The service in this process.
    pub(crate) local: Option<&'a Arc<dyn Service>>,
    /// None: the response is not shared.
    pub(crate) fanout: Option<&'a Fanout>,
    pub(crate) follow: &'a Follow,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) route: &'a Arc<Route>,
    pub(crate) sender: Sender<'a>,
    /// The path for the backend, if it differs from that of the request.
    pub(crate) path: Option<PathAndQuery>,
    /// What the page needs, as an earlier response to the same URL said.
    pub(crate) links: Option<Links>,
    /// The client, with the port if that is known, and the address that it has reached.
    pub(crate) addresses: (SocketAddr, SocketAddr),
}

/// The response, and the server that gave it.
pub(crate) struct Forwarded {
    pub(crate) response: Response,
    pub(crate) backend: Arc<Backend>,
    /// Why the response may be used again without asking the server.
    pub(crate) evidence: Option<Evidence>,
}

impl Forward<'_> {
    /// Sends the links in a 103, if there are any.
    pub(crate) fn announce(&self, hints: &Hints) {
        if let Some(links) = &self.links {
            hints.links(links.iter().cloned());
        }
    }

    /// Forwards a request. Takes its headers and its body; the rest of it stays.
    pub(crate) async fn run(&self, exchange: &mut Exchange) -> Result<Forwarded, Failure> {
        self.announce(&exchange.hints);
        if self.pool.group.is_local {
            // Boxed: other requests need no room for it.
            return Box::pin(self.call_local(exchange.take())).await;
        }
        let (mut headers, mut body) = exchange.take_message();
        let Exchange { method, uri, hints, .. } = &*exchange;
        let mut effect = self.follow.write(method, &headers);
        body.guard(self.route.max_body_bytes, headers::keeps_request_trailer);
        let is_long_poll = is_long_poll(method, uri);
        let is_idempotent = is_idempotent(method);
        // Not to another server: only the same one is known to have the key.
        let is_keyed = headers.contains_key(IDEMPOTENCY_KEY) && self.pool.is_restive();
        let host = headers.get(HOST).cloned();
        headers::request(&mut headers, self.sender, &self.route.request_headers);
        if self.route.compress {
            headers::strengthen(&mut headers);
        }
        let holds = body.declared_bytes().is_some_and(|bytes| bytes <= REPLAY_BYTES);
        if (is_idempotent || is_keyed) && holds && !body.is_here() {
            let read = body.read(REPLAY_BYTES as usize).await.map_err(Failure::body)?;
            body = read.into();
        }
        let mut interim = |status: StatusCode, mut headers: HeaderMap| {
            headers::interim(&mut headers, &self.route.response_headers);
            hints.forward(status, headers);
        };
        let Some(first) = self.pool.backends.first() else { return Err(Failure::unavailable()) };
        let mut call = Call::new(method.clone(), &first.server.target);
        call.path = self.path.clone().or_else(|| uri.path_and_query().cloned());
        call.host = host;
        call.headers = headers;
        call.body = body;
        call.timeouts = call_timeouts(self.route.timeouts, is_long_poll);
        call.retry = match (is_keyed, is_idempotent) {
            (true, _) => Retry::Replayable,
            (false, true) => Retry::Idempotent,
            (false, false) => Retry::Never,
        };
        call.interim = Some(&mut interim);
        let (from, to) = self.addresses;
        let introduced = match self.sender.is_client_known {
            true => self.pool.introduced(from, to),
            false => Vec::new(),
        };
        match self.slot(&call) {
            // Boxed: other requests need no room for it.
            Some(slot) => Box::pin(self.poll(slot, &mut call, &introduced)).await,
            None => {
                let (forwarded, is_attested) =
                    self.attempts(&mut call, &introduced, is_idempotent).await?;
                // Of several servers, the next read may go to one that reports nothing about this
                // write.
                let is_known = is_attested && self.pool.only().is_some();
                if let Some(effect) = effect.as_mut().filter(|_| is_known) {
                    effect.known();
                }
                Ok(forwarded)
            }
        }
    }

    /// A place among the long polls that may share one, if the request is such a poll.
    fn slot(&self, call: &Call<'_>) -> Option<PollSlot> {
        let (fanout, path) = (self.fanout?, call.path.as_ref()?.as_str());
        let is_poll =
            call.method == Method::GET && waits(path) && call.body.declared_bytes() == Some(0);
        // Nothing can be known about a response whose fields are edited.
        let needed = [HOLD, STREAM_POSITION, CONTENT_TYPE];
        let is_edited = self.route.response_headers.names().any(|name| needed.contains(name));
        let may_share = self.route.fanout && self.pool.is_restive() && !is_edited;
        if !is_poll || !may_share || call.headers.contains_key(HOLD) {
            return None;
        }
        let server = &self.pool.group.name;
        let (host, headers) = (call.host.as_ref(), &call.headers);
        Some(fanout.polls().enter(Asked { server, host, path, headers }.key()))
    }

    /// Forwards a long poll. If others wait for the same, the backend is asked not to hold it, and
    /// it waits with them.
    async fn poll<'c>(
        &'c self,
        slot: PollSlot,
        call: &mut Call<'c>,
        introduced: &'c [Target],
    ) -> Result<Forwarded, Failure> {
        if !slot.shares() {
            return Ok(self.attempts(call, introduced, true).await?.0);
        }
        call.headers.insert(HOLD, HeaderValue::from_static("proxy"));
        let (mut forwarded, _) = self.attempts(call, introduced, true).await?;
        call.headers.remove(HOLD);
        let Response { headers, body, .. } = &mut forwarded.response;
        let held_ms = fanout::held_ms(headers);
        headers.remove(HOLD);
        let is_plain = !headers.contains_key(CONTENT_ENCODING);
        let at = fanout::position(headers).filter(|_| is_plain);
        let (Some(held_ms), Some(at)) = (held_ms, at) else { return Ok(forwarded) };
        // To its end: the connection can then be used again.
        fanout::read_body(std::mem::take(body)).await;
        let time = Duration::from_millis(held_ms).min(self.route.timeouts.long_poll);
        match slot.join(at, || Repeat::of(self, call)) {
            Some(waiting) => {
                let waited = waiting.wait(time).await;
                headers.remove(CONTENT_LENGTH);
                if let Ok(position) = HeaderValue::from_str(&waited.position) {
                    headers.insert(STREAM_POSITION, position);
                }
                *body = waited.body.into();
                Ok(forwarded)
            }
            // It is somewhere else: the backend holds it.
            None => Ok(self.attempts(call, introduced, true).await?.0),
        }
    }

    /// The response, and whether its server has said what the request had as effect.
    async fn attempts<'c>(
        &'c self,
        call: &mut Call<'c>,
        introduced: &'c [Target],
        is_idempotent: bool,
    ) -> Result<(Forwarded, bool), Failure> {
        let mut tried: Vec<usize> = Vec::new();
        let mut failure = Failure::unavailable();
        // A request that a server has seen goes to one other server at most.
        let mut is_repeated = false;
        while tried.len() < MAX_ATTEMPTS {
            let now = Instant::now();
            let chosen = self.pool.choose(self.sender.client, &tried, now);
            let Some((place, backend)) = chosen else { break };
            tried.push(place);
            let in_progress = InProgress::begin(backend);
            call.target = introduced.get(place).unwrap_or(&backend.server.target);
            let basis = self.follow.basis(&backend.link, now);
            match &basis {
                Some(basis) => drop(call.headers.insert(RESTIVE_EDGE, basis.token.clone())),
                None => drop(call.headers.remove(RESTIVE_EDGE)),
            }
            let (sent, outcome) = (now, self.client.open(call).await);
            let now = Instant::now();
            match outcome {
                Ok(mut opened) => {
                    self.note(backend, Outcome::of(opened.status), true, now);
                    let again = opened.status == StatusCode::SERVICE_UNAVAILABLE
                        && is_idempotent
                        && !call.is_spent()
                        && tried.len() < MAX_ATTEMPTS
                        && self.pool.choose(self.sender.client, &tried, now).is_some()
                        && !std::mem::replace(&mut is_repeated, true);
                    if !again {
                        let said = basis.and_then(|basis| attested(&mut opened, basis));
                        let is_attested = said.is_some();
                        let evidence =
                            said.and_then(|said| self.learn(call, backend, &opened, said));
                        let response = self.respond(opened, in_progress, (call, backend, sent));
                        let forwarded = Forwarded { response, backend: backend.clone(), evidence };
                        return Ok((forwarded, is_attested));
                    }
                    failure = Failure::unavailable();
                }
                Err(fault) => {
                    if !is_ours(&fault) {
                        let blames = !self.is_slow_response(&fault);
                        self.note(backend, Outcome::Failed, blames, now);
                        let (url, class) = (&backend.server.url, fault.class());
                        tracing::debug!(url, class, %fault, "a backend did not respond");
                    }
                    failure = Failure::outgoing(&fault);
                    let closed = matches!(fault, OutgoingFault::Reset(_))
                        && is_idempotent
                        && !std::mem::replace(&mut is_repeated, true);
                    if call.is_spent() || !(fault.is_unsent() || closed) {
                        break;
                    }
                }
            }
        }
        Err(failure)
    }

    /// Uses what a server says about its response. Returns the evidence for the response, if it
    /// is one that may be used again.
    fn learn(
        &self,
        call: &Call<'_>,
        backend: &Backend,
        opened: &Opened,
        (said, basis): (Said, Basis),
    ) -> Option<Evidence> {
        let link = &backend.link;
        if !matches!(call.method, Method::GET | Method::HEAD) {
            link.await_position(&said);
        }
        let evidence = Evidence::new(link, &basis, &said)?;
        if said.refused.is_none() {
            return Some(evidence);
        }
        if let (Some(path), true) = (&call.path, self.pool.only().is_some()) {
            let asked = (&call.method, path.path(), &call.headers);
            self.follow.refused(asked, &said, evidence, (opened.status, &opened.headers));
        }
        None
    }

    /// Whether the server was only slow, and checks say whether it works: then slow reports must
    /// not take it away from the other requests.
    fn is_slow_response(&self, fault: &OutgoingFault) -> bool {
        let is_late = matches!(fault, OutgoingFault::Timeout(Stage::Head | Stage::Body));
        is_late && self.pool.group.check.is_some()
    }

    /// Counts an outcome. `blames`: a failure is the server's fault.
    fn note(&self, backend: &Backend, outcome: Outcome, blames: bool, now: Instant) {
        backend.metrics.count(outcome);
        if !blames {
            return;
        }
        if outcome != Outcome::Failed {
            return backend.health.succeeded(now);
        }
        let others = self.pool.backends.iter().filter(|other| other.health.is_usable(now)).count();
        // At most half of the servers, and never the last one.
        let may_eject = others > 1 && (others - 1) * 2 >= self.pool.backends.len();
        if backend.health.failed(may_eject, now) {
            let url = &backend.server.url;
            tracing::warn!(url, "a server failed repeatedly and gets no requests for a while");
        }
    }

    fn respond(
        &self,
        opened: Opened,
        mut in_progress: InProgress,
        sent: (&Call<'_>, &Backend, Instant),
    ) -> Response {
        let Opened { status, headers: mut fields, mut flow, tunnel, .. } = opened;
        let upgrade = fields.get(http::header::UPGRADE).cloned();
        headers::response(&mut fields, &self.route.response_headers);
        headers::keep_required_upgrade(status, upgrade.as_ref(), &mut fields);
        let body = match tunnel {
            Some(tunnel) => {
                in_progress.becomes_stream();
                if self.sender.version >= Version::HTTP_2 {
                    // The answer to the key that the client does not have.
                    fields.remove(SEC_WEBSOCKET_ACCEPT);
                }
                if let Some(upgrade) = upgrade {
                    fields.insert(http::header::UPGRADE, upgrade);
                }
                Payload::take_over(move |raw| async move {
                    tunnel.relay(raw, STREAM_IDLE).await;
                    drop(in_progress);
                })
            }
            None => {
                let is_event_stream = is_event_stream(&fields);
                let is_encoded = fields.contains_key(CONTENT_ENCODING);
                if is_event_stream {
                    in_progress.becomes_stream();
                    flow.set_stall(STREAM_IDLE);
                }
                match flow.into_payload() {
                    Payload::Stream(chunks) => {
                        let edits = self.route.response_headers.clone();
                        let counted = Counted { chunks, edits, _in_progress: in_progress };
                        let chunks = Box::new(counted);
                        Payload::Stream(
                            match is_event_stream && !is_encoded && status == StatusCode::OK {
                                true => self.share(chunks, sent),
                                false => chunks,
                            },
                        )
                    }
                    whole => whole,
                }
            }
        };
        Response { status, headers: fields, body, ..Response::default() }
    }

    /// The stream for the client, which may go on as one that others have as well.
    fn share(
        &self,
        chunks: Box<dyn Chunks>,
        (call, backend, sent): (&Call<'_>, &Backend, Instant),
    ) -> Box<dyn Chunks> {
        let Some(path) = &call.path else { return chunks };
        let Some(fanout) = self.fanout.filter(|_| self.route.fanout) else { return chunks };
        if call.method != Method::GET || !backend.is_restive() {
            return chunks;
        }
        let asked = Asked {
            server: &backend.server.url,
            host: call.host.as_ref(),
            path: path.as_str(),
            headers: &call.headers,
        };
        fanout.share(asked, sent, chunks, Repeat::of(self, call))
    }
}

/// What the server says about its response, which is not for clients.
fn attested(opened: &mut Opened, basis: Basis) -> Option<(Said, Basis)> {
    let said = opened.headers.remove(RESTIVE_EDGE)?;
    Some((Said::parse(&said)?, basis))
}

/// Whether a fault says nothing about the server.
fn is_ours(fault: &OutgoingFault) -> bool {
    matches!(
        fault,
        OutgoingFault::RequestBody(_)
            | OutgoingFault::QueueFull
            | OutgoingFault::Timeout(Stage::Queue)
    )
}

/// RFC 9110 9.2.2. Other methods may have an effect each time they arrive.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

fn call_timeouts(timeouts: Timeouts, is_long_poll: bool) -> CallTimeouts {
    CallTimeouts {
        connect: timeouts.connect,
        tls: timeouts.connect,
        send: timeouts.send,
        head: if is_long_poll { timeouts.long_poll } else { timeouts.read },
        stall: timeouts.read,
        ..CallTimeouts::default()
    }
}

/// A request whose response may come late: `GET /events?wait=true`, as restive's feeds have it.
pub(crate) fn is_long_poll(method: &Method, uri: &Uri) -> bool {
    *method == Method::GET && uri.path_and_query().is_some_and(|path| waits(path.as_str()))
}

/// Whether a path with a query asks the server to wait.
fn waits(path: &str) -> bool {
    let mut pairs = path.split_once('?').map_or("", |(_, query)| query).split('&');
    pairs.any(|pair| matches!(pair, "wait=true" | "wait=1"))
}

/// A body whose server counts the request until the body has ended.
struct Counted {
    chunks: Box<dyn Chunks>,
    edits: Edits,
    _in_progress: InProgress,
}

impl Chunks for Counted {
    fn length_bytes(&self) -> Option<u64> {
        self.chunks.length_bytes()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        self.chunks.poll_chunk(cx)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        let mut trailers = self.chunks.trailers()?;
        headers::response_trailers(&mut trailers, &self.edits);
        Some(trailers)
    }
}
