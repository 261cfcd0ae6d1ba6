//! Listening sockets: which addresses are bound, which protocols they serve, and which proxies are
//! trusted.

use crate::args::{Hints, Listening, Peers, Switch};
use crate::output::say;
use crate::redirect::{Redirect, Tokens};
use crate::takeover::{Sockets, Use};
use crate::tls::{self, Secured, Source};
use anyhow::{Context as _, bail};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use wire::{EarlyHints, Limits, Listener, Running, Service, Shutdown};

/// Attempts to find a port that is free for both TCP and UDP.
const CHOICES: usize = 16;
const NO_UDP: &str = "cannot listen on its UDP port; --http3 off disables HTTP/3";

/// Bound sockets that do not accept connections yet.
pub struct Listeners {
    listener: Listener,
    secured: Option<Secured>,
    /// Plain HTTP in addition to HTTPS.
    redirect: Option<(Listener, Tokens)>,
    /// The separate address of the metrics.
    metrics: Option<Listener>,
    limits: Limits,
}

/// The open sockets, until they are closed.
pub struct OpenListeners {
    running: Vec<Running>,
    certificates: Option<JoinHandle<()>>,
}

impl Listeners {
    /// Binds before anything else is done, because a port in use is the most frequent mistake.
    /// `secure` loads the certificates later.
    pub fn bind(given: &Listening) -> anyhow::Result<(Listeners, Option<Source>)> {
        Listeners::inherit(given, Inherited::default())
    }

    /// Uses the sockets of another process where they have the right addresses, and closes the
    /// others.
    pub fn inherit(
        given: &Listening,
        mut inherited: Inherited,
    ) -> anyhow::Result<(Listeners, Option<Source>)> {
        let tokens = given.tls.redirect_http.map(|_| Tokens::default());
        let source = tls::source(&given.tls, tokens.clone())?;
        if source.is_none() && given.tls.redirect_http.is_some() {
            bail!("--redirect-http needs HTTPS, which is not served; add --tls or --tls-cert");
        }
        let Peers { trusted_proxies, proxy_protocol, .. } = &given.peers;
        let proxy_protocol = *proxy_protocol == Switch::On;
        if proxy_protocol && trusted_proxies.is_empty() {
            bail!(
                "--proxy-protocol on needs --trusted-proxies: the networks of the proxies that may \
                 report client addresses"
            );
        }
        // A load balancer that sends the PROXY protocol does not forward QUIC.
        let http3 = source.is_some() && given.tls.http3 == Switch::On && !proxy_protocol;
        let listener = inherited.service(given.listen, http3)?;
        let behind = |listener: Listener| {
            listener.trusted(trusted_proxies.clone()).proxy_protocol(proxy_protocol)
        };
        let early_hints = match given.early_hints {
            Hints::Asked => EarlyHints::Asked,
            Hints::Always => EarlyHints::Always,
            Hints::Off => EarlyHints::Off,
        };
        let listener =
            listener.early_hints(early_hints).prior_knowledge(given.prior_knowledge == Switch::On);
        let mut find = |of, address| inherited.listener(of, address);
        let plain = given.tls.redirect_http.map(|at| find(Use::Redirect, at)).transpose()?;
        let metrics = given.metrics_listen.map(|at| find(Use::Metrics, at)).transpose()?;
        let listeners = Listeners {
            listener: behind(listener),
            secured: None,
            redirect: plain.map(behind).zip(tokens),
            metrics,
            limits: limits(&given.peers),
        };
        Ok((listeners, source))
    }

    /// The longest time from the stop signal to the end of all connections.
    pub fn drain_within(mut self, time: Duration) -> Listeners {
        self.limits.drain_timeout = time;
        self
    }

    /// Duplicates of the sockets, for a process that takes over.
    pub fn sockets(&self) -> io::Result<Sockets> {
        let mut all = Sockets::default();
        let redirect = self.redirect.as_ref().map(|(listener, _)| listener);
        let listeners = [
            (Use::Service, Some(&self.listener)),
            (Use::Redirect, redirect),
            (Use::Metrics, self.metrics.as_ref()),
        ];
        for (of, listener) in listeners {
            let Some(listener) = listener else { continue };
            let (sockets, datagrams) = listener.sockets()?;
            sockets.into_iter().for_each(|socket| all.push(of, socket));
            datagrams.into_iter().for_each(|socket| all.push(Use::Http3, socket));
        }
        Ok(all)
    }

    pub fn secure(self, secured: Secured) -> Listeners {
        Listeners { listener: self.listener.tls(secured.tls()), secured: Some(secured), ..self }
    }

