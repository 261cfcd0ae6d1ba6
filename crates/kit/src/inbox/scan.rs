//! Which pending events may be handed out: one of a resource at a time. A place moves through them
//! in the order of their times, so that a long queue of one resource is passed once and keeps no
//! other event waiting.

use super::file::{self, Place};
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};

/// Events that are looked at in one go: receipts wait for it.
const SLICE: usize = 2_000;

pub(super) struct Scan {
    /// What was due up to here is handed out, in progress, or passed.
    place: Place,
    /// Resources of events that were passed, because another one of theirs was in progress, each
    /// with the place before the first of those.
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
        let (mut picked, mut resources) = (Vec::new(), HashSet::new());
        let is_freed = |resource: &&String| !taken.resources.contains_key(*resource);
        let freed: Vec<String> = self.passed.keys().filter(is_freed).cloned().collect();
        for resource in freed {
            if picked.len() == wanted {
                return Ok((picked, Some(now)));
            }
            match file::next_of(file, &resource, self.passed[&resource], self.place)? {
                Some(place) => {
                    picked.push(place.number);
                    self.passed.insert(resource.clone(), place);
                    resources.insert(resource);
                }
                None => drop(self.passed.remove(&resource)),
            }
        }
        if picked.len() == wanted {
            return Ok((picked, Some(now)));
        }
        let mut looked = 0;
        let next = file::due(file, self.place, now, |place, resource| {
            looked += 1;
            self.place = place;
            let is_busy = resource.is_some_and(|resource| {
                taken.resources.contains_key(resource) || resources.contains(resource)
            });
            if let Some(resource) = resource.filter(|_| is_busy) {
                if !self.passed.contains_key(resource) {
                    self.passed.insert(resource.to_owned(), place.before());
                }
            } else if !taken.events.contains(&place.number) {
                picked.push(place.number);
                resources.extend(resource.map(str::to_owned));
            }
            picked.len() < wanted && looked < SLICE
        })?;
        Ok((picked, next))
    }
}
