//! The connections of one thread. They lie still until the pump, one task per thread, finds
//! something in the log that one of them wants, or its time has come.

use crate::hub::Hub;
use crate::interest::Interests;
use crate::ring::Reach;
use crate::wheel::Wheel;
use model::Scope;
use parking_lot::Mutex;
use slab::Slab;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// How finely connections see time.
pub const TICK: Duration = Duration::from_millis(500);

/// A number of ticks; at least one.
pub const fn ticks(time: Duration) -> u32 {
    let ticks = time.as_millis().div_ceil(TICK.as_millis());
    if ticks == 0 { 1 } else { ticks as u32 }
}

#[derive(Debug)]
pub struct Shard {
    /// Something was committed, or said in passing.
    pub news: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seats: Slab<Occupant>,
    /// Who belongs to which account and mode: an event concerns one of them alone.
    scopes: HashMap<Scope, Vec<usize>>,
    wheel: Wheel,
    /// Events up to here were held against every interest.
    seen: i64,
    passing_seen: u64,
    now: u32,
    /// Whether the pump runs.
    pumped: bool,
}

/// What the shard knows of a connection.
#[derive(Debug)]
struct Occupant {
    waker: Option<Waker>,
    interests: Arc<Interests>,
    /// Where the connection stands. While it lies still, everything it wants up to the shard's
    /// `seen` was sent, wherever this is.
    cursor: i64,
    still: bool,
    /// Something was said in passing.
    passing: bool,
    /// The connection is to end.
    called: bool,
    /// It ends as soon as it is called.
    hurries: bool,
    due: u32,
    filed: u32,
    place: usize,
    number: u64,
}

/// What a connection learns when it is woken.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub cursor: i64,
    pub passing: bool,
    pub now: u32,
    /// Its time has come.
    pub due: bool,
    /// The server goes away, and it is this connection's turn to be told.
    pub leaving: bool,
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

    pub fn new(hub: &Hub) -> Shard {
        let (seen, passing_seen) = (hub.ring.head(), hub.passing.newest());
        let state = State {
            seats: Slab::new(),
            scopes: HashMap::new(),
            wheel: Wheel::new(0),
            seen,
            passing_seen,
            now: 0,
            pumped: false,
        };
        Shard { news: Notify::new(), state: Mutex::new(state) }
    }

    /// Calls every connection to its end, each at a moment of its own within the window.
    pub fn drain(&self, window: Duration, mut chance: impl FnMut() -> u64) {
        let mut state = self.state.lock();
        let span = u64::from(ticks(window));
        let keys: Vec<usize> = state.seats.iter().map(|(key, _)| key).collect();
        for key in keys {
            let due = state.now + u32::try_from(chance() % span).unwrap_or(0);
            let now = state.now;
            let seat = &mut state.seats[key];
            seat.called = true;
            if seat.hurries {
                seat.due = now;
                seat.wake();
            } else {
                state.file(key, due);
            }
        }
    }

    /// The farthest that a connection which does not lie still is behind the log.
    pub fn lag(&self, head: i64) -> i64 {
        let state = self.state.lock();
        let moving = state.seats.iter().filter(|(_, seat)| !seat.still);
        moving.map(|(_, seat)| head - seat.cursor).max().unwrap_or(0)
    }

    /// Holds new events against every interest and wakes whom they concern.
    fn tell(&self, hub: &Hub) {
        let mut news = Vec::new();
        let mut state = self.state.lock();
        let reach = hub.ring.view(state.seen, |entry| {
            news.push(entry.clone());
            true
        });
        if reach == Reach::Behind {
            // The ring turned faster than this thread: everyone looks for themselves.
            state.seen = hub.ring.head();
            state.seats.iter_mut().for_each(|(_, seat)| seat.rouse(None));
        } else if let Reach::Head(head) = reach {
            state.seen = head;
        }
        for entry in &news {
            let State { seats, scopes, .. } = &mut *state;
            for key in scopes.get(&entry.event.scope).into_iter().flatten() {
                let seat = &mut seats[*key];
                let seq = entry.event.seq;
                if seat.still && seq > seat.cursor && seat.interests.wants(entry) {
                    seat.rouse(Some(seq - 1));
                }
            }
        }
        let mut passed = Vec::new();
        state.passing_seen =
            hub.passing.view(state.passing_seen, |_, one| passed.push(one.clone()));
        for one in &passed {
            let State { seats, scopes, .. } = &mut *state;
            for key in scopes.get(&one.scope).into_iter().flatten() {
                let seat = &mut seats[*key];
                if one.from != Some(seat.number) && seat.interests.wants_passing(one) {
                    seat.passing = true;
                    seat.wake();
                }
            }
        }
    }

    fn tick(&self, now: u32) {
        let mut state = self.state.lock();
        state.now = now;
        for key in state.wheel.turn(now) {
            // A place may belong to somebody else by now.
            let Some(seat) = state.seats.get_mut(key) else { continue };
            if seat.filed > now {
                continue;
            }
            if seat.due <= now {
                seat.wake();
            } else {
                let due = seat.due;
                state.file(key, due);
            }
        }
    }

    /// Whether there is nobody left to serve; then the pump is no longer counted on.
    fn is_left(&self) -> bool {
        let mut state = self.state.lock();
        state.pumped = !state.seats.is_empty();
        !state.pumped
    }
}

