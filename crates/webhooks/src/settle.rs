//! Outcomes on their way to being durable: one settlement at a time, the next one collects in the
//! meantime. Does not know how they are kept, nor what follows from them.

use crate::journal::Place;
use crate::limits::Limits;
use model::{Scope, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::cluster::{Bucket, bucket_of};
use store::{Failures, Outcome, Settlement, Status};
use tokio::time::Instant;

/// What an outcome costs in a settlement in addition to the text of its attempt: the row and its
/// indexes.
const OUTCOME_BYTES: usize = 256;

/// Whose delivery it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Queue(i64),
    Replay { number: i64, endpoint: i64 },
}

impl Owner {
    pub fn endpoint(self) -> i64 {
        let (Owner::Queue(endpoint) | Owner::Replay { endpoint, .. }) = self;
        endpoint
    }
}

/// What its owner needs to know once an outcome is durable.
#[derive(Debug)]
pub struct Mark {
    pub owner: Owner,
    pub seq: i64,
    pub scope: Scope,
    pub status: Status,
    pub next: Option<Timestamp>,
    /// Set where deliveries of one record go one after the other.
    pub record: Option<String>,
    /// Its place in the journal until it is durable.
    pub place: Place,
}

#[derive(Default)]
pub struct Settler {
    outcomes: VecDeque<Outcome>,
    marks: VecDeque<Mark>,
    head: Option<i64>,
    positions: BTreeMap<i64, Option<i64>>,
    pauses: BTreeMap<i64, Timestamp>,
    failures: BTreeMap<i64, Option<Failures>>,
    gone: Vec<(i64, Scope)>,
    flying: Vec<Mark>,
    is_flying: bool,
    /// Settlements that have begun and ended.
    begun: u64,
    ended: u64,
    /// An ordered event waits for one of them.
    urgent: bool,
    /// No settlement before this, unless there is enough for one.
    rest: Option<Instant>,
    /// A timer is set for the end of the pause.
    is_awaited: bool,
}

pub enum Begin {
    /// With the accounts of the endpoints that are gone.
    Now(Settlement, Vec<(i64, Scope)>),
    /// Too early: look again then.
    At(Instant),
    Nothing,
}

impl Settler {
    pub fn push(&mut self, outcome: Outcome, mark: Mark) {
        self.urgent |= mark.record.is_some();
        self.outcomes.push_back(outcome);
        self.marks.push_back(mark);
    }

    /// Every endpoint has come so far that has no position of its own.
    pub fn place_head(&mut self, position: i64) {
        self.head = Some(position);
    }

    /// How far an endpoint has come; `None` when as far as the head.
    pub fn place(&mut self, endpoint: i64, position: Option<i64>) {
        self.positions.insert(endpoint, position);
    }

    /// The endpoint asked to be left alone until then.
    pub fn pause(&mut self, endpoint: i64, until: Timestamp) {
        self.pauses.insert(endpoint, until);
    }

    pub fn failures(&mut self, endpoint: i64, failures: Option<Failures>) {
        self.failures.insert(endpoint, failures);
    }

    /// The endpoint is gone, and what is kept of it goes, too.
    pub fn forget(&mut self, endpoint: i64, scope: Scope) {
        self.positions.remove(&endpoint);
        self.pauses.remove(&endpoint);
        self.failures.remove(&endpoint);
        self.gone.push((endpoint, scope));
    }

    /// Outcomes that are not durable yet.
    pub fn unsettled(&self) -> usize {
        self.marks.len() + self.flying.len()
    }

    pub fn is_idle(&self) -> bool {
        !self.is_flying && !self.has_news()
    }

    pub fn has_news(&self) -> bool {
        let nothing = self.head.is_none()
            && self.outcomes.is_empty()
            && self.positions.is_empty()
            && self.pauses.is_empty()
            && self.failures.is_empty()
            && self.gone.is_empty();
        !nothing
    }

