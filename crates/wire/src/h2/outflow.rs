//! The answer on its way out: the head, then the body as fast as the client opens its windows, then
//! trailers; or the stream handed over to the service.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::time::timeout;

use super::channel::{Channel, Ends};
use super::connection::UnderWay;
use crate::body::Remainder;
use crate::exchange::Response;
use crate::fields;
use crate::payload::{Chunks, Cut, Holding, Payload};
use crate::raw::Raw;
use crate::worker::Worker;

/// What of the request decides about its answer.
pub(super) struct Outgoing {
    pub(super) is_head: bool,
    /// Where the client's bytes come from, if the stream can become a channel both ways.
    pub(super) channel: Option<RecvStream>,
    /// What the service may leave of the body.
    pub(super) remainder: Option<Remainder>,
}

impl Outgoing {
    /// Takes what nobody wants of the body, as far as it has arrived.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) {
        if let Some(remainder) = &self.remainder {
            let _ = remainder.poll_discard(cx);
        }
    }
}

/// The client is gone, too slow for too long, or the answer cannot be completed.
struct Broken;

pub(super) async fn send(
    worker: &Worker,
    mut respond: SendResponse<Bytes>,
    mut response: Response,
    mut outgoing: Outgoing,
    under_way: UnderWay,
) {
    worker.terms.advertise(&mut response.headers);
    let ends = fields::complete(worker, &mut response, outgoing.is_head);
    let Response { status, headers, body } = response;
    let mut head = http::Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers;
    let Ok(mut stream) = respond.send_response(head, ends) else { return };
    let stall = worker.limits.write_stall;
    let sent = match body {
        _ if ends => Ok(()),
        Payload::Whole(bytes) => beside(&outgoing, data(&mut stream, bytes, true, stall)).await,
        Payload::Stream(chunks) => beside(&outgoing, stream_body(&mut stream, chunks, stall)).await,
        Payload::TakeOver(run) => {
            let channel = Channel::new(Ends::new(stream, outgoing.channel.take()));
            let raw = Raw::over(channel, worker.shutdown.clone());
            return run.start(raw, Holding::Http2 { _under_way: under_way });
        }
        // Awaited before.
        Payload::Later(_) => Err(Broken),
    };
    if sent.is_err() {
        // The client must not take half an answer for a whole one.
        stream.send_reset(Reason::INTERNAL_ERROR);
    } else if let Some(remainder) = outgoing.remainder
        && remainder.is_unwanted()
    {
        // As long as on HTTP/1.1. Later the stream is dropped, which stops the client (NO_ERROR).
        let rest = poll_fn(|cx| remainder.poll_discard(cx));
        let _ = timeout(worker.limits.linger_timeout, rest).await;
    }
}

/// Sends, and takes meanwhile what nobody wants.
async fn beside<T>(outgoing: &Outgoing, sending: impl Future<Output = T>) -> T {
    let mut sending = pin!(sending);
    poll_fn(|cx| {
        outgoing.poll_discard(cx);
        sending.as_mut().poll(cx)
    })
    .await
}

/// Sends all of it, waiting for the client's windows.
async fn data(
    stream: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    last: bool,
    stall: Duration,
) -> Result<(), Broken> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        if stream.capacity() == 0 {
            let capacity = poll_fn(|cx| {
                if stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(None);
                }
                stream.poll_capacity(cx)
            });
            match timeout(stall, capacity).await {
                Ok(Some(Ok(_))) => continue,
                _ => return Err(Broken),
            }
        }
        let piece = bytes.split_to(bytes.len().min(stream.capacity()));
        let ends = last && bytes.is_empty();
        stream.send_data(piece, ends).map_err(|_| Broken)?;
    }
    Ok(())
}

async fn stream_body(
    stream: &mut SendStream<Bytes>,
    mut chunks: Box<dyn Chunks>,
    stall: Duration,
) -> Result<(), Broken> {
    let declared = chunks.length_bytes();
    let mut left = declared.unwrap_or(u64::MAX);
    loop {
        match next(stream, &mut *chunks).await {
            Some(Ok(piece)) => {
                // More than was declared is as wrong as less.
                left = left.checked_sub(piece.len() as u64).ok_or(Broken)?;
                data(stream, piece, false, stall).await?;
            }
            Some(Err(Cut)) => {
                tracing::debug!("the source of an answer broke off");
                return Err(Broken);
            }
            None if declared.is_some() && left > 0 => return Err(Broken),
            None => break,
        }
    }
    let trailers = chunks.trailers().map(|mut trailers| {
        fields::strip(&mut trailers);
        trailers
    });
    let ended = match trailers.filter(|trailers| !trailers.is_empty()) {
        Some(trailers) => stream.send_trailers(trailers),
        None => stream.send_data(Bytes::new(), true),
    };
    ended.map_err(|_| Broken)
}

/// The next piece; a client that takes its request back and a source that panics both cut it.
async fn next(
    stream: &mut SendStream<Bytes>,
    chunks: &mut dyn Chunks,
) -> Option<Result<Bytes, Cut>> {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| chunks.poll_chunk(cx)));
        match polled.unwrap_or(Poll::Ready(Some(Err(Cut)))) {
            Poll::Ready(piece) => Poll::Ready(piece),
            Poll::Pending => stream.poll_reset(cx).map(|_| Some(Err(Cut))),
        }
    })
    .await
}
