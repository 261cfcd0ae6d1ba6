//! One connection from its first byte to its last: requests in, responses out, and a graceful end.
//! Everything here stays on one thread.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::admission::Framing;
use super::encode::{self, After};
use super::head::{self, Head, Scan};
use super::inflow::{Inflow, Progress, read_into};
use super::outflow::{Gone, Next, Outgoing, Work};
use super::watch::Watch;
use crate::body::Body;
use crate::call::{self, PendingResponse};
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::hints::Hints;
use crate::payload::{Payload, TakeOver};
use crate::preface;
use crate::raw::Raw;
use crate::stream::Stream;
use crate::worker::{Buffer, Link, Phase, Worker};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Requests answered in a row before other connections have their turn.
const MAX_IN_A_ROW: usize = 16;
/// So much of a request that is refused is read, to see what it asks for: what browsers send.
const REFUSED_HEAD_BYTES: usize = 8 << 10;

pub(crate) struct Connection {
    pub(super) link: Rc<Link>,
    pub(super) stream: Stream,
    /// Bytes that arrived and are not used up; none while idle.
    pub(super) buffer: Option<Box<Buffer>>,
    /// The body of the request being answered, while it is not received completely.
    pub(super) inflow: Option<Box<Inflow>>,
    /// Interim answers that are not sent yet.
    pub(super) interim: Vec<u8>,
}

/// What follows HTTP/1.x on a connection.
pub(crate) enum Handover {
    Closed,
    /// The service goes on with it.
    TakenOver(TakeOver, Raw),
    /// It began with the preface of HTTP/2; these bytes were read.
    Http2(Stream, Bytes),
}

/// How a connection ends.
pub(super) enum Ending {
    /// The client is gone, or everything was sent.
    Drop,
    /// The client must not take this end for the end of its response.
    Abort,
    /// The last answer is written; let it arrive.
    Linger,
    /// One more answer: why there is no other.
    Refuse(Fault),
}

/// A request that the service has been given.
struct Begun<'w> {
    answer: Result<PendingResponse<'w>, Fault>,
    hints: Hints,
    outgoing: Outgoing,
}

/// What a wait for bytes brought.
enum Arrival {
    Bytes,
    End,
    Overdue,
    /// The server is going away and nothing has come.
    Drained,
}

impl Connection {
    pub(crate) fn new(link: Rc<Link>, stream: Stream) -> Connection {
        Connection { link, stream, buffer: None, inflow: None, interim: Vec::new() }
    }

