//! From writes to rows: `needs → load → decide → effects → write`. A backend implements
//! `Rows`, which loads and writes. Everything between is here and knows no database.
//!
//! A backend chooses how many writes it loads at once. If a round trip is a function call, it loads
//! and writes them one by one: the loads of a write see the effects of the one before. A backend
//! behind a network loads a whole batch. The batch is decided over an `Overlay` of the effects so
//! far, and all effects are written at once.

mod cascade;
mod effects;
pub mod erasure;
mod needs;
mod overlay;
mod unique;

pub use cascade::{By, Dependent, Dependents};
pub use effects::{Effect, Put, timer_set_aside};
pub use needs::{Claim, Facts, Limit, Needs};

use crate::idempotency::{self, Answer};
use crate::rendering::DeliveryRow;
use crate::{Error, Remembered};
use effects::{Effects, timer_removed};
use model::decide::{self, Decision, Effect as Decided};
use model::schema::Builtin;
use model::version::Versions;
use model::write::{Callout, Change, Committed, Response};
use model::{Code, CollectionIx, Problem, Record, Schema, Scope, Timestamp, Violation, Write};
use overlay::{Lookup, Overlay};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use unique::Known;

/// The result of one write, as its caller gets it.
pub type WriteResult = Result<Result<Committed, Problem>, Error>;

/// The result of one write, and how long it took, but for what was loaded for several.
#[derive(Debug)]
pub struct Applied {
    pub outcome: WriteResult,
    pub took: Duration,
}

/// What the writes of one transaction may take together, where several are loaded at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub time: Duration,
    /// Of what is written.
    pub bytes: usize,
}

/// Loads and writes inside one transaction.
pub trait Rows {
    /// How many writes are loaded at once. With 1, `write` follows each load, and effects are
    /// visible to the next load.
    fn batch(&self) -> usize;

    /// The facts for these needs, in their order.
    fn load(&mut self, needs: &[Needs<'_>]) -> Result<Vec<Facts>, Error>;

    /// Which of these records exist.
    fn exist(&mut self, scope: Scope, named: &[(CollectionIx, &str)]) -> Result<Vec<bool>, Error>;

    /// For each claim the number of the record that has the value.
    fn holders(&mut self, claims: &[Claim]) -> Result<Vec<Option<i64>>, Error>;

    fn dependents(&mut self, wanted: &Dependents<'_>) -> Result<Vec<Dependent>, Error>;

    /// One record, after the effects so far were written.
    fn record(
        &mut self,
        scope: Scope,
        collection: CollectionIx,
        id: &str,
    ) -> Result<Option<Record>, Error>;

    /// Carries out effects in their order.
    fn write(&mut self, effects: &[Effect]) -> Result<Written, Error>;
}

/// What became of effects.
#[derive(Debug)]
pub enum Written {
    Done,
    /// The first effect breaks a unique index, as the source says. Nothing was written.
    Conflict(Error),
}

/// Why a write was not carried out.
#[derive(Debug)]
pub enum Failure {
    /// The request is refused; the batch goes on.
    Refused(Problem),
    /// This write alone failed; the batch goes on.
    Write(Error),
    /// The backend failed: nothing of the batch may stay.
    Backend(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Backend(error)
    }
}

/// One transaction over several writes.
pub struct Commit<'a, R> {
    rows: R,
    schema: &'a Schema,
    versions: &'a Versions,
    /// The time by which stored responses expire: it never jumps.
    steady: Timestamp,
    /// Only where several writes are loaded at once.
    overlay: Option<Overlay>,
    /// Effects of the overlay.
    unwritten: Vec<Effect>,
    /// What its writes took so far, and what they may take.
    used: Limits,
    limits: Limits,
    progress: Progress,
}

/// How far a transaction has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// Sequence of the next event.
    pub next_seq: i64,
    /// Time of the newest event: time never runs backwards in the log.
    pub newest_time: i64,
    /// Which collections changed in which scope, and the sequence of the change.
    pub touched: Vec<(Scope, CollectionIx, i64)>,
    /// A client requested that a delivery be tried again.
    pub retry_requested: bool,
    /// An erasure begins.
    pub erases: bool,
    /// Timed transitions that were refused or set aside.
    pub timers_failed: u64,
}

/// What a write is answered with, once its effects are written.
enum Reply {
    Ready(Response),
    /// The record that the first effect puts.
    Created,
    Updated,
}

impl<'a, R: Rows> Commit<'a, R> {
    /// `newest` is the sequence and the time of the newest event.
    pub fn new(
        rows: R,
        schema: &'a Schema,
        versions: &'a Versions,
        newest: (i64, i64),
        steady: Timestamp,
    ) -> Commit<'a, R> {
        let overlay = (rows.batch() > 1).then(Overlay::default);
        let (next_seq, newest_time) = (newest.0 + 1, newest.1);
        let progress = Progress { next_seq, newest_time, ..Progress::default() };
        let used = Limits { time: Duration::ZERO, bytes: 0 };
        let limits = Limits { time: Duration::MAX, bytes: usize::MAX };
        let unwritten = Vec::new();
        Commit { rows, schema, versions, steady, overlay, unwritten, used, limits, progress }
    }

