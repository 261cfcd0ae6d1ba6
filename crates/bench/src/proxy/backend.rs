//! `bench bare-backend`: the backend of the scenarios that need more than fixed responses:
//! cacheable and slow ones, event streams, WebSockets, and POSTs that leave a trace on the disk.
//! Counts the requests that reach it.

use std::cell::Cell;
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::TcpListener;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tokio::time::{Interval, sleep};

use crate::bare_http::json;
use crate::http::Client;
use crate::options::Options;

use super::client::HOST;

/// The body of every response that is not named otherwise.
pub const BODY_BYTES: usize = 1024;
/// Fresh for a minute.
pub const CACHED: &str = "/cached/book_1";
/// The same after [`SLOW_TIME`].
pub const SLOW: &str = "/slow/book_1";
/// Long enough for a crowd of requests to arrive while the first is answered.
const SLOW_TIME: Duration = Duration::from_secs(1);
/// A response after [`DELAY`], so that some are always in flight.
pub const DELAYED: &str = "/delayed";
const DELAY: Duration = Duration::from_millis(10);
/// Numbered events, one in each [`EVENT_INTERVAL`].
pub const EVENTS: &str = "/events";
pub const EVENT_INTERVAL: Duration = Duration::from_millis(200);
pub const SOCKET: &str = "/socket";
/// A masked text frame of a client, with a mask of zeros, and the frame that answers it.
pub const PING: &[u8] = b"\x81\x84\0\0\0\0ping";
pub const PONG: &[u8] = b"\x81\x04pong";
/// The key of every client, and the answer to it, as in RFC 6455 1.3.
pub const SOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const SOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// `POST /effects?ID` appends the id to the file of this name in `--dir`.
pub const EFFECTS: &str = "/effects";
pub const EFFECTS_FILE: &str = "effects";
const COUNT: &str = "/count";
const HEALTH: &str = "/health";

/// The number of requests that reached the backend, without those for this count and for its
/// health.
pub fn count(address: &str) -> Result<u64> {
    let request = format!("GET {COUNT} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let answer = Client::connect(address)?.expect(200, request.as_bytes())?;
    String::from_utf8(answer.body)?.parse().context("the count is not a number")
}

type Answer = Response<Either<Full<Bytes>, Events>>;

struct Backend {
    requests: Cell<u64>,
    body: Bytes,
    effects: Option<File>,
}

/// Serves until it is killed.
pub fn run(options: &Options) -> Result<()> {
    let effects = options
        .dir
        .as_ref()
        .map(|dir| OpenOptions::new().create(true).append(true).open(dir.join(EFFECTS_FILE)));
    let effects = effects.transpose().context("cannot open the file of effects")?;
    let backend = Rc::new(Backend { requests: Cell::new(0), body: json(BODY_BYTES), effects });
    let listener = TcpListener::bind(options.listen.as_deref().unwrap_or("127.0.0.1:0"))?;
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        println!("listening on http://{}", listener.local_addr()?);
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let backend = backend.clone();
            spawn_local(async move {
                let service = service_fn(|request| {
                    let backend = backend.clone();
                    async move { Ok::<_, Infallible>(backend.answer(request).await) }
                });
                let connection = http1::Builder::new();
                let connection = connection.serve_connection(TokioIo::new(stream), service);
                // A client that disconnects is the normal end of a connection.
                let _ = connection.with_upgrades().await;
            });
        }
    })
}

impl Backend {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if path != COUNT && path != HEALTH {
            self.requests.set(self.requests.get() + 1);
        }
        match path {
            COUNT => whole(Bytes::from(self.requests.get().to_string())),
            EVENTS => events(),
            SOCKET => socket(request),
            EFFECTS if request.method() == Method::POST => {
                let answer = self.effect(&request);
                // A backend that is killed now has caused the effect and not responded.
                sleep(DELAY).await;
                answer
            }
            CACHED => cacheable(self.body.clone()),
            SLOW => {
                sleep(SLOW_TIME).await;
                cacheable(self.body.clone())
            }
            DELAYED => {
                sleep(DELAY).await;
                whole(self.body.clone())
            }
            _ => whole(self.body.clone()),
        }
    }

    /// One write, so that a backend that is killed leaves whole lines.
    fn effect(&self, request: &Request<Incoming>) -> Answer {
        let id = request.uri().query().unwrap_or_default();
        let written =
            self.effects.as_ref().map(|mut file| file.write_all(format!("{id}\n").as_bytes()));
        let mut answer = whole(self.body.clone());
        if written.is_none_or(|written| written.is_err()) {
            *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        answer
    }
}

fn whole(body: Bytes) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body)));
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    answer
}

fn cacheable(body: Bytes) -> Answer {
    let mut answer = whole(body);
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("max-age=60"));
    answer.headers_mut().insert("etag", HeaderValue::from_static("\"1\""));
    answer
}

fn events() -> Answer {
    let events = Events { interval: tokio::time::interval(EVENT_INTERVAL), number: 0 };
    let mut answer = Response::new(Either::Right(events));
    answer.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("no-cache"));
    answer
}

/// Switches to WebSocket and answers each [`PING`] with a [`PONG`].
fn socket(request: Request<Incoming>) -> Answer {
    let mut answer = whole(Bytes::new());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.remove("content-type");
    headers.insert("connection", HeaderValue::from_static("Upgrade"));
    headers.insert("upgrade", HeaderValue::from_static("websocket"));
    headers.insert("sec-websocket-accept", HeaderValue::from_static(SOCKET_ACCEPT));
    spawn_local(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let (mut stream, mut frame) = (TokioIo::new(upgraded), [0; PING.len()]);
        while stream.read_exact(&mut frame).await.is_ok() && frame == PING {
            if stream.write_all(PONG).await.is_err() {
                return;
            }
        }
    });
    answer
}

/// The body of an event stream without an end.
pub struct Events {
    interval: Interval,
    number: u64,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.interval.poll_tick(cx));
        self.number += 1;
        let event = format!("data: {}\n\n", self.number);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(event)))))
    }
}
