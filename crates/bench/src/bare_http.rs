//! The limit of reading: hyper's HTTP/1.1 server, one single-threaded runtime per core, with
//! prepared responses. The difference to this is the cost of everything that the server under test
//! adds (auth, limits, SQLite, ETag, metrics).

use std::convert::Infallible;
use std::net::TcpListener;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::options::Options;

/// The responses: one book, and a list as long as the compared one.
#[derive(Clone)]
struct Pages {
    book: Bytes,
    list: Bytes,
}

/// Serves until it is killed.
pub fn run(options: &Options) -> Result<()> {
    let pages = Pages { book: json(options.book_bytes), list: json(options.list_bytes) };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let cores = std::thread::available_parallelism()?.get();
    if options.multi_thread {
        println!("listening on http://{}", listener.local_addr()?);
        return share(listener, pages, cores);
    }
    let mut workers = Vec::with_capacity(cores);
    for _ in 0..cores {
        let (sender, receiver) = mpsc::unbounded_channel();
        let pages = pages.clone();
        std::thread::spawn(move || serve(receiver, pages));
        workers.push(sender);
    }
    println!("listening on http://{}", listener.local_addr()?);
    for (turn, stream) in listener.incoming().enumerate() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        workers[turn % cores].send(stream)?;
    }
    Ok(())
}

fn serve(mut streams: mpsc::UnboundedReceiver<std::net::TcpStream>, pages: Pages) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        while let Some(stream) = streams.recv().await {
            tokio::spawn(connection(TcpStream::from_std(stream)?, pages.clone()));
        }
        Ok(())
    })
}

/// The same with one work-stealing runtime.
fn share(listener: TcpListener, pages: Pages, cores: usize) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(connection(stream, pages.clone()));
        }
    })
}

async fn connection(stream: TcpStream, pages: Pages) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &pages);
        async move { Ok::<_, Infallible>(answer) }
    });
    // A client that disconnects is the normal end of a connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn answer(request: &Request<Incoming>, pages: &Pages) -> Response<Full<Bytes>> {
    if request.headers().contains_key(IF_NONE_MATCH) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let body = if request.uri().query().is_some() { &pages.list } else { &pages.book };
    let mut response = Response::new(Full::new(body.clone()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ETAG, HeaderValue::from_static("\"1\""));
    response
}

/// A JSON text of exactly this many bytes.
pub fn json(bytes: usize) -> Bytes {
    const FRAME: &str = "{\"title\":\"\"}";
    let filling = "a".repeat(bytes.saturating_sub(FRAME.len()));
    Bytes::from(format!("{{\"title\":\"{filling}\"}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_requested_size() {
        assert_eq!(json(300).len(), 300);
        assert!(serde_json::from_slice::<serde_json::Value>(&json(300)).is_ok());
    }
}
