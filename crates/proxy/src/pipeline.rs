//! The steps of a request, and the tables that a reload replaces.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::{
    AUTHORIZATION, HOST, HeaderName, LOCATION, ORIGIN, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use parking_lot::RwLock;
use wire::outgoing::{Client, OutgoingLimits};
use wire::{Answer, Body, Exchange, Fault, Payload, Response, Service};

use crate::balance::{Backend, Pool};
use crate::cache::{self, Cache};
use crate::checks;
use crate::compress::{self, Coding, Compressing};
use crate::config::{Action, Config, Route};
use crate::cors;
use crate::error::Failure;
use crate::fanout::Fanout;
use crate::feeds;
use crate::files;
use crate::follow::Follow;
use crate::forward::Forward;
use crate::forward::headers::{self, Sender};
use crate::last_hop;
use crate::metrics::quoted;
use crate::record::{Outside, Record};
use crate::route::{self, Routes, ServedRoute, ServedSite};

const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// For how long the addresses of a server's name are remembered. 10 s: a server that moves is found
/// soon, and a lookup costs nothing per request.
const LOOKUP_TTL: Duration = Duration::from_secs(10);

/// Idle connections to one server, of each worker thread. 256: a burst of requests leaves them, and
/// the next burst needs no new ones.
const IDLE_PER_SERVER: usize = 256;
/// Idle connections in all. 4,096: at some 10 KiB each, 40 MiB.
const IDLE_TOTAL: usize = 4_096;

/// The body of a GET or HEAD on HTTP/2 and HTTP/3 whose length is not declared. 64 KiB: nearly all
/// of them are empty, and those that are not are queries.
const MAX_UNDECLARED_BYTES: usize = 64 * 1024;

/// Settings that a reload does not change.
pub struct Settings {
    pub outside: Arc<dyn Outside>,
    /// What opens the feeds of restive servers; without it none is read.
    pub edge_secret: Option<HeaderValue>,
    /// The service that routes to `self` lead to.
    pub local: Option<Arc<dyn Service>>,
}

/// The service of the proxy.
pub struct Proxy {
    table: RwLock<Arc<Table>>,
    client: Client,
    cache: Cache,
    fanout: Fanout,
    follow: Follow,
    settings: Settings,
    /// The name of this instance in `Via` and in request ids.
    name: String,
    requests: AtomicU64,
    compressing: Compressing,
}

/// What a configuration becomes.
struct Table {
    routes: Routes,
    pools: Vec<Arc<Pool>>,
}

impl Proxy {
    pub fn new(config: Config, settings: Settings) -> Proxy {
        let name = format!("restive-{:08x}", settings.outside.random() as u32);
        let cache = Cache::new(config.cache_bytes);
        let table = RwLock::new(Arc::new(Table::new(config, None)));
        let limits = OutgoingLimits {
            lookup_ttl: LOOKUP_TTL,
            idle_per_target: IDLE_PER_SERVER,
            idle_total: IDLE_TOTAL,
            ..OutgoingLimits::default()
        };
        Proxy {
            table,
            client: Client::with_limits(limits),
            cache,
            fanout: Fanout::default(),
            follow: Follow::new(settings.edge_secret.clone()),
            settings,
            name,
            requests: AtomicU64::new(0),
            compressing: Compressing::default(),
        }
    }

    /// Replaces the configuration. Requests in progress end with the old one; servers that are in
    /// both keep their state.
    pub fn reload(&self, config: Config) {
        self.cache.resize(config.cache_bytes);
        let mut table = self.table.write();
        *table = Arc::new(Table::new(config, Some(&table)));
    }

    /// Checks the health of the servers and reads their feeds until it is dropped. A reload needs
    /// a new one.
    pub fn checks(&self) -> impl Future<Output = ()> + Send + use<> {
        let pools = self.table.read().pools.clone();
        let feeds = feeds::run(self.follow.secret(), pools.clone());
        async move {
            tokio::join!(checks::run(pools), feeds);
        }
    }

    /// The metrics in the Prometheus text format.
    pub fn metrics(&self, out: &mut String) {
        self.table.read().render(out);
        self.cache.render(out);
        self.fanout.render(out);
        self.follow.render(out);
    }

