//! The writer's part in removing old events: slices that adapt to the time they take, and to a disk
//! that is full.

use super::Writer;
use crate::sqlite::cascade;
use crate::sqlite::retention::{self, Expiry, Sweep};
use crate::{Error, Expired};
use model::Timestamp;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long it may take to remove old events before the next commit has its turn. The number of
/// rows adapts to it, within these bounds: it is that of events, and that of deliveries with their
/// attempts. One event that has more goes in parts.
const EXPIRY_TIME: Duration = Duration::from_millis(4);
const EXPIRY_ROWS: (usize, usize) = (50, 1_000);
/// Rows of the next slice after one that the disk had no room for: what a delete writes before it
/// frees anything has to fit into the room that the log file keeps.
const EXPIRY_ROWS_FULL: usize = 10;
/// What is still to be delivered is looked for this often while events are removed; it only grows.
const NEEDED_FOR: Duration = Duration::from_secs(10);

pub struct Expiring {
    /// The first event that is still to be delivered, as of a moment.
    needed: Option<(Instant, i64)>,
    /// Rows that are removed in one slice.
    rows: usize,
    sweep: Sweep,
}

impl Expiring {
    pub fn new() -> Expiring {
        Expiring { needed: None, rows: EXPIRY_ROWS.0, sweep: Sweep::new() }
    }

    /// An event that was done with may be needed again.
    pub fn forget_needed(&mut self) {
        self.needed = None;
    }
}

impl Writer {
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
        let mut sweep = std::mem::replace(&mut self.expiring.sweep, Sweep::new());
        let removed = self.alone(|connection, shared| {
            #[cfg(test)]
            shared.faults.strike("expire");
            let needed = known.map(|(_, needed)| needed);
            let expiry = Expiry { moment, backlog, max, needed };
            let began = Instant::now();
            let slice = retention::expire(connection, shared, &expiry, &mut sweep)?;
            cascade::forget(connection, retention::oldest(connection)?, max)?;
            Ok((slice, began.elapsed()))
        });
        if matches!(removed, Err(Error::Full)) {
            self.expiring.rows = EXPIRY_ROWS_FULL;
        }
        let (slice, took) = removed?;
        if let Some(searched) = slice.searched {
            self.shared.search_position.store(searched, Ordering::Release);
        }
        sweep.went_on(slice.expired.events > 0 || slice.unfinished);
        self.expiring.sweep = sweep;
        if let (None, Some(needed)) = (known, slice.needed) {
            self.expiring.needed = Some((Instant::now(), needed));
        }
        if took > EXPIRY_TIME {
            self.expiring.rows = (max / 2).max(EXPIRY_ROWS.0);
        } else if took < EXPIRY_TIME / 2 && slice.full && max == self.expiring.rows {
            self.expiring.rows = (max * 2).min(EXPIRY_ROWS.1);
        }
        Ok((slice.expired, slice.unfinished))
    }
}
