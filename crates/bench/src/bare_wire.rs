//! Our own HTTP server without an application: the `wire` crate returns prepared bytes, for
//! comparison with `bare_http`, which does the same on hyper.

use std::fs;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::io::AsyncWriteExt as _;
use wire::tls::Certificate;
use wire::{
    Answer, Body, Exchange, Fault, Limits, Listener, Payload, Response, Service, Shutdown, Tls,
};

use crate::bare_http::json;
use crate::options::Options;

/// More connections than any scenario opens.
const MAX_CONNECTIONS: usize = 100_000;

/// The path of a large body.
pub const LARGE: &str = "/large";
pub const LARGE_BYTES: usize = 100_000_000;
/// Reads a body of any length, and returns its length in a header.
pub const UPLOAD: &str = "/upload";
pub const RECEIVED: &str = "received-bytes";
/// A stream of events: one at once, and then none.
pub const EVENTS: &str = "/events";
pub const EVENT: &[u8] = b"data: 1\n\n";
/// In the given folder: its presence enables TLS and HTTP/3.
pub const CERTIFICATE: &str = "certificate.pem";
pub const KEY: &str = "key.pem";

struct Fixed {
    small: Bytes,
    large: OnceLock<Bytes>,
}

impl Service for Fixed {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ETAG, HeaderValue::from_static("\"1\""));
        let body = match exchange.uri.path() {
            UPLOAD => return Box::pin(count(exchange.body)),
            EVENTS => {
                let body = Payload::take_over(|mut raw| async move {
                    if raw.write_all(EVENT).await.is_ok() && raw.flush().await.is_ok() {
                        // Waits until the client sends something or disconnects: an idle live
                        // channel.
                        let _ = poll_fn(|cx| raw.poll_readable(cx)).await;
                    }
                });
                let response = Response { headers, ..Response::new(StatusCode::OK, body) };
                return Box::pin(async move { response });
            }
            LARGE => self.large.get_or_init(|| vec![b'x'; LARGE_BYTES].into()),
            _ => &self.small,
        };
        let response = Response { headers, ..Response::new(StatusCode::OK, body.clone()) };
        Box::pin(async move { response })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

async fn count(mut body: Body) -> Response {
    let mut bytes = 0;
    loop {
        match body.chunk().await {
            Ok(Some(piece)) => bytes += piece.len(),
            Ok(None) => break,
            Err(_) => return Response::new(StatusCode::BAD_REQUEST, "the body broke off"),
        }
    }
    let mut response = Response::new(StatusCode::OK, "");
    response.headers.insert(RECEIVED, HeaderValue::from(bytes));
    response
}

/// Serves until it is killed.
pub fn run(options: &Options) -> Result<()> {
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into())?;
    let mut scheme = "http";
    if let Some(dir) = &options.dir {
        let (chain, key) = (fs::read(dir.join(CERTIFICATE))?, fs::read(dir.join(KEY))?);
        let certificate = Certificate::from_pem(&chain, &key)?;
        listener = listener.tls(Tls::new(vec![certificate])?).http3()?;
        scheme = "https";
    }
    println!("listening on {scheme}://{}", listener.local_addr());
    let limits = Limits { max_connections: MAX_CONNECTIONS, ..Limits::default() };
    // Kept to the end: dropping it would be the stop signal.
    let (_trigger, shutdown) = Shutdown::channel();
    let service = Arc::new(Fixed { small: json(options.book_bytes), large: OnceLock::new() });
    let running = listener.run(service, limits, shutdown)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(running.join())?)
}