    /// Sets limits, where several writes are loaded at once.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether the next write is one for the next transaction.
    pub fn is_full(&self) -> bool {
        let Limits { time, bytes } = self.used;
        self.overlay.is_some() && (time > self.limits.time || bytes > self.limits.bytes)
    }

    pub fn batch(&self) -> usize {
        self.rows.batch()
    }

    pub fn finish(self) -> Progress {
        self.progress
    }

    /// Applies writes in their order: the first one, and others until the limits are reached. `Err`
    /// means that the transaction must be rolled back.
    pub fn apply(&mut self, writes: &[&Write]) -> Result<Vec<Applied>, Error> {
        let mut applied = Vec::with_capacity(writes.len());
        let mut rest = writes;
        while !(rest.is_empty() || !applied.is_empty() && self.is_full()) {
            let (together, left) = rest.split_at(self.together(rest));
            self.apply_together(together, &mut applied)?;
            rest = left;
        }
        Ok(applied)
    }

    /// How many of the first writes can be loaded together.
    fn together(&self, writes: &[&Write]) -> usize {
        // An erasure changes what stored responses show, and a published event is read back.
        let alone = |write: &&Write| {
            let builtin = self.schema.collections[write.collection].builtin;
            matches!(builtin, Some(Builtin::Erasure | Builtin::Event))
        };
        let most = self.rows.batch().min(writes.len());
        match writes[..most].iter().position(alone) {
            Some(place) => place.max(1),
            None => most,
        }
    }

