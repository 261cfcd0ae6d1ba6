//! One replay: what it was asked to send again, how far it has come, and which events it means.
//! Knows neither the store nor the network.

use crate::pace::{Bucket, Readiness};
use crate::queue::{Job, Known};
use model::event::Event;
use model::record::Fields;
use model::webhook::{Endpoint, pattern};
use model::{Record, Scope, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::rc::Rc;
use store::Delivery;
use tokio::time::Instant;

pub struct Replay {
    pub id: String,
    pub scope: Scope,
    /// Version of the record that is known here: a cancellation makes another.
    pub version: i64,
    /// Id of the endpoint.
    pub endpoint: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub dry_run: bool,
    pub without_success: bool,
    pub types: Option<Rc<[String]>>,
    pub stage: Stage,
    /// The last event it means.
    pub last: i64,
    /// Everything up to here was read.
    pub cursor: i64,
    pub counted: u64,
    pub total: Option<u64>,
    progress: Progress,
    queue: VecDeque<Job>,
    /// Events that are not sent because the filter cannot judge them, until that is durable.
    skipping: HashSet<i64>,
    pub in_flight: usize,
    /// It is in the queue of those that are looked at next.
    pub ready: bool,
    /// It is in the queue of those that want to ask the store something.
    pub waiting: bool,
    /// Its place in the order in which replays were opened.
    pub opened: u64,
    /// A question to the store is in flight.
    pub asking: bool,
    /// What the next event weighs, where it found no room.
    pub reserve: usize,
    /// Records with an event in flight, where their order matters.
    busy: HashSet<String>,
    pub saving: bool,
    /// There is something to write down that has not been.
    pub dirty: bool,
    bucket: Option<Bucket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Others of its scope come first.
    Waiting,
    /// Where it begins and ends in the log is not known yet.
    Bounds,
    Counting,
    Sending,
    /// Only its last words are missing.
    Ended(&'static str, Option<&'static str>),
}

/// What the store said to a replay.
pub enum Step {
    Bounds {
        first: i64,
        last: i64,
    },
    Counted {
        count: usize,
        cursor: i64,
    },
    /// What follows `after`, up to `cursor`.
    Read {
        events: Vec<Found>,
        after: i64,
        cursor: i64,
    },
    /// The current record, and whether the write succeeded; `None` when it is gone.
    Saved {
        record: Option<Record>,
        written: bool,
    },
}

/// An event that a replay means.
pub struct Found {
    pub event: Event,
    /// The delivery of it to the endpoint, where there is one.
    pub delivery: Option<Delivery>,
    /// Why the filter cannot judge it: it is not sent, and the reason is recorded.
    pub fault: Option<String>,
}

/// What was done, counted in the order of the log: the figures belong to the position.
#[derive(Debug, Default)]
struct Progress {
    position: i64,
    done: u64,
    succeeded: u64,
    open: BTreeSet<i64>,
    finished: BTreeMap<i64, bool>,
}

impl Replay {
    /// None if it is over.
    pub fn read(scope: Scope, record: &Record) -> Option<Replay> {
        let fields = record.fields();
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        let flag = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
        let instant = |name: &str| text(name).and_then(Timestamp::parse);
        if !is_open(text("status")) {
            return None;
        }
        let types = fields.get("types").and_then(Value::as_array).map(|types| {
            types.iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect()
        });
        let rate = count("rate_limit").and_then(|rate| u32::try_from(rate).ok());
        let position = fields.get("position").and_then(Value::as_i64).unwrap_or(0);
        Some(Replay {
            id: record.id.clone(),
            scope,
            version: record.version,
            endpoint: text("endpoint").unwrap_or_default().to_owned(),
            since: instant("since"),
            until: instant("until"),
            dry_run: flag("dry_run"),
            without_success: flag("without_success"),
            types,
            stage: Stage::Waiting,
            last: 0,
            cursor: position,
            counted: 0,
            total: count("total"),
            progress: Progress {
                position,
                done: count("done").unwrap_or(0),
                succeeded: count("succeeded").unwrap_or(0),
                ..Progress::default()
            },
            queue: VecDeque::new(),
            skipping: HashSet::new(),
            in_flight: 0,
            ready: false,
            waiting: false,
            opened: 0,
            asking: false,
            reserve: 0,
            busy: HashSet::new(),
            saving: false,
            dirty: false,
            bucket: rate.map(Bucket::new),
        })
    }

    /// What its rate allows was sent just before, by another node or before a restart.
    pub fn empty(&mut self, now: Instant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.empty(now);
        }
    }

    /// It is known where it begins and ends. One that was in flight goes on.
    pub fn bounded(&mut self, first: i64, last: i64) {
        self.last = last;
        if self.total.is_some() {
            self.stage = Stage::Sending;
            self.advance();
            return;
        }
        (self.cursor, self.progress.position) = (first, first);
        self.stage = Stage::Counting;
    }

    /// So many more are meant, up to `cursor`.
    pub fn count(&mut self, more: usize, cursor: i64) {
        self.counted += more as u64;
        self.cursor = cursor;
        if cursor < self.last {
            return;
        }
        self.total = Some(self.counted);
        self.dirty = true;
        if self.dry_run {
            self.stage = Stage::Ended("succeeded", None);
        } else {
            self.stage = Stage::Sending;
            self.cursor = self.progress.position;
            // Perhaps there is nothing to send.
            self.advance();
        }
    }

    /// Takes over events that were read, up to `cursor`.
    pub fn load(&mut self, mut jobs: Vec<Job>, cursor: i64) {
        // What was sent before the replay gave the others back may come again.
        let Progress { open, finished, .. } = &self.progress;
        jobs.retain(|job| {
            let seq = job.event.event.seq;
            !open.contains(&seq) && !finished.contains_key(&seq)
        });
        self.progress.open.extend(jobs.iter().map(|job| job.event.event.seq));
        self.queue.extend(jobs);
        self.cursor = cursor;
        self.advance();
    }

    /// An event is recorded as skipped instead of being sent. False if it was taken up before.
    pub fn skip(&mut self, seq: i64) -> bool {
        let Progress { open, finished, .. } = &mut self.progress;
        let fresh = !finished.contains_key(&seq) && open.insert(seq);
        if fresh {
            self.skipping.insert(seq);
        }
        fresh
    }

    /// Gives everything that was not sent back to the log: it is read again when it can be sent.
    pub fn give_back(&mut self) {
        for job in self.queue.drain(..) {
            let seq = job.event.event.seq;
            self.progress.open.remove(&seq);
            self.cursor = self.cursor.min(seq - 1);
        }
    }

    /// How many more events it may load: no more than it can send soon.
    pub fn wanted(&self, window: usize) -> usize {
        let rate = self.bucket.as_ref().map_or(usize::MAX, Bucket::rate);
        window.min(rate).saturating_sub(self.queue.len() + self.skipping.len())
    }

    /// Whether it has something to ask the store.
    pub fn needs_store(&self, window: usize) -> bool {
        match self.stage {
            Stage::Waiting | Stage::Ended(..) => false,
            Stage::Bounds | Stage::Counting => true,
            Stage::Sending => self.cursor < self.last && self.wanted(window) > 0,
        }
    }

    /// What to send now; or when to look again. Where it is `ordered`, events of a record go one
    /// after the other.
    pub fn next(
        &mut self,
        window: usize,
        ordered: bool,
        now: Instant,
    ) -> Result<Job, Option<Instant>> {
        let free = |job: &Job| !ordered || !self.busy.contains(&job.event.event.record);
        let place = match self.in_flight < window {
            // The first of a record comes before the others of it, so it is found first.
            true => self.queue.iter().position(free),
            false => None,
        };
        let Some(place) = place else { return Err(None) };
        if let Some(bucket) = &mut self.bucket {
            if let Readiness::Until(at) = bucket.readiness(now) {
                return Err(Some(at));
            }
            bucket.spend(now);
        }
        let job = self.queue.remove(place).ok_or(None)?;
        if ordered {
            self.busy.insert(job.event.event.record.clone());
        }
        Ok(job)
    }

    /// The outcome of an event is durable; `record` where their order matters.
    pub fn finish(&mut self, seq: i64, record: Option<&str>, succeeded: bool) {
        if let Some(record) = record {
            self.busy.remove(record);
        }
        self.skipping.remove(&seq);
        self.progress.open.remove(&seq);
        self.progress.finished.insert(seq, succeeded);
        self.advance();
    }

    fn advance(&mut self) {
        let progress = &mut self.progress;
        let position = progress.open.first().map_or(self.cursor, |seq| self.cursor.min(seq - 1));
        let rest = progress.finished.split_off(&(position + 1));
        for succeeded in std::mem::replace(&mut progress.finished, rest).into_values() {
            progress.done += 1;
            progress.succeeded += u64::from(succeeded);
        }
        self.dirty |= position != progress.position;
        progress.position = position;
        if self.stage == Stage::Sending && position >= self.last {
            // Some may have been delivered otherwise since they were counted.
            self.total = Some(progress.done);
            self.dirty = true;
            self.stage = Stage::Ended("succeeded", None);
        }
    }

    pub fn fail(&mut self, why: &'static str) {
        self.stage = Stage::Ended("failed", Some(why));
        self.queue.clear();
        self.dirty = true;
    }

    /// The fields to write to its record.
    pub fn fields(&self) -> Fields {
        let (status, error) = match self.stage {
            Stage::Ended(status, error) => (status, error),
            _ => ("running", None),
        };
        let Progress { position, done, succeeded, .. } = &self.progress;
        let mut fields = Fields::new();
        for (name, value) in [
            ("status", json!(status)),
            ("total", json!(self.total)),
            ("done", json!(done)),
            ("succeeded", json!(succeeded)),
            ("position", json!(position)),
            ("error", json!(error)),
        ] {
            fields.insert(name.to_owned(), value);
        }
        fields
    }
}

