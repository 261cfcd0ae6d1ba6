//! A client of HTTP/3 for tests: the `h3` crate's where a well-behaved one will do, and streams of
//! QUIC with bytes made by hand where it will not.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{ConnectionError, StreamError};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Method, Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, RecvStream, SendStream};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use tokio::task::JoinHandle;
use wire::{Limits, Service, Tls};

use crate::h2::Streams;
use crate::server::Server;
use crate::tls::identity;

/// A server for `localhost`, and whom its clients trust.
pub fn echo(limits: Limits) -> (Server, Trust) {
    let (certificate, trusted) = identity(&["localhost"]);
    (Server::quic(limits, Tls::new(vec![certificate]).unwrap()), Trust(trusted))
}

/// The same with the service that shows what streams can do.
pub fn streams(limits: Limits) -> (Server, Trust) {
    let (certificate, trusted) = identity(&["localhost"]);
    let tls = Tls::new(vec![certificate]).unwrap();
    let service = |gate, seen| -> Arc<dyn Service> { Arc::new(Streams { gate, seen }) };
    (Server::quic_serving(limits, tls, service), Trust(trusted))
}

pub struct Trust(pub CertificateDer<'static>);

impl Trust {
    pub fn config(&self) -> ClientConfig {
        self.config_for(b"h3")
    }

    pub fn config_for(&self, protocol: &[u8]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![protocol.to_vec()];
        ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
    }

    /// A connection of QUIC, with nothing said on it.
    pub async fn dial(&self, address: SocketAddr) -> (Endpoint, quinn::Connection) {
        let endpoint = endpoint();
        let connecting = endpoint.connect_with(self.config(), address, "localhost").unwrap();
        let connection = connecting.await.expect("the handshake succeeds");
        (endpoint, connection)
    }

    pub async fn client(&self, server: &Server) -> Client {
        self.client_at(server.address).await
    }

    pub async fn client_at(&self, address: SocketAddr) -> Client {
        let (endpoint, quic) = self.dial(address).await;
        let (mut connection, requests) = h3::client::builder()
            .enable_extended_connect(true)
            .build::<_, _, Bytes>(h3_quinn::Connection::new(quic))
            .await
            .unwrap();
        let connection = tokio::spawn(async move { connection.wait_idle().await });
        Client { endpoint, requests, connection }
    }

    /// A connection on which the client has said its settings, and whatever the test wants to.
    pub async fn raw(&self, server: &Server) -> Raw {
        let (endpoint, quic) = self.dial(server.address).await;
        let mut control = quic.open_uni().await.unwrap();
        control.write_all(&[0, 4, 0]).await.unwrap();
        Raw { _endpoint: endpoint, quic, control }
    }
}

pub fn endpoint() -> Endpoint {
    Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap()
}

pub fn socket() -> UdpSocket {
    UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap()
}

pub type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

pub struct Client {
    pub endpoint: Endpoint,
    pub requests: SendRequest<OpenStreams, Bytes>,
    /// Ends with the connection, as it ended.
    pub connection: JoinHandle<ConnectionError>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
    pub trailers: Option<HeaderMap>,
}

impl Client {
    /// Sends the head; the body is still open.
    pub async fn send(&mut self, request: Request<()>) -> Stream {
        self.requests.send_request(request).await.unwrap()
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.ask(request(Method::GET, path)).await.unwrap()
    }

    /// A request without a body.
    pub async fn ask(&mut self, request: Request<()>) -> Result<Answer, StreamError> {
        let mut stream = self.requests.send_request(request).await?;
        stream.finish().await?;
        answer(&mut stream).await
    }

    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Answer {
        let mut stream = self.send(request(Method::POST, path)).await;
        stream.send_data(body.into()).await.unwrap();
        stream.finish().await.unwrap();
        answer(&mut stream).await.unwrap()
    }
}

pub fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("https://localhost{path}")).body(()).unwrap()
}

