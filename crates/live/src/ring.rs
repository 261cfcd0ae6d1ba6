//! The newest part of the log in memory, apart for each account and mode: a connection that follows
//! closely never asks the store. The memory is shared fairly: when it is full, events that nobody
//! is likely to resume from go first, then the oldest event of the account that has the most. So an
//! account that writes much pushes its own events out, and nobody else's.

use crate::entry::Entry;
use model::Scope;
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Entries kept at most, however small.
const MAX_ENTRIES: usize = 65_536;
/// What the part of an account takes beside its entries, so that many small parts count, too.
const PART_BYTES: usize = 256;
/// Ticks after which an event may go whichever account it belongs to: five minutes. Clients that
/// were cut off come back within seconds, and quiet accounts shall not keep the memory from busy
/// ones.
const STALE: u64 = 600;
/// Entries erased while readers wait. One record can have as many events as there is room for.
const ERASED_AT_ONCE: usize = 256;

#[derive(Debug)]
pub struct Ring {
    max_bytes: usize,
    hasher: RandomState,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    parts: HashMap<Scope, Part>,
    /// The parts by their size.
    sizes: BTreeSet<(usize, Scope)>,
    /// The parts by their oldest event.
    fronts: BTreeSet<(i64, Scope)>,
    bytes: usize,
    entries: usize,
    /// Nothing after this place is missing for an account that has no part.
    floor: i64,
    head: i64,
}

/// The events of one account and mode.
#[derive(Debug)]
struct Part {
    slots: VecDeque<Stored>,
    /// The newest event of each record, by the hash of its id.
    newest: HashMap<u64, i64>,
    bytes: usize,
    /// Every event after this one that may leave the service is here, up to the head.
    floor: i64,
}

#[derive(Debug)]
struct Stored {
    entry: Arc<Entry>,
    /// The event before it of a record with the same hash; 0 if there is none.
    older: i64,
    /// Tick of the hub's clock at which it came.
    at: u64,
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

/// The first event after a place.
#[derive(Debug)]
pub enum Following {
    Entry(Arc<Entry>),
    Nothing,
    /// What follows the place, up to this one, is no longer here.
    Behind(i64),
}

impl Ring {
    /// Begins behind `position`.
    pub fn new(max_bytes: usize, position: i64) -> Ring {
        let state = State {
            parts: HashMap::new(),
            sizes: BTreeSet::new(),
            fronts: BTreeSet::new(),
            bytes: 0,
            entries: 0,
            floor: position,
            head: position,
        };
        Ring { max_bytes, hasher: RandomState::new(), state: RwLock::new(state) }
    }

    pub fn head(&self) -> i64 {
        self.state.read().head
    }

    /// Takes what follows in the log. `head` is the newest event that was looked at, shown or not;
    /// `now` a tick of the hub's clock.
    pub fn push(&self, entries: Vec<Arc<Entry>>, head: i64, now: u64) {
        let mut state = self.state.write();
        for entry in entries {
            let hash = self.hasher.hash_one(&entry.event.record);
            state.push(entry, hash, now);
        }
        state.head = head;
        while state.bytes > self.max_bytes || state.entries > MAX_ENTRIES {
            let Some(scope) = state.next_to_drop(now) else { break };
            state.drop_oldest(scope, &self.hasher);
        }
    }

    /// Replaces the events of a record before a place by their erased form: some of them, newest
    /// first. Returns where to go on, if that was not all.
    pub fn erase(
        &self,
        scope: Scope,
        record: &str,
        before: i64,
        start: Option<i64>,
    ) -> Option<i64> {
        let mut state = self.state.write();
        let part = state.parts.get_mut(&scope)?;
        let hash = self.hasher.hash_one(record);
        let size = part.bytes;
        let rest = part.erase(record, before, start.or(part.newest.get(&hash).copied())?);
        let smaller = part.bytes;
        state.bytes -= size - smaller;
        state.sizes.remove(&(size, scope));
        state.sizes.insert((smaller, scope));
        rest
    }

    /// Forgets what it holds.
    pub fn clear(&self) {
        let mut state = self.state.write();
        let head = state.head;
        state.restart(head);
    }

    /// Claims nothing up to a place, nor to its own head: some of that may be missing.
    pub fn forget(&self, position: i64) {
        let mut state = self.state.write();
        if position > state.head {
            state.restart(position);
        }
    }

    /// Begins anew behind a place that lies ahead.
    pub fn restart(&self, position: i64) {
        self.state.write().restart(position);
    }

    /// Shows what follows a place, oldest first, until the viewer has enough (says false: and was
    /// shown one too many).
    pub fn view(
        &self,
        scope: Scope,
        after: i64,
        mut show: impl FnMut(&Arc<Entry>) -> bool,
    ) -> Reach {
        let state = self.state.read();
        if after < state.floor_of(scope) {
            return Reach::Behind;
        }
        let mut seen = after;
        if let Some(part) = state.parts.get(&scope) {
            for slot in part.slots.range(part.first_after(after)..) {
                if !show(&slot.entry) {
                    return Reach::Until(seen);
                }
                seen = slot.entry.event.seq;
            }
        }
        Reach::Head(state.head.max(after))
    }

