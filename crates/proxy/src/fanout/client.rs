//! The stream of one client. It begins as a stream of the client's own at the backend, which has
//! checked the credential and chosen the head of the response. Once the client is where a shared
//! stream is, it goes on with that one, and its own is closed; or its own becomes the shared one.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{Sleep, sleep};
use wire::{Chunks, Cut};

use super::blocks::{Batch, Position, Splitter, Unfit};
use super::key::Key;
use super::reopen::Reopen;
use super::ring::Joined;
use super::shared::Reader;
use super::{Attached, Fanout};

/// A resumed stream that is silent for this long has sent what its client had missed. Only such a
/// stream is shared: others would wait behind what they do not need.
const CAUGHT_UP: Duration = Duration::from_millis(200);
/// Messages without a position that a client may have missed in the change of streams are sent once
/// more. A second is longer than two connections to one server differ.
const OVERLAP: Duration = Duration::from_secs(1);

pub(super) struct Client {
    fanout: Fanout,
    key: Key,
    id: u64,
    phase: Phase,
}

enum Phase {
    /// On a stream of its own.
    Own(Box<Own>),
    /// On a stream that cannot be shared, as it comes.
    Plain(Box<dyn Chunks>),
    Shared(Reader),
    Ended,
}

pub(super) struct Own {
    pub(super) source: Box<dyn Chunks>,
    pub(super) splitter: Splitter,
    /// Opens the stream again, if it becomes the shared one.
    pub(super) repeat: Option<Box<dyn Reopen>>,
    /// The position from which the client resumes.
    requested: Option<String>,
    /// When the request was sent.
    sent: Instant,
    /// After what the client has.
    position: Option<Position>,
    /// The stream did not begin where the client wanted: a block says why, which comes next.
    awaits_reset: bool,
    /// What the client has is more than the first block.
    has_events: bool,
    /// It has sent everything up to now.
    is_caught_up: bool,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Client {
    pub(super) fn new(fanout: Fanout, key: Key, own: Own) -> Client {
        let id = fanout.enter(&key);
        Client { fanout, key, id, phase: Phase::Own(Box::new(own)) }
    }

    /// Goes on with the shared stream, if the client is where that is.
    fn share(&mut self, cx: &Context<'_>) {
        let Phase::Own(own) = &self.phase else { return };
        let Some(joined) = own.joined() else { return };
        if let Some(reader) = self.fanout.join(&self.key, joined) {
            self.phase = Phase::Shared(reader);
            return;
        }
        if !own.is_caught_up {
            return;
        }
        let Phase::Own(own) = std::mem::replace(&mut self.phase, Phase::Ended) else { return };
        let who = (&self.key, self.id);
        self.phase = match self.fanout.lead(who, joined, own, cx.waker()) {
            Attached::Shared(reader) => Phase::Shared(reader),
            Attached::Own(own) => Phase::Own(own),
        };
    }
}

impl Chunks for Client {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        loop {
            let own = match &mut self.phase {
                Phase::Own(own) => own,
                Phase::Plain(source) => return source.poll_chunk(cx),
                Phase::Shared(reader) => return reader.poll(cx),
                Phase::Ended => return Poll::Ready(None),
            };
            match own.source.poll_chunk(cx) {
                Poll::Ready(Some(Ok(piece))) => match own.splitter.push(&piece) {
                    Ok(None) => own.moved(),
                    Ok(Some(batch)) => {
                        own.moved();
                        own.note(&batch);
                        self.share(cx);
                        return Poll::Ready(Some(Ok(batch.bytes)));
                    }
                    Err(Unfit(held)) => {
                        if let Phase::Own(own) = std::mem::replace(&mut self.phase, Phase::Ended) {
                            self.phase = Phase::Plain(own.source);
                        }
                        return Poll::Ready(Some(Ok(held)));
                    }
                },
                Poll::Ready(end) => return Poll::Ready(end),
                Poll::Pending => {
                    if !own.has_caught_up(cx) {
                        return Poll::Pending;
                    }
                    // Another client may have come, or has made its stream the shared one.
                    self.share(cx);
                    if let Phase::Own(_) = self.phase {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.fanout.leave(&self.key, self.id);
    }
}

impl Own {
    pub(super) fn new(
        requested: Option<String>,
        sent: Instant,
        source: Box<dyn Chunks>,
        repeat: Option<Box<dyn Reopen>>,
    ) -> Own {
        let is_caught_up = requested.is_none();
        Own {
            source,
            splitter: Splitter::default(),
            repeat,
            requested,
            sent,
            position: None,
            awaits_reset: false,
            has_events: false,
            is_caught_up,
            silence: (!is_caught_up).then(|| Box::pin(sleep(CAUGHT_UP))),
        }
    }

    /// Notes what the client has after these blocks.
    fn note(&mut self, batch: &Batch) {
        for mark in &batch.marks {
            self.has_events |= self.position.is_some();
            let is_first = self.position.is_none();
            self.position = mark.id.or(self.position);
            if let (true, Some(position), Some(requested)) = (is_first, mark.id, &self.requested) {
                self.awaits_reset = !position.is_named(requested);
            }
            if mark.is_reset {
                self.awaits_reset = false;
            }
        }
    }

    /// What the client has, if another stream can follow it.
    fn joined(&self) -> Option<Joined> {
        let at = self.position.filter(|_| !self.awaits_reset)?;
        let now = Instant::now();
        let since = match self.has_events {
            // Nothing that came on the own stream went to the client.
            false => self.sent,
            true => now.checked_sub(OVERLAP).unwrap_or(now).max(self.sent),
        };
        Some(Joined { at, since })
    }

    /// The stream has sent something.
    fn moved(&mut self) {
        if let Some(silence) = &mut self.silence {
            silence.as_mut().reset(tokio::time::Instant::now() + CAUGHT_UP);
        }
    }

    /// Whether the client has what it had missed: its stream is silent.
    fn has_caught_up(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(silence) = &mut self.silence
            && silence.as_mut().poll(cx).is_ready()
        {
            self.silence = None;
            self.is_caught_up = true;
        }
        self.is_caught_up
    }
}
