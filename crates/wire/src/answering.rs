//! How HTTP/2 and HTTP/3 answer a request on its stream: the exchange for the service, interim
//! responses while it works, the head of the response, and a body that is made while it is sent.
//! What the protocols do differently stands behind `Requesting` and `Sending`.

use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use crate::admission::Head;
use crate::body::{Body, ContinueSignal, Incoming};
use crate::call::PendingResponse;
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::fields::{self, Length, has_no_body};
use crate::hints::Hints;
use crate::limits::Limits;
use crate::memory::Charges;
use crate::pace::{Pace, floor_of_stream};
use crate::payload::{Chunks, Cut, Payload};
use crate::worker::{InFlight, Link, Worker};

/// The client is gone, too slow for too long, or the response cannot be completed.
#[derive(Debug)]
pub(crate) struct Aborted;

/// What may be sent before the response.
pub(crate) struct Interim {
    hints: Hints,
    continue_signal: Option<ContinueSignal>,
}

/// The request as the service sees it. `incoming` is its body, where one follows.
pub(crate) fn exchange(
    link: &Link,
    version: Version,
    client: IpAddr,
    head: Head,
    incoming: Option<impl Incoming + 'static>,
) -> (Exchange, Interim) {
    let worker = &link.worker;
    let hints = match worker.terms.early_hints.allowed(version, false) {
        true => Hints::open(),
        false => Hints::default(),
    };
    let is_awaited = incoming.is_some() && head.expects_continue;
    let continue_signal = is_awaited.then(ContinueSignal::default);
    let body = match incoming {
        None => Body::empty(),
        Some(incoming) => {
            let declared = head.declared_bytes;
            Body::stream(incoming, declared, continue_signal.clone(), &worker.limits)
        }
    };
    let exchange = Exchange {
        is_client_known: link.is_client_known(&head.headers),
        is_misdirected: link.is_misdirected(&head.headers),
        client_certificate: link.client_certificate(),
        is_proxied: link.is_proxied(),
        method: head.method,
        uri: head.uri,
        version,
        headers: head.headers,
        peer: link.peer(),
        local: worker.terms.local,
        client,
        is_secure: worker.terms.tls.is_some(),
        body,
        hints: hints.clone(),
    };
    (exchange, Interim { hints, continue_signal })
}

/// The stream of a request whose response is waited for.
pub(crate) trait Requesting {
    /// Sends an interim response.
    fn inform(&mut self, status: StatusCode, headers: HeaderMap);

    /// Does what else is to be done while the service works. Ready when the client has taken the
    /// request back or is gone.
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The service's response; none if the client has taken the request back or is gone. Interim
/// responses are sent in the meantime.
pub(crate) async fn wait(
    mut working: PendingResponse<'_>,
    Interim { hints, mut continue_signal }: Interim,
    stream: &mut impl Requesting,
) -> Option<Result<Response, Fault>> {
    poll_fn(|cx| {
        let outcome = working.poll(cx);
        for (status, mut headers) in hints.take(cx) {
            fields::strip(&mut headers);
            stream.inform(status, headers);
        }
        if let Poll::Ready(outcome) = outcome {
            return Poll::Ready(Some(outcome));
        }
        if continue_signal.as_ref().is_some_and(|continue_signal| continue_signal.wanted(cx)) {
            continue_signal = None;
            stream.inform(StatusCode::CONTINUE, HeaderMap::new());
        }
        stream.poll_cancelled(cx).map(|()| None)
    })
    .await
}

/// A response that cannot be sent is the service's fault. There is no 101 besides HTTP/1.1: a
/// take-over of an upgrade is answered 200, and no other response to one may look like success.
pub(crate) fn sendable(mut response: Response, upgrade: bool) -> Result<Response, Fault> {
    let taken_over = matches!(response.body, Payload::TakeOver(_));
    let switching = response.status == StatusCode::SWITCHING_PROTOCOLS;
    if upgrade && taken_over && switching {
        response.status = StatusCode::OK;
    }
    if response.status.is_informational() {
        return Err(Fault::Internal);
    }
    if upgrade && !taken_over && response.status.is_success() {
        return Err(Fault::Tunnel);
    }
    Ok(response)
}

/// Completes the head: the same as on HTTP/1.1, without what belongs to one connection. Returns
/// whether the response ends with it.
pub(crate) fn complete(worker: &Worker, response: &mut Response, is_head: bool) -> bool {
    let Response { status, headers, body, .. } = response;
    fields::strip(headers);
    match fields::response_length(*status, headers, body, is_head) {
        Length::NoBody | Length::Unknown => drop(headers.remove(CONTENT_LENGTH)),
        Length::AsSaid => {}
        Length::Bytes(bytes) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes))),
    }
    if !headers.contains_key(DATE) {
        headers.insert(DATE, worker.date.borrow_mut().value());
    }
    let is_empty = matches!(body, Payload::Whole(bytes) if bytes.is_empty());
    is_head || has_no_body(*status) || is_empty
}