    fn apply_together(
        &mut self,
        writes: &[&Write],
        applied: &mut Vec<Applied>,
    ) -> Result<(), Error> {
        let mut began = Instant::now();
        let (mut wanted, mut failed) = (Vec::with_capacity(writes.len()), Vec::new());
        for write in writes {
            match self.needs(write) {
                Ok(needs) => wanted.push((*write, needs)),
                Err(failure) => failed.push((wanted.len(), *write, failure)),
            }
        }
        let (writes, needs): (Vec<&Write>, Vec<Needs<'_>>) = wanted.into_iter().unzip();
        let facts = self.rows.load(&needs)?;
        if self.overlay.is_some() {
            began = Instant::now();
        }
        let mut failed = failed.into_iter().peekable();
        for (place, facts) in facts.into_iter().enumerate() {
            if !applied.is_empty() && self.is_full() {
                return self.flush();
            }
            while let Some((_, write, failure)) = failed.next_if(|(at, ..)| *at == place) {
                let outcome = self.conclude(write, Err(failure))?;
                applied.push(Applied { outcome, took: Duration::ZERO });
            }
            let result = self.decide_one(writes[place], &needs[place], facts);
            let outcome = self.conclude(writes[place], result)?;
            let ended = Instant::now();
            let took = ended - std::mem::replace(&mut began, ended);
            self.used.time += took;
            applied.push(Applied { outcome, took });
        }
        for (_, write, failure) in failed {
            let outcome = self.conclude(write, Err(failure))?;
            applied.push(Applied { outcome, took: Duration::ZERO });
        }
        self.flush()
    }

    fn needs<'w>(&self, write: &'w Write) -> Result<Needs<'w>, Failure> {
        let needs = guarded(|| Needs::of(self.schema, write, self.steady))?;
        Ok(match self.overlay.is_some() {
            true => needs.with_claims(self.schema, write),
            false => needs,
        })
    }

    /// The outcome of a write. A timer whose transition can never succeed must not stay due.
    fn conclude(
        &mut self,
        write: &Write,
        result: Result<Committed, Failure>,
    ) -> Result<WriteResult, Error> {
        let (outcome, after) = match result {
            Ok(committed) => return Ok(Ok(Ok(committed))),
            Err(Failure::Backend(error)) => return Err(error),
            // Its timer is another node's.
            Err(Failure::Write(Error::LeaseLost)) => return Ok(Err(Error::LeaseLost)),
            Err(Failure::Write(error)) => (Err(error), timer_set_aside(self.schema, write)),
            Err(Failure::Refused(problem)) => {
                let after = self.refused_timer(write, &problem);
                (Ok(Err(problem)), after)
            }
        };
        if let Some(effect) = after {
            self.progress.timers_failed += 1;
            if let Effect::SetTimerAside(timer) = &effect {
                timer.report();
            }
            self.unwritten.push(effect);
            if self.overlay.is_none() {
                self.flush()?;
            }
        }
        Ok(outcome)
    }

    /// A timed transition whose expression has no value is set aside until its record changes: the
    /// schema is wrong. Any other that is refused is removed.
    fn refused_timer(&self, write: &Write, problem: &Problem) -> Option<Effect> {
        if problem.code != Code::RuleFailed {
            return timer_removed(write);
        }
        let effect = timer_set_aside(self.schema, write)?;
        let (cause, id) = (problem.cause.as_deref(), write.id.as_deref());
        tracing::error!(cause, id, "an expression of a timed transition cannot be evaluated");
        Some(effect)
    }

    /// Writes what was decided.
    fn flush(&mut self) -> Result<(), Error> {
        if !self.unwritten.is_empty() {
            let effects = std::mem::take(&mut self.unwritten);
            match self.rows.write(&effects)? {
                Written::Done => {}
                Written::Conflict(error) => return Err(error),
            }
        }
        if let Some(overlay) = &mut self.overlay {
            *overlay = Overlay::default();
        }
        Ok(())
    }

    fn decide_one(
        &mut self,
        write: &Write,
        needs: &Needs<'_>,
        mut facts: Facts,
    ) -> Result<Committed, Failure> {
        if facts.lease_lost {
            return Err(Failure::Write(Error::LeaseLost));
        }
        if let Some(overlay) = &self.overlay {
            if let Some(stored) = overlay.response(needs) {
                return replay(write, stored.clone());
            }
            overlay.amend(needs, &mut facts);
        }
        if let Some(stored) = facts.stored.take() {
            return replay(write, stored.response(self.versions));
        }
        let now = Timestamp(write.now.0.max(self.progress.newest_time));
        let mut effects = Effects::new(self.schema, self.progress.next_seq, now);
        if needs.delivery {
            return self.retry(write, needs, facts.delivery, effects);
        }
        refuse_too_many(needs, &facts)?;
        let counted = match needs.events_about {
            Some(_) => Some(erasure::counted(write, facts.events_about)?),
            None => None,
        };
        let write = counted.as_ref().unwrap_or(write);
        let decision = self.decide(write, &facts, now)?;
        let known = Known { needs, holders: facts.holders };
        let is_unchanged = matches!(decision.effect, Decided::Nothing);
        let (reply, has_event) = match (&decision.effect, facts.current.as_ref()) {
            (Decided::Erase, Some(current)) => {
                let id = current.id.clone();
                let mut lookup = self.lookup();
                cascade::delete(&mut lookup, write, current.clone(), decision, &mut effects)?;
                (Reply::Ready(Response::Deleted { id }), true)
            }
            (_, current) => self.keep(write, current, decision, &mut effects)?,
        };
        self.remember(write, &reply, has_event, &mut effects);
        if counted.is_some() {
            let (scope, resource) = (write.scope, erasure::resource(write).to_owned());
            effects.list.push(Effect::Erase { scope, resource, upto: effects.next_seq });
        }
        let response = self.carry_out(write, facts.current.as_ref(), &known, effects, reply)?;
        Ok(match is_unchanged {
            true => Committed::Unchanged(response),
            false => Committed::Fresh(response),
        })
    }

    fn lookup(&mut self) -> Lookup<'_, R> {
        let Commit { schema, rows, overlay, .. } = self;
        Lookup { schema, rows, overlay: overlay.as_ref() }
    }

    fn decide(
        &mut self,
        write: &Write,
        facts: &Facts,
        now: Timestamp,
    ) -> Result<Decision, Failure> {
        let current = facts.current.as_ref();
        let asked = decide::Facts {
            current,
            was_deleted: facts.was_deleted,
            parent_exists: facts.parent_exists,
            missing: &facts.missing,
            next_seq: self.progress.next_seq,
            now,
        };
        let decision = guarded(|| decide::decide(self.schema, write, &asked))?;
        let decision = decision.map_err(Failure::Refused)?;
        if let (Change::Act { .. } | Change::Timed { .. }, Decided::Put(kept)) =
            (&write.change, &decision.effect)
        {
            self.refuse_dangling(write, current, kept)?;
        }
        Ok(decision)
    }

    /// Refuses references that an action, a rule or a handler sets and that name nothing: they are
    /// not among the references of the request.
    fn refuse_dangling(
        &mut self,
        write: &Write,
        current: Option<&Record>,
        kept: &decide::StoredRecord,
    ) -> Result<(), Failure> {
        let collection = &self.schema.collections[write.collection];
        let before = current.map(Record::fields).unwrap_or_default();
        let set: Vec<_> = collection
            .fields
            .iter()
            .filter_map(|field| {
                let (target, value) = (field.reference?, kept.fields.get(&field.name)?);
                let id = value.as_str().filter(|_| before.get(&field.name) != Some(value))?;
                Some((field, target, id))
            })
            .collect();
        if set.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = set.iter().map(|(_, target, id)| (*target, *id)).collect();
        let found = self.lookup().exist(write.scope, &named)?;
        let mut violations = Vec::new();
        for ((field, target, _), _) in set.iter().zip(found).filter(|(_, exists)| !exists) {
            let object = &self.schema.collections[*target].object;
            let message = format!("`{}` would name no {object} that exists.", field.name);
            if by_handler(write, &field.name) {
                let message = format!(
                    "The action's handler gave an answer that cannot be used: {message} Nothing \
                     was changed."
                );
                let problem = Problem::new(Code::HandlerInvalid, message.clone()).cause(message);
                return Err(Failure::Refused(problem));
            }
            let mut violation = Violation::new(&field.name, Code::BadReference, message);
            write.reword(&mut violation, &kept.fields);
            violations.push(violation);
        }
        refuse(violations)
    }

    /// The effects of a decision that makes or changes a record, or changes nothing. Also says
    /// whether the last event shows what is answered.
    fn keep(
        &mut self,
        write: &Write,
        current: Option<&Record>,
        decision: Decision,
        effects: &mut Effects<'_>,
    ) -> Result<(Reply, bool), Failure> {
        let Decision { effect, events, timers, response, reveal } = decision;
        let has_event = !events.is_empty();
        let record = match effect {
            Decided::Put(kept) => {
                effects.put(write, current, kept, events, timers);
                match (&response, reveal) {
                    (decide::ResponseKind::Created, None) => {
                        return Ok((Reply::Created, has_event));
                    }
                    (decide::ResponseKind::Updated, None) => {
                        return Ok((Reply::Updated, has_event));
                    }
                    (_, reveal) => {
                        let revealed = reveal.is_some();
                        let record = effects.record().cloned().map(|mut record| {
                            if let Some(text) = reveal {
                                record.body.pop();
                                record.body.push_str(&text);
                            }
                            record
                        });
                        return Ok((respond(write, response, record), has_event && !revealed));
                    }
                }
            }
            Decided::Tell => {
                let version = effects.next_seq;
                effects.append(write, write.id.as_deref().unwrap_or_default(), events);
                current.map(|record| Record { version, ..record.clone() })
            }
            Decided::Publish { resource } => {
                let id = events.first().map(|event| event.id.clone()).unwrap_or_default();
                effects.append(write, &resource, events);
                let published = self.publish(write, effects, &id)?;
                return Ok((respond(write, response, published), false));
            }
            Decided::Nothing | Decided::Erase => {
                effects.remove_timer(write);
                current.cloned()
            }
        };
        Ok((respond(write, response, record), has_event))
    }

    /// Writes an event that an application publishes, and reads how it is shown.
    fn publish(
        &mut self,
        write: &Write,
        effects: &mut Effects<'_>,
        id: &str,
    ) -> Result<Option<Record>, Failure> {
        let list = std::mem::take(&mut effects.list);
        self.progress.note(&list, effects);
        self.unwritten.extend(list);
        self.flush()?;
        Ok(self.rows.record(write.scope, write.collection, id)?)
    }

    /// A client requested that a delivery be tried again, now.
    fn retry(
        &mut self,
        write: &Write,
        needs: &Needs<'_>,
        found: Option<DeliveryRow>,
        mut effects: Effects<'_>,
    ) -> Result<Committed, Failure> {
        let Some(mut row) = found else {
            let collection = &self.schema.collections[write.collection];
            let id = write.id.as_deref().unwrap_or_default();
            return Err(Failure::Refused(decide::not_found(collection, id)));
        };
        decide::check_precondition(&write.precondition, &row.record()).map_err(Failure::Refused)?;
        if row.event_seq <= 0 {
            let message = "This delivery stands for events that were removed from the log before \
                           they could be delivered: there is nothing to send.";
            return Err(Failure::Refused(Problem::new(Code::InvalidState, message)));
        }
        row.retry(effects.now);
        effects.list.push(Effect::RetryDelivery { number: row.number, now: effects.now });
        let reply = Reply::Ready(Response::Updated(row.record()));
        self.remember(write, &reply, false, &mut effects);
        if let Some(overlay) = &mut self.overlay {
            overlay.note_delivery(write.scope, row);
        }
        let known = Known { needs, holders: Vec::new() };
        Ok(Committed::Fresh(self.carry_out(write, None, &known, effects, reply)?))
    }

    /// Stores the response under the write's idempotency key, if it has one.
    fn remember(&self, write: &Write, reply: &Reply, has_event: bool, effects: &mut Effects<'_>) {
        let answer = match (reply, effects.record()) {
            (Reply::Ready(response), _) => Answer::from(response),
            (Reply::Created, Some(record)) => Answer::Created(record),
            (Reply::Updated, Some(record)) => Answer::Updated(record),
            (_, None) => return,
        };
        let collection = &self.schema.collections[write.collection];
        let version = &self.schema.service.version;
        // Events mask a part of an endpoint, so the response is stored with its own text.
        let has_event = has_event && collection.builtin != Some(Builtin::Endpoint);
        let row = idempotency::row(collection, version, write, self.steady, answer, has_event);
        effects.list.extend(row.map(|row| Effect::Remember(Box::new(row))));
    }

    /// Writes the effects, or takes them into the overlay; returns the response.
    fn carry_out(
        &mut self,
        write: &Write,
        current: Option<&Record>,
        known: &Known<'_>,
        mut effects: Effects<'_>,
        reply: Reply,
    ) -> Result<Response, Failure> {
        if self.overlay.is_some() {
            let takes_over = self.refuse_taken(known, &effects)?;
            if let Some(Effect::Put(put)) = effects.list.first_mut() {
                put.takes_over = takes_over;
            }
        } else if let Written::Conflict(error) = self.rows.write(&effects.list)? {
            self.refuse_conflict(&effects)?;
            return Err(Failure::Write(error));
        }
        #[cfg(test)]
        crate::faults::after(write);
        self.progress.note(&effects.list, &effects);
        let mut list = effects.list;
        let Some(overlay) = &mut self.overlay else { return Ok(reply.finish(&mut list)) };
        overlay.note(&list, current);
        self.used.bytes += list.iter().map(Effect::bytes).sum::<usize>();
        let response = reply.finish_copy(&list);
        if let (Some(key), Some(idempotency)) = (known.needs.key, &write.idempotency) {
            let request = write.cause.request.clone().unwrap_or_default();
            let (fingerprint, response) = (idempotency.fingerprint, response.clone());
            let stored = Remembered { fingerprint, response, as_written: None, request };
            overlay.note_response(write.scope, key.digest, stored);
        }
        self.unwritten.append(&mut list);
        Ok(response)
    }
}

