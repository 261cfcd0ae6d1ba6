//! One request to the backend for all clients that want the same response. A task of its own reads
//! the response, so that a client that leaves stops nobody else; the clients read what has arrived.
//! The memory is bounded: a body that becomes too large to be stored goes on to its first client
//! alone, as fast as that one reads.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use wire::{Chunks, Cut, Response};

use super::policy::{NotStored, Rules};
use super::store::Stored;
use super::vary::Selection;
use crate::balance::Backend;
use crate::error::Failure;

/// The place of the client that began it; others have larger numbers.
const LEADER: u64 = 0;

/// A response on its way into the cache.
pub(crate) struct Fill {
    state: Mutex<State>,
    /// A write has changed the resource since the request was sent: the response is not stored.
    is_outdated: AtomicBool,
}

struct State {
    phase: Phase,
    /// What only the first client gets.
    lead: Option<Lead>,
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    /// The rest of a body that is not stored, for the first client.
    rest: Option<Box<dyn Chunks>>,
    is_cut: bool,
    clients: u64,
    waiting: HashMap<u64, Waker>,
    /// Clients that wait for the head or read the body. Without any the request is given up, unless
    /// the rest of the body is known to be small.
    interested: usize,
    task: Option<Waker>,
    charge: Option<Charge>,
}

enum Phase {
    Asked,
    Body(Arc<Head>),
    Done(Arc<Stored>),
    /// The backend fails and this stored response may be used.
    Stale(Arc<Stored>),
    /// Each client has to ask the backend on its own.
    Alone,
    Failed(Failure),
}

/// The head of a response that is being stored.
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) rules: Rules,
    pub(crate) selection: Selection,
    pub(crate) length_bytes: Option<u64>,
}

/// What only the first client gets.
pub(crate) enum Lead {
    /// A response that is not stored.
    Own(Response, Arc<Backend>, NotStored),
    /// The headers as the backend sent them, for a response that is stored.
    Headers(HeaderMap, Arc<Backend>, Arc<Head>),
    /// A stored response that is valid again, and the cookies of the 304.
    Confirmed(Arc<Stored>, Vec<HeaderValue>),
}

/// What a client gets.
pub(crate) enum Outcome {
    Lead(Lead),
    /// The head, and the body by a [`Reader`].
    Body(Arc<Head>),
    Done(Arc<Stored>),
    Stale(Arc<Stored>),
    Alone,
    Failed(Failure),
}

impl Fill {
    pub(crate) fn new() -> Arc<Fill> {
        Arc::new(Fill {
            state: Mutex::new(State {
                phase: Phase::Asked,
                lead: None,
                pieces: Vec::new(),
                trailers: None,
                rest: None,
                is_cut: false,
                clients: LEADER,
                waiting: HashMap::new(),
                interested: 0,
                task: None,
                charge: None,
            }),
            is_outdated: AtomicBool::new(false),
        })
    }

    /// A place for a client. The first one is the leader.
    pub(crate) fn ticket(self: &Arc<Fill>) -> Ticket {
        let mut state = self.state.lock();
        let number = state.clients;
        state.clients += 1;
        state.interested += 1;
        Ticket { fill: self.clone(), number }
    }

