//! One stream: its head is read and admitted, the service called, early hints and the answer sent.
//! What the service reads of the body comes straight from QUIC, through `inflow`.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use quinn::{RecvStream, SendStream};
use tokio::time::timeout;

use super::connection::{Line, UnderWay};
use super::frames::Code;
use super::inflow::{End, Inflow};
use super::message::{self, Refusal};
use super::outflow::{self, Outgoing, Outlet, Stopped};
use crate::admission::{self, Head};
use crate::body::{Body, Invitation};
use crate::call::{self, Asker, Working};
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::fields;
use crate::hints::Hints;
use crate::memory::Key;

/// Why there is no request.
enum No {
    /// The client learns of it by an answer.
    Fault(Fault),
    /// By the end of the stream.
    Reset(quinn::VarInt),
    /// Nobody is there to learn of it.
    Gone,
}

impl From<Fault> for No {
    fn from(fault: Fault) -> No {
        No::Fault(fault)
    }
}

/// Answers the request; returns early if the client takes it back.
pub(super) async fn answer(
    line: Rc<Line>,
    sending: SendStream,
    receiving: RecvStream,
    under_way: UnderWay,
) {
    let worker = line.worker.clone();
    let mut outlet = Outlet::new(sending);
    let limit = worker.limits.header_list_bytes() as usize;
    let mut inflow = Inflow::new(line.connection.clone(), receiving, limit);
    let mut outgoing = Outgoing {
        is_head: false,
        channel: None,
        interim: Bytes::new(),
        leftover: inflow.leftover(),
        windows: line.windows.clone(),
    };
    // As it was at the handshake: an address to which it moved since may not be proved yet.
    let mut asker = Asker { client: line.peer.ip(), is_safe: true };
    let outcome = match request(&line, &mut inflow, limit, &mut outgoing.is_head, &mut asker).await
    {
        Ok((head, bodiless)) => {
            let upgrade = head.upgrade;
            let begun = begin(&line, head, asker.client, inflow, bodiless, &mut outgoing);
            match call::begin(&worker, begun.exchange) {
                Err(fault) => Err(fault),
                Ok(answer) => {
                    let interim = Interim { hints: begun.hints, invitation: begun.invitation };
                    match wait(answer, &mut outlet, interim, &mut outgoing.interim).await {
                        Some(outcome) => {
                            outcome.and_then(|response| fields::sendable(response, upgrade))
                        }
                        // Nobody waits for it any more.
                        None => {
                            outlet.reset(Code::REQUEST_CANCELLED);
                            return line.cancelled();
                        }
                    }
                }
            }
        }
        Err(No::Fault(fault)) => Err(fault),
        Err(No::Reset(code)) => {
            inflow.stop(code);
            return outlet.reset(code);
        }
        Err(No::Gone) => {
            outlet.reset(Code::REQUEST_CANCELLED);
            return line.cancelled();
        }
    };
    let answer = call::covered(&worker, outcome, &line.memory, asker);
    outflow::send(&worker, outlet, answer, outgoing, under_way).await;
}

/// The head, admitted, and whether the request ends with it.
async fn request(
    line: &Line,
    inflow: &mut Inflow,
    limit: usize,
    is_head: &mut bool,
    asker: &mut Asker,
) -> Result<(Head, bool), No> {
    let limits = &line.worker.limits;
    let block = match timeout(limits.head_timeout, read_head(line, inflow)).await {
        Err(_) => return Err(No::Fault(Fault::HeadTimeout)),
        Ok(head) => head?,
    };
    let (parts, protocol) = message::request(block, limit).map_err(|refusal| match refusal {
        Refusal::TooLarge => No::Fault(Fault::HeadTooLarge),
        Refusal::Malformed => No::Reset(Code::MESSAGE_ERROR),
        Refusal::Unreadable => {
            line.fail(Code::DECOMPRESSION_FAILED);
            No::Gone
        }
    })?;
    *is_head = parts.method == Method::HEAD;
    let client = line.link.client(&parts.headers)?;
    *asker = Asker { client, is_safe: parts.method.is_safe() };
    let head = admission::admit(parts, protocol.as_deref(), limits)?;
    // Whoever lies about the length of nothing is found out before the service hears of it.
    let bodiless = inflow.is_bodiless(head.declared_bytes).await.map_err(refused)?;
    let leftover = inflow.leftover();
    // A stream that is handed over is read as it comes.
    leftover.release();
    if !bodiless && !head.upgrade {
        let window = line.windows.open(head.declared_bytes, Key::arriving(client));
        leftover.keep(window.ok_or_else(|| Fault::overloaded(&head.headers))?);
    }
    Ok((head, bodiless))
}

