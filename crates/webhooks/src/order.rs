//! One delivery at a time per record: later events of a record wait here until the earlier one has
//! its last outcome. Other records go on. Pure.

use crate::prepared::Prepared;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

#[derive(Default)]
pub struct Order {
    /// Records with a delivery that is under way or will be tried again.
    busy: HashMap<String, Turn>,
    /// Events whose turn has come.
    free: VecDeque<Rc<Prepared>>,
    held: usize,
}

struct Turn {
    /// Sequence of the event that is being delivered.
    holder: i64,
    waiting: VecDeque<Rc<Prepared>>,
}

impl Turn {
    fn of(holder: i64) -> Turn {
        Turn { holder, waiting: VecDeque::new() }
    }
}

impl Order {
    /// How many events wait.
    pub fn held(&self) -> usize {
        self.held
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A record whose delivery is somewhere else: in the retry table, from before the start.
    pub fn occupy(&mut self, record: &str, seq: i64) {
        if !self.busy.contains_key(record) {
            self.busy.insert(record.to_owned(), Turn::of(seq));
        }
    }

    /// The event if it may go now; otherwise it is kept here.
    pub fn admit(&mut self, event: Rc<Prepared>) -> Option<Rc<Prepared>> {
        match self.busy.get_mut(&event.event.record) {
            Some(turn) => {
                turn.waiting.push_back(event);
                self.held += 1;
                None
            }
            None => {
                self.busy.insert(event.event.record.clone(), Turn::of(event.event.seq));
                Some(event)
            }
        }
    }

    /// An event that waited and may go now.
    pub fn next(&mut self) -> Option<Rc<Prepared>> {
        self.free.pop_front()
    }

    /// The delivery of an event has its last outcome. One that nobody waited for, a delivery made
    /// again on request, changes nothing.
    pub fn settled(&mut self, record: &str, seq: i64) {
        let Some(turn) = self.busy.get_mut(record).filter(|turn| turn.holder == seq) else {
            return;
        };
        match turn.waiting.pop_front() {
            Some(event) => {
                turn.holder = event.event.seq;
                self.held -= 1;
                self.free.push_back(event);
            }
            None => {
                self.busy.remove(record);
            }
        }
    }

    /// Everything that waited, oldest first; nothing is in order any more.
    pub fn dissolve(&mut self) -> Vec<Rc<Prepared>> {
        let mut all: Vec<_> = self.free.drain(..).collect();
        all.extend(self.busy.drain().flat_map(|(_, turn)| turn.waiting));
        all.sort_by_key(|event| event.event.seq);
        self.held = 0;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::tests::{event, loaded};

    #[test]
    fn events_of_a_record_go_one_after_the_other_and_others_go_on() {
        let (mut order, loaded) = (Order::default(), loaded());
        let admit = |order: &mut Order, seq, record| {
            order.admit(Prepared::new(event(seq, record), 1, &loaded)).is_some()
        };
        assert!(admit(&mut order, 1, "a"));
        assert!(!admit(&mut order, 2, "a"));
        assert!(admit(&mut order, 3, "b"));
        assert!(!admit(&mut order, 4, "a"));
        assert_eq!((order.held(), order.has_free()), (2, false));
        order.settled("b", 3);
        assert!(admit(&mut order, 5, "b"));
        order.settled("a", 9);
        assert!(!order.has_free());
        order.settled("a", 1);
        let next = |order: &mut Order| order.next().map(|event| event.event.seq);
        assert_eq!((next(&mut order), next(&mut order)), (Some(2), None));
        assert!(!admit(&mut order, 6, "a"));
        order.settled("a", 2);
        assert_eq!(next(&mut order), Some(4));
        let left: Vec<_> = order.dissolve().iter().map(|event| event.event.seq).collect();
        assert_eq!((left, order.held()), (vec![6], 0));
    }

    #[test]
    fn a_record_in_the_retry_table_holds_what_follows() {
        let (mut order, loaded) = (Order::default(), loaded());
        order.occupy("a", 1);
        assert!(order.admit(Prepared::new(event(2, "a"), 1, &loaded)).is_none());
        order.settled("a", 1);
        assert!(order.has_free());
        order.settled("unknown", 1);
    }
}
