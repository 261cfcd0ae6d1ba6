//! WebSockets: the same line as a stream, and a client that talks back. What it says is read only
//! as fast as it is dealt with.

mod message;

use crate::ask::{Asked, Feeds, Visitor};
use crate::entry::Encoding;
use crate::hub::{Arrival, Hub, Ticket};
use crate::interest::Permit;
use crate::line::{Line, Sent};
use crate::metrics::Channel;
use crate::shard::ticks;
use bytes::Bytes;
use http::StatusCode;
use model::Scope;
use model::problem::Problem;
use model::schema::CollectionIx;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::websocket::{self, Accepted, Broken, Incoming, Received, code};
use wire::{Payload, Raw, Response};

/// The subprotocol; a client that offers some must offer this one.
pub const PROTOCOL: &str = "restive.v1";

/// The credentials were withdrawn; do not come again with them.
const REVOKED: u16 = 4001;
/// Closed for want of a pong; come again after a pause.
const NO_PONG: u16 = 4101;
/// Closed for staying behind; come again with the last position.
const SLOW: u16 = 4102;
/// The credentials end; come again at once, with new ones.
const EXPIRED: u16 = 4201;

const READ_BYTES: usize = 8 << 10;
/// Answers that wait for the client; no more is read before they are gone.
const MAX_ANSWERS: usize = 32;
/// How long the client may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(5);

/// Does what only the service can do: writes records, and explains what is wrong.
pub trait Desk: Send + Sync + 'static {
    /// Makes a record of a feed as a request would, once for each reference.
    fn post(&self, feed: CollectionIx, body: Bytes, reference: Option<String>) -> Posting;
    /// Hears that somebody wants events of these types from now on, too.
    fn subscribed(&self, types: &[String]);
    /// The `error` object for a problem, JSON text.
    fn explain(&self, problem: &Problem) -> String;
}

pub type Posting = Pin<Box<dyn Future<Output = Result<Posted, Problem>> + Send>>;

/// A record that was made, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub seq: i64,
    pub replayed: bool,
}

/// Opens a socket for a handshake that was accepted.
pub fn open(
    visitor: Visitor,
    asked: Asked,
    accepted: Accepted,
    ticket: Ticket,
    desk: Arc<dyn Desk>,
) -> Response {
    let Accepted { headers, deflate, .. } = accepted;
    let hub = ticket.hub().clone();
    // Before the answer: whoever has it and then writes shall hear of it, although the connection
    // may be handed over later than that.
    let begin = asked.begin(*hub.store.0.position().borrow());
    let body = Payload::take_over(move |raw| {
        let arrival =
            visitor.user.as_ref().map(|user| hub.arrive(visitor.scope, user, visitor.now));
        let encoding = deflate.map_or(Encoding::Socket, Encoding::Deflated);
        let mut line = Line::new(ticket, encoding, &visitor, asked.interest, begin);
        line.own.push_front(message::welcome(&hub, begin.cursor));
        let socket = Socket {
            incoming: Incoming::new(hub.limits.max_message_bytes, deflate),
            desk,
            user: visitor.user.map(String::into_boxed_str),
            scope: visitor.scope,
            feeds: visitor.feeds,
            permit: visitor.permit,
            posting: None,
            unheard: Vec::new(),
            subscribed: false,
            pinged_at: 0,
            heard_at: 0,
            expires: visitor.expires_in.map(|time| ticks(time).saturating_sub(2)),
            closing: None,
            goodbye: false,
            deaf: false,
            allowance: hub.limits.message_burst,
            allowed_at: 0,
            line,
            _arrival: arrival.map(Box::new),
        };
        Running { socket, raw, begun: false }
    });
    Response { headers, ..Response::new(StatusCode::SWITCHING_PROTOCOLS, body) }
}

struct Socket {
    line: Line,
    incoming: Incoming,
    desk: Arc<dyn Desk>,
    user: Option<Box<str>>,
    scope: Scope,
    feeds: Feeds,
    permit: Permit,
    /// A record on its way into the log, and the reference its client knows it by.
    posting: Option<Box<(Posting, Option<String>)>>,
    /// What was read and not dealt with, for want of room.
    unheard: Vec<u8>,
    /// Whether the client chose for itself what to hear.
    subscribed: bool,
    pinged_at: u32,
    heard_at: u32,
    expires: Option<u32>,
    /// Tick at which we said goodbye.
    closing: Option<Closing>,
    /// The client said goodbye.
    goodbye: bool,
    /// It broke a rule: what it sends is no longer understood.
    deaf: bool,
    /// Messages the client may send before it must wait for the clock.
    allowance: u32,
    allowed_at: u32,
    _arrival: Option<Box<Arrival>>,
}

