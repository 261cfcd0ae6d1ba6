//! Which events of one endpoint have no durable outcome yet, and so how far its position may go.
//! Pure.

use model::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct OpenEvents {
    /// By sequence, with the time of the event.
    open: BTreeMap<i64, Timestamp>,
}

impl OpenEvents {
    pub fn insert(&mut self, seq: i64, created: Timestamp) {
        self.open.insert(seq, created);
    }

    pub fn contains(&self, seq: i64) -> bool {
        self.open.contains_key(&seq)
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn seqs(&self) -> impl Iterator<Item = i64> {
        self.open.keys().copied()
    }

    /// Its outcome is durable, or it goes back to the log.
    pub fn remove(&mut self, seq: i64) {
        self.open.remove(&seq);
    }

    /// Everything up to here is done, if everything up to `seen` was looked at.
    pub fn position(&self, seen: i64) -> i64 {
        self.open.first_key_value().map_or(seen, |(seq, _)| seen.min(seq - 1))
    }

    pub fn oldest(&self) -> Option<Timestamp> {
        self.open.first_key_value().map(|(_, created)| *created)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_stays_before_the_first_event_without_an_outcome() {
        let mut events = OpenEvents::default();
        assert_eq!(events.position(7), 7);
        for seq in [8, 9, 12] {
            events.insert(seq, Timestamp(seq));
        }
        assert_eq!(events.position(20), 7);
        events.remove(9);
        assert_eq!((events.position(20), events.oldest()), (7, Some(Timestamp(8))));
        events.remove(8);
        assert_eq!((events.position(20), events.position(10)), (11, 10));
        events.remove(12);
        assert_eq!((events.position(20), events.contains(12)), (20, false));
    }
}