pub async fn answer(stream: &mut Stream) -> Result<Answer, StreamError> {
    let (head, ()) = stream.recv_response().await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        bytes.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    let trailers = stream.recv_trailers().await?;
    let body = String::from_utf8(bytes).unwrap();
    Ok(Answer { status: head.status, headers: head.headers, body, trailers })
}

pub const HEADERS: u64 = 1;
pub const DATA: u64 = 0;
pub const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/one")];
pub const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/one")];

pub struct Raw {
    _endpoint: Endpoint,
    pub quic: quinn::Connection,
    pub control: SendStream,
}

impl Raw {
    /// What is answered to these bytes on a stream of their own, of which they are all: the status,
    /// or the code of a reset or of the connection's end.
    pub async fn ask(&self, bytes: &[u8]) -> String {
        let (mut sending, mut receiving) = self.quic.open_bi().await.unwrap();
        // The server may not wait for the end of them.
        let _ = sending.write_all(bytes).await;
        let _ = sending.finish();
        outcome(&mut receiving).await
    }

    /// Sends these bytes on a stream of the type they begin with.
    pub async fn one_way(&self, bytes: &[u8]) -> SendStream {
        let mut sending = self.quic.open_uni().await.unwrap();
        sending.write_all(bytes).await.unwrap();
        sending
    }

    /// The code with which the server ends the connection.
    pub async fn closed(&self) -> u64 {
        match self.quic.closed().await {
            quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("{other}"),
        }
    }

    /// The connection still serves.
    pub async fn still_serves(&self) {
        assert_eq!(self.ask(&frame(HEADERS, &block(&GET))).await, "200");
    }
}

pub async fn outcome(receiving: &mut RecvStream) -> String {
    use quinn::{ConnectionError, ReadError, ReadToEndError};
    match receiving.read_to_end(1 << 20).await {
        Ok(bytes) => status(&bytes),
        Err(ReadToEndError::Read(ReadError::Reset(code))) => {
            format!("reset {:#x}", code.into_inner())
        }
        Err(ReadToEndError::Read(ReadError::ConnectionLost(
            ConnectionError::ApplicationClosed(close),
        ))) => format!("closed {:#x}", close.error_code.into_inner()),
        Err(other) => panic!("{other:?}"),
    }
}

/// The status of an answer; the server writes it as an entry of the static table or as a literal.
fn status(bytes: &[u8]) -> String {
    let block = &bytes[5..];
    match block[2..] {
        [0xd9, ..] => "200".to_owned(),
        [0xff, number, ..] if number < 64 => {
            ["100", "204", "206", "302", "400", "403", "421", "425", "500"][usize::from(number)]
                .to_owned()
        }
        [0xdc, ..] => "503".to_owned(),
        [0x5f, 9, 3, a, b, c, ..] => String::from_utf8(vec![a, b, c]).unwrap(),
        _ => panic!("{bytes:?}"),
    }
}

/// A frame as it stands on the wire.
pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(kind, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame's head; the payload may never come.
pub fn head(kind: u64, length: u64) -> Vec<u8> {
    [number(kind), number(length)].concat()
}

pub fn number(value: u64) -> Vec<u8> {
    (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec()
}

/// Fields without any compression.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    for (name, value) in fields {
        integer(&mut bytes, 0b0010_0000, 7, name.len());
        bytes.extend_from_slice(name.as_bytes());
        integer(&mut bytes, 0, 127, value.len());
        bytes.extend_from_slice(value.as_bytes());
    }
    bytes
}

fn integer(bytes: &mut Vec<u8>, first: u8, full: usize, value: usize) {
    if value < full {
        bytes.push(first | value as u8);
        return;
    }
    bytes.push(first | full as u8);
    let mut left = value - full;
    while left >= 128 {
        bytes.push((left % 128) as u8 | 128);
        left /= 128;
    }
    bytes.push(left as u8);
}