/// Our goodbye, which waits for the client's.
#[derive(Clone, Copy)]
struct Closing {
    at: u32,
    patience: u32,
}

impl Closing {
    /// When it is waited for no longer: so long after the goodbye, or after the client last took
    /// something of what stands before it.
    fn ends(self, line: &Line) -> u32 {
        self.at.max(line.written_at) + self.patience
    }
}

/// The task of a socket. By hand: an `async fn` keeps room for what it is given twice over.
struct Running {
    socket: Socket,
    raw: Raw,
    begun: bool,
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Running { socket, raw, begun } = self.get_mut();
        if !std::mem::replace(begun, true) {
            socket.begin();
        }
        socket.poll(raw, cx)
    }
}

impl Socket {
    fn begin(&mut self) {
        self.line.now = self.line.seat.now();
        let now = self.line.now;
        (self.pinged_at, self.heard_at, self.allowed_at) = (now, now, now);
        self.expires = self.expires.map(|ticks| now.saturating_add(ticks));
        self.set_alarm();
    }

    fn poll(&mut self, raw: &mut Raw, cx: &mut Context<'_>) -> Poll<()> {
        let turn = self.line.turn(cx);
        if self.line.revoked {
            self.close(REVOKED, "key_revoked");
        }
        if turn.due {
            if self.is_over() || self.line.is_stalled() {
                return Poll::Ready(());
            }
            self.check(turn.leaving);
        }
        let mut passing = turn.passing;
        loop {
            self.poll_posting(cx);
            let was_full = self.is_full();
            let heard = match self.poll_hear(raw, cx) {
                Ok(heard) => heard,
                Err(()) => return Poll::Ready(()),
            };
            match self.line.poll_send(raw, cx, std::mem::take(&mut passing)) {
                Sent::Gone => return Poll::Ready(()),
                // The client's goodbye was answered, or ours.
                Sent::Everything if self.goodbye && self.closing.is_some() => {
                    return Poll::Ready(());
                }
                // Closed over what it has still on its way, the connection would be reset, and a
                // browser never see the code: the client closes first, or its time is over.
                Sent::Everything if self.deaf => drop(Pin::new(&mut *raw).poll_shutdown(cx)),
                Sent::Everything | Sent::Waiting => {}
            }
            // Whoever could not be heard for want of room may have some now.
            if !heard && (!was_full || self.is_full()) {
                break;
            }
        }
        if turn.due {
            self.set_alarm();
        }
        Poll::Pending
    }

    fn poll_posting(&mut self, cx: &mut Context<'_>) {
        let Some(posting) = &mut self.posting else { return };
        let Poll::Ready(outcome) = posting.0.as_mut().poll(cx) else { return };
        let reference = posting.1.take();
        self.posting = None;
        let answer = match outcome {
            Ok(posted) => message::posted(reference.as_deref(), &posted),
            Err(problem) => self.error(reference.as_deref(), &problem),
        };
        self.line.own.push_back(answer);
    }

    /// Whether the client must wait before it is heard again.
    fn is_full(&self) -> bool {
        self.posting.is_some() || self.line.own.len() >= MAX_ANSWERS || self.allowance == 0
    }

