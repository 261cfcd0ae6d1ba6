//! One stream: its head is admitted, the service called, early hints and the answer sent. What the
//! service reads of the body comes straight from h2, which holds no more than the window allows.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, StatusCode, Version};

use super::connection::UnderWay;
use super::fields::{Flaw, Flaws};
use super::outflow::{self, Outgoing};
use super::settings::STREAM_WINDOW_BYTES;
use crate::admission::{self, Head};
use crate::body::{Body, Invitation, Remainder};
use crate::call::{self, Asker, Working};
use crate::exchange::{Exchange, Response};
use crate::fault::Fault;
use crate::fields;
use crate::h1::Link;
use crate::hints::Hints;
use crate::memory::{Key, Memory};

const FRAGMENT: Fault = Fault::Malformed("The request target must not carry a fragment.");

/// What the streams of a connection share.
pub(super) struct Line {
    pub(super) link: Rc<Link>,
    /// What the client makes us hold.
    pub(super) memory: Arc<Memory>,
    /// What is wrong with requests that h2 has taken.
    pub(super) flaws: Arc<Flaws>,
}

/// Answers the request; returns early if the client takes it back.
pub(super) async fn answer(
    line: Line,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    under_way: UnderWay,
) {
    let Line { link, memory, flaws } = line;
    let worker = link.worker.clone();
    let (parts, body) = request.into_parts();
    let stream = respond.stream_id().as_u32();
    let flaw = flaws.take(stream);
    if flaw == Some(Flaw::LatePseudo) {
        return respond.send_reset(Reason::PROTOCOL_ERROR);
    }
    let is_head = parts.method == Method::HEAD;
    let named = link.client(&parts.headers);
    let client = named.unwrap_or(link.peer().ip());
    let asker = Asker { client, is_safe: parts.method.is_safe() };
    let mut outgoing = Outgoing { is_head, channel: None, remainder: None };
    let protocol = parts.extensions.get::<Protocol>().cloned();
    let protocol = protocol.as_ref().map(|name| name.as_str().as_bytes());
    let admitted = match flaw {
        Some(Flaw::Fragment) => Err(FRAGMENT),
        _ => named.and_then(|_| admission::admit(parts, protocol, &worker.limits)),
    };
    let outcome = match admitted {
        Err(fault) => {
            outgoing.remainder = (!body.is_end_stream()).then(|| Remainder::unwanted(body));
            Some(Err(fault))
        }
        Ok(head) => {
            let upgrade = head.upgrade;
            let incoming = Flawed { stream: body, flaws: flaws.clone() };
            let begun = begin(&link, &memory, asker.client, head, incoming, &mut outgoing);
            let begun =
                begun.and_then(|begun| Ok((call::begin(&worker, begun.exchange)?, begun.interim)));
            match begun {
                Err(fault) => Some(Err(fault)),
                Ok((answer, interim)) => {
                    wait(answer, &mut respond, interim, &outgoing).await.map(|outcome| {
                        outcome.and_then(|response| fields::sendable(response, upgrade))
                    })
                }
            }
        }
    };
    // They came while the service was at work.
    if flaws.take(stream).is_some() {
        return respond.send_reset(Reason::PROTOCOL_ERROR);
    }
    // None: nobody waits for it any more.
    if let Some(outcome) = outcome {
        let answer = call::covered(&worker, outcome, &memory, asker);
        outflow::send(&worker, respond, answer, outgoing, under_way).await;
    }
}

/// A body, and where it says what is wrong with it.
struct Flawed {
    stream: RecvStream,
    flaws: Arc<Flaws>,
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

fn begin(
    link: &Link,
    memory: &Arc<Memory>,
    client: IpAddr,
    head: Head,
    Flawed { stream: incoming, flaws }: Flawed,
    outgoing: &mut Outgoing,
) -> Result<Begun, Fault> {
    let worker = &link.worker;
    let hints = match worker.terms.early_hints.allowed(Version::HTTP_2, false) {
        true => Hints::open(),
        false => Hints::default(),
    };
    let mut invitation = None;
    let body = if head.upgrade {
        // What follows is no body: it belongs to whoever takes the stream over.
        outgoing.channel = Some(incoming);
        Body::empty()
    } else if incoming.is_end_stream() {
        Body::empty()
    } else {
        invitation = head.expects_continue.then(Invitation::default);
        // What may arrive of it before anybody reads it.
        let most = STREAM_WINDOW_BYTES as usize;
        let most = head.declared_bytes.map_or(most, |bytes| most.min(bytes as usize));
        let Some(charge) = memory.charges(Key::arriving(client)).take(most) else {
            outgoing.remainder = Some(Remainder::unwanted(incoming));
            return Err(Fault::overloaded(&head.headers));
        };
        let incoming = Remainder::new(incoming, charge, flaws);
        outgoing.remainder = Some(incoming.clone());
        Body::stream(incoming, head.declared_bytes, invitation.clone(), &worker.limits)
    };
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
    Ok(Begun { exchange, interim: Interim { hints, invitation } })
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