impl State {
    fn file(&mut self, key: usize, due: u32) {
        let filed = self.wheel.file(key, due);
        let seat = &mut self.seats[key];
        seat.due = due;
        seat.filed = filed;
    }
}

impl Occupant {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Ends the stillness; `cursor` is where there is something to be sent from.
    fn rouse(&mut self, cursor: Option<i64>) {
        if self.still {
            self.still = false;
            self.cursor = cursor.unwrap_or(self.cursor);
            self.wake();
        }
    }
}

/// Serves a shard until its last connection is gone for a while.
async fn pump(hub: Arc<Hub>, shard: Arc<Shard>) {
    let began = Instant::now();
    let first = shard.state.lock().now;
    let mut clock = interval_at(began + TICK, TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = shard.news.notified() => shard.tell(&hub),
            _ = clock.tick() => {
                let passed = began.elapsed().as_millis() / TICK.as_millis();
                shard.tick(first + u32::try_from(passed).unwrap_or(u32::MAX));
                if shard.is_left() {
                    return;
                }
            }
        }
    }
}

/// A connection's place in its shard; given up when dropped.
#[derive(Debug)]
pub struct Seat {
    shard: Arc<Shard>,
    key: usize,
}

impl Seat {
    pub fn take(hub: &Arc<Hub>, interests: Arc<Interests>, cursor: i64, number: u64) -> Seat {
        let shard = Shard::here(hub);
        let mut state = shard.state.lock();
        let scope = interests.scope;
        let place = state.scopes.get(&scope).map_or(0, Vec::len);
        let key = state.seats.insert(Occupant {
            waker: None,
            interests,
            cursor,
            still: false,
            passing: false,
            called: hub.is_leaving(),
            hurries: false,
            due: u32::MAX,
            filed: u32::MAX,
            place,
            number,
        });
        state.scopes.entry(scope).or_default().push(key);
        if !std::mem::replace(&mut state.pumped, true) {
            // What came while nobody was here concerned nobody.
            state.seen = hub.ring.head();
            state.passing_seen = hub.passing.newest();
            tokio::spawn(pump(hub.clone(), shard.clone()));
        }
        drop(state);
        Seat { shard, key }
    }

    /// What happened since the last time, and who is to be woken next time.
    pub fn turn(&self, waker: &Waker) -> Turn {
        let mut state = self.shard.state.lock();
        let (now, seen) = (state.now, state.seen);
        let seat = &mut state.seats[self.key];
        if !seat.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            seat.waker = Some(waker.clone());
        }
        if seat.still {
            // Nothing up to here is for this one: it has no need to look again, when the ring may
            // have turned meanwhile.
            seat.cursor = seat.cursor.max(seen);
        }
        let due = seat.due <= now;
        if due {
            seat.due = u32::MAX;
        }
        seat.filed = if due { u32::MAX } else { seat.filed };
        let passing = std::mem::take(&mut seat.passing);
        Turn { cursor: seat.cursor, passing, now, due, leaving: due && seat.called }
    }

    pub fn now(&self) -> u32 {
        self.shard.state.lock().now
    }

    /// Lies still from here on; false if something came meanwhile.
    pub fn rest(&self, cursor: i64) -> bool {
        let mut state = self.shard.state.lock();
        let still = cursor >= state.seen;
        let seat = &mut state.seats[self.key];
        seat.cursor = cursor;
        seat.still = still;
        still
    }

    /// Goes on by itself from here on, until it next lies still.
    pub fn moves(&self, cursor: i64) {
        let mut state = self.shard.state.lock();
        let seat = &mut state.seats[self.key];
        seat.cursor = cursor;
        seat.still = false;
    }

    /// Wakes the connection at a tick, if nothing does before. One that was called to its end keeps
    /// the moment it was given.
    pub fn wake_at(&self, due: u32) {
        let mut state = self.shard.state.lock();
        let (now, seat) = (state.now, &state.seats[self.key]);
        // Who took a seat when the others had been called has no moment yet.
        let due = if seat.called { due.min(now + 1) } else { due };
        if due < seat.due && !(seat.called && seat.due != u32::MAX) {
            state.file(self.key, due);
        }
    }

    /// The connection wants no time for its end.
    pub fn hurries(&self) {
        self.shard.state.lock().seats[self.key].hurries = true;
    }

    pub fn change(&self, interests: Arc<Interests>) {
        self.shard.state.lock().seats[self.key].interests = interests;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.shard.state.lock();
        let gone = state.seats.remove(self.key);
        let State { seats, scopes, .. } = &mut *state;
        let scope = gone.interests.scope;
        let Some(keys) = scopes.get_mut(&scope) else { return };
        keys.swap_remove(gone.place);
        match keys.get(gone.place) {
            Some(moved) => seats[*moved].place = gone.place,
            None if keys.is_empty() => drop(scopes.remove(&scope)),
            None => {}
        }
    }
}
