//! The answer on its way out: a small one leaves whole, a large one as fast as the client opens its
//! windows, then trailers; or the stream is handed over to the service.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode};
use quinn::{SendStream, VarInt};
use tokio::time::{Instant, timeout};

use super::channel::{Channel, Ends};
use super::frames::{self, Code};
use super::inflow::{Inflow, Leftover};
use super::qpack;
use super::window::Windows;
use crate::answering::{self, Aborted, Sending, StreamPace};
use crate::call::ChargedResponse;
use crate::exchange::Response;
use crate::payload::Payload;
use crate::raw::Raw;
use crate::worker::{InFlight, Worker};

/// Copying so many bytes behind the head costs less than a second piece.
const COPIED_BYTES: usize = 4 * 1024;
/// What quinn holds of an answer, some megabytes, may take a slow client so many times the longest
/// stall to receive.
const LAST_STALLS: u32 = 20;

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
    ) -> Poll<Result<usize, Aborted>> {
        Pin::new(&mut self.sending).poll_write(cx, bytes).map_err(|_| Aborted)
    }

    /// The same without a copy; what is left stays in `bytes`.
    pub(super) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<Result<(), Aborted>> {
        let written = ready!(pin!(self.sending.write_chunks(std::slice::from_mut(bytes))).poll(cx));
        Poll::Ready(written.map(drop).map_err(|_| Aborted))
    }

    /// Passes on all of it.
    pub(super) fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<Result<(), Aborted>> {
        while !bytes.is_empty() {
            let count = ready!(self.poll_write(cx, bytes))?;
            bytes.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends these parts, none of them empty, as fast as the client takes them, if it takes enough.
    async fn write(
        &mut self,
        mut parts: &mut [Bytes],
        pace: &mut StreamPace<'_>,
    ) -> Result<(), Aborted> {
        while !parts.is_empty() {
            let began = Instant::now();
            let stall = pace.limits.write_stall;
            let written = match timeout(stall, self.sending.write_chunks(parts)).await {
                Ok(Ok(written)) => written,
                _ => return Err(Aborted),
            };
            pace.keeps(began.elapsed(), written.bytes)?;
            parts = &mut parts[written.chunks..];
        }
        Ok(())
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
    ChargedResponse { mut response, charge, charges }: ChargedResponse,
    outgoing: Outgoing,
    in_flight: InFlight,
) {
    let ends = answering::complete(worker, &mut response, outgoing.is_head);
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
    let mut pace = StreamPace::new(&worker.limits, in_flight);
    let mut sent = outlet.write(&mut parts[..count], &mut pace).await;
    match body {
        _ if ends || sent.is_err() => {}
        // The latter was awaited before.
        Payload::Whole(_) | Payload::Later(_) => {}
        Payload::Stream(chunks) => {
            let stopped = outlet.stopped();
            let mut stream = SendingStream { outlet: &mut outlet, pace: &mut pace, stopped };
            sent = answering::send_body(&mut stream, chunks, &charges, stall).await;
        }
        Payload::TakeOver(run) => {
            let Outgoing { channel, leftover, windows, .. } = outgoing;
            let channel = Channel::new(Ends::new(outlet, channel, leftover, charges, windows));
            let raw = Raw::over(channel, worker.shutdown.clone());
            return run.start(raw, Box::new(pace.in_flight));
        }
    }
    if sent.is_ok() {
        outlet.finish();
        // The connection ends when the last stream is done or nothing was under way for a while,
        // and what the client has not received by then is lost. Small answers are received while
        // others are made.
        let patience = match (worker.draining.get(), is_long || pace.in_flight.is_leaving()) {
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

/// A stream on which a body is sent piece by piece.
struct SendingStream<'a, 'l> {
    outlet: &'a mut Outlet,
    pace: &'a mut StreamPace<'l>,
    stopped: Stopped,
}

impl Sending for SendingStream<'_, '_> {
    async fn piece(&mut self, piece: Bytes) -> Result<(), Aborted> {
        let mut head = Vec::with_capacity(frames::HEAD_BYTES);
        frames::write_head(&mut head, frames::DATA, piece.len() as u64);
        self.outlet.write(&mut [head.into(), piece], self.pace).await
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), Aborted> {
        let Some(trailers) = trailers else { return Ok(()) };
        let mut out = Vec::new();
        frames::write_headers(&mut out, |out| qpack::write_trailers(out, &trailers));
        self.outlet.write(&mut [out.into()], self.pace).await
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stopped.as_mut().poll(cx)
    }
}