    async fn answer(&self, exchange: &mut Exchange) -> Response {
        let id = self.request_id();
        let record = Record::begin(&*self.settings.outside, &id, exchange);
        let is_secure = exchange.is_secure;
        let asked = Asked::of(exchange);
        let table = self.table.read().clone();
        let mut seen = Seen::default();
        let outcome = self.steps(&table, exchange, &id, &mut seen).await;
        let (mut response, error, backend) = match outcome {
            Ok(Answered { response, backend }) => (response, None, backend),
            Err(failure) => (failure.response(&id), Some(failure.code), None),
        };
        let completion = Completion {
            route: seen.route.map(|served| &served.route),
            asked: &asked,
            compressing: &self.compressing,
            secures: seen.site.is_none_or(|site| site.security_headers).then_some(is_secure),
        };
        let is_later = matches!(response.body, Payload::Later(_));
        if !is_later {
            completion.apply(&mut response, &id);
        }
        if let Some(served) = seen.route {
            served.state.metrics.count(response.status, record.duration_us());
        }
        let backend = backend.as_ref().map(|backend| backend.server.url.as_str());
        record.finish(&response, error, backend);
        match response.body {
            Payload::Later(answer) => completion.later(answer, id),
            _ => response,
        }
    }

    /// The order in which a request can fail.
    async fn steps<'t>(
        &self,
        table: &'t Table,
        exchange: &mut Exchange,
        id: &str,
        seen: &mut Seen<'t>,
    ) -> Result<Answered, Failure> {
        if exchange.is_misdirected {
            return Err(misdirected());
        }
        headers::check(&exchange.headers, &self.name)?;
        let Exchange { method, uri, headers: fields, .. } = exchange;
        if let Some(response) = last_hop::answer(method, uri, fields, id)? {
            return Ok(response.into());
        }
        let normal = route::normal(exchange.uri.path()).map_err(|_| bad_path())?;
        let path = normal.as_deref().unwrap_or(exchange.uri.path());
        let host = exchange.headers.get(HOST).and_then(|host| host.to_str().ok());
        let site = table.routes.site(host.unwrap_or_default()).ok_or_else(unknown_host)?;
        seen.site = Some(site);
        let served = site.route(path).map_err(|_| bad_path())?.ok_or_else(no_route)?;
        seen.route = Some(served);
        let route = &served.route;
        if let Some(cors) = &route.cors
            && let Some(outcome) = cors::preflight(cors, &exchange.method, &exchange.headers)
        {
            return outcome.map(Answered::from);
        }
        check_limits(served, exchange)?;
        match &route.action {
            Action::Redirect { to, status } => Ok(redirect(to, *status, path, exchange).into()),
            Action::Files { folder } => {
                let (method, headers) = (&exchange.method, &exchange.headers);
                let query = exchange.uri.query();
                let place = files::Place { path, below: route.path.rest(path), query };
                // Boxed: other requests need no room for it.
                let file = Box::pin(files::respond(folder, method, place, headers));
                let mut response = file.await?;
                headers::apply(&route.response_headers, &mut response.headers);
                Ok(response.into())
            }
            Action::Forward { group, strip_prefix } => {
                let (method, version) = (&exchange.method, exchange.version);
                settle_body(method, version, &mut exchange.body).await?;
                let forwarded = match normal.is_some() || strip_prefix.is_some() {
                    true => {
                        let prefix = strip_prefix.as_deref();
                        let path = route::forwarded(path, exchange.uri.query(), prefix);
                        Some(path.map_err(|_| bad_path())?)
                    }
                    false => None,
                };
                let pool = &table.pools[*group];
                self.forward(pool, (site, served), forwarded, exchange, id).await
            }
        }
    }

    /// Repeats the refusal of a key that its server would repeat.
    fn check_refusals(&self, forward: &Forward<'_>, exchange: &Exchange) -> Result<(), Failure> {
        let (Some(backend), true) = (forward.pool.only(), self.follow.is_on()) else {
            return Ok(());
        };
        // The server sees another credential than the client has sent.
        if forward.route.request_headers.names().any(|name| *name == AUTHORIZATION) {
            return Ok(());
        }
        let path = forward.path.as_ref().map_or(exchange.uri.path(), |path| path.path());
        let asked = (&exchange.method, path, &exchange.headers);
        match self.follow.refusal(&backend.link, asked, Instant::now()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Forwards a request, or answers it from the cache. `path`: for the backend, if it differs.
    async fn forward(
        &self,
        pool: &Arc<Pool>,
        place: (&ServedSite, &ServedRoute),
        path: Option<PathAndQuery>,
        exchange: &mut Exchange,
        id: &str,
    ) -> Result<Answered, Failure> {
        let peer = exchange.peer.ip();
        let certificate = exchange.client_certificate.clone();
        // The port of a client behind another proxy is not known.
        let is_direct = exchange.client == peer.to_canonical();
        let port = if is_direct { exchange.peer.port() } else { 0 };
        let from = SocketAddr::new(exchange.client, port);
        let mut forward = Forward {
            client: &self.client,
            local: self.settings.local.as_ref(),
            fanout: Some(&self.fanout),
            follow: &self.follow,
            pool,
            route: &place.1.route,
            addresses: (from, exchange.local),
            sender: Sender {
                peer,
                client: exchange.client,
                is_trusted: exchange.is_proxied,
                is_client_known: exchange.is_client_known,
                is_secure: exchange.is_secure,
                version: exchange.version,
                name: &self.name,
                request_id: id,
                certificate: certificate.as_deref(),
            },
            path,
            links: None,
        };
        self.check_refusals(&forward, exchange)?;
        let (response, backend) = self.cache.forward(&mut forward, place, exchange).await?;
        Ok(Answered { response, backend })
    }

    fn request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("req_{}_{number}", self.name.trim_start_matches("restive-"))
    }
}

