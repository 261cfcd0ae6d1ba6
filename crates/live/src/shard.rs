//! The connections of one thread. They are parked until the pump, one task per thread, finds an
//! event that one of them wants, or its tick has come. The pump works in slices, one account after
//! the other, and wakes no more connections than can run soon: an account with very many of them
//! delays another account's events by a few slices, however many there are.

use crate::ephemeral::EphemeralBuffers;
use crate::hub::Hub;
use crate::index::{self, Index, Places};
use crate::interest::Interests;
use crate::kind::{Kind, PerKind};
use crate::ring::{Following, Ring};
use crate::wheel::Wheel;
use model::Scope;
use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use store::Heartbeat;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// How finely connections see time.
pub const TICK: Duration = Duration::from_millis(500);
/// Connections that were woken and have not run yet, at most. Each runs for some microseconds, so
/// whatever is woken next waits for a few milliseconds.
const WINDOW: usize = 1024;
/// Connections of one account that are woken before the next account has its turn.
const SLICE: usize = 256;
/// Tests of interests in one slice: most of them find a connection that is awake already.
const TESTS: usize = 4096;
/// What looking for the connections of an event costs, in tests.
const LOOKUP: usize = 16;

/// A number of ticks; at least one.
pub const fn ticks(time: Duration) -> u32 {
    let ticks = time.as_millis().div_ceil(TICK.as_millis());
    if ticks == 0 { 1 } else { ticks as u32 }
}

#[derive(Debug)]
pub struct Shard {
    /// There is work for the pump.
    news: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
pub struct State {
    pub subscribers: Slab<Subscriber>,
    index: Index,
    accounts: HashMap<Scope, Account>,
    /// Accounts with something new, in turn.
    queue: VecDeque<Scope>,
    /// Connections whose tick may have come.
    due: VecDeque<usize>,
    wheel: Wheel,
    /// The end of the log when the hub last reported. An account that is not in the queue has seen
    /// everything up to here.
    head: i64,
    /// Connections that were woken and have not run yet.
    woken: usize,
    /// The pump waits for them.
    full: bool,
    pub now: u32,
    /// Whether the pump runs.
    pumped: bool,
}

/// The connections of one account and mode on this thread.
#[derive(Debug)]
struct Account {
    subscribers: usize,
    /// What `Shard::recheck_keys` saw last.
    keys_seq: i64,
    /// How many of them name the parent of a record.
    by_parent: usize,
    /// Events up to here were tested against every interest.
    seen: i64,
    /// The same for ephemeral messages.
    heard: PerKind<u64>,
    queued: bool,
    pass: Option<Pass>,
    /// Events and ephemeral messages take turns.
    events_next: bool,
}

/// One event, or some ephemeral messages, on the way to the connections that may want them.
#[derive(Debug)]
struct Pass {
    what: What,
    subscribers: Vec<u32>,
    next: usize,
}

#[derive(Debug)]
enum What {
    Event(Arc<crate::entry::Entry>),
    /// Everything up to here: memory did not reach back far enough to test it.
    Everything(i64),
    /// Messages from a number on, with the connections that sent them.
    Ephemeral {
        kind: Kind,
        first: u64,
        from: Vec<Option<u32>>,
        newest: u64,
    },
}

/// What the shard knows of a connection.
#[derive(Debug)]
pub struct Subscriber {
    pub waker: Option<Waker>,
    pub interests: Arc<Interests>,
    places: Places,
    /// Where the connection stands. While it is parked, everything it wants up to what its account
    /// has `seen` was sent, wherever this is.
    pub cursor: i64,
    pub parked: bool,
    /// Woken, and has not run since.
    woken: bool,
    /// The connection is to end.
    pub called: bool,
    /// It ends as soon as it is called.
    pub hurries: bool,
    /// Number of the first ephemeral message of each kind that waits for it; 0 for none.
    pub ephemeral: PerKind<u64>,
    pub due: u32,
    pub filed: u32,
    number: u32,
}

/// What is left after a step of the pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// More work; others run first.
    More,
    /// Those who were woken must run first.
    Full,
    Idle,
}

