//! Follows the log once for all connections, keeps its newest part in memory, and notifies the
//! shards whose connections may want its events.

use crate::conversions::Conversions;
use crate::entry::{Codec, Entry, Ephemeral};
use crate::ephemeral::EphemeralBuffers;
use crate::interest::Interests;
use crate::kind::Kind;
use crate::limits::Limits;
use crate::metrics::{Channel, Metrics};
use crate::position::Epoch;
use crate::presence::{self, Presence};
use crate::readers::Readers;
use crate::ring::Ring;
use crate::shard::{Shard, TICK};
use model::event::Event;
use model::schema::{Builtin, CollectionIx, Schema};
use model::version::Versions;
use model::webhook::pattern;
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::cluster::{Cluster, PresentUser, Relayed};
use store::{Error, Follower, Repeats, Store};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Events taken from the log at a time.
const BATCH: usize = 256;
/// Bytes of them; the ring keeps no more anyway.
const BATCH_BYTES: usize = 8 << 20;
/// Sets of interests among which an equal one is looked for.
const SHARED: usize = 8;
/// The part of all connections that is kept for accounts with few of them: a tenth. Otherwise two
/// accounts at their limits would leave no room for a third.
const RESERVED: usize = 10;
/// An account has few connections up to this part of all: a hundredth.
const SMALL: usize = 100;
/// Pause after the store failed.
const PAUSE: Duration = Duration::from_secs(1);
/// The type of the event of an erasure, which changes earlier events.
const ERASED: &str = "erasure.created";

static HUBS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub struct Hub {
    number: u64,
    pub codec: Arc<Codec>,
    pub limits: Limits,
    pub store: StoreRef,
    cluster: ClusterRef,
    pub ring: Ring,
    pub ephemeral: EphemeralBuffers,
    pub presence: Presence,
    pub metrics: Metrics,
    pub readers: Arc<Readers>,
    pub conversions: Conversions,
    shards: Mutex<Vec<Arc<Shard>>>,
    counts: Mutex<ConnectionCounts>,
    /// The first connection has come.
    first_connection: Notify,
    /// What the latest connections wanted, the newest last.
    wanted: Mutex<VecDeque<Arc<Interests>>>,
    leaving: AtomicBool,
    connections: AtomicU32,
    chance: AtomicU64,
    clock: AtomicU64,
    /// The collection of the keys, and `Store::key_generation` at the last tick.
    keys: CollectionIx,
    key_generation: AtomicU64,
}

/// A store, for structs with `Debug`.
#[derive(Clone)]
pub struct StoreRef(pub Arc<dyn Store>);

impl std::fmt::Debug for StoreRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Store")
    }
}

/// The other nodes, for structs with `Debug`.
#[derive(Clone)]
struct ClusterRef(Arc<dyn Cluster>);

impl std::fmt::Debug for ClusterRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Cluster")
    }
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    accounts: HashMap<i64, PerChannel>,
}

/// Connections by channel, in the order of `Channel`.
pub type PerChannel = [usize; 3];

impl ConnectionCounts {
    fn admit(&mut self, account: i64, channel: Channel, limits: &Limits) -> Result<(), Full> {
        let own: usize = self.of(account).iter().sum();
        let reserved = match own < limits.max_connections / SMALL {
            true => 0,
            false => limits.max_connections / RESERVED,
        };
        if self.all + reserved >= limits.max_connections {
            return Err(Full::Server);
        }
        if own >= limits.max_connections_per_account {
            return Err(Full::Account);
        }
        self.all += 1;
        self.accounts.entry(account).or_default()[channel as usize] += 1;
        Ok(())
    }

    fn of(&self, account: i64) -> PerChannel {
        self.accounts.get(&account).copied().unwrap_or_default()
    }

    fn leave(&mut self, account: i64, channel: Channel) {
        self.all -= 1;
        if let Some(own) = self.accounts.get_mut(&account) {
            own[channel as usize] -= 1;
            if *own == PerChannel::default() {
                self.accounts.remove(&account);
            }
        }
    }
}

/// A record whose events up to a place in the log were erased.
#[derive(Debug)]
struct Erased {
    scope: Scope,
    record: String,
    seq: i64,
}

impl Erased {
    /// The erasure that an event reports, if it is one's.
    fn read(event: &Event) -> Option<Erased> {
        if event.kind != ERASED {
            return None;
        }
        let object: Value = serde_json::from_str(&event.object).ok()?;
        let record = object.get("resource")?.as_str()?.to_owned();
        Some(Erased { scope: event.scope, record, seq: event.seq })
    }
}

/// Which limit a connection would have broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The server's own, or it shuts down.
    Server,
    /// The account's.
    Account,
}

