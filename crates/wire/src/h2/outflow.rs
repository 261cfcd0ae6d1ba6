//! The answer on its way out: the head, then the body as fast as the client opens its windows, then
//! trailers; or the stream handed over to the service.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::time::{Instant, timeout};

use super::channel::{Channel, Ends};
use super::connection::UnderWay;
use crate::body::Remainder;
use crate::call::Covered;
use crate::exchange::Response;
use crate::fields;
use crate::limits::Limits;
use crate::memory::Charges;
use crate::pace::{Pace, floor_of_stream};
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
    Covered { mut response, charge, charges }: Covered,
    mut outgoing: Outgoing,
    under_way: UnderWay,
) {
    worker.terms.advertise(&mut response.headers);
    let ends = fields::complete(worker, &mut response, outgoing.is_head);
    let Response { status, headers, body, .. } = response;
    let mut head = http::Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers;
    let Ok(stream) = respond.send_response(head, ends) else { return };
    let mut sending = Sending { stream, limits: &worker.limits, pace: Pace::default(), under_way };
    let sent = match body {
        _ if ends => Ok(()),
        Payload::Whole(bytes) => {
            let bytes = match charge {
                Some(charge) => charge.cover(bytes),
                None => bytes,
            };
            beside(&outgoing, sending.data(bytes, true)).await
        }
        Payload::Stream(chunks) => {
            drop(charge);
            beside(&outgoing, sending.body(chunks, &charges)).await
        }
        Payload::TakeOver(run) => {
            drop(charge);
            let Sending { stream, under_way, .. } = sending;
            let channel = Channel::new(Ends::new(stream, outgoing.channel.take(), charges));
            let raw = Raw::over(channel, worker.shutdown.clone());
            return run.start(raw, Holding::Http2 { _under_way: under_way });
        }
        // Awaited before.
        Payload::Later(_) => Err(Broken),
    };
    if sent.is_err() {
        // The client must not take half an answer for a whole one.
        sending.stream.send_reset(Reason::INTERNAL_ERROR);
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

/// A stream that an answer is sent on.
struct Sending<'a> {
    stream: SendStream<Bytes>,
    limits: &'a Limits,
    pace: Pace,
    under_way: UnderWay,
}

impl Sending<'_> {
    /// Sends all of it, waiting for the client's windows.
    async fn data(&mut self, mut bytes: Bytes, last: bool) -> Result<(), Broken> {
        while !bytes.is_empty() {
            self.stream.reserve_capacity(bytes.len());
            if self.stream.capacity() == 0 {
                self.capacity().await?;
                continue;
            }
            let piece = bytes.split_to(bytes.len().min(self.stream.capacity()));
            let ends = last && bytes.is_empty();
            self.stream.send_data(piece, ends).map_err(|_| Broken)?;
        }
        Ok(())
    }

    /// Waits until the client takes more, if it takes enough.
    async fn capacity(&mut self) -> Result<(), Broken> {
        let (stream, limits) = (&mut self.stream, self.limits);
        let began = Instant::now();
        let capacity = poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            stream.poll_capacity(cx)
        });
        let bytes = match timeout(limits.write_stall, capacity).await {
            Ok(Some(Ok(bytes))) => bytes,
            _ => return Err(Broken),
        };
        let floor = floor_of_stream(limits.floor_bytes, self.under_way.streams());
        match self.pace.keeps(began.elapsed(), bytes, limits.write_stall, floor) {
            true => Ok(()),
            false => Err(Broken),
        }
    }

    async fn body(&mut self, mut chunks: Box<dyn Chunks>, charges: &Charges) -> Result<(), Broken> {
        let declared = chunks.length_bytes();
        let mut left = declared.unwrap_or(u64::MAX);
        loop {
            match next(&mut self.stream, &mut *chunks).await {
                Some(Ok(piece)) => {
                    // More than was declared is as wrong as less.
                    left = left.checked_sub(piece.len() as u64).ok_or(Broken)?;
                    let charge = charges.wait(piece.len(), self.limits.write_stall).await;
                    self.data(charge.ok_or(Broken)?.cover(piece), false).await?;
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
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(Bytes::new(), true),
        };
        ended.map_err(|_| Broken)
    }
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