/// Whether a replay of these types means this one; without any, the endpoint's own say.
pub fn means(types: Option<&[String]>, endpoint: &Endpoint, kind: &str) -> bool {
    match types {
        Some(types) => types.iter().any(|wanted| pattern::matches(wanted, kind)),
        None => endpoint.wants(kind),
    }
}

/// Whether a replay with this status has work left.
pub fn is_open(status: Option<&str>) -> bool {
    matches!(status, Some("pending" | "running"))
}

/// A delivery that a replay may have to make again.
pub fn known(delivery: Delivery) -> Known {
    let Delivery { number, id, attempts, status, next, .. } = delivery;
    Known { number, id, attempts, status, next, asked: 0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::attempt::Trigger;
    use crate::prepared::tests::{loaded, prepared};

    pub(crate) fn replay(fields: Value) -> Option<Replay> {
        let record = Record {
            id: "rpl_1".into(),
            number: 1,
            version: 1,
            updated: Timestamp(0),
            body: fields.to_string(),
            hidden: None,
        };
        Replay::read(Scope::new(1, false), &record)
    }

    fn job(seq: i64) -> Job {
        let event = prepared(seq, if seq == 15 { "b" } else { "a" }, &loaded());
        Job { event, known: None, trigger: Trigger::Replay, counts: false }
    }

    #[test]
    fn a_restart_counts_no_event_of_a_replay_twice() {
        let mut replay = replay(json!({ "status": "pending" })).unwrap();
        replay.bounded(10, 20);
        replay.count(3, 20);
        assert_eq!(replay.stage, Stage::Sending);
        replay.load(vec![job(12), job(15), job(18)], 20);
        let told = |replay: &Replay| {
            let fields = replay.fields();
            ["position", "done", "succeeded"].map(|name| fields[name].as_i64().unwrap())
        };
        assert_eq!(told(&replay), [11, 0, 0]);
        replay.finish(15, None, true);
        assert_eq!(told(&replay), [11, 0, 0]);
        replay.finish(12, None, false);
        assert_eq!(told(&replay), [17, 2, 1]);
        replay.finish(18, None, true);
        assert_eq!(told(&replay), [20, 3, 2]);
        assert_eq!(replay.stage, Stage::Ended("succeeded", None));
    }

    #[test]
    fn released_events_are_read_again_and_sent_ones_are_not() {
        let mut replay = replay(json!({ "status": "pending" })).unwrap();
        replay.bounded(10, 20);
        replay.count(4, 20);
        replay.load(vec![job(12), job(15), job(18), job(19)], 20);
        let now = Instant::now();
        for expected in [12, 15] {
            assert_eq!(replay.next(8, true, now).ok().unwrap().event.event.seq, expected);
        }
        replay.finish(15, Some("b"), true);
        replay.give_back();
        replay.give_back();
        assert_eq!((replay.cursor, replay.wanted(8)), (17, 8), "nothing is loaded any more");
        replay.finish(12, Some("a"), true);
        assert_eq!(replay.fields()["done"], 2);
        // Read again from an earlier place, as after a read that was in flight.
        replay.load(vec![job(18), job(19)], 20);
        replay.load(vec![job(18), job(19)], 20);
        for seq in [18, 19] {
            assert_eq!(replay.next(8, true, now).ok().unwrap().event.event.seq, seq);
            replay.finish(seq, Some("a"), true);
        }
        assert_eq!(replay.stage, Stage::Ended("succeeded", None));
        assert_eq!(replay.fields()["done"], 4);
    }

    #[test]
    fn a_replay_of_nothing_ends() {
        let mut empty = replay(json!({ "status": "pending" })).unwrap();
        empty.bounded(0, 0);
        empty.count(0, 0);
        assert_eq!(empty.stage, Stage::Ended("succeeded", None));
        let fields = json!({ "status": "running", "total": 3, "done": 3, "position": 20 });
        let mut done = replay(fields).unwrap();
        done.bounded(10, 20);
        assert_eq!(done.stage, Stage::Ended("succeeded", None));
    }

    #[test]
    fn events_of_a_record_are_replayed_one_after_the_other_where_order_matters() {
        let mut replay = replay(json!({ "status": "pending" })).unwrap();
        replay.bounded(10, 20);
        replay.count(3, 20);
        replay.load(vec![job(12), job(15), job(18)], 20);
        let now = Instant::now();
        let next = |replay: &mut Replay| {
            let job = replay.next(8, true, now);
            job.map(|job| job.event.event.seq).ok()
        };
        assert_eq!((next(&mut replay), next(&mut replay)), (Some(12), Some(15)));
        assert_eq!(next(&mut replay), None, "12 and 18 are about one record");
        replay.finish(12, Some("a"), true);
        assert_eq!(next(&mut replay), Some(18));
    }

    #[test]
    fn an_interrupted_replay_continues_at_its_position() {
        let fields = json!({ "status": "running", "total": 9, "done": 4, "position": 15 });
        let mut replay = replay(fields).unwrap();
        replay.bounded(10, 20);
        assert_eq!((replay.stage, replay.cursor), (Stage::Sending, 15));
        assert_eq!(replay.fields()["done"], 4);
    }

    #[test]
    fn an_interrupted_replay_has_used_up_its_rate() {
        let mut replay = replay(json!({ "status": "pending", "rate_limit": 10 })).unwrap();
        replay.bounded(10, 20);
        replay.count(2, 20);
        replay.load(vec![job(12), job(15)], 20);
        let now = Instant::now();
        replay.empty(now);
        let Err(Some(at)) = replay.next(8, false, now) else { panic!("sent at once") };
        assert!(at > now && replay.next(8, false, at).is_ok());
    }

    #[test]
    fn a_finished_replay_is_not_resumed_and_a_dry_run_only_counts() {
        for status in ["succeeded", "failed", "cancelled"] {
            assert!(replay(json!({ "status": status })).is_none());
        }
        let mut replay = replay(json!({ "status": "pending", "dry_run": true })).unwrap();
        replay.bounded(0, 20);
        replay.count(2, 9);
        assert_eq!(replay.stage, Stage::Counting);
        replay.count(1, 20);
        assert_eq!(replay.stage, Stage::Ended("succeeded", None));
        assert_eq!((&replay.fields()["total"], &replay.fields()["done"]), (&json!(3), &json!(0)));
    }
}
