//! Ephemeral messages: sent to the connections that are there and have room, kept nowhere. Each
//! account and mode has a buffer of its own for each kind of message, so that no account's messages
//! push out another's. A connection that was too slow is informed which kind it
//! missed.

use crate::entry::Ephemeral;
use crate::kind::{Kind, PerKind};
use model::Scope;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use wire::{Budget, Share};

/// Messages of one kind kept for one account and mode. A connection takes them within milliseconds;
/// one that is more than this behind has missed some.
pub const KEPT: usize = 1024;
/// Memory for all buffers. One account gets half of it at most, and less the more accounts there
/// are.
pub const MAX_BYTES: usize = 16 << 20;
/// Ticks after which a message is dropped: ten seconds. A connection that has not taken
/// it by then takes nothing.
const MAX_AGE: u64 = 20;

#[derive(Debug)]
pub struct EphemeralBuffers {
    budget: Arc<Budget<i64>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    buffers: HashMap<Scope, PerKind<Buffer>>,
    /// No message of a buffer that was removed had a higher number: new buffers begin here.
    highest: u64,
}

#[derive(Debug, Default)]
struct Buffer {
    messages: VecDeque<(Arc<Ephemeral>, u64)>,
    /// Number of the newest message, counted from 1.
    newest: u64,
    share: Option<Share<i64>>,
}

/// What a buffer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Messages up to this number are gone.
    pub floor: u64,
    pub newest: u64,
}

impl Default for EphemeralBuffers {
    fn default() -> EphemeralBuffers {
        EphemeralBuffers::new(MAX_BYTES)
    }
}

impl EphemeralBuffers {
    fn new(max_bytes: usize) -> EphemeralBuffers {
        EphemeralBuffers { budget: Budget::new(max_bytes), state: Mutex::default() }
    }

    /// Numbers of the newest messages of an account and mode, for a connection that begins there.
    /// Its buffers exist from here on, for as long as the account has connections: were they made
    /// for the first message, they would begin behind whatever was swept in the meantime, and the
    /// connection would seem to have missed the numbers in between.
    pub fn newest(&self, scope: Scope) -> PerKind<u64> {
        let mut state = self.state.lock();
        let buffers = state.buffers_of(scope);
        Kind::ALL.map(|kind| buffers[kind as usize].newest)
    }

    /// Takes a message at a tick of the hub's clock. The oldest of the same kind and account make
    /// room for it; where even that is not enough, it is dropped itself.
    pub fn push(&self, ephemeral: Ephemeral, now: u64) {
        let (scope, kind, size) = (ephemeral.scope, ephemeral.kind, ephemeral.size_bytes());
        let mut state = self.state.lock();
        let buffer = &mut state.buffers_of(scope)[kind as usize];
        buffer.newest += 1;
        while buffer.messages.len() >= KEPT {
            buffer.drop_oldest();
        }
        while !buffer.grow(&self.budget, scope.account_number(), size) {
            if buffer.messages.is_empty() {
                return;
            }
            buffer.drop_oldest();
        }
        buffer.messages.push_back((Arc::new(ephemeral), now));
    }

    /// Shows the messages of a kind from a number on.
    pub fn view(
        &self,
        scope: Scope,
        kind: Kind,
        from: u64,
        mut show: impl FnMut(u64, &Arc<Ephemeral>),
    ) -> Extent {
        let state = self.state.lock();
        let Some(buffers) = state.buffers.get(&scope) else { return Extent::default() };
        let buffer = &buffers[kind as usize];
        let floor = buffer.newest - buffer.messages.len() as u64;
        let skip = usize::try_from(from.saturating_sub(floor + 1)).unwrap_or(usize::MAX);
        for (place, (ephemeral, _)) in buffer.messages.iter().enumerate().skip(skip) {
            show(floor + place as u64 + 1, ephemeral);
        }
        Extent { floor, newest: buffer.newest }
    }

    /// Drops what is too old, and the buffers of accounts that have no connection.
    pub fn sweep(&self, now: u64, is_here: impl Fn(i64) -> bool) {
        let mut state = self.state.lock();
        let mut highest = state.highest;
        state.buffers.retain(|scope, buffers| {
            for buffer in &mut *buffers {
                while buffer.messages.front().is_some_and(|(_, at)| at + MAX_AGE <= now) {
                    buffer.drop_oldest();
                }
            }
            let kept = is_here(scope.account_number());
            if !kept {
                highest = buffers.iter().map(|buffer| buffer.newest).fold(highest, u64::max);
            }
            kept
        });
        state.highest = highest;
    }
}

impl State {
    fn buffers_of(&mut self, scope: Scope) -> &mut PerKind<Buffer> {
        let newest = self.highest;
        let new = || Buffer { newest, ..Buffer::default() };
        self.buffers.entry(scope).or_insert_with(|| [new(), new()])
    }
}

impl Buffer {
    fn grow(&mut self, budget: &Arc<Budget<i64>>, account: i64, size: usize) -> bool {
        match &mut self.share {
            Some(share) => share.grow(size),
            None => {
                self.share = budget.take(account, size);
                self.share.is_some()
            }
        }
    }

