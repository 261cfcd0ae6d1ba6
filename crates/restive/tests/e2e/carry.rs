//! The transport of a test's requests: HTTP/1.1, or what `RESTIVE_E2E_OVER` names, so that one
//! suite runs over every version of HTTP, and through the proxy: as a process of its own (`proxy`)
//! or in the process of the API (`edge`).

use crate::harness::PATIENCE;
use bytes::{Buf as _, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use ureq::http::{HeaderMap, HeaderValue, Request, StatusCode};

type Fault = Box<dyn std::error::Error + Send + Sync>;
type H3Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;
type H2Sender = h2::client::SendRequest<Bytes>;

/// The parts of a complete response.
pub struct Parts {
    /// Heads of interim responses (103); the HTTP/1.1 library drops them.
    pub interim: Vec<HeaderMap>,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Runs the connections of all tests.
static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
});

pub enum Carrier {
    Http1(ureq::Agent),
    /// The connection in use, once there is one.
    Http2(SocketAddr, Mutex<Option<H2Sender>>),
    /// Used under the lock: the last user closes the connection.
    Http3(SocketAddr, tokio::sync::Mutex<Option<H3Sender>>),
}

/// The arguments that a server needs for this transport.
pub fn arguments() -> &'static [&'static str] {
    match over().as_str() {
        "http3" => &["--tls", "self-signed"],
        "edge" => &["--edge=default"],
        _ => &[],
    }
}

/// Whether servers speak TLS.
pub fn is_secure() -> bool {
    over() == "http3"
}

/// Whether a proxy is started in front of each server.
pub fn is_proxied() -> bool {
    over() == "proxy"
}

fn over() -> String {
    std::env::var("RESTIVE_E2E_OVER").unwrap_or_else(|_| "http1".to_owned())
}

impl Carrier {
    pub fn new(address: SocketAddr) -> Carrier {
        Carrier::speaking(&over(), address)
    }

    /// Uses this HTTP version, independent of the version of the suite.
    pub fn speaking(version: &str, address: SocketAddr) -> Carrier {
        match version {
            "http1" | "proxy" | "edge" => Carrier::Http1(
                ureq::Agent::config_builder()
                    .http_status_as_error(false)
                    .allow_non_standard_methods(true)
                    .timeout_global(Some(PATIENCE))
                    .build()
                    .new_agent(),
            ),
            "http2" => Carrier::Http2(address, Mutex::default()),
            "http3" => Carrier::Http3(address, tokio::sync::Mutex::default()),
            other => {
                panic!("RESTIVE_E2E_OVER={other}: there are http1, http2, http3, proxy and edge")
            }
        }
    }

    pub fn run(&self, request: Request<Vec<u8>>) -> Result<Parts, String> {
        match self {
            Carrier::Http1(agent) => {
                let response = agent.run(request).map_err(|error| error.to_string())?;
                let (head, mut body) = response.into_parts();
                let body = body.read_to_vec().map_err(|error| error.to_string())?;
                Ok(Parts { interim: vec![], status: head.status, headers: head.headers, body })
            }
            Carrier::Http3(address, kept) => RUNTIME.block_on(async {
                let exchange = over_http3(*address, kept, request);
                let done = tokio::time::timeout(PATIENCE, exchange).await;
                done.map_err(|_| "no answer in time".to_owned())?.map_err(|e| e.to_string())
            }),
            Carrier::Http2(address, kept) => RUNTIME.block_on(async {
                let exchange = async {
                    let ready = kept.lock().unwrap().clone();
                    let sender = match ready {
                        Some(sender) => sender.ready().await.ok(),
                        None => None,
                    };
                    let sender = match sender {
                        Some(sender) => sender,
                        None => connect(*address).await?,
                    };
                    *kept.lock().unwrap() = Some(sender.clone());
                    over_http2(sender, request).await.map_err(|e| e.to_string())
                };
                let done = tokio::time::timeout(PATIENCE, exchange).await;
                done.map_err(|_| "no answer in time".to_owned())?
            }),
        }
    }
}

