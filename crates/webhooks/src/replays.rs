//! The unfinished replays of all accounts: which are in flight, which wait for their turn, and
//! which are looked at next. No operation depends on how many wait. Knows neither the store nor the
//! network.

use crate::replay::{Replay, Stage};
use model::Scope;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Replays by the numbers of their records: the oldest of a scope begins first.
pub struct Replays {
    all: HashMap<i64, Replay>,
    /// By the ids of their records.
    names: HashMap<(Scope, String), i64>,
    /// By the ids of their endpoints.
    endpoints: HashMap<(Scope, String), BTreeSet<i64>>,
    lines: HashMap<Scope, Line>,
    under_way: BTreeSet<i64>,
    ready: VecDeque<i64>,
    /// How many may be in flight in one scope.
    most: usize,
}

/// The replays of one scope.
#[derive(Default)]
struct Line {
    waiting: BTreeSet<i64>,
    under_way: usize,
}

impl Replays {
    pub fn new(most: usize) -> Replays {
        Replays {
            all: HashMap::new(),
            names: HashMap::new(),
            endpoints: HashMap::new(),
            lines: HashMap::new(),
            under_way: BTreeSet::new(),
            ready: VecDeque::new(),
            most,
        }
    }

    pub fn get(&self, number: i64) -> Option<&Replay> {
        self.all.get(&number)
    }

    pub fn get_mut(&mut self, number: i64) -> Option<&mut Replay> {
        self.all.get_mut(&number)
    }

    pub fn named(&self, scope: Scope, id: &str) -> Option<i64> {
        self.names.get(&(scope, id.to_owned())).copied()
    }

    /// Adds a replay, unless it is known, and lets it begin if there is room in its scope.
    pub fn add(&mut self, number: i64, replay: Replay) {
        if self.all.contains_key(&number) {
            return;
        }
        let scope = replay.scope;
        self.names.insert((scope, replay.id.clone()), number);
        self.endpoints.entry((scope, replay.endpoint.clone())).or_default().insert(number);
        self.lines.entry(scope).or_default().waiting.insert(number);
        self.all.insert(number, replay);
        self.admit(scope);
    }

    /// Removes a replay; the next one of its scope begins.
    pub fn remove(&mut self, number: i64) {
        let Some(replay) = self.all.remove(&number) else { return };
        let scope = replay.scope;
        self.names.remove(&(scope, replay.id));
        let endpoint = (scope, replay.endpoint);
        if let Some(its) = self.endpoints.get_mut(&endpoint) {
            its.remove(&number);
            if its.is_empty() {
                self.endpoints.remove(&endpoint);
            }
        }
        let was_under_way = self.under_way.remove(&number);
        if let Some(line) = self.lines.get_mut(&scope) {
            line.waiting.remove(&number);
            line.under_way -= usize::from(was_under_way);
            if line.under_way == 0 && line.waiting.is_empty() {
                self.lines.remove(&scope);
            }
        }
        self.admit(scope);
    }

