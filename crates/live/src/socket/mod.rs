//! WebSockets: the same subscription as a stream, and messages from the client. They are read only
//! as fast as they are processed.

mod message;

use crate::ask::{ChannelCaller, Feeds, SubscribeRequest};
use crate::entry::Encoding;
use crate::hub::{Hub, OnlineGuard, Ticket};
use crate::interest::Permit;
use crate::metrics::Channel;
use crate::shard::ticks;
use crate::subscription::{Sent, Subscription};
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
use wire::websocket::{self, Accepted, Incoming, ProtocolError, Received, code};
use wire::{Payload, Raw, Response};

/// The subprotocol; a client that offers some must offer this one.
pub const PROTOCOL: &str = "restive.v1";

/// The credentials were revoked; do not reconnect with them.
const REVOKED: u16 = 4001;
/// Closed because no pong came; reconnect after a pause.
const NO_PONG: u16 = 4101;
/// Closed because the client was too slow; reconnect with the last position.
const SLOW: u16 = 4102;
/// The credentials expire; reconnect at once, with new ones.
const EXPIRED: u16 = 4201;

const READ_BYTES: usize = 8 << 10;
/// Replies that wait for the client; no more is read before they are sent.
const MAX_ANSWERS: usize = 32;
/// How long the client may take to answer our close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What only the service can do: write records, and explain problems.
pub trait RecordWriter: Send + Sync + 'static {
    /// Creates a record of a feed as a request would, once for each reference.
    fn post(&self, feed: CollectionIx, body: Bytes, reference: Option<String>) -> PendingPost;
    /// Reports that a client subscribes to events of these types.
    fn subscribed(&self, types: &[String]);
    /// The `error` object for a problem, JSON text.
    fn explain(&self, problem: &Problem) -> String;
}

pub type PendingPost = Pin<Box<dyn Future<Output = Result<Posted, Problem>> + Send>>;

/// A record that was created, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub seq: i64,
    pub replayed: bool,
}

/// Opens a socket for a handshake that was accepted.
pub fn open(
    caller: ChannelCaller,
    asked: SubscribeRequest,
    accepted: Accepted,
    ticket: Ticket,
    writer: Arc<dyn RecordWriter>,
) -> Response {
    let Accepted { headers, deflate, .. } = accepted;
    let hub = ticket.hub().clone();
    // Read before the response: a client that has the response and then writes must receive the
    // event, even if the connection is handed over later.
    let begin = asked.begin(*hub.store.0.position().borrow());
    let body = Payload::take_over(move |raw| {
        let online =
            caller.user.as_ref().map(|user| hub.mark_online(caller.scope, user, caller.now));
        let encoding = deflate.map_or(Encoding::Socket, Encoding::Deflated);
        let mut subscription = Subscription::new(ticket, encoding, &caller, asked.interest, begin);
        subscription.replies.push_front(message::welcome(&hub, begin.cursor));
        let socket = Socket {
            incoming: Incoming::new(hub.limits.max_message_bytes, deflate),
            writer,
            user: caller.user.map(String::into_boxed_str),
            scope: caller.scope,
            feeds: caller.feeds,
            permit: caller.permit,
            pending: None,
            unprocessed: Vec::new(),
            subscribed: false,
            pinged_at: 0,
            received_at: 0,
            expires: caller.expires_in.map(|time| ticks(time).saturating_sub(2)),
            closing: None,
            client_closed: false,
            ignores_input: false,
            allowance: hub.limits.message_burst,
            allowed_at: 0,
            subscription,
            _online: online.map(Box::new),
        };
        Running { socket, raw, begun: false }
    });
    Response { headers, ..Response::new(StatusCode::SWITCHING_PROTOCOLS, body) }
}

struct Socket {
    subscription: Subscription,
    incoming: Incoming,
    writer: Arc<dyn RecordWriter>,
    user: Option<Box<str>>,
    scope: Scope,
    feeds: Feeds,
    permit: Permit,
    /// What a message waits for. The next one is read when it is done.
    pending: Option<Box<Pending>>,
    /// Bytes that were read and not processed, because there was no room.
    unprocessed: Vec<u8>,
    /// Whether the client has sent subscriptions of its own.
    subscribed: bool,
    pinged_at: u32,
    received_at: u32,
    expires: Option<u32>,
    /// Our close frame was sent.
    closing: Option<Closing>,
    /// The client has sent its close frame.
    client_closed: bool,
    /// The client broke the protocol: what it sends is no longer read.
    ignores_input: bool,
    /// Messages the client may send before it must wait for the clock.
    allowance: u32,
    allowed_at: u32,
    _online: Option<Box<OnlineGuard>>,
}