async fn connect(address: SocketAddr) -> Result<H2Sender, String> {
    let stream = tokio::net::TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    let (sender, connection) = h2::client::handshake(stream).await.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    sender.ready().await.map_err(|error| error.to_string())
}

async fn over_http2(mut sender: H2Sender, request: Request<Vec<u8>>) -> Result<Parts, h2::Error> {
    let (mut head, body) = request.into_parts();
    if !body.is_empty() {
        head.headers.insert("content-length", HeaderValue::from(body.len()));
    }
    let empty = body.is_empty();
    let (mut response, mut sending) = sender.send_request(Request::from_parts(head, ()), empty)?;
    if !empty {
        // The response may arrive before the whole body is sent; ignore the error.
        let _ = sending.send_data(body.into(), true);
    }
    let mut interim = Vec::new();
    while let Some(hints) = poll_fn(|cx| response.poll_informational(cx)).await {
        interim.push(hints?.into_parts().0.headers);
    }
    let (head, mut arriving) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(piece) = arriving.data().await {
        let piece = piece?;
        body.extend_from_slice(&piece);
        arriving.flow_control().release_capacity(piece.len())?;
    }
    Ok(Parts { interim, status: head.status, headers: head.headers, body })
}

async fn over_http3(
    address: SocketAddr,
    kept: &tokio::sync::Mutex<Option<H3Sender>>,
    request: Request<Vec<u8>>,
) -> Result<Parts, Fault> {
    let (mut head, body) = request.into_parts();
    let place = head.uri.path_and_query().map_or("/", |place| place.as_str());
    head.uri = format!("https://localhost:{}{place}", address.port()).parse()?;
    // A test may declare another length.
    if !body.is_empty() && !head.headers.contains_key("content-length") {
        head.headers.insert("content-length", HeaderValue::from(body.len()));
    }
    let head = Request::from_parts(head, ());
    let mut kept = kept.lock().await;
    let begun = match kept.as_mut() {
        Some(sender) => sender.send_request(head.clone()).await.ok(),
        None => None,
    };
    let mut stream = match begun {
        Some(stream) => stream,
        None => kept.insert(dial(address).await?).send_request(head).await?,
    };
    drop(kept);
    // The response may arrive before the whole body is sent; ignore the error.
    if !body.is_empty() {
        let _ = stream.send_data(Bytes::from(body)).await;
    }
    let _ = stream.finish().await;
    let mut interim = Vec::new();
    let (head, ()) = loop {
        let (head, ()) = stream.recv_response().await?.into_parts();
        match head.status.is_informational() {
            true => interim.push(head.headers),
            false => break (head, ()),
        }
    };
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    Ok(Parts { interim, status: head.status, headers: head.headers, body })
}

/// Accepts every certificate; other tests check certificates.
fn trusting() -> Result<rustls::ClientConfig, rustls::Error> {
    Ok(rustls::ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth())
}

/// A byte stream to a server that was started with `arguments`.
pub fn plain(address: SocketAddr) -> Box<dyn Bytewise> {
    try_plain(address, PATIENCE).unwrap()
}

/// For servers that may be down; a read waits at most `patience`.
pub fn try_plain(address: SocketAddr, patience: Duration) -> std::io::Result<Box<dyn Bytewise>> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    if !is_secure() {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from("localhost").unwrap();
    let session = rustls::ClientConnection::new(Arc::new(trusting().unwrap()), name).unwrap();
    Ok(Box::new(rustls::StreamOwned::new(session, stream)))
}

pub trait Bytewise: Read + Write + Send {
    fn finish(&mut self);
}

impl Bytewise for TcpStream {
    fn finish(&mut self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Bytewise for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn finish(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

async fn dial(address: SocketAddr) -> Result<H3Sender, Fault> {
    let mut tls = trusting()?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = QuicClientConfig::try_from(tls)?;
    let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into())?;
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    let connection = endpoint.connect(address, "localhost")?.await?;
    let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    tokio::spawn(async move {
        // Kept as long as its only connection.
        let _endpoint = endpoint;
        driver.wait_idle().await
    });
    Ok(sender)
}

fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls13_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
