//! Opens connections: TCP to one of the addresses, then TLS if the target wants it. Does not know
//! HTTP, and talks to no address it was not given.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fault::{OutgoingFault, refused_tls};

/// Tries the addresses in turn. Each but the last may take only its share of the time that is
/// left, so that one that swallows everything does not hide the others.
pub(super) async fn tcp(
    addresses: &[SocketAddr],
    deadline: Instant,
    remote: &mut Option<SocketAddr>,
) -> Result<TcpStream, OutgoingFault> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (at, address) in addresses.iter().enumerate() {
        *remote = Some(*address);
        let open = TcpStream::connect(address);
        let opened = match u32::try_from(addresses.len() - at) {
            // The call's own deadline ends this one.
            Ok(1) => open.await,
            shares => {
                let left = deadline.saturating_duration_since(Instant::now());
                let opened = timeout(left / shares.unwrap_or(u32::MAX), open).await;
                opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
        };
        match opened {
            Ok(stream) => {
                // The request is written whole.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(OutgoingFault::Connect(last))
}

pub(super) async fn tls(
    stream: TcpStream,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, OutgoingFault> {
    TlsConnector::from(config).connect(name, stream).await.map_err(OutgoingFault::Tls)
}

/// Whom a client trusts. Read when first needed.
#[derive(Default)]
pub(super) struct Trust(OnceLock<Arc<ClientConfig>>);

impl Trust {
    /// These authorities (DER) and no others.
    pub(super) fn only(authorities: Vec<Vec<u8>>) -> Result<Trust, OutgoingFault> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(CertificateDer::from(authority)).map_err(refused_tls)?;
        }
        Ok(Trust(OnceLock::from(Arc::new(config(roots)))))
    }

    /// One configuration for all calls: it also remembers sessions, which makes the next
    /// handshake with the same server shorter.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, OutgoingFault> {
        if let Some(config) = self.0.get() {
            return Ok(config.clone());
        }
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            // Not kept: the next call looks again, the operator may install them meanwhile.
            return Err(refused_tls("the system has no certificate authorities"));
        }
        Ok(self.0.get_or_init(|| Arc::new(config(roots))).clone())
    }
}

fn config(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// An open connection, and how much was heard on it since the last request began.
pub(super) struct Stream {
    transport: Transport,
    heard: Arc<Heard>,
}

/// Bytes that came, and how many may. Bounds what a head is preceded by: answers of the kind 1xx
/// may follow each other without end, faster than anybody can read them.
#[derive(Default)]
pub(super) struct Heard {
    bytes: AtomicUsize,
    most: AtomicUsize,
}

impl Heard {
    /// A request begins: its answer's head comes within so many bytes.
    pub(super) fn begin(&self, most: usize) {
        self.bytes.store(0, Ordering::Relaxed);
        self.most.store(most, Ordering::Relaxed);
    }

    /// The head came; what follows has a limit of its own.
    pub(super) fn head_came(&self) {
        self.most.store(usize::MAX, Ordering::Relaxed);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        let sum = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.bytes.store(sum, Ordering::Relaxed);
        match sum > self.most.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(()),
        }
    }
}

pub(super) enum Transport {
    Plain(TcpStream),
    // By far the larger.
    Secure(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn new(transport: Transport, heard: Arc<Heard>) -> Stream {
        Stream { transport, heard }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Transport::Secure(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        let came = buffer.filled().len().saturating_sub(before);
        if came > 0 {
            self.heard.add(came)?;
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Secure(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Transport::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