impl Hub {
    /// Begins some events before the end of the log, so that clients that a restart disconnected
    /// find in memory what they missed.
    pub async fn new(
        schema: Arc<Schema>,
        store: Arc<dyn Store>,
        cluster: Arc<dyn Cluster>,
        limits: Limits,
        seed: u64,
    ) -> Result<Hub, Error> {
        let newest = *store.position().borrow();
        let preload = i64::try_from(limits.preload).unwrap_or(i64::MAX);
        let oldest = store.oldest().await?;
        let begin = (newest - preload).max(oldest - 1).max(0);
        let keys = schema.own(Builtin::Key);
        Ok(Hub {
            number: HUBS.fetch_add(1, Relaxed),
            codec: Arc::new(Codec {
                versions: Versions::new(&schema),
                schema,
                epoch: Epoch(store.epoch()),
            }),
            ring: Ring::new(limits.ring_bytes, begin),
            ephemeral: EphemeralBuffers::default(),
            presence: Presence::default(),
            metrics: Metrics::default(),
            readers: Readers::new(limits.readers),
            conversions: Conversions::default(),
            shards: Mutex::default(),
            counts: Mutex::default(),
            first_connection: Notify::new(),
            wanted: Mutex::default(),
            leaving: AtomicBool::new(false),
            connections: AtomicU32::new(0),
            chance: AtomicU64::new(seed),
            clock: AtomicU64::new(0),
            keys,
            key_generation: AtomicU64::new(store.key_generation()),
            store: StoreRef(store),
            cluster: ClusterRef(cluster),
            limits,
        })
    }

    /// Follows the log and keeps the clock, until it is dropped.
    pub async fn run(self: Arc<Hub>) {
        tokio::join!(self.follow(), self.keep_time(), self.hear());
    }

