//! Clients of HTTP/2 and HTTP/3 for `bench wire`: crates of one family, used in the same way, so
//! that only the protocol and the server differ between the two figures.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use http::{Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;

use crate::bare_wire::{EVENT, EVENTS, RECEIVED};
use crate::histogram::Histogram;

/// The name in the certificate.
pub const HOST: &str = "localhost";
/// Chunk size of a body that is sent to the server.
pub const PIECE_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http2,
    Http3,
}

/// The server, and the trusted certificate.
#[derive(Clone)]
pub struct Target {
    pub protocol: Protocol,
    pub address: SocketAddr,
    pub trusted: CertificateDer<'static>,
}

/// A number of connections with a number of concurrent requests on each.
#[derive(Clone, Copy)]
pub struct Crowd {
    pub connections: usize,
    pub streams: usize,
}

pub struct Outcome {
    pub latency: Histogram,
    pub elapsed: Duration,
}

impl Target {
    /// Sends requests without a pause for this time.
    pub fn load(&self, crowd: Crowd, duration: Duration) -> Result<Outcome> {
        run(async {
            let mut clients = Vec::new();
            for _ in 0..crowd.connections {
                clients.push(self.connect().await?);
            }
            let began = Instant::now();
            let mut askers = Vec::new();
            for client in clients {
                for _ in 0..crowd.streams {
                    askers.push(spawn_local(ask_until(client.clone(), began + duration)));
                }
            }
            let mut latency = Histogram::default();
            for asker in askers {
                latency.merge(&asker.await??);
            }
            Ok(Outcome { latency, elapsed: began.elapsed() })
        })
    }

    /// The time that the body of this path takes, and its size in bytes.
    pub fn fetch(&self, path: &str) -> Result<(Duration, u64)> {
        run(async {
            let client = self.connect().await?;
            let began = Instant::now();
            let bytes = client.get(path).await?;
            Ok((began.elapsed(), bytes))
        })
    }

    /// The time that an upload of this size takes, and the number of bytes that the server counted.
    pub fn upload(&self, path: &str, bytes: usize) -> Result<(Duration, u64)> {
        run(async {
            let client = self.connect().await?;
            let began = Instant::now();
            let counted = client.upload(path, bytes).await?;
            Ok((began.elapsed(), counted))
        })
    }

    async fn connect(&self) -> Result<Rc<Client>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.clone())?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Rc::new(match self.protocol {
            Protocol::Http2 => {
                tls.alpn_protocols = vec![b"h2".to_vec()];
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from(HOST)?;
                let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
                let mut builder = h2::client::Builder::new();
                builder.initial_window_size(4 << 20).initial_connection_window_size(8 << 20);
                let (requests, connection) = builder.handshake(stream).await?;
                spawn_local(connection);
                Client::Http2(requests)
            }
            Protocol::Http3 => {
                tls.alpn_protocols = vec![b"h3".to_vec()];
                let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into())?;
                let crypto = QuicClientConfig::try_from(tls)?;
                let config = quinn::ClientConfig::new(Arc::new(crypto));
                let quic = endpoint.connect_with(config, self.address, HOST)?.await?;
                let (mut connection, requests) = h3::client::builder()
                    .build::<_, _, Bytes>(h3_quinn::Connection::new(quic))
                    .await?;
                spawn_local(async move { connection.wait_idle().await });
                Client::Http3(requests, endpoint)
            }
        }))
    }
}

enum Client {
    Http2(h2::client::SendRequest<Bytes>),
    /// The endpoint is kept, because it ends with its last owner.
    Http3(
        h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
        #[allow(dead_code)] quinn::Endpoint,
    ),
}

impl Client {
    /// The size of the body.
    async fn get(&self, path: &str) -> Result<u64> {
        let request = Request::get(format!("https://{HOST}{path}"))
            .header("user-agent", "bench")
            .header("accept", "application/json")
            .header("authorization", "Bearer sk_test_0123456789abcdef0123456789abcdef")
            .body(())?;
        let mut bytes = 0;
        match self {
            Client::Http2(requests) => {
                let mut requests = requests.clone().ready().await?;
                let (response, _) = requests.send_request(request, true)?;
                let response = response.await?;
                ensure!(response.status() == StatusCode::OK, "{}", response.status());
                let mut body = response.into_body();
                while let Some(piece) = body.data().await.transpose()? {
                    bytes += piece.len() as u64;
                    body.flow_control().release_capacity(piece.len())?;
                }
            }
            Client::Http3(requests, _) => {
                let mut stream = requests.clone().send_request(request).await?;
                stream.finish().await?;
                let response = stream.recv_response().await?;
                ensure!(response.status() == StatusCode::OK, "{}", response.status());
                while let Some(piece) = stream.recv_data().await? {
                    bytes += piece.remaining() as u64;
                }
            }
        }
        Ok(bytes)
    }

    /// Returns the number of bytes that the server counted.
    async fn upload(&self, path: &str, bytes: usize) -> Result<u64> {
        let request = Request::post(format!("https://{HOST}{path}")).body(())?;
        let piece = Bytes::from(vec![b'x'; PIECE_BYTES]);
        let mut left = bytes;
        let response = match self {
            Client::Http2(requests) => {
                let mut requests = requests.clone().ready().await?;
                let (response, mut stream) = requests.send_request(request, false)?;
                while left > 0 {
                    stream.reserve_capacity(left.min(PIECE_BYTES));
                    if stream.capacity() == 0 {
                        let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
                        room.context("the stream is closed")??;
                    }
                    let size = left.min(stream.capacity()).min(PIECE_BYTES);
                    left -= size;
                    stream.send_data(piece.slice(..size), left == 0)?;
                }
                response.await?.map(drop)
            }
            Client::Http3(requests, _) => {
                let mut stream = requests.clone().send_request(request).await?;
                while left > 0 {
                    let size = left.min(PIECE_BYTES);
                    left -= size;
                    stream.send_data(piece.slice(..size)).await?;
                }
                stream.finish().await?;
                stream.recv_response().await?
            }
        };
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        let counted = response.headers().get(RECEIVED).context("nothing was counted")?;
        Ok(counted.to_str()?.parse()?)
    }
}

/// Opens streams over HTTP/2 without TLS that each get their first event, and calls `then` while
/// they are open and idle.
pub fn hold<T>(
    address: &str,
    crowd: Crowd,
    settle: Duration,
    then: impl FnOnce() -> Result<T>,
) -> Result<T> {
    run(async {
        let mut held = Vec::new();
        for _ in 0..crowd.connections {
            let stream = TcpStream::connect(address).await?;
            let (requests, connection) = h2::client::handshake(stream).await?;
            spawn_local(connection);
            for _ in 0..crowd.streams {
                let request = Request::get(format!("http://{HOST}{EVENTS}")).body(())?;
                let mut requests = requests.clone().ready().await?;
                let (response, _) = requests.send_request(request, true)?;
                let mut body = response.await?.into_body();
                let event = body.data().await.context("no event")??;
                ensure!(event == EVENT, "{event:?}");
                held.push(body);
            }
        }
        tokio::time::sleep(settle).await;
        let outcome = then();
        drop(held);
        outcome
    })
}

async fn ask_until(client: Rc<Client>, end: Instant) -> Result<Histogram> {
    let mut latency = Histogram::default();
    loop {
        let began = Instant::now();
        if began >= end {
            return Ok(latency);
        }
        client.get("/v1/books/book_1").await?;
        latency.record(began.elapsed());
    }
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let options = LocalOptions::default();
    let runtime = Builder::new_current_thread().enable_all().build_local(options)?;
    runtime.block_on(work).context("the load")
}
