//! Everything that lives as long as the server, built once. A step of a request takes the part that
//! it needs. This file knows no step: the pipeline, the operations and the channels import it,
//! never the other way round.

use crate::actions::Actions;
use crate::activity::DeliveryFigures;
use crate::admission::Admission;
use crate::auth::Auth;
use crate::body::Bodies;
use crate::deprecation::{self, Deprecations};
use crate::edge::Edge;
use crate::error::Shape;
use crate::in_flight::InFlight;
use crate::key_status::KeyStatuses;
use crate::limit::{Limiter, Moment};
use crate::login::Login;
use crate::metrics::{Metrics, RouteTable};
use crate::token::Tokens;
use crate::trace::Telemetry;
use crate::usage::{self, Usages};
use crate::version::Versioning;
use crate::{Outside, Settings};
use http::HeaderValue;
use live::Hub;
use model::Scope;
use model::schema::{Builtin, Collection, Schema};
use std::sync::Arc;
use store::Store;
use store::cluster::Cluster;

pub(crate) struct Services {
    pub schema: Arc<Schema>,
    pub store: Arc<dyn Store>,
    pub outside: Arc<dyn Outside>,
    pub versions: Arc<Versioning>,
    /// Identifies callers and limits their requests.
    pub admission: Admission,
    /// Memory budget for request bodies.
    pub bodies: Bodies,
    pub handlers: Handlers,
    pub channels: Channels,
    pub telemetry: Arc<Telemetry>,
    /// The feed for proxies of the operator.
    pub edge: Option<Arc<Edge>>,
    /// Counts of the versions and deprecated parts that each account uses.
    pub usages: Arc<Usages>,
    /// Everything that is deprecated, and the headers about it.
    pub deprecations: Deprecations,
    /// `Cache-Control` of each collection, by index. `None` if the text is no header value.
    pub cache_controls: Vec<Option<HeaderValue>>,
    /// Key that signs the cursors of lists.
    pub cursor_key: [u8; 32],
    /// The login of the console.
    pub login: Login,
    /// The deliveries of one account and mode, which the engine counts.
    pub delivery_figures: DeliveryFiguresOf,
}

/// Reads the deliveries of one account and mode.
pub type DeliveryFiguresOf = Arc<dyn Fn(Scope) -> DeliveryFigures + Send + Sync>;

/// Calls to the handlers of actions.
pub(crate) struct Handlers {
    pub client: wire::Client,
    pub actions: Arc<Actions>,
    /// Keeps other nodes from calls for the same key or record.
    pub cluster: Arc<dyn Cluster>,
}

/// The live channels.
pub(crate) struct Channels {
    pub hub: Arc<Hub>,
    pub tokens: Tokens,
    pub key_statuses: KeyStatuses,
}

/// The parts that the binary supplies.
pub(crate) struct Given {
    pub schema: Arc<Schema>,
    pub store: Arc<dyn Store>,
    pub outside: Arc<dyn Outside>,
    pub settings: Settings,
    pub delivery_figures: DeliveryFiguresOf,
    pub hub: Arc<Hub>,
    pub actions: Arc<Actions>,
    pub cluster: Arc<dyn Cluster>,
}

impl Services {
    pub fn new(given: Given) -> Result<Services, prometheus::Error> {
        let Given { schema, store, outside, settings, delivery_figures, hub, actions, cluster } =
            given;
        let at = Moment { now: outside.now(), uptime: outside.uptime() };
        let limiter = Arc::new(Limiter::new(settings.rate_limit, at, cluster.clone()));
        let versions = Arc::new(Versioning::new(&schema));
        let subjects = deprecation::subjects(&versions);
        let deprecations = Deprecations::new(&versions, &subjects);
        let usages = Arc::new(Usages::new(subjects, store.usage(), usage::MAX_ACCOUNTS));
        let accounts = schema.own(Builtin::Account);
        let auth =
            Auth::new(store.clone(), limiter.clone(), versions.clone(), usages.clone(), accounts);
        let in_flight = Arc::new(InFlight::new(wire::Limits::default().max_exchanges));
        let metrics = Metrics::new()?;
        let routes = RouteTable::new(&schema, &metrics);
        let telemetry = Telemetry::new(metrics, routes, settings.access_log, outside.clone());
        let keys = schema.own(Builtin::Key);
        Ok(Services {
            admission: Admission { auth, limiter, in_flight, schema: schema.clone() },
            bodies: Bodies::new(schema.service.max_body_bytes),
            handlers: Handlers { client: wire::Client::new(), actions, cluster },
            channels: Channels {
                hub,
                tokens: Tokens::new(&store.cursor_key()),
                key_statuses: KeyStatuses::new(store.clone(), outside.clone(), keys),
            },
            telemetry: Arc::new(telemetry),
            edge: settings.edge_secret.map(|secret| {
                let random = outside.entropy().0;
                Arc::new(Edge::new(secret, &random))
            }),
            usages,
            deprecations,
            versions,
            cache_controls: schema.collections.iter().map(cache_control).collect(),
            cursor_key: store.cursor_key(),
            delivery_figures,
            login: Login::default(),
            schema,
            store,
            outside,
        })
    }

    /// The error format of requests that ask for none.
    pub fn error_shape(&self) -> Shape {
        self.schema.service.errors.into()
    }
}

fn cache_control(collection: &Collection) -> Option<HeaderValue> {
    HeaderValue::from_str(&collection.cache_control).ok()
}