impl Progress {
    /// Takes note of effects that are written, or will be before the transaction ends.
    fn note(&mut self, list: &[Effect], effects: &Effects<'_>) {
        for effect in list {
            match effect {
                Effect::Append { collection, event } => {
                    self.touched.push((event.scope, *collection, event.seq));
                    self.newest_time = event.created.0;
                }
                Effect::RetryDelivery { .. } => self.retry_requested = true,
                Effect::Erase { .. } => self.erases = true,
                _ => {}
            }
        }
        self.next_seq = effects.next_seq;
    }
}

impl Reply {
    /// Takes the record out of the effects, which are written.
    fn finish(self, effects: &mut [Effect]) -> Response {
        match (self, effects.first_mut()) {
            (Reply::Ready(response), _) => response,
            (Reply::Created, Some(Effect::Put(put))) => Response::Created(take(&mut put.record)),
            (_, Some(Effect::Put(put))) => Response::Updated(take(&mut put.record)),
            _ => Response::Deleted { id: String::new() },
        }
    }

    fn finish_copy(self, effects: &[Effect]) -> Response {
        match (self, effects.first()) {
            (Reply::Ready(response), _) => response,
            (Reply::Created, Some(Effect::Put(put))) => Response::Created(put.record.clone()),
            (_, Some(Effect::Put(put))) => Response::Updated(put.record.clone()),
            _ => Response::Deleted { id: String::new() },
        }
    }
}