/// Half heads are counted: those of all connections must not take the memory of all others.
async fn read_head(line: &Line, inflow: &mut Inflow) -> Result<Bytes, No> {
    let half_heads = &line.worker.half_heads;
    let mut counted = Counted { total: half_heads, bytes: 0 };
    let mut is_late = false;
    poll_fn(|cx| {
        let polled = inflow.poll_head(cx);
        if polled.is_pending() {
            if !std::mem::replace(&mut is_late, true) {
                // What follows the missing part may have come before it.
                let key = Key::arriving(line.peer.ip());
                let window = line.windows.open(None, key);
                let window = window.ok_or(No::Reset(Code::REQUEST_REJECTED))?;
                inflow.leftover().keep(window);
            }
            counted.set(inflow.held_bytes());
            if half_heads.get() > line.worker.limits.buffer_bytes {
                return Poll::Ready(Err(No::Fault(Fault::Overloaded)));
            }
        }
        polled.map_err(refused)
    })
    .await
}

fn refused(end: End) -> No {
    match end {
        End::Gone => No::Gone,
        End::Incomplete => No::Reset(Code::REQUEST_INCOMPLETE),
        End::TooLarge => No::Fault(Fault::HeadTooLarge),
        End::Malformed => No::Reset(Code::MESSAGE_ERROR),
    }
}

/// A share of a common count, given back when it is dropped.
struct Counted<'a> {
    total: &'a Cell<usize>,
    bytes: usize,
}

impl Counted<'_> {
    fn set(&mut self, bytes: usize) {
        self.total.set(self.total.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What the service is given, and what we keep of it.
struct Begun {
    exchange: Exchange,
    hints: Hints,
    invitation: Option<Invitation>,
}

fn begin(
    line: &Line,
    head: Head,
    client: IpAddr,
    inflow: Inflow,
    bodiless: bool,
    outgoing: &mut Outgoing,
) -> Begun {
    let worker = &line.worker;
    let hints = match worker.terms.early_hints.allowed(Version::HTTP_3, false) {
        true => Hints::open(),
        false => Hints::default(),
    };
    let mut invitation = None;
    let body = if head.upgrade {
        // What follows is no body: it belongs to whoever takes the stream over.
        outgoing.channel = Some(inflow);
        Body::empty()
    } else if bodiless {
        Body::empty()
    } else {
        invitation = head.expects_continue.then(Invitation::default);
        Body::stream(inflow, head.declared_bytes, invitation.clone(), &worker.limits)
    };
    let exchange = Exchange {
        method: head.method,
        uri: head.uri,
        version: Version::HTTP_3,
        headers: head.headers,
        peer: line.peer,
        client,
        body,
        hints: hints.clone(),
    };
    Begun { exchange, hints, invitation }
}

/// What may be sent before the answer.
struct Interim {
    hints: Hints,
    invitation: Option<Invitation>,
}

/// The service's answer; none if the client has taken the request back or is gone. Interim answers
/// leave meanwhile; what of them has not is left in `unsent`.
async fn wait(
    mut answer: Working<'_>,
    outlet: &mut Outlet,
    mut interim: Interim,
    unsent: &mut Bytes,
) -> Option<Result<Response, Fault>> {
    let mut stopped: Option<Stopped> = None;
    poll_fn(|cx| {
        let outcome = answer.poll(cx);
        for mut headers in interim.hints.take(cx) {
            fields::strip(&mut headers);
            inform(unsent, StatusCode::EARLY_HINTS, &headers);
        }
        if let Poll::Ready(outcome) = outcome {
            return Poll::Ready(Some(outcome));
        }
        if interim.invitation.as_ref().is_some_and(|invitation| invitation.wanted(cx)) {
            interim.invitation = None;
            inform(unsent, StatusCode::CONTINUE, &HeaderMap::new());
        }
        if let Poll::Ready(Err(_)) = outlet.poll_write_all(cx, unsent) {
            return Poll::Ready(None);
        }
        stopped.get_or_insert_with(|| outlet.stopped()).as_mut().poll(cx).map(|()| None)
    })
    .await
}

fn inform(unsent: &mut Bytes, status: StatusCode, headers: &HeaderMap) {
    let mut out = unsent.to_vec();
    outflow::write_head(&mut out, status, headers);
    *unsent = out.into();
}
