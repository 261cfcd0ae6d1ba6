//! Handles finished requests: decides the outcome, queues it to be stored, and completes the
//! delivery once the outcome is durable.

use super::Engine;
use super::head::is_ping;
use crate::attempt::{Attempt, Trigger};
use crate::journal::Place;
use crate::outcome::{Answer, AttemptVerdict, Plan, judge};
use crate::queue::{Job, Known};
use crate::scope_figures::MINUTE_MS;
use crate::send::{Finished, SendResult};
use crate::settle::{Begin, Mark, Owner};
use crate::timers::Alarm;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use model::Scope;
use model::webhook::Endpoint;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use store::{Outcome, Status};
use wire::outgoing::{OutgoingFault, Report, Timing};

const CONTROL: &str = "webhook-delivery";

/// What a result looks like from outside.
#[derive(Default)]
struct View<'a> {
    answer: Answer<'a>,
    status: Option<u16>,
    error: Option<(&'a str, Cow<'a, str>)>,
    timing: Option<Timing>,
    remote: Option<SocketAddr>,
    headers: Option<&'a HeaderMap>,
    body: Option<&'a [u8]>,
}

impl Engine {
    pub(super) fn finished(&mut self, finished: Finished) {
        match finished.owner {
            Owner::Queue(number) => self.finished_in_queue(number, finished),
            Owner::Replay { number, endpoint } => {
                self.finished_in_replay(number, endpoint, finished)
            }
        }
        self.wake_blocked();
    }

