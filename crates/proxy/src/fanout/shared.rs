//! A stream of a backend that several clients read. One task reads the backend; each client has a
//! place in the ring. The task reads as fast as the fastest client, so that a slow one delays
//! nobody, and is cut when the ring no longer has what it must read next. A stream that the backend
//! loses is opened again; if that fails, the clients are ended one after the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use wire::{Chunks, Cut};

use super::blocks::{Batch, Position, Splitter};
use super::metrics::Metrics;
use super::reopen::Reopen;
use super::resume::{Resumed, resume};
use super::ring::{Joined, Read, Ring};

/// For how long a stream without clients stays open. Half a second: a client that reconnects at
/// once finds it, and a backend does not keep streams that nobody reads.
const LINGER: Duration = Duration::from_millis(500);
/// A stream without a byte for this long is taken for dead. A restive server sends a comment every
/// 25 s; clients that come must not join a stream whose connection is lost.
const SILENCE: Duration = Duration::from_secs(70);
/// The clients of a stream that is lost are ended within this time, so that they do not all come
/// back at once. 3 s, as a restive server takes to end its streams when it stops.
const SPREAD: Duration = Duration::from_secs(3);
/// In so many steps.
const SPREAD_STEPS: u32 = 30;
/// The part of a ring that the fastest client may be behind before the backend is not read any
/// more.
const AHEAD_PART: usize = 2;

/// The memory of all rings, in equal shares. 64 MiB, as the cache has.
const ALL_RINGS_BYTES: usize = 64 << 20;
/// The most that one ring has of it. 1 MiB: a thousand events of 1 KiB.
const MAX_RING_BYTES: usize = 1 << 20;
/// The least: with this share each, all streams that there can be have their rings.
const MIN_RING_BYTES: usize = ALL_RINGS_BYTES / super::MAX_STREAMS;

/// A stream that clients can join.
pub(super) struct Shared {
    state: Mutex<State>,
    /// The fastest client has read while the task waited for it.
    has_room: Notify,
    /// The last client has left.
    is_left: Notify,
    metrics: Arc<Metrics>,
    /// The number of all shared streams.
    streams: Arc<AtomicUsize>,
}

struct State {
    ring: Ring,
    clients: Slab<Client>,
    /// The batch that the fastest client reads next.
    fastest: u64,
    /// The task waits until the fastest client has read.
    is_paused: bool,
    end: Option<End>,
}

struct Client {
    next: u64,
    waker: Option<Waker>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As the backend ended it, or because nobody read it.
    Ended,
    /// The connection to the backend broke.
    Broken,
    /// It cannot be shared. Clients that come back have streams of their own.
    Unfit,
}

/// Why the backend is not read any more.
enum Stopped {
    /// It said why, or what it sent cannot be shared.
    ForGood(End),
    /// The connection ended, as it does when the backend stops.
    Lost(End),
}

/// Clients that are to be woken, at the latest when this is dropped.
struct Wakers(Vec<Waker>);

impl Drop for Wakers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// Why a client cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotJoined {
    /// The stream is over: another can take its place.
    Over,
    /// The client is at another place, or the stream cannot be shared.
    Apart,
}

impl Shared {
    /// A stream that goes on from this position.
    pub(super) fn new(
        floor: Position,
        metrics: Arc<Metrics>,
        streams: Arc<AtomicUsize>,
    ) -> Arc<Shared> {
        let ring = Ring::new(floor);
        let clients = Slab::new();
        let state = State { ring, clients, fastest: 0, is_paused: false, end: None };
        Arc::new(Shared {
            state: Mutex::new(state),
            has_room: Notify::new(),
            is_left: Notify::new(),
            metrics,
            streams,
        })
    }

    pub(super) fn join(self: &Arc<Shared>, joined: Joined) -> Result<Reader, NotJoined> {
        let mut state = self.state.lock();
        match state.end {
            None => {}
            Some(End::Unfit) => return Err(NotJoined::Apart),
            Some(_) => return Err(NotJoined::Over),
        }
        let next = state.ring.begin(joined).ok_or(NotJoined::Apart)?;
        let slot = state.clients.insert(Client { next, waker: None });
        self.advance(&mut state, next);
        drop(state);
        self.metrics.joined();
        Ok(Reader { shared: self.clone(), slot, joined: Some(joined) })
    }

    /// Reads the backend until it ends or nobody reads any more.
    pub(super) async fn run(
        &self,
        source: Box<dyn Chunks>,
        splitter: Splitter,
        repeat: Option<Box<dyn Reopen>>,
    ) -> End {
        let stopped = tokio::select! {
            stopped = self.follow(source, splitter, repeat) => stopped,
            () = self.abandoned() => Stopped::ForGood(End::Ended),
        };
        match stopped {
            Stopped::ForGood(end) => self.finish(end),
            Stopped::Lost(end) => self.finish_in_turn(end).await,
        }
    }

