//! The service that `wire` calls: one request in, one response out. Reads as the list of its steps.

use crate::actions::Actions;
use crate::auth::{Auth, Found, Identity, Unseen};
use crate::body::Bodies;
use crate::channel::{self, Standings, Tokens};
use crate::deprecation::{self, Notices, Part};
use crate::error::Shape;
use crate::idempotency;
use crate::in_flight::InFlight;
use crate::limit::{Bucket, Limiter, Moment, Quota};
use crate::log::AccessLog;
use crate::metrics::{Metrics, RouteKey, RouteTable};
use crate::operation::{self, Context, Failure};
use crate::page::{Pages, Viewer, metrics_reply};
pub(crate) use crate::request::Trace;
use crate::request::{self, Request};
use crate::respond::{self, Reply};
use crate::route::{self, Channel, Route, Router, Target};
use crate::usage::{self, Usages};
use crate::version::{self, Versioning};
use crate::{Outside, account, body, condition, negotiate};
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use live::Hub;
use model::problem::{Code, Problem};
use model::schema::{Builtin, Collection, Native, RateLimit, Schema};
use model::version::View;
use model::write::Idempotency;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::Store;
use wire::{Exchange, Fault, Payload, Response};

/// What the service is made of.
pub struct Parts {
    pub schema: Arc<Schema>,
    pub store: Arc<dyn Store>,
    pub outside: Arc<dyn Outside>,
    pub settings: Settings,
    /// Further lines of the metrics page, by whoever runs beside the API.
    pub figures: Figures,
    /// The open connections.
    pub hub: Arc<Hub>,
    /// Where actions with a handler run.
    pub actions: Arc<Actions>,
}

/// Appends lines to the metrics page.
pub type Figures = Arc<dyn Fn(&mut String) + Send + Sync>;

#[derive(Clone, Debug)]
pub struct Settings {
    /// `None` turns request limits off.
    pub rate_limit: Option<RateLimit>,
    /// Whether requests are logged.
    pub access_log: bool,
}

/// What `wire` serves.
pub struct Api(Arc<Core>);

pub struct Core {
    pub(crate) schema: Arc<Schema>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) hub: Arc<Hub>,
    router: Router,
    pub(crate) auth: Auth,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) outgoing: wire::Client,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) actions: Arc<Actions>,
    /// Memory for request bodies.
    pub(crate) bodies: Bodies,
    pub(crate) cursor_key: [u8; 32],
    pub(crate) tokens: Tokens,
    pub(crate) standings: Standings,
    pub(crate) metrics: Metrics,
    pub(crate) routes: RouteTable,
    pub(crate) log: Option<Arc<AccessLog>>,
    pages: Pages,
    pub(crate) versions: Arc<Versioning>,
    pub(crate) usages: Arc<Usages>,
    pub(crate) notices: Notices,
    usual_shape: Shape,
    draining: AtomicBool,
    request_prefix: String,
    requests: AtomicU64,
}

impl Api {
    pub fn new(parts: Parts) -> Result<Api, prometheus::Error> {
        let Parts { schema, store, outside, settings, figures, hub, actions } = parts;
        let at = Moment { now: outside.now(), uptime: outside.uptime() };
        let limiter = Arc::new(Limiter::new(settings.rate_limit, at));
        let metrics = Metrics::new()?;
        let prefix = outside.entropy().0;
        let versions = Arc::new(Versioning::new(&schema));
        let subjects = deprecation::subjects(&versions);
        let notices = Notices::new(&versions, &subjects);
        let usages = Arc::new(Usages::new(subjects, store.usage(), usage::MAX_ACCOUNTS));
        let accounts = schema.own(Builtin::Account);
        let auth =
            Auth::new(store.clone(), limiter.clone(), versions.clone(), usages.clone(), accounts);
        Ok(Api(Arc::new(Core {
            router: Router::new(schema.clone(), &versions),
            auth,
            limiter,
            outgoing: wire::Client::new(),
            in_flight: Arc::new(InFlight::new(wire::Limits::default().max_exchanges)),
            actions,
            bodies: body::budget(schema.service.max_body_bytes),
            cursor_key: store.cursor_key(),
            tokens: Tokens::new(&store.cursor_key()),
            standings: Standings::default(),
            hub,
            routes: RouteTable::new(&schema, &metrics),
            metrics,
            log: settings.access_log.then(Arc::default),
            pages: Pages::new(versions.clone(), store.clone(), outside.clone(), figures),
            notices,
            versions,
            usages,
            usual_shape: schema.service.errors.into(),
            draining: AtomicBool::new(false),
            // Random per process and counted within it: unique without asking for entropy each
            // time.
            request_prefix: format!("req_{}", crate::keys::hex(&prefix[..8])),
            requests: AtomicU64::new(0),
            schema,
            store,
            outside,
        })))
    }