    /// The first event after a place.
    pub fn following(&self, scope: Scope, after: i64) -> Following {
        let state = self.state.read();
        if after < state.floor_of(scope) {
            return Following::Behind(state.head);
        }
        let part = state.parts.get(&scope);
        match part.and_then(|part| part.slots.get(part.first_after(after))) {
            Some(slot) => Following::Entry(slot.entry.clone()),
            None => Following::Nothing,
        }
    }
}

impl State {
    fn floor_of(&self, scope: Scope) -> i64 {
        self.parts.get(&scope).map_or(self.floor, |part| part.floor)
    }

    /// The account whose oldest event goes next.
    fn next_to_drop(&self, now: u64) -> Option<Scope> {
        let (_, oldest) = *self.fronts.first()?;
        let front = self.parts.get(&oldest).and_then(|part| part.slots.front());
        if front.is_some_and(|slot| slot.at + STALE <= now) {
            return Some(oldest);
        }
        self.sizes.last().map(|(_, largest)| *largest)
    }

    fn push(&mut self, entry: Arc<Entry>, hash: u64, at: u64) {
        let (scope, floor) = (entry.event.scope, self.floor);
        let part = self.parts.entry(scope).or_insert_with(|| {
            self.bytes += PART_BYTES;
            self.sizes.insert((PART_BYTES, scope));
            self.fronts.insert((entry.event.seq, scope));
            Part { slots: VecDeque::new(), newest: HashMap::new(), bytes: PART_BYTES, floor }
        });
        let before = part.bytes;
        part.bytes += entry.size_bytes();
        self.bytes += part.bytes - before;
        self.entries += 1;
        let older = part.newest.insert(hash, entry.event.seq).unwrap_or(0);
        part.slots.push_back(Stored { entry, older, at });
        self.sizes.remove(&(before, scope));
        self.sizes.insert((part.bytes, scope));
    }

    fn drop_oldest(&mut self, scope: Scope, hasher: &RandomState) {
        let Some(part) = self.parts.get_mut(&scope) else { return };
        self.sizes.remove(&(part.bytes, scope));
        if let Some(Stored { entry, .. }) = part.slots.pop_front() {
            let (seq, size) = (entry.event.seq, entry.size_bytes());
            self.fronts.remove(&(seq, scope));
            part.floor = seq;
            part.bytes -= size;
            self.bytes -= size;
            self.entries -= 1;
            let hash = hasher.hash_one(&entry.event.record);
            if part.newest.get(&hash) == Some(&seq) {
                part.newest.remove(&hash);
            }
        }
        let Some(front) = part.slots.front() else {
            // Nobody remembers where this part began: the place counts for all that have none.
            self.floor = self.floor.max(part.floor);
            self.bytes -= PART_BYTES;
            self.parts.remove(&scope);
            return;
        };
        self.fronts.insert((front.entry.event.seq, scope));
        self.sizes.insert((part.bytes, scope));
    }

    fn restart(&mut self, position: i64) {
        self.parts.clear();
        self.sizes.clear();
        self.fronts.clear();
        (self.bytes, self.entries) = (0, 0);
        (self.floor, self.head) = (position, position);
    }
}

impl Part {
    /// Place of the first slot after a place in the log.
    fn first_after(&self, after: i64) -> usize {
        match self.slots.back() {
            // The usual case: one who follows closely misses the last few.
            Some(last) if last.entry.event.seq <= after => self.slots.len(),
            _ => self.slots.partition_point(|slot| slot.entry.event.seq <= after),
        }
    }