    pub(crate) fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    /// Ends when no client waits for the head or reads the body any more.
    pub(crate) async fn abandoned(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.interested == 0 {
                return Poll::Ready(());
            }
            state.task = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// A client waits or reads no more. The task looks whether it was the last one.
    fn leave(&self, number: u64) {
        let task = {
            let mut state = self.state.lock();
            state.waiting.remove(&number);
            state.interested -= 1;
            if state.interested == 0 { state.task.take() } else { None }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.state.lock();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting.into_values() {
            waker.wake();
        }
    }

    /// The head of a response that will be stored.
    pub(crate) fn head(&self, head: Arc<Head>, lead: Lead, charge: Charge) {
        self.change(|state| {
            state.phase = Phase::Body(head);
            state.lead = Some(lead);
            state.charge = Some(charge);
        });
    }

    /// Adds a piece of the body, if there is memory for it.
    pub(crate) fn piece(&self, piece: &Bytes, is_reserved: bool) -> bool {
        let mut is_held = true;
        self.change(|state| {
            state.pieces.push(piece.clone());
            let charge = state.charge.as_mut();
            is_held = is_reserved || charge.is_none_or(|charge| charge.grow(piece.len() as u64));
        });
        is_held
    }

    /// Gives the rest of a body that is not stored to the first client. The others go alone.
    pub(crate) fn hand_over(&self, rest: Box<dyn Chunks>) {
        self.change(|state| {
            state.rest = Some(rest);
            state.phase = Phase::Alone;
        });
    }

    /// All of the body so far.
    pub(crate) fn body(&self) -> Bytes {
        let state = self.state.lock();
        let mut body = BytesMut::with_capacity(state.pieces.iter().map(Bytes::len).sum());
        for piece in &state.pieces {
            body.extend_from_slice(piece);
        }
        body.freeze()
    }

    pub(crate) fn done(&self, stored: Arc<Stored>, trailers: Option<HeaderMap>) {
        self.change(|state| {
            state.phase = Phase::Done(stored);
            state.trailers = trailers;
            state.pieces = Vec::new();
            // The body is in the cache.
            state.charge = None;
        });
    }

    /// A stored response is valid again. If it may not be stored any more, the others go alone.
    pub(crate) fn confirmed(
        &self,
        stored: Arc<Stored>,
        cookies: Vec<HeaderValue>,
        is_for_all: bool,
    ) {
        self.change(|state| {
            state.lead = Some(Lead::Confirmed(stored.clone(), cookies));
            state.phase = if is_for_all { Phase::Done(stored) } else { Phase::Alone };
        });
    }

    pub(crate) fn stale(&self, stored: Arc<Stored>) {
        self.change(|state| state.phase = Phase::Stale(stored));
    }

    /// The response is for the first client alone. `failure` is for the others, if the backend
    /// fails: they must not all ask it again.
    pub(crate) fn own(&self, lead: Lead, failure: Option<Failure>) {
        self.change(|state| {
            state.lead = Some(lead);
            state.phase = failure.map_or(Phase::Alone, Phase::Failed);
        });
    }

    pub(crate) fn fail(&self, failure: Failure) {
        self.change(|state| {
            state.is_cut = matches!(state.phase, Phase::Body(_));
            state.phase = Phase::Failed(failure);
        });
    }

    /// The request was given up; clients that have come since ask on their own.
    pub(crate) fn give_up(&self) {
        self.change(|state| state.phase = Phase::Alone);
    }

    /// The task has ended; nobody may wait for it.
    pub(crate) fn end(&self) {
        let is_open = matches!(self.state.lock().phase, Phase::Asked | Phase::Body(_));
        if is_open {
            self.fail(Failure::unavailable());
        }
    }
}

/// A client that waits for a response.
pub(crate) struct Ticket {
    fill: Arc<Fill>,
    number: u64,
}

impl Ticket {
    pub(crate) fn is_leader(&self) -> bool {
        self.number == LEADER
    }

    /// Waits for the head, or for the whole response if its length is not known: only one client
    /// can follow a body that may become too large to be held.
    pub(crate) async fn wait(&self) -> Outcome {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.fill.state.lock();
        if self.is_leader()
            && let Some(lead) = state.lead.take()
        {
            return Poll::Ready(Outcome::Lead(lead));
        }
        let outcome = match &state.phase {
            Phase::Body(head) if self.is_leader() || head.length_bytes.is_some() => {
                Outcome::Body(head.clone())
            }
            Phase::Asked | Phase::Body(_) => {
                state.waiting.insert(self.number, cx.waker().clone());
                return Poll::Pending;
            }
            Phase::Done(stored) => Outcome::Done(stored.clone()),
            Phase::Stale(stored) => Outcome::Stale(stored.clone()),
            Phase::Alone => Outcome::Alone,
            Phase::Failed(failure) => Outcome::Failed(failure.clone()),
        };
        Poll::Ready(outcome)
    }

    /// The body of the response.
    pub(crate) fn reader(&self, length_bytes: Option<u64>) -> Reader {
        let (fill, number) = (self.fill.clone(), self.number);
        fill.state.lock().interested += 1;
        Reader { fill, number, next: 0, sent_bytes: 0, length_bytes, rest: None, trailers: None }
    }

    /// The client waits no longer and the request goes on: for revalidations in the background.
    pub(crate) fn keep(self) {
        self.hold();
    }

    /// The request goes on to its end, whoever leaves: the client needs no body, and the next one
    /// may.
    pub(crate) fn hold(&self) {
        self.fill.state.lock().interested += 1;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.fill.leave(self.number);
    }
}

/// Reads the body of a response while it arrives.
pub(crate) struct Reader {
    fill: Arc<Fill>,
    number: u64,
    /// The next piece.
    next: usize,
    sent_bytes: usize,
    length_bytes: Option<u64>,
    rest: Option<Box<dyn Chunks>>,
    trailers: Option<HeaderMap>,
}

impl Chunks for Reader {
    fn length_bytes(&self) -> Option<u64> {
        self.length_bytes
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        if let Some(rest) = &mut self.rest {
            return rest.poll_chunk(cx);
        }
        let mut state = self.fill.state.lock();
        if let Phase::Done(stored) = &state.phase {
            let left = stored.body.slice(self.sent_bytes.min(stored.body.len())..);
            self.sent_bytes = stored.body.len();
            self.trailers = state.trailers.clone().filter(|_| self.number == LEADER);
            return Poll::Ready((!left.is_empty()).then_some(Ok(left)));
        }
        if let Some(piece) = state.pieces.get(self.next).cloned() {
            self.next += 1;
            self.sent_bytes += piece.len();
            return Poll::Ready(Some(Ok(piece)));
        }
        // The rest of a body that is not stored is for the first client alone.
        let is_left = self.number != LEADER && matches!(state.phase, Phase::Alone);
        if state.is_cut || is_left {
            return Poll::Ready(Some(Err(Cut)));
        }
        if self.number == LEADER
            && let Some(rest) = state.rest.take()
        {
            state.pieces = Vec::new();
            state.charge = None;
            drop(state);
            return self.rest.insert(rest).poll_chunk(cx);
        }
        state.waiting.insert(self.number, cx.waker().clone());
        Poll::Pending
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.rest {
            Some(rest) => rest.trailers(),
            None => self.trailers.take(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.number == LEADER {
            // Nobody else reads it; the connection to the backend ends with it.
            let rest = self.fill.state.lock().rest.take();
            drop(rest);
        }
        self.fill.leave(self.number);
    }
}

/// The memory of all responses that are on their way into the cache or are read while they arrive.
#[derive(Default)]
pub(crate) struct Filling {
    taken: AtomicU64,
    most: AtomicU64,
}

impl Filling {
    pub(crate) fn set_most(&self, bytes: u64) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    /// None if there is no room.
    pub(crate) fn take(self: &Arc<Filling>, bytes: u64) -> Option<Charge> {
        let mut charge = Charge { filling: self.clone(), bytes: 0 };
        charge.grow(bytes).then_some(charge)
    }
}

/// Memory that one response has taken.
pub(crate) struct Charge {
    filling: Arc<Filling>,
    bytes: u64,
}

impl Charge {
    fn grow(&mut self, bytes: u64) -> bool {
        let most = self.filling.most.load(Ordering::Relaxed);
        let taken = self.filling.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        if taken <= most {
            return true;
        }
        self.filling.taken.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
        false
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.filling.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