    /// Reads the backend, and opens its stream again when that is lost.
    async fn follow(
        &self,
        mut source: Box<dyn Chunks>,
        mut splitter: Splitter,
        repeat: Option<Box<dyn Reopen>>,
    ) -> Stopped {
        loop {
            let stopped = self.relay(&mut *source, splitter).await;
            // The backend's connection is closed before the clients come back.
            drop(source);
            let (Stopped::Lost(_), Some(repeat)) = (&stopped, &repeat) else { return stopped };
            let at = self.state.lock().ring.head();
            let number = self.metrics.lost();
            let Some(resumed) = resume(&**repeat, at, number).await else { return stopped };
            self.metrics.resumed();
            let blocks;
            Resumed { source, splitter, blocks } = resumed;
            if blocks.is_some_and(|blocks| !self.publish(blocks)) {
                return Stopped::ForGood(End::Ended);
            }
        }
    }

    /// Ends the stream for all its clients, unless it has ended. Returns how.
    pub(super) fn finish(&self, end: End) -> End {
        let mut state = self.state.lock();
        let end = *state.end.get_or_insert(end);
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        end
    }

    /// The same, for one client after the other.
    async fn finish_in_turn(&self, end: End) -> End {
        let (end, mut wakers) = {
            let mut state = self.state.lock();
            let end = *state.end.get_or_insert(end);
            (end, Wakers(state.take_wakers()))
        };
        let each = wakers.0.len().div_ceil(SPREAD_STEPS as usize);
        while !wakers.0.is_empty() {
            let left = wakers.0.len().saturating_sub(each);
            wakers.0.drain(left..).for_each(Waker::wake);
            sleep(SPREAD / SPREAD_STEPS).await;
        }
        end
    }

    async fn relay(&self, source: &mut dyn Chunks, mut splitter: Splitter) -> Stopped {
        let mut is_closing = false;
        loop {
            self.room().await;
            let lost = match is_closing {
                true => Stopped::ForGood,
                false => Stopped::Lost,
            };
            let piece = match timeout(SILENCE, poll_fn(|cx| source.poll_chunk(cx))).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(Cut))) | Err(_) => return lost(End::Broken),
                Ok(None) => return lost(End::Ended),
            };
            let Ok(batch) = splitter.push(&piece) else { return Stopped::ForGood(End::Unfit) };
            let Some(batch) = batch.and_then(Batch::without_settings) else { continue };
            is_closing |= batch.marks.iter().any(|mark| mark.is_closing);
            if !self.publish(batch) {
                return Stopped::ForGood(End::Ended);
            }
        }
    }

    /// Gives blocks to all clients. False if the stream has become another.
    fn publish(&self, batch: Batch) -> bool {
        let mut state = self.state.lock();
        if !state.ring.push(batch, self.ring_bytes(), Instant::now()) {
            return false;
        }
        let wakers = state.take_wakers();
        // Clients on other threads would wait for the lock.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Waits while the fastest client is too far behind.
    async fn room(&self) {
        loop {
            {
                let mut state = self.state.lock();
                let unread = state.ring.bytes_from(state.fastest);
                state.is_paused = unread > self.ring_bytes() / AHEAD_PART;
                if !state.is_paused {
                    return;
                }
            }
            self.has_room.notified().await;
        }
    }

    /// Waits until there has been no client for a while. None can join after that.
    async fn abandoned(&self) {
        loop {
            if self.state.lock().clients.is_empty() {
                sleep(LINGER).await;
                let mut state = self.state.lock();
                if state.clients.is_empty() {
                    state.end = Some(End::Ended);
                    return;
                }
            }
            self.is_left.notified().await;
        }
    }

    /// A client reads this batch next.
    fn advance(&self, state: &mut State, next: u64) {
        if next > state.fastest {
            state.fastest = next;
            if std::mem::take(&mut state.is_paused) {
                self.has_room.notify_one();
            }
        }
    }

    fn ring_bytes(&self) -> usize {
        let streams = self.streams.load(Ordering::Relaxed).max(1);
        (ALL_RINGS_BYTES / streams).clamp(MIN_RING_BYTES, MAX_RING_BYTES)
    }
}

impl State {
    fn take_wakers(&mut self) -> Vec<Waker> {
        self.clients.iter_mut().filter_map(|(_, client)| client.waker.take()).collect()
    }
}

/// A client of a shared stream, until it is dropped.
pub(super) struct Reader {
    shared: Arc<Shared>,
    slot: usize,
    /// What it had before it joined, until it is past that.
    joined: Option<Joined>,
}

impl Reader {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let Some(client) = state.clients.get_mut(self.slot) else { return Poll::Ready(None) };
        let read = state.ring.read(&mut client.next, &mut self.joined);
        let next = client.next;
        let outcome = match (read, state.end) {
            (Read::Bytes(bytes), _) => Poll::Ready(Some(Ok(bytes))),
            (Read::Nothing, None) => {
                match &mut client.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            (Read::Nothing, Some(End::Broken)) => Poll::Ready(Some(Err(Cut))),
            (Read::Nothing, Some(End::Ended | End::Unfit)) => Poll::Ready(None),
            (Read::Behind, _) => {
                self.shared.metrics.fell_behind();
                // It ends between two blocks, and the client comes back with its position.
                Poll::Ready(None)
            }
        };
        self.shared.advance(state, next);
        outcome
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.clients.try_remove(self.slot);
        if state.clients.is_empty() {
            state.clients.shrink_to_fit();
            self.shared.is_left.notify_one();
        }
        drop(state);
        self.shared.metrics.left();
    }
}
