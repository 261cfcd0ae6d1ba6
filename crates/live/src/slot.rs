//! A connection's slot in the shard of its thread: how it is parked and woken.

use crate::hub::Hub;
use crate::interest::Interests;
use crate::kind::PerKind;
use crate::shard::{Shard, pump};
use std::sync::Arc;
use std::task::Waker;

/// The slot; given back when dropped.
#[derive(Debug)]
pub struct Slot {
    shard: Arc<Shard>,
    /// Index in the shard. Both numbers are small, since every connection has them.
    key: u32,
    number: u32,
}

/// What a connection learns when it is woken.
#[derive(Clone, Copy, Debug)]
pub struct Wakeup {
    pub cursor: i64,
    /// Number of the first ephemeral message of each kind that waits for it; 0 for none.
    pub ephemeral: PerKind<u64>,
    pub now: u32,
    /// The tick it asked for has come.
    pub due: bool,
    /// The server shuts down, and this connection is to close now.
    pub leaving: bool,
}

impl Slot {
    pub fn take(hub: &Arc<Hub>, interests: Arc<Interests>, cursor: i64) -> Slot {
        let number = hub.next_connection();
        let shard = Shard::here(hub);
        let mut state = shard.lock();
        let scope = interests.scope;
        let key = state.add(interests, cursor, number, (&hub.ring, &hub.ephemeral));
        state.note_keys(scope, hub.keys_seq(scope));
        state.subscribers[key].called = hub.is_leaving();
        if state.begins() {
            tokio::spawn(pump(hub.clone(), shard.clone()));
        }
        drop(state);
        let key = u32::try_from(key).expect("there are fewer connections than that");
        Slot { shard, key, number }
    }

    /// A number that no other open connection has.
    pub fn number(&self) -> u32 {
        self.number
    }

    fn key(&self) -> usize {
        self.key as usize
    }

    /// What happened since the last call. Keeps the waker for the next event.
    pub fn wakeup(&self, waker: &Waker) -> Wakeup {
        let mut state = self.shard.lock();
        self.shard.ran(&mut state, self.key());
        let (now, scope) = (state.now, state.subscribers[self.key()].interests.scope);
        let seen = if state.subscribers[self.key()].parked { state.seen(scope) } else { 0 };
        let subscriber = &mut state.subscribers[self.key()];
        if !subscriber.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            subscriber.waker = Some(waker.clone());
        }
        if subscriber.parked {
            // No event up to here is for this connection, so it need not read them again. The ring
            // may not have them any more.
            subscriber.cursor = subscriber.cursor.max(seen);
        }
        let due = subscriber.due <= now;
        if due {
            subscriber.due = u32::MAX;
        }
        subscriber.filed = if due { u32::MAX } else { subscriber.filed };
        let ephemeral = std::mem::take(&mut subscriber.ephemeral);
        Wakeup { cursor: subscriber.cursor, ephemeral, now, due, leaving: due && subscriber.called }
    }

    pub fn now(&self) -> u32 {
        self.shard.lock().now
    }

    /// Parks the connection; false if an event came in the meantime.
    pub fn park(&self, cursor: i64) -> bool {
        let mut state = self.shard.lock();
        let parked = cursor >= state.tested(state.subscribers[self.key()].interests.scope);
        let subscriber = &mut state.subscribers[self.key()];
        subscriber.cursor = cursor;
        subscriber.parked = parked;
        parked
    }

    /// The connection reads by itself from here on, until it is parked again.
    pub fn resume(&self, cursor: i64) {
        let mut state = self.shard.lock();
        let subscriber = &mut state.subscribers[self.key()];
        subscriber.cursor = cursor;
        subscriber.parked = false;
    }

    /// Wakes the connection at a tick, if nothing wakes it before. One that is to close keeps the
    /// tick it was given for that.
    pub fn wake_at(&self, due: u32) {
        let mut state = self.shard.lock();
        let (now, subscriber) = (state.now, &state.subscribers[self.key()]);
        // A connection that was opened after the others were told to close has no tick yet.
        let due = if subscriber.called { due.min(now + 1) } else { due };
        if due < subscriber.due && !(subscriber.called && subscriber.due != u32::MAX) {
            state.file(self.key(), due);
        }
    }

    /// The connection closes at once when the server shuts down.
    pub fn hurries(&self) {
        self.shard.lock().subscribers[self.key()].hurries = true;
    }

    pub fn change(&self, interests: Arc<Interests>) {
        self.shard.lock().change(self.key(), interests);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.shard.lock();
        // The pump does not wait for a connection that is gone.
        self.shard.ran(&mut state, self.key());
        state.remove(self.key());
    }
}
