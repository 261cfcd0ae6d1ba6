//! Fan-out of event streams: clients with the same credential that ask a restive backend for the
//! same events share one stream of the backend.
//!
//! The backend sees each client's request: it authenticates, applies its limits and sends the head
//! of the response. Then `client` moves the client to the `shared` stream of its `key`, at the
//! position that it has reached. When the backend's stream is lost, the proxy opens it again where
//! it was. Clients with different credentials never share: when a key is
//! revoked or a token expires, the backend ends the stream, and it ends for all its clients.

mod blocks;
mod client;
mod feed;
mod key;
mod metrics;
mod polls;
mod present;
mod reopen;
mod resume;
mod ring;
mod shared;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep;
use wire::Chunks;

use client::{Client, Own};
pub(crate) use feed::{HOLD, STREAM_POSITION, held_ms, position, read_body};
use key::Key;
pub(crate) use key::{Asked, is_selecting, without_position};
use metrics::Metrics;
pub(crate) use polls::{PollSlot, Polls};
use present::Present;
pub(crate) use reopen::{Reopen, Reopened, Reopening, is_event_stream};
use ring::Joined;
use shared::{End, NotJoined, Reader, Shared};

/// Shared streams in all. 4,096: with the smallest ring each they have the memory of all rings.
/// Further clients have streams of their own.
const MAX_STREAMS: usize = 4_096;
/// Shared streams of one credential. 64: more different filters than an application has, and no
/// credential takes the places of the others.
const MAX_STREAMS_PER_CREDENTIAL: usize = 64;
/// For how long clients have streams of their own after a stream could not be shared.
const APART: Duration = Duration::from_secs(60);

/// All shared streams of the proxy.
#[derive(Clone, Default)]
pub(crate) struct Fanout(Arc<Registry>);

#[derive(Default)]
struct Registry {
    table: Mutex<Table>,
    clients: AtomicU64,
    /// The number of shared streams.
    count: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    polls: Arc<Polls>,
}

#[derive(Default)]
struct Table {
    streams: HashMap<Key, Arc<Shared>>,
    present: HashMap<Key, Present>,
}

/// Where a client goes on.
enum Attached {
    Shared(Reader),
    Own(Box<Own>),
}

impl Fanout {
    /// The body of a response that is an event stream of a restive backend, for one client. `sent`
    /// is when the request was sent, `repeat` opens the stream again when it is lost.
    pub(crate) fn share(
        &self,
        asked: Asked<'_>,
        sent: Instant,
        source: Box<dyn Chunks>,
        repeat: Option<Box<dyn Reopen>>,
    ) -> Box<dyn Chunks> {
        let own = Own::new(asked.position(), sent, source, repeat);
        Box::new(Client::new(self.clone(), asked.key(), own))
    }

    /// The long polls that wait here.
    pub(crate) fn polls(&self) -> &Arc<Polls> {
        &self.0.polls
    }

    pub(crate) fn render(&self, out: &mut String) {
        let streams = self.0.count.load(Ordering::Relaxed);
        self.0.metrics.render(streams, &self.0.polls, out);
    }

    /// A client has come. Returns its number.
    fn enter(&self, key: &Key) -> u64 {
        self.0.table.lock().present.entry(*key).or_default().count += 1;
        self.0.clients.fetch_add(1, Ordering::Relaxed)
    }

    fn leave(&self, key: &Key, id: u64) {
        let mut table = self.0.table.lock();
        let Some(present) = table.present.get_mut(key) else { return };
        present.leave(id);
        if present.count == 0 {
            table.present.remove(key);
        }
    }

    /// Joins the shared stream of this key, if there is one that follows what the client has.
    fn join(&self, key: &Key, joined: Joined) -> Option<Reader> {
        let shared = self.0.table.lock().streams.get(key).cloned()?;
        shared.join(joined).ok()
    }

    /// Makes the client's own stream the shared one, if there is none and others want it.
    fn lead(
        &self,
        (key, id): (&Key, u64),
        joined: Joined,
        own: Box<Own>,
        waker: &Waker,
    ) -> Attached {
        let registry = &self.0;
        let mut guard = registry.table.lock();
        let Table { streams, present } = &mut *guard;
        if let Some(shared) = streams.get(key) {
            match shared.join(joined) {
                Ok(reader) => return Attached::Shared(reader),
                Err(NotJoined::Apart) => return Attached::Own(own),
                Err(NotJoined::Over) => {}
            }
        }
        let present = present.entry(*key).or_default();
        if !present.may_lead(id, waker, Instant::now()) {
            return Attached::Own(own);
        }
        let mine = || streams.keys().filter(|other| other.credential == key.credential).count();
        if streams.len() >= MAX_STREAMS || mine() >= MAX_STREAMS_PER_CREDENTIAL {
            return Attached::Own(own);
        }
        let shared = Shared::new(joined.at, registry.metrics.clone(), registry.count.clone());
        let Ok(reader) = shared.join(joined) else { return Attached::Own(own) };
        streams.insert(*key, shared.clone());
        registry.count.store(streams.len(), Ordering::Relaxed);
        present.wake();
        drop(guard);
        tokio::spawn(run(registry.clone(), *key, shared, own));
        Attached::Shared(reader)
    }
}

/// Runs a shared stream, which is in the registry until it ends.
async fn run(registry: Arc<Registry>, key: Key, shared: Arc<Shared>, own: Box<Own>) {
    let Own { source, splitter, repeat, .. } = *own;
    let running = Running { registry, key, shared };
    if running.shared.run(source, splitter, repeat).await == End::Unfit {
        tracing::debug!("a stream of a backend cannot be shared");
        sleep(APART).await;
    }
}

/// A shared stream in the registry. However its task ends, no client may wait for it: the thread of
/// a task can end before those of its clients.
struct Running {
    registry: Arc<Registry>,
    key: Key,
    shared: Arc<Shared>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.finish(End::Broken);
        let streams = &mut self.registry.table.lock().streams;
        if streams.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, &self.shared)) {
            streams.remove(&self.key);
            self.registry.count.store(streams.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