    fn finished_in_queue(&mut self, number: i64, finished: Finished) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        queue.sending.in_flight -= 1;
        let endpoint = queue.endpoint.clone();
        let (counts, started) = (finished.job.counts, finished.started);
        let verdict = self.conclude(&endpoint, finished);
        let (now, time) = (self.clock.now, self.clock.steady);
        let Some(queue) = self.queues.get_mut(&number) else { return };
        if let Some(pause) = verdict.pause {
            queue.sending.pace.pause(pause, now);
            // A restart keeps it.
            self.settler.pause(number, time.plus(pause));
        }
        queue.condition.health_changed |= counts;
        let mut remark = None;
        let counts = counts && queue.enabled;
        if counts && verdict.status == Status::Succeeded {
            queue.sending.pace.succeeded();
            remark = queue.condition.health.succeeded(queue.condition.failing_since);
        } else if counts {
            queue.sending.pace.failed(started, now, &self.limits);
            let failures = queue.sending.pace.failures();
            remark = queue.condition.health.failed(
                queue.condition.failing_since,
                failures,
                time,
                &self.limits,
            );
        }
        if queue.sending.pace.closed_until(now).is_some() {
            // Others can use the room until it may be sent to again.
            queue.give_back();
        }
        match verdict.disable {
            Some(reason) => self.disable(number, reason.to_owned()),
            None => self.remark(number, remark),
        }
        self.touch(number);
    }

    /// Decides the outcome of a request and queues it to be stored.
    pub(super) fn conclude(&mut self, endpoint: &Endpoint, finished: Finished) -> AttemptVerdict {
        let Finished { owner, job, result, created, .. } = finished;
        let view = View::of(&result);
        if let SendResult::Sent(report) = &result
            && let Err(OutgoingFault::Forbidden(address)) = &report.result
        {
            let endpoint = &endpoint.id;
            tracing::warn!(%endpoint, %address, "webhooks: an endpoint's host has this address");
        }
        let (id, number, before) = self.row(job.known.as_ref());
        let plan = Plan {
            // An attempt of a replay is no step of the schedule.
            attempts: if job.trigger == Trigger::Replay { 1 } else { before + 1 },
            schedule: match is_ping(&self.schema, &job.event.event) {
                // A ping is not retried: its client wants the outcome at once.
                true => &[],
                false => &endpoint.retry_schedule,
            },
            pause_floor: self.limits.pause_floor,
            chance: self.ids.chance(),
            now: self.clock.steady,
            wall: self.clock.wall,
        };
        let mut verdict = judge(&view.answer, &plan);
        if job.trigger == Trigger::Replay && verdict.status == Status::Pending {
            self.leave_to_schedule(&mut verdict, job.known.as_ref());
        }
        self.tell(&view, &verdict, endpoint.scope);
        let attempt = Attempt {
            delivery: &id,
            number: before + 1,
            trigger: job.trigger,
            status: view.status,
            error: view.error.as_ref().map(|(class, message)| (*class, &**message)),
            timing: view.timing,
            remote: view.remote,
            headers: view.headers,
            body: view.body,
            next: verdict.next.zip(verdict.reason),
            created: &created,
            updated: &self.clock.iso(),
        };
        let attempt = match self.loaded.is_erased(&job.event.event) {
            // What the receiver answered may repeat what was erased.
            true => Attempt { body: None, headers: None, ..attempt }.text(&self.limits),
            false => attempt.text(&self.limits),
        };
        let outcome = Outcome {
            scope: endpoint.scope,
            endpoint: endpoint.number,
            event: job.event.event.seq,
            id,
            number,
            status: verdict.status,
            attempts: before + 1,
            next: verdict.next,
            now: self.clock.steady,
            asked: job.known.as_ref().map_or(0, |known| known.asked),
            attempt: Some(attempt),
        };
        let mark = Mark {
            owner,
            seq: outcome.event,
            scope: outcome.scope,
            status: verdict.status,
            next: verdict.next,
            record: endpoint.ordered.then(|| job.event.event.record.clone()),
            place: self.note(&outcome, &job.event.event.id),
        };
        self.settler.push(outcome, mark);
        verdict
    }

    /// Writes an outcome into the journal, with the fence under which it was made.
    fn note(&mut self, outcome: &Outcome, event: &str) -> Place {
        let fence = self.buckets.lease(outcome.scope).map(|lease| lease.fence);
        self.journal.note(outcome, event, fence)
    }

    /// A failed replay starts no retry schedule, and delays no retry that is scheduled.
    fn leave_to_schedule(&self, verdict: &mut AttemptVerdict, known: Option<&Known>) {
        let Some(known) = known.filter(|known| known.status == Status::Pending) else {
            (verdict.status, verdict.next, verdict.reason) = (Status::Failed, None, None);
            return;
        };
        // A retry that became due in the meantime may have been sent: wait as after that attempt.
        if let Some(next) = known.next.filter(|next| *next > self.clock.steady) {
            verdict.next = Some(next);
        }
    }

    fn tell(&self, view: &View<'_>, verdict: &AttemptVerdict, scope: Scope) {
        if let Some(timing) = &view.timing {
            self.metrics.took(timing.total);
        }
        match verdict.status {
            Status::Succeeded => self.metrics.succeeded.fetch_add(1, Relaxed),
            Status::Failed => {
                self.metrics.failed.fetch_add(1, Relaxed);
                self.metrics.failed_attempts.fetch_add(1, Relaxed)
            }
            Status::Pending | Status::Skipped => self.metrics.failed_attempts.fetch_add(1, Relaxed),
        };
        if matches!(verdict.status, Status::Succeeded | Status::Failed) {
            let succeeded = verdict.status == Status::Succeeded;
            self.metrics.by_scope.settled(scope, self.clock.steady.0 / MINUTE_MS, succeeded);
        }
    }

    /// Records a delivery that is not made: its endpoint is disabled.
    pub(super) fn skip(&mut self, number: i64, job: Job) {
        let seq = job.event.event.seq;
        self.record_skipped(Owner::Queue(number), seq, job.known.as_ref(), None);
    }

    /// Records a delivery that is not made because the endpoint's filter cannot judge the event.
    pub(super) fn unfiltered(
        &mut self,
        owner: Owner,
        seq: i64,
        known: Option<&Known>,
        reason: &str,
    ) {
        self.record_skipped(owner, seq, known, Some(("filter", reason)));
    }

    fn record_skipped(
        &mut self,
        owner: Owner,
        seq: i64,
        known: Option<&Known>,
        error: Option<(&str, &str)>,
    ) {
        let (endpoint, trigger) = match owner {
            Owner::Queue(endpoint) => (endpoint, Trigger::Event),
            Owner::Replay { endpoint, .. } => (endpoint, Trigger::Replay),
        };
        let Some(queue) = self.queues.get(&endpoint) else { return };
        let scope = queue.endpoint.scope;
        let asked = known.map_or(0, |known| known.asked);
        let (id, row, before) = self.row(known);
        // A replay cancels no retry that the schedule has still to make.
        let scheduled = known
            .filter(|known| trigger == Trigger::Replay && known.status == Status::Pending)
            .and_then(|known| known.next);
        let status = if scheduled.is_some() { Status::Pending } else { Status::Skipped };
        let iso = self.clock.iso();
        let attempt = error.map(|error| {
            let attempt = Attempt {
                delivery: &id,
                number: before + 1,
                trigger,
                status: None,
                error: Some(error),
                timing: None,
                remote: None,
                headers: None,
                body: None,
                next: None,
                created: &iso,
                updated: &iso,
            };
            attempt.text(&self.limits)
        });
        let mark = Mark { owner, seq, scope, status, next: scheduled, record: None, place: None };
        let outcome = Outcome {
            scope,
            endpoint,
            event: seq,
            id,
            number: row,
            status,
            attempts: before + u32::from(attempt.is_some()),
            next: scheduled,
            now: self.clock.steady,
            asked,
            attempt,
        };
        if status == Status::Skipped {
            self.metrics.skipped.fetch_add(1, Relaxed);
        }
        self.settler.push(outcome, mark);
    }

    /// Id, row and attempts so far of a delivery.
    fn row(&mut self, known: Option<&Known>) -> (String, Option<i64>, u32) {
        match known {
            Some(known) => (known.id.clone(), Some(known.number), known.attempts),
            None => (self.ids.delivery(self.clock.steady), None, 0),
        }
    }

    pub(super) fn settle(&mut self) {
        let hurry = !self.is_running();
        match self.settler.begin(self.clock.now, hurry, &self.limits) {
            Begin::Now(mut settlement, gone) => {
                self.fence(&mut settlement, &gone);
                self.tasks.settle(settlement);
            }
            Begin::At(at) => self.timers.set(at, Alarm::Settle),
            Begin::Nothing => {}
        }
    }

    pub(super) fn settled(&mut self) {
        for mark in self.settler.end() {
            self.journal.settled(mark.place);
            match mark.owner {
                Owner::Replay { number, endpoint } => {
                    self.settled_in_replay(number, endpoint, &mark);
                }
                Owner::Queue(number) => {
                    let Some(queue) = self.queues.get_mut(&number) else { continue };
                    queue.settled(&mark);
                    if mark.next.is_some() || queue.retries.requested || queue.endpoint.ordered {
                        self.touch(number);
                    }
                }
            }
        }
        self.end_settling();
    }
}

