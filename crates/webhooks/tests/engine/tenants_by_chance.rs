//! A random walk over everything that can happen to endpoints of several accounts, with limits so
//! small that all of them are reached. What must hold: an account whose receivers are well is
//! served at once, whatever the others do; and once everybody is well, everything due has been
//! sent, in order where that was asked for, and nothing is held any more.
//!
//! `RESTIVE_LANES_SEED=n` tries one seed, `RESTIVE_LANES=n` so many.

use crate::bed::{Bed, Running, until};
use crate::memory::{Inner, Row};
use crate::sink::{Gate, Reply, Sink};
use model::event::Event;
use model::schema::Builtin;
use model::{Change, Scope, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use store::Status;
use webhooks::Limits;

/// Seeds that are always tried, and steps of each.
const SEEDS: u64 = 6;
const STEPS: u64 = 60;
/// The account that is always well.
const WELL: Scope = Scope(20);
const OTHERS: [Scope; 2] = [Scope(40), Scope(60)];

/// Numbers that look random, by splitmix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// How a receiver behaves: 0 well, 1 fails, 2 hangs, 3 asks for a pause.
#[derive(Clone)]
struct Mood(Arc<AtomicU8>, Gate);

impl Mood {
    fn set(&self, mood: u8) {
        self.0.store(mood, SeqCst);
        self.1.set(mood != 2);
    }
}

struct Hook {
    scope: Scope,
    number: i64,
    id: String,
    sink: Sink,
    mood: Mood,
    /// It was so all the time.
    ordered: bool,
    /// Events may have been skipped.
    was_disabled: bool,
}

/// A replay, and how it may end.
struct Asked {
    scope: Scope,
    id: String,
    endpoint: String,
    may_be_cancelled: bool,
}

struct World {
    bed: Bed,
    chance: Chance,
    hooks: Vec<Hook>,
    /// Those that were deleted.
    gone: Vec<Hook>,
    engine: Option<Running>,
    /// Events of each account by the order of the log.
    told: BTreeMap<Scope, usize>,
    replays: Vec<Asked>,
}

fn tiny() -> Limits {
    Limits {
        in_flight: 6,
        queue: 3,
        batch: 5,
        loaded_bytes: 96 << 10,
        reads: 2,
        changes: 1,
        steps: 3,
        held: 4,
        unsettled: 8,
        settlement: 4,
        settle_rest: Duration::from_millis(1),
        hold_after: 2,
        hold_first: Duration::from_millis(5),
        hold_longest: Duration::from_millis(20),
        pause_floor: Duration::from_millis(50),
        replay_window: 2,
        replays: 1,
        drain: Duration::from_millis(50),
        ..crate::bed::limits()
    }
}

async fn hook(bed: &Bed, chance: &mut Chance, scope: Scope) -> Hook {
    let mood = Mood(Arc::new(AtomicU8::new(0)), Gate::closed());
    let asked = mood.clone();
    let counter = AtomicU64::new(0);
    let sink = Sink::new(move |_, _| match asked.0.load(SeqCst) {
        0 => Reply::Status(200),
        1 => Reply::Status(500),
        2 => Reply::After(asked.1.clone()),
        // Now and then it does not mean it.
        _ if counter.fetch_add(1, SeqCst).is_multiple_of(3) => Reply::Status(200),
        _ => Reply::With(503, "retry-after: 1\r\n"),
    })
    .await;
    let ordered = chance.below(3) == 0;
    let more = json!({
        "ordering": if ordered { "resource" } else { "none" },
        "max_in_flight": 1 + chance.below(4),
        "payload": chance.one(&["fat", "thin"]),
        "timeout": 30,
        "retry_schedule": vec![1; 20],
    });
    let (number, id) = bed.endpoint_in(scope, &sink, more).await;
    Hook { scope, number, id, sink, mood, ordered, was_disabled: false }
}

impl World {
    async fn new(seed: u64) -> World {
        let (bed, mut chance) = (Bed::new(), Chance(seed));
        let mut hooks = vec![hook(&bed, &mut chance, WELL).await];
        for scope in OTHERS {
            for _ in 0..1 + chance.below(3) {
                hooks.push(hook(&bed, &mut chance, scope).await);
            }
        }
        let engine = Some(bed.start_with(tiny()));
        World {
            bed,
            chance,
            hooks,
            gone: Vec::new(),
            engine,
            told: BTreeMap::new(),
            replays: Vec::new(),
        }
    }

    fn tell(&mut self, scope: Scope, count: u64) {
        let chance = &mut self.chance;
        let events: Vec<Event> = (0..count)
            .map(|_| {
                let id = format!("book_{}", chance.below(4));
                let title = "x".repeat(*chance.one(&[10, 500, 9_000, 40_000]));
                let object = json!({ "id": id, "object": "book", "title": title }).to_string();
                Event { scope, object, ..self.bed.event(&id) }
            })
            .collect();
        *self.told.entry(scope).or_default() += events.len();
        self.bed.store.append(events);
    }

    async fn step(&mut self) {
        let scope = *self.chance.one(&OTHERS);
        let place = 1 + self.chance.below(self.hooks.len() as u64 - 1) as usize;
        match self.chance.below(17) {
            0..=3 => {
                let count = 1 + self.chance.below(8);
                self.tell(scope, count);
            }
            4 | 5 => {
                let mood = self.chance.below(4) as u8;
                self.hooks[place].mood.set(mood);
            }
            6 => {
                let hook = &self.hooks[place];
                self.bed.act_in(hook.scope, Builtin::Endpoint, &hook.id, "ping").await;
            }
            7 => self.retry_by_hand(place),
            8 => {
                let hook = &self.hooks[place];
                let rate = 20 + self.chance.below(50);
                let asked = json!({ "rate_limit": rate });
                let (scope, endpoint) = (hook.scope, hook.id.clone());
                let id = self.bed.replay_in(scope, &endpoint, asked).await;
                self.replays.push(Asked { scope, id, endpoint, may_be_cancelled: false });
            }
            9 => self.bed.clock.advance(1),
            10 => self.restart().await,
            12 => self.replace(place).await,
            13 => {
                let hook = &mut self.hooks[place];
                hook.was_disabled = true;
                self.bed.act_in(hook.scope, Builtin::Endpoint, &hook.id, "disable").await;
            }
            14 => {
                let hook = &self.hooks[place];
                self.bed.act_in(hook.scope, Builtin::Endpoint, &hook.id, "enable").await;
            }
            15 => self.patch(place).await,
            16 => self.cancel().await,
            _ => {
                // waits for: things to go on for a moment
                tokio::time::sleep(Duration::from_millis(self.chance.below(20))).await;
            }
        }
    }

    /// Deletes an endpoint, whatever it has under way; another one comes for it.
    async fn replace(&mut self, place: usize) {
        let scope = self.hooks[place].scope;
        let new = hook(&self.bed, &mut self.chance, scope).await;
        let old = std::mem::replace(&mut self.hooks[place], new);
        let endpoint = Builtin::Endpoint;
        self.bed.write_in(scope, endpoint, Some(&old.id), Change::Delete).await;
        self.gone.push(old);
    }

    async fn patch(&mut self, place: usize) {
        let hook = &mut self.hooks[place];
        let patch = match self.chance.below(4) {
            0 => {
                hook.ordered = false;
                json!({ "ordering": self.chance.one(&["none", "resource"]) })
            }
            1 => json!({ "max_in_flight": 1 + self.chance.below(4) }),
            2 => json!({ "payload": self.chance.one(&["fat", "thin"]) }),
            _ => json!({ "rate_limit": 20 + self.chance.below(100) }),
        };
        let serde_json::Value::Object(patch) = patch else { unreachable!() };
        let (scope, change) = (hook.scope, Change::Merge { patch });
        self.bed.write_in(scope, Builtin::Endpoint, Some(&hook.id), change).await;
    }

    /// Cancels a replay, unless it has ended.
    async fn cancel(&mut self) {
        if self.replays.is_empty() {
            return;
        }
        let place = self.chance.below(self.replays.len() as u64) as usize;
        let asked = &mut self.replays[place];
        if self.bed.try_act_in(asked.scope, Builtin::Replay, &asked.id, "cancel").await {
            asked.may_be_cancelled = true;
        }
    }

    fn retry_by_hand(&mut self, place: usize) {
        let number = self.hooks[place].number;
        let seqs: Vec<i64> = {
            let inner = self.bed.store.look();
            let rows = inner.rows.range((number, 0)..(number + 1, 0));
            rows.map(|((_, seq), _)| *seq).collect()
        };
        if !seqs.is_empty() {
            let seq = *self.chance.one(&seqs);
            self.bed.store.ask_again(number, seq);
        }
    }

    async fn restart(&mut self) {
        let engine = self.engine.take().unwrap();
        match self.chance.below(2) {
            0 => engine.crash().await,
            _ => engine.stop().await,
        }
        self.engine = Some(self.bed.start_with(tiny()));
    }

    /// The account that is well gets its event at once.
    async fn is_served(&mut self) {
        self.tell(WELL, 1);
        let (begun, sent) = (Instant::now(), self.told[&WELL]);
        let sink = &self.hooks[0].sink;
        let arrived = || {
            let ids: BTreeSet<String> =
                sink.events().iter().map(|request| request.id().to_owned()).collect();
            ids.len() == sent
        };
        until("the account that is well is served", arrived).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }

    /// Everybody is well: everything due is sent.
    async fn recovers(&mut self) {
        for hook in self.hooks.iter().chain(&self.gone) {
            hook.mood.set(0);
        }
        for hook in self.hooks.iter().filter(|hook| hook.was_disabled) {
            self.bed.act_in(hook.scope, Builtin::Endpoint, &hook.id, "enable").await;
        }
        for hook in &self.hooks {
            let begun = Instant::now();
            while let Some(missing) = self.missing(hook) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{missing}");
                // Retries wait a second each.
                self.bed.clock.advance(1);
                // waits for: deliveries to go on
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if hook.ordered && !hook.was_disabled {
                self.in_order(hook);
            }
        }
        for asked in &self.replays {
            self.ends(asked).await;
        }
        let zero = |name: &str| self.bed.figure(name) == 0;
        until("nothing is held", || zero("restive_webhook_loaded_bytes")).await;
        assert!(zero("restive_webhook_in_flight"));
    }

    async fn ends(&self, asked: &Asked) {
        let is_gone = self.gone.iter().any(|hook| hook.id == asked.endpoint);
        let begun = Instant::now();
        loop {
            let collection = self.bed.schema.own(Builtin::Replay);
            let store: &dyn store::Store = &*self.bed.store;
            let record = store.record(asked.scope, collection, None, &asked.id).await.unwrap();
            let record = record.unwrap();
            match record.fields()["status"].as_str() {
                Some("succeeded") => return,
                Some("failed") if is_gone => return,
                Some("cancelled") if asked.may_be_cancelled => return,
                _ => {}
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", record.body);
            self.bed.clock.advance(1);
            tokio::task::yield_now().await;
        }
    }

    /// What has not arrived at an endpoint, or is still to be tried again.
    fn missing(&self, hook: &Hook) -> Option<String> {
        let arrived: BTreeSet<String> =
            hook.sink.events().iter().map(|request| request.id().to_owned()).collect();
        let inner = self.bed.store.look();
        let was_skipped = |event: &Event| {
            let row = inner.rows.get(&(hook.number, event.seq));
            hook.was_disabled && row.is_some_and(|row| row.status == Status::Skipped)
        };
        // It has not been asked for what came before it.
        let told = inner.events.iter().filter(|event| {
            event.seq > hook.number
                && event.scope == hook.scope
                && event.collection == "books"
                && !arrived.contains(&event.id)
                && !was_skipped(event)
        });
        let missing: Vec<i64> = told.map(|event| event.seq).collect();
        let rows = inner.rows.range((hook.number, 0)..(hook.number + 1, 0));
        let open: Vec<_> = rows.filter(|(_, row)| row.status == Status::Pending).collect();
        (!missing.is_empty() || !open.is_empty()).then(|| {
            let (number, ordered) = (hook.number, hook.ordered);
            let position = inner.positions.get(&number);
            format!("{number} ordered {ordered} at {position:?}: {missing:?}, to retry {open:?}")
        })
    }

    /// The first success of each event comes after those of earlier events of its record.
    fn in_order(&self, hook: &Hook) {
        let inner = self.bed.store.look();
        let rows = inner.rows.range((hook.number, 0)..(hook.number + 1, 0));
        let mut last: BTreeMap<&str, Timestamp> = BTreeMap::new();
        // A replay has an order of its own.
        let once = |row: &Row| row.asked == 0 && row.texts.len() == 1;
        let by_log = |row: &Row| row.texts[0].contains("\"trigger\":\"event\"");
        for ((_, seq), row) in rows.filter(|(_, row)| once(row) && by_log(row)) {
            let event = &inner.events[*seq as usize - 1];
            if event.collection != "books" {
                continue;
            }
            let before = last.insert(&event.record, row.updated);
            let kept = before.is_none_or(|before| before <= row.updated);
            assert!(kept, "{} is late: {}", event.id, rows_about(&inner, hook, &event.record));
        }
    }
}

/// What became of the events of one record.
fn rows_about(inner: &Inner, hook: &Hook, record: &str) -> String {
    let rows = inner.rows.range((hook.number, 0)..(hook.number + 1, 0));
    let about = rows.filter(|((_, seq), _)| inner.events[*seq as usize - 1].record == record);
    let told = about.map(|((_, seq), row)| {
        let triggers = row.texts.iter().map(|text| {
            let attempt: serde_json::Value = serde_json::from_str(text).unwrap();
            format!("{} {}", attempt["trigger"], attempt["created_at"])
        });
        let triggers: Vec<String> = triggers.collect();
        format!("\n{seq} {:?} at {}: {triggers:?}", row.status, row.updated.to_iso())
    });
    told.collect()
}

async fn walk(seed: u64) {
    let mut world = World::new(seed).await;
    for step in 0..STEPS {
        world.step().await;
        if step % 10 == 9 {
            world.is_served().await;
        }
    }
    world.recovers().await;
    let begun = Instant::now();
    world.engine.take().unwrap().stop().await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn every_due_event_is_sent_and_no_account_waits_for_another() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = match number("RESTIVE_LANES_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RESTIVE_LANES").unwrap_or(SEEDS)).collect(),
    };
    for seed in seeds {
        eprintln!("RESTIVE_LANES_SEED={seed}");
        walk(seed).await;
    }
}
