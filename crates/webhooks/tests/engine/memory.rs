//! A store in memory: the log, records changed by `model::decide`, and the rows of deliveries. Can
//! be told to fail.

use model::decide::{Effect, Facts, decide};
use model::event::Event;
use model::query::Query;
use model::schema::Builtin;
use model::write::{Committed, Response, Write};
use model::{CollectionIx, Problem, Record, Schema, Scope, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use store::cluster::{Bucket, bucket_of};
use store::usage::{Used, UsedInAll};
use store::{
    BoxFuture, Child, Delivery, Due, EndpointState, EndpointStates, Error, EventPage, Expired,
    Failures, Figures, Log, Outbox, Page, Records, Remembered, Retries, Retry, Settlement, Status,
    Upkeep, Watchdog, event_bytes,
};
use tokio::sync::watch;

pub struct Memory {
    schema: Arc<Schema>,
    inner: Mutex<Inner>,
    position: watch::Sender<i64>,
    nudged: watch::Sender<u64>,
    settled: watch::Sender<u64>,
    /// Settlements fail while set.
    pub full: AtomicBool,
    /// Reads fail while set.
    pub deaf: AtomicBool,
    pub settlements: AtomicUsize,
    /// Most events ever read at a time.
    pub largest_read: AtomicUsize,
    /// How often the log was read.
    pub reads: AtomicUsize,
    watchdog: Arc<Watchdog>,
}

#[derive(Default)]
pub struct Inner {
    pub events: Vec<Event>,
    records: BTreeMap<(CollectionIx, i64), (Scope, Record)>,
    pub rows: BTreeMap<(i64, i64), Row>,
    /// Up to here every endpoint has come that has no position of its own.
    pub head: Option<i64>,
    pub positions: BTreeMap<i64, i64>,
    pub pauses: BTreeMap<i64, Timestamp>,
    pub failures: BTreeMap<i64, Failures>,
    /// How often a position was written, the head's not counted.
    pub positions_written: usize,
    /// Most positions written at a time.
    pub most_positions: usize,
    rows_made: i64,
    /// The current fence of each bucket, where there are leases.
    pub fences: BTreeMap<Bucket, i64>,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub number: i64,
    pub id: String,
    pub status: Status,
    pub attempts: u32,
    pub next: Option<Timestamp>,
    pub updated: Timestamp,
    pub asked: i64,
    pub texts: Vec<String>,
}

impl Memory {
    pub fn new(schema: Arc<Schema>) -> Memory {
        Memory {
            schema,
            inner: Mutex::default(),
            position: watch::Sender::new(0),
            nudged: watch::Sender::new(0),
            settled: watch::Sender::new(0),
            full: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            settlements: AtomicUsize::new(0),
            largest_read: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            watchdog: Watchdog::new(),
        }
    }

    pub fn look(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Many events at once, as one commit.
    pub fn append(&self, events: impl IntoIterator<Item = Event>) {
        let mut inner = self.look();
        for mut event in events {
            event.seq = inner.events.len() as i64 + 1;
            event.id = format!("evt_{}", event.seq);
            inner.events.push(event);
        }
        let newest = inner.events.len() as i64;
        drop(inner);
        self.position.send_replace(newest);
    }

    pub fn ask_again(&self, endpoint: i64, event: i64) {
        let mut inner = self.look();
        let row = inner.rows.get_mut(&(endpoint, event)).unwrap();
        (row.status, row.next) = (Status::Pending, Some(Timestamp(0)));
        row.asked += 1;
        drop(inner);
        self.nudged.send_modify(|count| *count += 1);
    }

    fn change(&self, write: &Write) -> Result<Committed, Problem> {
        let mut inner = self.look();
        let id = write.id.clone().unwrap_or_default();
        let mut all = inner.records.iter();
        let current = all
            .find(|((ix, _), (scope, record))| {
                *ix == write.collection && *scope == write.scope && record.id == id
            })
            .map(|(_, (_, record))| record.clone());
        let next_seq = inner.events.len() as i64 + 1;
        let facts = Facts {
            current: current.as_ref(),
            was_deleted: false,
            parent_exists: true,
            missing: &[],
            next_seq,
            now: write.now,
        };
        let decision = decide(&self.schema, write, &facts)?;
        let mut record = current;
        match decision.effect {
            Effect::Put(kept) => {
                let made = Record {
                    id: kept.id,
                    number: record.as_ref().map_or(next_seq, |record| record.number),
                    version: next_seq,
                    updated: write.now,
                    body: kept.body,
                    hidden: kept.hidden,
                };
                let key = (write.collection, made.number);
                inner.records.insert(key, (write.scope, made.clone()));
                record = Some(made);
            }
            Effect::Erase => {
                let number = record.as_ref().unwrap().number;
                inner.records.remove(&(write.collection, number));
            }
            _ => {}
        }
        let record = record.unwrap();
        for draft in decision.events {
            let event = Event {
                seq: inner.events.len() as i64 + 1,
                id: draft.id,
                scope: write.scope,
                kind: draft.kind,
                created: write.now,
                collection: self.schema.collections[write.collection].name.clone(),
                record: record.id.clone(),
                api_version: self.schema.service.version.clone(),
                object: draft.object,
                previous: draft.previous,
                hidden: draft.hidden,
                request: None,
                idempotency_key: None,
            };
            inner.events.push(event);
        }
        let newest = inner.events.len() as i64;
        drop(inner);
        self.position.send_replace(newest);
        Ok(Committed::Fresh(Response::Updated(record)))
    }

    fn reading<T>(&self, read: impl FnOnce(&Inner) -> T) -> Result<T, Error> {
        match self.deaf.load(SeqCst) {
            true => Err(Error::Busy),
            false => Ok(read(&self.look())),
        }
    }
}

fn now<'a, T: Send + 'a>(answer: Result<T, Error>) -> BoxFuture<'a, Result<T, Error>> {
    Box::pin(async move {
        // Others get their turn, as with a store that answers from another thread.
        tokio::task::yield_now().await;
        answer
    })
}

/// As a store does with short reads: they are answered on the thread that asks.
fn at_once<'a, T: Send + 'a>(answer: Result<T, Error>) -> BoxFuture<'a, Result<T, Error>> {
    Box::pin(std::future::ready(answer))
}