    /// Reads what the client says. True if it said something; an error if it is gone.
    fn poll_hear(&mut self, raw: &mut Raw, cx: &mut Context<'_>) -> Result<bool, ()> {
        if self.is_full() && self.closing.is_none() {
            if self.allowance == 0 {
                self.line.seat.wake_at(self.line.now + 1);
            }
            return Ok(false);
        }
        if !self.unheard.is_empty() {
            let mut bytes = std::mem::take(&mut self.unheard);
            self.hear_all(&mut bytes);
            return Ok(true);
        }
        if raw.poll_readable(cx).is_pending() {
            return Ok(false);
        }
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        match Pin::new(raw).poll_read(cx, &mut buffer) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(_)) => return Err(()),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Err(()),
            Poll::Ready(Ok(())) => {}
        }
        self.heard_at = self.line.now;
        if !self.deaf {
            self.hear_all(buffer.filled_mut());
        }
        Ok(true)
    }

    /// Deals with what was read, as far as there is room; the rest is kept for later.
    fn hear_all(&mut self, mut bytes: &mut [u8]) {
        loop {
            if self.is_full() && self.closing.is_none() {
                self.unheard = bytes.to_vec();
                return;
            }
            match self.incoming.next(&mut bytes) {
                Ok(None) => return,
                Ok(Some(received)) => self.hear(received),
                Err(Broken { code, reason }) => {
                    self.close(code, reason);
                    self.deaf = true;
                    return;
                }
            }
        }
    }

    fn hear(&mut self, received: Received<'_>) {
        if self.closing.is_some() && !matches!(received, Received::Close(_)) {
            return;
        }
        match received {
            Received::Text(text) => {
                self.line.ticket.hub.metrics.received.fetch_add(1, Relaxed);
                self.allowance = self.allowance.saturating_sub(1);
                self.take(&text);
            }
            Received::Binary(_) => {
                self.close(code::UNSUPPORTED, "messages are JSON text");
            }
            Received::Ping(payload) => {
                self.allowance = self.allowance.saturating_sub(1);
                self.line.own.push_back(websocket::pong(&payload));
            }
            Received::Pong => {}
            Received::Close(said) => {
                self.goodbye = true;
                self.close(said.map_or(code::NO_CODE, |(code, _)| code), "");
            }
        }
    }

    /// Says goodbye, once; nothing follows it.
    fn close(&mut self, code: u16, reason: &str) {
        if self.closing.is_none() {
            // Who reads slowly has much before it.
            let patience =
                if code == SLOW { self.line.ticket.hub.limits.stall_timeout } else { FAREWELL };
            let closing = Closing { at: self.line.now, patience: ticks(patience) };
            self.line.own.push_back(websocket::close(code, reason));
            self.line.muted = true;
            self.posting = None;
            self.line.seat.wake_at(closing.at + closing.patience);
            self.closing = Some(closing);
        }
    }

    fn is_over(&self) -> bool {
        self.closing.is_some_and(|closing| closing.ends(&self.line) <= self.line.now)
    }

    /// What time has brought.
    fn check(&mut self, leaving: bool) {
        self.allow();
        if self.closing.is_some() {
            return;
        }
        let (now, limits) = (self.line.now, &self.line.ticket.hub.limits);
        let since = |tick: u32| now.saturating_sub(tick);
        let unheard = self.heard_at < self.pinged_at;
        if leaving {
            self.close(code::RESTART, "restart");
        } else if self.expires.is_some_and(|at| at <= now) {
            self.close(EXPIRED, "token_expired");
        } else if unheard && since(self.pinged_at) >= ticks(limits.pong_timeout) {
            self.close(NO_PONG, "no_pong");
            // Who does not answer pings answers no goodbye either.
            self.goodbye = true;
        } else if self.line.is_behind() {
            self.close(SLOW, "slow_resume");
        } else if since(self.pinged_at) >= ticks(limits.ping_interval) {
            self.pinged_at = now;
            self.line.own.push_back(websocket::ping(b""));
        }
    }

    fn allow(&mut self) {
        let limits = &self.line.ticket.hub.limits;
        let passed = self.line.now.saturating_sub(self.allowed_at);
        let more =
            passed.saturating_mul(limits.messages_per_second / ticks(Duration::from_secs(1)));
        if more > 0 {
            self.allowance = self.allowance.saturating_add(more).min(limits.message_burst);
            self.allowed_at = self.line.now;
        }
    }

    fn set_alarm(&self) {
        let (now, limits) = (self.line.now, &self.line.ticket.hub.limits);
        let due = match self.closing {
            Some(closing) => closing.ends(&self.line),
            None if self.heard_at < self.pinged_at => self.pinged_at + ticks(limits.pong_timeout),
            None => self.pinged_at + ticks(limits.ping_interval),
        };
        self.line.seat.wake_at(due.min(self.expires.unwrap_or(u32::MAX)).max(now + 1));
    }

    fn error(&self, reference: Option<&str>, problem: &Problem) -> Bytes {
        message::error(reference, &self.desk.explain(problem))
    }
}

/// A place for a socket, before it is opened.
pub fn admit(hub: &Arc<Hub>, scope: Scope) -> Result<Ticket, crate::hub::Full> {
    hub.enter(scope, Channel::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sockets_task_stays_small() {
        // Each open socket keeps this, beside its seat and what the runtime needs. A kilobyte more
        // would be a gigabyte for a million of them.
        let bytes = size_of::<Running>();
        assert!(bytes <= 700, "{bytes}");
    }
}
