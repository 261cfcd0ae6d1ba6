//! One delivery at a time per record: later events of a record wait here until the earlier one has
//! its last outcome. Other records go on. Only the places of waiting events in the log are kept: a
//! record may wait for hours, and its events are read again when their turn comes. Pure.

use std::collections::{HashMap, VecDeque};

#[derive(Default)]
pub struct Order {
    /// Records with a delivery that is in flight or will be tried again.
    busy: HashMap<String, Turn>,
    /// Events whose turn has come.
    free: VecDeque<i64>,
    held: usize,
}

struct Turn {
    /// Sequence of the event that is being delivered.
    holder: i64,
    waiting: VecDeque<i64>,
}

impl Turn {
    fn of(holder: i64) -> Turn {
        Turn { holder, waiting: VecDeque::new() }
    }
}

impl Order {
    /// How many events wait, those included whose turn has come.
    pub fn held(&self) -> usize {
        self.held + self.free.len()
    }

    /// Events whose turn has come and that are to be read again.
    pub fn free(&self) -> &VecDeque<i64> {
        &self.free
    }

    /// The first of them was read, or does not exist any more.
    pub fn take_free(&mut self) -> Option<i64> {
        self.free.pop_front()
    }

    /// What was read is dropped again; it is still the first in turn.
    pub fn return_free(&mut self, seq: i64) {
        self.free.push_front(seq);
    }

    /// A record whose delivery is somewhere else: in the retry table, from before the start.
    pub fn occupy(&mut self, record: &str, seq: i64) {
        if !self.busy.contains_key(record) {
            self.busy.insert(record.to_owned(), Turn::of(seq));
        }
    }

    /// Whether the event may go now; otherwise its place is kept here.
    pub fn admit(&mut self, record: &str, seq: i64) -> bool {
        match self.busy.get_mut(record) {
            Some(turn) => {
                turn.waiting.push_back(seq);
                self.held += 1;
                false
            }
            None => {
                self.busy.insert(record.to_owned(), Turn::of(seq));
                true
            }
        }
    }

    /// The delivery of an event has its last outcome. A delivery that no event
    /// waits for, such as a requested retry, changes nothing.
    pub fn settled(&mut self, record: &str, seq: i64) {
        let Some(turn) = self.busy.get_mut(record).filter(|turn| turn.holder == seq) else {
            return;
        };
        match turn.waiting.pop_front() {
            Some(next) => {
                turn.holder = next;
                self.held -= 1;
                self.free.push_back(next);
            }
            None => {
                self.busy.remove(record);
            }
        }
    }

    /// An event whose turn had come is not in the log any more.
    pub fn vanished(&mut self, seq: i64) {
        let held = self.busy.iter().find(|(_, turn)| turn.holder == seq);
        if let Some(record) = held.map(|(record, _)| record.clone()) {
            self.settled(&record, seq);
        }
    }

    /// Everything that waited, oldest first; nothing is in order any more.
    pub fn dissolve(&mut self) -> Vec<i64> {
        let mut all: Vec<_> = self.free.drain(..).collect();
        all.extend(self.busy.drain().flat_map(|(_, turn)| turn.waiting));
        all.sort_unstable();
        self.held = 0;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_record_are_sent_in_order_and_other_records_do_not_wait() {
        let mut order = Order::default();
        assert!(order.admit("a", 1));
        assert!(!order.admit("a", 2));
        assert!(order.admit("b", 3));
        assert!(!order.admit("a", 4));
        assert_eq!((order.held(), order.free().len()), (2, 0));
        order.settled("b", 3);
        assert!(order.admit("b", 5));
        order.settled("a", 9);
        assert!(order.free().is_empty());
        order.settled("a", 1);
        assert_eq!(order.held(), 2, "the one whose turn has come is still to be sent");
        assert_eq!((order.take_free(), order.take_free()), (Some(2), None));
        assert!(!order.admit("a", 6));
        order.settled("a", 2);
        assert_eq!(order.take_free(), Some(4));
        assert_eq!((order.dissolve(), order.held()), (vec![6], 0));
    }

    #[test]
    fn a_record_that_waits_for_a_retry_delays_its_later_events() {
        let mut order = Order::default();
        order.occupy("a", 1);
        assert!(!order.admit("a", 2));
        order.settled("a", 1);
        assert_eq!(order.free().front(), Some(&2));
        order.settled("unknown", 1);
    }
}
