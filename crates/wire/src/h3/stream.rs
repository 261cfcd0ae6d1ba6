//! One stream: its head is read and admitted, the service called, early hints and the answer sent.
//! What the service reads of the body comes straight from QUIC, through `inflow`.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use quinn::{RecvStream, SendStream};
use tokio::time::timeout;

use super::context::ConnectionContext;
use super::frames::Code;
use super::inflow::{End, Inflow};
use super::message::{self, Refusal};
use super::outflow::{self, Outgoing, Outlet, Stopped};
use crate::admission::{self, Head};
use crate::answering::{self, Requesting};
use crate::call::{self, Requester};
use crate::fault::Fault;
use crate::memory::Key;
use crate::worker::InFlight;

/// Why there is no request.
enum No {
    /// The client gets a response.
    Fault(Fault),
    /// The stream is reset.
    Reset(quinn::VarInt),
    /// The client is gone.
    Gone,
}

impl From<Fault> for No {
    fn from(fault: Fault) -> No {
        No::Fault(fault)
    }
}

/// Answers the request; returns early if the client takes it back.
pub(super) async fn answer(
    context: Rc<ConnectionContext>,
    sending: SendStream,
    receiving: RecvStream,
    in_flight: InFlight,
) {
    let worker = context.worker.clone();
    let mut outlet = Outlet::new(sending);
    let limit = worker.limits.header_list_bytes() as usize;
    let mut inflow = Inflow::new(context.connection.clone(), receiving, limit);
    let mut outgoing = Outgoing {
        is_head: false,
        channel: None,
        interim: Bytes::new(),
        leftover: inflow.leftover(),
        windows: context.windows.clone(),
    };
    // As it was at the handshake: an address to which it moved since may not be proved yet.
    let mut requester = Requester { client: context.peer.ip(), is_safe: true };
    let outcome =
        match request(&context, &mut inflow, limit, &mut outgoing.is_head, &mut requester).await {
            Ok((head, bodiless)) => {
                let upgrade = head.upgrade;
                // What follows an upgrade is no body: it belongs to the service that takes it over.
                let (body, channel) = match (upgrade, bodiless) {
                    (true, _) => (None, Some(inflow)),
                    (false, true) => (None, None),
                    (false, false) => (Some(inflow), None),
                };
                outgoing.channel = channel;
                let version = Version::HTTP_3;
                let (exchange, interim) =
                    answering::exchange(&context.link, version, requester.client, head, body);
                match call::begin(&worker, exchange) {
                    Err(fault) => Err(fault),
                    Ok(working) => {
                        let unsent = &mut outgoing.interim;
                        let mut stream = Stream { outlet: &mut outlet, unsent, stopped: None };
                        match answering::wait(working, interim, &mut stream).await {
                            Some(outcome) => {
                                outcome.and_then(|response| answering::sendable(response, upgrade))
                            }
                            // The client does not wait for it any more.
                            None => {
                                outlet.reset(Code::REQUEST_CANCELLED);
                                return context.cancelled();
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
                return context.cancelled();
            }
        };
    let answer = call::charged(&worker, outcome, &context.memory, requester);
    outflow::send(&worker, outlet, answer, outgoing, in_flight).await;
}

/// The head, admitted, and whether the request ends with it.
async fn request(
    context: &ConnectionContext,
    inflow: &mut Inflow,
    limit: usize,
    is_head: &mut bool,
    requester: &mut Requester,
) -> Result<(Head, bool), No> {
    let limits = &context.worker.limits;
    let block = match timeout(limits.head_timeout, read_head(context, inflow)).await {
        Err(_) => return Err(No::Fault(Fault::HeadTimeout)),
        Ok(head) => head?,
    };
    let (parts, protocol) = message::request(block, limit).map_err(|refusal| match refusal {
        Refusal::TooLarge => No::Fault(Fault::HeadTooLarge),
        Refusal::Malformed => No::Reset(Code::MESSAGE_ERROR),
        Refusal::Unreadable => {
            context.fail(Code::DECOMPRESSION_FAILED);
            No::Gone
        }
    })?;
    *is_head = parts.method == Method::HEAD;
    let client = context.link.client(&parts.headers)?;
    *requester = Requester { client, is_safe: parts.method.is_safe() };
    let head = admission::admit(parts, protocol.as_deref(), limits)?;
    // A wrong length of an empty body is found before the service is called.
    let bodiless = inflow.is_bodiless(head.declared_bytes).await.map_err(refused)?;
    let leftover = inflow.leftover();
    // A stream that is handed over is read as it comes.
    leftover.release();
    if !bodiless && !head.upgrade {
        let window = context.windows.open(head.declared_bytes, Key::arriving(client));
        leftover.keep(window.ok_or_else(|| Fault::overloaded(&head.headers))?);
    }
    Ok((head, bodiless))
}

/// Half heads are counted: those of all connections must not take the memory of all others.
async fn read_head(context: &ConnectionContext, inflow: &mut Inflow) -> Result<Bytes, No> {
    let half_heads = &context.worker.half_heads;
    let mut counted = Counted { total: half_heads, bytes: 0 };
    let mut is_late = false;
    poll_fn(|cx| {
        let polled = inflow.poll_head(cx);
        if polled.is_pending() {
            if !std::mem::replace(&mut is_late, true) {
                // What follows the missing part may have come before it.
                let key = Key::arriving(context.peer.ip());
                let window = context.windows.open(None, key);
                let window = window.ok_or(No::Reset(Code::REQUEST_REJECTED))?;
                inflow.leftover().keep(window);
            }
            counted.set(inflow.held_bytes());
            if half_heads.get() > context.worker.limits.buffer_bytes {
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

/// A stream whose response is waited for.
struct Stream<'a> {
    outlet: &'a mut Outlet,
    /// Interim responses that have not left yet.
    unsent: &'a mut Bytes,
    stopped: Option<Stopped>,
}

impl Requesting for Stream<'_> {
    fn inform(&mut self, status: StatusCode, headers: HeaderMap) {
        let mut out = self.unsent.to_vec();
        outflow::write_head(&mut out, status, &headers);
        *self.unsent = out.into();
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(Err(_)) = self.outlet.poll_write_all(cx, self.unsent) {
            return Poll::Ready(());
        }
        let stopped = self.stopped.get_or_insert_with(|| self.outlet.stopped());
        stopped.as_mut().poll(cx)
    }
}
