//! The shared cache (RFC 9111) between the routes and the backends. A request asks `key` whether
//! the cache has to do with it; `store` has the stored responses, `policy` says whether one may be
//! used; a miss joins or begins a `fill`, whose `job` asks the backend. Knows HTTP only: what a
//! response means is the backend's say.

mod condition;
mod control;
mod early_hints;
mod fetch;
mod fill;
mod flights;
mod job;
mod key;
mod key_set;
mod metrics;
mod policy;
mod status;
mod store;
mod vary;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::header::{CONTENT_LOCATION, HeaderName, LOCATION, RANGE, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::timeout;
use wire::{Exchange, Hints, Payload, Response};

use crate::balance::Backend;
use crate::error::Failure;
use crate::forward::{Forward, Forwarded};
use crate::route::{ServedRoute, ServedSite};
use control::Directives;
use early_hints::{EarlyHints, Lesson};
use fetch::Fetch;
use fill::{Filling, Head, Lead, Outcome, Ticket};
use flights::Flights;
use job::Job;
use key::{Class, Key};
use key_set::KeySet;
use metrics::CacheMetrics;
use policy::{Requester, Rules, Times, Verdict};
use status::{Report, Why, set_age};
use store::{Store, Stored};
use vary::Selection;

pub(crate) use key::{Origin, identity};

/// The part of it that responses may have in addition while they arrive.
const FILLING_PART: u64 = 4;
/// How often a request joins another one whose response turns out to be for other values of `Vary`.
/// After that it goes alone: requests must not wait for one another in a row.
const ROUNDS: usize = 2;
/// How long a request waits for the response to another one, until it asks the backend itself: what
/// the first client sent may be the reason why its response takes long.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// What a response says about the quota of its request.
const QUOTA: [HeaderName; 5] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
];

/// The cache of a proxy.
pub(crate) struct Cache(Arc<Shared>);

pub(crate) struct Shared {
    store: Store,
    flights: Flights,
    filling: Arc<Filling>,
    /// Keys whose responses were not stored. Requests for them do not wait for one another: each
    /// would wait in vain.
    uncacheable: KeySet,
    /// Keys whose responses to a request with a credential may be stored for others.
    shareable: KeySet,
    early_hints: EarlyHints,
    metrics: CacheMetrics,
}

/// A response, and the server that gave it now.
pub(crate) type Served = (Response, Option<Arc<Backend>>);

/// A request that the cache may answer.
struct Read<'r> {
    forward: &'r Forward<'r>,
    exchange: &'r mut Exchange,
    key: Key,
    control: Directives,
    requester: Requester,
    /// The response may be stored.
    may_store: bool,
}

/// What the cache has for a request.
struct Lookup {
    has_variants: bool,
    found: Option<Arc<Stored>>,
    /// A number for the values of the fields that the response depends on.
    fingerprint: u64,
}

impl Shared {
    fn invalidate(&self, key: &Key) {
        if self.flights.invalidate(&self.store, key) {
            self.metrics.invalidated();
        }
    }
}

/// Removes what is stored under a key when it is dropped, however that comes.
struct Invalidation<'c> {
    shared: &'c Shared,
    key: &'c Key,
    is_due: bool,
}

impl Drop for Invalidation<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.shared.invalidate(self.key);
        }
    }
}

impl Cache {
    pub(crate) fn new(size_bytes: u64) -> Cache {
        let cache = Cache(Arc::new(Shared {
            store: Store::new(size_bytes),
            flights: Flights::default(),
            filling: Arc::default(),
            uncacheable: KeySet::new(),
            shareable: KeySet::new(),
            early_hints: EarlyHints::new(),
            metrics: CacheMetrics::default(),
        }));
        cache.resize(size_bytes);
        cache
    }

    pub(crate) fn resize(&self, size_bytes: u64) {
        self.0.store.resize(size_bytes);
        self.0.filling.set_most(size_bytes / FILLING_PART);
    }

    pub(crate) fn render(&self, out: &mut String) {
        self.0.metrics.render(&self.0.store, out);
    }

