//! Fan-out of event streams: clients with the same credential that ask a restive backend for the
//! same events share one stream of the backend.
//!
//! The backend sees each client's request: it authenticates, applies its limits and sends the head
//! of the response. Then `client` moves the client to the `shared` stream of its `key`, at the
//! position that it has reached. Clients with different credentials never share: when a key is
//! revoked or a token expires, the backend ends the stream, and it ends for all its clients.

mod blocks;
mod client;
mod key;
mod metrics;
mod ring;
mod shared;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep;
use wire::Chunks;

use client::{Client, Own};
pub(crate) use key::Asked;
use key::Key;
use metrics::Metrics;
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
    streams: Mutex<HashMap<Key, Arc<Shared>>>,
    /// The number of `streams`.
    count: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

/// Where a client goes on.
enum Attached {
    Shared(Reader),
    Own(Box<Own>),
}

impl Fanout {
    /// The body of a response that is an event stream of a restive backend, for one client. `sent`
    /// is when the request was sent.
    pub(crate) fn share(
        &self,
        asked: Asked<'_>,
        sent: Instant,
        source: Box<dyn Chunks>,
    ) -> Box<dyn Chunks> {
        Box::new(Client::new(self.clone(), asked.key(), asked.position(), sent, source))
    }

    pub(crate) fn render(&self, out: &mut String) {
        self.0.metrics.render(self.0.count.load(Ordering::Relaxed), out);
    }

    /// Joins the shared stream of this key, if there is one that follows what the client has.
    fn join(&self, key: &Key, joined: Joined) -> Option<Reader> {
        let shared = self.0.streams.lock().get(key).cloned()?;
        shared.join(joined).ok()
    }

    /// Makes the client's own stream the shared one, if there is none.
    fn lead(&self, key: &Key, joined: Joined, own: Box<Own>) -> Attached {
        let registry = &self.0;
        let mut streams = registry.streams.lock();
        let mine = || streams.keys().filter(|other| other.credential == key.credential).count();
        if streams.len() >= MAX_STREAMS || mine() >= MAX_STREAMS_PER_CREDENTIAL {
            return Attached::Own(own);
        }
        let shared = Shared::new(joined.at, registry.metrics.clone(), registry.count.clone());
        match streams.entry(*key) {
            Entry::Occupied(mut entry) => match entry.get().join(joined) {
                Ok(reader) => return Attached::Shared(reader),
                Err(NotJoined::Apart) => return Attached::Own(own),
                Err(NotJoined::Over) => drop(entry.insert(shared.clone())),
            },
            Entry::Vacant(entry) => drop(entry.insert(shared.clone())),
        }
        let Ok(reader) = shared.join(joined) else { return Attached::Own(own) };
        registry.count.store(streams.len(), Ordering::Relaxed);
        drop(streams);
        tokio::spawn(run(registry.clone(), *key, shared, own));
        Attached::Shared(reader)
    }
}

/// Runs a shared stream, which is in the registry until it ends.
async fn run(registry: Arc<Registry>, key: Key, shared: Arc<Shared>, own: Box<Own>) {
    let Own { source, splitter, .. } = *own;
    if shared.run(source, splitter).await == End::Unfit {
        tracing::debug!("a stream of a backend cannot be shared");
        sleep(APART).await;
    }
    let mut streams = registry.streams.lock();
    if streams.get(&key).is_some_and(|current| Arc::ptr_eq(current, &shared)) {
        streams.remove(&key);
        registry.count.store(streams.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
