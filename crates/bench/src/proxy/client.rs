//! Clients of the proxies: one lane is one request at a time, on its own connection of HTTP/1.1
//! (plain or TLS) or as one of several streams of an HTTP/2 connection.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, StatusCode};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http::Head;

/// The name in the certificate and in every request.
pub const HOST: &str = "localhost";
/// Streams of one HTTP/2 connection.
const STREAMS: usize = 8;
/// Larger than any body, so that the client never slows the proxy down.
const WINDOW_BYTES: u32 = 8 << 20;
const AUTHORIZATION: &str = "Bearer sk_test_0123456789abcdef0123456789abcdef";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http1Tls,
    Http2Tls,
}

/// One request, with the size of its response's body.
pub struct Ask {
    pub path: &'static str,
    /// Requests with credentials are not cached.
    pub authorized: bool,
    pub body_bytes: usize,
}

impl Ask {
    /// The headers of a common client library, so that heads have their usual size. No proxy is
    /// asked to compress: the others do not unless told.
    pub fn http1(&self) -> Vec<u8> {
        let path = self.path;
        let fields = "User-Agent: bench\r\nAccept: application/json\r\nAccept-Language: en\r\n";
        let authorization = match self.authorized {
            true => format!("Authorization: {AUTHORIZATION}\r\n"),
            false => String::new(),
        };
        format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{fields}{authorization}\r\n").into_bytes()
    }

    fn http2(&self) -> Result<Request<()>> {
        let request = Request::get(format!("https://{HOST}{}", self.path))
            .header("user-agent", "bench")
            .header("accept", "application/json")
            .header("accept-language", "en");
        let request = match self.authorized {
            true => request.header("authorization", AUTHORIZATION),
            false => request,
        };
        Ok(request.body(())?)
    }
}

/// The trust of clients in one certificate. They offer one cipher suite, so that every proxy
/// encrypts with the same.
pub struct Trust(CertificateDer<'static>);

impl Trust {
    pub fn new(certificate: CertificateDer<'static>) -> Trust {
        Trust(certificate)
    }

    fn connector(&self, alpn: &[u8]) -> Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.clone())?;
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
        let mut tls = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.to_vec()];
        Ok(TlsConnector::from(Arc::new(tls)))
    }
}

pub enum Lane {
    Plain(Exchanges<TcpStream>),
    Tls(Box<Exchanges<TlsStream<TcpStream>>>),
    Stream(SendRequest<Bytes>),
}

impl Lane {
    /// Opens connections for this many lanes.
    pub async fn open(
        address: &str,
        protocol: Protocol,
        trust: Option<&Trust>,
        count: usize,
    ) -> Result<Vec<Lane>> {
        let mut lanes = Vec::with_capacity(count);
        let trust = || trust.context("TLS needs a certificate");
        while lanes.len() < count {
            match protocol {
                Protocol::Http1 => lanes.push(Lane::plain(address).await?),
                Protocol::Http1Tls => {
                    let stream = secure(address, &trust()?.connector(b"http/1.1")?).await?;
                    lanes.push(Lane::Tls(Box::new(Exchanges::new(stream))));
                }
                Protocol::Http2Tls => {
                    let stream = secure(address, &trust()?.connector(b"h2")?).await?;
                    let alpn = stream.get_ref().1.alpn_protocol();
                    ensure!(alpn == Some(b"h2"), "the proxy does not speak HTTP/2");
                    let requests = handshake(stream).await?;
                    let streams = STREAMS.min(count - lanes.len());
                    lanes.extend((0..streams).map(|_| Lane::Stream(requests.clone())));
                }
            }
        }
        Ok(lanes)
    }

    pub async fn plain(address: &str) -> Result<Lane> {
        Ok(Lane::Plain(Exchanges::new(connect(address).await?)))
    }

    /// Sends the request and receives its whole response, which must be 200.
    pub async fn ask(&mut self, ask: &Ask, encoded: &[u8]) -> Result<()> {
        match self {
            Lane::Plain(exchanges) => exchanges.ask(encoded, ask.body_bytes).await,
            Lane::Tls(exchanges) => exchanges.ask(encoded, ask.body_bytes).await,
            Lane::Stream(requests) => {
                let mut ready = requests.clone().ready().await?;
                let (response, _) = ready.send_request(ask.http2()?, true)?;
                let response = response.await?;
                ensure!(response.status() == StatusCode::OK, "status {}", response.status());
                let (mut body, mut received) = (response.into_body(), 0);
                while let Some(piece) = body.data().await.transpose()? {
                    received += piece.len();
                    body.flow_control().release_capacity(piece.len())?;
                }
                ensure!(received == ask.body_bytes, "a body of {received} bytes");
                Ok(())
            }
        }
    }

    /// The same for a request of HTTP/1.1 that is not a GET.
    pub async fn send(&mut self, request: &[u8], body_bytes: usize) -> Result<()> {
        match self {
            Lane::Plain(exchanges) => exchanges.ask(request, body_bytes).await,
            Lane::Tls(exchanges) => exchanges.ask(request, body_bytes).await,
            Lane::Stream(_) => bail!("this request is encoded for HTTP/1.1"),
        }
    }
}

async fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn secure(address: &str, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
    let stream = connect(address).await?;
    connector.connect(ServerName::try_from(HOST)?, stream).await.context("TLS")
}

async fn handshake(stream: TlsStream<TcpStream>) -> Result<SendRequest<Bytes>> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(2 * WINDOW_BYTES);
    let (requests, connection) = builder.handshake(stream).await?;
    spawn_local(connection);
    Ok(requests)
}

/// Requests of HTTP/1.1, one after the other on one connection.
pub struct Exchanges<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Exchanges<S> {
    fn new(stream: S) -> Self {
        Self { stream, buffer: vec![0; 64 << 10] }
    }

    async fn ask(&mut self, request: &[u8], body_bytes: usize) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let mut filled = 0;
        let head = loop {
            ensure!(filled < self.buffer.len(), "a head of more than {filled} bytes");
            let count = self.stream.read(&mut self.buffer[filled..]).await?;
            ensure!(count > 0, "the connection was closed in place of a response");
            filled += count;
            if let Some(head) = Head::parse(&self.buffer[..filled])? {
                break head;
            }
        };
        if head.status != 200 {
            let body = &self.buffer[head.head_bytes..filled.min(head.head_bytes + 500)];
            let shown = String::from_utf8_lossy(body);
            bail!("expected 200, got {}: {shown}", head.status);
        }
        let mut received = filled - head.head_bytes;
        while received < head.body_bytes {
            let count = self.stream.read(&mut self.buffer).await?;
            ensure!(count > 0, "the connection was closed in the middle of a body");
            received += count;
        }
        ensure!(received == body_bytes, "a body of {received} bytes instead of {body_bytes}");
        Ok(())
    }
}