/// What of a request decides about the form of its response.
#[derive(Clone)]
struct Asked {
    origin: Option<HeaderValue>,
    coding: Option<Coding>,
    is_head: bool,
}

impl Asked {
    fn of(exchange: &Exchange) -> Asked {
        Asked {
            origin: exchange.headers.get(ORIGIN).cloned(),
            coding: compress::accepted(&exchange.headers),
            is_head: exchange.method == Method::HEAD,
        }
    }
}

/// Adds to a response what depends on its client. A cache before this knows none.
#[derive(Clone, Copy)]
struct Completion<'a> {
    route: Option<&'a Arc<Route>>,
    asked: &'a Asked,
    compressing: &'a Compressing,
    /// Whether the uniform headers are added, and whether the client uses TLS.
    secures: Option<bool>,
}

impl Completion<'_> {
    fn apply(&self, response: &mut Response, id: &str) {
        if let Some(route) = self.route {
            if let Some(cors) = &route.cors {
                cors::apply(cors, self.asked.origin.as_ref(), &mut response.headers);
            }
            if route.compress {
                let Asked { coding, is_head, .. } = *self.asked;
                compress::apply(response, coding, is_head, self.compressing);
            }
        }
        if let Some(is_secure) = self.secures {
            secure(&mut response.headers, is_secure);
        }
        if !response.headers.contains_key(REQUEST_ID)
            && let Ok(id) = HeaderValue::from_str(id)
        {
            response.headers.insert(REQUEST_ID, id);
        }
    }

    /// The same for a response that waits for something to happen: the service in this process has
    /// given back what it needed so far, and so does the proxy.
    fn later(self, answer: Answer<'static>, id: String) -> Response {
        let (route, secures) = (self.route.cloned(), self.secures);
        let (asked, compressing) = (self.asked.clone(), self.compressing.clone());
        let later = Box::pin(async move {
            let mut response = answer.await;
            let (route, asked, compressing) = (route.as_ref(), &asked, &compressing);
            Completion { route, asked, compressing, secures }.apply(&mut response, &id);
            response
        });
        Response { body: Payload::Later(later), ..Response::default() }
    }
}

/// What is known of a request when it fails.
#[derive(Default)]
struct Seen<'t> {
    site: Option<&'t ServedSite>,
    route: Option<&'t ServedRoute>,
}

/// A response, and the server that gave it.
struct Answered {
    response: Response,
    backend: Option<Arc<Backend>>,
}

impl From<Response> for Answered {
    fn from(response: Response) -> Answered {
        Answered { response, backend: None }
    }
}

fn bad_path() -> Failure {
    let message = "The path has dot segments, escapes that are not valid, or slashes, semicolons \
                   or escapes that servers read differently; write it in its shortest form.";
    Failure::bad_request("malformed_request", message)
}

fn misdirected() -> Failure {
    let message = "This connection was made for another host, which has another certificate. \
                   Open a new one.";
    Failure::new(StatusCode::MISDIRECTED_REQUEST, "misdirected_request", message)
}

fn unknown_host() -> Failure {
    let message = "No site is configured for this host.";
    Failure::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", message)
}

fn no_route() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "route_not_found", "No route matches this path.")
}

/// Waits for the body of a GET or HEAD whose length is not declared: on HTTP/2 and HTTP/3, a
/// request without a body may end in a frame of its own, after its head. Forwarded as it is, it
/// would reach the backend with a body, and pass the cache by.
async fn settle_body(method: &Method, version: Version, body: &mut Body) -> Result<(), Failure> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    if is_read && version >= Version::HTTP_2 && body.declared_bytes().is_none() {
        *body = body.read(MAX_UNDECLARED_BYTES).await.map_err(Failure::body)?.into();
    }
    Ok(())
}

fn check_limits(served: &ServedRoute, exchange: &Exchange) -> Result<(), Failure> {
    let ServedRoute { route, state, .. } = served;
    if exchange.body.declared_bytes().is_some_and(|bytes| bytes > route.max_body_bytes) {
        return Err(Failure::body_too_large());
    }
    let Some(limit) = route.rate_limit else { return Ok(()) };
    state.limiter.count(limit, exchange.client, Instant::now()).map_err(|seconds| {
        let message = "Too many requests from this address. Slow down.";
        let status = StatusCode::TOO_MANY_REQUESTS;
        Failure::new(status, "rate_limited", message).retry_after(seconds)
    })
}

