//! The limit of receiving: hyper's HTTP/1.1 server reads each body and answers 200. It neither
//! verifies nor stores.

use std::convert::Infallible;
use std::net::TcpListener;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Serves until it is killed, with a thread per core.
pub fn run() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let cores = std::thread::available_parallelism()?.get();
    let mut workers = Vec::with_capacity(cores);
    for _ in 0..cores {
        let (sender, receiver) = mpsc::unbounded_channel();
        std::thread::spawn(move || serve(receiver));
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

fn serve(mut streams: mpsc::UnboundedReceiver<std::net::TcpStream>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        while let Some(stream) = streams.recv().await {
            tokio::spawn(connection(TcpStream::from_std(stream)?));
        }
        Ok(())
    })
}

async fn connection(stream: TcpStream) {
    // A client that disconnects is the normal end of a connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    Ok(Response::new(Full::from(&br#"{"received":true}"#[..])))
}
