//! TLS on the server's side, between the socket and the protocols: which certificate a client is
//! shown, which protocol the two agree on, and the handshake. Versions 1.2 and 1.3, by rustls on
//! aws-lc. Reads no files: certificates are given, and replaced, as PEM text.

mod certificate;
mod client;
mod der;
mod resolver;

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer, kx_group};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

pub use self::certificate::{Certificate, CertificateFault};
pub use self::client::{ClientAuthorities, ClientAuthoritiesFault, ClientCertificate};
use self::resolver::Resolver;
use crate::stream::Stream;

/// What a session keeps of an answer that the socket has no room for. 32 KiB: two full records, so
/// that one write to the socket is worth its cost; a client that reads slowly holds no more.
const UNSENT_BYTES: usize = 32 * 1024;
/// The first byte of every TLS connection: a record of the handshake (RFC 8446 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The protocol inside. ALPN decides here alone; `serve` acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http2,
    Http1,
    /// An authority looks whether we are who we say; it has seen what it wanted.
    Challenge,
}

/// What we offer, best first.
const PROTOCOLS: &[(&[u8], Protocol)] =
    &[(b"h2", Protocol::Http2), (b"http/1.1", Protocol::Http1), (CHALLENGE, Protocol::Challenge)];
/// The same for refused connections: a client that could speak either takes the one in which it
/// can be refused with a response.
const REFUSING: [&[u8]; 2] = [b"http/1.1", CHALLENGE];
/// The protocol in which an authority asks (RFC 8737).
const CHALLENGE: &[u8] = b"acme-tls/1";

/// The certificates of a listener and everything else its handshakes need. Clones are the same
/// one: [`Tls::replace`] on any of them counts for all.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// For refused connections.
    refusing: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
    clients: Option<ClientAuthorities>,
}

/// What the handshake of a connection has shown, where that matters later.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The name that the client asked for, if it would have been shown another certificate for
    /// another name.
    pub(crate) server_name: Option<String>,
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

impl Tls {
    /// The first certificate is also the one for clients that name no host, or one that none of
    /// them is for.
    pub fn new(certificates: Vec<Certificate>) -> Result<Tls, rustls::Error> {
        Tls::with_clients(certificates, None)
    }

    /// Asks clients for certificates of these authorities.
    pub fn with_clients(
        certificates: Vec<Certificate>,
        clients: Option<ClientAuthorities>,
    ) -> Result<Tls, rustls::Error> {
        let resolver = Arc::new(Resolver::new(certificates)?);
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier(clients.as_ref()))
            .with_cert_resolver(resolver.clone());
        config.alpn_protocols = PROTOCOLS.iter().map(|(name, _)| name.to_vec()).collect();
        // Resumption by tickets, which the clients keep: sessions that rest cost us nothing. The
        // keys live in memory and change every six hours.
        config.ticketer = Ticketer::new()?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // Early data could be sent again by anybody who saw it.
        config.max_early_data_size = 0;
        let mut refusing = config.clone();
        refusing.alpn_protocols = REFUSING.map(<[u8]>::to_vec).to_vec();
        Ok(Tls { config: Arc::new(config), refusing: Arc::new(refusing), resolver, clients })
    }

    /// What QUIC needs: the same certificates, TLS 1.3 alone, HTTP/3 alone.
    pub(crate) fn quic(&self) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier(self.clients.as_ref()))
            .with_cert_resolver(self.resolver.clone());
        config.alpn_protocols = vec![b"h3".to_vec()];
        config.ticketer = Ticketer::new()?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok(config)
    }

    /// Handshakes from now on show these; connections that are open go on.
    pub fn replace(&self, certificates: Vec<Certificate>) -> Result<(), rustls::Error> {
        self.resolver.replace(certificates)
    }

    /// What is kept of a handshake; none if nothing of it matters later.
    pub(crate) fn shown(
        &self,
        server_name: Option<&str>,
        certificates: Option<&[CertificateDer<'_>]>,
    ) -> Option<Shown> {
        let server_name = server_name.filter(|_| self.resolver.has_several()).map(str::to_owned);
        let certificate = certificates.and_then(<[_]>::first);
        let certificate = certificate.and_then(ClientCertificate::new).map(Arc::new);
        let is_needed = server_name.is_some() || certificate.is_some();
        is_needed.then_some(Shown { server_name, certificate })
    }

    /// Whether a client that asked for one name would be shown another certificate for the other.
    pub(crate) fn differ(&self, server_name: &str, host: &str) -> bool {
        self.resolver.differ(server_name, host)
    }

    /// Shows this certificate to an authority that challenges us to (TLS-ALPN-01, RFC 8737), or
    /// none from now on.
    pub fn challenge(&self, name: &str, certificate: Option<&Certificate>) {
        self.resolver.challenge(name, certificate);
    }

    /// Waits for the first byte, and shakes hands if it is one of TLS.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Accepted> {
        accept(&self.config, stream).await
    }

    /// The same for a refused connection, in HTTP/1.1.
    pub(crate) async fn accept_to_refuse(&self, stream: TcpStream) -> io::Result<Accepted> {
        accept(&self.refusing, stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration holds keys.
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// What a new connection turned out to be.
pub(crate) enum Accepted {
    Secured(Stream, Protocol),
    /// The client speaks plain HTTP to a port that does not.
    Plain(TcpStream),
}

async fn accept(config: &Arc<ServerConfig>, stream: TcpStream) -> io::Result<Accepted> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match first[0] {
        HANDSHAKE_RECORD => {}
        // As every method of HTTP begins, and no record of TLS.
        b'A'..=b'Z' | b'a'..=b'z' => return Ok(Accepted::Plain(stream)),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    let acceptor = TlsAcceptor::from(config.clone());
    let stream = acceptor
        .accept_with(stream, |session| session.set_buffer_limit(Some(UNSENT_BYTES)))
        .await?;
    let agreed = stream.get_ref().1.alpn_protocol();
    let known = PROTOCOLS.iter().find(|(name, _)| Some(*name) == agreed);
    // A client without ALPN speaks HTTP/1.1.
    let protocol = known.map_or(Protocol::Http1, |(_, protocol)| *protocol);
    Ok(Accepted::Secured(Stream::Tls(Box::new(stream)), protocol))
}

fn verifier(clients: Option<&ClientAuthorities>) -> Arc<dyn ClientCertVerifier> {
    match clients {
        Some(ClientAuthorities(verifier)) => verifier.clone(),
        None => Arc::new(NoClientAuth),
    }
}

fn provider() -> CryptoProvider {
    CryptoProvider {
        // The hybrid first: what is recorded today must not be read by a quantum computer later.
        kx_groups: vec![
            kx_group::X25519MLKEM768,
            kx_group::X25519,
            kx_group::SECP256R1,
            kx_group::SECP384R1,
        ],
        ..aws_lc_rs::default_provider()
    }
}
