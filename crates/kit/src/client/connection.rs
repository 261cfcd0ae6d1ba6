//! Connections to the server: TCP, TLS, HTTP/1.1, and a few idle ones for the next requests.

use super::Error;
use super::address::Address;
use super::builder::Settings;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Idle connections that are kept.
const MAX_IDLE: usize = 8;
/// Shorter than servers and load balancers keep idle connections.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// Limit of a response's head, and of what is read ahead.
const BUFFER_BYTES: usize = 64 * 1024;

/// Certificate authorities.
pub(super) enum Trust {
    System,
    Pem(Vec<u8>),
}

pub(super) struct Connections {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    connect_timeout: Duration,
    idle: Mutex<Vec<(Sender, Instant)>>,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connections {
    pub(super) fn new(
        address: &Address,
        settings: &Settings,
        trust: &Trust,
    ) -> Result<Connections, Error> {
        let tls = match address.tls {
            false => None,
            true => {
                let name = ServerName::try_from(address.host.clone())
                    .map_err(|_| Error::Invalid("the URL has no valid host name".to_owned()))?;
                Some((TlsConnector::from(Arc::new(config(trust)?)), name))
            }
        };
        Ok(Connections {
            host: address.host.clone(),
            port: address.port,
            tls,
            connect_timeout: settings.connect_timeout,
            idle: Mutex::new(Vec::new()),
        })
    }

    /// Sends a request on an idle connection, or on a new one. The connection goes back with
    /// [`Connections::keep`] once the body is read.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), Error> {
        while let Some(mut sender) = self.take() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                // The server had closed the connection before the request was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Error::network(true, error.into_error())),
                },
            }
        }
        self.send_on_new(request).await
    }

    /// The same, always on a new connection: for streams, which hold it.
    pub(super) async fn send_on_new(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), Error> {
        let connected = timeout(self.connect_timeout, self.connect()).await;
        let elapsed =
            |_| Error::network(false, format!("no connection in {:?}", self.connect_timeout));
        let mut sender = connected.map_err(elapsed)??;
        let response = sender.send_request(request).await;
        Ok((response.map_err(|error| Error::network(true, error))?, sender))
    }

    pub(super) fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push((sender, Instant::now()));
        }
    }

    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            let (sender, since) = idle.pop()?;
            if since.elapsed() < IDLE_TIME && sender.is_ready() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<Sender, Error> {
        let failed = |error: std::io::Error| Error::network(false, error);
        let tcp = TcpStream::connect((&*self.host, self.port)).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let io: Box<dyn Io> = match &self.tls {
            None => Box::new(tcp),
            Some((connector, name)) => {
                Box::new(connector.connect(name.clone(), tcp).await.map_err(failed)?)
            }
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES);
        let (sender, connection) = builder
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| Error::network(false, error))?;
        // Ends with its sender and the body of its last response.
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }
}

fn config(trust: &Trust) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::System => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let why = "the system has no certificate authorities; name one".to_owned();
                return Err(Error::Invalid(why));
            }
        }
        Trust::Pem(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let invalid = |why: String| Error::Invalid(format!("not a certificate: {why}"));
                let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
                roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(Error::Invalid("no certificate in the PEM text".to_owned()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Invalid(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