    /// The log of requests, for the binary to write out.
    pub fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.0.log.clone()
    }

    /// Hands the counts of version usage to the store every few seconds; until it is dropped.
    pub fn keep_usage_regularly(&self) -> impl Future<Output = ()> + use<> {
        self.0.usages.clone().run(self.0.store.clone())
    }

    /// And once more, at the end.
    pub async fn keep_usage(&self) {
        self.0.usages.keep(&*self.0.store).await;
    }

    /// The metrics with the names of all accounts, for an address of the operator's own.
    pub fn operator_metrics(&self) -> Response {
        let figures = (&self.0.metrics, &*self.0.usages);
        let text = self.0.pages.metrics(figures, &Viewer::Operator);
        let Reply { status, headers, body } = metrics_reply(text);
        Response { status, headers, body: body.into(), holder: wire::Holder::Operator }
    }

    /// From now on `/health` says that this instance is going away.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }
}

/// What comes of a request.
pub enum Outcome {
    Reply(Reply),
    /// A connection that stays open.
    Open(Response),
    /// A reply that comes when something happens.
    Wait(Waiting),
}

pub type Waiting = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Outcome {
        Outcome::Reply(reply)
    }
}

impl Core {
    pub(crate) fn usual_shape(&self) -> Shape {
        self.usual_shape
    }

