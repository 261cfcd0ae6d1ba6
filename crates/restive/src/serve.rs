//! `restive serve`: assembles the crates, prints the addresses, and drains on SIGTERM.

use crate::args::{Serve, Switch};
use crate::check;
use crate::cluster;
use crate::data;
use crate::deliver::Deliveries;
use crate::edge::Edge;
use crate::edge_secret;
use crate::listeners::{BoundAddresses, Listeners, OpenListeners};
use crate::log_writer::LogWriter;
use crate::logging;
use crate::operator;
use crate::output::say;
use crate::outside::System;
use crate::process;
use crate::site::Pages;
use crate::stop::{self, Part, Progress};
use crate::tls::Secured;
use anyhow::bail;
use api::keys::{Keyring, NewKey};
use api::{Actions, Api, DeliveryFigures, Figures, Outside, Parts, Settings};
use live::{Hub, Limits};
use model::schema::RateLimit;
use model::{Schema, Scope};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::cluster::Cluster;
use store::sqlite::ServedSchema;
use store::{Heartbeat, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;
use webhooks::ScopeFigures;
use wire::{Shutdown, Trigger};

/// Below this length a key is logged as too short: it could be guessed.
const SHORT_KEY_CHARS: usize = 24;
/// Signal to a process that exceeds its file size limit; the number on Linux, macOS and BSD.
const SIGXFSZ: i32 = 25;
/// Interval at which the runtime of the hub, the timers and retention reports progress.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Streams, sockets and polls leave one part in this many of the listener's connections to short
/// requests.
const SHORT_REQUESTS: usize = 10;
/// Time to stop beyond a part's own drain time; the whole time for a part without one.
const MARGIN: Duration = Duration::from_secs(1);
/// Time to give up the leases of this node: three statements. Otherwise they end by themselves.
const LEAVE: Duration = Duration::from_secs(5);

fn settings(serve: &Serve, schema: &Schema) -> anyhow::Result<Settings> {
    Ok(Settings {
        rate_limit: rate_limit(serve.rate_limit.as_deref(), schema.service.rate_limit)?,
        access_log: serve.access_log == Switch::On,
        edge_secret: edge_secret::of_server(&serve.edge_secret)?,
    })
}

/// Resolves the secrets and headers of action handlers, which are in the environment.
fn handlers(schema: Arc<Schema>, secret: Option<&str>) -> anyhow::Result<Arc<Schema>> {
    let mut schema = Arc::unwrap_or_clone(schema);
    let settled = schema.settle_handlers(secret, &|name| std::env::var(name).ok());
    settled.map_err(|faults| anyhow::anyhow!("{}", faults.join("\n")))?;
    for collection in &schema.collections {
        let handled =
            collection.actions.iter().filter_map(|action| Some((action, action.handler.as_ref()?)));
        for (action, handler) in handled.filter(|(_, handler)| handler.secret.is_none()) {
            let (collection, action, url) = (&collection.name, &action.name, &handler.url);
            let what = "calls to a handler are not signed; set RESTIVE_HANDLER_SECRET";
            tracing::warn!(collection, action, url, "{what}");
        }
    }
    Ok(Arc::new(schema))
}

pub fn run(mut serve: Serve) -> anyhow::Result<ExitCode> {
    let form = logging::start(serve.listening.logging.log_format);
    serve.schema = serve.schema.or_local();
    let (schema, text) = data::schema_and_text(&serve.schema)?;
    let schema = handlers(schema, serve.handler_secret.as_deref())?;
    check::warn_of_future(&schema);
    let edition = ServedSchema { text: Some(text), accept: serve.accept.accepted() };
    let settings = settings(&serve, &schema)?;
    let edge = serve.edge.as_deref().map(Edge::read).transpose()?;
    let (mut listeners, source) = Listeners::bind(&serve.listening)?;
    let clock_difference = Duration::from_secs(serve.max_clock_difference.into());
    let (store, _lock) = data::serve(&serve.data, schema.clone(), edition, clock_difference)?;
    if let Some(source) = source {
        let address = serve.listening.listen.ip();
        listeners = listeners.secure(Secured::load(source, &serve.data.data, address, None)?);
    }
    let outside: Arc<dyn Outside> = Arc::new(System::new());
    data::block_on(async move {
        let addresses = listeners.addresses();
        say!("restive {}: {}", env!("CARGO_PKG_VERSION"), describe(&schema, &serve));
        first_start(&schema, &*store, &*outside, serve.bootstrap_key.as_deref(), &addresses)
            .await?;
        let cluster = cluster::join(&serve.data, &*store, &*outside).await?;
        let metrics = Arc::new(webhooks::Metrics::default());
        let listened = serve.listening.peers.max_connections;
        let hub = Arc::new(hub(&schema, &store, &cluster, &*outside, listened).await?);
        let actions = Arc::new(Actions::start(store.watchdog())?);
        let parts = Parts {
            schema: schema.clone(),
            store: store.clone(),
            outside: outside.clone(),
            settings,
            figures: figures(&metrics, &hub, &cluster),
            delivery_figures: delivery_figures(&metrics),
            hub: hub.clone(),
            actions: actions.clone(),
            cluster: cluster.clone(),
            site: Some(Arc::new(Pages::new(schema.clone(), serve.console == Switch::On))),
        };
        let api = Arc::new(Api::new(parts)?);
        let _signals = survive_signals()?;
        let log = api.access_log().map(|log| LogWriter::start(log, form, store.watchdog()));
        let (folder, shared) = (&serve.data.data, cluster.clone());
        let deliveries = Deliveries::start(schema.clone(), store.clone(), shared, folder, metrics)?;
        let mut tasks = background(schema, &store, &cluster, outside);
        tasks.push(tokio::spawn(hub.clone().run()).abort_handle());
        tasks.push(tokio::spawn(api.save_usage_regularly()).abort_handle());
        let mut service = Service {
            tasks,
            delay: Duration::from_secs(serve.drain_delay),
            connections_drain: listeners.drain(),
            api: api.clone(),
            actions,
            hub,
            deliveries,
            cluster,
            log,
        };
        let progress = Progress::default();
        let watchdog = store.watchdog().clone();
        let stop = stop::signalled(service.longest_stop(), watchdog, progress.clone())?;
        let (trigger, shutdown) = Shutdown::channel();
        let open = open(listeners, edge, &api, &mut service.tasks, &shutdown)?;
        offer_login(&serve, &api, &addresses);
        drop(api);
        addresses.announce();
        let reason = ended(stop, &*store).await;
        conclude(service.stop(&trigger, open, &progress).await?, reason)
    })
}

/// Waits for the signal to stop, or for the store to say why the server must start again.
async fn ended(stop: impl Future<Output = ()>, store: &dyn Store) -> Option<String> {
    tokio::select! {
        () = stop => None,
        reason = store.must_restart() => Some(reason),
    }
}

/// The exit code. A server that must start again fails: whoever started it starts it again.
fn conclude(ended: ExitCode, reason: Option<String>) -> anyhow::Result<ExitCode> {
    match reason {
        Some(reason) => bail!("the server must start again: {reason}"),
        None => Ok(ended),
    }
}

/// Starts what no request asks for.
fn background(
    schema: Arc<Schema>,
    store: &Arc<dyn Store>,
    cluster: &Arc<dyn Cluster>,
    outside: Arc<dyn Outside>,
) -> Vec<AbortHandle> {
    let timers = api::timers::run(store.clone(), outside.clone(), cluster.clone());
    vec![
        tokio::spawn(timers).abort_handle(),
        tokio::spawn(cluster::report_position(cluster.clone(), store.clone())).abort_handle(),
        tokio::spawn(api::retention::run(schema, store.clone(), outside)).abort_handle(),
        tokio::spawn(beat(store.watchdog().watch("main"))).abort_handle(),
    ]
}

/// Handles signals that would end the process.
fn survive_signals() -> std::io::Result<[tokio::signal::unix::Signal; 2]> {
    // The store reports a file that may not grow as a full disk.
    let file_too_large = signal(SignalKind::from_raw(SIGXFSZ))?;
    // From a log without a reader. It is ignored from the start, unless the attempt to execute the
    // program again failed (`memory`).
    let broken_pipe = signal(SignalKind::pipe())?;
    Ok([file_too_large, broken_pipe])
}

/// Prints a link to the console, with a login for the person who starts the server. Not into a
/// file of logs that others read, unless only this machine can use it.
fn offer_login(serve: &Serve, api: &Api, addresses: &BoundAddresses) {
    let peers = &serve.listening.peers;
    let is_behind_proxy = !peers.trusted_proxies.is_empty()
        || peers.proxy_protocol == Switch::On
        || serve.edge.is_some();
    let is_local = addresses.is_loopback() && !is_behind_proxy;
    let is_private = is_local || std::io::stdout().is_terminal();
    if serve.console == Switch::On && is_private {
        say!("console   {addresses}/console#login={}", api.offer_login());
    }
}

/// Accepts connections, for the API or for the proxy in front of it.
fn open(
    listeners: Listeners,
    edge: Option<Edge>,
    api: &Arc<Api>,
    tasks: &mut Vec<AbortHandle>,
    shutdown: &Shutdown,
) -> anyhow::Result<OpenListeners> {
    let Some(edge) = edge else {
        let metrics = Arc::new(operator::Metrics(api.clone()));
        return listeners.open(api.clone(), metrics, shutdown);
    };
    let edge = edge.start(api);
    tasks.push(edge.follow()?);
    let metrics = Arc::new(operator::Metrics(edge.clone()));
    listeners.open(edge.service(), metrics, shutdown)
}

/// The parts that run from start to stop.
struct Service {
    api: Arc<Api>,
    actions: Arc<Actions>,
    hub: Arc<Hub>,
    deliveries: Deliveries,
    cluster: Arc<dyn Cluster>,
    tasks: Vec<AbortHandle>,
    log: Option<LogWriter>,
    /// Time from the stop signal until connections are no longer accepted.
    delay: Duration,
    connections_drain: Duration,
}

impl Service {
    /// The longest time from the stop signal to the end of the process, which is then forced.
    fn longest_stop(&self) -> Duration {
        self.delay + self.connections_drain + self.deliveries.drain() + stop::GRACE
    }

    /// Drains; completes when every part has ended or has used up its time.
    async fn stop(
        self,
        trigger: &Trigger,
        open: OpenListeners,
        progress: &Progress,
    ) -> anyhow::Result<ExitCode> {
        let longest = self.longest_stop();
        let Service {
            api,
            actions,
            hub,
            deliveries,
            tasks,
            log,
            delay,
            connections_drain,
            cluster,
        } = self;
        api.drain();
        tracing::info!("draining");
        tokio::time::sleep(delay).await;
        hub.drain();
        trigger.fire();
        let mut closed = Ok(());
        let connections = async {
            let (outcome, left) = tokio::join!(open.closed(), actions.drain(connections_drain));
            closed = outcome;
            if left > 0 {
                tracing::warn!(left, "actions were cancelled: their handlers did not respond");
            }
            tasks.iter().for_each(AbortHandle::abort);
        };
        let engine_drain = deliveries.drain();
        let parts = vec![
            Part::new("connections", connections_drain + MARGIN, connections),
            Part::new("webhooks", engine_drain + MARGIN, deliveries.stop()),
            // Nothing of this node is in flight any more: other nodes take over at once.
            Part::new("cluster", LEAVE, cluster.stop()),
            // One write. A slow disk does not mean that a part hangs: the write may take the rest
            // of the total time, after which the process ends.
            Part::new("version usage", longest, api.save_usage()),
        ];
        let late = stop::in_order(parts, progress).await;
        drop(log);
        tracing::info!("stopped");
        closed?;
        Ok(if late.is_empty() { ExitCode::SUCCESS } else { stop::EXIT_STUCK.into() })
    }
}

/// Reports that the runtime makes progress: a task that blocks it delays all others.
async fn beat(heartbeat: Heartbeat) {
    loop {
        heartbeat.beat();
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// Adds the metrics of the webhooks and the hub.
fn figures(
    metrics: &Arc<webhooks::Metrics>,
    hub: &Arc<Hub>,
    cluster: &Arc<dyn Cluster>,
) -> Figures {
    let (metrics, hub, cluster) = (metrics.clone(), hub.clone(), cluster.clone());
    Arc::new(move |text: &mut String, for_operator: bool| {
        metrics.render(text, for_operator);
        hub.render(text);
        cluster::render(text, &*cluster);
        process::render(text);
    })
}

/// Reads the deliveries of one account and mode.
fn delivery_figures(
    metrics: &Arc<webhooks::Metrics>,
) -> Arc<dyn Fn(Scope) -> DeliveryFigures + Send + Sync> {
    let metrics = metrics.clone();
    Arc::new(move |scope| {
        let ScopeFigures { waiting, oldest, delivered, failed } = metrics.of(scope);
        let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
        DeliveryFigures { waiting, oldest, delivered, failed }
    })
}

/// The hub of open connections, with the limits of the schema.
async fn hub(
    schema: &Arc<Schema>,
    store: &Arc<dyn Store>,
    cluster: &Arc<dyn Cluster>,
    outside: &dyn Outside,
    listened: usize,
) -> anyhow::Result<Hub> {
    let limits = Limits {
        // By default the listener accepts fewer connections than the schema allows, and a part of
        // them is reserved for short requests.
        max_connections: schema.live.max_connections.min(listened - listened / SHORT_REQUESTS),
        max_connections_per_account: schema.live.max_connections_per_account,
        poll_timeout: schema.live.poll_timeout,
        ..Limits::default()
    };
    let seed = outside.entropy().0;
    let seed = u64::from_le_bytes(std::array::from_fn(|place| seed[place]));
    Ok(Hub::new(schema.clone(), store.clone(), cluster.clone(), limits, seed).await?)
}

fn describe(schema: &Schema, serve: &Serve) -> String {
    let source = match &serve.schema.schema {
        Some(file) => file.display().to_string(),
        None => "built-in schema".to_owned(),
    };
    format!("`{}` ({source}), data in {}", schema.service.name, data::shown(&serve.data))
}

/// `off`, `N` or `N/WINDOW`.
fn rate_limit(given: Option<&str>, declared: RateLimit) -> anyhow::Result<Option<RateLimit>> {
    let Some(given) = given else { return Ok(Some(declared)) };
    if given == "off" {
        return Ok(None);
    }
    let (requests, window) = given.split_once('/').map_or((given, None), |(n, w)| (n, Some(w)));
    let window = match window {
        None => Some(declared.window),
        Some(text) => model::parse::duration(text),
    };
    match (requests.parse(), window) {
        (Ok(requests), Some(window)) if requests > 0 && window >= Duration::from_secs(1) => {
            Ok(Some(RateLimit { requests, window }))
        }
        _ => bail!("--rate-limit `{given}`: write off, or requests per window such as 100/1s"),
    }
}

/// Creates the first account and its keys; prints the keys once, with commands to try them.
async fn first_start(
    schema: &Schema,
    store: &dyn Store,
    outside: &dyn Outside,
    bootstrap: Option<&str>,
    addresses: &BoundAddresses,
) -> anyhow::Result<()> {
    let keyring = Keyring { schema, store, outside };
    let first = keyring.first_account().await?;
    if let Some(secret) = bootstrap {
        return bootstrap_key(&keyring, first.as_ref(), secret).await;
    }
    if first.is_some() {
        return Ok(());
    }
    let (account, is_new) = keyring.create_first_account("default").await?;
    if !is_new {
        // Another server on the same database was first, and has printed the keys.
        return Ok(());
    }
    // The operator's own keys: they may also manage keys and accounts over the API.
    let new = || NewKey { admin: true, ..NewKey::default() };
    let test = keyring.create_key(&account, false, new()).await?.secret;
    let live = keyring.create_key(&account, true, new()).await?.secret;
    say!("\nThe keys of the first account, shown only once:");
    say!("  test  {test}\n  live  {live}");
    say!("\nTry:");
    for line in curl_lines(schema, addresses, &test) {
        say!("  {line}");
    }
    say!();
    Ok(())
}

/// Makes sure that the given key belongs to the first account.
async fn bootstrap_key(
    keyring: &Keyring<'_>,
    account: Option<&model::Record>,
    secret: &str,
) -> anyhow::Result<()> {
    let livemode = match secret {
        key if key.starts_with("sk_test_") => false,
        key if key.starts_with("sk_live_") => true,
        _ => bail!("RESTIVE_BOOTSTRAP_KEY must begin with sk_test_ or sk_live_"),
    };
    if secret.len() < SHORT_KEY_CHARS {
        tracing::warn!("RESTIVE_BOOTSTRAP_KEY is short; use a long random one outside of tests");
    }
    let digest = api::keys::hex(&api::keys::digest(secret));
    if keyring.store.key_by_digest(&digest).await?.is_some() {
        return Ok(());
    }
    let account = match account {
        Some(account) => account.clone(),
        None => keyring.create_first_account("default").await?.0,
    };
    let name = Some("bootstrap".to_owned());
    let new = NewKey { name, admin: true, secret: Some(secret.to_owned()), ..NewKey::default() };
    Ok(keyring.create_given_key(&account, livemode, &new, secret).await?)
}

/// Three commands that work when pasted: on the bookshop they create, find and read a book.
fn curl_lines(schema: &Schema, addresses: &BoundAddresses, key: &str) -> Vec<String> {
    let curl = &addresses.curl;
    let base = format!("{addresses}{}", schema.service.mount);
    if schema.find("books").is_some() && schema.service.name == "bookshop" {
        return vec![
            format!(
                "{curl} {base}/books -u {key}: -H 'Content-Type: application/json' \
                 -d '{{\"title\":\"Dune\",\"author\":\"Frank Herbert\",\"price\":9.99}}'"
            ),
            format!("{curl} '{base}/books?q=dune&sort=-price' -u {key}:"),
            format!("{curl} {addresses}/health"),
        ];
    }
    let top = schema.routed().find(|(_, collection)| collection.parent.is_none());
    let name = top.map_or("", |(_, collection)| collection.name.as_str());
    vec![
        format!("{curl} {base}/{name} -u {key}:"),
        format!("{curl} {addresses}/openapi.json"),
        format!("{curl} {addresses}/health"),
    ]
}