/// A stream that a response is sent on.
pub(crate) trait Sending {
    /// Sends a piece, as fast as the client takes it.
    async fn piece(&mut self, piece: Bytes) -> Result<(), Aborted>;

    /// Ends the response.
    async fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), Aborted>;

    /// Ready when the client has taken the request back.
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Sends a body piece by piece, each charged while it waits for the client, and then the trailers.
pub(crate) async fn send_body(
    stream: &mut impl Sending,
    mut chunks: Box<dyn Chunks>,
    charges: &Charges,
    patience: Duration,
) -> Result<(), Aborted> {
    let declared = chunks.length_bytes();
    let mut left = declared.unwrap_or(u64::MAX);
    loop {
        match next(stream, &mut *chunks).await {
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => {
                // More than was declared is as wrong as less.
                left = left.checked_sub(piece.len() as u64).ok_or(Aborted)?;
                let charge = charges.wait(piece.len(), patience).await;
                stream.piece(charge.ok_or(Aborted)?.cover(piece)).await?;
            }
            Some(Err(Cut)) => {
                tracing::debug!("the source of a response broke off");
                return Err(Aborted);
            }
            None if declared.is_some() && left > 0 => return Err(Aborted),
            None => break,
        }
    }
    let mut trailers = chunks.trailers().unwrap_or_default();
    fields::strip_trailers(&mut trailers);
    stream.end(Some(trailers).filter(|trailers| !trailers.is_empty())).await
}

/// The next piece. A client that takes its request back and a source that panics both cut the body.
async fn next(stream: &mut impl Sending, chunks: &mut dyn Chunks) -> Option<Result<Bytes, Cut>> {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| chunks.poll_chunk(cx)));
        match polled.unwrap_or(Poll::Ready(Some(Err(Cut)))) {
            Poll::Ready(piece) => Poll::Ready(piece),
            Poll::Pending => stream.poll_cancelled(cx).map(|()| Some(Err(Cut))),
        }
    })
    .await
}

/// How fast the client of a stream takes its response. The streams of a connection share the least
/// speed.
pub(crate) struct StreamPace<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) in_flight: InFlight,
    pace: Pace,
}

impl<'a> StreamPace<'a> {
    pub(crate) fn new(limits: &'a Limits, in_flight: InFlight) -> StreamPace<'a> {
        StreamPace { limits, in_flight, pace: Pace::default() }
    }

    /// Whether the client is fast enough, after it took so many bytes in so long.
    pub(crate) fn keeps(&mut self, waited: Duration, bytes: usize) -> Result<(), Aborted> {
        let floor = floor_of_stream(self.limits.floor_bytes, self.in_flight.streams());
        match self.pace.keeps(waited, bytes, self.limits.write_stall, floor) {
            true => Ok(()),
            false => Err(Aborted),
        }
    }
}
