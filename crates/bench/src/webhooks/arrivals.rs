//! The records of the sink: one entry for each delivery, and their evaluation. Events are
//! identified by a hash of their id, so that recording is cheap.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Which endpoint got which event, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub event: EventKey,
    /// The number in the path of the endpoint.
    pub endpoint: u32,
    /// The time of the first byte of the request.
    pub at: Instant,
}

/// A 64-bit hash of an event's id: among a million the chance of a collision is one in 10^7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey(u64);

impl EventKey {
    /// FNV-1a: short, and distributes similar texts well.
    pub fn of(id: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(id.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// The first arrival of each event at each endpoint; later ones are duplicates.
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

    /// The number of different deliveries.
    pub fn count(&self) -> usize {
        self.by_event.len()
    }

    pub fn at(&self, event: EventKey, endpoint: u32) -> Option<Instant> {
        self.by_event.get(&(event, endpoint)).copied()
    }
}

/// From `began` to `ended`; zero if the end came first, as an event may arrive before the response
/// to the request that created it.
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
