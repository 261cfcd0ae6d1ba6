//! `restive proxy`: assembles the reverse proxy, takes over the sockets of a running one, reloads
//! its configuration on SIGHUP or `restive proxy reload`, and drains on SIGTERM.

use crate::args::{self, AsJson, ProxyCommand, ProxyConfig, Switch};
use crate::control::{self, Commands, Control, Place, Reload};
use crate::data;
use crate::edge_secret;
use crate::listeners::{Inherited, Listeners};
use crate::log_writer::LogWriter;
use crate::logging;
use crate::operator::{self, Measured};
use crate::output::say;
use crate::outside::System;
use crate::process;
use crate::stop::{self, Part, Progress};
use crate::takeover::Predecessor;
use crate::tls::{self, Secured};
use anyhow::{Context as _, bail};
use api::{AccessLog, Outside as _};
use http::{Method, StatusCode, Uri};
use proxy::config::{Action, LOCAL, Route};
use proxy::{Config, Line, Outside, Proxy, Settings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::Watchdog;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use wire::{Response, Shutdown, Trigger};

/// Time to stop beyond the drain time of the connections.
const MARGIN: Duration = Duration::from_secs(1);

pub fn run(args: args::Proxy) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(ProxyCommand::Reload { control, data }) => {
            let place = Place::new(control.control.as_deref(), &data.data);
            data::block_on(control::reload(place.as_ref()))?;
            say!("reloaded");
            Ok(ExitCode::SUCCESS)
        }
        Some(ProxyCommand::Explain { backends, method, url, output }) => {
            explain(&backends, &method, &url, output)
        }
        None if args.check => check(&args.backends),
        None => serve(args),
    }
}

/// Reads the configuration. The error lists all errors with file, line and column.
fn config(given: &ProxyConfig, has_local: bool) -> anyhow::Result<Config> {
    let Some(path) = &given.config else {
        if given.to.is_empty() {
            bail!(
                "the proxy needs a backend: add --to 127.0.0.1:8080, or --config with a file of \
                 sites and routes"
            );
        }
        return Config::simple(&given.to).map_err(|why| anyhow::anyhow!("--to {why}"));
    };
    read(path, has_local)
}

/// `has_local`: routes may lead to the API in this process.
pub fn read(path: &Path, has_local: bool) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the configuration {} cannot be read", path.display()))?;
    proxy::config::parse(&text, has_local).map_err(|errors| {
        let lines: Vec<String> =
            errors.iter().map(|error| format!("{}:{error}", path.display())).collect();
        let count = lines.len();
        anyhow::anyhow!("the configuration has {count} error(s):\n{}", lines.join("\n"))
    })
}

fn check(given: &ProxyConfig) -> anyhow::Result<ExitCode> {
    let config = config(given, true)?;
    let routes: usize = config.sites.iter().map(|site| site.routes.len()).sum();
    let local = config.groups.iter().position(|group| group.is_local);
    let is_local = |route: &Route| match route.action {
        Action::Forward { group, .. } => Some(group) == local,
        _ => false,
    };
    let needs_api = config.sites.iter().flat_map(|site| &site.routes).any(is_local);
    let sites = config.sites.len();
    let groups = config.groups.iter().filter(|group| !group.is_local).count();
    let note = if needs_api { ", for `restive serve --edge`" } else { "" };
    say!("ok: {sites} site(s), {routes} route(s), {groups} backend(s){note}");
    Ok(ExitCode::SUCCESS)
}

