//! The limits of receiving. Without a folder hyper's HTTP/1.1 server reads each body and answers
//! 200; it neither verifies nor stores. With `--dir` it also does the least that a receiver with a
//! durable queue must do: it verifies the HMAC, reads the id of the event, and answers when SQLite
//! has committed the event with a sync, many of them in one commit.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, mpsc as blocking};

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rusqlite::Connection;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::options::Options;
use crate::receive::SECRET;

/// Events in one commit.
const GROUP: usize = 256;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS events
    (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL)";

struct Job {
    id: String,
    body: Bytes,
    stored: oneshot::Sender<()>,
}

struct Durable {
    key: hmac::Key,
    jobs: blocking::Sender<Job>,
}

type Store = Option<Arc<Durable>>;

/// Serves until it is killed, with a thread per core.
pub fn run(options: &Options) -> Result<()> {
    let store = options.dir.as_deref().map(start_writer).transpose()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let cores = std::thread::available_parallelism()?.get();
    let mut workers = Vec::with_capacity(cores);
    for _ in 0..cores {
        let (sender, receiver) = mpsc::unbounded_channel();
        let store = store.clone();
        std::thread::spawn(move || serve(receiver, store));
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

fn serve(mut streams: mpsc::UnboundedReceiver<std::net::TcpStream>, store: Store) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        while let Some(stream) = streams.recv().await {
            tokio::spawn(connection(TcpStream::from_std(stream)?, store.clone()));
        }
        Ok(())
    })
}

async fn connection(stream: TcpStream, store: Store) {
    let service = service_fn(|request| answer(request, store.clone()));
    // A client that disconnects is the normal end of a connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    store: Store,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    if let Some(store) = store
        && !keep(&head.headers, body, &store).await
    {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = http::StatusCode::BAD_REQUEST;
        return Ok(refused);
    }
    Ok(Response::new(Full::from(&br#"{"received":true}"#[..])))
}

/// Whether the event is genuine and on the disk.
async fn keep(headers: &HeaderMap, body: Bytes, store: &Durable) -> bool {
    let Some(id) = verified_id(&store.key, headers, &body) else { return false };
    let (stored, wait) = oneshot::channel();
    store.jobs.send(Job { id, body, stored }).is_ok() && wait.await.is_ok()
}

fn verified_id(key: &hmac::Key, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let (time, tag) = headers.get("restive-signature")?.to_str().ok()?.split_once(",v1=")?;
    let mut mac = hmac::Context::with_key(key);
    mac.update(time.strip_prefix("t=")?.as_bytes());
    mac.update(b".");
    mac.update(body);
    let byte = |place: usize| u8::from_str_radix(tag.get(place..place + 2)?, 16).ok();
    let tag: Vec<u8> = (0..tag.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    aws_lc_rs::constant_time::verify_slices_are_equal(mac.sign().as_ref(), &tag).ok()?;
    let event: Value = serde_json::from_slice(body).ok()?;
    Some(event["id"].as_str()?.to_owned())
}

fn start_writer(dir: &Path) -> Result<Arc<Durable>> {
    std::fs::create_dir_all(dir)?;
    let mut file = Connection::open(dir.join("bare.db"))?;
    file.pragma_update(None, "journal_mode", "WAL")?;
    file.pragma_update(None, "synchronous", "FULL")?;
    file.execute_batch(SCHEMA)?;
    let (sender, jobs) = blocking::channel::<Job>();
    std::thread::spawn(move || -> Result<()> {
        while let Ok(first) = jobs.recv() {
            let group: Vec<Job> =
                std::iter::once(first).chain(jobs.try_iter().take(GROUP - 1)).collect();
            write(&mut file, &group)?;
            for job in group {
                // The client may be gone.
                let _ = job.stored.send(());
            }
        }
        Ok(())
    });
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    Ok(Arc::new(Durable { key, jobs: sender }))
}

fn write(file: &mut Connection, group: &[Job]) -> Result<()> {
    let transaction = file.transaction().context("begin")?;
    {
        let sql = "INSERT INTO events (id, body) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
        let mut insert = transaction.prepare_cached(sql)?;
        for job in group {
            insert.execute(rusqlite::params![job.id, &job.body[..]])?;
        }
    }
    transaction.commit().context("commit")
}
