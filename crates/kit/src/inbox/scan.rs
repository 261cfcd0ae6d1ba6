//! Which pending events may be handed out: one of a resource at a time. A place moves through them
//! in the order of their times, so that a long queue of one resource is passed once and keeps no
//! other event waiting.

use super::file::{self, Place};
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};

/// Events that are looked at in one go, among those that were passed and among the others each:
/// receipts wait for it.
const SLICE: usize = 2_000;

pub(super) struct Scan {
    /// What was due up to here is handed out, in progress, or passed.
    place: Place,
    /// Resources of events that were passed, because another one of theirs was in progress, each
    /// with a place before the first of those: between the two there is none of the resource.
    passed: HashMap<String, Place>,
}

/// What workers have in their hands.
pub(super) struct Taken<'a> {
    pub events: &'a HashSet<i64>,
    pub resources: &'a HashMap<String, i64>,
}

/// Numbers of events that may be handed out, and when to look again; none if nothing is left.
pub(super) type Picked = (Vec<i64>, Option<i64>);

impl Scan {
    pub fn new() -> Scan {
        Scan { place: Place::START, passed: HashMap::new() }
    }

    /// At most `wanted` events. After an error the scan must begin anew.
    pub fn pick(
        &mut self,
        file: &Connection,
        taken: &Taken<'_>,
        wanted: usize,
        now: i64,
    ) -> rusqlite::Result<Picked> {
        let mut picked = Vec::new();
        let is_through = self.pick_passed(file, taken, wanted, &mut picked)?;
        if picked.len() == wanted {
            return Ok((picked, Some(now)));
        }
        let next = self.pick_others(file, taken, wanted, now, &mut picked)?;
        Ok((picked, if is_through { next } else { Some(now) }))
    }

    /// The next event of each resource that was passed and is free now, all of them in one walk
    /// from the oldest of their places. False if the slice ended before.
    fn pick_passed(
        &mut self,
        file: &Connection,
        taken: &Taken<'_>,
        wanted: usize,
        picked: &mut Vec<i64>,
    ) -> rusqlite::Result<bool> {
        let is_free = |resource: &&String| !taken.resources.contains_key(*resource);
        let mut free: HashSet<String> = self.passed.keys().filter(is_free).cloned().collect();
        let Some(begin) = free.iter().filter_map(|one| self.passed.get(one)).min().copied() else {
            return Ok(true);
        };
        let (passed, upto) = (&mut self.passed, self.place);
        let (mut left, mut reached) = (SLICE, begin);
        file::due(file, begin, upto.due, |place, resource| {
            if place > upto {
                return false;
            }
            (reached, left) = (place, left - 1);
            if let Some(resource) = resource
                && passed.get(resource).is_some_and(|known| place > *known)
                && free.remove(resource)
            {
                picked.push(place.number);
                passed.insert(resource.to_owned(), place);
            }
            !free.is_empty() && picked.len() < wanted && left > 0
        })?;
        if free.is_empty() {
            return Ok(true);
        }
        if picked.len() == wanted || left == 0 {
            // The next walk begins where this one has ended.
            for resource in free {
                let known = passed.entry(resource).or_insert(reached);
                *known = reached.max(*known);
            }
            return Ok(false);
        }
        // There is none of these.
        passed.retain(|resource, _| !free.contains(resource));
        Ok(true)
    }