    /// Answers a request from the cache, or forwards it.
    pub(crate) async fn forward(
        &self,
        forward: &mut Forward<'_>,
        (site, served): (&ServedSite, &ServedRoute),
        exchange: &mut Exchange,
    ) -> Result<Served, Failure> {
        let is_off = !served.route.cache || self.0.store.is_off();
        if is_off && !served.route.early_hints {
            return plain(forward, exchange).await;
        }
        let class = Class::of(exchange);
        if is_off && class != Class::Cached {
            return plain(forward, exchange).await;
        }
        if class == Class::Other {
            return plain(forward, exchange).await;
        }
        if let Class::Bypass(detail) = class {
            let report = Report { detail: Some(detail), ..Report::forwarded(Why::Bypass) };
            return self.pass(forward, exchange, report).await;
        }
        let origin = Origin::of(exchange, forward.sender.is_trusted);
        let path = forward.path.as_ref().or(exchange.uri.path_and_query());
        let key = origin.key(served.identity, path.map_or("/", |path| path.as_str()));
        if class == Class::Unsafe {
            return self.write(forward, exchange, site, &origin, &key).await;
        }
        let has_certificate =
            forward.sender.certificate.is_some() || key::has_certificate(&exchange.headers);
        let learns = served.route.early_hints && exchange.method == Method::GET;
        let lesson = (learns && origin.is_normal)
            .then(|| Lesson::of(&key, &exchange.headers, has_certificate));
        if learns {
            forward.links = self.0.early_hints.links(&key, &exchange.hints);
        }
        let (response, backend) = if is_off {
            plain(forward, exchange).await?
        } else if has_certificate {
            // A certificate authorises as well, and no rule says when such a response is for
            // others.
            let report = Report::forwarded(Why::Bypass);
            let report = Report { detail: Some("certificate"), ..report };
            self.pass(forward, exchange, report).await?
        } else {
            self.cached(forward, exchange, (&origin, key)).await?
        };
        // Not from a stored response: its links are known.
        if let (Some(lesson), Some(_)) = (lesson, &backend) {
            self.0.early_hints.learn(lesson, &response);
        }
        Ok((response, backend))
    }

    /// Answers a GET or HEAD request from the cache, or forwards it.
    async fn cached(
        &self,
        forward: &Forward<'_>,
        exchange: &mut Exchange,
        (origin, key): (&Origin, Key),
    ) -> Result<Served, Failure> {
        let credential = key::credential(&exchange.headers);
        let is_private = credential.is_some() && forward.pool.is_restive();
        let requester = Requester { has_authorization: credential.is_some(), is_private };
        let key = match credential {
            Some(credential) if is_private => key.private(&credential),
            _ => key,
        };
        let control = Directives::of_request(&exchange.headers);
        let may_store = origin.is_normal && !control.no_store;
        let mut read = Read { forward, exchange, key, control, requester, may_store };
        match self.read(&read).await? {
            Found::Served(served) => Ok(served),
            Found::Alone(report) => self.alone(&mut read, report).await,
        }
    }

    /// A request that may change what is stored (RFC 9111 4.4). A failure, and a client that leaves
    /// before the response, say nothing about its effect: only a refusal leaves the stored
    /// responses.
    async fn write(
        &self,
        forward: &Forward<'_>,
        exchange: &mut Exchange,
        site: &ServedSite,
        origin: &Origin,
        key: &Key,
    ) -> Result<Served, Failure> {
        let mut invalidation = Invalidation { shared: &self.0, key, is_due: true };
        let outcome = forward.run(exchange).await;
        let is_refused = |done: &Forwarded| done.response.status.is_client_error();
        invalidation.is_due = !outcome.as_ref().is_ok_and(is_refused);
        drop(invalidation);
        let Forwarded { response, backend, .. } = outcome?;
        if response.status.is_success() || response.status.is_redirection() {
            for name in [LOCATION, CONTENT_LOCATION] {
                let url = response.headers.get(name).and_then(|value| value.to_str().ok());
                if let Some(key) = url.and_then(|url| origin.key_of_url(site, url)) {
                    self.0.invalidate(&key);
                }
            }
        }
        Ok((response, Some(backend)))
    }

