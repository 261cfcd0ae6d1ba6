//! The steps of a request, in order: route, caller, quota, body, version and scope, repetition,
//! formats, operation. `finish` turns the outcome into a response.

use crate::auth::Identity;
use crate::error::Failure;
use crate::finish::{self, Outcome, check_read};
use crate::metrics::RouteKey;
use crate::operation::{self, Operation};
use crate::page::{Figures, Pages, Viewer, metrics_reply};
use crate::request::RequestInfo;
use crate::respond::{self, Reply};
use crate::route::{self, Channel, Own, Route, Router, Target};
use crate::services::{DeliveryFiguresOf, Given, Services};
use crate::site::{self, Site};
use crate::trace::{Dependencies, Request, Trace};
use crate::{AccessLog, Actions, Outside, Settings};
use crate::{
    account, admin, channel, confirmed_body, cors, edge, idempotency, negotiate, recent, replay,
    scope, sign_in,
};
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION};
use http::{HeaderValue, Method, StatusCode};
use live::Hub;
use model::problem::{Code, Problem};
use model::schema::{Collection, Schema};
use model::version::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::Store;
use store::cluster::Cluster;
use wire::{Exchange, Fault, Response};

/// The parts that the binary assembles the API from.
pub struct Parts {
    pub schema: Arc<Schema>,
    pub store: Arc<dyn Store>,
    pub outside: Arc<dyn Outside>,
    pub settings: Settings,
    /// Adds the metrics of the other parts of the server.
    pub figures: Figures,
    /// The deliveries of one account and mode.
    pub delivery_figures: DeliveryFiguresOf,
    /// The hub of the open connections.
    pub hub: Arc<Hub>,
    /// The thread for actions with a handler.
    pub actions: Arc<Actions>,
    /// The other nodes.
    pub cluster: Arc<dyn Cluster>,
    /// The pages for people, if there are any.
    pub site: Option<Arc<dyn Site>>,
}

/// The service that `wire` calls.
pub struct Api {
    services: Arc<Services>,
    router: Router,
    pages: Pages,
    site: Option<Arc<dyn Site>>,
    draining: AtomicBool,
}

impl Api {
    pub fn new(parts: Parts) -> Result<Api, prometheus::Error> {
        let Parts { schema, store, outside, settings, figures, hub, actions, site, .. } = parts;
        let (delivery_figures, cluster) = (parts.delivery_figures, parts.cluster);
        let given =
            Given { schema, store, outside, settings, delivery_figures, hub, actions, cluster };
        let services = Arc::new(Services::new(given)?);
        let Services { schema, store, outside, versions, .. } = &*services;
        Ok(Api {
            router: Router::new(schema.clone(), versions),
            pages: Pages::new(versions.clone(), store.clone(), outside.clone(), figures),
            site,
            draining: AtomicBool::new(false),
            services,
        })
    }

