//! The answer on its way out: a small one leaves whole, a large one as fast as the client opens its
//! windows, then trailers; or the stream is handed over to the service.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode};
use quinn::{SendStream, VarInt};
use tokio::time::{Instant, timeout};

use super::channel::{Channel, Ends};
use super::connection::UnderWay;
use super::frames::{self, Code};
use super::inflow::{Inflow, Leftover};
use super::qpack;
use super::window::Windows;
use crate::call::Covered;
use crate::exchange::Response;
use crate::fields;
use crate::limits::Limits;
use crate::memory::Charges;
use crate::pace::{Pace, floor_of_stream};
use crate::payload::{Chunks, Cut, Holding, Payload};
use crate::raw::Raw;
use crate::worker::Worker;

/// Copying so many bytes behind the head costs less than a second piece.
const COPIED_BYTES: usize = 4 * 1024;
/// What quinn holds of an answer, some megabytes, may take a slow client so many times the longest
/// stall to receive.
const LAST_STALLS: u32 = 20;

/// The client is gone, too slow for too long, or the answer cannot be completed.
#[derive(Debug)]
pub(super) struct Broken;

/// Completes when the client has taken the stream back, or has all of it, or is gone.
pub(super) type Stopped = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Where an answer goes. One that is not completed is reset: dropped by itself a stream of QUIC
/// ends in good order, and the client would take half an answer for a whole one.
#[derive(Debug)]
pub(super) struct Outlet {
    sending: SendStream,
    complete: bool,
}

impl Outlet {
    pub(super) fn new(sending: SendStream) -> Outlet {
        Outlet { sending, complete: false }
    }

    pub(super) fn reset(mut self, code: VarInt) {
        self.complete = true;
        let _ = self.sending.reset(code);
    }

    pub(super) fn finish(&mut self) {
        self.complete = true;
        let _ = self.sending.finish();
    }

    pub(super) fn stopped(&self) -> Stopped {
        let stopped = self.sending.stopped();
        Box::pin(async move { drop(stopped.await) })
    }

    /// Passes on as much as there is room for.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Broken>> {
        Pin::new(&mut self.sending).poll_write(cx, bytes).map_err(|_| Broken)
    }

    /// The same without a copy; what is left stays in `bytes`.
    pub(super) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<Result<(), Broken>> {
        let written = ready!(pin!(self.sending.write_chunks(std::slice::from_mut(bytes))).poll(cx));
        Poll::Ready(written.map(drop).map_err(|_| Broken))
    }

    /// Passes on all of it.
    pub(super) fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<Result<(), Broken>> {
        while !bytes.is_empty() {
            let count = ready!(self.poll_write(cx, bytes))?;
            bytes.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// None of them empty. As fast as the client takes them, if it takes enough.
    async fn write(
        &mut self,
        mut parts: &mut [Bytes],
        tempo: &mut Tempo<'_>,
    ) -> Result<(), Broken> {
        while !parts.is_empty() {
            let began = Instant::now();
            let stall = tempo.limits.write_stall;
            match timeout(stall, self.sending.write_chunks(parts)).await {
                Ok(Ok(written)) if tempo.keeps(began.elapsed(), written.bytes) => {
                    parts = &mut parts[written.chunks..];
                }
                _ => return Err(Broken),
            }
        }
        Ok(())
    }
}

/// How fast a client takes its answer.
struct Tempo<'a> {
    limits: &'a Limits,
    under_way: &'a UnderWay,
    pace: Pace,
}

impl Tempo<'_> {
    fn keeps(&mut self, waited: Duration, bytes: usize) -> bool {
        let floor = floor_of_stream(self.limits.floor_bytes, self.under_way.streams());
        self.pace.keeps(waited, bytes, self.limits.write_stall, floor)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if !self.complete {
            // One that the client has stopped is not our fault.
            let mut cx = Context::from_waker(Waker::noop());
            let stopped = pin!(self.sending.stopped()).poll(&mut cx);
            let _ = self.sending.reset(match stopped {
                Poll::Ready(Ok(Some(_))) => Code::REQUEST_CANCELLED,
                _ => Code::INTERNAL_ERROR,
            });
        }
    }
}

/// What of the request decides about its answer.
pub(super) struct Outgoing {
    pub(super) is_head: bool,
    /// Where the client's bytes come from, if the stream can become a channel both ways.
    pub(super) channel: Option<Inflow>,
    /// Interim answers that have not left yet.
    pub(super) interim: Bytes,
    pub(super) leftover: Arc<Leftover>,
    pub(super) windows: Windows,
}

