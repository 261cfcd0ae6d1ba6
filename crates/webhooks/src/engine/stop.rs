//! The regular tick, and the shutdown: the engine starts nothing new, requests in flight may finish
//! for a while, and known outcomes become durable.

use super::Engine;
use crate::queue::RetryIndex;
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
        let until = Instant::now() + self.limits.drain;
        self.phase = Phase::Draining(until);
        self.timers.set(until, Alarm::End);
    }

    pub(super) fn wind_up(&mut self) -> StopProgress {
        match self.phase {
            Phase::Running => StopProgress::Still,
            Phase::Draining(_) if self.sends.len() == 0 => {
                self.close_down();
                StopProgress::Moved
            }
            Phase::Closing { until, placed } if self.settler.is_idle() => {
                if !placed {
                    // The outcomes of the end are durable: the positions go beyond them.
                    self.write_positions();
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
            Phase::Draining(_) | Phase::Closing { .. } => StopProgress::Still,
            Phase::Over => StopProgress::Over,
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
        self.ask_ages();
        self.tell_ages();
        self.tell_versions();
    }

    /// Writes how far the head has come, and every endpoint that has not come as far. Endpoints
    /// that keep up need no row: however many there are, they cost nothing.
    fn write_positions(&mut self) {
        let head = self.head.position();
        for (number, queue) in &mut self.queues {
            let position = queue.intake.position(head);
            let now = (position < head).then_some(position);
            if now != queue.intake.stored {
                queue.intake.stored = now;
                self.settler.place(*number, now);
            }
        }
        // Without endpoints the position of the head is not needed.
        if self.stored_head != Some(head) && !self.queues.is_empty() {
            self.stored_head = Some(head);
            self.settler.place_head(head);
        }
    }

    /// Writes the failures of endpoints where they have changed.
    fn write_failures(&mut self) {
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