    pub(crate) fn request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.request_prefix.len() + 20);
        id.push_str(&self.request_prefix);
        id.push_str(itoa::Buffer::new().format(number));
        id
    }

    async fn serve(self: &Arc<Core>, mut exchange: Exchange) -> Response {
        let mut request = Request::begin(self, &exchange);
        let Request { id, shape, trace, .. } = &mut request;
        let answer = self.answer(&mut exchange, id, *shape, trace).await;
        if trace.version.is_none() {
            let asked = self.asked_version(&exchange, trace);
            trace.version = asked.or(Some(*self.versions.range(trace.mount).start()));
        }
        match answer {
            Ok(Outcome::Reply(reply)) => {
                let reply = check_read(&exchange, reply);
                self.close(reply, &mut request)
            }
            Err(failure) => self.close(Err(failure), &mut request),
            Ok(Outcome::Open(mut response)) => {
                self.complete(&mut response.headers, id, trace);
                response.holder = trace.holder();
                request.answered(response.status, 0);
                response
            }
            Ok(Outcome::Wait(waiting)) => {
                // It gives up its place with wire, too, and counts as an open connection.
                trace.place = None;
                let later = Box::pin(request::later(waiting, request));
                Response { body: Payload::Later(later), ..Response::default() }
            }
        }
    }

    /// The version that a request asks for, if there is such a version where it asks.
    pub(crate) fn asked_version(&self, exchange: &Exchange, trace: &Trace) -> Option<usize> {
        let query = match trace.route {
            Some(RouteKey::Channel(Channel::Stream | Channel::Socket | Channel::Poll(_))) => {
                exchange.uri.query().unwrap_or_default()
            }
            _ => "",
        };
        let pairs = route::query_pairs(query).unwrap_or_default();
        let said = live::asked_version(&pairs);
        self.versions.asked(&exchange.headers, said, trace.mount)
    }

    /// The answer, whole; counted and logged.
    pub(crate) fn close(&self, reply: Result<Reply, Failure>, request: &mut Request) -> Response {
        let Request { id, shape, trace, .. } = &mut *request;
        let reply = reply.unwrap_or_else(|failure| {
            let problem = explain(failure, id);
            trace.error = Some(crate::error::code_name(&problem).to_owned());
            respond::problem(&problem, *shape, id)
        });
        let bytes = reply.body.len();
        let Reply { status, mut headers, body } = reply;
        self.complete(&mut headers, id, trace);
        let holder = trace.holder();
        request.answered(status, bytes);
        Response { status, headers, body: body.into(), holder }
    }

    async fn answer(
        self: &Arc<Core>,
        exchange: &mut Exchange,
        request_id: &str,
        shape: Shape,
        trace: &mut Trace,
    ) -> Result<Outcome, Failure> {
        if !is_known(&exchange.method) {
            self.take_for_address(exchange, trace)?;
            let shown: String = exchange.method.as_str().chars().take(40).collect();
            let message = format!("`{shown}` is no method that is known here.");
            return Err(Problem::new(Code::NotImplemented, message).into());
        }
        if exchange.uri.path() == "*" {
            let reply = Reply::empty(StatusCode::NO_CONTENT);
            return Ok(reply.header(ALLOW, "GET, HEAD, OPTIONS").into());
        }
        let found = self.router.find(exchange.uri.path());
        trace.mount = match &found {
            Ok(Route::Resource(target)) => Some(target.mount),
            Ok(Route::Own(_) | Route::Channel(Channel::Tokens | Channel::Presence)) | Err(_) => {
                self.router.mount(exchange.uri.path())
            }
            Ok(_) => None,
        };
        let route = match found {
            Ok(route) => route,
            Err(problem) => {
                self.take_for_address(exchange, trace)?;
                return Err(problem.into());
            }
        };
        let target = match route {
            Route::Resource(target) => target,
            Route::Channel(channel) => {
                trace.route = Some(RouteKey::Channel(channel));
                return Box::pin(channel::serve(self, exchange, channel, request_id, trace)).await;
            }
            Route::Own(own) => {
                trace.route = Some(RouteKey::Own(own));
                let answer = account::serve(self, exchange, own, request_id, trace);
                return Box::pin(answer).await.map(Outcome::Reply);
            }
            page => {
                trace.route = Some(RouteKey::Page);
                trace.is_for_operators = matches!(page, Route::Health | Route::Metrics);
                let query = exchange.uri.query().unwrap_or_default();
                trace.version = self.pages.version_of(&page, query);
                hint(exchange, &self.schema.service.early_hints).await;
                let figures = (&self.metrics, &*self.usages);
                let draining = self.draining.load(Ordering::Relaxed);
                let viewer = match page {
                    Route::Metrics => self.viewer(exchange, trace).await?,
                    _ => Viewer::Anybody,
                };
                let shown = self.pages.show(&page, exchange, figures, &viewer, draining);
                return Box::pin(shown).await.map(Outcome::Reply);
            }
        };
        trace.route = Some(RouteKey::of(&target));
        let reply = self.resource(exchange, request_id, shape, &target, trace).await?;
        Ok(Outcome::Reply(reply))
    }

    /// Who asks for the metrics. Nobody needs a key for them; one that is sent must be valid.
    async fn viewer(&self, exchange: &Exchange, trace: &mut Trace) -> Result<Viewer, Failure> {
        if !exchange.headers.contains_key(AUTHORIZATION) {
            return Ok(Viewer::Anybody);
        }
        // No place is taken for it: an account that has all it may can still look.
        let identity = Box::pin(self.caller(exchange, trace)).await?;
        Ok(Viewer::Account(identity.caller.account.clone()))
    }

    /// A request to a resource: method, caller, repetition, quota, formats, operation.
    async fn resource(
        &self,
        exchange: &mut Exchange,
        request_id: &str,
        shape: Shape,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<Reply, Failure> {
        let collection = &self.schema.collections[target.collection];
        let offered = route::offers(collection, target, &exchange.method);
        if !offered || exchange.method == Method::OPTIONS {
            self.take_for_address(exchange, trace)?;
            let asked = self.asked_version(exchange, trace);
            self.versions.check_served(asked, trace.mount, target.collection)?;
            return offer(collection, target, &exchange.method);
        }
        let identity = self.identify(exchange, trace).await?;
        let writes = operation::access(&exchange.method) == model::caller::Access::Write;
        let body = match writes {
            true => Box::pin(body::read(self, exchange, &identity, trace)).await,
            false => Ok(Bytes::new()),
        };
        // What the key may not ask for, or not in this version, it may not hear about either.
        let sent = body.as_deref().unwrap_or_default();
        let admitted = self.admit(exchange, &identity, target, sent, trace);
        let idempotency = match (&body, &admitted) {
            (Ok(body), Ok(view)) => self.idempotency(exchange, collection, body, view),
            _ => Ok(None),
        };
        let replay = match (&idempotency, &admitted) {
            (Ok(Some(key)), Ok(view)) => {
                Box::pin(self.replay(key, &identity, target, view, shape, trace)).await?
            }
            _ => None,
        };
        if let Some(reply) = replay {
            return Ok(reply);
        }
        self.take(&identity, trace)?;
        let view = admitted?;
        let (body, idempotency) = (body?, idempotency?);
        let query = exchange.uri.query().unwrap_or_default();
        if identity.account.pin.is_none() {
            Box::pin(account::pin(self, &identity, trace.now)).await;
        }
        negotiate::check_accept(&exchange.headers)?;
        if !body.is_empty() && exchange.method != Method::DELETE {
            negotiate::check_content_type(&exchange.method, &exchange.headers)?;
        }
        if !writes {
            hint(exchange, &collection.early_hints).await;
        }
        let context = Context {
            schema: &self.schema,
            version: view,
            versions: &self.versions,
            store: &self.store,
            outside: &self.outside,
            outgoing: &self.outgoing,
            in_flight: &self.in_flight,
            actions: &self.actions,
            cursor_key: &self.cursor_key,
            caller: &identity.caller,
            target,
            method: &exchange.method,
            path: exchange.uri.path(),
            query,
            headers: &exchange.headers,
            request_id,
            client: exchange.client,
            error_shape: shape,
            body: &body,
            idempotency: idempotency.as_ref(),
        };
        operation::run(&context).await
    }

    /// The version that a caller is answered in, if they may ask for this.
    fn admit(
        &self,
        exchange: &Exchange,
        identity: &Identity,
        target: &Target,
        sent: &[u8],
        trace: &mut Trace,
    ) -> Result<&Arc<View>, Problem> {
        let pin = identity.account.pin;
        let chosen = self.versions.choose(&exchange.headers, pin, Some(target.mount));
        trace.version = chosen.as_ref().ok().map(|view| view.index);
        check_scope(identity, &self.schema.collections[target.collection], &exchange.method)?;
        let view = chosen?;
        identity.account.usage.count(view.index, trace.now);
        if !view.serves(target.collection) {
            return Err(self.versions.missing(view, target.collection));
        }
        // What an action is sent are its own parameters.
        let sent = if target.action.is_none() { sent } else { &[] };
        let query = exchange.uri.query().unwrap_or_default();
        self.tell_of(&self.notices.used(view.index, target.collection, sent, query), trace);
        Ok(view)
    }

    /// Counts what a request uses of what shall go; its answer will tell of it.
    pub(crate) fn tell_of(&self, used: &[&Part], trace: &mut Trace) {
        if used.is_empty() {
            return;
        }
        if let Some(identity) = &trace.identity {
            used.iter().for_each(|part| identity.account.usage.count(part.place, trace.now));
        }
        trace.headers = self.notices.headers(trace.version.unwrap_or(0), used);
    }

    /// The version of a request to what all versions share.
    pub(crate) fn choose_version(
        &self,
        exchange: &Exchange,
        identity: &Identity,
        trace: &mut Trace,
    ) -> Result<(), Problem> {
        let pin = identity.account.pin;
        let view = self.versions.choose(&exchange.headers, pin, trace.mount)?;
        trace.version = Some(view.index);
        Ok(())
    }

    pub(crate) async fn identify(
        &self,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        let identity = self.caller(exchange, trace).await?;
        // From here on it may wait: for its body, the store, a handler.
        trace.place = Some(self.in_flight.request(identity.caller.scope)?);
        Ok(identity)
    }

    /// The same without a place among the requests of its account.
    async fn caller(
        &self,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        let identity = match self.auth.look(&exchange.headers, trace.now) {
            Found::Caller(identity) => identity,
            Found::Nobody(problem) => {
                self.take_for_address(exchange, trace)?;
                return Err(problem.into());
            }
            Found::Unseen(unseen) => self.ask(unseen, exchange, trace).await?,
        };
        trace.identity = Some(identity.clone());
        Ok(identity)
    }

    /// Asks the store for a key. Guesses are paid for before, by the address they come from, so
    /// that they cost the store nothing when the address has none left; a key that is valid costs
    /// its address nothing.
    async fn ask(
        &self,
        unseen: Unseen,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        let is_paid = !unseen.was_valid;
        if is_paid {
            self.take_for_address(exchange, trace)?;
        }
        match self.auth.ask(unseen, trace.now).await? {
            Ok(identity) => {
                if is_paid {
                    self.limiter.give_back(&self.address_bucket(exchange), trace.moment());
                    trace.quota = None;
                }
                Ok(identity)
            }
            Err(problem) => {
                if !is_paid {
                    self.take_for_address(exchange, trace)?;
                }
                Err(problem.into())
            }
        }
    }

    fn idempotency(
        &self,
        exchange: &Exchange,
        collection: &Collection,
        body: &[u8],
        view: &View,
    ) -> Result<Option<Idempotency>, Problem> {
        let Some(key) = idempotency::key(&exchange.method, &exchange.headers)? else {
            let demanded = collection.require_idempotency_key && exchange.method == Method::POST;
            return if demanded { Err(idempotency::demanded()) } else { Ok(None) };
        };
        let parts = [
            exchange.method.as_str().as_bytes(),
            exchange.uri.path().as_bytes(),
            exchange.uri.query().unwrap_or_default().as_bytes(),
            body,
            view.date.as_bytes(),
        ];
        Ok(Some(idempotency::fingerprint(key, &parts)))
    }

    /// An answer given before, if this is a repetition. Looked up before the limiter: a client that
    /// lost an answer must be able to learn it, and it costs no quota.
    async fn replay(
        &self,
        key: &Idempotency,
        identity: &Identity,
        target: &Target,
        view: &View,
        shape: Shape,
        trace: &mut Trace,
    ) -> Result<Option<Reply>, Failure> {
        let Some(before) = self.store.remembered(identity.caller.scope, &key.key).await? else {
            return Ok(None);
        };
        let own = identity.caller.rate_limit;
        trace.quota = self.limiter.peek(&identity.bucket, own, trace.moment());
        if before.fingerprint != key.fingerprint {
            return Err(idempotency::reused().into());
        }
        // What came of a ping is not kept with its key: the operation looks it up again.
        let actions = &self.schema.collections[target.collection].actions;
        let action = target.action.and_then(|place| actions.get(place));
        if action.is_some_and(|action| action.native == Some(Native::Ping)) {
            return Ok(None);
        }
        let tag = operation::plain_view(&view.schema, &*self.store, target.collection);
        let collection = &self.schema.collections[target.collection];
        let response = self.versions.response(collection, view, before.response);
        let mut reply = respond::written(view, target, response, tag, shape, &before.request);
        // Not even a field that was added since: it is the answer that was given.
        if let Some((date, text)) = before.as_written
            && collection.builtin.is_none()
            && self.versions.shows_as_written(target.collection, &date, view)
        {
            reply.body = text.into();
        }
        Ok(Some(respond::replayed(reply)))
    }

    /// Takes one request from the caller's quota.
    pub(crate) fn take(&self, identity: &Identity, trace: &mut Trace) -> Result<(), Problem> {
        let own = identity.caller.rate_limit;
        let taken = self.limiter.take(&identity.bucket, own, trace.moment());
        settle(taken, trace)
    }

    /// Requests without a valid key count for the address they come from.
    pub(crate) fn take_for_address(
        &self,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<(), Problem> {
        settle(self.limiter.take(&self.address_bucket(exchange), None, trace.moment()), trace)
    }

    /// One quota for an address, or for the network (/64) of an address of IPv6.
    fn address_bucket(&self, exchange: &Exchange) -> Arc<Bucket> {
        self.limiter.bucket(&wire::household(exchange.client).to_string())
    }

    /// The headers that every answer carries.
    fn complete(&self, headers: &mut HeaderMap, request_id: &str, trace: &mut Trace) {
        const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
        const VERSION: HeaderName = HeaderName::from_static(version::HEADER);
        if let Ok(mut value) = HeaderValue::from_str(request_id) {
            respond::unrepeated(&mut value);
            headers.insert(REQUEST_ID, value);
        }
        if let Some(page) = trace.page.take() {
            channel::share(headers, page);
        }
        if trace.varies_by_origin {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
        let version = trace.version.unwrap_or(0);
        headers.insert(VERSION, self.versions.name(version));
        if let Some(quota) = &trace.quota {
            quota.write(headers);
        }
        if trace.headers.is_empty() {
            // Refused before it was looked at: it was about a collection all the same.
            let about = match trace.route {
                Some(RouteKey::Resource { collection, .. }) => Some(collection),
                Some(RouteKey::Channel(Channel::Poll(feed))) => Some(feed),
                _ => None,
            };
            let used = about.map(|collection| self.notices.about(version, collection));
            trace.headers = self.notices.headers(version, &used.unwrap_or_default());
        }
        for (name, value) in trace.headers.drain(..) {
            headers.append(name, value);
        }
    }
}

impl wire::Service for Api {
    fn call(&self, exchange: Exchange) -> wire::Answer<'_> {
        Box::pin(self.0.serve(exchange))
    }

    fn refuse(&self, fault: Fault) -> Response {
        let core = &self.0;
        if fault == Fault::OverloadedStream {
            return channel::come_again(core);
        }
        let request_id = core.request_id();
        let code = match fault {
            Fault::Malformed(_) => Code::MalformedRequest,
            Fault::UnknownCoding => Code::NotImplemented,
            Fault::UnknownVersion => Code::HttpVersionNotSupported,
            Fault::HeadTimeout => Code::RequestTimeout,
            Fault::UrlTooLong => Code::UrlTooLong,
            Fault::HeadTooLarge => Code::HeadersTooLarge,
            Fault::Tunnel => Code::MethodNotAllowed,
            Fault::Overloaded | Fault::OverloadedStream => Code::Overloaded,
            Fault::Internal => Code::Internal,
        };
        let mut problem = Problem::new(code, fault.message());
        if code == Code::Overloaded {
            problem.retry_after = Some(1);
        }
        let reply = respond::problem(&problem, core.usual_shape, &request_id);
        let Reply { status, mut headers, body } = reply;
        core.complete(
            &mut headers,
            &request_id,
            &mut Trace::new(core.outside.now(), core.outside.uptime()),
        );
        Response { status, headers, body: body.into(), ..Response::default() }
    }
}

/// Whether a read may be answered: its conditions are about the answer (RFC 9110 13.2.2).
fn check_read(exchange: &Exchange, reply: Reply) -> Result<Reply, Failure> {
    let is_read = matches!(exchange.method, Method::GET | Method::HEAD);
    let is_shown = reply.status.is_success() || reply.status == StatusCode::NOT_MODIFIED;
    if is_read && is_shown && condition::is_conditional(&exchange.headers) {
        condition::of_answer(&exchange.headers, &reply.headers)?;
    }
    Ok(reply)
}

/// Tells the client what it will need, before the answer is worked out.
async fn hint(exchange: &Exchange, links: &[String]) {
    if links.is_empty() || !exchange.hints.wanted() {
        return;
    }
    exchange.hints.links(links.iter().filter_map(|link| HeaderValue::from_str(link).ok()));
    // They leave when this waits: reading may not, and then they would be no earlier than it.
    tokio::task::yield_now().await;
}

/// RFC 9110 9.1: a method that is known may not be allowed somewhere; others are not implemented.
fn is_known(method: &Method) -> bool {
    const KNOWN: [Method; 8] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PATCH,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
    ];
    // The `http` crate has no name for the newest one.
    KNOWN.contains(method) || method.as_str() == "QUERY"
}