impl Records for Memory {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Result<Committed, Problem>, Error>> {
        now(match self.full.load(SeqCst) {
            true => Err(Error::Full),
            false => Ok(self.change(&write)),
        })
    }

    fn record<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        _: Option<&'a str>,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Record>, Error>> {
        at_once(self.reading(|inner| {
            let found = inner.records.iter().find(|((ix, _), (at, record))| {
                *ix == collection && *at == scope && record.id == id
            });
            found.map(|(_, (_, record))| record.clone())
        }))
    }

    fn list<'a>(
        &'a self,
        _: Scope,
        _: CollectionIx,
        _: &'a Query,
    ) -> BoxFuture<'a, Result<Page, Error>> {
        now(Err(Error::Busy))
    }

    fn texts<'a>(
        &'a self,
        _: Scope,
        _: CollectionIx,
        _: &'a Query,
    ) -> BoxFuture<'a, Result<Page<String>, Error>> {
        now(Err(Error::Busy))
    }

    fn by_ids<'a>(
        &'a self,
        _: Scope,
        _: CollectionIx,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Record>, Error>> {
        now(Err(Error::Busy))
    }

    fn children<'a>(
        &'a self,
        _: Scope,
        _: CollectionIx,
        _: &'a [String],
        _: u32,
    ) -> BoxFuture<'a, Result<Vec<Child>, Error>> {
        now(Err(Error::Busy))
    }

    fn every(
        &self,
        collection: CollectionIx,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>> {
        now(self.reading(|inner| {
            let found = inner.records.range((collection, after + 1)..(collection + 1, 0));
            found.take(max).map(|(_, found)| found.clone()).collect()
        }))
    }

    fn every_served(
        &self,
        collection: CollectionIx,
        buckets: Option<Vec<Bucket>>,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>> {
        now(self.reading(|inner| {
            let is_replay = collection == self.schema.own(Builtin::Replay);
            let ended = |record: &Record| {
                let status = record.fields().get("status").cloned().unwrap_or_default();
                is_replay && status != "pending" && status != "running"
            };
            let of_bucket = |scope: Scope| {
                buckets.as_ref().is_none_or(|buckets| buckets.contains(&bucket_of(scope)))
            };
            let found = inner.records.range((collection, after + 1)..(collection + 1, 0));
            let found = found.map(|(_, found)| found.clone());
            found.filter(|(scope, record)| of_bucket(*scope) && !ended(record)).take(max).collect()
        }))
    }

    fn remembered<'a>(
        &'a self,
        _: Scope,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Remembered>, Error>> {
        now(Ok(None))
    }

    fn key_by_digest<'a>(
        &'a self,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>> {
        now(Ok(None))
    }

    fn key_by_id<'a>(
        &'a self,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>> {
        now(Ok(None))
    }

    fn collection_seq(&self, _: Scope, _: CollectionIx) -> i64 {
        0
    }

    fn shape(&self, _: CollectionIx) -> i64 {
        0
    }

    fn rewrites(&self, _: CollectionIx) -> i64 {
        0
    }

    fn cursor_key(&self) -> [u8; 32] {
        [0; 32]
    }

    fn key_generation(&self) -> u64 {
        0
    }
}