    /// The response from the cache, or from a request that others wait for as well; or the report
    /// about a request that goes to the backend as it is.
    async fn read(&self, read: &Read<'_>) -> Result<Found, Failure> {
        // The fields that the response depends on, once a response for other values has named them.
        let mut known = None;
        for round in 0..=ROUNDS {
            let lookup = self.lookup(read, known.take());
            let now = Instant::now();
            let why = match &lookup.found {
                None if lookup.has_variants => Why::VaryMiss,
                None => Why::UriMiss,
                Some(stored) => match stored.rules.verdict(&read.control, now) {
                    _ if read.wants_ranges() => Why::Partial,
                    Verdict::Fresh | Verdict::StaleAccepted => {
                        return Ok(Found::Served(self.hit(read, stored)));
                    }
                    Verdict::StaleWhileRevalidate => {
                        let served = self.hit(read, stored);
                        self.revalidate(read, lookup);
                        return Ok(Found::Served(served));
                    }
                    Verdict::Stale if read.is_exact(stored, now) => {
                        return Ok(Found::Served(self.exact(read, stored, now)));
                    }
                    Verdict::Stale => Why::Stale,
                    Verdict::Refused => Why::Request,
                },
            };
            if read.control.only_if_cached {
                return Err(not_cached());
            }
            if let Some(detail) = self.goes_alone(read, &lookup) {
                let report = Report { detail: Some(detail), ..Report::forwarded(why) };
                return Ok(Found::Alone(report));
            }
            // In the last round it joins nobody.
            let is_open = round < ROUNDS && !read.requester.has_authorization;
            match self.fill(read, lookup, why, is_open).await? {
                Filled::Response(served) => return Ok(Found::Served(served)),
                Filled::Alone => return Ok(Found::Alone(Report::forwarded(why))),
                Filled::OtherVariant(selection) => known = Some(selection),
            }
        }
        Ok(Found::Alone(Report::forwarded(Why::VaryMiss)))
    }

    fn lookup(&self, read: &Read<'_>, known: Option<Selection>) -> Lookup {
        let variants = self.0.store.variants(&read.key);
        let Requester { has_authorization, is_private } = read.requester;
        let is_allowed = |stored: &&Arc<Stored>| {
            // RFC 9111 3.5, in both directions: who has a credential may get another response.
            !has_authorization || is_private || stored.rules.is_shared
        };
        let found = variants.as_ref().and_then(|all| all.select(&read.exchange.headers));
        let found = found.filter(is_allowed).cloned();
        let headers = &read.exchange.headers;
        let fingerprint = match (&variants, known) {
            (_, Some(known)) => known.fingerprint(headers),
            (Some(variants), None) => variants.fingerprint(headers),
            (None, None) => 0,
        };
        Lookup { has_variants: variants.is_some(), found, fingerprint }
    }

