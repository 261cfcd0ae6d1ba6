//! The newest part of the log in memory: who follows closely never asks the store.

use crate::entry::Entry;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries kept at most, however small.
const MAX_ENTRIES: usize = 65_536;

#[derive(Debug)]
pub struct Ring {
    max_bytes: usize,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// Every event after this one that may leave the service is here, up to `head`.
    floor: i64,
    head: i64,
}

/// How far a look into the ring came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything up to here was seen, and there is nothing behind it.
    Head(i64),
    /// Everything up to here was seen; then the viewer had enough.
    Until(i64),
    /// What follows the place is no longer here.
    Behind,
}

impl Ring {
    /// Begins behind `position`.
    pub fn new(max_bytes: usize, position: i64) -> Ring {
        let state = State { entries: VecDeque::new(), bytes: 0, floor: position, head: position };
        Ring { max_bytes, state: RwLock::new(state) }
    }

    pub fn head(&self) -> i64 {
        self.state.read().head
    }

    /// Takes what follows in the log. `head` is the newest event that was looked at, shown or not.
    pub fn push(&self, entries: Vec<Arc<Entry>>, head: i64) {
        let mut state = self.state.write();
        for entry in entries {
            state.bytes += entry.size_bytes();
            state.entries.push_back(entry);
        }
        state.head = head;
        while state.bytes > self.max_bytes || state.entries.len() > MAX_ENTRIES {
            let Some(oldest) = state.entries.pop_front() else { break };
            state.bytes -= oldest.size_bytes();
            state.floor = oldest.event.seq;
        }
    }

    /// Forgets what it holds: an event was changed after the fact.
    pub fn clear(&self) {
        let mut state = self.state.write();
        state.entries.clear();
        state.bytes = 0;
        state.floor = state.head;
    }

    /// Claims nothing up to a place, nor to its own head: some of that may be missing.
    pub fn forget(&self, position: i64) {
        let mut state = self.state.write();
        if position > state.head {
            (state.floor, state.head) = (position, position);
            state.entries.clear();
            state.bytes = 0;
        }
    }

    /// Begins anew behind a place that lies ahead.
    pub fn restart(&self, position: i64) {
        let mut state = self.state.write();
        state.entries.clear();
        state.bytes = 0;
        (state.floor, state.head) = (position, position);
    }

    /// Shows what follows a place, oldest first, until the viewer has enough (says false: and was
    /// shown one too many).
    pub fn view(&self, after: i64, mut show: impl FnMut(&Arc<Entry>) -> bool) -> Reach {
        let state = self.state.read();
        if after < state.floor {
            return Reach::Behind;
        }
        let first = match state.entries.back() {
            // The usual case: one who follows closely misses the last few.
            Some(last) if last.event.seq <= after => state.entries.len(),
            _ => state.entries.partition_point(|entry| entry.event.seq <= after),
        };
        let mut seen = after;
        for entry in state.entries.range(first..) {
            if !show(entry) {
                return Reach::Until(seen);
            }
            seen = entry.event.seq;
        }
        Reach::Head(state.head.max(after))
    }
}