fn take(record: &mut Record) -> Record {
    let Record { id, number, version, updated, body, hidden } = record;
    let (id, body, hidden) = (std::mem::take(id), std::mem::take(body), hidden.take());
    Record { id, number: *number, version: *version, updated: *updated, body, hidden }
}

fn respond(write: &Write, response: decide::ResponseKind, record: Option<Record>) -> Reply {
    Reply::Ready(match (response, record) {
        (decide::ResponseKind::Refused(problem), _) => Response::Refused(write.explain(problem)),
        (decide::ResponseKind::Created, Some(record)) => Response::Created(record),
        (decide::ResponseKind::Updated, Some(record)) => Response::Updated(record),
        (_, record) => {
            let id = record.map(|record| record.id).or_else(|| write.id.clone());
            Response::Deleted { id: id.unwrap_or_default() }
        }
    })
}

/// The stored response, if the key was used for the same request.
fn replay(write: &Write, stored: Remembered) -> Result<Committed, Failure> {
    let Some(idempotency) = &write.idempotency else {
        return Err(Failure::Write(Error::Failed("a response was loaded without a key".into())));
    };
    let Remembered { fingerprint, response, request, .. } = stored;
    if fingerprint == idempotency.fingerprint {
        return Ok(Committed::Replayed { response, request });
    }
    Err(Failure::Refused(Problem::new(
        Code::IdempotencyKeyReused,
        format!(
            "The Idempotency-Key `{}` was used for another request ({request}), or for this one in \
             another version, within the last 24 hours. Use a new key for a new request; to \
             repeat one, send the Restive-Version that it was answered in, if that is still \
             served.",
            idempotency.key
        ),
    )))
}

fn refuse_too_many(needs: &Needs<'_>, facts: &Facts) -> Result<(), Failure> {
    match needs.limit {
        Some(limit) if facts.count >= limit.most => {
            Err(Failure::Refused(Problem::new(Code::TooManyRecords, limit.message)))
        }
        _ => Ok(()),
    }
}

fn refuse(violations: Vec<Violation>) -> Result<(), Failure> {
    match violations.is_empty() {
        true => Ok(()),
        false => Err(Failure::Refused(Problem::of(Code::ValidationFailed, violations))),
    }
}

/// Whether an operator's handler set the field.
fn by_handler(write: &Write, field: &str) -> bool {
    match &write.change {
        Change::Act { callout: Some(Callout::Change(fields)), .. } => fields.contains_key(field),
        _ => false,
    }
}

/// The writer serves everyone: a panic over one write must not end it.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        tracing::error!("deciding about a write panicked");
        Failure::Write(Error::Failed("deciding about the write failed".into()))
    })
}