    /// Why the request goes to the backend as it is.
    fn goes_alone(&self, read: &Read<'_>, lookup: &Lookup) -> Option<&'static str> {
        if read.exchange.headers.contains_key(RANGE) {
            return Some("range");
        }
        if !read.may_store {
            return Some(if read.control.no_store { "no-store" } else { "host" });
        }
        if lookup.found.is_some() {
            return None;
        }
        if read.exchange.method == Method::HEAD {
            return Some("head");
        }
        let number = read.key.fingerprint();
        // Nobody may wait for the response to a request with a credential, and few of them may be
        // stored: only where an earlier one could be, it is worth a task.
        let Requester { has_authorization, is_private } = read.requester;
        if has_authorization && !is_private && !self.0.shareable.has(number) {
            return Some("authorization");
        }
        self.0.uncacheable.has(number).then_some("uncacheable")
    }

    /// Asks the backend together with all others that want the same response.
    async fn fill(
        &self,
        read: &Read<'_>,
        lookup: Lookup,
        why: Why,
        is_open: bool,
    ) -> Result<Filled, Failure> {
        let ticket = self.begin(read, lookup, is_open, read.exchange.hints.clone());
        if !ticket.is_leader() {
            read.forward.announce(&read.exchange.hints);
        }
        let _waiting = self.0.metrics.wait();
        let mut report = Report::forwarded(why);
        report.is_collapsed = !ticket.is_leader();
        let outcome = match ticket.is_leader() {
            true => ticket.wait().await,
            false => timeout(MAX_WAIT, ticket.wait()).await.unwrap_or(Outcome::Alone),
        };
        let headers = &read.exchange.headers;
        Ok(match outcome {
            Outcome::Lead(Lead::Confirmed(stored, cookies)) => {
                let (mut response, _) = self.filled(read, &stored, report, true);
                for cookie in cookies {
                    response.headers.append(SET_COOKIE, cookie);
                }
                Filled::Response((response, None))
            }
            Outcome::Lead(Lead::Own(response, backend, reason)) => {
                report.detail = Some(reason.0);
                Filled::Response(self.own(read, response, backend, report))
            }
            Outcome::Lead(Lead::Headers(headers, backend, head)) => {
                let response = self.stream(read, &ticket, &head, headers, report);
                Filled::Response((response, Some(backend)))
            }
            Outcome::Body(head) if head.selection.matches(headers) => {
                let mut headers = head.headers.clone();
                set_age(&mut headers, head.rules.age(Instant::now()));
                let response = self.stream(read, &ticket, &head, headers, report);
                Filled::Response((response, None))
            }
            Outcome::Done(stored) if stored.selection.matches(headers) => {
                Filled::Response(self.filled(read, &stored, report, true))
            }
            Outcome::Body(head) => Filled::OtherVariant(head.selection.clone()),
            Outcome::Done(stored) => Filled::OtherVariant(stored.selection.clone()),
            Outcome::Stale(stored) if stored.selection.matches(headers) => {
                Filled::Response(self.filled(read, &stored, report, false))
            }
            Outcome::Stale(_) | Outcome::Alone => Filled::Alone,
            // The others have time left.
            Outcome::Failed(failure)
                if !ticket.is_leader() && failure.status == StatusCode::GATEWAY_TIMEOUT =>
            {
                Filled::Alone
            }
            Outcome::Failed(failure) => return Err(failure),
        })
    }

    /// Joins a request to the backend, or starts its task.
    fn begin(&self, read: &Read<'_>, lookup: Lookup, is_open: bool, hints: Hints) -> Ticket {
        let headers = &read.exchange.headers;
        let (fill, ticket) = self.0.flights.join(&read.key, lookup.fingerprint, is_open);
        if ticket.is_leader() {
            let job = Job {
                shared: self.0.clone(),
                key: read.key.clone(),
                fill,
                fetch: Fetch::of(read.forward),
                exchange: fetch::get(read.exchange, headers.clone(), hints),
                requester: read.requester,
                stale: lookup.found,
            };
            tokio::spawn(job.run());
        }
        ticket
    }

    /// Asks the backend while the client has the stale response.
    fn revalidate(&self, read: &Read<'_>, lookup: Lookup) {
        if read.may_store {
            self.begin(read, lookup, true, Hints::default()).keep();
        }
    }

    /// The response from the cache.
    fn hit(&self, read: &Read<'_>, stored: &Stored) -> Served {
        let now = Instant::now();
        let ttl_seconds = Some(stored.rules.ttl_seconds(now));
        let report = Report { ttl_seconds, ..Report::default() };
        (self.respond(read, stored, report, now), None)
    }

    /// The response that the backend would send now.
    fn exact(&self, read: &Read<'_>, stored: &Stored, now: Instant) -> Served {
        let report = Report { detail: Some("exact"), ..Report::default() };
        let mut response = self.respond(read, stored, report, now);
        // It takes nothing from the quota, and other requests may have.
        for name in QUOTA {
            response.headers.remove(name);
        }
        (response, None)
    }

    /// A response that was stored or confirmed just now, or a stale one in place of a failure.
    fn filled(&self, read: &Read<'_>, stored: &Stored, report: Report, is_new: bool) -> Served {
        let now = Instant::now();
        let report = Report {
            ttl_seconds: Some(stored.rules.ttl_seconds(now)),
            is_stored: is_new,
            detail: (!is_new).then_some("stale-if-error"),
            ..report
        };
        (self.respond(read, stored, report, now), None)
    }

    fn respond(&self, read: &Read<'_>, stored: &Stored, report: Report, now: Instant) -> Response {
        let Exchange { method, headers: asked, .. } = &*read.exchange;
        let mut response = condition::respond(stored, method, asked);
        set_age(&mut response.headers, stored.rules.age(now));
        self.report(&report, &mut response);
        response
    }

    /// A response whose body is read while it is stored.
    fn stream(
        &self,
        read: &Read<'_>,
        ticket: &Ticket,
        head: &Head,
        mut headers: HeaderMap,
        mut report: Report,
    ) -> Response {
        report.status = Some(head.status);
        report.is_stored = true;
        report.ttl_seconds = Some(head.rules.ttl_seconds(Instant::now()));
        let is_known = condition::is_known(head.status, &headers, &read.exchange.headers);
        if is_known || read.exchange.method == Method::HEAD {
            // Its client needs no body; the cache does.
            ticket.hold();
        }
        let mut response = match is_known {
            true => {
                condition::without_content(&mut headers);
                let status = StatusCode::NOT_MODIFIED;
                Response { status, headers, ..Response::default() }
            }
            false => {
                let body = Payload::Stream(Box::new(ticket.reader(head.length_bytes)));
                Response { status: head.status, headers, body, ..Response::default() }
            }
        };
        self.report(&report, &mut response);
        response
    }

    /// A response that is not stored. The conditions of the client were not sent to the backend.
    fn own(
        &self,
        read: &Read<'_>,
        mut response: Response,
        backend: Arc<Backend>,
        mut report: Report,
    ) -> Served {
        report.status = Some(response.status);
        if condition::is_known(response.status, &response.headers, &read.exchange.headers) {
            response.status = StatusCode::NOT_MODIFIED;
            condition::without_content(&mut response.headers);
            response.body = Payload::default();
        }
        self.report(&report, &mut response);
        (response, Some(backend))
    }

    /// Forwards a request as it is, and learns from the response whether it could be stored.
    async fn alone(&self, read: &mut Read<'_>, mut report: Report) -> Result<Served, Failure> {
        let Read { forward, exchange, key, requester, may_store, .. } = read;
        let learns = *may_store && exchange.method == Method::GET;
        let sent = Instant::now();
        let Forwarded { mut response, backend, .. } = forward.run(exchange).await?;
        if learns {
            let times = Times { sent, received: Instant::now(), date: SystemTime::now() };
            let rules = Rules::of(response.status, &response.headers, *requester, times);
            let is_storable =
                rules.is_ok() && Selection::of(&response.headers, &HeaderMap::new()).is_some();
            let number = key.fingerprint();
            match (is_storable, requester.has_authorization) {
                (true, true) => self.0.shareable.add(number),
                (true, false) => self.0.uncacheable.remove(number),
                (false, true) => self.0.shareable.remove(number),
                (false, false) => {}
            }
        }
        report.status = Some(response.status);
        self.report(&report, &mut response);
        Ok((response, Some(backend)))
    }

    async fn pass(
        &self,
        forward: &Forward<'_>,
        exchange: &mut Exchange,
        mut report: Report,
    ) -> Result<Served, Failure> {
        let Forwarded { mut response, backend, .. } = forward.run(exchange).await?;
        report.status = Some(response.status);
        self.report(&report, &mut response);
        Ok((response, Some(backend)))
    }

    fn report(&self, report: &Report, response: &mut Response) {
        self.0.metrics.count(report);
        report.write(&mut response.headers);
    }
}

/// What the cache does with a request.
enum Found {
    Served(Served),
    /// It goes to the backend as it is.
    Alone(Report),
}

/// The result of a request that others may have joined.
enum Filled {
    Response(Served),
    /// The response is for other values of these fields.
    OtherVariant(Selection),
    /// The response is not for others.
    Alone,
}

impl Read<'_> {
    /// Whether the feed of the backend says that the response is current, and the client does not
    /// want more than that.
    fn is_exact(&self, stored: &Stored, now: Instant) -> bool {
        let Directives { no_cache, max_age, min_fresh, .. } = &self.control;
        let is_too_old = |most: &u64| stored.rules.age(now) > Duration::from_secs(*most);
        let Some(exact) = &stored.exact else { return false };
        !no_cache
            && min_fresh.is_none()
            && !max_age.as_ref().is_some_and(is_too_old)
            && self.requester.is_private
            && self.forward.follow.confirms(exact, &self.exchange.headers, now)
    }

    /// It asks for ranges that the cache does not cut out itself.
    fn wants_ranges(&self) -> bool {
        let headers = &self.exchange.headers;
        headers.contains_key(RANGE)
            && self.exchange.method == Method::GET
            && condition::single_range(headers).is_none()
    }
}

async fn plain(forward: &Forward<'_>, exchange: &mut Exchange) -> Result<Served, Failure> {
    let Forwarded { response, backend, .. } = forward.run(exchange).await?;
    Ok((response, Some(backend)))
}

/// RFC 9111 5.2.1.7.
fn not_cached() -> Failure {
    let message = "The cache has no response for this request, and `only-if-cached` forbids to ask \
                   the backend.";
    Failure::new(StatusCode::GATEWAY_TIMEOUT, "not_cached", message)
}
