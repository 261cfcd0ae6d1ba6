//! The answer on its way out: the head, then the body as fast as the client opens its windows, then
//! trailers; or the stream handed over to the service.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use tokio::time::{Instant, timeout};

use super::channel::{Channel, Ends};
use super::remainder::Remainder;
use crate::answering::{self, Aborted, Sending, StreamPace};
use crate::call::ChargedResponse;
use crate::exchange::Response;
use crate::payload::Payload;
use crate::raw::Raw;
use crate::worker::{InFlight, Worker};

/// What of the request decides about its answer.
pub(super) struct Outgoing {
    pub(super) is_head: bool,
    /// Where the client's bytes come from, if the stream can become a channel both ways.
    pub(super) channel: Option<RecvStream>,
    /// What the service may leave of the body.
    pub(super) remainder: Option<Remainder>,
}

impl Outgoing {
    /// Discards what is not wanted of the body, as far as it has arrived.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) {
        if let Some(remainder) = &self.remainder {
            let _ = remainder.poll_discard(cx);
        }
    }
}

pub(super) async fn send(
    worker: &Worker,
    mut respond: SendResponse<Bytes>,
    ChargedResponse { mut response, charge, charges }: ChargedResponse,
    mut outgoing: Outgoing,
    in_flight: InFlight,
) {
    worker.terms.advertise(&mut response.headers);
    let ends = answering::complete(worker, &mut response, outgoing.is_head);
    let Response { status, headers, body, .. } = response;
    let mut head = http::Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers;
    let Ok(stream) = respond.send_response(head, ends) else { return };
    let mut sending = SendingStream { stream, pace: StreamPace::new(&worker.limits, in_flight) };
    let sent = match body {
        _ if ends => Ok(()),
        Payload::Whole(bytes) => {
            let bytes = match charge {
                Some(charge) => charge.cover(bytes),
                None => bytes,
            };
            discarding(&outgoing, sending.data(bytes, true)).await
        }
        Payload::Stream(chunks) => {
            drop(charge);
            let patience = worker.limits.write_stall;
            let body = answering::send_body(&mut sending, chunks, &charges, patience);
            discarding(&outgoing, body).await
        }
        Payload::TakeOver(run) => {
            drop(charge);
            let SendingStream { stream, pace } = sending;
            let channel = Channel::new(Ends::new(stream, outgoing.channel.take(), charges));
            let raw = Raw::over(channel, worker.shutdown.clone());
            return run.start(raw, Box::new(pace.in_flight));
        }
        // Awaited before.
        Payload::Later(_) => Err(Aborted),
    };
    if sent.is_err() {
        // The client must not take half a response for a whole one.
        sending.stream.send_reset(Reason::INTERNAL_ERROR);
    } else if let Some(remainder) = outgoing.remainder
        && remainder.is_unwanted()
    {
        // As long as on HTTP/1.1. Later the stream is dropped, which stops the client (NO_ERROR).
        let rest = poll_fn(|cx| remainder.poll_discard(cx));
        let _ = timeout(worker.limits.linger_timeout, rest).await;
    }
}

/// Sends, and discards in the meantime what the service does not want of the body.
async fn discarding<T>(outgoing: &Outgoing, sending: impl Future<Output = T>) -> T {
    let mut sending = pin!(sending);
    poll_fn(|cx| {
        outgoing.poll_discard(cx);
        sending.as_mut().poll(cx)
    })
    .await
}

/// A stream that a response is sent on.
struct SendingStream<'a> {
    stream: SendStream<Bytes>,
    pace: StreamPace<'a>,
}

impl SendingStream<'_> {
    /// Sends all of it, waiting for the client's windows.
    async fn data(&mut self, mut bytes: Bytes, last: bool) -> Result<(), Aborted> {
        while !bytes.is_empty() {
            self.stream.reserve_capacity(bytes.len());
            if self.stream.capacity() == 0 {
                self.capacity().await?;
                continue;
            }
            let piece = bytes.split_to(bytes.len().min(self.stream.capacity()));
            let ends = last && bytes.is_empty();
            self.stream.send_data(piece, ends).map_err(|_| Aborted)?;
        }
        Ok(())
    }

    /// Waits until the client takes more, if it takes enough.
    async fn capacity(&mut self) -> Result<(), Aborted> {
        let stream = &mut self.stream;
        let began = Instant::now();
        let capacity = poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            stream.poll_capacity(cx)
        });
        match timeout(self.pace.limits.write_stall, capacity).await {
            Ok(Some(Ok(bytes))) => self.pace.keeps(began.elapsed(), bytes),
            _ => Err(Aborted),
        }
    }
}

impl Sending for SendingStream<'_> {
    async fn piece(&mut self, piece: Bytes) -> Result<(), Aborted> {
        self.data(piece, false).await
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), Aborted> {
        let ended = match trailers {
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(Bytes::new(), true),
        };
        ended.map_err(|_| Aborted)
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(drop)
    }
}