thread_local! {
    /// The shard of this thread, for each hub (there is one, but in tests).
    static SHARDS: RefCell<Vec<(u64, Weak<Shard>)>> = const { RefCell::new(Vec::new()) };
}

impl Shard {
    /// The one of this thread.
    pub fn here(hub: &Arc<Hub>) -> Arc<Shard> {
        let found = SHARDS.with_borrow(|shards| {
            shards.iter().find(|(of, _)| *of == hub.number()).and_then(|(_, shard)| shard.upgrade())
        });
        found.unwrap_or_else(|| {
            let shard = hub.add_shard();
            SHARDS.with_borrow_mut(|shards| {
                shards.retain(|(_, shard)| shard.strong_count() > 0);
                shards.push((hub.number(), Arc::downgrade(&shard)));
            });
            shard
        })
    }

    /// Begins at the end of the log.
    pub fn new(head: i64) -> Shard {
        let state = State {
            subscribers: Slab::new(),
            index: Index::default(),
            accounts: HashMap::new(),
            queue: VecDeque::new(),
            due: VecDeque::new(),
            wheel: Wheel::new(0),
            head,
            woken: 0,
            full: false,
            now: 0,
            pumped: false,
        };
        Shard { news: Notify::new(), state: Mutex::new(state) }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Reports something new for these accounts, and where the log ends now.
    pub fn report(&self, scopes: &[Scope], head: Option<i64>) {
        let mut state = self.state.lock();
        state.head = head.unwrap_or(state.head);
        let mut queued = false;
        for scope in scopes {
            queued |= state.enqueue(*scope);
        }
        drop(state);
        if queued {
            self.news.notify_one();
        }
    }

    /// Wakes the connections of the accounts whose keys have changed, some at a time. `seq` grows
    /// with the changes of an account's keys.
    pub fn recheck_keys(&self, seq: impl Fn(Scope) -> i64) {
        let mut state = self.state.lock();
        let State { subscribers, index, accounts, due, now, .. } = &mut *state;
        for (scope, account) in accounts {
            let seq = seq(*scope);
            if std::mem::replace(&mut account.keys_seq, seq) == seq {
                continue;
            }
            for key in index.under(index::everyone(*scope)) {
                let key = key as usize;
                // One that is to close keeps its tick.
                if let Some(subscriber) = subscribers.get_mut(key).filter(|one| !one.called) {
                    subscriber.due = *now;
                    due.push_back(key);
                }
            }
        }
        let has_work = !state.due.is_empty();
        drop(state);
        if has_work {
            self.news.notify_one();
        }
    }

    /// Closes every connection, each at a tick of its own within the window.
    pub fn drain(&self, window: Duration, mut chance: impl FnMut() -> u64) {
        let mut state = self.state.lock();
        let span = u64::from(ticks(window));
        let keys: Vec<usize> = state.subscribers.iter().map(|(key, _)| key).collect();
        for key in keys {
            let due = state.now + u32::try_from(chance() % span).unwrap_or(0);
            let now = state.now;
            let subscriber = &mut state.subscribers[key];
            subscriber.called = true;
            if subscriber.hurries {
                subscriber.due = now;
                state.wake(key);
            } else {
                state.file(key, due);
            }
        }
    }

    /// The farthest that a connection which is not parked is behind the log.
    pub fn lag(&self, head: i64) -> i64 {
        let state = self.state.lock();
        let moving = state.subscribers.iter().filter(|(_, subscriber)| !subscriber.parked);
        moving.map(|(_, subscriber)| head - subscriber.cursor).max().unwrap_or(0)
    }

    /// One slice of work: connections whose tick has come, then the next account.
    fn step(&self, ring: &Ring, ephemeral: &EphemeralBuffers) -> Step {
        let mut state = self.state.lock();
        if state.woken >= WINDOW {
            state.full = true;
            return Step::Full;
        }
        state.wake_due();
        if let Some(scope) = state.queue.pop_front()
            && state.work(scope, ring, ephemeral)
        {
            state.queue.push_back(scope);
        }
        if state.queue.is_empty() && state.due.is_empty() { Step::Idle } else { Step::More }
    }

    fn tick(&self, now: u32) {
        let mut state = self.state.lock();
        state.now = now;
        // Woken connections that cannot run must not stop the others for ever.
        (state.woken, state.full) = (0, false);
        for key in state.wheel.turn(now) {
            // The index may belong to another connection by now.
            let Some(subscriber) = state.subscribers.get_mut(key) else { continue };
            if subscriber.filed > now {
                continue;
            }
            if subscriber.due <= now {
                state.due.push_back(key);
            } else {
                let due = subscriber.due;
                state.file(key, due);
            }
        }
    }

    /// Whether no connection is left; then the pump ends.
    fn is_left(&self) -> bool {
        let mut state = self.state.lock();
        state.pumped = !state.subscribers.is_empty();
        !state.pumped
    }

    /// A woken connection has run: the pump may go on.
    pub fn ran(&self, state: &mut State, key: usize) {
        if std::mem::take(&mut state.subscribers[key].woken) {
            state.woken = state.woken.saturating_sub(1);
            if state.full && state.woken <= WINDOW / 2 {
                state.full = false;
                self.news.notify_one();
            }
        }
    }
}

impl State {
    /// Adds a connection.
    pub fn add(
        &mut self,
        interests: Arc<Interests>,
        cursor: i64,
        number: u32,
        (ring, ephemeral): (&Ring, &EphemeralBuffers),
    ) -> usize {
        let scope = interests.scope;
        let account = self.accounts.entry(scope).or_insert_with(|| Account {
            subscribers: 0,
            keys_seq: i64::MIN,
            by_parent: 0,
            seen: ring.head(),
            heard: ephemeral.newest(scope),
            queued: false,
            pass: None,
            events_next: true,
        });
        account.subscribers += 1;
        account.by_parent += usize::from(interests.name_parents());
        let key = self.subscribers.vacant_key();
        let places = self.index.add(key, &interests);
        self.subscribers.insert(Subscriber {
            waker: None,
            interests,
            places,
            cursor,
            parked: false,
            woken: false,
            called: false,
            hurries: false,
            ephemeral: [0; 2],
            due: u32::MAX,
            filed: u32::MAX,
            number,
        })
    }

