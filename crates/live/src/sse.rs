//! Server-sent events: a response that does not end. It begins with the position, so that a client
//! that is disconnected before its first event can resume as well.

use crate::ask::{ChannelCaller, SubscribeRequest};
use crate::entry::{Encoding, sse};
use crate::hub::{Full, Hub, OnlineGuard};
use crate::metrics::Channel;
use crate::shard::ticks;
use crate::subscription::{Sent, Subscription};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use wire::{Payload, Raw, Response};

/// Sent before the credentials expire, which ends the stream.
const CLOSING: &str = "stream.closing";

/// Opens a stream, if there is room for one.
pub fn open(
    hub: &Arc<Hub>,
    caller: &ChannelCaller,
    asked: SubscribeRequest,
) -> Result<Response, Full> {
    let ticket = hub.enter(caller.scope, Channel::Sse)?;
    let online = caller.user.as_ref().map(|user| hub.mark_online(caller.scope, user, caller.now));
    let begin = asked.begin(*hub.store.0.position().borrow());
    let expires = caller.expires_in;
    let (hub, caller) = (hub.clone(), caller.clone());
    let body = Payload::take_over(move |raw| {
        let mut subscription =
            Subscription::new(ticket, Encoding::Sse, &caller, asked.interest, begin);
        subscription.replies.push_front(greeting(&subscription, &hub));
        let stream = Stream {
            expires: expires.and_then(|time| NonZeroU32::new(ticks(time).saturating_sub(2).max(1))),
            subscription,
            leaving: false,
            begun: false,
            _online: online.map(Box::new),
        };
        Running { stream, raw }
    });
    Ok(Response { status: StatusCode::OK, headers: headers(), body, ..Response::default() })
}

/// What a stream's head says.
pub fn headers() -> HeaderMap {
    const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    headers
}

fn greeting(subscription: &Subscription, hub: &Hub) -> Bytes {
    let position = hub.codec.epoch.at(subscription.cursor);
    Bytes::from(format!("retry: {}\nid: {position}\n\n", hub.retry_ms()))
}

/// A response that makes a browser retry later. After any status but 200 its EventSource never
/// reconnects.
pub fn retry_later(hub: &Hub, full: Full) -> Response {
    // An account with too many connections of its own retries later.
    let factor = if full == Full::Account { 4 } else { 1 };
    let body = format!("retry: {}\n\n", hub.retry_ms() * factor);
    Response { headers: headers(), ..Response::new(StatusCode::OK, body) }
}

struct Stream {
    subscription: Subscription,
    /// Tick, counted from the first look, at which the credentials end.
    expires: Option<NonZeroU32>,
    /// The stream ends once everything in progress was sent.
    leaving: bool,
    begun: bool,
    _online: Option<Box<OnlineGuard>>,
}

/// The task of a stream. Written by hand: an `async fn` keeps room for its arguments twice.
struct Running {
    stream: Stream,
    raw: Raw,
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Running { stream, raw } = self.get_mut();
        if !std::mem::replace(&mut stream.begun, true) {
            stream.begin();
        }
        stream.poll(raw, cx)
    }
}

impl Stream {
    fn begin(&mut self) {
        self.subscription.now = self.subscription.slot.now();
        self.subscription.written_at = self.subscription.now;
        self.expires = self.expires.map(|ticks| ticks.saturating_add(self.subscription.now));
        self.set_alarm();
    }

    fn poll(&mut self, raw: &mut Raw, cx: &mut Context<'_>) -> Poll<()> {
        if self.subscription.poll_key(cx).is_pending() {
            return Poll::Pending;
        }
        let wakeup = self.subscription.wakeup(cx);
        if self.subscription.revoked && !self.leaving {
            self.close("key_revoked");
        }
        if is_gone(raw, cx) {
            return Poll::Ready(());
        }
        if wakeup.due {
            if self.subscription.is_stalled() {
                return Poll::Ready(());
            }
            self.check(wakeup.leaving);
        }
        match self.subscription.poll_send(raw, cx, wakeup.ephemeral) {
            Sent::Gone => return Poll::Ready(()),
            Sent::Everything if self.leaving => return Poll::Ready(()),
            Sent::Everything | Sent::Waiting => {}
        }
        if wakeup.due {
            self.set_alarm();
        }
        Poll::Pending
    }

    /// Checks what is due.
    fn check(&mut self, leaving: bool) {
        let subscription = &mut self.subscription;
        if self.leaving {
            return;
        }
        if leaving {
            // A client that takes nothing at the moment has until the drain time is over.
            let retry = subscription.ticket.hub.retry_ms();
            subscription.replies.push_back(Bytes::from(format!("retry: {retry}\n\n")));
            (self.leaving, subscription.muted) = (true, true);
        } else if self.expires.is_some_and(|at| at.get() <= subscription.now) {
            self.close("token_expired");
        } else if subscription.is_behind() {
            self.close("slow_resume");
        } else if subscription.now.saturating_sub(subscription.written_at)
            >= ticks(subscription.ticket.hub.limits.heartbeat)
            && !subscription.is_blocked()
        {
            // With the position: a client that received nothing for long need not go far back.
            let position = subscription.ticket.hub.codec.epoch.at(subscription.cursor);
            subscription
                .replies
                .push_back(Bytes::from(format!(": still here\nid: {position}\n\n")));
        }
    }

    /// Sends why the stream ends. A browser reconnects with the same credentials, and is refused
    /// then if they are the reason.
    fn close(&mut self, reason: &str) {
        let data = format!("{{\"reason\":\"{reason}\"}}");
        self.subscription.replies.push_back(sse(Some(CLOSING), None, &data));
        (self.leaving, self.subscription.muted) = (true, true);
    }

    fn set_alarm(&self) {
        let subscription = &self.subscription;
        let quiet = subscription
            .written_at
            .max(subscription.now.saturating_sub(ticks(subscription.ticket.hub.limits.heartbeat)));
        let mut due = quiet + ticks(subscription.ticket.hub.limits.heartbeat);
        if due <= subscription.now {
            due = subscription.now + ticks(subscription.ticket.hub.limits.heartbeat);
        }
        subscription.wake_at(
            due.min(self.expires.map_or(u32::MAX, NonZeroU32::get)).max(subscription.now + 1),
        );
    }
}

/// Whether the client has closed. What it sends is ignored.
fn is_gone(raw: &mut Raw, cx: &mut Context<'_>) -> bool {
    loop {
        if raw.poll_readable(cx).is_pending() {
            return false;
        }
        let mut bytes = [0; 512];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *raw).poll_read(cx, &mut buffer) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
            Poll::Ready(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_task_stays_small() {
        // Each open stream keeps this, in addition to its slot and the runtime's part. A kilobyte
        // more would be a gigabyte for a million of them.
        let bytes = size_of::<Running>();
        assert!(bytes <= 264, "{bytes}");
    }
}