/// Work for a message, and the reference its client knows it by.
enum Pending {
    /// A record is on its way into the log.
    Post(PendingPost, Option<String>),
    /// A subscription continues after an event that this node has not seen yet.
    Subscribe(Pin<Box<dyn Future<Output = ()> + Send>>, SubscribeRequest, Option<String>),
}

/// Our close frame, which waits for the client's.
#[derive(Clone, Copy)]
struct Closing {
    at: u32,
    patience: u32,
}

impl Closing {
    /// The tick at which the connection ends: so long after the close frame, or after the client
    /// last took something that was sent before it.
    fn ends(self, subscription: &Subscription) -> u32 {
        self.at.max(subscription.written_at) + self.patience
    }
}

/// The task of a socket. Written by hand: an `async fn` keeps room for its arguments twice.
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
        self.subscription.now = self.subscription.slot.now();
        let now = self.subscription.now;
        (self.pinged_at, self.received_at, self.allowed_at) = (now, now, now);
        self.expires = self.expires.map(|ticks| now.saturating_add(ticks));
        self.set_alarm();
    }

    fn poll(&mut self, raw: &mut Raw, cx: &mut Context<'_>) -> Poll<()> {
        if self.subscription.poll_key(cx).is_pending() {
            return Poll::Pending;
        }
        let wakeup = self.subscription.wakeup(cx);
        if self.subscription.revoked {
            self.close(REVOKED, "key_revoked");
        }
        if wakeup.due {
            if self.is_over() || self.subscription.is_stalled() {
                return Poll::Ready(());
            }
            self.check(wakeup.leaving);
        }
        let mut ephemeral = wakeup.ephemeral;
        loop {
            self.poll_pending(cx);
            let was_full = self.is_full();
            let received_some = match self.poll_read_messages(raw, cx) {
                Ok(received_some) => received_some,
                Err(()) => return Poll::Ready(()),
            };
            match self.subscription.poll_send(raw, cx, std::mem::take(&mut ephemeral)) {
                Sent::Gone => return Poll::Ready(()),
                // Both sides have sent their close frames.
                Sent::Everything if self.client_closed && self.closing.is_some() => {
                    return Poll::Ready(());
                }
                // Closing while bytes of the client are on their way would reset the connection,
                // and a browser would not see the code. The client closes first, or its time is
                // over.
                Sent::Everything if self.ignores_input => {
                    drop(Pin::new(&mut *raw).poll_shutdown(cx))
                }
                Sent::Everything | Sent::Waiting => {}
            }
            // If there was no room to read, there may be some now.
            if !received_some && (!was_full || self.is_full()) {
                break;
            }
        }
        if wakeup.due {
            self.set_alarm();
        }
        Poll::Pending
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) {
        let Some(pending) = &mut self.pending else { return };
        let is_done = match &mut **pending {
            Pending::Post(posting, reference) => match posting.as_mut().poll(cx) {
                Poll::Pending => false,
                Poll::Ready(outcome) => {
                    let reference = reference.take();
                    let answer = match outcome {
                        Ok(posted) => message::posted(reference.as_deref(), &posted),
                        Err(problem) => self.error(reference.as_deref(), &problem),
                    };
                    self.subscription.replies.push_back(answer);
                    true
                }
            },
            Pending::Subscribe(fresh, ..) => fresh.as_mut().poll(cx).is_ready(),
        };
        if !is_done {
            return;
        }
        if let Some(Pending::Subscribe(_, asked, reference)) = self.pending.take().map(|p| *p) {
            self.begin_subscription(asked, reference.as_deref());
        }
    }

    /// Whether the client must wait before more is read from it.
    fn is_full(&self) -> bool {
        self.pending.is_some()
            || self.subscription.replies.len() >= MAX_ANSWERS
            || self.allowance == 0
    }

    /// Reads messages of the client. True if there were some; an error if the client is gone.
    fn poll_read_messages(&mut self, raw: &mut Raw, cx: &mut Context<'_>) -> Result<bool, ()> {
        if self.is_full() && self.closing.is_none() {
            if self.allowance == 0 {
                self.subscription.slot.wake_at(self.subscription.now + 1);
            }
            return Ok(false);
        }
        if !self.unprocessed.is_empty() {
            let mut bytes = std::mem::take(&mut self.unprocessed);
            self.process_all(&mut bytes);
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
        self.received_at = self.subscription.now;
        if !self.ignores_input {
            self.process_all(buffer.filled_mut());
        }
        Ok(true)
    }

    /// Processes what was read, as far as there is room; the rest is kept for later.
    fn process_all(&mut self, mut bytes: &mut [u8]) {
        loop {
            if self.is_full() && self.closing.is_none() {
                self.unprocessed = bytes.to_vec();
                return;
            }
            match self.incoming.next(&mut bytes) {
                Ok(None) => return,
                Ok(Some(received)) => self.process(received),
                Err(ProtocolError { code, reason }) => {
                    self.close(code, reason);
                    self.ignores_input = true;
                    return;
                }
            }
        }
    }

    fn process(&mut self, received: Received<'_>) {
        if self.closing.is_some() && !matches!(received, Received::Close(_)) {
            return;
        }
        match received {
            Received::Text(text) => {
                self.subscription.ticket.hub.metrics.received.fetch_add(1, Relaxed);
                self.allowance = self.allowance.saturating_sub(1);
                self.take(&text);
            }
            Received::Binary(_) => {
                self.close(code::UNSUPPORTED, "messages are JSON text");
            }
            Received::Ping(payload) => {
                self.allowance = self.allowance.saturating_sub(1);
                self.subscription.replies.push_back(websocket::pong(&payload));
            }
            Received::Pong => {}
            Received::Close(said) => {
                self.client_closed = true;
                self.close(said.map_or(code::NO_CODE, |(code, _)| code), "");
            }
        }
    }

    /// Sends a close frame, once; nothing follows it.
    fn close(&mut self, code: u16, reason: &str) {
        if self.closing.is_none() {
            // A slow reader has much to read before it.
            let patience = if code == SLOW {
                self.subscription.ticket.hub.limits.stall_timeout
            } else {
                CLOSE_TIMEOUT
            };
            let closing = Closing { at: self.subscription.now, patience: ticks(patience) };
            self.subscription.replies.push_back(websocket::close(code, reason));
            self.subscription.muted = true;
            self.pending = None;
            self.subscription.slot.wake_at(closing.at + closing.patience);
            self.closing = Some(closing);
        }
    }

    fn is_over(&self) -> bool {
        self.closing
            .is_some_and(|closing| closing.ends(&self.subscription) <= self.subscription.now)
    }

    /// Checks what is due.
    fn check(&mut self, leaving: bool) {
        self.allow();
        if self.closing.is_some() {
            return;
        }
        let (now, limits) = (self.subscription.now, &self.subscription.ticket.hub.limits);
        let since = |tick: u32| now.saturating_sub(tick);
        let unprocessed = self.received_at < self.pinged_at;
        if leaving {
            self.close(code::RESTART, "restart");
        } else if self.expires.is_some_and(|at| at <= now) {
            self.close(EXPIRED, "token_expired");
        } else if unprocessed && since(self.pinged_at) >= ticks(limits.pong_timeout) {
            self.close(NO_PONG, "no_pong");
            // A client that does not answer pings does not answer a close frame either.
            self.client_closed = true;
        } else if self.subscription.is_behind() {
            self.close(SLOW, "slow_resume");
        } else if since(self.pinged_at) >= ticks(limits.ping_interval) {
            self.pinged_at = now;
            self.subscription.replies.push_back(websocket::ping(b""));
        }
    }

    fn allow(&mut self) {
        let limits = &self.subscription.ticket.hub.limits;
        let passed = self.subscription.now.saturating_sub(self.allowed_at);
        let more =
            passed.saturating_mul(limits.messages_per_second / ticks(Duration::from_secs(1)));
        if more > 0 {
            self.allowance = self.allowance.saturating_add(more).min(limits.message_burst);
            self.allowed_at = self.subscription.now;
        }
    }

    fn set_alarm(&self) {
        let (now, limits) = (self.subscription.now, &self.subscription.ticket.hub.limits);
        let due = match self.closing {
            Some(closing) => closing.ends(&self.subscription),
            None if self.received_at < self.pinged_at => {
                self.pinged_at + ticks(limits.pong_timeout)
            }
            None => self.pinged_at + ticks(limits.ping_interval),
        };
        self.subscription.wake_at(due.min(self.expires.unwrap_or(u32::MAX)).max(now + 1));
    }

    fn error(&self, reference: Option<&str>, problem: &Problem) -> Bytes {
        message::error(reference, &self.writer.explain(problem))
    }
}

/// A ticket for a socket, before it is opened.
pub fn admit(hub: &Arc<Hub>, scope: Scope) -> Result<Ticket, crate::hub::Full> {
    hub.enter(scope, Channel::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sockets_task_stays_small() {
        // Each open socket keeps this, in addition to its slot and the runtime's part. A kilobyte
        // more would be a gigabyte for a million of them.
        let bytes = size_of::<Running>();
        assert!(bytes <= 700, "{bytes}");
    }
}
