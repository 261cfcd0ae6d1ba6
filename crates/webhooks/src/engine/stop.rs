//! The regular look around, and the end: nothing new is begun, what is under way may finish for a
//! while, what is known becomes durable.

use super::Engine;
use crate::lane::Census;
use crate::timers::Alarm;
use model::Timestamp;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

pub enum Phase {
    Running,
    /// Requests may still come back, until then.
    Draining(Instant),
    /// Outcomes may still become durable, until then; the positions come last.
    Closing {
        until: Instant,
        placed: bool,
    },
    Over,
}

/// Whether the end came nearer.
pub enum Winding {
    Still,
    Moved,
    Over,
}

impl Engine {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    pub(super) fn drain(&mut self) {
        let until = Instant::now() + self.limits.drain;
        self.phase = Phase::Draining(until);
        self.timers.set(until, Alarm::End);
    }

    pub(super) fn wind_up(&mut self) -> Winding {
        match self.phase {
            Phase::Running => Winding::Still,
            Phase::Draining(_) if self.sends.len() == 0 => {
                self.close_down();
                Winding::Moved
            }
            Phase::Closing { until, placed } if self.settler.is_idle() => {
                if !placed {
                    // The outcomes of the end are durable: the positions go beyond them.
                    self.write_positions();
                    self.write_failures();
                    self.save_replays();
                    self.phase = Phase::Closing { until, placed: true };
                    return Winding::Moved;
                }
                if !self.replays.are_saved() {
                    return Winding::Still;
                }
                self.journal.close();
                Winding::Over
            }
            Phase::Draining(_) | Phase::Closing { .. } => Winding::Still,
            Phase::Over => Winding::Over,
        }
    }

    pub(super) fn give_up(&mut self) {
        match self.phase {
            Phase::Draining(until) if self.clock.now >= until => {
                // Without an outcome they are sent again after the next start.
                self.sends.clear();
                self.close_down();
            }
            Phase::Closing { until, .. } if self.clock.now >= until => {
                tracing::warn!(
                    outcomes = self.settler.unsettled(),
                    "webhooks: stopped before all outcomes were durable"
                );
                self.phase = Phase::Over;
            }
            // It rang a moment early.
            Phase::Draining(until) | Phase::Closing { until, .. } => {
                self.timers.set(until, Alarm::End);
            }
            Phase::Running | Phase::Over => {}
        }
    }

    fn close_down(&mut self) {
        let until = self.clock.now + self.limits.drain;
        self.phase = Phase::Closing { until, placed: false };
        self.timers.set(until, Alarm::End);
    }

    pub(super) fn tick(&mut self) {
        self.timers.set(self.clock.now + self.limits.tick, Alarm::Tick);
        self.write_positions();
        self.write_failures();
        self.filter_time.forget(self.clock.now);
        let steady = self.clock.steady;
        let mut awake = Vec::new();
        for (number, lane) in &mut self.lanes {
            // The wall clock may have been set ahead.
            let due = lane.due.is_some_and(|due| due <= steady);
            if lane.census == Census::Partial {
                lane.census = Census::Needed;
            }
            if due || lane.census == Census::Needed {
                awake.push(*number);
            }
        }
        for number in awake {
            self.touch(number);
        }
        // A place may have come back without a request that ended, by an endpoint that is gone.
        self.thin_crowd();
        self.save_replays();
        self.ask_ages();
        self.tell_ages();
        self.tell_versions();
    }

    /// Writes how far the head has come, and every endpoint that has not come as far. Endpoints
    /// that keep up need no row: however many there are, they cost nothing.
    fn write_positions(&mut self) {
        let head = self.head.position();
        for (number, lane) in &mut self.lanes {
            let position = lane.position(head);
            let now = (position < head).then_some(position);
            if now != lane.stored {
                lane.stored = now;
                self.settler.place(*number, now);
            }
        }
        // Without endpoints there is nobody whose position it would be.
        if self.stored_head != Some(head) && !self.lanes.is_empty() {
            self.stored_head = Some(head);
            self.settler.place_head(head);
        }
    }

    /// Writes the failures of endpoints where they have changed.
    fn write_failures(&mut self) {
        for (number, lane) in &mut self.lanes {
            if std::mem::take(&mut lane.health_changed) {
                let failures = lane.health.failures(lane.pace.failures());
                if failures.is_some() || lane.has_stored_failures {
                    lane.has_stored_failures = failures.is_some();
                    self.settler.failures(*number, failures);
                }
            }
        }
    }

    /// What waits for a retry is known to the store alone.
    fn ask_ages(&mut self) {
        for lane in self.lanes.values_mut().filter(|lane| !lane.has_retries()) {
            lane.oldest_retry = None;
        }
        let with_retries = self.lanes.iter().filter(|(_, lane)| lane.has_retries());
        let asked: Rc<[i64]> = with_retries.map(|(number, _)| *number).collect();
        if !self.asking_ages && !asked.is_empty() {
            self.asking_ages = true;
            self.chores.waiting(asked);
        }
    }

    pub(super) fn got_waiting(&mut self, asked: &[i64], oldest: &[(i64, Timestamp)]) {
        self.asking_ages = false;
        for number in asked {
            if let Some(lane) = self.lanes.get_mut(number) {
                lane.oldest_retry = None;
            }
        }
        for (number, time) in oldest {
            if let Some(lane) = self.lanes.get_mut(number) {
                lane.oldest_retry = Some(*time);
            }
        }
    }

    fn tell_ages(&self) {
        let now = self.clock.steady.0;
        let waiting = self.lanes.values().filter_map(|lane| {
            let age = now.saturating_sub(lane.oldest()?.0);
            Some((age, lane))
        });
        let mut ages: Vec<_> = waiting.collect();
        let told = self.limits.told_lanes;
        if ages.len() > told {
            ages.select_nth_unstable_by_key(told, |(age, _)| std::cmp::Reverse(*age));
            ages.truncate(told);
        }
        ages.sort_unstable_by_key(|(age, _)| std::cmp::Reverse(*age));
        let ages = ages.into_iter().map(|(age, lane)| {
            let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
            (lane.endpoint.id.clone(), age)
        });
        self.metrics.waiting(ages.collect());
    }

    /// Deliveries are no requests: whether an old version can go, these figures have to tell.
    fn tell_versions(&self) {
        let mut spoken: Vec<(String, usize)> =
            self.versions.iter().map(|view| (view.date.clone(), 0)).collect();
        for lane in self.lanes.values().filter(|lane| lane.enabled) {
            spoken[lane.version].1 += 1;
        }
        self.metrics.spoken(spoken);
    }
}
