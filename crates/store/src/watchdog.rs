//! Heartbeats of the long-running loops. Each loop reports progress; the health check asks which
//! loops have not. Every part of the service has the store, so the store has the list.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All loops that report here.
#[derive(Debug)]
pub struct Watchdog {
    began: Instant,
    loops: Mutex<Vec<Arc<Beats>>>,
}

#[derive(Debug)]
struct Beats {
    name: &'static str,
    /// Milliseconds after `began`, plus one; 0 while the loop waits for work.
    last: AtomicU64,
}

/// The handle with which one loop reports. Dropping it ends the watch.
#[derive(Debug)]
pub struct Heartbeat {
    began: Instant,
    beats: Arc<Beats>,
    watchdog: Arc<Watchdog>,
}

/// A loop that has not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub name: &'static str,
    /// Since its last heartbeat.
    pub silent: Duration,
}

impl Watchdog {
    pub fn new() -> Arc<Watchdog> {
        Arc::new(Watchdog { began: Instant::now(), loops: Mutex::new(Vec::new()) })
    }

    /// Watches one more loop. It counts as waiting for work until its first `beat`.
    pub fn watch(self: &Arc<Watchdog>, name: &'static str) -> Heartbeat {
        let beats = Arc::new(Beats { name, last: AtomicU64::new(0) });
        self.lock().push(beats.clone());
        Heartbeat { began: self.began, beats, watchdog: self.clone() }
    }

    /// Loops that are at work and have not reported for longer than this.
    pub fn stuck(&self, longer_than: Duration) -> Vec<Stuck> {
        let silences = self.silences().into_iter();
        silences.filter(|stuck| stuck.silent > longer_than).collect()
    }

    /// Every loop, with the time since its last heartbeat; zero while it waits for work.
    pub fn silences(&self) -> Vec<Stuck> {
        let loops = self.lock();
        let silence = |beats: &Arc<Beats>| {
            let last = beats.last.load(Ordering::Relaxed);
            let now = millis(self.began.elapsed());
            let silent = if last == 0 { 0 } else { now.saturating_sub(last - 1) };
            Stuck { name: beats.name, silent: Duration::from_millis(silent) }
        };
        loops.iter().map(silence).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Beats>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heartbeat {
    /// The loop moves, and will report again soon.
    pub fn beat(&self) {
        self.beats.last.store(millis(self.began.elapsed()) + 1, Ordering::Relaxed);
    }

    /// The loop waits for work, for however long.
    pub fn rest(&self) {
        self.beats.last.store(0, Ordering::Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.watchdog.lock().retain(|beats| !Arc::ptr_eq(beats, &self.beats));
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stops_moving_is_named_and_one_that_waits_is_not() {
        let watchdog = Watchdog::new();
        let (writer, hub) = (watchdog.watch("writer"), watchdog.watch("hub"));
        writer.beat();
        hub.beat();
        hub.rest();
        let deadline = Instant::now() + Duration::from_secs(10);
        while watchdog.stuck(Duration::from_millis(5)).is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let stuck: Vec<_> = watchdog.stuck(Duration::from_millis(5));
        assert_eq!(stuck.iter().map(|stuck| stuck.name).collect::<Vec<_>>(), ["writer"]);
        drop(writer);
        assert_eq!(watchdog.silences().len(), 1);
        assert!(watchdog.stuck(Duration::ZERO).is_empty());
    }
}
