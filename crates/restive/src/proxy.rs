//! `restive proxy`: assembles the reverse proxy, reloads its configuration on SIGHUP, and drains on
//! SIGTERM.

use crate::args::{self, ProxyCommand, ProxyConfig, Switch};
use crate::data;
use crate::listeners::Listeners;
use crate::operator::{self, Measured};
use crate::outside::System;
use crate::process;
use crate::serve::LogWriter;
use crate::stop::{self, Part, Progress};
use crate::tls::{self, Secured};
use anyhow::{Context as _, bail};
use api::{AccessLog, Outside as _};
use http::{Method, StatusCode, Uri};
use proxy::{Config, Line, Outside, Proxy, Settings};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::Watchdog;
use tokio::signal::unix::{SignalKind, signal};
use wire::{Response, Shutdown};

/// Time to stop beyond the drain time of the connections.
const MARGIN: Duration = Duration::from_secs(1);

pub fn run(args: args::Proxy) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(ProxyCommand::Explain { backends, method, url }) => explain(&backends, &method, &url),
        None if args.check => check(&args.backends),
        None => serve(args),
    }
}

/// Reads the configuration. The error lists all errors with file, line and column.
fn config(given: &ProxyConfig) -> anyhow::Result<Config> {
    let Some(path) = &given.config else {
        if given.to.is_empty() {
            bail!(
                "the proxy needs a backend: add --to 127.0.0.1:8080, or --config with a file of \
                 sites and routes"
            );
        }
        return Config::simple(&given.to).map_err(|why| anyhow::anyhow!("--to {why}"));
    };
    read(path)
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the configuration {} cannot be read", path.display()))?;
    proxy::config::parse(&text).map_err(|errors| {
        let lines: Vec<String> =
            errors.iter().map(|error| format!("{}:{error}", path.display())).collect();
        let count = lines.len();
        anyhow::anyhow!("the configuration has {count} error(s):\n{}", lines.join("\n"))
    })
}

fn check(given: &ProxyConfig) -> anyhow::Result<ExitCode> {
    let config = config(given)?;
    let routes: usize = config.sites.iter().map(|site| site.routes.len()).sum();
    let (sites, groups) = (config.sites.len(), config.groups.len());
    println!("ok: {sites} site(s), {routes} route(s), {groups} backend(s)");
    Ok(ExitCode::SUCCESS)
}

fn explain(given: &ProxyConfig, method: &str, url: &str) -> anyhow::Result<ExitCode> {
    let config = config(given)?;
    let method: Method = method.parse().with_context(|| format!("`{method}` is not a method"))?;
    let url: Uri = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
    match proxy::explain(config, &method, &url) {
        Ok(text) => {
            print!("{text}");
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => bail!("this request is refused: {why}"),
    }
}

/// Logs requests in the format of `serve`.
struct Journal {
    system: System,
    log: Option<Arc<AccessLog>>,
}

impl Outside for Journal {
    fn log(&self, line: &Line<'_>) {
        let Some(log) = &self.log else { return };
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
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).with_target(false).init();
    let config = config(&args.backends)?;
    let (mut listeners, source) = Listeners::bind(&args.listening)?;
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
        let writer = log.clone().map(|log| LogWriter::start(log, &watchdog));
        let outside = Arc::new(Journal { system: System::new(), log });
        let trusted = args.listening.peers.trusted_proxies.clone();
        let proxy = Arc::new(Proxy::new(config, Settings { trusted, outside }));
        let _broken_pipe = signal(SignalKind::pipe())?;
        let addresses = listeners.addresses();
        let drain = listeners.drain();
        let progress = Progress::default();
        let stop = stop::signalled(drain + stop::GRACE, watchdog, progress.clone())?;
        let (trigger, shutdown) = Shutdown::channel();
        let metrics = Arc::new(operator::Metrics(proxy.clone()));
        let open = listeners.open(proxy.clone(), metrics, &shutdown)?;
        let reloads = tokio::spawn(follow(proxy, args.backends.config)?);
        addresses.announce()?;
        stop.await;
        tracing::info!("draining");
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

/// Checks the servers and, on SIGHUP, reads the configuration again. A configuration with errors is
/// reported and not used.
fn follow(
    proxy: Arc<Proxy>,
    file: Option<std::path::PathBuf>,
) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                () = checks(&proxy) => {}
                _ = hangup.recv() => {}
            }
            let Some(file) = &file else { continue };
            match read(file) {
                Ok(config) => {
                    proxy.reload(config);
                    tracing::info!("the configuration was reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "the configuration was not reloaded");
                }
            }
        }
    })
}

async fn checks(proxy: &Proxy) {
    proxy.checks().await;
    // Without checks there is nothing to do until a reload.
    std::future::pending().await
}