    /// The access log, for the binary to write out.
    pub fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.services.telemetry.log.clone()
    }

    /// Saves the counts of version usage every few seconds, until it is dropped.
    pub fn save_usage_regularly(&self) -> impl Future<Output = ()> + use<> {
        self.services.usages.clone().run(self.services.store.clone())
    }

    /// Saves the counts of version usage once more, at shutdown.
    pub async fn save_usage(&self) {
        self.services.usages.save(&*self.services.store).await;
    }

    /// The metrics with the names of all accounts, for the operator's own address.
    pub fn operator_metrics(&self) -> Response {
        let Services { telemetry, usages, .. } = &*self.services;
        let text = self.pages.metrics((&telemetry.metrics, usages), &Viewer::Operator);
        let Reply { status, headers, body, .. } = metrics_reply(text);
        let holder = wire::Holder::Operator;
        Response { status, headers, body: body.into(), holder, ..Response::default() }
    }

    /// Makes a token for one login to the console valid, for a few minutes.
    pub fn offer_login(&self) -> String {
        let Services { outside, login, .. } = &*self.services;
        login.begin(&outside.entropy().0[..24], outside.uptime())
    }

    /// From now on `/health` reports that this instance stops.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        if let Some(edge) = &self.services.edge {
            edge.drain();
        }
    }

    async fn serve(&self, mut exchange: Exchange) -> Response {
        let services = &self.services;
        let shape = negotiate::error_shape(&exchange.headers, services.error_shape());
        let mut request = Request::begin(&services.telemetry, &exchange, shape);
        if let Some(edge) = &services.edge {
            request.trace.is_followed = edge.is_follower(&exchange.headers);
        }
        let outcome = self.outcome(&mut exchange, &mut request).await;
        let trace = &mut request.trace;
        if trace.version.is_none() {
            let asked = trace.asked_version(&services.versions, &exchange);
            trace.version = asked.or(Some(*services.versions.range(trace.mount).start()));
        }
        finish::finish(services, outcome, request)
    }

    async fn outcome(
        &self,
        exchange: &mut Exchange,
        request: &mut Request,
    ) -> Result<Outcome, Failure> {
        if let Some(edge) = &self.services.edge
            && exchange.uri.path() == edge::PATH
        {
            let Services { schema, store, admission, .. } = &*self.services;
            let trace = &mut request.trace;
            return edge::changes(edge, (schema, store), admission, exchange, trace)
                .map(Outcome::Open);
        }
        match self.route(exchange, &mut request.trace)? {
            Routed::Done(reply) => Ok(reply.into()),
            Routed::To(Route::Resource(target)) => {
                let reply = resource(&self.services, exchange, target, request).await?;
                Ok(reply.into())
            }
            Routed::To(Route::Channel(channel)) => {
                let (id, trace) = (&request.id, &mut request.trace);
                let opened = channel::serve(&self.services, exchange, channel, id, trace);
                match Box::pin(opened).await? {
                    Outcome::Reply(reply) => {
                        Ok(check_read(&exchange.method, &exchange.headers, reply)?.into())
                    }
                    open => Ok(open),
                }
            }
            Routed::To(Route::Own(own @ (Own::Account | Own::VersionUsage), _)) => {
                let (id, trace) = (&request.id, &mut request.trace);
                let reply = account::serve(&self.services, exchange, own, id, trace);
                let reply = Box::pin(reply).await?;
                Ok(check_read(&exchange.method, &exchange.headers, reply)?.into())
            }
            Routed::To(Route::Own(own @ (Own::Requests | Own::OneRequest | Own::Stats), id)) => {
                let reply = recent::serve(&self.services, exchange, (own, id), request);
                let reply = Box::pin(reply).await?;
                Ok(check_read(&exchange.method, &exchange.headers, reply)?.into())
            }
            Routed::To(Route::Own(own, id)) => {
                let reply = admin::serve(&self.services, exchange, (own, id), request);
                let reply = Box::pin(reply).await?;
                Ok(check_read(&exchange.method, &exchange.headers, reply)?.into())
            }
            Routed::To(Route::Login) => {
                let reply = sign_in::serve(&self.services, exchange, &mut request.trace);
                Ok(Box::pin(reply).await?.into())
            }
            Routed::To(page) => {
                let reply = Box::pin(self.page(&page, exchange, &mut request.trace)).await?;
                Ok(check_read(&exchange.method, &exchange.headers, reply)?.into())
            }
        }
    }

    /// Finds the route of the path. A request without a route is charged to the client's address.
    fn route(&self, exchange: &Exchange, trace: &mut Trace) -> Result<Routed, Failure> {
        let admission = &self.services.admission;
        if !is_known(&exchange.method) {
            admission.take_for_address(exchange, trace)?;
            let shown: String = exchange.method.as_str().chars().take(40).collect();
            let message = format!("The method `{shown}` is not supported.");
            return Err(Problem::new(Code::NotImplemented, message).into());
        }
        let path = exchange.uri.path();
        if path == "*" {
            let reply = Reply::empty(StatusCode::NO_CONTENT);
            return Ok(Routed::Done(reply.header(ALLOW, "GET, HEAD, OPTIONS")));
        }
        let mut found = self.router.find(path);
        if matches!(found, Ok(Route::Login)) && !self.services.login.is_offered() {
            found = Err(self.router.unknown(path));
        }
        trace.mount = match &found {
            Ok(Route::Resource(target)) => Some(target.mount),
            Ok(Route::Own(..) | Route::Channel(Channel::Tokens | Channel::Presence)) | Err(_) => {
                self.router.mount(path)
            }
            Ok(_) => None,
        };
        self.share(exchange, trace);
        if trace.page.is_some() && cors::is_preflight(exchange) {
            admission.take_for_address(exchange, trace)?;
            return Ok(Routed::Done(cors::preflight_of_resources()));
        }
        match found {
            Ok(route) => {
                trace.route = Some(RouteKey::of(&route));
                Ok(Routed::To(route))
            }
            Err(problem) => {
                let page = self.site.as_ref().and_then(|site| site::reply(&**site, exchange));
                if let Some(reply) = page {
                    trace.route = Some(RouteKey::Page);
                    return reply.map(Routed::Done);
                }
                admission.take_for_address(exchange, trace)?;
                Err(problem.into())
            }
        }
    }

    /// Lets pages of other origins read responses below the mounts, if the schema lists them. The
    /// live channels do it themselves: they also take the origins of `[live]`.
    fn share(&self, exchange: &Exchange, trace: &mut Trace) {
        let origins = &self.services.schema.service.origins;
        if !origins.is_empty() && trace.mount.is_some() {
            trace.page = cors::allowed(origins, &exchange.headers);
            trace.varies_by_origin = true;
        }
    }

    async fn page(
        &self,
        page: &Route,
        exchange: &mut Exchange,
        trace: &mut Trace,
    ) -> Result<Reply, Failure> {
        let services = &self.services;
        trace.is_for_operators = matches!(page, Route::Health | Route::Metrics);
        // Browsers get the catalogue of errors as a page.
        let site = self.site.as_ref().filter(|_| *page == Route::Errors);
        if let Some(reply) = site.and_then(|site| site::reply(&**site, exchange)) {
            return reply;
        }
        let query = exchange.uri.query().unwrap_or_default();
        trace.version = self.pages.version_of(page, query);
        send_hints(exchange, &services.schema.service.early_hints).await;
        let viewer = match page {
            Route::Metrics => viewer(services, exchange, trace).await?,
            _ => Viewer::Anybody,
        };
        let figures = (&services.telemetry.metrics, &*services.usages);
        let draining = self.draining.load(Ordering::Relaxed);
        self.pages.show(page, exchange, figures, &viewer, draining).await
    }
}