    /// What is to be settled next, unless something is in flight or nothing is there. Many at a
    /// time cost a fraction of few: after one settlement the next waits a moment, until it is large
    /// or an ordered event or the shutdown waits for it.
    pub fn begin(&mut self, now: Instant, hurry: bool, limits: &Limits) -> Begin {
        if self.is_flying || !self.has_news() {
            return Begin::Nothing;
        }
        let enough = hurry || self.urgent || self.outcomes.len() >= limits.worth_settling;
        if let Some(rest) = self.rest
            && now < rest
            && !enough
        {
            return match std::mem::replace(&mut self.is_awaited, true) {
                true => Begin::Nothing,
                false => Begin::At(rest),
            };
        }
        self.rest = Some(now + limits.settle_rest);
        (self.is_flying, self.is_awaited, self.urgent) = (true, false, false);
        let count = fitting(&self.outcomes, limits);
        self.flying.extend(self.marks.drain(..count));
        let outcomes = self.outcomes.drain(..count).collect();
        let positions = std::mem::take(&mut self.positions).into_iter().collect();
        let pauses = std::mem::take(&mut self.pauses).into_iter().collect();
        let failures = std::mem::take(&mut self.failures).into_iter().collect();
        let (head, scopes) = (self.head.take(), std::mem::take(&mut self.gone));
        let gone = scopes.iter().map(|(endpoint, _)| *endpoint).collect();
        self.begun += 1;
        let leases = BTreeMap::new();
        let settlement = Settlement { outcomes, head, positions, pauses, failures, gone, leases };
        Begin::Now(settlement, scopes)
    }

    /// The number of the settlement with which everything but outcomes is durable that is known
    /// now.
    pub fn last_number(&self) -> u64 {
        self.begun + u64::from(self.has_news())
    }

    /// The number of the newest settlement that is durable.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether an outcome of these accounts is not durable yet.
    pub fn has_outcomes_of(&self, own: impl Fn(Scope) -> bool) -> bool {
        self.marks.iter().chain(&self.flying).any(|mark| own(mark.scope))
    }

    /// The buckets of accounts with outcomes that are not durable yet.
    pub fn buckets_with_outcomes(&self) -> BTreeSet<Bucket> {
        self.marks.iter().chain(&self.flying).map(|mark| bucket_of(mark.scope)).collect()
    }

    /// The settlement in flight is durable.
    pub fn end(&mut self) -> Vec<Mark> {
        self.is_flying = false;
        self.ended = self.begun;
        std::mem::take(&mut self.flying)
    }
}