/// `{path}` in the target stands for the path, `{host}` for the host.
fn redirect(to: &str, status: StatusCode, path: &str, exchange: &Exchange) -> Response {
    let host = exchange.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut place = to.replace("{path}", path).replace("{host}", host);
    if let Some(query) = exchange.uri.query().filter(|_| to.contains("{path}")) {
        place.push('?');
        place.push_str(query);
    }
    let mut response = Response::new(status, format!("{place}\n"));
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers.insert(LOCATION, place);
    }
    response
}

/// Adds the uniform headers that the response does not have yet.
fn secure(headers: &mut HeaderMap, is_secure: bool) {
    const YEAR: &str = "max-age=31536000";
    let uniform = [
        (X_FRAME_OPTIONS, "SAMEORIGIN", true),
        (X_CONTENT_TYPE_OPTIONS, "nosniff", true),
        (STRICT_TRANSPORT_SECURITY, YEAR, is_secure),
    ];
    for (name, value, _) in uniform.into_iter().filter(|(_, _, applies)| *applies) {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

impl Table {
    fn new(config: Config, before: Option<&Table>) -> Table {
        let Config { groups, sites, .. } = config;
        let mut routes = Routes::new(sites, before.map(|before| &before.routes));
        for site in &mut routes.sites {
            for served in &mut site.routes {
                served.identity = cache::identity(&site.name, &served.route, &groups);
            }
        }
        let pool = |group: crate::config::Group| {
            let mut old = before.into_iter().flat_map(|before| &before.pools);
            let same = old.find(|pool| pool.group.name == group.name);
            Arc::new(Pool::new(group, same.map(|pool| &**pool)))
        };
        Table { routes, pools: groups.into_iter().map(pool).collect() }
    }

    fn render(&self, out: &mut String) {
        use std::fmt::Write as _;
        let now = Instant::now();
        for pool in &self.pools {
            for backend in &pool.backends {
                let (group, server) = (&pool.group.name, &backend.server.url);
                backend.metrics.render(out, group, server);
                let labels = format!("backend={},server={}", quoted(group), quoted(server));
                for (name, value) in [
                    ("healthy", usize::from(backend.health.is_usable(now))),
                    ("restive", usize::from(backend.is_restive())),
                    ("requests_in_progress", backend.active()),
                    ("streams_open", backend.streams()),
                ] {
                    // Writing to a string cannot fail.
                    let _ = writeln!(out, "restive_proxy_backend_{name}{{{labels}}} {value}");
                }
                for (name, value) in backend.link.figures(now) {
                    let _ = writeln!(out, "restive_proxy_backend_{name}{{{labels}}} {value}");
                }
            }
        }
        for site in &self.routes.sites {
            for served in &site.routes {
                let path = served.route.path.to_string();
                served.state.metrics.render(out, &site.name, &path);
            }
        }
    }
}

impl Service for Proxy {
    fn call(&self, mut exchange: Exchange) -> Answer<'_> {
        Box::pin(async move { self.answer(&mut exchange).await })
    }

    fn stops_with_client(&self) -> bool {
        true
    }

    fn refuse(&self, fault: Fault) -> Response {
        let id = self.request_id();
        let mut response = Failure::wire(fault).response(&id);
        // Whether TLS is spoken is not known here.
        secure(&mut response.headers, false);
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers.insert(REQUEST_ID, id);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use http::Uri;
    use wire::Hints;

    struct Silent;

    impl Outside for Silent {
        fn log(&self, _: &Line<'_>) {}

        fn random(&self) -> u64 {
            7
        }
    }

    #[test]
    fn the_task_of_a_request_stays_small() {
        let config = Config::simple(&["127.0.0.1:1".to_owned()]).unwrap();
        let settings = Settings { outside: Arc::new(Silent), edge_secret: None, local: None };
        let proxy = Proxy::new(config, settings);
        let address: SocketAddr = "127.0.0.1:2".parse().unwrap();
        let exchange = Exchange {
            method: Method::GET,
            uri: Uri::from_static("/"),
            version: Version::HTTP_11,
            headers: HeaderMap::from_iter([(HOST, HeaderValue::from_static("a"))]),
            peer: address,
            local: address,
            client: address.ip(),
            is_client_known: true,
            is_proxied: false,
            is_secure: false,
            is_misdirected: false,
            client_certificate: None,
            body: Body::empty(),
            hints: Hints::default(),
        };
        // Each request in progress has this, and it is written once for each.
        let bytes = size_of_val(&*proxy.call(exchange));
        assert!(bytes <= 4_300, "{bytes}");
    }
}
