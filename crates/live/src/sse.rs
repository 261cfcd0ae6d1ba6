//! Server-sent events: a response that never ends. It begins with the position, so that a client
//! which is cut off before its first event resumes, too.

use crate::ask::{Asked, Visitor};
use crate::entry::{Encoding, sse};
use crate::hub::{Arrival, Full, Hub};
use crate::line::{Line, Sent};
use crate::metrics::Channel;
use crate::shard::ticks;
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

/// Told before the end of the credentials, which is the end of the stream.
const CLOSING: &str = "stream.closing";

/// Opens a stream, if there is room for one.
pub fn open(hub: &Arc<Hub>, visitor: &Visitor, asked: Asked) -> Result<Response, Full> {
    let ticket = hub.enter(visitor.scope, Channel::Sse)?;
    let arrival = visitor.user.as_ref().map(|user| hub.arrive(visitor.scope, user, visitor.now));
    let begin = asked.begin(*hub.store.0.position().borrow());
    let expires = visitor.expires_in;
    let (hub, visitor) = (hub.clone(), visitor.clone());
    let body = Payload::take_over(move |raw| {
        let mut line = Line::new(ticket, Encoding::Sse, &visitor, asked.interest, begin);
        line.own.push_front(greeting(&line, &hub));
        let stream = Stream {
            expires: expires.and_then(|time| NonZeroU32::new(ticks(time).saturating_sub(2).max(1))),
            line,
            leaving: false,
            begun: false,
            _arrival: arrival.map(Box::new),
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

fn greeting(line: &Line, hub: &Hub) -> Bytes {
    let position = hub.codec.epoch.at(line.cursor);
    Bytes::from(format!("retry: {}\nid: {position}\n\n", hub.retry_ms()))
}

/// Sends a client away in the one way from which a browser comes back: any status but 200 would be
/// the end for its EventSource.
pub fn come_again(hub: &Hub, full: Full) -> Response {
    // Whose own connections are too many need not hurry.
    let factor = if full == Full::Account { 4 } else { 1 };
    let body = format!("retry: {}\n\n", hub.retry_ms() * factor);
    Response { headers: headers(), ..Response::new(StatusCode::OK, body) }
}

struct Stream {
    line: Line,
    /// Tick, counted from the first look, at which the credentials end.
    expires: Option<NonZeroU32>,
    /// Ends once everything was sent that is under way.
    leaving: bool,
    begun: bool,
    _arrival: Option<Box<Arrival>>,
}

/// The task of a stream. By hand: an `async fn` keeps room for what it is given twice over.
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
        self.line.now = self.line.seat.now();
        self.line.written_at = self.line.now;
        self.expires = self.expires.map(|ticks| ticks.saturating_add(self.line.now));
        self.set_alarm();
    }

    fn poll(&mut self, raw: &mut Raw, cx: &mut Context<'_>) -> Poll<()> {
        let turn = self.line.turn(cx);
        if self.line.revoked && !self.leaving {
            self.close("key_revoked");
        }
        if is_gone(raw, cx) {
            return Poll::Ready(());
        }
        if turn.due {
            if self.line.is_stalled() {
                return Poll::Ready(());
            }
            self.check(turn.leaving);
        }
        match self.line.poll_send(raw, cx, turn.passing) {
            Sent::Gone => return Poll::Ready(()),
            Sent::Everything if self.leaving => return Poll::Ready(()),
            Sent::Everything | Sent::Waiting => {}
        }
        if turn.due {
            self.set_alarm();
        }
        Poll::Pending
    }

    /// What time has brought.
    fn check(&mut self, leaving: bool) {
        let line = &mut self.line;
        if self.leaving {
            return;
        }
        if leaving {
            // A client that takes nothing at the moment has until the drain time is over.
            let retry = line.ticket.hub.retry_ms();
            line.own.push_back(Bytes::from(format!("retry: {retry}\n\n")));
            (self.leaving, line.muted) = (true, true);
        } else if self.expires.is_some_and(|at| at.get() <= line.now) {
            self.close("token_expired");
        } else if line.is_behind() {
            self.close("slow_resume");
        } else if line.now.saturating_sub(line.written_at)
            >= ticks(line.ticket.hub.limits.heartbeat)
            && !line.is_blocked()
        {
            // The position too: a client that heard nothing for long need not go far back.
            let position = line.ticket.hub.codec.epoch.at(line.cursor);
            line.own.push_back(Bytes::from(format!(": still here\nid: {position}\n\n")));
        }
    }

    /// Tells why the stream ends. A browser comes back with the same credentials, and is refused if
    /// it is for them.
    fn close(&mut self, reason: &str) {
        let data = format!("{{\"reason\":\"{reason}\"}}");
        self.line.own.push_back(sse(Some(CLOSING), None, &data));
        (self.leaving, self.line.muted) = (true, true);
    }

    fn set_alarm(&self) {
        let line = &self.line;
        let quiet =
            line.written_at.max(line.now.saturating_sub(ticks(line.ticket.hub.limits.heartbeat)));
        let mut due = quiet + ticks(line.ticket.hub.limits.heartbeat);
        if due <= line.now {
            due = line.now + ticks(line.ticket.hub.limits.heartbeat);
        }
        line.seat
            .wake_at(due.min(self.expires.map_or(u32::MAX, NonZeroU32::get)).max(line.now + 1));
    }
}

/// Whether the client has closed. What it sends meanwhile means nothing.
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
        // Each open stream keeps this, beside its seat and what the runtime needs. A kilobyte more
        // would be a gigabyte for a million of them.
        let bytes = size_of::<Running>();
        assert!(bytes <= 256, "{bytes}");
    }
}