/// How many outcomes one settlement takes: the first, and more within the limits.
fn fitting(outcomes: &VecDeque<Outcome>, limits: &Limits) -> usize {
    let mut bytes = 0;
    let fits = |outcome: &&Outcome| {
        let first = bytes == 0;
        bytes += OUTCOME_BYTES + outcome.attempt.as_ref().map_or(0, String::len);
        first || bytes <= limits.settlement_bytes
    };
    outcomes.iter().take(limits.settlement).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(settler: &mut Settler, seq: i64) {
        push_with(settler, seq, None);
    }

    fn push_with(settler: &mut Settler, seq: i64, attempt: Option<String>) {
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
            asked: 0,
            attempt,
        };
        let (status, scope) = (outcome.status, outcome.scope);
        let mark = Mark {
            owner: Owner::Queue(1),
            seq,
            scope,
            status,
            next: None,
            record: None,
            place: None,
        };
        settler.push(outcome, mark);
    }

    fn begun(begin: Begin) -> Option<Settlement> {
        match begin {
            Begin::Now(settlement, _) => Some(settlement),
            Begin::At(_) | Begin::Nothing => None,
        }
    }

    #[test]
    fn outcomes_are_collected_while_a_settlement_is_in_flight() {
        let limits = Limits { settlement: 2, worth_settling: 1, ..Limits::default() };
        let (mut settler, now) = (Settler::default(), Instant::now());
        assert!(begun(settler.begin(now, false, &limits)).is_none());
        (1..=3).for_each(|seq| push(&mut settler, seq));
        settler.place(1, Some(5));
        settler.place(1, Some(6));
        let first = begun(settler.begin(now, false, &limits)).unwrap();
        assert_eq!((first.outcomes.len(), first.positions), (2, vec![(1, Some(6))]));
        assert!(begun(settler.begin(now, false, &limits)).is_none());
        assert_eq!((settler.unsettled(), settler.is_idle()), (3, false));
        let seqs: Vec<_> = settler.end().iter().map(|mark| mark.seq).collect();
        assert_eq!((seqs, settler.unsettled()), (vec![1, 2], 1));
        assert_eq!(begun(settler.begin(now, false, &limits)).unwrap().outcomes[0].event, 3);
        settler.end();
        assert!(settler.is_idle());
    }

    #[test]
    fn a_settlement_has_a_limited_size_and_the_rest_follows() {
        let (limits, mut settler, now) = (Limits::default(), Settler::default(), Instant::now());
        (1..=600).for_each(|seq| push(&mut settler, seq));
        for expected in [256, 256] {
            let settlement = begun(settler.begin(now, false, &limits)).unwrap();
            assert_eq!(settlement.outcomes.len(), expected);
            settler.end();
        }
        let Begin::At(at) = settler.begin(now, false, &limits) else { panic!() };
        assert_eq!(begun(settler.begin(at, false, &limits)).unwrap().outcomes.len(), 88);
    }

    #[test]
    fn large_attempts_are_settled_a_few_at_a_time() {
        let limits = Limits { worth_settling: 1, ..Limits::default() };
        let (mut settler, now) = (Settler::default(), Instant::now());
        // The second is larger than a settlement, and gets one of its own.
        let sizes = [10, 3 << 20, 10].into_iter().chain(std::iter::repeat_n(64 << 10, 256));
        for (seq, size) in (1..).zip(sizes) {
            push_with(&mut settler, seq, Some("x".repeat(size)));
        }
        let mut counts = Vec::new();
        while let Some(settlement) = begun(settler.begin(now, true, &limits)) {
            let size = |outcome: &Outcome| outcome.attempt.as_ref().map_or(0, String::len);
            let bytes: usize = settlement.outcomes.iter().map(size).sum();
            let count = settlement.outcomes.len();
            assert!(bytes <= limits.settlement_bytes || count == 1, "{bytes} bytes in {count}");
            counts.push(count);
            settler.end();
        }
        assert_eq!(counts[..2], [1, 1]);
        assert_eq!((counts.iter().sum::<usize>(), counts.len()), (259, 11), "{counts:?}");
    }

    #[test]
    fn settlements_are_spaced_apart_to_fill_batches() {
        let limits = Limits { worth_settling: 3, ..Limits::default() };
        let (mut settler, now) = (Settler::default(), Instant::now());
        push(&mut settler, 1);
        assert!(begun(settler.begin(now, false, &limits)).is_some(), "the first waits for nobody");
        settler.end();
        push(&mut settler, 2);
        let Begin::At(at) = settler.begin(now, false, &limits) else { panic!() };
        assert!(matches!(settler.begin(now, false, &limits), Begin::Nothing), "told once");
        assert_eq!(begun(settler.begin(at, false, &limits)).unwrap().outcomes.len(), 1);
        settler.end();
        (3..=5).for_each(|seq| push(&mut settler, seq));
        assert_eq!(begun(settler.begin(at, false, &limits)).unwrap().outcomes.len(), 3);
        settler.end();
        push(&mut settler, 6);
        assert!(begun(settler.begin(at, false, &limits)).is_none());
        assert!(begun(settler.begin(at, true, &limits)).is_some(), "the end is in a hurry");
    }
}