impl Log for Memory {
    fn events_within(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<EventPage, Error>> {
        self.reads.fetch_add(1, SeqCst);
        now(self.reading(|inner| {
            let after = usize::try_from(after).unwrap().min(inner.events.len());
            let of_scope = |event: &&Event| scope.is_none_or(|scope| event.scope == scope);
            let mut found = EventPage::default();
            let mut left = bytes;
            for event in inner.events[after..].iter().filter(of_scope) {
                let weight = event_bytes(event);
                if found.events.len() >= max || (weight > left && !found.events.is_empty()) {
                    found.more = true;
                    break;
                }
                left = left.saturating_sub(weight);
                found.events.push(event.clone());
            }
            self.largest_read.fetch_max(found.events.len(), SeqCst);
            found
        }))
    }

    fn position(&self) -> watch::Receiver<i64> {
        self.position.subscribe()
    }

    fn before(&self, moment: Timestamp) -> BoxFuture<'_, Result<i64, Error>> {
        now(self.reading(|inner| {
            let older = inner.events.iter().filter(|event| event.created < moment);
            older.map(|event| event.seq).max().unwrap_or(0)
        }))
    }

    fn oldest(&self) -> BoxFuture<'_, Result<i64, Error>> {
        now(self.reading(|inner| inner.events.first().map_or(0, |event| event.seq)))
    }

    fn epoch(&self) -> u32 {
        1
    }
}