    /// Events behind the place, which moves on.
    fn pick_others(
        &mut self,
        file: &Connection,
        taken: &Taken<'_>,
        wanted: usize,
        now: i64,
        picked: &mut Vec<i64>,
    ) -> rusqlite::Result<Option<i64>> {
        let (mut looked, mut resources) = (0, HashSet::new());
        file::due(file, self.place, now, |place, resource| {
            looked += 1;
            self.place = place;
            if let Some(resource) = resource {
                // Behind those that were passed: their order counts.
                if self.passed.contains_key(resource) {
                    return looked < SLICE;
                }
                if taken.resources.contains_key(resource) || resources.contains(resource) {
                    self.passed.insert(resource.to_owned(), place.before());
                    return looked < SLICE;
                }
            }
            if !taken.events.contains(&place.number) {
                picked.push(place.number);
                resources.extend(resource.map(str::to_owned));
            }
            picked.len() < wanted && looked < SLICE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Received;
    use crate::inbox::State;

    const NOW: i64 = 1_000;

    struct Subject {
        _folder: tempfile::TempDir,
        file: Connection,
        scan: Scan,
        events: HashSet<i64>,
        resources: HashMap<String, i64>,
    }

    impl Subject {
        fn new() -> Subject {
            let folder = tempfile::tempdir().unwrap();
            let file = file::open(&folder.path().join("inbox.db")).unwrap();
            let (events, resources) = (HashSet::new(), HashMap::new());
            Subject { _folder: folder, file, scan: Scan::new(), events, resources }
        }

        /// Stores an event of each resource.
        fn store(&self, resources: impl IntoIterator<Item = String>) {
            self.file.execute_batch("BEGIN").unwrap();
            for resource in resources {
                let number = self.file.last_insert_rowid() + 1;
                let body = format!(
                    r#"{{"id":"evt_{number}","type":"a.b","data":{{"object":{{"id":"{resource}"}}}}}}"#
                );
                let event = Received::read(body.into_bytes(), None).unwrap();
                file::store(&self.file, &event, NOW, true).unwrap();
            }
            self.file.execute_batch("COMMIT").unwrap();
        }

        /// Takes what is picked. Returns it, and whether to look again at once.
        fn pick(&mut self, wanted: usize) -> (Vec<i64>, bool) {
            let taken = Taken { events: &self.events, resources: &self.resources };
            let (picked, next) = self.scan.pick(&self.file, &taken, wanted, NOW).unwrap();
            for number in &picked {
                let select = "SELECT resource FROM events WHERE number = ?1";
                let resource = self.file.query_row(select, [number], |row| row.get(0)).unwrap();
                assert!(self.events.insert(*number), "{number} is handed out once");
                let other = self.resources.insert(resource, *number);
                assert_eq!(other, None, "{number} waits for the one before it");
            }
            (picked, next.is_some_and(|next| next <= NOW))
        }

        /// Looks until there is nothing left to be handed out.
        fn pick_all(&mut self, most_looks: usize) -> Vec<i64> {
            let mut all = Vec::new();
            for _ in 0..most_looks {
                let (picked, again) = self.pick(100);
                all.extend(picked);
                if !again {
                    return all;
                }
            }
            panic!("the scan has no end; so far {all:?}");
        }

        fn finish(&mut self, number: i64) {
            file::end(&self.file, number, State::Processed, NOW, None).unwrap();
            self.events.remove(&number);
            self.resources.retain(|_, taken| *taken != number);
        }
    }

    fn repeat(resource: &str, count: usize) -> impl Iterator<Item = String> {
        std::iter::repeat_n(resource.to_owned(), count)
    }

    #[test]
    fn a_search_behind_a_long_queue_is_bounded_and_keeps_the_order() {
        let mut subject = Subject::new();
        subject.store(repeat("quiet", 2).chain(repeat("hot", 3 * SLICE)).chain(repeat("quiet", 1)));
        let last = subject.file.last_insert_rowid();
        assert_eq!(subject.pick_all(9), [1, 3]);
        subject.finish(1);
        assert_eq!(subject.pick_all(9), [2]);
        subject.finish(2);
        subject.store(["quiet".to_owned(), "other".to_owned()]);
        // One slice does not reach the next one of its resource. The one after that stays behind
        // it, and other resources do not wait.
        assert_eq!(subject.pick(100), (vec![last + 2], true));
        assert_eq!(subject.pick(100), (vec![], true));
        assert_eq!(subject.pick_all(9), [last]);
        subject.finish(last);
        assert_eq!(subject.pick_all(9), [last + 1]);
        subject.finish(3);
        assert_eq!(subject.pick_all(9), [4]);
    }

    #[test]
    fn every_free_resource_behind_a_long_queue_has_its_turn() {
        const COUNT: i64 = 10;
        let names = || (0..COUNT).map(|number| format!("quiet_{number}"));
        let mut subject = Subject::new();
        let hot = repeat("hot", 2 * SLICE);
        subject.store(names().chain(names()).chain(hot).chain(names()).chain(names()));
        let last = subject.file.last_insert_rowid();
        let first: Vec<i64> = (1..=COUNT).chain([2 * COUNT + 1]).collect();
        assert_eq!(subject.pick_all(9), first);
        let starts = [1, COUNT + 1, last - 2 * COUNT + 1, last - COUNT + 1];
        for (start, next) in starts.into_iter().zip(&starts[1..]) {
            (start..start + COUNT).for_each(|number| subject.finish(number));
            // Together they look at the long queue once.
            let mut found = subject.pick_all(9);
            found.sort_unstable();
            assert_eq!(found, (*next..next + COUNT).collect::<Vec<_>>());
        }
        // Nothing more: the scan does not look at them again and again.
        assert_eq!(subject.pick(100), (vec![], false));
    }
}
