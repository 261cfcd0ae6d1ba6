//! Requests per client address and window. Each route with a limit has its own counters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wire::client_network;

use crate::config::RateLimit;

/// Addresses that are counted at a time. When the table is full, the expired windows leave; if all
/// are current, new addresses share one counter, so that a flood of addresses does not free itself
/// of the limit.
const MAX_CLIENTS: usize = 100_000;

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The counters of one route.
#[derive(Default)]
pub(crate) struct Limiter(Mutex<State>);

#[derive(Default)]
struct State {
    windows: HashMap<Option<IpAddr>, Window>,
    /// When expired windows were last removed from a full table: it costs a look at all of them.
    swept: Option<Instant>,
}

struct Window {
    began: Instant,
    count: u32,
}

impl Limiter {
    /// Counts a request. The seconds to wait, if it is one too many.
    pub(crate) fn count(&self, limit: RateLimit, client: IpAddr, now: Instant) -> Result<(), u32> {
        let mut state = self.0.lock();
        let State { windows, swept } = &mut *state;
        let mut key = Some(client_network(client));
        let is_current = |window: &Window| now < window.began + limit.window;
        if windows.len() >= MAX_CLIENTS && !windows.contains_key(&key) {
            if swept.is_none_or(|swept| now >= swept + SWEEP_INTERVAL) {
                windows.retain(|_, window| is_current(window));
                *swept = Some(now);
            }
            if windows.len() >= MAX_CLIENTS {
                key = None;
            }
        }
        let window = windows.entry(key).or_insert(Window { began: now, count: 0 });
        if !is_current(window) {
            *window = Window { began: now, count: 0 };
        }
        if window.count < limit.requests {
            window.count += 1;
            return Ok(());
        }
        let left = (window.began + limit.window).saturating_duration_since(now);
        Err(u32::try_from(left.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_over_its_limit_waits_for_the_next_window_and_hurts_nobody() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let limit = RateLimit { requests: 2, window: Duration::from_secs(10) };
        let (a, b) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert_eq!(limiter.count(limit, a, now), Ok(()));
        assert_eq!(limiter.count(limit, a, now), Ok(()));
        assert_eq!(limiter.count(limit, a, now + Duration::from_secs(4)), Err(6));
        assert_eq!(limiter.count(limit, b, now), Ok(()));
        assert_eq!(limiter.count(limit, a, now + Duration::from_secs(10)), Ok(()));
        let (first, second) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        limiter.count(limit, first, now).unwrap();
        limiter.count(limit, second, now).unwrap();
        assert!(limiter.count(limit, first, now).is_err(), "one /64 is one client");
    }
}
