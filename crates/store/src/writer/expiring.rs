//! The writer's part in removing old events: slices that adapt to the time they take, and to a disk
//! that is full.

use super::{Backend, Writer};
use crate::{Error, Expired};
use model::Timestamp;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The number of rows adapts to the time that a slice may take, within these bounds: it is that of
/// events, and that of deliveries with their attempts. One event that has more goes in parts.
const EXPIRY_ROWS: (usize, usize) = (50, 1_000);
/// Rows of the next slice after one that the disk had no room for: what a delete writes before it
/// frees anything has to fit into the room that the log file keeps.
const EXPIRY_ROWS_FULL: usize = 10;
/// What is still to be delivered is looked for this often while events are removed; it only grows.
const NEEDED_FOR: Duration = Duration::from_secs(10);

/// What may be removed.
pub struct Expiry {
    pub moment: Timestamp,
    /// From before this also what some endpoint has not been delivered.
    pub backlog: Timestamp,
    /// Events, and deliveries with their attempts: no more of either in one slice.
    pub max: usize,
    /// The first event that some endpoint is still to be delivered, if that is known.
    pub needed: Option<i64>,
}

/// What was removed at once.
#[derive(Default)]
pub struct Slice {
    pub expired: Expired,
    /// How far the search indexes have come by it.
    pub searched: Option<i64>,
    /// The first event that some endpoint is still to be delivered, if that had to be known.
    pub needed: Option<i64>,
    /// An event is left that could go but for its deliveries: there are too many for one slice.
    pub unfinished: bool,
    /// It was as large as it was allowed to be.
    pub full: bool,
}

pub struct Expiring {
    /// The first event that is still to be delivered, as of a moment.
    needed: Option<(Instant, i64)>,
    /// Rows that are removed in one slice.
    rows: usize,
}

impl Expiring {
    pub fn new() -> Expiring {
        Expiring { needed: None, rows: EXPIRY_ROWS.0 }
    }

    /// An event that was done with may be needed again.
    pub fn forget_needed(&mut self) {
        self.needed = None;
    }
}

impl<B: Backend> Writer<B> {
    /// Removes events and tombstones that are too old: as many as a slice takes. Says too whether
    /// an event is removed in part.
    pub(super) fn expire(
        &mut self,
        moment: Timestamp,
        backlog: Timestamp,
        max: usize,
    ) -> Result<(Expired, bool), Error> {
        let known = self.expiring.needed.filter(|(at, _)| at.elapsed() < NEEDED_FOR);
        let max = max.min(self.expiring.rows);
        #[cfg(test)]
        let state = self.state.clone();
        let removed = self.alone(|backend| {
            #[cfg(test)]
            state.faults.strike("expire");
            let needed = known.map(|(_, needed)| needed);
            let began = Instant::now();
            let slice = backend.expire(&Expiry { moment, backlog, max, needed })?;
            Ok((slice, began.elapsed()))
        });
        if matches!(removed, Err(Error::Full)) {
            self.expiring.rows = EXPIRY_ROWS_FULL;
        }
        let (slice, took) = removed?;
        if let Some(searched) = slice.searched {
            self.state.search_position.store(searched, Ordering::Release);
        }
        self.backend.expired(slice.expired.events > 0 || slice.unfinished);
        if let (None, Some(needed)) = (known, slice.needed) {
            self.expiring.needed = Some((Instant::now(), needed));
        }
        let limit = self.backend.expiry_time();
        if took > limit {
            self.expiring.rows = (max / 2).max(EXPIRY_ROWS.0);
        } else if took < limit / 2 && slice.full && max == self.expiring.rows {
            self.expiring.rows = (max * 2).min(EXPIRY_ROWS.1);
        }
        Ok((slice.expired, slice.unfinished))
    }
}
