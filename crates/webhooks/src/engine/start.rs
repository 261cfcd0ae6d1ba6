//! The start: every endpoint with its position, every unfinished replay, then the head of the log
//! from where it is now. Changes in the meantime come after that position and are read there.

use super::Engine;
use super::buckets::Buckets;
use super::head::Head;
use super::search::Searches;
use super::stop::Phase;
use super::tasks::Tasks;
use crate::Parts;
use crate::clock::Clock;
use crate::evaluation_time::EvaluationTime;
use crate::fair::FairQueue;
use crate::health::Health;
use crate::ids::Ids;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::load::{LoadedEndpoints, every, load};
use crate::pins::Pins;
use crate::prepared::Loaded;
use crate::queue::EndpointQueue;
use crate::replays::Replays;
use crate::send::{Sends, Transport};
use crate::settle::Settler;
use crate::store_retry::until_answered;
use crate::subscriptions::Subscriptions;
use crate::timers::{Alarm, Timers};
use model::schema::Builtin;
use model::version::Versions;
use model::webhook::{Endpoint, Reach, pattern};
use model::{Record, Schema, Scope, Timestamp};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use store::cluster::bucket_of;
use store::{EndpointState, Follower, Store};
use wire::Budget;

impl Engine {
    pub(super) async fn start(parts: Parts) -> Engine {
        let Parts { schema, store, cluster, client, folder, outside, limits, metrics } = parts;
        let (buckets, limits) = (Buckets::new(cluster), Rc::new(limits));
        // Before anything is read: a start that does not end shows in the health report.
        let heartbeat = store.watchdog().watch("webhooks");
        heartbeat.beat();
        let journal = Journal::open(folder.as_deref(), &store, &limits).await;
        let nudged = store.retry_requested();
        let newest = *store.position().borrow();
        let versions = Arc::new(Versions::new(&schema));
        let beat = || heartbeat.beat();
        let pins = pins(&store, &schema, &versions, (&limits, &beat)).await;
        let LoadedEndpoints { endpoints, replays, states } = match buckets.is_all() {
            true => load(&store, &schema, None, &limits, &beat).await,
            // They come with their leases.
            false => LoadedEndpoints::default(),
        };
        let passed = until_answered("the last outcome", &limits, || store.newest_retry()).await;
        let clock = Clock::new(&*outside, passed.unwrap_or(Timestamp(0)));
        let transport = transport(&schema, client, &limits);
        let names = schema.collections.iter().map(|collection| collection.name.clone());
        let internal = names.filter(|name| pattern::is_internal(&schema, name)).collect();
        let times = Rc::<EvaluationTime>::default();
        let mut engine = Engine {
            internal,
            ids: Ids::new(outside.clone()),
            loaded: Loaded::new(versions.clone(), limits.loaded_bytes, times.clone()),
            queues: HashMap::new(),
            names: HashMap::new(),
            subscriptions: Subscriptions::default(),
            head: Head::new(Follower::new(store.clone(), None, newest)),
            replays: Replays::new(limits.replays),
            sends: Sends::new(transport, clock.wall),
            tasks: Tasks::new(store.clone(), limits.clone()),
            searches: Searches::default(),
            settler: Settler::default(),
            journal,
            timers: Timers::new(clock.now),
            ready: FairQueue::default(),
            asks: FairQueue::default(),
            changes: FairQueue::default(),
            blocked: FairQueue::default(),
            evaluation_time: times,
            slots: Budget::new(limits.in_flight),
            asking: 0,
            changing: 0,
            stored_head: states.head,
            asking_ages: false,
            asking_for_asked: false,
            asked_again: false,
            heartbeat,
            phase: Phase::Running,
            buckets,
            opened: 0,
            schema,
            versions,
            pins,
            store,
            outside,
            limits,
            metrics,
            clock,
        };
        engine.open_all(endpoints, states.endpoints);
        for (scope, record) in &replays {
            engine.load_replay(*scope, record);
        }
        engine.tasks.nudge(nudged);
        engine.watch_buckets();
        engine.timers.set(engine.clock.now + engine.limits.tick, Alarm::Tick);
        engine
    }

    pub(super) fn open_all(&mut self, endpoints: Vec<(Scope, Record)>, states: Vec<EndpointState>) {
        let states: HashMap<i64, EndpointState> =
            states.into_iter().map(|state| (state.endpoint, state)).collect();
        for (scope, record) in endpoints {
            self.open(Endpoint::read(scope, &record), states.get(&record.number));
            // It may have sent its share a moment ago.
            if let Some(queue) = self.queues.get_mut(&record.number) {
                queue.sending.pace.empty(self.clock.now);
            }
        }
    }

    /// A queue for an endpoint, from where it stands.
    pub(super) fn open(&mut self, endpoint: Endpoint, standing: Option<&EndpointState>) {
        let (number, scope) = (endpoint.number, endpoint.scope);
        self.names.insert((scope, endpoint.id.clone()), number);
        self.subscriptions.put(scope, number);
        let version = self.pins.version(&self.versions, &endpoint);
        // Without a position of its own it has come as far as the head had, or was made after it.
        let stored = standing.and_then(|standing| standing.position);
        let head = match self.buckets.is_all() {
            true => self.stored_head,
            false => self.buckets.heads.get(&bucket_of(scope)).copied().or(self.stored_head),
        };
        let place = stored.unwrap_or(number.max(head.unwrap_or(0)));
        let mut queue = EndpointQueue::new(endpoint, version, place, self.head.position());
        queue.intake.stored = stored;
        self.opened += 1;
        queue.opened = self.opened;
        if let Some(standing) = standing {
            queue.retries.due = standing.due;
            if let Some(failures) = standing.failures {
                queue.condition.health = Health::resume(failures);
                queue.sending.pace.resume(failures.count);
                queue.condition.has_stored_failures = true;
            }
            let rest = standing.paused.map(|until| until.since(self.clock.steady));
            queue.sending.pace.pause(rest.unwrap_or_default(), self.clock.now);
        }
        self.queues.insert(number, queue);
        if self.can_join(number) {
            // At once: a wait for its turn would let the ring go on without it.
            self.join(number);
        }
        self.touch(number);
    }
}

fn transport(schema: &Schema, client: wire::Client, limits: &Limits) -> Transport {
    let reach = match schema.webhooks.development {
        true => Reach::Development,
        false => Reach::Public,
    };
    Transport { client, reach, response_bytes: limits.response_bytes }
}

/// The versions that accounts are pinned to, if there is more than one version.
async fn pins(
    store: &Arc<dyn Store>,
    schema: &Schema,
    versions: &Versions,
    start: (&Limits, &dyn Fn()),
) -> Pins {
    let mut pins = Pins::default();
    if versions.get(1).is_some() {
        for (_, account) in every(store, schema.own(Builtin::Account), start).await {
            pins.put(versions, &account);
        }
    }
    pins
}