    /// Serves requests until either side ends the connection, or it becomes something else.
    pub(crate) async fn serve(mut self) -> Handover {
        poll_fn(|cx| {
            self.link.remember(cx.waker());
            self.link.enter(Phase::Idle);
            Poll::Ready(())
        })
        .await;
        let worker = self.link.worker.clone();
        let mut in_a_row = 0;
        let ending = loop {
            // Steps that wait hold little; what is large lives only in those that do not. So the
            // task, which an idle connection keeps, stays small.
            let begun = match self.head().await {
                Ok(head) => self.begin(&worker, head),
                // Looked at only where HTTP/1.x ends, so it costs its requests nothing.
                Err(Ending::Refuse(_)) if self.link.is_unused() && self.has_preface() => {
                    return self.into_http2();
                }
                Err(ending) => break ending,
            };
            self.link.set_used();
            let (work, next) = match self.wait(begun).await {
                Some((outcome, outgoing)) => self.send(outcome, outgoing),
                None => break Ending::Drop,
            };
            match (self.finish(work).await, next) {
                (Err(Gone::Client), _) => break Ending::Drop,
                (Err(Gone::Source), _) => break Ending::Abort,
                (Ok(()), Next::Request) => {}
                (Ok(()), Next::End) => break Ending::Linger,
                (Ok(()), Next::TakenOver(run)) => return self.taken_over(run),
            }
            self.link.enter(Phase::Idle);
            // Pipelined requests never wait, so nothing else would make room for the others.
            in_a_row = if self.buffer.is_some() { in_a_row + 1 } else { 0 };
            if in_a_row == MAX_IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
            }
        };
        self.link.leave();
        // Boxed: room for it must not be kept while the connection lives.
        match ending {
            Ending::Drop => self.stream.close_gracefully(),
            Ending::Abort => self.stream.abort(),
            Ending::Linger => {
                Box::pin(linger(self.into_stream(), &[], worker.limits.linger_timeout)).await;
            }
            Ending::Refuse(fault) => Box::pin(refuse(&worker, self.into_stream(), fault)).await,
        }
        Handover::Closed
    }

    /// Whether the bytes at hand are the beginning of HTTP/2, and may be.
    fn has_preface(&self) -> bool {
        let data = self.buffer.as_ref().map_or(&[][..], |buffer| buffer.data());
        self.link.worker.terms.takes_http2_unasked() && preface::is_http2(data)
    }

    fn into_http2(mut self) -> Handover {
        let before = self.take_before();
        self.link.leave();
        Handover::Http2(self.stream, before)
    }

    fn taken_over(self, run: TakeOver) -> Handover {
        Handover::TakenOver(run, self.into_raw())
    }

    /// What was read and not used up.
    fn take_before(&mut self) -> Bytes {
        self.buffer.take().map_or(Bytes::new(), |buffer| Bytes::copy_from_slice(buffer.data()))
    }

    fn into_stream(self) -> Stream {
        self.stream
    }

    fn into_raw(mut self) -> Raw {
        self.link.leave();
        let before = self.take_before();
        Raw::new(self.stream, before, self.link.worker.shutdown.clone())
    }

    /// The next request's head.
    async fn head(&mut self) -> Result<Head, Ending> {
        let mut scan = Scan::default();
        loop {
            if let Some(head) = self.find_head(&mut scan).map_err(Ending::Refuse)? {
                return Ok(head);
            }
            let begun = scan.begun();
            if begun {
                self.link.enter_once(Phase::Head);
                let worker = &self.link.worker;
                if worker.buffers.total_bytes() > worker.limits.buffer_bytes {
                    return Err(Ending::Refuse(Fault::Overloaded));
                }
            }
            match (self.more(begun).await, begun) {
                (Arrival::Bytes, _) => {}
                (Arrival::End, true) => {
                    let what = "The request ended before its headers were complete.";
                    return Err(Ending::Refuse(Fault::Malformed(what)));
                }
                (Arrival::Overdue, true) => return Err(Ending::Refuse(Fault::HeadTimeout)),
                // A request that has arrived is answered before the connection ends.
                (Arrival::Overdue | Arrival::Drained, _) if self.look() => {}
                (Arrival::End | Arrival::Overdue | Arrival::Drained, _) => {
                    return Err(Ending::Drop);
                }
            }
        }
    }

    /// Reads a head off the buffer, if it is complete.
    fn find_head(&mut self, scan: &mut Scan) -> Result<Option<Head>, Fault> {
        let Some(buffer) = &mut self.buffer else { return Ok(None) };
        let worker = &self.link.worker;
        let Some(end) = scan.find(buffer.data(), &worker.limits)? else { return Ok(None) };
        let bytes = worker.heads.copy(&buffer.data()[scan.start..end]);
        let head = head::read(&bytes, &worker.limits, worker.spare_headers())?;
        buffer.consume(end);
        Ok(Some(head))
    }

    /// Waits for bytes, without a buffer, and reads them into one.
    async fn more(&mut self, begun: bool) -> Arrival {
        poll_fn(|cx| {
            if self.link.overdue() {
                return Poll::Ready(Arrival::Overdue);
            }
            let buffers = &self.link.worker.buffers;
            if self.stream.poll_read_ready(cx).is_ready() {
                let buffer = self.buffer.get_or_insert_with(|| buffers.take());
                match read_into(cx, &mut self.stream, buffer) {
                    Poll::Ready(Ok(count)) if count > 0 => return Poll::Ready(Arrival::Bytes),
                    Poll::Ready(_) => return Poll::Ready(Arrival::End),
                    Poll::Pending => {}
                }
            }
            buffers.shrink(&mut self.buffer);
            match self.link.worker.draining.get() && !begun && !self.is_new() {
                true => Poll::Ready(Arrival::Drained),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Whether the client has just connected. Its request is probably on its way, and to close the
    /// connection would be to refuse it.
    fn is_new(&self) -> bool {
        let worker = &self.link.worker;
        let is_recent = |since| worker.elapsed(since) <= worker.limits.linger_timeout;
        self.link.is_unused()
            && worker.awaits_first_requests.get()
            && self.link.idle_since().is_some_and(is_recent)
    }

    /// Asks the socket itself for bytes the runtime may not have heard of: a request that has
    /// arrived before the server goes away is still answered.
    fn look(&mut self) -> bool {
        let mut buffer = self.buffer.take().unwrap_or_else(|| self.link.worker.buffers.take());
        let count = self.stream.read_now(buffer.room());
        buffer.filled(count);
        self.buffer = Some(buffer);
        count > 0
    }

    /// Gives a request to the service, if there is a place.
    fn begin<'w>(&mut self, worker: &'w Worker, head: Head) -> Begun<'w> {
        self.link.enter(Phase::Answering);
        let named = self.link.client(&head.headers);
        let client = named.unwrap_or(self.link.peer().ip());
        let outgoing = Outgoing {
            is_head: head.method == Method::HEAD,
            version: head.version,
            keep_alive: head.keep_alive,
            is_safe: head.method.is_safe(),
            network: client.into(),
        };
        let hints = match worker.terms.early_hints.allowed(head.version, head.navigates) {
            true => Hints::open(),
            false => Hints::default(),
        };
        let exchange = self.admit(head, client, hints.clone());
        let answer = named.and_then(|_| call::begin(worker, exchange));
        Begun { answer, hints, outgoing }
    }

    /// The request as the service sees it. What follows its head in the buffer is its body.
    fn admit(&mut self, head: Head, client: IpAddr, hints: Hints) -> Exchange {
        let limits = &self.link.worker.limits;
        let body = match (head.framing, &mut self.buffer) {
            (Framing::Sized(0), _) => Body::empty(),
            (Framing::Sized(length), Some(buffer)) if buffer.data().len() as u64 >= length => {
                let bytes = Bytes::copy_from_slice(&buffer.data()[..length as usize]);
                buffer.consume(length as usize);
                bytes.into()
            }
            (framing, _) => {
                let declared = match framing {
                    Framing::Sized(length) => Some(length),
                    Framing::Chunked => None,
                };
                let inflow = Inflow::new(framing, head.expects_continue);
                let body = Body::arriving(inflow.pipe(), declared, limits);
                self.inflow = Some(Box::new(inflow));
                body
            }
        };
        self.release();
        Exchange {
            is_client_known: self.link.is_client_known(&head.headers),
            is_misdirected: self.link.is_misdirected(&head.headers),
            client_certificate: self.link.client_certificate(),
            is_proxied: self.link.is_proxied(),
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers,
            peer: self.link.peer(),
            local: self.link.worker.terms.local,
            client,
            is_secure: self.link.worker.terms.tls.is_some(),
            body,
            hints,
        }
    }

    /// Whether the request is here to its last byte, used up or not.
    fn received(&mut self) -> bool {
        let Some(inflow) = &mut self.inflow else { return true };
        inflow.answered();
        inflow.skip(&mut self.buffer);
        let received = inflow.is_complete();
        if received {
            self.inflow = None;
        }
        self.release();
        received
    }

    /// Gives an empty buffer back.
    fn release(&mut self) {
        if let Some(buffer) = self.buffer.take_if(|buffer| buffer.data().is_empty()) {
            self.link.worker.buffers.give(buffer);
        }
    }

    /// The service's response; none if the client is gone before. In the meantime the body is fed
    /// to its reader and interim responses are sent.
    async fn wait(&mut self, begun: Begun<'_>) -> Option<(Result<Response, Fault>, Outgoing)> {
        let Begun { answer, hints, outgoing } = begun;
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return Some((Err(fault), outgoing)),
        };
        // Pipelined bytes, or an end of the client's sending side, stay readable: asked once.
        let mut watching = true;
        let follows = self.link.worker.service.stops_with_client();
        let mut watch = Watch::default();
        poll_fn(|cx| {
            loop {
                let outcome = answer.poll(cx);
                for (status, headers) in hints.take(cx) {
                    encode::interim(&mut self.interim, status, &headers);
                }
                if let Poll::Ready(outcome) = outcome {
                    return Poll::Ready(Some((outcome, outgoing)));
                }
                if self.poll_interim(cx).is_err() {
                    return Poll::Ready(None);
                }
                match self.poll_feed(cx) {
                    Progress::Fed => {}
                    Progress::Continue => self.interim.extend_from_slice(CONTINUE),
                    Progress::Waiting => break,
                }
            }
            if follows && !answer.waits() {
                return self.poll_left(cx, &mut watch).map(|()| None);
            }
            if watching && self.inflow.is_none() && self.stream.poll_read_ready(cx).is_ready() {
                let gone = match answer.waits() {
                    true => self.poll_end(cx, &mut watching),
                    false => {
                        watching = false;
                        !matches!(self.stream.take_error(), Ok(None))
                    }
                };
                if gone {
                    return Poll::Ready(None);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Whether the client has closed its side while its answer may take long. What it sent instead
    /// is its next request; then it is watched no more.
    fn poll_end(&mut self, cx: &mut Context<'_>, watching: &mut bool) -> bool {
        let buffers = &self.link.worker.buffers;
        let buffer = self.buffer.get_or_insert_with(|| buffers.take());
        let read = read_into(cx, &mut self.stream, buffer);
        *watching = read.is_pending();
        self.release();
        matches!(read, Poll::Ready(Ok(0) | Err(_)))
    }

    /// Encodes the answer and writes what the client takes at once. What is left to do, and what
    /// follows then.
    fn send(&mut self, outcome: Result<Response, Fault>, mut outgoing: Outgoing) -> (Work, Next) {
        // What follows a half request on this connection cannot be understood.
        let received = self.received();
        outgoing.keep_alive &= received;
        let response = outcome
            .and_then(|response| sendable(response, outgoing.version, received))
            .unwrap_or_else(|fault| call::refusal(&self.link.worker, fault));
        self.answer(response, outgoing)
    }

    pub(super) fn poll_feed(&mut self, cx: &mut Context<'_>) -> Progress {
        match &mut self.inflow {
            None => Progress::Waiting,
            Some(inflow) => {
                let buffers = &self.link.worker.buffers;
                inflow.poll(cx, &mut self.stream, &mut self.buffer, buffers)
            }
        }
    }

    /// Ready when the client is gone. While the body of the request arrives, its reader notices.
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>, watch: &mut Watch) -> Poll<()> {
        match &self.inflow {
            Some(inflow) if !inflow.is_complete() => Poll::Pending,
            _ => {
                let buffers = &self.link.worker.buffers;
                watch.poll(cx, &mut self.stream, &mut self.buffer, buffers)
            }
        }
    }

    /// Sends interim answers as far as the client takes them.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        while !self.interim.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.interim)? {
                Poll::Ready(count) => drop(self.interim.drain(..count)),
                Poll::Pending => return Ok(()),
            }
        }
        let _ = Pin::new(&mut self.stream).poll_flush(cx)?;
        // They are rare: the memory is not kept for the next.
        self.interim = Vec::new();
        Ok(())
    }
}

/// An answer that cannot stand on the wire is the service's fault. A connection can be taken over
/// only behind a whole request: the rest of its body would be read as something else.
fn sendable(response: Response, version: Version, received: bool) -> Result<Response, Fault> {
    let taken_over = matches!(response.body, Payload::TakeOver(_));
    let interim = response.status.is_informational();
    let switching = response.status == StatusCode::SWITCHING_PROTOCOLS;
    let wrong = match (interim, taken_over) {
        (true, true) => !switching || version < Version::HTTP_11 || !received,
        (true, false) => true,
        (false, true) => !received,
        (false, false) => false,
    };
    if wrong { Err(Fault::Internal) } else { Ok(response) }
}

/// Refuses a connection that has no place, in the form that its client understands: the request is
/// read for that, if it comes soon.
pub(crate) async fn refuse_overloaded(worker: &Worker, mut stream: Stream) {
    let headers = timeout(worker.limits.linger_timeout, asked(worker, &mut stream)).await;
    let headers = headers.ok().flatten().unwrap_or_default();
    refuse(worker, stream, Fault::overloaded(&headers)).await;
}

/// The headers of the first request, if they are no longer than usual.
async fn asked(worker: &Worker, stream: &mut Stream) -> Option<HeaderMap> {
    let mut bytes = Vec::with_capacity(1024);
    let mut scan = Scan::default();
    loop {
        if let Some(end) = scan.find(&bytes, &worker.limits).ok()? {
            let head = Bytes::copy_from_slice(&bytes[scan.start..end]);
            return Some(head::read(&head, &worker.limits, HeaderMap::new()).ok()?.headers);
        }
        if bytes.len() >= REFUSED_HEAD_BYTES || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Writes the refusal and ends the connection.
pub(crate) async fn refuse(worker: &Worker, stream: Stream, fault: Fault) {
    let Response { status, headers, body, .. } = call::refusal(worker, fault);
    let body = match body {
        Payload::Whole(bytes) => bytes,
        Payload::Stream(_) | Payload::TakeOver(_) | Payload::Later(_) => Bytes::new(),
    };
    let mut bytes = Vec::with_capacity(512 + body.len());
    let length = encode::Length::Bytes(body.len() as u64);
    let date = &worker.date;
    encode::head(&mut bytes, status, &headers, length, After::Close, &mut date.borrow_mut());
    bytes.extend_from_slice(&body);
    linger(stream, &bytes, worker.limits.linger_timeout).await;
}

/// Writes the last bytes, says that no more follow, and takes what still arrives until the client
/// closes: closing over unread bytes would reset the connection and lose the answer.
async fn linger(mut stream: Stream, last: &[u8], patience: Duration) {
    let _ = timeout(patience, async {
        stream.write_all(last).await?;
        stream.shutdown().await?;
        let mut sink = [0; 4096];
        while stream.read(&mut sink).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task_bytes<F: Future>(_: impl FnOnce(Connection) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connections_task_stays_small() {
        // What 15,000 idle connections cost is this, the runtime's part (some 600 bytes) and the
        // link: a large value held over a wait would show here first.
        let bytes = task_bytes(Connection::serve) + size_of::<Link>();
        assert!(bytes <= 512, "{bytes}");
    }
}