    /// Notes the state of an account's keys for its first connection, which looks at them itself
    /// when it begins.
    pub fn note_keys(&mut self, scope: Scope, seq: i64) {
        if let Some(account) = self.accounts.get_mut(&scope) {
            account.keys_seq = if account.keys_seq == i64::MIN { seq } else { account.keys_seq };
        }
    }

    /// Whether the pump must be started.
    pub fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.pumped, true)
    }

    /// Another set of interests of the same account and mode.
    pub fn change(&mut self, key: usize, interests: Arc<Interests>) {
        let State { subscribers, index, accounts, .. } = self;
        let subscriber = &mut subscribers[key];
        let old = std::mem::replace(&mut subscriber.interests, interests.clone());
        let places = std::mem::take(&mut subscriber.places);
        index.remove(&old, &places, |subscriber, key, place| {
            subscribers[subscriber].places[key] = place
        });
        subscribers[key].places = index.add(key, &interests);
        if let Some(account) = accounts.get_mut(&interests.scope) {
            account.by_parent += usize::from(interests.name_parents());
            account.by_parent -= usize::from(old.name_parents());
        }
    }

    pub fn remove(&mut self, key: usize) {
        let State { subscribers, index, accounts, .. } = self;
        let gone = subscribers.remove(key);
        index.remove(&gone.interests, &gone.places, |subscriber, key, place| {
            subscribers[subscriber].places[key] = place;
        });
        let scope = gone.interests.scope;
        let Some(account) = accounts.get_mut(&scope) else { return };
        account.subscribers -= 1;
        account.by_parent -= usize::from(gone.interests.name_parents());
        if account.subscribers == 0 {
            accounts.remove(&scope);
        }
    }

    /// Up to where everything was tested for a parked connection.
    pub fn seen(&self, scope: Scope) -> i64 {
        match self.accounts.get(&scope) {
            Some(account) if account.queued => account.seen,
            Some(account) => account.seen.max(self.head),
            None => 0,
        }
    }

    /// A connection that stands at or behind this place may be parked: what lies after it has still
    /// to be tested.
    pub fn tested(&self, scope: Scope) -> i64 {
        let Some(account) = self.accounts.get(&scope) else { return 0 };
        match account.pass.as_ref().map(|pass| &pass.what) {
            Some(What::Event(entry)) => entry.event.seq,
            Some(What::Everything(upto)) => *upto,
            Some(What::Ephemeral { .. }) | None => account.seen,
        }
    }

    pub fn file(&mut self, key: usize, due: u32) {
        let filed = self.wheel.file(key, due);
        let subscriber = &mut self.subscribers[key];
        subscriber.due = due;
        subscriber.filed = filed;
    }

    fn enqueue(&mut self, scope: Scope) -> bool {
        let Some(account) = self.accounts.get_mut(&scope) else { return false };
        if !std::mem::replace(&mut account.queued, true) {
            self.queue.push_back(scope);
        }
        true
    }

    fn wake(&mut self, key: usize) {
        let Some(subscriber) = self.subscribers.get_mut(key) else { return };
        let Some(waker) = &subscriber.waker else { return };
        waker.wake_by_ref();
        self.woken += usize::from(!std::mem::replace(&mut subscriber.woken, true));
    }

    fn wake_due(&mut self) {
        for _ in 0..SLICE {
            let Some(key) = self.due.pop_front() else { return };
            if self.subscribers.get(key).is_some_and(|subscriber| subscriber.due <= self.now) {
                self.wake(key);
            }
        }
    }

    /// Works for an account for one slice; whether there may be more.
    fn work(&mut self, scope: Scope, ring: &Ring, ephemeral: &EphemeralBuffers) -> bool {
        let (mut woken, mut tests) = (0, 0);
        while woken < SLICE && tests < TESTS {
            let Some(account) = self.accounts.get_mut(&scope) else { return false };
            let next = account.pass.take();
            let next = next.or_else(|| account.next_pass(scope, &self.index, ring, ephemeral));
            let Some(mut pass) = next else {
                account.queued = false;
                return false;
            };
            tests += LOOKUP;
            while woken < SLICE
                && tests < TESTS
                && let Some(subscriber) = pass.subscribers.get(pass.next)
            {
                pass.next += 1;
                tests += 1;
                if self.test(scope, *subscriber as usize, &pass.what) {
                    self.wake(*subscriber as usize);
                    woken += 1;
                }
            }
            let Some(account) = self.accounts.get_mut(&scope) else { return false };
            match pass.next == pass.subscribers.len() {
                true => account.finish(&pass.what),
                false => account.pass = Some(pass),
            }
        }
        true
    }

    /// Whether a connection is to be woken. The index may belong to another one by now.
    fn test(&mut self, scope: Scope, key: usize, what: &What) -> bool {
        let seen = self.accounts.get(&scope).map_or(0, |account| account.seen);
        let Some(subscriber) = self.subscribers.get_mut(key) else { return false };
        let cursor = match what {
            What::Event(entry) => {
                let seq = entry.event.seq;
                if !subscriber.parked
                    || seq <= subscriber.cursor
                    || !subscriber.interests.wants(entry)
                {
                    return false;
                }
                seq - 1
            }
            // What its account has seen was tested for it, and may be gone from the log by now.
            What::Everything(_) if subscriber.parked && subscriber.interests.scope == scope => {
                subscriber.cursor.max(seen)
            }
            What::Everything(_) => return false,
            What::Ephemeral { kind, first, from, .. } => {
                return subscriber.note_ephemeral(scope, *kind, *first, from);
            }
        };
        subscriber.parked = false;
        subscriber.cursor = cursor;
        true
    }
}