/// What a path offers, to those who ask for that or for something else.
fn offer(collection: &Collection, target: &Target, method: &Method) -> Result<Reply, Failure> {
    let methods = route::methods(collection, target);
    match route::offers(collection, target, method) {
        true => Ok(respond::options(&methods)),
        false => Err(respond::not_allowed(method, &methods).into()),
    }
}

fn check_scope(
    identity: &Identity,
    collection: &Collection,
    method: &Method,
) -> Result<(), Problem> {
    let access = operation::access(method);
    if identity.caller.may(&collection.name, access) {
        return Ok(());
    }
    let needed = match access {
        model::caller::Access::Read => "read",
        model::caller::Access::Write => "write",
    };
    let message = format!("This key lacks the scope `{}:{needed}`.", collection.name);
    Err(Problem::new(Code::PermissionDenied, message))
}

pub(crate) fn settle(taken: Option<(Quota, bool)>, trace: &mut Trace) -> Result<(), Problem> {
    let Some((quota, granted)) = taken else { return Ok(()) };
    trace.quota = Some(quota);
    if granted { Ok(()) } else { Err(quota.problem()) }
}

/// The same where no headers tell of the quota.
pub(crate) fn settle_alone(taken: Option<(Quota, bool)>) -> Result<(), Problem> {
    match taken {
        Some((quota, false)) => Err(quota.problem()),
        _ => Ok(()),
    }
}

