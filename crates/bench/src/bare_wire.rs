//! Our own HTTP server with nothing behind it: the `wire` crate answering bytes that were made
//! before the first request, to be held against `bare_http`, which does the same on hyper.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode};
use wire::{Answer, Exchange, Fault, Limits, Listener, Response, Service, Shutdown};

use crate::bare_http::json;
use crate::options::Options;

/// More than any scenario opens.
const MAX_CONNECTIONS: usize = 100_000;

struct Fixed(Bytes);

impl Service for Fixed {
    fn call(&self, _: Exchange) -> Answer<'_> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ETAG, HeaderValue::from_static("\"1\""));
        let body = self.0.clone().into();
        Box::pin(async move { Response { status: StatusCode::OK, headers, body } })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

/// Serves until it is killed.
pub fn run(options: &Options) -> Result<()> {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into())?;
    println!("listening on http://{}", listener.local_addr());
    let limits = Limits { max_connections: MAX_CONNECTIONS, ..Limits::default() };
    // Kept to the end: dropped, it would be the signal to stop.
    let (_trigger, shutdown) = Shutdown::channel();
    let service = Arc::new(Fixed(json(options.book_bytes)));
    let running = listener.run(service, limits, shutdown)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(running.join())?)
}