impl Account {
    /// What is to be tested next, and against which connections.
    fn next_pass(
        &mut self,
        scope: Scope,
        index: &Index,
        ring: &Ring,
        ephemeral: &EphemeralBuffers,
    ) -> Option<Pass> {
        self.events_next = !self.events_next;
        let (events, messages) = (Account::next_event, Account::next_messages);
        let pass =
            match self.events_next {
                true => messages(self, scope, index, ephemeral)
                    .or_else(|| events(self, scope, index, ring)),
                false => events(self, scope, index, ring)
                    .or_else(|| messages(self, scope, index, ephemeral)),
            };
        let (what, subscribers) = pass?;
        Some(Pass { what, subscribers, next: 0 })
    }

    fn next_event(&mut self, scope: Scope, index: &Index, ring: &Ring) -> Option<(What, Vec<u32>)> {
        match ring.following(scope, self.seen) {
            Following::Nothing => None,
            Following::Entry(entry) => {
                let subscribers = index.candidates(&entry, self.by_parent > 0);
                Some((What::Event(entry), subscribers))
            }
            // The ring has dropped events of this account that were not tested: each connection
            // reads for itself.
            Following::Behind(head) => {
                Some((What::Everything(head), index.under(index::everyone(scope))))
            }
        }
    }

    fn next_messages(
        &mut self,
        scope: Scope,
        index: &Index,
        ephemeral: &EphemeralBuffers,
    ) -> Option<(What, Vec<u32>)> {
        Kind::ALL.into_iter().find_map(|kind| {
            let first = self.heard[kind as usize] + 1;
            let mut from = Vec::new();
            let extent = ephemeral.view(scope, kind, first, |_, one| from.push(one.from));
            if extent.newest < first {
                return None;
            }
            if extent.floor >= first {
                // Some were dropped: a connection that waits for the first of them must know.
                from.insert(0, None);
            }
            let subscribers = index.under(index::ephemeral(scope, kind));
            Some((What::Ephemeral { kind, first, from, newest: extent.newest }, subscribers))
        })
    }

