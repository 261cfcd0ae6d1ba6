//! The regular tick, and the shutdown: the engine starts nothing new, requests in flight may finish
//! for a while, and known outcomes become durable.

use super::Engine;
use crate::positions::{Place, plan};
use crate::queue::{Feed, RetryIndex};
use crate::scope_figures::MINUTE_MS;
use crate::timers::Alarm;
use model::{Scope, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;
use store::cluster::{Bucket, bucket_of, head_of};
use tokio::time::Instant;

pub enum Phase {
    Running,
    /// Requests may still come back, until then. The head and endpoints that enable nothing new may
    /// come to the newest event, until `looking`.
    Draining {
        until: Instant,
        looking: Instant,
    },
    /// Outcomes may still become durable, until then; the positions come last.
    Closing {
        until: Instant,
        placed: bool,
    },
    Over,
}

/// Whether a step of the shutdown made progress.
pub enum StopProgress {
    Still,
    Moved,
    Over,
}

impl Engine {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    pub(super) fn drain(&mut self) {
        let now = Instant::now();
        let until = now + self.limits.drain;
        let looking = now + self.limits.stop_search.min(self.limits.drain);
        self.phase = Phase::Draining { until, looking };
        self.timers.set(looking, Alarm::End);
        let behind = self.queues.iter().filter(|(_, queue)| queue.intake.feed == Feed::Behind);
        for number in behind.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.search(number);
        }
    }

    /// Whether a stop waits for endpoints that enable nothing new to come to the newest event.
    pub(super) fn is_looking(&self) -> bool {
        let Phase::Draining { looking, .. } = self.phase else { return false };
        let is_done = self.is_head_at_newest() && self.searches.is_idle();
        !is_done && !self.queues.is_empty() && self.clock.now < looking
    }

    pub(super) fn wind_up(&mut self) -> StopProgress {
        match self.phase {
            Phase::Running => StopProgress::Still,
            Phase::Draining { .. } if self.sends.len() == 0 && !self.is_looking() => {
                self.close_down();
                StopProgress::Moved
            }
            Phase::Closing { until, placed } if self.settler.is_idle() => {
                if !placed {
                    // The outcomes of the end are durable: the positions go beyond them.
                    self.write_positions(usize::MAX);
                    self.write_failures();
                    self.save_replays();
                    self.phase = Phase::Closing { until, placed: true };
                    return StopProgress::Moved;
                }
                if !self.replays.are_saved() {
                    return StopProgress::Still;
                }
                self.journal.close();
                StopProgress::Over
            }
            Phase::Draining { .. } | Phase::Closing { .. } => StopProgress::Still,
            Phase::Over => StopProgress::Over,
        }
    }

    pub(super) fn give_up(&mut self) {
        match self.phase {
            Phase::Draining { until, .. } if self.clock.now >= until => {
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
            // It rang a moment early, or for the end of the search.
            Phase::Draining { until, .. } | Phase::Closing { until, .. } => {
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
        self.write_positions(self.limits.position_rows);
        self.write_failures();
        self.evaluation_time.forget(self.clock.now);
        let steady = self.clock.steady;
        let mut awake = Vec::new();
        for (number, queue) in &mut self.queues {
            // The wall clock may have been set ahead.
            let due = queue.retries.due.is_some_and(|due| due <= steady);
            if queue.intake.census == RetryIndex::Partial {
                queue.intake.census = RetryIndex::Needed;
            }
            if due || queue.intake.census == RetryIndex::Needed {
                awake.push(*number);
            }
        }
        for number in awake {
            self.touch(number);
        }
        // A place may have come back without a request that ended, by an endpoint that is gone.
        self.wake_blocked();
        self.save_replays();
        // A client may have requested a retry at another node.
        if !self.buckets.is_all() && self.is_running() && !self.asking_for_asked {
            self.look_for_asked();
        }
        self.ask_ages();
        self.tell_ages();
        self.tell_versions();
    }

    /// Writes how far the head has come, and endpoints that have not come as far: `most` of them.
    /// Endpoints that keep up need no row: however many there are, they cost nothing.
    pub(super) fn write_positions(&mut self, most: usize) {
        if !self.buckets.is_all() {
            return self.write_positions_by_bucket(most);
        }
        let head = self.head.position();
        let places = self.queues.iter().map(|(number, queue)| Place {
            endpoint: *number,
            position: queue.intake.position(head),
            stored: queue.intake.stored,
        });
        let plan = plan(places, head, most);
        for (number, row) in plan.rows {
            if let Some(queue) = self.queues.get_mut(&number) {
                queue.intake.stored = row;
                self.settler.place(number, row);
            }
        }
        // Without endpoints the position of the head is not needed.
        if self.stored_head != Some(plan.head) && !self.queues.is_empty() {
            self.stored_head = Some(plan.head);
            self.settler.place_head(plan.head);
        }
    }

    /// Where each bucket may move to another node, each has a head of its own.
    fn write_positions_by_bucket(&mut self, mut most: usize) {
        let head = self.head.position();
        let mut places: BTreeMap<Bucket, Vec<Place>> = BTreeMap::new();
        for (number, queue) in &self.queues {
            places.entry(bucket_of(queue.endpoint.scope)).or_default().push(Place {
                endpoint: *number,
                position: queue.intake.position(head),
                stored: queue.intake.stored,
            });
        }
        for (bucket, places) in places {
            let plan = plan(places.into_iter(), head, most);
            most = most.saturating_sub(plan.rows.len());
            for (number, row) in plan.rows {
                if let Some(queue) = self.queues.get_mut(&number) {
                    queue.intake.stored = row;
                    self.settler.place(number, row);
                }
            }
            if self.buckets.heads.insert(bucket, plan.head) != Some(plan.head) {
                self.settler.place(head_of(bucket), Some(plan.head));
            }
        }
    }

    /// Writes the failures of endpoints where they have changed.
    pub(super) fn write_failures(&mut self) {
        for (number, queue) in &mut self.queues {
            if std::mem::take(&mut queue.condition.health_changed) {
                let failures = queue.condition.health.failures(queue.sending.pace.failures());
                if failures.is_some() || queue.condition.has_stored_failures {
                    queue.condition.has_stored_failures = failures.is_some();
                    self.settler.failures(*number, failures);
                }
            }
        }
    }

    /// What waits for a retry is known to the store alone.
    fn ask_ages(&mut self) {
        for queue in self.queues.values_mut().filter(|queue| !queue.has_retries()) {
            queue.retries.oldest = None;
        }
        let with_retries = self.queues.iter().filter(|(_, queue)| queue.has_retries());
        let asked: Rc<[i64]> = with_retries.map(|(number, _)| *number).collect();
        if !self.asking_ages && !asked.is_empty() {
            self.asking_ages = true;
            self.tasks.waiting(asked);
        }
    }

    pub(super) fn got_waiting(&mut self, asked: &[i64], oldest: &[(i64, Timestamp)]) {
        self.asking_ages = false;
        for number in asked {
            if let Some(queue) = self.queues.get_mut(number) {
                queue.retries.oldest = None;
            }
        }
        for (number, time) in oldest {
            if let Some(queue) = self.queues.get_mut(number) {
                queue.retries.oldest = Some(*time);
            }
        }
    }

    fn tell_ages(&self) {
        let now = self.clock.steady.0;
        let mut by_scope: HashMap<Scope, (usize, Duration)> = HashMap::new();
        for queue in self.queues.values() {
            let Some(oldest) = queue.oldest() else { continue };
            let age = u64::try_from(now.saturating_sub(oldest.0)).unwrap_or(0);
            let (count, oldest) = by_scope.entry(queue.endpoint.scope).or_default();
            *count += queue.intake.open.len();
            *oldest = Duration::from_millis(age).max(*oldest);
        }
        self.metrics.by_scope.waiting(now / MINUTE_MS, by_scope);
        let waiting = self.queues.values().filter_map(|queue| {
            let age = now.saturating_sub(queue.oldest()?.0);
            Some((age, queue))
        });
        let mut ages: Vec<_> = waiting.collect();
        let told = self.limits.reported_endpoints;
        if ages.len() > told {
            ages.select_nth_unstable_by_key(told, |(age, _)| std::cmp::Reverse(*age));
            ages.truncate(told);
        }
        ages.sort_unstable_by_key(|(age, _)| std::cmp::Reverse(*age));
        let ages = ages.into_iter().map(|(age, queue)| {
            let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
            (queue.endpoint.id.clone(), age)
        });
        self.metrics.waiting(ages.collect());
    }

    /// Deliveries are not counted as requests. These figures show whether an old version is still
    /// in use.
    fn tell_versions(&self) {
        let mut spoken: Vec<(String, usize)> =
            self.versions.iter().map(|view| (view.date.clone(), 0)).collect();
        for queue in self.queues.values().filter(|queue| queue.enabled) {
            spoken[queue.version].1 += 1;
        }
        self.metrics.spoken(spoken);
    }
}
