//! How a test's requests travel: in HTTP/1.1, or in what `RESTIVE_E2E_OVER` says, so that one suite
//! runs over every version.

use crate::harness::PATIENCE;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex};
use tokio::runtime::{Builder, Handle};
use ureq::http::{HeaderMap, HeaderValue, Request, StatusCode};

type H2Sender = h2::client::SendRequest<bytes::Bytes>;

/// The parts of an answer, read to its end.
pub type Parts = (StatusCode, HeaderMap, Vec<u8>);

/// Drives the connections of all tests.
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
}

impl Carrier {
    pub fn new(address: SocketAddr) -> Carrier {
        match std::env::var("RESTIVE_E2E_OVER").as_deref() {
            Err(_) | Ok("http1") => Carrier::Http1(
                ureq::Agent::config_builder()
                    .http_status_as_error(false)
                    .allow_non_standard_methods(true)
                    .timeout_global(Some(PATIENCE))
                    .build()
                    .new_agent(),
            ),
            Ok("http2") => Carrier::Http2(address, Mutex::default()),
            Ok(other) => panic!("RESTIVE_E2E_OVER={other}: there are http1 and http2"),
        }
    }

    pub fn run(&self, request: Request<Vec<u8>>) -> Result<Parts, String> {
        match self {
            Carrier::Http1(agent) => {
                let response = agent.run(request).map_err(|error| error.to_string())?;
                let (head, mut body) = response.into_parts();
                let body = body.read_to_vec().map_err(|error| error.to_string())?;
                Ok((head.status, head.headers, body))
            }
            Carrier::Http2(address, kept) => RUNTIME.block_on(async {
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
                let exchange = over_http2(sender, request);
                let done = tokio::time::timeout(PATIENCE, exchange).await;
                done.map_err(|_| "no answer in time".to_owned())?.map_err(|e| e.to_string())
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
    let (response, mut sending) = sender.send_request(Request::from_parts(head, ()), empty)?;
    if !empty {
        // An answer may come before the whole body was wanted; then the rest is not.
        let _ = sending.send_data(body.into(), true);
    }
    let (head, mut arriving) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(piece) = arriving.data().await {
        let piece = piece?;
        body.extend_from_slice(&piece);
        arriving.flow_control().release_capacity(piece.len())?;
    }
    Ok((head.status, head.headers, body))
}