impl Outbox for Memory {
    fn settle(&self, settlement: Settlement) -> BoxFuture<'_, Result<(), Error>> {
        if self.full.load(SeqCst) {
            return now(Err(Error::Full));
        }
        let mut inner = self.look();
        let mut lost = settlement.distinct_leases();
        lost.retain(|lease| inner.fences.get(&lease.bucket) != Some(&lease.fence));
        let settlement = settlement.without(&lost);
        for outcome in settlement.outcomes {
            inner.rows_made += 1;
            let made = inner.rows_made;
            let row = inner.rows.entry((outcome.endpoint, outcome.event)).or_insert(Row {
                number: made,
                id: outcome.id,
                status: outcome.status,
                attempts: 0,
                next: None,
                updated: outcome.now,
                asked: 0,
                texts: Vec::new(),
            });
            let owed = row.asked > outcome.asked && outcome.status != Status::Succeeded;
            if row.status != Status::Succeeded && !owed {
                (row.status, row.next) = (outcome.status, outcome.next);
            }
            row.attempts += u32::from(outcome.attempt.is_some());
            row.updated = outcome.now;
            row.asked = if owed { row.asked } else { 0 };
            row.texts.extend(outcome.attempt);
        }
        inner.positions_written += settlement.positions.len();
        inner.most_positions = inner.most_positions.max(settlement.positions.len());
        for (endpoint, position) in settlement.positions {
            match position {
                Some(position) => inner.positions.insert(endpoint, position),
                None => inner.positions.remove(&endpoint),
            };
        }
        inner.head = settlement.head.or(inner.head);
        inner.pauses.extend(settlement.pauses);
        for (endpoint, failures) in settlement.failures {
            match failures {
                Some(failures) => inner.failures.insert(endpoint, failures),
                None => inner.failures.remove(&endpoint),
            };
        }
        for endpoint in settlement.gone {
            inner.positions.remove(&endpoint);
            inner.pauses.remove(&endpoint);
            inner.failures.remove(&endpoint);
        }
        drop(inner);
        self.settlements.fetch_add(1, SeqCst);
        self.settled.send_modify(|count| *count += 1);
        now(Ok(()))
    }

    fn settled(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    fn retry_requested(&self) -> watch::Receiver<u64> {
        self.nudged.subscribe()
    }

    fn endpoint_states(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<EndpointStates, Error>> {
        now(self.reading(|inner| {
            let due = |endpoint| {
                let rows = inner.rows.range((endpoint, 0)..(endpoint + 1, 0));
                rows.filter_map(|(_, row)| row.next).min()
            };
            let standing = |endpoint| EndpointState {
                endpoint,
                position: inner.positions.get(&endpoint).copied(),
                due: due(endpoint),
                paused: inner.pauses.get(&endpoint).copied(),
                failures: inner.failures.get(&endpoint).copied(),
            };
            // Like the stores: nothing is stored of one that keeps up.
            let has_some = |state: &EndpointState| {
                let EndpointState { position, due, paused, failures, .. } = state;
                position.is_some() || due.is_some() || paused.is_some() || failures.is_some()
            };
            let endpoints = endpoints.into_iter().map(standing).filter(has_some).collect();
            EndpointStates { head: inner.head, endpoints }
        }))
    }

    fn requested_retries(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>> {
        now(self.reading(|inner| {
            let asked = inner.rows.iter().filter(|(_, row)| row.asked > 0);
            let endpoints: std::collections::BTreeSet<i64> =
                asked.map(|((endpoint, _), _)| *endpoint).collect();
            endpoints.into_iter().collect()
        }))
    }

    fn waiting(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<Vec<(i64, Timestamp)>, Error>> {
        now(self.reading(|inner| {
            let oldest = |endpoint: i64| {
                let mut rows = inner.rows.range((endpoint, 0)..(endpoint + 1, 0));
                let ((_, seq), _) = rows.find(|(_, row)| row.status == Status::Pending)?;
                Some((endpoint, inner.events[*seq as usize - 1].created))
            };
            endpoints.into_iter().filter_map(oldest).collect()
        }))
    }

    fn newest_retry(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>> {
        now(self.reading(|inner| {
            let waiting = inner.rows.values().filter(|row| row.status == Status::Pending);
            waiting.map(|row| row.updated).max()
        }))
    }

    fn retries(
        &self,
        endpoint: i64,
        at: Timestamp,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Retries, Error>> {
        now(self.reading(|inner| {
            let rows = inner.rows.range((endpoint, 0)..(endpoint + 1, 0));
            let mut waiting: Vec<_> =
                rows.filter_map(|((_, seq), row)| Some((row.next?, *seq, row))).collect();
            waiting.sort_by_key(|(next, seq, row)| (row.asked == 0, *next, *seq));
            let mut left = Some(bytes);
            let fits = |seq: i64| {
                let weight = event_bytes(&inner.events[seq as usize - 1]);
                let fitted = left;
                left = left.and_then(|left| left.checked_sub(weight));
                fitted.is_some_and(|left| left == bytes || weight <= left)
            };
            let mut fits = fits;
            let due = waiting.iter().filter(|(next, ..)| *next <= at).take(max);
            let due = due.take_while(|(_, seq, _)| fits(*seq));
            let due: Vec<Retry> = due
                .map(|(_, seq, row)| Retry {
                    delivery: delivery(*seq, row),
                    asked: row.asked,
                    event: inner.events[*seq as usize - 1].clone(),
                })
                .collect();
            let next = waiting.iter().skip(due.len()).map(|(next, ..)| *next).min();
            Retries { due, next }
        }))
    }

    fn pending_retries(
        &self,
        endpoint: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, i64)>, Error>> {
        now(self.reading(|inner| {
            let rows = inner.rows.range((endpoint, 0)..(endpoint + 1, 0));
            let waiting = rows.filter(|(_, row)| row.status == Status::Pending).take(max);
            let record = |seq: i64| inner.events[seq as usize - 1].record.clone();
            waiting.map(|((_, seq), _)| (record(*seq), *seq)).collect()
        }))
    }

    fn deliveries<'a>(
        &'a self,
        endpoint: i64,
        events: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<Delivery>, Error>> {
        now(self.reading(|inner| {
            let found = |seq: &i64| Some(delivery(*seq, inner.rows.get(&(endpoint, *seq))?));
            events.iter().filter_map(found).collect()
        }))
    }
}

impl Upkeep for Memory {
    fn due(&self, _: Timestamp, _: usize) -> BoxFuture<'_, Result<Due, Error>> {
        now(Ok(Due::default()))
    }

    fn timers(&self) -> watch::Receiver<u64> {
        watch::Sender::new(0).subscribe()
    }

    fn expire(
        &self,
        _: Timestamp,
        _: Timestamp,
        _: usize,
    ) -> BoxFuture<'_, Result<Expired, Error>> {
        now(Ok(Expired::default()))
    }

    fn add_usage(&self, _: Vec<Used>) -> BoxFuture<'_, Result<(), Error>> {
        unreachable!("the engine counts no requests")
    }

    fn usage_of<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<Used>, Error>> {
        unreachable!("the engine counts no requests")
    }

    fn usage(&self) -> &UsedInAll {
        unreachable!("the engine counts no requests")
    }

    fn backup<'a>(
        &'a self,
        _: &'a Path,
        _: Box<dyn FnMut(u64, u64) + Send + 'a>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        now(Err(Error::Busy))
    }

    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        now(Ok(()))
    }

    fn watchdog(&self) -> &Arc<Watchdog> {
        &self.watchdog
    }

    fn figures(&self) -> Figures {
        Figures::default()
    }
}

fn delivery(event: i64, row: &Row) -> Delivery {
    Delivery {
        number: row.number,
        id: row.id.clone(),
        event,
        status: row.status,
        attempts: row.attempts,
        next: row.next,
    }
}