pub(super) async fn send(
    worker: &Worker,
    mut outlet: Outlet,
    Covered { mut response, charge, charges }: Covered,
    outgoing: Outgoing,
    under_way: UnderWay,
) {
    let ends = fields::complete(worker, &mut response, outgoing.is_head);
    let Response { status, headers, body, .. } = response;
    let stall = worker.limits.write_stall;
    let mut out = worker.scratch.take();
    out.clear();
    out.extend_from_slice(&outgoing.interim);
    write_head(&mut out, status, &headers);
    worker.spare(headers);
    let mut rest = Bytes::new();
    if let Payload::Whole(bytes) = &body
        && !ends
    {
        frames::write_head(&mut out, frames::DATA, bytes.len() as u64);
        match bytes.len() {
            0..=COPIED_BYTES => out.extend_from_slice(bytes),
            _ => rest = bytes.clone(),
        }
    }
    let mut head = Bytes::copy_from_slice(&out);
    worker.scratch.set(out);
    // QUIC holds them until the client has acknowledged them.
    if let Some(charge) = charge {
        let last = if rest.is_empty() { &mut head } else { &mut rest };
        *last = charge.cover(std::mem::take(last));
    }
    let parts: &mut [Bytes] = &mut [head, rest];
    let count = if parts[1].is_empty() { 1 } else { 2 };
    let is_long = count > 1 || matches!(body, Payload::Stream(_));
    let mut tempo = Tempo { limits: &worker.limits, under_way: &under_way, pace: Pace::default() };
    let mut sent = outlet.write(&mut parts[..count], &mut tempo).await;
    match body {
        _ if ends || sent.is_err() => {}
        // The latter was awaited before.
        Payload::Whole(_) | Payload::Later(_) => {}
        Payload::Stream(chunks) => {
            sent = stream_body(&mut outlet, chunks, &mut tempo, &charges).await;
        }
        Payload::TakeOver(run) => {
            let Outgoing { channel, leftover, windows, .. } = outgoing;
            let channel = Channel::new(Ends::new(outlet, channel, leftover, charges, windows));
            let raw = Raw::over_quic(channel, worker.shutdown.clone());
            return run.start(raw, Holding::Http3 { _under_way: under_way });
        }
    }
    if sent.is_ok() {
        outlet.finish();
        // The connection ends when the last stream is done or nothing was under way for a while,
        // and what the client has not received by then is lost. Small answers are received while
        // others are made.
        let patience = match (worker.draining.get(), is_long || under_way.is_leaving()) {
            (true, _) => worker.limits.linger_timeout,
            (false, true) => stall * LAST_STALLS,
            (false, false) => return,
        };
        let _ = timeout(patience, outlet.stopped()).await;
    }
}

/// Appends a head, interim or not.
pub(super) fn write_head(out: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap) {
    frames::write_headers(out, |out| qpack::write_head(out, status, headers));
}

async fn stream_body(
    outlet: &mut Outlet,
    mut chunks: Box<dyn Chunks>,
    tempo: &mut Tempo<'_>,
    charges: &Charges,
) -> Result<(), Broken> {
    let declared = chunks.length_bytes();
    let mut left = declared.unwrap_or(u64::MAX);
    let mut stopped = outlet.stopped();
    loop {
        match next(&mut stopped, &mut *chunks).await {
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => {
                // More than was declared is as wrong as less.
                left = left.checked_sub(piece.len() as u64).ok_or(Broken)?;
                let mut head = Vec::with_capacity(frames::HEAD_BYTES);
                frames::write_head(&mut head, frames::DATA, piece.len() as u64);
                let charge = charges.wait(piece.len(), tempo.limits.write_stall).await;
                let piece = charge.ok_or(Broken)?.cover(piece);
                outlet.write(&mut [head.into(), piece], tempo).await?;
            }
            Some(Err(Cut)) => {
                tracing::debug!("the source of an answer broke off");
                return Err(Broken);
            }
            None if declared.is_some() && left > 0 => return Err(Broken),
            None => break,
        }
    }
    let mut trailers = chunks.trailers().unwrap_or_default();
    fields::strip(&mut trailers);
    if trailers.is_empty() {
        return Ok(());
    }
    let mut out = Vec::new();
    frames::write_headers(&mut out, |out| qpack::write_trailers(out, &trailers));
    outlet.write(&mut [out.into()], tempo).await
}

/// The next piece; a client that takes its request back and a source that panics both cut it.
async fn next(stopped: &mut Stopped, chunks: &mut dyn Chunks) -> Option<Result<Bytes, Cut>> {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| chunks.poll_chunk(cx)));
        match polled.unwrap_or(Poll::Ready(Some(Err(Cut)))) {
            Poll::Ready(piece) => Poll::Ready(piece),
            Poll::Pending => stopped.as_mut().poll(cx).map(|()| Some(Err(Cut))),
        }
    })
    .await
}
