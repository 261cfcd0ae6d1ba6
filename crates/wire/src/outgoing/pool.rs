//! Connections at rest, by the place they lead to. The newest is taken first, so that what a quiet
//! hour does not need grows old and is dropped. Holds values and reads no clock: does not know what
//! a connection is, nor whether it still lives.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limits::OutgoingLimits;

pub(super) struct Pool<K, T> {
    idle_per_target: usize,
    idle_total: usize,
    idle_time: Duration,
    shelves: Mutex<Shelves<K, T>>,
}

struct Shelves<K, T> {
    /// Each oldest first. An empty one stays until the next sweep, for the connection that is out.
    by_target: HashMap<K, Vec<(Instant, T)>>,
    count: usize,
    next_sweep: Option<Instant>,
}

impl<K: Hash + Eq, T> Pool<K, T> {
    pub(super) fn new(limits: &OutgoingLimits) -> Pool<K, T> {
        Pool {
            idle_per_target: limits.idle_per_target,
            idle_total: limits.idle_total,
            idle_time: limits.idle_time,
            shelves: Mutex::new(Shelves { by_target: HashMap::new(), count: 0, next_sweep: None }),
        }
    }

    /// The one that came back last, unless it has rested too long.
    pub(super) fn take(&self, key: &K, now: Instant) -> Option<T> {
        let mut shelves = self.lock();
        let shelf = shelves.by_target.get_mut(key)?;
        let (since, item) = shelf.pop()?;
        if now.saturating_duration_since(since) < self.idle_time {
            shelves.count -= 1;
            return Some(item);
        }
        // All below it are older still. Dropped after the lock: closing sockets takes time.
        let expired = std::mem::take(shelf);
        shelves.count -= 1 + expired.len();
        drop(shelves);
        drop((item, expired));
        None
    }

    pub(super) fn give(&self, key: K, item: T, now: Instant) {
        // Let go of after the lock: closing sockets takes time.
        let (_expired, _surplus, _oldest);
        let mut shelves = self.lock();
        _expired = self.sweep(&mut shelves, now);
        let shelf = shelves.by_target.entry(key).or_default();
        shelf.push((now, item));
        let full = shelf.len() > self.idle_per_target;
        _surplus = full.then(|| shelf.remove(0));
        shelves.count += usize::from(!full);
        _oldest = (shelves.count > self.idle_total).then(|| shelves.remove_oldest());
        drop(shelves);
    }

    /// Drops what has rested too long, so that targets nobody calls any more hold no connection.
    pub(super) fn remove_expired(&self, now: Instant) {
        let mut shelves = self.lock();
        shelves.next_sweep = None;
        let expired = self.sweep(&mut shelves, now);
        // Dropped after the lock: closing sockets takes time.
        drop(shelves);
        drop(expired);
    }

    /// How many rest.
    pub(super) fn count(&self) -> usize {
        self.lock().count
    }

    /// Takes out what has rested too long, and the shelves of targets nobody calls any more. Looks
    /// at all of them, hence only four times in the span it guards.
    fn sweep(&self, shelves: &mut Shelves<K, T>, now: Instant) -> Vec<(Instant, T)> {
        let mut expired = Vec::new();
        if shelves.next_sweep.is_some_and(|next| now < next) {
            return expired;
        }
        shelves.next_sweep = Some(now + self.idle_time / 4);
        shelves.by_target.retain(|_, shelf| {
            let old = |since: &Instant| now.saturating_duration_since(*since) >= self.idle_time;
            let count = shelf.partition_point(|(since, _)| old(since));
            expired.extend(shelf.drain(..count));
            !shelf.is_empty()
        });
        shelves.count -= expired.len();
        expired
    }

