//! One stream: its head is admitted, the service called, early hints and the answer sent. What the
//! service reads of the body comes straight from h2, which holds no more than the window allows.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::ext::Protocol;
use h2::server::SendResponse;
use http::{HeaderMap, Method, Request, StatusCode, Version};

use super::connection::UnderWay;
use super::outflow::{self, Outgoing};
use crate::admission::{self, Head};
use crate::body::{Body, Invitation, Remainder};
use crate::call::{self, Working};
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::fields;
use crate::h1::Link;
use crate::hints::Hints;

/// Answers the request; returns early if the client takes it back.
pub(super) async fn answer(
    link: Rc<Link>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    under_way: UnderWay,
) {
    let worker = link.worker.clone();
    let (parts, body) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    let mut outgoing = Outgoing { is_head, channel: None, remainder: None };
    let protocol = parts.extensions.get::<Protocol>().cloned();
    let protocol = protocol.as_ref().map(|name| name.as_str().as_bytes());
    let outcome = match admission::admit(parts, protocol, &worker.limits) {
        Err(fault) => {
            outgoing.remainder = (!body.is_end_stream()).then(|| Remainder::unwanted(body));
            Some(Err(fault))
        }
        Ok(head) => {
            let upgrade = head.upgrade;
            let begun = begin(&link, head, body, &mut outgoing);
            match call::begin(&worker, begun.exchange) {
                Err(fault) => Some(Err(fault)),
                Ok(answer) => {
                    wait(answer, &mut respond, begun.interim, &outgoing).await.map(|outcome| {
                        outcome.and_then(|response| fields::sendable(response, upgrade))
                    })
                }
            }
        }
    };
    // None: nobody waits for it any more.
    if let Some(outcome) = outcome {
        let response = outcome.unwrap_or_else(|fault| call::refusal(&worker, fault));
        outflow::send(&worker, respond, response, outgoing, under_way).await;
    }
}

/// What the service is given, and what we keep of it.
struct Begun {
    exchange: Exchange,
    interim: Interim,
}

/// What may be said before the answer.
struct Interim {
    hints: Hints,
    invitation: Option<Invitation>,
}

fn begin(link: &Link, head: Head, incoming: RecvStream, outgoing: &mut Outgoing) -> Begun {
    let worker = &link.worker;
    let hints = match worker.terms.early_hints.allowed(Version::HTTP_2, false) {
        true => Hints::open(),
        false => Hints::default(),
    };
    let (whole, stall) = (worker.limits.body_timeout, worker.limits.body_stall);
    let mut invitation = None;
    let body = if head.upgrade {
        // What follows is no body: it belongs to whoever takes the stream over.
        outgoing.channel = Some(incoming);
        Body::empty()
    } else if incoming.is_end_stream() {
        Body::empty()
    } else {
        invitation = head.expects_continue.then(Invitation::default);
        let incoming = Remainder::new(incoming);
        outgoing.remainder = Some(incoming.clone());
        Body::stream(incoming, head.declared_bytes, invitation.clone(), whole, stall)
    };
    let client = link.client(&head.headers);
    let exchange = Exchange {
        method: head.method,
        uri: head.uri,
        version: Version::HTTP_2,
        headers: head.headers,
        peer: link.peer(),
        client,
        body,
        hints: hints.clone(),
    };
    Begun { exchange, interim: Interim { hints, invitation } }
}

/// The service's answer; none if the client has reset the stream or is gone. Interim answers leave
/// meanwhile.
async fn wait(
    mut answer: Working<'_>,
    respond: &mut SendResponse<Bytes>,
    Interim { hints, mut invitation }: Interim,
    outgoing: &Outgoing,
) -> Option<Result<Response, Fault>> {
    poll_fn(|cx| {
        let outcome = answer.poll(cx);
        outgoing.poll_discard(cx);
        for mut headers in hints.take(cx) {
            fields::strip(&mut headers);
            inform(respond, StatusCode::EARLY_HINTS, headers);
        }
        if let Poll::Ready(outcome) = outcome {
            return Poll::Ready(Some(outcome));
        }
        if invitation.as_ref().is_some_and(|invitation| invitation.wanted(cx)) {
            invitation = None;
            inform(respond, StatusCode::CONTINUE, HeaderMap::new());
        }
        gone(respond, cx).map(|()| None)
    })
    .await
}

fn gone(respond: &mut SendResponse<Bytes>, cx: &mut Context<'_>) -> Poll<()> {
    respond.poll_reset(cx).map(drop)
}

fn inform(respond: &mut SendResponse<Bytes>, status: StatusCode, headers: HeaderMap) {
    let mut head = http::Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers;
    // A client that is gone is noticed with the answer.
    let _ = respond.send_informational(head);
}