fn explain(
    given: &ProxyConfig,
    method: &str,
    url: &str,
    output: AsJson,
) -> anyhow::Result<ExitCode> {
    let config = config(given, true)?;
    let method: Method = method.parse().with_context(|| format!("`{method}` is not a method"))?;
    let url: Uri = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
    match proxy::explain(config, &method, &url) {
        Ok(rows) if output.json => {
            let row = |(name, value)| json!({ "name": name, "value": value });
            let rows: Vec<Value> = rows.into_iter().map(row).collect();
            say!("{}", json!({ "rows": rows }));
            Ok(ExitCode::SUCCESS)
        }
        Ok(rows) => {
            rows.iter().for_each(|(name, value)| say!("{name:<12}{value}"));
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => bail!("this request is refused: {why}"),
    }
}

/// Logs requests in the format of `serve`.
pub struct Journal {
    pub system: System,
    pub log: Option<Arc<AccessLog>>,
}

impl Outside for Journal {
    fn log(&self, line: &Line<'_>) {
        let Some(log) = &self.log else { return };
        // The API in this process has logged it, with the account and the key.
        if line.backend == Some(LOCAL) {
            return;
        }
        log.write(&api::Line {
            time: self.system.now(),
            request_id: line.request_id,
            method: line.method,
            path: line.path,
            status: line.status,
            duration_us: line.duration_us,
            bytes: usize::try_from(line.bytes).unwrap_or(usize::MAX),
            client: line.client,
            account: None,
            key: None,
            error: line.error,
            backend: line.backend,
        });
    }

    fn random(&self) -> u64 {
        let bytes = self.system.entropy().0;
        u64::from_le_bytes(std::array::from_fn(|place| bytes[place]))
    }
}

impl Measured for Proxy {
    fn metrics(&self) -> Response {
        let mut text = String::new();
        Proxy::metrics(self, &mut text);
        process::render(&mut text);
        operator::text(StatusCode::OK, text)
    }
}

fn serve(args: args::Proxy) -> anyhow::Result<ExitCode> {
    let form = logging::start(args.listening.logging.log_format);
    let config = config(&args.backends, false)?;
    let edge_secret = edge_secret::of_proxy(&args.edge_secret)?;
    let place = Place::new(args.control.control.as_deref(), &args.data.data);
    let (predecessor, inherited) = match args.take_over {
        true => take_over(place.as_ref())?,
        false => (None, Inherited::default()),
    };
    let (mut listeners, source) = Listeners::inherit(&args.listening, inherited)?;
    listeners = listeners.drain_within(Duration::from_secs(args.drain_time.into()));
    if let Some(source) = source {
        let address = args.listening.listen.ip();
        data::make(&args.data.data)
            .with_context(|| format!("{} cannot be created", args.data.data.display()))?;
        let clients = tls::clients(&args.clients)?;
        listeners = listeners.secure(Secured::load(source, &args.data.data, address, clients)?);
    } else if args.clients.client_ca.is_some() {
        bail!("--client-ca needs HTTPS, which is not served; add --tls or --tls-cert");
    }
    data::block_on(async move {
        let watchdog = Watchdog::new();
        let log = (args.access_log == Switch::On).then(Arc::<AccessLog>::default);
        let writer = log.clone().map(|log| LogWriter::start(log, form, &watchdog));
        let outside = Arc::new(Journal { system: System::new(), log });
        let proxy = Arc::new(Proxy::new(config, Settings { outside, edge_secret, local: None }));
        let _broken_pipe = signal(SignalKind::pipe())?;
        let addresses = listeners.addresses();
        let drain = listeners.drain();
        let progress = Progress::default();
        let stop = stop::signalled(drain + stop::GRACE, watchdog, progress.clone())?;
        let (trigger, shutdown) = Shutdown::channel();
        let metrics = Arc::new(operator::Metrics(proxy.clone()));
        let sockets = listeners.sockets()?;
        let open = listeners.open(proxy.clone(), metrics, &shutdown)?;
        let (reload, requests) = mpsc::channel(1);
        let reloads = tokio::spawn(follow(proxy, args.backends.config, requests, false)?);
        let replaces = predecessor.is_some();
        if let Some(predecessor) = predecessor {
            replace(predecessor, place.as_ref()).await?;
        }
        let control = Control::start(place.as_ref(), Commands { reload, sockets }, replaces);
        // The old proxy drains: from now on only this one serves, whatever fails.
        let control = match control {
            Err(error) if replaces => {
                tracing::error!(%error, "this proxy cannot be reloaded or taken over by commands");
                None
            }
            other => other?,
        };
        addresses.announce();
        stop.await;
        tracing::info!("draining");
        let _successor = match control {
            Some(control) => Some(control.close().await),
            None => None,
        };
        trigger.fire();
        let mut closed = Ok(());
        let connections = async { closed = open.closed().await };
        let parts = vec![Part::new("connections", drain + MARGIN, connections)];
        let late = stop::in_order(parts, &progress).await;
        reloads.abort();
        drop(writer);
        closed?;
        Ok(if late.is_empty() { ExitCode::SUCCESS } else { stop::EXIT_STUCK.into() })
    })
}

/// A running proxy to be replaced, which drops the trigger when it has ended.
type Replaced = (Predecessor, Trigger);

/// Takes the sockets of the running proxy. Without one, this process starts as usual.
fn take_over(place: Option<&Place>) -> anyhow::Result<(Option<Replaced>, Inherited)> {
    let Some(place) = place else {
        bail!("--take-over needs the control socket of the running proxy; remove --control off");
    };
    let Some((predecessor, sockets)) = Predecessor::find(place.path())? else {
        tracing::info!("no proxy is running; there is nothing to take over");
        return Ok((None, Inherited::default()));
    };
    let (trigger, free) = Shutdown::channel();
    Ok((Some((predecessor, trigger)), Inherited { sockets, free: Some(free) }))
}

/// Has the old proxy drain, now that this process accepts connections. An error means that the old
/// one goes on: two with different settings must not serve the same sockets.
async fn replace((predecessor, free): Replaced, place: Option<&Place>) -> anyhow::Result<()> {
    match predecessor.replace().await {
        Ok(ended) => drop(tokio::spawn(async move {
            ended.await;
            free.fire();
        })),
        Err(error) => {
            let is_there = match place {
                Some(place) => UnixStream::connect(place.path()).await.is_ok(),
                None => false,
            };
            if is_there {
                return Err(error).context("the running proxy goes on, and this one ends");
            }
            tracing::warn!(%error, "the old proxy has gone in the meantime");
        }
    }
    Ok(())
}

/// Checks the servers and, on SIGHUP or on request, reads the configuration again. A configuration
/// with errors is reported and not used.
pub fn follow(
    proxy: Arc<Proxy>,
    file: Option<PathBuf>,
    mut requests: mpsc::Receiver<Reload>,
    has_local: bool,
) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            let request = tokio::select! {
                () = checks(&proxy) => None,
                _ = hangup.recv() => None,
                Some(request) = requests.recv() => Some(request),
            };
            let outcome = reload(&proxy, file.as_deref(), has_local);
            let outcome = outcome.map_err(|error| format!("{error:#}"));
            match &outcome {
                Ok(()) => tracing::info!("the configuration was reloaded"),
                Err(error) => tracing::error!(%error, "the configuration was not reloaded"),
            }
            if let Some(request) = request {
                // The operator may not wait for the result any more.
                let _ = request.send(outcome);
            }
        }
    })
}

fn reload(proxy: &Proxy, file: Option<&Path>, has_local: bool) -> anyhow::Result<()> {
    let Some(file) = file else {
        bail!(
            "the proxy has no configuration file: it was started without --config, or --edge \
               without a file"
        );
    };
    proxy.reload(read(file, has_local)?);
    Ok(())
}

async fn checks(proxy: &Proxy) {
    proxy.checks().await;
    // Without checks there is nothing to do until a reload.
    std::future::pending().await
}