    fn drop_oldest(&mut self) {
        let Some((oldest, _)) = self.messages.pop_front() else { return };
        if let Some(share) = &mut self.share {
            share.shrink(oldest.size_bytes());
        }
        if self.messages.is_empty() {
            self.share = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::Typing;

    fn message(scope: i64, kind: Kind, bytes: usize) -> Ephemeral {
        Ephemeral::new(Scope(scope), kind, None, "x".repeat(bytes))
    }

    fn seen(buffers: &EphemeralBuffers, scope: i64, kind: Kind, from: u64) -> (Vec<u64>, Extent) {
        let mut numbers = Vec::new();
        let extent = buffers.view(Scope(scope), kind, from, |number, _| numbers.push(number));
        (numbers, extent)
    }

    #[test]
    fn the_newest_messages_are_returned_and_missed_ones_are_counted() {
        let buffers = EphemeralBuffers::default();
        let say = || buffers.push(message(2, KIND, 10), 0);
        assert_eq!(seen(&buffers, 2, KIND, 1), (vec![], Extent::default()));
        say();
        say();
        let extent = Extent { floor: 0, newest: 2 };
        assert_eq!(seen(&buffers, 2, KIND, 1), (vec![1, 2], extent));
        assert_eq!(seen(&buffers, 2, KIND, 2), (vec![2], extent));
        assert_eq!(seen(&buffers, 2, KIND, 3), (vec![], extent));
        (0..KEPT).for_each(|_| say());
        let (numbers, extent) = seen(&buffers, 2, KIND, 1);
        assert_eq!((numbers.len(), numbers[0]), (KEPT, 3));
        assert_eq!(extent, Extent { floor: 2, newest: KEPT as u64 + 2 });
    }

    #[test]
    fn a_flood_evicts_no_message_of_another_account_or_kind() {
        let buffers = EphemeralBuffers::new(64 << 10);
        buffers.push(message(2, KIND, 10), 0);
        buffers.push(message(4, Kind::Online, 10), 0);
        for _ in 0..10 * KEPT {
            buffers.push(message(4, KIND, 500), 0);
        }
        assert_eq!(seen(&buffers, 2, KIND, 1).0, [1]);
        assert_eq!(seen(&buffers, 4, Kind::Online, 1).0, [1]);
        let (flood, extent) = seen(&buffers, 4, KIND, 1);
        assert!((1..40).contains(&flood.len()), "{} in a few kilobytes", flood.len());
        assert_eq!(extent.newest, 10 * KEPT as u64);
        assert!(buffers.budget.held() <= 64 << 10);
        // Another account still has room.
        buffers.push(message(6, KIND, 500), 0);
        assert_eq!(seen(&buffers, 6, KIND, 1).0, [1]);
    }

    #[test]
    fn a_message_over_the_limit_is_dropped_and_counted() {
        let buffers = EphemeralBuffers::new(1000);
        buffers.push(message(2, KIND, 10_000), 0);
        let extent = Extent { floor: 1, newest: 1 };
        assert_eq!(seen(&buffers, 2, KIND, 1), (vec![], extent));
        assert_eq!(buffers.budget.held(), 0);
    }

    #[test]
    fn old_messages_and_buffers_of_absent_accounts_go_and_numbers_never_repeat() {
        let buffers = EphemeralBuffers::default();
        for _ in 0..3 {
            buffers.push(message(2, KIND, 10), 5);
        }
        buffers.sweep(MAX_AGE + 4, |_| true);
        assert_eq!(seen(&buffers, 2, KIND, 1).0, [1, 2, 3]);
        buffers.sweep(MAX_AGE + 5, |_| true);
        let extent = Extent { floor: 3, newest: 3 };
        assert_eq!(seen(&buffers, 2, KIND, 1), (vec![], extent));
        assert_eq!((buffers.budget.held(), buffers.newest(Scope(2))), (0, [0, 3]));
        buffers.sweep(MAX_AGE + 5, |account| account != 1);
        assert!(buffers.state.lock().buffers.is_empty());
        assert_eq!(buffers.newest(Scope(2)), [3, 3]);
        buffers.push(message(2, KIND, 10), 50);
        assert_eq!(seen(&buffers, 2, KIND, 4).0, [4]);
    }

    #[test]
    fn a_connection_misses_nothing_when_the_buffers_of_another_account_are_dropped() {
        let buffers = EphemeralBuffers::default();
        assert_eq!(buffers.newest(Scope(2)), [0, 0]);
        for _ in 0..5 {
            buffers.push(message(4, KIND, 10), 0);
        }
        buffers.sweep(1, |account| account == 1);
        buffers.push(message(2, KIND, 10), 1);
        let extent = Extent { floor: 0, newest: 1 };
        assert_eq!(seen(&buffers, 2, KIND, 1), (vec![1], extent));
        // One that comes back never gets a number twice.
        assert_eq!(buffers.newest(Scope(4)), [5, 5]);
    }
}
