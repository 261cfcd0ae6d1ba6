//! How fast one endpoint may be sent to: a window that grows with successes, single tries after
//! repeated failures, a pause it asked for, and its own rate. Pure: the moment is passed in.

use crate::limits::Limits;
use std::time::Duration;
use tokio::time::Instant;

/// Where a window begins, so that an endpoint that hangs from the start holds little.
const FIRST_WINDOW: usize = 2;

#[derive(Debug)]
pub struct Pace {
    window: usize,
    max_window: usize,
    bucket: Option<Bucket>,
    /// Failures in a row.
    failures: u32,
    /// Failed tries in a row since single ones are made; those of one burst are one.
    strikes: u32,
    /// When the window was last cut: results of earlier requests add nothing.
    cut: Option<Instant>,
    /// Single tries only, the next not before.
    held_until: Option<Instant>,
    paused_until: Option<Instant>,
}

/// Whether something may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Open,
    /// Not before this moment.
    Until(Instant),
    /// Not before something in flight has come back.
    Full,
}

impl Pace {
    pub fn new(max_window: usize, rate: Option<u32>) -> Pace {
        Pace {
            window: FIRST_WINDOW.min(max_window),
            max_window,
            bucket: rate.map(Bucket::new),
            failures: 0,
            strikes: 0,
            cut: None,
            held_until: None,
            paused_until: None,
        }
    }

    /// Takes over new settings; what was learned stays.
    pub fn set(&mut self, max_window: usize, rate: Option<u32>) {
        self.max_window = max_window;
        self.window = self.window.min(max_window);
        if rate != self.bucket.as_ref().map(|bucket| bucket.rate) {
            self.bucket = rate.map(Bucket::new);
        }
    }

    pub fn window(&self) -> usize {
        self.window
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn is_held(&self) -> bool {
        self.held_until.is_some()
    }

    /// Until when nothing may be sent at all: it asked for a pause, or failed too often.
    pub fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.into_iter().chain(self.held_until).filter(|until| *until > now).max()
    }

    /// Until when it asked for a pause.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// What its rate allows was sent just before, by another node or before a restart.
    pub fn empty(&mut self, now: Instant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.empty(now);
        }
    }

    /// Takes over failures in a row from before a restart.
    pub fn resume(&mut self, failures: u32) {
        self.failures = failures;
    }

    pub fn readiness(&self, in_flight: usize, now: Instant) -> Readiness {
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            return Readiness::Until(until);
        }
        if let Some(until) = self.held_until {
            return match in_flight {
                0 if until > now => Readiness::Until(until),
                0 => self.bucket.as_ref().map_or(Readiness::Open, |bucket| bucket.readiness(now)),
                _ => Readiness::Full,
            };
        }
        if in_flight >= self.window {
            return Readiness::Full;
        }
        self.bucket.as_ref().map_or(Readiness::Open, |bucket| bucket.readiness(now))
    }

    /// Whether its pause and its rate allow something for which the window does not count.
    pub fn allows(&self, now: Instant) -> Readiness {
        match self.paused_until.filter(|until| *until > now) {
            Some(until) => Readiness::Until(until),
            None => self.bucket.as_ref().map_or(Readiness::Open, |bucket| bucket.readiness(now)),
        }
    }

    /// Something is sent.
    pub fn spend(&mut self, now: Instant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(now);
        }
    }

    pub fn succeeded(&mut self) {
        self.window = (self.window + 1).min(self.max_window);
        self.failures = 0;
        self.strikes = 0;
        self.held_until = None;
    }

    /// An attempt that began at `started` has failed.
    pub fn failed(&mut self, started: Instant, now: Instant, limits: &Limits) {
        self.failures = self.failures.saturating_add(1);
        let news = self.cut.is_none_or(|cut| started >= cut);
        if news {
            self.window = (self.window / 2).max(1);
            self.cut = Some(now);
        }
        if self.failures < limits.hold_after {
            return;
        }
        if news || self.strikes == 0 {
            self.strikes = self.strikes.saturating_add(1);
        }
        let doubled = 1u32.checked_shl(self.strikes - 1).unwrap_or(u32::MAX);
        let wait = limits.hold_first.saturating_mul(doubled).min(limits.hold_longest);
        self.held_until = Some(now + wait);
    }

    pub fn pause(&mut self, wait: Duration, now: Instant) {
        let until = now + wait;
        self.paused_until = Some(self.paused_until.map_or(until, |other| other.max(until)));
    }
}