    /// Removes all replays for which this holds.
    pub fn remove_where(&mut self, holds: impl Fn(&Replay) -> bool) {
        let found = self.all.iter().filter(|(_, replay)| holds(replay));
        for number in found.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove(number);
        }
    }

    /// Lets the oldest begin while there is room in their scope.
    fn admit(&mut self, scope: Scope) {
        while let Some(line) = self.lines.get_mut(&scope)
            && line.under_way < self.most
            && let Some(number) = line.waiting.first().copied()
        {
            self.begin(number);
        }
    }

    /// The replay waits no longer, whether there is room or not.
    pub fn begin(&mut self, number: i64) {
        let Some(replay) = self.all.get_mut(&number) else { return };
        if replay.stage == Stage::Waiting {
            replay.stage = Stage::Bounds;
            replay.dirty = true;
            self.under_way.insert(number);
            let line = self.lines.entry(replay.scope).or_default();
            line.waiting.remove(&number);
            line.under_way += 1;
            self.touch(number);
        }
    }

    /// What the next question of a replay has to bring at least.
    pub fn reserve(&self, number: i64) -> usize {
        self.all.get(&number).map_or(0, |replay| replay.reserve)
    }

    /// The replay is looked at in the next pass.
    pub fn touch(&mut self, number: i64) {
        if let Some(replay) = self.all.get_mut(&number)
            && !std::mem::replace(&mut replay.ready, true)
        {
            self.ready.push_back(number);
        }
    }

    /// Every replay for this endpoint is looked at in the next pass.
    pub fn touch_for(&mut self, scope: Scope, endpoint: &str) {
        let its = self.endpoints.get(&(scope, endpoint.to_owned()));
        for number in its.cloned().unwrap_or_default() {
            self.touch(number);
        }
    }

    /// The next one to look at.
    pub fn pop_ready(&mut self) -> Option<i64> {
        let number = self.ready.pop_front()?;
        if let Some(replay) = self.all.get_mut(&number) {
            replay.ready = false;
        }
        Some(number)
    }

    pub fn under_way(&self) -> Vec<i64> {
        self.under_way.iter().copied().collect()
    }

    /// Whether the progress of all running replays is stored.
    pub fn are_saved(&self) -> bool {
        self.are_saved_where(|_| true)
    }

    /// The same, of those for which this holds.
    pub fn are_saved_where(&self, holds: impl Fn(&Replay) -> bool) -> bool {
        let under_way = self.under_way.iter().filter_map(|number| self.all.get(number));
        under_way.filter(|replay| holds(replay)).all(|replay| !replay.saving && !replay.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::replay;
    use serde_json::json;

    fn numbered(number: i64, scope: i64, endpoint: &str) -> Replay {
        let mut made = replay(json!({ "status": "pending", "endpoint": endpoint })).unwrap();
        (made.id, made.scope) = (format!("rpl_{number}"), Scope(scope));
        made
    }

    #[test]
    fn each_scope_runs_a_few_replays_and_then_the_oldest_waiting_one() {
        let mut replays = Replays::new(2);
        for number in [7, 3, 5, 9] {
            replays.add(number, numbered(number, 20, "whk_1"));
            replays.add(number, numbered(number, 20, "whk_1"));
        }
        replays.add(6, numbered(6, 40, "whk_1"));
        assert_eq!(replays.under_way(), [3, 6, 7], "whichever came first");
        replays.remove(7);
        assert_eq!(replays.under_way(), [3, 5, 6]);
        // One that waits can be cancelled, too.
        replays.remove(replays.named(Scope(20), "rpl_9").unwrap());
        replays.remove(9);
        for number in [3, 5, 6] {
            replays.remove(number);
        }
        assert!(replays.all.is_empty() && replays.lines.is_empty());
        assert!(replays.names.is_empty() && replays.endpoints.is_empty());
        assert!(replays.under_way().is_empty() && replays.are_saved());
    }

    #[test]
    fn replays_are_found_by_their_endpoint_whether_they_wait_or_not() {
        let mut replays = Replays::new(1);
        for (number, endpoint) in [(1, "whk_1"), (2, "whk_2"), (3, "whk_1")] {
            replays.add(number, numbered(number, 20, endpoint));
        }
        replays.add(4, numbered(4, 40, "whk_1"));
        while replays.pop_ready().is_some() {}
        replays.touch_for(Scope(20), "whk_1");
        replays.touch_for(Scope(20), "whk_1");
        let ready: Vec<_> = std::iter::from_fn(|| replays.pop_ready()).collect();
        assert_eq!(ready, [1, 3]);
        // One that ends while it waits counts as in flight until it is saved.
        replays.begin(3);
        assert_eq!((replays.under_way(), replays.are_saved()), (vec![1, 3, 4], false));
    }

    #[test]
    fn thousands_of_waiting_replays_cost_as_little_as_a_few() {
        let mut replays = Replays::new(4);
        let begun = std::time::Instant::now();
        for number in 0..20_000 {
            replays.add(number, numbered(number, 20, "whk_1"));
        }
        for number in 0..20_000 {
            replays.remove(number);
        }
        // A pass over all of them for each would take a minute.
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