    /// Follows the log. Without connections it waits, so that writers are not slowed down by a read
    /// after each commit. A read that has begun is never cancelled: on a busy disk it may take
    /// longer than anything else here.
    async fn follow(&self) {
        let heartbeat = self.store.0.watchdog().watch("hub");
        let mut follower = Follower::new(self.store.0.clone(), None, self.ring.head());
        let (mut rested, repeats) = (true, Repeats::new());
        loop {
            heartbeat.rest();
            if self.counts.lock().all == 0 {
                self.first_connection.notified().await;
                rested = true;
                if let Some(position) = self.skip() {
                    follower = Follower::new(self.store.0.clone(), None, position);
                }
                continue;
            }
            let read = match follower.ready().await {
                Ok(()) => {
                    heartbeat.beat();
                    follower.read(BATCH, BATCH_BYTES).await
                }
                Err(error) => Err(error),
            };
            match read {
                Ok(batch) => {
                    repeats.clear();
                    if std::mem::take(&mut rested) {
                        self.forget_expired().await;
                    }
                    self.take(batch, follower.position()).await;
                }
                Err(error) => {
                    if let Some(times) = repeats.note(&error.to_string()) {
                        tracing::error!(%error, times, "the live channels cannot read the log");
                    }
                    heartbeat.rest();
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn keep_time(&self) {
        let mut clock = interval(TICK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            self.sweep().await;
        }
    }

    /// Skips events that are too old to be needed. Returns the place to go on from.
    fn skip(&self) -> Option<i64> {
        let newest = *self.store.0.position().borrow();
        let begin = newest - i64::try_from(self.limits.preload).unwrap_or(i64::MAX);
        let skips = begin > self.ring.head();
        skips.then(|| {
            self.ring.restart(begin);
            begin
        })
    }

    /// Drops from the ring what retention has removed from the log in the meantime. Called after
    /// the read, so that nothing can be removed in between.
    async fn forget_expired(&self) {
        match self.store.0.oldest().await {
            Ok(oldest) => self.ring.forget(oldest - 1),
            Err(error) => {
                tracing::error!(%error, "the live channels cannot read the log");
                self.ring.clear();
            }
        }
    }

    async fn take(&self, batch: Vec<Event>, head: i64) {
        let erased: Vec<Erased> = batch.iter().filter_map(Erased::read).collect();
        for one in &erased {
            self.erase(one).await;
        }
        let shown = batch.into_iter().filter(|event| self.leaves(&event.collection));
        let entries: Vec<Arc<Entry>> = shown.map(|event| self.entry(event, &erased)).collect();
        let mut scopes: Vec<Scope> = entries.iter().map(|entry| entry.event.scope).collect();
        scopes.sort_unstable();
        scopes.dedup();
        self.ring.push(entries, head, self.clock.load(Relaxed));
        self.report(&scopes, Some(head));
    }

    /// Replaces what the ring holds of a record, before the erasure itself is sent: a client that
    /// has received it is shown nothing of the record any more.
    async fn erase(&self, erased: &Erased) {
        let Erased { scope, record, seq } = erased;
        let mut next = self.ring.erase(*scope, record, *seq, None);
        while next.is_some() {
            yield_now().await;
            next = self.ring.erase(*scope, record, *seq, next);
        }
    }

    /// An event as it is shown; one that was read before a later one erased it, in its erased form.
    fn entry(&self, event: Event, erased: &[Erased]) -> Arc<Entry> {
        let covers = |one: &Erased| {
            event.seq < one.seq && event.scope == one.scope && event.record == one.record
        };
        let is_erased = erased.iter().any(covers);
        let entry = Entry::new(&self.codec, event);
        Arc::new(if is_erased { entry.erased() } else { entry })
    }

    /// Whether events of a collection are sent to clients.
    pub fn leaves(&self, collection: &str) -> bool {
        !pattern::is_internal(&self.codec.schema, collection)
    }

    /// Passes on the messages of other nodes, and announces users who came or went in the cluster.
    async fn hear(&self) {
        loop {
            for message in self.cluster.0.relayed().await {
                let ephemeral = match message {
                    Relayed::Typing { scope, about, members } => {
                        Ephemeral::new(scope, Kind::Typing, None, members).about(about)
                    }
                    Relayed::Online { scope, user, online } => {
                        presence::announcement(scope, &user, online)
                    }
                };
                let account = ephemeral.scope.account_number();
                if self.counts.lock().accounts.contains_key(&account) {
                    self.publish_here(ephemeral);
                }
            }
            yield_now().await;
        }
    }

    /// Sends an ephemeral message to the connections that are there, at all nodes.
    pub fn publish(&self, ephemeral: Ephemeral) {
        if self.cluster.0.is_shared() {
            self.cluster.0.relay(Relayed::Typing {
                scope: ephemeral.scope,
                about: ephemeral.about.as_deref().map(str::to_owned),
                members: ephemeral.members().to_owned(),
            });
        }
        self.publish_here(ephemeral);
    }

    fn publish_here(&self, ephemeral: Ephemeral) {
        let scope = ephemeral.scope;
        self.ephemeral.push(ephemeral, self.clock.load(Relaxed));
        self.report(&[scope], None);
    }

    fn report(&self, scopes: &[Scope], head: Option<i64>) {
        for shard in &*self.shards.lock() {
            shard.report(scopes, head);
        }
    }

    /// Grows when a key of this account and mode changes.
    pub fn keys_seq(&self, scope: Scope) -> i64 {
        self.store.0.collection_seq(scope, self.keys)
    }

    /// Has the connections of accounts look at their keys, if these have changed: also those on
    /// which nothing happens. At most once in each tick, and never those of other accounts.
    fn recheck_keys(&self) {
        let generation = self.store.0.key_generation();
        if self.key_generation.swap(generation, Relaxed) == generation {
            return;
        }
        for shard in &*self.shards.lock() {
            shard.recheck_keys(|scope| self.keys_seq(scope));
        }
    }

    /// Announces users who did not reconnect, and drops old messages.
    async fn sweep(&self) {
        self.recheck_keys();
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        loop {
            let gone = self.presence.sweep(now);
            if gone.is_empty() {
                break;
            }
            for (scope, user) in gone {
                self.changed(scope, &user, Some(false));
            }
            yield_now().await;
        }
        let counts = self.counts.lock();
        self.ephemeral.sweep(now, |account| counts.accounts.contains_key(&account));
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn add_shard(&self) -> Arc<Shard> {
        // The head is read with the list locked: a report of a later one finds the shard in it.
        let mut shards = self.shards.lock();
        let shard = Arc::new(Shard::new(self.ring.head()));
        shards.push(shard.clone());
        shard
    }

    /// A number for one more connection; not the same as that of another that is open.
    pub fn next_connection(&self) -> u32 {
        self.connections.fetch_add(1, Relaxed)
    }

    /// The interests of one more connection. Most want what others want: those share the memory.
    pub fn shared(&self, interests: Interests) -> Arc<Interests> {
        let mut wanted = self.wanted.lock();
        if let Some(found) = wanted.iter().rev().find(|one| one.is_same(&interests)) {
            return found.clone();
        }
        let interests = Arc::new(interests);
        if wanted.len() == SHARED {
            wanted.pop_front();
        }
        wanted.push_back(interests.clone());
        interests
    }

    /// A number that is hard to predict without the seed; for spreading, not for secrets.
    pub fn chance(&self) -> u64 {
        // SplitMix64: consecutive seeds give independent numbers.
        let seed = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Milliseconds after which a client should reconnect: spread, so that clients do not come at
    /// once.
    pub fn retry_ms(&self) -> u64 {
        1_000 + self.chance() % 4_000
    }

    /// Closes all connections, spread over some time.
    pub fn drain(&self) {
        self.leaving.store(true, Relaxed);
        for shard in &*self.shards.lock() {
            shard.drain(self.limits.drain_window, || self.chance());
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    pub fn render(&self, out: &mut String) {
        let head = self.ring.head();
        let lag = self.shards.lock().iter().map(|shard| shard.lag(head)).max().unwrap_or(0);
        self.metrics.render(out, lag, self.presence.count());
    }

    /// A ticket for one more connection of an account.
    pub fn enter(self: &Arc<Hub>, scope: Scope, channel: Channel) -> Result<Ticket, Full> {
        let account = scope.account_number();
        let mut counts = self.counts.lock();
        let admitted = match self.is_leaving() {
            true => Err(Full::Server),
            false => counts.admit(account, channel, &self.limits),
        };
        if let Err(full) = admitted {
            self.metrics.refused.fetch_add(1, Relaxed);
            return Err(full);
        }
        if counts.all == 1 {
            self.first_connection.notify_one();
        }
        self.metrics.opened(channel);
        Ok(Ticket { hub: self.clone(), account, channel })
    }

    /// The open connections of an account.
    pub fn connections_of(&self, account: i64) -> PerChannel {
        self.counts.lock().of(account)
    }

    /// The connections of a user at this node have changed; the user came or went, if they did.
    fn changed(&self, scope: Scope, user: &str, online: Option<bool>) {
        if self.cluster.0.is_shared() {
            // It is announced when no other node has the user.
            self.cluster.0.set_present(scope, user, self.presence.of(scope, user));
        } else if let Some(online) = online {
            self.publish_here(presence::announcement(scope, user, online));
        }
    }

    /// Who is online, by name, and how many in all. While the database does not answer: at this
    /// node.
    pub async fn present(&self, scope: Scope) -> (Vec<PresentUser>, usize) {
        match self.cluster.0.present(scope, presence::MAX_SHOWN).await {
            Ok(Some(everywhere)) => everywhere,
            Ok(None) => self.presence.list(scope),
            Err(error) => {
                tracing::warn!(%error, "presence of this node only");
                self.presence.list(scope)
            }
        }
    }

    /// Marks a user as online, until the guard is dropped.
    pub fn mark_online(self: &Arc<Hub>, scope: Scope, user: &str, now: Timestamp) -> OnlineGuard {
        let came = self.presence.enter(scope, user, now);
        self.changed(scope, user, came.then_some(true));
        OnlineGuard { hub: self.clone(), scope, user: user.into() }
    }
}

/// Counts an open connection, until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) hub: Arc<Hub>,
    account: i64,
    pub(crate) channel: Channel,
}

impl Ticket {
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.hub.metrics.closed(self.channel);
        self.hub.counts.lock().leave(self.account, self.channel);
    }
}

/// Keeps a user online by one connection.
#[derive(Debug)]
pub struct OnlineGuard {
    hub: Arc<Hub>,
    scope: Scope,
    pub user: Box<str>,
}

impl Drop for OnlineGuard {
    fn drop(&mut self) {
        let grace = self.hub.limits.presence_grace.as_millis() / TICK.as_millis();
        let now = self.hub.clock.load(Relaxed);
        let away_at = now + 1 + u64::try_from(grace).unwrap_or(0);
        self.hub.presence.leave(self.scope, &self.user, away_at);
        self.hub.changed(self.scope, &self.user, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_accounts_leave_room_for_small_ones() {
        let limits =
            Limits { max_connections: 1000, max_connections_per_account: 600, ..Limits::default() };
        let mut counts = ConnectionCounts::default();
        let mut fill = |account: i64| {
            let (mut count, mut full) = (0, None);
            while full.is_none() {
                full = counts.admit(account, Channel::Sse, &limits).err();
                count += usize::from(full.is_none());
            }
            (count, full)
        };
        assert_eq!(fill(1), (600, Some(Full::Account)));
        assert_eq!(fill(2), (300, Some(Full::Server)));
        // A tenth is left for accounts with few connections.
        for account in 3..13 {
            assert_eq!(fill(account), (10, Some(Full::Server)), "{account}");
        }
        assert_eq!(fill(13), (0, Some(Full::Server)));
        for (account, count) in counts.accounts.clone() {
            let count: usize = count.iter().sum();
            (0..count).for_each(|_| counts.leave(account, Channel::Sse));
        }
        assert_eq!((counts.all, counts.accounts.len()), (0, 0));
    }
}