/// Tokens of a rate per second; a second's worth may be spent at once.
#[derive(Debug)]
pub struct Bucket {
    rate: u32,
    tokens: f64,
    at: Option<Instant>,
}

impl Bucket {
    pub fn new(rate: u32) -> Bucket {
        Bucket { rate: rate.max(1), tokens: f64::from(rate.max(1)), at: None }
    }

    pub fn rate(&self) -> usize {
        self.rate as usize
    }

    pub fn empty(&mut self, now: Instant) {
        (self.tokens, self.at) = (0.0, Some(now));
    }

    pub fn readiness(&self, now: Instant) -> Readiness {
        let tokens = self.filled(now);
        if tokens >= 1.0 {
            return Readiness::Open;
        }
        let missing = Duration::from_secs_f64((1.0 - tokens) / f64::from(self.rate));
        // Timers are exact to a millisecond; rounding up spares a second look.
        Readiness::Until(now + missing + Duration::from_millis(1))
    }

    pub fn spend(&mut self, now: Instant) {
        self.tokens = self.filled(now) - 1.0;
        self.at = Some(now);
    }

    fn filled(&self, now: Instant) -> f64 {
        let rate = f64::from(self.rate);
        let since = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        (self.tokens + since * rate).min(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(pace: &mut Pace, started: Instant, now: Instant) {
        pace.failed(started, now, &Limits::default());
    }

    #[test]
    fn the_window_grows_with_each_success_and_halves_once_per_burst_of_failures() {
        let (mut pace, now) = (Pace::new(20, None), Instant::now());
        assert_eq!(
            (pace.readiness(1, now), pace.readiness(2, now)),
            (Readiness::Open, Readiness::Full)
        );
        (0..30).for_each(|_| pace.succeeded());
        assert_eq!(pace.window(), 20);
        let later = now + Duration::from_secs(1);
        for _ in 0..4 {
            failing(&mut pace, now, later);
        }
        assert_eq!(pace.window(), 10);
        pace.set(3, None);
        assert_eq!((pace.window(), Pace::new(1, None).window()), (3, 1));
    }

    #[test]
    fn five_failures_in_a_row_allow_single_attempts_with_growing_pauses() {
        let (mut pace, mut now) = (Pace::new(20, None), Instant::now());
        for _ in 0..4 {
            failing(&mut pace, now, now);
            assert!(!pace.is_held());
        }
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            failing(&mut pace, now, now);
            let until = now + Duration::from_secs(seconds);
            assert_eq!(pace.readiness(0, now), Readiness::Until(until));
            assert_eq!(
                (pace.readiness(0, until), pace.readiness(1, until)),
                (Readiness::Open, Readiness::Full)
            );
            now = until;
        }
        pace.succeeded();
        assert!(!pace.is_held());
        assert_eq!((pace.failures(), pace.readiness(1, now)), (0, Readiness::Open));
    }

    #[test]
    fn a_burst_of_failures_counts_once() {
        let (mut pace, start) = (Pace::new(20, None), Instant::now());
        (0..20).for_each(|_| pace.succeeded());
        let now = start + Duration::from_secs(1);
        (0..20).for_each(|_| failing(&mut pace, start, now));
        assert_eq!(pace.readiness(0, now), Readiness::Until(now + Duration::from_secs(1)));
    }

    #[test]
    fn a_pause_stops_all_sends_of_an_endpoint() {
        let (mut pace, now) = (Pace::new(20, None), Instant::now());
        pace.pause(Duration::from_secs(9), now);
        pace.pause(Duration::from_secs(3), now);
        let until = now + Duration::from_secs(9);
        assert_eq!(
            (pace.readiness(0, now), pace.readiness(0, until)),
            (Readiness::Until(until), Readiness::Open)
        );
    }

    #[test]
    fn sends_per_second_stay_within_the_rate() {
        let (mut bucket, start) = (Bucket::new(10), Instant::now());
        let mut sent = 0;
        for millis in 0..3000 {
            let now = start + Duration::from_millis(millis);
            if bucket.readiness(now) == Readiness::Open {
                bucket.spend(now);
                sent += 1;
            }
        }
        // The second's worth at the beginning, and three seconds.
        assert!((39..=40).contains(&sent), "{sent}");
        bucket.empty(start);
        let ready = start + Duration::from_millis(101);
        assert_eq!(bucket.readiness(start), Readiness::Until(ready));
        assert_eq!(bucket.readiness(ready), Readiness::Open);
    }
}
