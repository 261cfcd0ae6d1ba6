//! The start: every endpoint with its position, every unfinished replay, then the head of the log
//! from where it is now. Changes in the meantime come after that position and are read there.

use super::Engine;
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
use model::{CollectionIx, Record, Schema, Scope, Timestamp};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use store::{EndpointState, EndpointStates, Follower, Heartbeat, Store};
use wire::Budget;

/// Records read at a time.
const PAGE: usize = 256;

impl Engine {
    pub(super) async fn start(parts: Parts) -> Engine {
        let Parts { schema, store, client, folder, outside, limits, metrics } = parts;
        let limits = Rc::new(limits);
        // Before anything is read: a start that does not end shows in the health report.
        let heartbeat = store.watchdog().watch("webhooks");
        heartbeat.beat();
        let journal = Journal::open(folder.as_deref(), &store, &limits).await;
        let nudged = store.retry_requested();
        let newest = *store.position().borrow();
        let versions = Arc::new(Versions::new(&schema));
        let start = (&*limits, &heartbeat);
        let pins = pins(&store, &schema, &versions, start).await;
        let endpoints = every(&store, schema.own(Builtin::Endpoint), start).await;
        let replays = every(&store, schema.own(Builtin::Replay), start).await;
        let states = states(&store, &endpoints, start).await;
        let passed = until_answered("the last outcome", &limits, || store.newest_retry()).await;
        let clock = Clock::new(&*outside, passed.unwrap_or(Timestamp(0)));
        let reach = match schema.webhooks.development {
            true => Reach::Development,
            false => Reach::Public,
        };
        let transport = Transport { client, reach, response_bytes: limits.response_bytes };
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
            engine.note_replay(*scope, record);
        }
        engine.tasks.nudge(nudged);
        engine.timers.set(engine.clock.now + engine.limits.tick, Alarm::Tick);
        engine
    }

    fn open_all(&mut self, endpoints: Vec<(Scope, Record)>, states: Vec<EndpointState>) {
        let states: HashMap<i64, EndpointState> =
            states.into_iter().map(|state| (state.endpoint, state)).collect();
        for (scope, record) in endpoints {
            self.open(Endpoint::read(scope, &record), states.get(&record.number));
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
        let place = stored.unwrap_or(number.max(self.stored_head.unwrap_or(0)));
        let mut queue = EndpointQueue::new(endpoint, version, place, self.head.position());
        queue.intake.stored = stored;
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

/// The versions that accounts are pinned to, if there is more than one version.
async fn pins(
    store: &Arc<dyn Store>,
    schema: &Schema,
    versions: &Versions,
    start: (&Limits, &Heartbeat),
) -> Pins {
    let mut pins = Pins::default();
    if versions.get(1).is_some() {
        for (_, account) in every(store, schema.own(Builtin::Account), start).await {
            pins.put(versions, &account);
        }
    }
    pins
}

/// All records of a collection.
async fn every(
    store: &Arc<dyn Store>,
    collection: CollectionIx,
    (limits, heartbeat): (&Limits, &Heartbeat),
) -> Vec<(Scope, Record)> {
    let mut all: Vec<(Scope, Record)> = Vec::new();
    loop {
        let after = all.last().map_or(0, |(_, record)| record.number);
        let page = until_answered("records", limits, || store.every(collection, after, PAGE)).await;
        heartbeat.beat();
        let more = page.len() == PAGE;
        all.extend(page);
        if !more {
            return all;
        }
    }
}

/// The states of these endpoints, and the head. Page by page: one read must end in its time.
async fn states(
    store: &Arc<dyn Store>,
    endpoints: &[(Scope, Record)],
    (limits, heartbeat): (&Limits, &Heartbeat),
) -> EndpointStates {
    let read = async |page: &[(Scope, Record)]| {
        let numbers: Vec<i64> = page.iter().map(|(_, record)| record.number).collect();
        let ask = || store.endpoint_states(numbers.clone());
        let states = until_answered("states of endpoints", limits, ask).await;
        heartbeat.beat();
        states
    };
    let mut pages = endpoints.chunks(PAGE);
    // Also without endpoints: the head counts for those that are created later.
    let mut all = read(pages.next().unwrap_or_default()).await;
    for page in pages {
        all.endpoints.extend(read(page).await.endpoints);
    }
    all
}
