//! Room at a full listener: idle connections end so that new ones can be served. One client that
//! opens connections and leaves them idle must not keep all others out until `idle_timeout`.
//!
//! The thread that accepted the new connection looks among its own connections first, then asks the
//! other threads. Of the address that has most connections on that thread, the connection that has
//! been idle longest ends.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::Link;
use super::connections::take_place;
use crate::peer::client_network;

/// New connections of one thread that wait for the place of an idle one; one more is refused at
/// once. 64: as many as are answered 503 at a time. Their number also bounds the requests that
/// threads send each other.
const MAX_WAITING: usize = 64;
/// A connection must have been idle for more than this many ticks (a second each by default): one
/// that was just accepted or answered probably has a request on its way.
const MIN_IDLE_TICKS: u64 = 1;
/// Of so many connections of a thread one is chosen with each look at all of them: a look costs a
/// fixed time for each connection, and choosing many at once would soon choose from an address that
/// no longer has most.
const CONNECTIONS_PER_CHOICE: usize = 256;

/// A request to another thread for the place of one of its idle connections. The answer says
/// whether one ends.
pub(crate) type EvictionRequest = oneshot::Sender<bool>;

/// What the threads of a listener share about evictions.
#[derive(Default)]
pub(crate) struct Evictions {
    /// New connections that wait, of all threads.
    waiting: AtomicUsize,
    freed: Notify,
    threads: Mutex<Vec<UnboundedSender<EvictionRequest>>>,
}

impl Evictions {
    /// A connection has given its place back.
    pub(crate) fn place_freed(&self) {
        // Either this sees the waiting connection, or that sees the free place.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_one();
        }
    }

    /// Waits for a place that another connection gives back, and takes it.
    async fn take_freed(&self, taken: &AtomicUsize, limit: usize) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if take_place(taken, limit) {
                return;
            }
            freed.await;
        }
    }

    /// Asks one thread after the other to end an idle connection.
    async fn ask_threads(&self) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for thread in threads {
            let (request, answer) = oneshot::channel();
            if thread.send(request).is_ok() && answer.await == Ok(true) {
                return true;
            }
        }
        false
    }
}

/// The idle connections of one thread.
pub(crate) struct IdleConnections {
    waiting: Cell<usize>,
    /// Connections to end next, the first of them last.
    chosen: RefCell<Vec<u64>>,
    /// The tick of the last look that found none.
    found_none: Cell<Option<u64>>,
    requests: RefCell<Option<UnboundedReceiver<EvictionRequest>>>,
}

impl IdleConnections {
    pub(crate) fn new(evictions: &Evictions) -> IdleConnections {
        let (sender, requests) = unbounded_channel();
        evictions.threads.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        IdleConnections {
            waiting: Cell::new(0),
            chosen: RefCell::default(),
            found_none: Cell::new(None),
            requests: RefCell::new(Some(requests)),
        }
    }

    /// The requests of other threads; for the loop that serves this one.
    pub(crate) fn requests(&self) -> Option<UnboundedReceiver<EvictionRequest>> {
        self.requests.take()
    }

    /// Ends one of these connections, if one has been idle long enough.
    pub(crate) fn end_one(&self, links: &HashMap<u64, Rc<Link>>, tick: u64) -> bool {
        loop {
            let next = self.chosen.borrow_mut().pop();
            match next {
                Some(id) => {
                    let link = links.get(&id).filter(|link| is_idle(link, tick));
                    if let Some(link) = link {
                        link.evict();
                        return true;
                    }
                }
                // Whether a connection is idle long enough changes with the ticks.
                None if self.found_none.get() == Some(tick) => return false,
                None => {
                    let chosen = choose(links, tick);
                    self.found_none.set(chosen.is_empty().then_some(tick));
                    *self.chosen.borrow_mut() = chosen;
                }
            }
        }
    }

    /// Takes the place of a connection that ends for it. False if no connection is idle, or the
    /// place comes too late.
    pub(crate) async fn take_place(
        &self,
        evictions: &Evictions,
        end_one: impl FnOnce() -> bool,
        (taken, limit): (&AtomicUsize, usize),
        patience: Duration,
    ) -> bool {
        if self.waiting.get() >= MAX_WAITING {
            return false;
        }
        let _waiting = Waiting::new(&self.waiting, evictions);
        let taken = async {
            if !end_one() && !evictions.ask_threads().await {
                return false;
            }
            evictions.take_freed(taken, limit).await;
            true
        };
        timeout(patience, taken).await.unwrap_or(false)
    }
}

fn is_idle(link: &Link, tick: u64) -> bool {
    link.idle_since().is_some_and(|since| tick.saturating_sub(since) > MIN_IDLE_TICKS)
}

/// The connections to end next, the first of them last: the longest idle ones of the address that
/// has most connections. If those are all in use, none ends: a client that keeps many connections
/// busy must not take the idle ones of others.
fn choose(links: &HashMap<u64, Rc<Link>>, tick: u64) -> Vec<u64> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for link in links.values() {
        *counts.entry(client_network(link.peer().ip())).or_default() += 1;
    }
    let count_of =
        |link: &Link| counts.get(&client_network(link.peer().ip())).copied().unwrap_or(0);
    let most = counts.values().copied().max().unwrap_or(0);
    let idle = links.iter().filter(|(_, link)| count_of(link) == most && is_idle(link, tick));
    let mut idle: Vec<_> =
        idle.map(|(id, link)| (link.idle_since().unwrap_or(tick), *id)).collect();
    idle.sort_unstable();
    idle.truncate(1 + links.len() / CONNECTIONS_PER_CHOICE);
    idle.into_iter().rev().map(|(_, id)| id).collect()
}

/// Counts a new connection while it waits.
struct Waiting<'a> {
    here: &'a Cell<usize>,
    evictions: &'a Evictions,
}

impl Waiting<'_> {
    fn new<'a>(here: &'a Cell<usize>, evictions: &'a Evictions) -> Waiting<'a> {
        here.set(here.get() + 1);
        evictions.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Waiting { here, evictions }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.here.set(self.here.get() - 1);
        self.evictions.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
