//! The body of an answer: bytes that are there, a stream of pieces taken as fast as the client
//! reads, or the connection itself handed over to the service.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use pin_project_lite::pin_project;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::Answer;
use crate::raw::Raw;

/// What follows the head of an answer.
pub enum Payload {
    Whole(Bytes),
    Stream(Box<dyn Chunks>),
    /// The service goes on with the byte stream itself once the head is written.
    TakeOver(TakeOver),
    /// The answer comes when something happens that may take long. Whatever else the service needed
    /// to get so far is given back, including the place among concurrent requests. Status and
    /// headers of this response are ignored. A client that closes its side is not waited for.
    Later(Answer<'static>),
}

/// What the service does with a connection it has taken over. It runs in a small task of its own;
/// the connection closes when it ends. A stream that waits costs what this future is large: a block
/// (`move |raw| async move { … }`) holds the stream once, an `async fn` its argument twice.
pub struct TakeOver(Box<dyn FnOnce(Raw, Guard) + Send>);

/// What the server counts a connection or a stream by. Dropped when the service is done with it.
pub(crate) type Guard = Box<dyn Any>;

impl TakeOver {
    /// Begins, in a task of its own: what answering needed is given back.
    pub(crate) fn start(self, raw: Raw, guard: Guard) {
        (self.0)(raw, guard);
    }
}

pin_project! {
    /// The service's future and what is held for it, in the memory of one task.
    struct Running<F> {
        #[pin]
        future: F,
        guard: Guard,
    }
}

impl<F: Future<Output = ()>> Future for Running<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().future.poll(cx)
    }
}

/// A body that is made while it is sent. It is asked for a piece only when the last one has gone.
pub trait Chunks: Send {
    /// The whole length where it is known before. One that is not kept cuts the connection: the
    /// client must not take half an answer for a whole one.
    fn length_bytes(&self) -> Option<u64> {
        None
    }

    /// The next piece, or none at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>>;

    /// Fields after the last piece. Sent only where the protocol and the framing have a place for
    /// them.
    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }
}

/// The source of a stream broke off: the answer cannot be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut;

/// The client is gone and reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Payload {
    /// A body written by another task. At most `pieces` of them wait for the client.
    pub fn channel(length_bytes: Option<u64>, pieces: usize) -> (Sender, Payload) {
        let (sender, receiver) = mpsc::channel(pieces.max(1));
        let chunks = Channel { receiver, length_bytes, trailers: None };
        (Sender(sender), Payload::Stream(Box::new(chunks)))
    }

    pub fn take_over<F>(run: impl FnOnce(Raw) -> F + Send + 'static) -> Payload
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Payload::TakeOver(TakeOver(Box::new(move |raw, guard| {
            // Created before the task, so that the task holds the stream only once.
            let future = run(raw);
            drop(spawn_local(Running { future, guard }));
        })))
    }

    /// The length, where it is known before the body is sent.
    pub fn length_bytes(&self) -> Option<u64> {
        match self {
            Payload::Whole(bytes) => Some(bytes.len() as u64),
            Payload::Stream(chunks) => chunks.length_bytes(),
            Payload::TakeOver(_) | Payload::Later(_) => None,
        }
    }
}

impl Default for Payload {
    fn default() -> Payload {
        Payload::Whole(Bytes::new())
    }
}

impl<B: Into<Bytes>> From<B> for Payload {
    fn from(bytes: B) -> Payload {
        Payload::Whole(bytes.into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Whole(bytes) => formatter.debug_tuple("Whole").field(bytes).finish(),
            Payload::Stream(_) => formatter.write_str("Stream"),
            Payload::TakeOver(_) => formatter.write_str("TakeOver"),
            Payload::Later(_) => formatter.write_str("Later"),
        }
    }
}

/// The writing end of [`Payload::channel`]. Dropped without [`Sender::finish`] the answer counts as
/// broken off.
#[derive(Debug)]
pub struct Sender(mpsc::Sender<Item>);

#[derive(Debug)]
enum Item {
    Chunk(Bytes),
    End(Option<HeaderMap>),
}

impl Sender {
    /// Waits until there is room.
    pub async fn send(&self, chunk: impl Into<Bytes>) -> Result<(), Gone> {
        self.0.send(Item::Chunk(chunk.into())).await.map_err(|_| Gone)
    }

    /// Ends the body in good order.
    pub async fn finish(self, trailers: Option<HeaderMap>) -> Result<(), Gone> {
        self.0.send(Item::End(trailers)).await.map_err(|_| Gone)
    }
}

struct Channel {
    receiver: mpsc::Receiver<Item>,
    length_bytes: Option<u64>,
    trailers: Option<HeaderMap>,
}

impl Chunks for Channel {
    fn length_bytes(&self) -> Option<u64> {
        self.length_bytes
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        Poll::Ready(match ready!(self.receiver.poll_recv(cx)) {
            Some(Item::Chunk(bytes)) => Some(Ok(bytes)),
            Some(Item::End(trailers)) => {
                self.trailers = trailers;
                None
            }
            None => Some(Err(Cut)),
        })
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}