/// What a client is told when the store fails. The cause is logged here, once.
pub(crate) fn explain(failure: Failure, request_id: &str) -> Problem {
    let error = match failure {
        Failure::Problem(problem) => {
            if let Some(cause) = &problem.cause {
                let code = problem.code.name();
                tracing::error!(
                    request_id,
                    code,
                    cause,
                    "the schema or a handler could not serve a request"
                );
            }
            return problem;
        }
        Failure::Store(error) => error,
    };
    static REPEATS: store::Repeats = store::Repeats::new();
    if let Some(times) = REPEATS.note(&error.to_string()) {
        tracing::warn!(request_id, %error, times, "the store could not serve a request");
    }
    match error {
        store::Error::Full => {
            let message = "The disk is full; nothing was written. Reads go on.";
            Problem::new(Code::StorageFull, message).retry_after(10)
        }
        store::Error::Busy => {
            let message = "Too many requests are waiting for the store. Try again shortly.";
            Problem::new(Code::Overloaded, message).retry_after(1)
        }
        store::Error::Timeout => {
            let message = "The query took too long. Filter or sort by indexed fields.";
            Problem::new(Code::QueryTimeout, message).retry_after(10)
        }
        store::Error::Unknown(_) => {
            let message = "The disk failed while the write was made durable: it may or may not be \
                           kept. Retry with the same Idempotency-Key, or read the record.";
            Problem::new(Code::OutcomeUnknown, message)
        }
        _ => Problem::new(Code::StorageFailed, "The store failed; nothing was written."),
    }
}
