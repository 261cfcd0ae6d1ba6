//! What the sink saw: one entry for each delivery, and what can be said of them afterwards. Events
//! are known by a number made of their id, so that taking one down costs next to nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Who got which event when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub event: EventKey,
    /// The number in the path of the endpoint.
    pub endpoint: u32,
    /// When the first byte of the request was read.
    pub at: Instant,
}

/// Sixty-four bits of an event's id: among a million the chance of two alike is one in 10^7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey(u64);

impl EventKey {
    /// FNV-1a: short, and spreads well what differs in a few letters.
    pub fn of(id: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(id.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// The first arrival of each event at each endpoint; whatever follows is a duplicate.
pub struct First {
    by_event: HashMap<(EventKey, u32), Instant>,
    pub duplicates: usize,
}

impl First {
    pub fn of(arrivals: &[Arrival]) -> Self {
        let mut by_event = HashMap::with_capacity(arrivals.len());
        for arrival in arrivals {
            let at = by_event.entry((arrival.event, arrival.endpoint)).or_insert(arrival.at);
            *at = arrival.at.min(*at);
        }
        let duplicates = arrivals.len() - by_event.len();
        Self { by_event, duplicates }
    }

    /// How many different deliveries there were.
    pub fn count(&self) -> usize {
        self.by_event.len()
    }

    pub fn at(&self, event: EventKey, endpoint: u32) -> Option<Instant> {
        self.by_event.get(&(event, endpoint)).copied()
    }
}

/// From `began` to `ended`; nothing where the end came first, as an event may arrive before the
/// answer to the request that made it.
pub fn between(began: Instant, ended: Instant) -> Duration {
    ended.saturating_duration_since(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_arrival_counts_and_the_others_are_duplicates() {
        let began = Instant::now();
        let later = began + Duration::from_millis(5);
        let [a, b] = ["evt_a", "evt_b"].map(|id| EventKey::of(id.as_bytes()));
        assert_ne!(a, b);
        let arrival = |event, endpoint, at| Arrival { event, endpoint, at };
        let all = [arrival(a, 1, later), arrival(a, 1, began), arrival(b, 1, later)];
        let first = First::of(&all);
        assert_eq!((first.count(), first.duplicates), (2, 1));
        assert_eq!((first.at(a, 1), first.at(a, 2)), (Some(began), None));
        assert_eq!(between(later, began), Duration::ZERO);
    }
}