    fn lock(&self) -> MutexGuard<'_, Shelves<K, T>> {
        // Nothing in here is left half done by a panic.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, T> Shelves<K, T> {
    /// Looks at every target. Only a connection that was opened just now can be one too many, and
    /// opening it took far longer than this.
    fn remove_oldest(&mut self) -> Option<(Instant, T)> {
        let filled = self.by_target.values_mut().filter(|shelf| !shelf.is_empty());
        let shelf = filled.min_by_key(|shelf| shelf[0].0)?;
        self.count -= 1;
        Some(shelf.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(40);

    fn pool() -> Pool<&'static str, u32> {
        let limits = OutgoingLimits {
            idle_per_target: 2,
            idle_total: 3,
            idle_time: IDLE,
            ..OutgoingLimits::default()
        };
        Pool::new(&limits)
    }

    fn held(pool: &Pool<&'static str, u32>) -> usize {
        pool.lock().by_target.values().map(Vec::len).sum()
    }

    #[test]
    fn the_newest_connection_of_the_same_target_is_reused_first() {
        let (pool, now) = (pool(), Instant::now());
        pool.give("a", 1, now);
        pool.give("a", 2, now);
        assert_eq!(pool.take(&"b", now), None);
        assert_eq!(pool.take(&"a", now), Some(2));
        assert_eq!(pool.take(&"a", now), Some(1));
        assert_eq!(pool.take(&"a", now), None);
        assert_eq!(pool.count(), 0);
    }

    #[test]
    fn the_oldest_connection_is_dropped_at_the_limit_per_target_and_in_total() {
        let (pool, start) = (pool(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        pool.give("a", 1, at(0));
        pool.give("a", 2, at(1));
        pool.give("a", 3, at(2));
        assert_eq!((pool.count(), held(&pool)), (2, 2));
        pool.give("b", 4, at(3));
        pool.give("c", 5, at(4));
        assert_eq!((pool.count(), held(&pool)), (3, 3));
        assert_eq!(pool.take(&"a", at(4)), Some(3));
        assert_eq!(pool.take(&"a", at(4)), None);
        assert_eq!(pool.take(&"b", at(4)), Some(4));
        assert_eq!(pool.take(&"c", at(4)), Some(5));
    }

    #[test]
    fn a_connection_that_was_idle_too_long_is_not_reused() {
        let (pool, start) = (pool(), Instant::now());
        pool.give("a", 1, start);
        pool.give("a", 2, start + IDLE / 2);
        let late = start + IDLE;
        assert_eq!(pool.take(&"a", late), Some(2));
        assert_eq!(pool.take(&"a", late), None);
        assert_eq!((pool.count(), held(&pool)), (0, 0));
    }

    #[test]
    fn unused_targets_leave_no_entry_in_the_pool() {
        let (pool, start) = (pool(), Instant::now());
        pool.give("a", 1, start);
        pool.give("b", 2, start);
        assert_eq!(pool.take(&"b", start), Some(2));
        pool.give("c", 3, start + IDLE);
        let targets: Vec<_> = pool.lock().by_target.keys().copied().collect();
        assert_eq!((targets, pool.count()), (vec!["c"], 1));
    }

    #[test]
    fn what_rests_too_long_is_removed_without_another_call() {
        let (pool, start) = (pool(), Instant::now());
        pool.give("a", 1, start);
        pool.give("b", 2, start + IDLE / 2);
        pool.remove_expired(start + IDLE);
        assert_eq!((pool.count(), held(&pool)), (1, 1));
        pool.remove_expired(start + IDLE + IDLE / 2);
        assert_eq!((pool.count(), held(&pool)), (0, 0));
    }

    #[test]
    fn a_pool_of_size_zero_keeps_no_connection() {
        let limits = OutgoingLimits { idle_per_target: 0, ..OutgoingLimits::default() };
        let (pool, now) = (Pool::new(&limits), Instant::now());
        pool.give("a", 1, now);
        assert_eq!((pool.count(), pool.take(&"a", now)), (0, None));
        let limits = OutgoingLimits { idle_total: 0, ..OutgoingLimits::default() };
        let pool = Pool::new(&limits);
        pool.give("a", 1, now);
        assert_eq!((pool.count(), pool.take(&"a", now)), (0, None));
    }
}
