//! What the tests work with: a store, a clock that can be moved, engines on threads of their own,
//! and waiting for conditions.

use crate::memory::{Memory, Row};
use crate::sink::Sink;
use model::event::Event;
use model::id::Entropy;
use model::parse;
use model::record::Fields;
use model::schema::{BOOKSHOP, Builtin};
use model::write::{Cause, Committed, Precondition, Response};
use model::{Change, Schema, Scope, Timestamp, Write};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::cluster::{Cluster, Solo};
use store::{Records, Status};
use tokio::sync::oneshot;
use webhooks::{Limits, Metrics, Outside, Parts};

pub const HERE: Scope = Scope(20);
/// Another account.
pub const THERE: Scope = Scope(40);
pub const START: i64 = 1_760_000_000_000;
const SECRET: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Bed {
    pub schema: Arc<Schema>,
    pub store: Arc<Memory>,
    pub clock: Arc<Clock>,
    pub metrics: Arc<Metrics>,
    pub folder: tempfile::TempDir,
}

pub struct Clock {
    started: Instant,
    ahead_ms: AtomicI64,
    drawn: AtomicU64,
    /// How often the time was asked for: by the engine once in each pass.
    pub looks: AtomicU64,
}

impl Clock {
    pub fn advance(&self, seconds: i64) {
        self.ahead_ms.fetch_add(seconds * 1000, SeqCst);
    }
}

impl Outside for Clock {
    fn now(&self) -> Timestamp {
        self.looks.fetch_add(1, SeqCst);
        let real = self.started.elapsed().as_millis() as i64;
        Timestamp(START + real + self.ahead_ms.load(SeqCst))
    }

    fn entropy(&self) -> Entropy {
        let mut bytes = [7; 32];
        let drawn = self.drawn.fetch_add(1, SeqCst).to_le_bytes();
        bytes[..8].copy_from_slice(&drawn);
        bytes[12..20].copy_from_slice(&drawn);
        Entropy(bytes)
    }
}

/// An engine under way.
pub struct Running {
    stop: oneshot::Sender<()>,
    /// Dropped, the engine is gone from one moment to the next.
    life: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        let _ = self.stop.send(());
        tokio::task::spawn_blocking(move || self.thread.join().unwrap()).await.unwrap();
    }

    pub async fn crash(self) {
        drop(self.life);
        tokio::task::spawn_blocking(move || self.thread.join().unwrap()).await.unwrap();
    }
}

/// Patient where a test does not look at time, and quick where it does.
pub fn limits() -> Limits {
    Limits {
        tick: Duration::from_millis(20),
        hold_first: Duration::from_millis(50),
        hold_longest: Duration::from_millis(200),
        store_wait: Duration::from_millis(5),
        store_wait_longest: Duration::from_millis(20),
        drain: Duration::from_secs(2),
        ..Limits::default()
    }
}

impl Bed {
    pub fn new() -> Bed {
        Bed::of(parse::parse(BOOKSHOP).unwrap())
    }