    fn finish(&mut self, what: &What) {
        match what {
            What::Event(entry) => self.seen = entry.event.seq,
            What::Everything(upto) => self.seen = self.seen.max(*upto),
            What::Ephemeral { kind, newest, .. } => self.heard[*kind as usize] = *newest,
        }
    }
}

impl Subscriber {
    /// Notes the first message of another connection that waits for it. Returns whether none
    /// waited before.
    fn note_ephemeral(
        &mut self,
        scope: Scope,
        kind: Kind,
        first: u64,
        from: &[Option<u32>],
    ) -> bool {
        let waits = self.ephemeral[kind as usize] != 0;
        if waits || self.interests.scope != scope || !self.interests.wants_ephemeral(kind) {
            return false;
        }
        let foreign = from.iter().position(|sender| *sender != Some(self.number));
        let Some(foreign) = foreign else { return false };
        self.ephemeral[kind as usize] = first + foreign as u64;
        true
    }
}

/// Serves a shard until it has had no connection for a while.
pub async fn pump(hub: Arc<Hub>, shard: Arc<Shard>) {
    let heartbeat = hub.store.0.watchdog().watch("live");
    let began = Instant::now();
    let first = shard.lock().now;
    let mut clock = interval_at(began + TICK, TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        heartbeat.beat();
        let step = shard.step(&hub.ring, &hub.ephemeral);
        if !next_turn(&shard, step, &mut clock, &heartbeat).await {
            continue;
        }
        let passed = began.elapsed().as_millis() / TICK.as_millis();
        shard.tick(first + u32::try_from(passed).unwrap_or(u32::MAX));
        if shard.is_left() {
            return;
        }
    }
}

/// Waits until there is work; whether the clock has ticked.
async fn next_turn(shard: &Shard, step: Step, clock: &mut Interval, heartbeat: &Heartbeat) -> bool {
    if step == Step::More {
        return tokio::select! {
            biased;
            _ = clock.tick() => true,
            () = yield_now() => false,
        };
    }
    heartbeat.rest();
    tokio::select! {
        () = shard.news.notified() => false,
        _ = clock.tick() => true,
    }
}

#[cfg(test)]
mod tests;