/// What routing found.
enum Routed {
    To(Route),
    Done(Reply),
}

/// A request to a resource: caller, quota, body, version and scope, repetition, formats, operation.
async fn resource(
    services: &Arc<Services>,
    exchange: &mut Exchange,
    target: Target,
    request: &mut Request,
) -> Result<Reply, Failure> {
    let Request { id, shape, trace, .. } = request;
    let collection = &services.schema.collections[target.collection];
    let offered = route::offers(collection, &target, &exchange.method);
    if !offered || exchange.method == Method::OPTIONS {
        return offer(services, exchange, &target, trace);
    }
    let mut identity = services.admission.identify(exchange, trace).await?;
    let writes = operation::access(&exchange.method) == model::caller::Access::Write;
    // Before the body is read: a request without quota costs no more than its head.
    let may_repeat = matches!(idempotency::key(&exchange.method, &exchange.headers), Ok(Some(_)));
    let quota = services.admission.admit(&identity, may_repeat, trace).await?;
    let body = match writes {
        true => Box::pin(confirmed_body::read(services, exchange, &mut identity, trace)).await?,
        false => Ok(Bytes::new()),
    };
    // A key learns nothing about a request that it may not make, not even whether it was made
    // before.
    let sent = body.as_deref().unwrap_or_default();
    let admitted = check_version_and_scope(services, exchange, &identity, &target, sent, trace);
    let key = match (&body, &admitted) {
        (Ok(body), Ok(view)) => replay::key(exchange, collection, body, view),
        _ => Ok(None),
    };
    if let (Ok(Some(key)), Ok(view)) = (&key, &admitted) {
        let found = replay::find(services, key, &identity, &target, view, *shape);
        let found = Box::pin(found).await;
        if let Some(reply) = services.admission.settle(found, &quota, &identity, trace)? {
            return Ok(reply);
        }
    }
    quota.check()?;
    let version = admitted?.clone();
    let (body, idempotency) = (body?, key?);
    if identity.account.pin.is_none() {
        Box::pin(account::pin(services, &identity, trace.now)).await;
    }
    negotiate::check_accept(&exchange.headers)?;
    if !body.is_empty() && exchange.method != Method::DELETE {
        negotiate::check_content_type(&exchange.method, &exchange.headers)?;
    }
    if !writes {
        send_hints(exchange, &collection.early_hints).await;
    }
    let info = RequestInfo {
        id: id.clone(),
        method: exchange.method.clone(),
        uri: exchange.uri.clone(),
        headers: std::mem::take(&mut exchange.headers),
        body,
        client: exchange.is_client_known.then_some(exchange.client),
        target,
        identity,
        version,
        error_shape: *shape,
        idempotency,
    };
    let reply = operation::run(Operation { services, request: &info }).await?;
    if trace.is_followed {
        let parts = edge::dependencies(&services.schema, &info);
        trace.dependencies = parts.map(|parts| Box::new(Dependencies(parts)));
    }
    check_read(&info.method, &info.headers, reply)
}