    pub fn of(mut schema: Schema) -> Bed {
        schema.webhooks.development = true;
        let schema = Arc::new(schema);
        let started = Instant::now();
        let (ahead_ms, drawn, looks) = Default::default();
        let clock = Clock { started, ahead_ms, drawn, looks };
        Bed {
            store: Arc::new(Memory::new(schema.clone())),
            schema,
            clock: Arc::new(clock),
            metrics: Arc::new(Metrics::new()),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn start(&self) -> Running {
        self.start_with(limits())
    }

    pub fn start_with(&self, limits: Limits) -> Running {
        self.start_as(limits, Solo::new(), self.folder.path())
    }

    /// One of several engines.
    pub fn start_as(&self, limits: Limits, cluster: Arc<dyn Cluster>, folder: &Path) -> Running {
        let parts = Parts {
            schema: self.schema.clone(),
            store: self.store.clone(),
            cluster,
            client: wire::Client::new(),
            folder: Some(folder.to_owned()),
            outside: self.clock.clone(),
            limits,
            metrics: self.metrics.clone(),
        };
        let (stop, stopped) = oneshot::channel();
        let (life, ended) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let run = webhooks::run(parts, async {
                let _ = stopped.await;
            });
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = run => {}
                    _ = ended => {}
                }
            });
        });
        Running { stop, life, thread }
    }

    /// Makes an endpoint; its number.
    pub async fn endpoint(&self, sink: &Sink, more: Value) -> (i64, String) {
        self.endpoint_in(HERE, sink, more).await
    }

    pub async fn endpoint_in(&self, scope: Scope, sink: &Sink, more: Value) -> (i64, String) {
        let mut fields = json!({
            "url": sink.url, "enabled_events": ["*"], "payload": "fat", "max_in_flight": 20,
            "signature": "timestamped", "retry_schedule": [60, 300], "timeout": 5,
            "ordering": "none", "status": "enabled", "secret": SECRET,
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let Value::Object(fields) = fields else { unreachable!() };
        let change = Change::Create { fields };
        let record = self.write_in(scope, Builtin::Endpoint, None, change).await;
        (record.number, record.id)
    }

    pub async fn replay(&self, endpoint: &str, more: Value) -> String {
        self.replay_in(HERE, endpoint, more).await
    }

    pub async fn replay_in(&self, scope: Scope, endpoint: &str, more: Value) -> String {
        let mut fields = json!({
            "endpoint": endpoint, "dry_run": false, "without_success": false,
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let Value::Object(fields) = fields else { unreachable!() };
        self.write_in(scope, Builtin::Replay, None, Change::Create { fields }).await.id
    }

    pub async fn act(&self, builtin: Builtin, id: &str, action: &str) {
        self.act_in(HERE, builtin, id, action).await;
    }

    pub async fn act_in(&self, scope: Scope, builtin: Builtin, id: &str, action: &str) {
        assert!(self.try_act_in(scope, builtin, id, action).await, "{action} is refused");
    }

    /// Says whether the action was allowed.
    pub async fn try_act_in(&self, scope: Scope, builtin: Builtin, id: &str, action: &str) -> bool {
        let collection = &self.schema.collections[self.schema.own(builtin)];
        let action = collection.actions.iter().position(|found| found.name == action).unwrap();
        let change = Change::Act { action, params: Fields::new(), callout: None };
        self.try_write_in(scope, builtin, Some(id), change).await.is_ok()
    }

    pub async fn write(&self, builtin: Builtin, id: Option<&str>, change: Change) -> model::Record {
        self.write_in(HERE, builtin, id, change).await
    }

    pub async fn write_in(
        &self,
        scope: Scope,
        builtin: Builtin,
        id: Option<&str>,
        change: Change,
    ) -> model::Record {
        self.try_write_in(scope, builtin, id, change).await.unwrap()
    }

    async fn try_write_in(
        &self,
        scope: Scope,
        builtin: Builtin,
        id: Option<&str>,
        change: Change,
    ) -> Result<model::Record, model::Problem> {
        let write = Write {
            scope,
            collection: self.schema.own(builtin),
            id: id.map(str::to_owned),
            parent: None,
            change,
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: self.clock.now(),
            entropy: self.clock.entropy(),
        };
        match self.store.commit(write).await.unwrap() {
            Ok(
                Committed::Fresh(Response::Updated(record))
                | Committed::Unchanged(Response::Updated(record)),
            ) => Ok(record),
            Err(problem) => Err(problem),
            other => panic!("{other:?}"),
        }
    }

    pub async fn fields(&self, builtin: Builtin, id: &str) -> Fields {
        let collection = self.schema.own(builtin);
        let record = self.store.record(HERE, collection, None, id).await.unwrap();
        record.map(|record| record.fields()).unwrap_or_default()
    }

    /// Events about these records, in one commit.
    pub fn tell(&self, records: &[&str]) {
        self.store.append(records.iter().map(|record| self.event(record)));
    }

    /// Events of one size in one commit.
    pub fn tell_large(&self, scope: Scope, count: usize, bytes: usize) {
        self.store.append((0..count).map(|n| {
            let id = format!("book_{n}");
            let title = "x".repeat(bytes);
            let object = json!({ "id": id, "object": "book", "title": title }).to_string();
            Event { scope, object, ..self.event(&id) }
        }));
    }

    /// The figure of this name.
    pub fn figure(&self, name: &str) -> u64 {
        let figures = self.figures();
        let line = figures.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub fn event(&self, record: &str) -> Event {
        Event {
            seq: 0,
            id: String::new(),
            scope: HERE,
            kind: "book.created".into(),
            created: self.clock.now(),
            collection: "books".into(),
            record: record.to_owned(),
            api_version: self.schema.service.version.clone(),
            object: json!({ "id": record, "object": "book", "title": "Emma" }).to_string(),
            previous: None,
            hidden: None,
            request: None,
            idempotency_key: None,
        }
    }

    /// How far an endpoint has come, by what is durable.
    pub fn position(&self, endpoint: i64) -> i64 {
        let inner = self.store.look();
        let head = inner.head.unwrap_or(0).max(endpoint);
        inner.positions.get(&endpoint).copied().unwrap_or(head)
    }

    pub fn newest(&self) -> i64 {
        self.store.look().events.len() as i64
    }

    pub fn row(&self, endpoint: i64, event: i64) -> Option<Row> {
        self.store.look().rows.get(&(endpoint, event)).cloned()
    }

    /// How many deliveries of an endpoint have this status.
    pub fn rows(&self, endpoint: i64, status: Status) -> usize {
        let inner = self.store.look();
        let rows = inner.rows.range((endpoint, 0)..(endpoint + 1, 0));
        rows.filter(|(_, row)| row.status == status).count()
    }

    /// How many deliveries of all endpoints have this status.
    pub fn rows_of_all(&self, status: Status) -> usize {
        self.store.look().rows.values().filter(|row| row.status == status).count()
    }

    /// How many deliveries wait for a retry that is not due yet.
    pub fn rows_waiting(&self) -> usize {
        let now = self.clock.now();
        let inner = self.store.look();
        inner.rows.values().filter(|row| row.next.is_some_and(|next| next > now)).count()
    }

    pub fn figures(&self) -> String {
        let mut out = String::new();
        self.metrics.render(&mut out, true);
        out
    }
}

/// Waits for a condition, and fails when it does not come.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        // waits for: the condition
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Gives what must not happen the time to happen.
pub async fn linger() {
    // waits for: whatever would wrongly happen
    tokio::time::sleep(Duration::from_millis(150)).await;
}