    pub fn addresses(&self) -> BoundAddresses {
        let trust = self.secured.as_ref().and_then(Secured::self_signed);
        BoundAddresses {
            address: self.listener.local_addr(),
            secure: self.secured.is_some(),
            curl: trust
                .map_or("curl".to_owned(), |file| format!("curl --cacert {}", file.display())),
            redirect: self.redirect.as_ref().map(|(listener, _)| listener.local_addr()),
            metrics: self.metrics.as_ref().map(Listener::local_addr),
        }
    }

    /// The longest time from the stop signal to the end of all connections.
    pub fn drain(&self) -> Duration {
        self.limits.drain_timeout
    }

    /// Serves until the stop signal.
    pub fn open(
        self,
        service: Arc<dyn Service>,
        metrics: Arc<dyn Service>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<OpenListeners> {
        let port = self.listener.local_addr().port();
        let certificates = self.secured.map(Secured::follow).transpose()?.map(tokio::spawn);
        let mut running =
            vec![self.listener.run(service, self.limits.clone(), shutdown.clone())?];
        if let Some(listener) = self.metrics {
            running.push(listener.run(metrics, self.limits.clone(), shutdown.clone())?);
        }
        if let Some((listener, tokens)) = self.redirect {
            let redirect = Arc::new(Redirect { tokens, port });
            running.push(listener.run(redirect, self.limits, shutdown.clone())?);
        }
        Ok(OpenListeners { running, certificates })
    }
}

impl OpenListeners {
    /// Completes when every connection has ended.
    pub async fn closed(self) -> anyhow::Result<()> {
        for running in self.running {
            running.join().await?;
        }
        self.certificates.iter().for_each(JoinHandle::abort);
        Ok(())
    }
}

/// The sockets of another process that this one replaces; by default none.
#[derive(Default)]
pub struct Inherited {
    pub sockets: Sockets,
    /// Fires when the other process no longer reads the packets of HTTP/3.
    pub free: Option<Shutdown>,
}

impl Inherited {
    fn listener(&mut self, of: Use, address: SocketAddr) -> anyhow::Result<Listener> {
        let found = self.sockets.listener(of, address);
        match found.with_context(|| format!("cannot take over the sockets of {address}"))? {
            Some(listener) => Ok(listener),
            None => bind(address),
        }
    }

    fn service(&mut self, address: SocketAddr, http3: bool) -> anyhow::Result<Listener> {
        let found = self.sockets.listener(Use::Service, address);
        match found.with_context(|| format!("cannot take over the sockets of {address}"))? {
            None if http3 => bind_both(address),
            None => bind(address),
            Some(listener) if !http3 => Ok(listener),
            Some(listener) => {
                let datagrams = self.sockets.datagrams(listener.local_addr());
                let listener = match datagrams.zip(self.free.clone()) {
                    Some((socket, free)) => listener.http3_on(socket, free),
                    None => listener.http3(),
                };
                listener.context(NO_UDP)
            }
        }
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<Listener> {
    Listener::bind(address).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => " (another program does): choose another address",
            _ => "",
        };
        anyhow::Error::from(error).context(format!("cannot listen on {address}{hint}"))
    })
}

/// Binds the same port for TCP and UDP. A port chosen by the system is only known to be free for
/// TCP.
fn bind_both(address: SocketAddr) -> anyhow::Result<Listener> {
    let mut tries = if address.port() == 0 { CHOICES } else { 1 };
    loop {
        tries -= 1;
        match bind(address)?.http3() {
            Ok(listener) => return Ok(listener),
            Err(error) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).context(NO_UDP),
        }
    }
}

fn limits(peers: &Peers) -> Limits {
    Limits {
        max_connections: peers.max_connections,
        max_connections_per_address: peers.max_connections_per_address.unwrap_or(usize::MAX),
        unacknowledged: Duration::from_secs(peers.vanished_after.into()),
        ..Limits::default()
    }
}

/// The address of the service; displayed as a URL.
pub struct BoundAddresses {
    address: SocketAddr,
    secure: bool,
    /// The beginning of a curl command for this service.
    pub curl: String,
    /// The address that redirects plain HTTP.
    pub redirect: Option<SocketAddr>,
    /// The separate address of the metrics, which shows all accounts by name.
    pub metrics: Option<SocketAddr>,
}

impl BoundAddresses {
    /// Only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// Prints the addresses; the line `listening` comes last.
    pub fn announce(&self) {
        if let Some(address) = self.redirect {
            say!("redirecting http://{address}");
        }
        if let Some(address) = self.metrics {
            say!("metrics on http://{address}/metrics");
        }
        say!("listening on {self}");
    }
}

impl fmt::Display for BoundAddresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(formatter, "{scheme}://{}", self.address)
    }
}
