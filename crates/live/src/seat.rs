//! A connection's place in the shard of its thread: how it is parked and woken.

use crate::hub::Hub;
use crate::interest::Interests;
use crate::passing::PerKind;
use crate::shard::{Shard, pump};
use std::sync::Arc;
use std::task::Waker;

/// The place; given up when dropped.
#[derive(Debug)]
pub struct Seat {
    shard: Arc<Shard>,
    /// Place in the shard. Both numbers are small, since every connection has them.
    key: u32,
    number: u32,
}

/// What a connection learns when it is woken.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub cursor: i64,
    /// Number of the first ephemeral message of each kind that waits for it; 0 for none.
    pub passing: PerKind<u64>,
    pub now: u32,
    /// Its time has come.
    pub due: bool,
    /// The server goes away, and it is this connection's turn to be told.
    pub leaving: bool,
}

impl Seat {
    pub fn take(hub: &Arc<Hub>, interests: Arc<Interests>, cursor: i64) -> Seat {
        let number = hub.next_connection();
        let shard = Shard::here(hub);
        let mut state = shard.lock();
        let key = state.add(interests, cursor, number, (&hub.ring, &hub.passing));
        state.seats[key].called = hub.is_leaving();
        if state.begins() {
            tokio::spawn(pump(hub.clone(), shard.clone()));
        }
        drop(state);
        let key = u32::try_from(key).expect("there are fewer connections than that");
        Seat { shard, key, number }
    }

    /// What tells the connection from others that are open at the same time.
    pub fn number(&self) -> u32 {
        self.number
    }

    fn key(&self) -> usize {
        self.key as usize
    }

    /// What happened since the last time, and who is to be woken next time.
    pub fn turn(&self, waker: &Waker) -> Turn {
        let mut state = self.shard.lock();
        self.shard.ran(&mut state, self.key());
        let (now, scope) = (state.now, state.seats[self.key()].interests.scope);
        let seen = if state.seats[self.key()].parked { state.seen(scope) } else { 0 };
        let seat = &mut state.seats[self.key()];
        if !seat.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            seat.waker = Some(waker.clone());
        }
        if seat.parked {
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
        self.shard.lock().now
    }

    /// Parks the connection; false if something came meanwhile.
    pub fn rest(&self, cursor: i64) -> bool {
        let mut state = self.shard.lock();
        let parked = cursor >= state.tested(state.seats[self.key()].interests.scope);
        let seat = &mut state.seats[self.key()];
        seat.cursor = cursor;
        seat.parked = parked;
        parked
    }

    /// Goes on by itself from here on, until it is next parked.
    pub fn moves(&self, cursor: i64) {
        let mut state = self.shard.lock();
        let seat = &mut state.seats[self.key()];
        seat.cursor = cursor;
        seat.parked = false;
    }

    /// Wakes the connection at a tick, if nothing does before. One that was called to its end keeps
    /// the moment it was given.
    pub fn wake_at(&self, due: u32) {
        let mut state = self.shard.lock();
        let (now, seat) = (state.now, &state.seats[self.key()]);
        // Who took a seat when the others had been called has no moment yet.
        let due = if seat.called { due.min(now + 1) } else { due };
        if due < seat.due && !(seat.called && seat.due != u32::MAX) {
            state.file(self.key(), due);
        }
    }

    /// The connection wants no time for its end.
    pub fn hurries(&self) {
        self.shard.lock().seats[self.key()].hurries = true;
    }

    pub fn change(&self, interests: Arc<Interests>) {
        self.shard.lock().change(self.key(), interests);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.shard.lock();
        // The pump does not wait for a connection that is gone.
        self.shard.ran(&mut state, self.key());
        state.remove(self.key());
    }
}
