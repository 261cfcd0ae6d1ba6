//! The connections of one thread, whatever their protocol: their places, the handshakes among them,
//! the idle ones that end for others (`eviction`), and the drain at the end.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Interval, sleep, timeout_at};

use super::eviction::{EvictionRequest, Evictions, IdleConnections};
use super::{Link, Worker};
use crate::peer::AddressSlot;

pub(crate) struct Connections {
    links: RefCell<HashMap<u64, Rc<Link>>>,
    /// Handshakes in progress, the oldest first.
    handshakes: RefCell<BTreeMap<u64, AbortHandle>>,
    /// A handshake was ended to make room.
    ended_handshake: Cell<bool>,
    emptied: Notify,
    idle: IdleConnections,
}

impl Connections {
    pub(super) fn new(evictions: &Evictions) -> Connections {
        Connections {
            links: RefCell::default(),
            handshakes: RefCell::default(),
            ended_handshake: Cell::new(false),
            emptied: Notify::new(),
            idle: IdleConnections::new(evictions),
        }
    }

    /// Handshakes in progress.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.borrow().len()
    }

    /// Keeps a handshake in the list. One more than there may be ends the oldest.
    pub(crate) fn add_handshake(&self, id: u64, task: AbortHandle, limit: usize) {
        let mut handshakes = self.handshakes.borrow_mut();
        handshakes.insert(id, task);
        if handshakes.len() > limit
            && let Some((_, oldest)) = handshakes.pop_first()
        {
            oldest.abort();
            self.ended_handshake.set(true);
        }
    }

    /// Whether a handshake was ended since the last call. Its place is free once its task has run.
    pub(crate) fn ended_handshake(&self) -> bool {
        self.ended_handshake.take()
    }

    /// Requests of other threads to end an idle connection; for the loop that serves this thread.
    pub(crate) fn eviction_requests(&self) -> Option<UnboundedReceiver<EvictionRequest>> {
        self.idle.requests()
    }
}

/// Counts one more of what is limited, if there is room. The caller counts it down again.
pub(crate) fn take_place(taken: &AtomicUsize, limit: usize) -> bool {
    let room = taken.fetch_add(1, Ordering::Relaxed) < limit;
    if !room {
        taken.fetch_sub(1, Ordering::Relaxed);
    }
    room
}

impl Worker {
    /// Takes a place for a connection, if one is free.
    pub(crate) fn take_connection(&self) -> bool {
        take_place(&self.shared.connections, self.limits.max_connections)
    }

    /// Takes the place of an idle connection of any thread, which ends. False if none is idle.
    pub(crate) async fn take_idle_connection(&self) -> bool {
        let places = (&self.shared.connections, self.limits.max_connections);
        // An idle connection ends at once, or after a GOAWAY.
        let patience = self.limits.linger_timeout;
        let end_idle = || self.end_idle_connection();
        let idle = &self.connections.idle;
        idle.take_place(&self.shared.evictions, end_idle, places, patience).await
    }

    /// Ends an idle connection of this thread, if there is one.
    pub(crate) fn end_idle_connection(&self) -> bool {
        self.connections.idle.end_one(&self.connections.links.borrow(), self.tick.get())
    }

    /// Lists a connection that has a place.
    pub(crate) fn register(self: &Rc<Worker>, id: u64, peer: SocketAddr) -> Registration {
        let link = Rc::new(Link::new(self.clone(), peer));
        self.connections.links.borrow_mut().insert(id, link.clone());
        Registration { link, id, address: None }
    }

    /// Counts a tick and wakes the connections that have waited too long.
    pub(crate) fn check_connections(&self) {
        self.tick.set(self.tick.get() + 1);
        self.connections.links.borrow().values().for_each(|link| link.check());
    }

    /// Waits until all connections have ended, which they do by themselves, or the time is over.
    pub(crate) async fn drain(&self, mut clock: Interval) {
        let connections = &self.connections;
        connections.links.borrow().values().for_each(|link| link.wake());
        let deadline = Instant::now() + self.limits.drain_timeout;
        let handshakes_end = sleep(self.limits.linger_timeout);
        tokio::pin!(handshakes_end);
        // Not `is_elapsed`: that may become true between two turns of the loop.
        let mut waits_for_handshakes = true;
        let emptied = async {
            while !connections.links.borrow().is_empty() {
                tokio::select! {
                    () = connections.emptied.notified() => {}
                    _ = clock.tick() => self.check_connections(),
                    () = &mut handshakes_end, if waits_for_handshakes => {
                        waits_for_handshakes = false;
                        // A client that has not finished by now would not send a request in time.
                        connections.handshakes.borrow().values().for_each(AbortHandle::abort);
                        self.awaits_first_requests.set(false);
                        connections.links.borrow().values().for_each(|link| link.wake());
                    }
                }
            }
        };
        if timeout_at(deadline, emptied).await.is_err() {
            let left = connections.links.borrow().len();
            tracing::warn!(left, "connections cut off at the end of the drain time");
        }
    }
}

/// Keeps a connection in the list of its thread and in the counts, until it is dropped.
pub(crate) struct Registration {
    link: Rc<Link>,
    id: u64,
    /// One of the connections that its address may have, where that is limited.
    address: Option<Box<AddressSlot>>,
}

impl Registration {
    pub(crate) fn link(&self) -> &Rc<Link> {
        &self.link
    }

    /// Counts the connection for its address. False if that has as many as it may.
    pub(crate) fn count_for(&mut self, address: IpAddr) -> bool {
        let worker = &self.link.worker;
        let limit = worker.limits.max_connections_per_address;
        if limit == usize::MAX || worker.terms.trusted.contains(address) {
            return true;
        }
        self.address = worker.shared.addresses.take(address, limit).map(Box::new);
        self.address.is_some()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Worker { shared, connections, .. } = &*self.link.worker;
        shared.connections.fetch_sub(1, Ordering::Relaxed);
        shared.evictions.place_freed();
        let mut links = connections.links.borrow_mut();
        links.remove(&self.id);
        if links.is_empty() {
            connections.emptied.notify_one();
        }
    }
}

/// Keeps a handshake in the list and in the count, until it is dropped.
pub(crate) struct Handshake {
    pub(crate) worker: Rc<Worker>,
    id: u64,
}

impl Handshake {
    pub(crate) fn new(worker: &Rc<Worker>, id: u64) -> Handshake {
        worker.shared.handshakes.fetch_add(1, Ordering::Relaxed);
        Handshake { worker: worker.clone(), id }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.worker.shared.handshakes.fetch_sub(1, Ordering::Relaxed);
        self.worker.connections.handshakes.borrow_mut().remove(&self.id);
    }
}
