//! Which events of one endpoint have no durable outcome yet, and so how far its position may go.
//! Pure.

use model::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Ledger {
    /// By sequence, with the time of the event.
    open: BTreeMap<i64, Timestamp>,
}

impl Ledger {
    pub fn open(&mut self, seq: i64, created: Timestamp) {
        self.open.insert(seq, created);
    }

    pub fn contains(&self, seq: i64) -> bool {
        self.open.contains_key(&seq)
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Its outcome is durable, or it goes back to the log.
    pub fn close(&mut self, seq: i64) {
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
        let mut ledger = Ledger::default();
        assert_eq!(ledger.position(7), 7);
        for seq in [8, 9, 12] {
            ledger.open(seq, Timestamp(seq));
        }
        assert_eq!(ledger.position(20), 7);
        ledger.close(9);
        assert_eq!((ledger.position(20), ledger.oldest()), (7, Some(Timestamp(8))));
        ledger.close(8);
        assert_eq!((ledger.position(20), ledger.position(10)), (11, 10));
        ledger.close(12);
        assert_eq!((ledger.position(20), ledger.contains(12)), (20, false));
    }
}