impl<'a> View<'a> {
    fn of(result: &'a SendResult) -> View<'a> {
        match result {
            SendResult::Unsent(broken) => View {
                error: Some((broken.class, Cow::Borrowed(broken.message.as_str()))),
                ..View::default()
            },
            SendResult::Sent(report) => View::of_report(report),
        }
    }

    fn of_report(report: &'a Report) -> View<'a> {
        let reply = report.result.as_ref().ok().or(report.partial.as_deref());
        let status = reply.map(|reply| reply.status.as_u16());
        let header = |name: &str| {
            let value = reply.and_then(|reply| reply.headers.get(name));
            value.and_then(|value| value.to_str().ok())
        };
        let error = match (&report.result, status) {
            // Only the operator may know the address: it is in the log.
            (Err(fault @ OutgoingFault::Forbidden(_)), _) => {
                Some((fault.class(), Cow::Borrowed("the host has an address that is not called")))
            }
            (Err(fault), _) => Some((fault.class(), Cow::Owned(fault.to_string()))),
            (Ok(_), Some(200..=299)) => None,
            (Ok(reply), _) => {
                let class = if reply.status.is_redirection() { "redirect" } else { "status" };
                Some((class, Cow::Owned(format!("answered {}", reply.status))))
            }
        };
        // A broken answer decides nothing, whatever its head said.
        let answer = match report.result {
            Ok(_) => Answer {
                status,
                retry_after: header(RETRY_AFTER.as_str()),
                control: header(CONTROL),
            },
            Err(_) => Answer::default(),
        };
        View {
            answer,
            status,
            error,
            timing: Some(report.timing),
            remote: report.remote,
            headers: reply.map(|reply| &reply.headers),
            body: reply.map(|reply| &*reply.body),
        }
    }
}