/// Chooses the version of the request and checks that the caller may make it.
fn check_version_and_scope<'a>(
    services: &'a Services,
    exchange: &Exchange,
    identity: &Identity,
    target: &Target,
    sent: &[u8],
    trace: &mut Trace,
) -> Result<&'a Arc<View>, Problem> {
    let versions = &services.versions;
    let chosen = versions.choose(&exchange.headers, identity.account.pin, Some(target.mount));
    trace.version = chosen.as_ref().ok().map(|view| view.index);
    let collection = &services.schema.collections[target.collection];
    scope::check(&identity.caller, &collection.name, operation::access(&exchange.method))?;
    let view = chosen?;
    identity.account.usage.count(view.index, trace.now);
    if !view.serves(target.collection) {
        return Err(versions.missing(view, target.collection));
    }
    // The body of an action has parameters, not fields.
    let sent = if target.action.is_none() { sent } else { &[] };
    let query = exchange.uri.query().unwrap_or_default();
    let used = services.deprecations.used(view.index, target.collection, sent, query);
    trace.note_deprecated(&services.deprecations, &used);
    Ok(view)
}

/// The methods of a path, for OPTIONS and for methods that the path does not have.
fn offer(
    services: &Services,
    exchange: &Exchange,
    target: &Target,
    trace: &mut Trace,
) -> Result<Reply, Failure> {
    services.admission.take_for_address(exchange, trace)?;
    let asked = trace.asked_version(&services.versions, exchange);
    services.versions.check_served(asked, trace.mount, target.collection)?;
    let collection: &Collection = &services.schema.collections[target.collection];
    let methods = route::methods(collection, target);
    match route::offers(collection, target, &exchange.method) {
        true => Ok(respond::options(&methods)),
        false => Err(respond::not_allowed(&exchange.method, &methods).into()),
    }
}

/// Who asks for the metrics. No key is needed; a key that is sent must be valid.
async fn viewer(
    services: &Services,
    exchange: &Exchange,
    trace: &mut Trace,
) -> Result<Viewer, Failure> {
    if !exchange.headers.contains_key(AUTHORIZATION) {
        return Ok(Viewer::Anybody);
    }
    // It takes no slot: an account that uses all its slots can still read the metrics.
    let identity = Box::pin(services.admission.caller(exchange, trace)).await?;
    Ok(Viewer::Account(identity.caller.account.clone()))
}

/// Sends the links that the client will need before the response is ready.
async fn send_hints(exchange: &Exchange, links: &[String]) {
    if links.is_empty() || !exchange.hints.wanted() {
        return;
    }
    exchange.hints.links(links.iter().filter_map(|link| HeaderValue::from_str(link).ok()));
    // The hints are sent when this task yields. The read may not wait at all, and then they would
    // not be early.
    tokio::task::yield_now().await;
}

/// RFC 9110 9.1: a known method may be refused on a path (405); an unknown one is not supported.
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
    // The `http` crate has no constant for the newest method.
    KNOWN.contains(method) || method.as_str() == "QUERY"
}

impl wire::Service for Api {
    fn call(&self, exchange: Exchange) -> wire::Answer<'_> {
        Box::pin(self.serve(exchange))
    }

    fn refuse(&self, fault: Fault) -> Response {
        let services = &self.services;
        if fault == Fault::OverloadedStream {
            return channel::retry_later(services);
        }
        let request_id = services.telemetry.request_id();
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
        let reply = respond::problem(&problem, services.error_shape(), &request_id);
        let Reply { status, mut headers, body, .. } = reply;
        let mut trace = services.telemetry.trace();
        finish::complete(services, &mut headers, &request_id, &mut trace);
        Response { status, headers, body: body.into(), ..Response::default() }
    }
}
