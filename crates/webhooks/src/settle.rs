//! Outcomes on their way to being durable: one settlement at a time, the next gathers meanwhile.
//! Does not know how they are kept, nor what follows from them.

use model::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use store::{Outcome, Settlement, Status};

/// Whose delivery it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Lane(i64),
    Replay { number: i64, endpoint: i64 },
}

/// What its owner needs to know once an outcome is durable.
#[derive(Debug)]
pub struct Mark {
    pub owner: Owner,
    pub seq: i64,
    pub status: Status,
    pub next: Option<Timestamp>,
    /// Set where deliveries of one record go one after the other.
    pub record: Option<String>,
}

#[derive(Default)]
pub struct Settler {
    outcomes: VecDeque<Outcome>,
    marks: VecDeque<Mark>,
    positions: BTreeMap<i64, i64>,
    flying: Vec<Mark>,
    is_flying: bool,
}

impl Settler {
    pub fn push(&mut self, outcome: Outcome, mark: Mark) {
        self.outcomes.push_back(outcome);
        self.marks.push_back(mark);
    }

    pub fn place(&mut self, endpoint: i64, position: i64) {
        self.positions.insert(endpoint, position);
    }

    /// The endpoint is gone: its position must not come back.
    pub fn forget(&mut self, endpoint: i64) {
        self.positions.remove(&endpoint);
    }

    /// Outcomes that are not durable yet.
    pub fn unsettled(&self) -> usize {
        self.marks.len() + self.flying.len()
    }

    pub fn is_idle(&self) -> bool {
        !self.is_flying && self.outcomes.is_empty() && self.positions.is_empty()
    }

    /// What is to be settled next, unless something is under way or nothing is there.
    pub fn begin(&mut self, most: usize) -> Option<Settlement> {
        if self.is_flying || (self.outcomes.is_empty() && self.positions.is_empty()) {
            return None;
        }
        self.is_flying = true;
        let count = self.outcomes.len().min(most);
        self.flying.extend(self.marks.drain(..count));
        let outcomes = self.outcomes.drain(..count).collect();
        let positions = std::mem::take(&mut self.positions).into_iter().collect();
        Some(Settlement { outcomes, positions })
    }

    /// What was begun is durable.
    pub fn end(&mut self) -> Vec<Mark> {
        self.is_flying = false;
        std::mem::take(&mut self.flying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Scope;

    fn push(settler: &mut Settler, seq: i64) {
        let outcome = Outcome {
            scope: Scope::new(1, false),
            endpoint: 1,
            event: seq,
            id: "dlv_1".into(),
            number: None,
            status: Status::Succeeded,
            attempts: 1,
            next: None,
            now: Timestamp(0),
            attempt: None,
        };
        let status = outcome.status;
        let mark = Mark { owner: Owner::Lane(1), seq, status, next: None, record: None };
        settler.push(outcome, mark);
    }

    #[test]
    fn one_settlement_is_under_way_while_the_next_gathers() {
        let mut settler = Settler::default();
        assert!(settler.begin(2).is_none());
        (1..=3).for_each(|seq| push(&mut settler, seq));
        settler.place(1, 5);
        settler.place(1, 6);
        let first = settler.begin(2).unwrap();
        assert_eq!((first.outcomes.len(), first.positions), (2, vec![(1, 6)]));
        assert!(settler.begin(2).is_none());
        assert_eq!((settler.unsettled(), settler.is_idle()), (3, false));
        let seqs: Vec<_> = settler.end().iter().map(|mark| mark.seq).collect();
        assert_eq!((seqs, settler.unsettled()), (vec![1, 2], 1));
        assert_eq!(settler.begin(2).unwrap().outcomes[0].event, 3);
        settler.end();
        assert!(settler.is_idle());
    }
}