    fn erase(&mut self, record: &str, before: i64, start: i64) -> Option<i64> {
        let mut next = start;
        for _ in 0..ERASED_AT_ONCE {
            // What is no longer here has nothing older that is.
            if next <= self.floor {
                return None;
            }
            let place = self.first_after(next - 1);
            let slot = self.slots.get_mut(place).filter(|slot| slot.entry.event.seq == next)?;
            if slot.entry.event.record == record && next < before {
                if slot.entry.is_erased {
                    // An earlier erasure has been here: it took everything older, too.
                    return None;
                }
                self.bytes -= slot.entry.size_bytes();
                slot.entry = Arc::new(slot.entry.erased());
                self.bytes += slot.entry.size_bytes();
            }
            next = slot.older;
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::{codec, event};

    fn entry(scope: i64, seq: i64, record: &str, text: &str) -> Arc<Entry> {
        let object = format!("{{\"id\":\"{record}\",\"object\":\"book\",\"title\":\"{text}\"}}");
        Arc::new(Entry::new(&codec(), event(scope, seq, "book.created", record, &object)))
    }

    fn seen(ring: &Ring, scope: i64, after: i64) -> Option<Vec<i64>> {
        let mut seqs = Vec::new();
        let reach = ring.view(Scope(scope), after, |entry| {
            seqs.push(entry.event.seq);
            true
        });
        (reach != Reach::Behind).then_some(seqs)
    }

    fn objects(ring: &Ring, scope: i64) -> Vec<String> {
        let mut objects = Vec::new();
        ring.view(Scope(scope), 0, |entry| {
            objects.push(entry.event.object.clone());
            true
        });
        objects
    }

    #[test]
    fn an_account_that_writes_much_pushes_out_its_own_events_alone() {
        let size = entry(2, 1, "quiet", "x").size_bytes();
        let ring = Ring::new(10 * size + 2 * PART_BYTES, 0);
        ring.push(vec![entry(2, 1, "quiet", "x"), entry(2, 2, "quiet", "x")], 2, 0);
        for seq in 3..100 {
            ring.push(vec![entry(4, seq, "noisy", "x")], seq, STALE - 1);
        }
        assert_eq!(seen(&ring, 2, 0), Some(vec![1, 2]));
        assert_eq!(seen(&ring, 4, 0), None);
        assert_eq!(seen(&ring, 4, 91), Some((92..100).collect()));
        assert_eq!(ring.view(Scope(4), 99, |_| true), Reach::Head(99));
        // An account of which nothing is here misses nothing either.
        assert_eq!(seen(&ring, 6, 0), Some(vec![]));
        // Later, nobody is likely to need the events of the quiet one any more.
        ring.push(vec![entry(4, 100, "noisy", "x"), entry(4, 101, "noisy", "x")], 101, STALE);
        assert_eq!((seen(&ring, 2, 0), seen(&ring, 2, 2)), (None, Some(vec![])));
        assert_eq!(seen(&ring, 4, 91), Some((92..102).collect()));
    }

    #[test]
    fn the_memory_is_bounded_and_dropped_events_are_reported_as_missing() {
        let size = entry(2, 1, "a", "x").size_bytes();
        let ring = Ring::new(4 * (size + PART_BYTES), 0);
        // One event of each of many accounts: parts come and go.
        for seq in 1..=50 {
            ring.push(vec![entry(seq * 2, seq, "a", "x")], seq, 0);
        }
        let state = ring.state.read();
        assert_eq!((state.parts.len(), state.entries), (4, 4));
        assert_eq!((state.sizes.len(), state.fronts.len()), (4, 4));
        assert_eq!(state.bytes, 4 * (size + PART_BYTES));
        assert_eq!(state.parts.values().map(|part| part.newest.len()).sum::<usize>(), 4);
        let kept: Vec<i64> = state.parts.keys().map(|scope| scope.0).collect();
        drop(state);
        for scope in (1..=50).map(|seq| seq * 2) {
            let expected = kept.contains(&scope).then(|| vec![scope / 2]);
            assert_eq!(seen(&ring, scope, scope / 2 - 1), expected, "{scope}");
        }
    }

    #[test]
    fn an_erasure_changes_the_events_of_its_record_before_it_and_no_others() {
        let ring = Ring::new(1 << 20, 0);
        let all = [(2, 1, "a"), (2, 2, "b"), (4, 3, "a"), (2, 4, "a"), (2, 5, "a")];
        ring.push(all.map(|(scope, seq, record)| entry(scope, seq, record, "secret")).into(), 5, 0);
        let bytes = ring.state.read().bytes;
        assert_eq!(ring.erase(Scope(2), "a", 5, None), None);
        let erased = "{\"id\":\"a\",\"object\":\"book\",\"erased\":true}";
        let shown = objects(&ring, 2);
        assert_eq!((shown[0].as_str(), shown[2].as_str()), (erased, erased));
        assert!(shown[1].contains("secret") && shown[3].contains("secret"), "{shown:?}");
        assert!(objects(&ring, 4)[0].contains("secret"));
        assert_eq!(ring.erase(Scope(8), "a", 5, None), None);
        let state = ring.state.read();
        let counted: usize = state.parts.values().map(|part| part.bytes).sum();
        assert!(state.bytes == counted && counted < bytes, "{counted} of {bytes}");
        assert!(state.sizes.iter().all(|(size, scope)| state.parts[scope].bytes == *size));
    }

    #[test]
    fn many_events_of_one_record_are_erased_in_slices_and_only_once() {
        let count = 3 * ERASED_AT_ONCE as i64;
        let ring = Ring::new(1 << 30, 0);
        let entries = (1..=count).map(|seq| entry(2, seq, "a", "secret")).collect();
        ring.push(entries, count, 0);
        let (mut next, mut slices) = (ring.erase(Scope(2), "a", i64::MAX, None), 1);
        while let Some(place) = next {
            (next, slices) = (ring.erase(Scope(2), "a", i64::MAX, Some(place)), slices + 1);
        }
        assert!((3..=4).contains(&slices), "{slices}");
        assert!(objects(&ring, 2).iter().all(|object| !object.contains("secret")));
        // The second erasure of the same record meets the first at once.
        assert_eq!(ring.erase(Scope(2), "a", i64::MAX, None), None);
    }
}
