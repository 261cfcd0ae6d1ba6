//! One stream: its head is admitted, the service called, early hints and the response sent. The
//! body comes straight from h2, which holds no more than the window allows.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, StatusCode, Version};

use super::blocks::{Violation, Violations};
use super::outflow::{self, Outgoing};
use super::remainder::Remainder;
use super::settings::STREAM_WINDOW_BYTES;
use crate::admission::{self, Head};
use crate::answering::{self, Interim, Requesting};
use crate::call::{self, Requester};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::memory::{Key, Memory};
use crate::worker::{InFlight, Link};

const FRAGMENT: Fault = Fault::Malformed("The request target must not carry a fragment.");

/// What the streams of a connection share.
pub(super) struct ConnectionContext {
    pub(super) link: Rc<Link>,
    /// What the client makes us hold.
    pub(super) memory: Arc<Memory>,
    /// What is wrong with requests that h2 has taken.
    pub(super) violations: Arc<Violations>,
}

/// Answers the request; returns early if the client takes it back.
pub(super) async fn answer(
    context: ConnectionContext,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    in_flight: InFlight,
) {
    let ConnectionContext { link, violations, .. } = &context;
    let worker = link.worker.clone();
    let (parts, body) = request.into_parts();
    let stream = respond.stream_id().as_u32();
    let violation = violations.take(stream);
    if violation == Some(Violation::LatePseudo) {
        return respond.send_reset(Reason::PROTOCOL_ERROR);
    }
    let is_head = parts.method == Method::HEAD;
    let named = link.client(&parts.headers);
    let client = named.unwrap_or(link.peer().ip());
    let requester = Requester { client, is_safe: parts.method.is_safe() };
    let mut outgoing = Outgoing { is_head, channel: None, remainder: None };
    let protocol = parts.extensions.get::<Protocol>().cloned();
    let protocol = protocol.as_ref().map(|name| name.as_str().as_bytes());
    let admitted = match violation {
        Some(Violation::Fragment) => Err(FRAGMENT),
        _ => named.and_then(|_| admission::admit(parts, protocol, &worker.limits)),
    };
    let outcome = match admitted {
        Err(fault) => {
            outgoing.remainder = (!body.is_end_stream()).then(|| Remainder::unwanted(body));
            Some(Err(fault))
        }
        Ok(head) => {
            let upgrade = head.upgrade;
            let begun = begin(&context, client, head, body, &mut outgoing);
            let begun = begun
                .and_then(|(exchange, interim)| Ok((call::begin(&worker, exchange)?, interim)));
            match begun {
                Err(fault) => Some(Err(fault)),
                Ok((working, interim)) => {
                    let mut stream = Stream { respond: &mut respond, outgoing: &outgoing };
                    let outcome = answering::wait(working, interim, &mut stream).await;
                    let sendable = |response| answering::sendable(response, upgrade);
                    outcome.map(|outcome| outcome.and_then(sendable))
                }
            }
        }
    };
    // They came while the service was at work.
    if context.violations.take(stream).is_some() {
        return respond.send_reset(Reason::PROTOCOL_ERROR);
    }
    // None: the client does not wait for it any more.
    if let Some(outcome) = outcome {
        let answer = call::charged(&worker, outcome, &context.memory, requester);
        outflow::send(&worker, respond, answer, outgoing, in_flight).await;
    }
}

/// The request for the service. What it leaves of the body is kept in `outgoing`.
fn begin(
    context: &ConnectionContext,
    client: IpAddr,
    head: Head,
    incoming: RecvStream,
    outgoing: &mut Outgoing,
) -> Result<(Exchange, Interim), Fault> {
    let body = if head.upgrade {
        // What follows is no body: it belongs to the service that takes the stream over.
        outgoing.channel = Some(incoming);
        None
    } else if incoming.is_end_stream() {
        None
    } else {
        // What may arrive of it before the service reads it.
        let most = STREAM_WINDOW_BYTES as usize;
        let most = head.declared_bytes.map_or(most, |bytes| most.min(bytes as usize));
        let Some(charge) = context.memory.charges(Key::arriving(client)).take(most) else {
            outgoing.remainder = Some(Remainder::unwanted(incoming));
            return Err(Fault::overloaded(&head.headers));
        };
        let remainder = Remainder::new(incoming, charge, context.violations.clone());
        outgoing.remainder = Some(remainder.clone());
        Some(remainder)
    };
    Ok(answering::exchange(&context.link, Version::HTTP_2, client, head, body))
}

/// A stream whose response is waited for.
struct Stream<'a> {
    respond: &'a mut SendResponse<Bytes>,
    outgoing: &'a Outgoing,
}

impl Requesting for Stream<'_> {
    fn inform(&mut self, status: StatusCode, headers: HeaderMap) {
        let mut head = http::Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = headers;
        // That a client is gone is noticed with the response.
        let _ = self.respond.send_informational(head);
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.outgoing.poll_discard(cx);
        self.respond.poll_reset(cx).map(drop)
    }
}
