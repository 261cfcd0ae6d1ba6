//! One write inside the writer's transaction: look the key up, load what the write names, ask
//! `model::decide`, keep what it says. Everything is decided before the first row is touched, and
//! the record is the first row: a constraint it breaks undoes that statement alone, so a refused
//! write leaves nothing behind and needs no savepoint. Any other failure ends the batch.

use super::shared::Shared;
use super::{cascade, erasure, idempotency, log, outbox, read, timers};
use crate::Error;
use model::decide::{self, Answer, Decision, Draft, Effect, Facts, Kept};
use model::event::Event;
use model::record::{Scalar, parse_object, to_scalar};
use model::schema::Builtin;
use model::write::{Callout, Change, Committed, Idempotency, Response};
use model::{Code, CollectionIx, Field, Problem, Record, Scope, Timestamp, Violation, Write};
use rusqlite::{Connection, params};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// What the caller is told.
pub type Outcome = Result<Result<Committed, Problem>, Error>;

/// One transaction of the writer.
pub struct Turn<'a> {
    pub connection: &'a Connection,
    pub shared: &'a Shared,
    /// Sequence of the next event.
    pub next_seq: i64,
    /// Time of the newest event: time never runs backwards in the log.
    pub newest_time: i64,
    /// Which collections changed in which scope, and the sequence of the change.
    pub touched: Vec<(Scope, CollectionIx, i64)>,
    /// Somebody asked for a delivery to be tried again.
    pub nudged: bool,
    /// Something is to be erased.
    pub erases: bool,
}

/// Why a write was not kept.
pub enum Fault {
    /// The caller erred; the batch goes on.
    Problem(Problem),
    /// This write alone failed; the batch goes on.
    Write(Error),
    /// The database failed: nothing of the batch may stay.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Database(error)
    }
}

/// A decision about one record, with the write it answers.
pub struct Decided<'w> {
    pub write: Cow<'w, Write>,
    pub current: Option<Record>,
    pub decision: Decision,
}

/// Applies one write; `Err` means that the transaction must be rolled back.
pub fn apply(turn: &mut Turn<'_>, write: &Write) -> Result<Outcome, rusqlite::Error> {
    match attempt(turn, write) {
        Ok(committed) => Ok(Ok(Ok(committed))),
        Err(Fault::Problem(problem)) => {
            // A timer that can never succeed must not be found due for ever.
            if matches!(write.change, Change::Timed { .. }) {
                fail_timer(turn, write, &problem)?;
            }
            Ok(Ok(Err(problem)))
        }
        Err(Fault::Write(error)) => {
            timers::set_aside(turn.connection, turn.shared, write)?;
            Ok(Err(error))
        }
        Err(Fault::Database(error)) => Err(error),
    }
}

/// A transition whose expression has no value stays, set aside, until its record changes: what is
/// wrong is the schema. Any other that is refused is void.
fn fail_timer(
    turn: &mut Turn<'_>,
    write: &Write,
    problem: &Problem,
) -> Result<(), rusqlite::Error> {
    if problem.code == Code::RuleFailed {
        let (cause, id) = (problem.cause.as_deref(), write.id.as_deref());
        tracing::error!(cause, id, "an expression of a timed transition cannot be evaluated");
        return timers::set_aside(turn.connection, turn.shared, write);
    }
    void_timer(turn, write)?;
    turn.shared.counters.timers_failed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn attempt(turn: &mut Turn<'_>, write: &Write) -> Result<Committed, Fault> {
    let now = Timestamp(write.now.0.max(turn.newest_time));
    if let Some(idempotency) = &write.idempotency
        && let Some(replayed) = replay(turn, write, idempotency)?
    {
        return Ok(replayed);
    }
    let builtin = turn.shared.schema.collections[write.collection].builtin;
    if builtin == Some(Builtin::Delivery) {
        return outbox::retry(turn, write, now);
    }
    if let (Some(builtin), Change::Create { .. }) = (builtin, &write.change) {
        outbox::refuse_too_many(turn, write, builtin)?;
    }
    let erasure = match builtin {
        Some(Builtin::Erasure) => Some(erasure::counted(turn.connection, write)?),
        _ => None,
    };
    let decided = decide(turn, erasure.as_ref().unwrap_or(write), turn.next_seq, now)?;
    let response = match decided.decision.effect {
        Effect::Erase => cascade::erase(turn, decided, now)?,
        _ => keep(turn, decided, now)?,
    };
    #[cfg(test)]
    super::faults::after(write);
    if erasure.is_some() {
        erasure::begin(turn.connection, write, turn.next_seq)?;
        *turn.shared.erased_at.lock() = Some(std::time::Instant::now());
        turn.erases = true;
    }
    Ok(Committed::Fresh(response))
}

fn void_timer(turn: &Turn<'_>, write: &Write) -> Result<(), rusqlite::Error> {
    let (Change::Timed { transition }, Some(id)) = (&write.change, &write.id) else {
        return Ok(());
    };
    let collection = &turn.shared.schema.collections[write.collection];
    timers::void(turn.connection, collection, id, *transition)
}

/// What the key answered before, if it was used for the same request.
fn replay(
    turn: &Turn<'_>,
    write: &Write,
    idempotency: &Idempotency,
) -> Result<Option<Committed>, Fault> {
    let now = (turn.shared.steady)();
    match idempotency::find(turn.connection, turn.shared, write.scope, &idempotency.key, now)? {
        None => Ok(None),
        Some(found) if found.fingerprint == idempotency.fingerprint => {
            Ok(Some(Committed::Replayed { response: found.response, request: found.request }))
        }
        Some(found) => Err(Fault::Problem(Problem::new(
            Code::IdempotencyKeyReused,
            format!(
                "The Idempotency-Key `{}` was used for another request ({}), or for this one in \
                 another version, within the last 24 hours. Use a new key for a new request; to \
                 repeat one, send the Restive-Version that it was answered in, if that is still \
                 served.",
                idempotency.key, found.request
            ),
        ))),
    }
}

/// Loads the facts and asks.
pub fn decide<'w>(
    turn: &Turn<'_>,
    write: &'w Write,
    next_seq: i64,
    now: Timestamp,
) -> Result<Decided<'w>, Fault> {
    let Turn { connection, shared, .. } = *turn;
    let schema = &*shared.schema;
    let Write { scope, collection, .. } = *write;
    let parent = write.parent.as_deref();
    let current = match &write.id {
        Some(id) => read::record(connection, shared, scope, collection, parent, id)?,
        None => None,
    };
    let was_deleted = match (&write.change, &write.id, &current) {
        (Change::Delete, Some(id), None) => {
            read::was_deleted(connection, shared, scope, collection, id)?
        }
        _ => false,
    };
    let parent_exists = match (schema.collections[collection].parent, parent) {
        (None, _) => true,
        (Some(above), Some(id)) => read::exists(connection, shared, scope, above, id)?,
        (Some(_), None) => false,
    };
    let mut missing = Vec::new();
    for reference in guarded(|| decide::references(schema, write))? {
        if !read::exists(connection, shared, scope, reference.collection, &reference.id)? {
            missing.push(reference);
        }
    }
    let facts = Facts {
        current: current.as_ref(),
        was_deleted,
        parent_exists,
        missing: &missing,
        next_seq,
        now,
    };
    let decision = guarded(|| decide::decide(schema, write, &facts))?.map_err(Fault::Problem)?;
    if let (Change::Act { .. } | Change::Timed { .. }, Effect::Put(kept)) =
        (&write.change, &decision.effect)
    {
        refuse_dangling(turn, write, current.as_ref(), kept)?;
    }
    Ok(Decided { write: Cow::Borrowed(write), current, decision })
}

/// What an action, a rule or a handler sets is not among what the request refers to.
fn refuse_dangling(
    turn: &Turn<'_>,
    write: &Write,
    current: Option<&Record>,
    kept: &Kept,
) -> Result<(), Fault> {
    let collection = &turn.shared.schema.collections[write.collection];
    let before = current.map(Record::fields).unwrap_or_default();
    let mut violations = Vec::new();
    for field in &collection.fields {
        let (Some(target), Some(value)) = (field.reference, kept.fields.get(&field.name)) else {
            continue;
        };
        let Some(id) = value.as_str().filter(|_| before.get(&field.name) != Some(value)) else {
            continue;
        };
        if !read::exists(turn.connection, turn.shared, write.scope, target, id)? {
            let object = &turn.shared.schema.collections[target].object;
            let message = format!("`{}` would name no {object} that exists.", field.name);
            if by_handler(write, &field.name) {
                let message = format!(
                    "The action's handler gave an answer that cannot be used: {message} Nothing \
                     was changed."
                );
                let problem = Problem::new(Code::HandlerInvalid, message.clone()).cause(message);
                return Err(Fault::Problem(problem));
            }
            let mut violation = Violation::new(&field.name, Code::BadReference, message);
            write.reword(&mut violation, &kept.fields);
            violations.push(violation);
        }
    }
    match violations.is_empty() {
        true => Ok(()),
        false => Err(Fault::Problem(Problem::of(Code::ValidationFailed, violations))),
    }
}

/// Whether an operator's handler set the field.
fn by_handler(write: &Write, field: &str) -> bool {
    match &write.change {
        Change::Act { callout: Some(Callout::Change(fields)), .. } => fields.contains_key(field),
        _ => false,
    }
}

/// The writer thread serves everyone: a panic over one write must not end it.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        tracing::error!("deciding about a write panicked");
        Fault::Write(Error::Failed("deciding about the write failed".into()))
    })
}

/// Keeps a decision that makes or changes a record, or changes nothing.
pub fn keep(turn: &mut Turn<'_>, decided: Decided<'_>, now: Timestamp) -> Result<Response, Fault> {
    let Decided { write, current, decision } = decided;
    let Decision { effect, events, timers, answer, reveal } = decision;
    // Whether the last event says what is answered.
    let mut has_event = !events.is_empty();
    let record = match effect {
        Effect::Put(kept) => {
            let mut record = put(turn, &write, current.as_ref(), kept, events.len(), now)?;
            append(turn, &write, &record.id, events, now)?;
            let collection = &turn.shared.schema.collections[write.collection];
            if let Some(timers) = timers {
                timers::replace(turn.connection, collection, &write, &record.id, &timers)?;
            }
            if let Some(text) = reveal {
                record.body.pop();
                record.body.push_str(&text);
                has_event = false;
            }
            Some(record)
        }
        Effect::Tell => {
            let told = current.map(|record| Record { version: turn.next_seq, ..record });
            append(turn, &write, write.id.as_deref().unwrap_or_default(), events, now)?;
            told
        }
        Effect::Publish { resource } => {
            let id = events.first().map(|event| event.id.clone()).unwrap_or_default();
            append(turn, &write, &resource, events, now)?;
            has_event = false;
            let Turn { connection, shared, .. } = *turn;
            read::record(connection, shared, write.scope, write.collection, None, &id)?
        }
        Effect::Nothing | Effect::Erase => {
            void_timer(turn, &write)?;
            current
        }
    };
    let response = match (answer, record) {
        (Answer::Refused(problem), _) => Response::Refused(write.told(problem)),
        (Answer::Created, Some(record)) => Response::Created(record),
        (Answer::Updated, Some(record)) => Response::Updated(record),
        (_, record) => {
            let id = record.map(|record| record.id).or_else(|| write.id.clone());
            Response::Deleted { id: id.unwrap_or_default() }
        }
    };
    remember(turn, &write, &response, has_event)?;
    Ok(response)
}

/// Inserts or updates the record.
fn put(
    turn: &Turn<'_>,
    write: &Write,
    current: Option<&Record>,
    kept: Kept,
    events: usize,
    now: Timestamp,
) -> Result<Record, Fault> {
    let table = &turn.shared.tables[write.collection];
    let scalars = scalars(turn.shared, write.collection, &kept.fields);
    let number = current.map_or(turn.next_seq, |record| record.number);
    let version = turn.next_seq + events as i64 - 1;
    let done = match current {
        None => {
            let mut statement = turn.connection.prepare_cached(&table.insert)?;
            for (place, scalar) in scalars.iter().enumerate() {
                statement.raw_bind_parameter(10 + place, read::Bound(scalar))?;
            }
            statement.raw_bind_parameter(1, number)?;
            statement.raw_bind_parameter(2, &kept.id)?;
            statement.raw_bind_parameter(3, write.scope.0)?;
            statement.raw_bind_parameter(4, write.parent.as_deref())?;
            statement.raw_bind_parameter(5, version)?;
            statement.raw_bind_parameter(6, now.0)?;
            statement.raw_bind_parameter(7, table.shape)?;
            statement.raw_bind_parameter(8, &kept.body)?;
            statement.raw_bind_parameter(9, kept.hidden.as_deref())?;
            statement.raw_execute()
        }
        Some(old) => {
            let same = self::scalars(turn.shared, write.collection, &old.fields()) == scalars;
            let sql = if same { &table.update_body } else { &table.update };
            let mut statement = turn.connection.prepare_cached(sql)?;
            for (place, scalar) in scalars.iter().enumerate().filter(|_| !same) {
                statement.raw_bind_parameter(7 + place, read::Bound(scalar))?;
            }
            statement.raw_bind_parameter(1, version)?;
            statement.raw_bind_parameter(2, now.0)?;
            statement.raw_bind_parameter(3, table.shape)?;
            statement.raw_bind_parameter(4, &kept.body)?;
            statement.raw_bind_parameter(5, kept.hidden.as_deref())?;
            statement.raw_bind_parameter(6, number)?;
            statement.raw_execute()
        }
    };
    if let Err(error) = done {
        return Err(not_unique(turn, write, current, &kept, error));
    }
    let Kept { id, body, hidden, .. } = kept;
    Ok(Record { id, number, version, updated: now, body, hidden })
}

/// Values of the typed columns.
fn scalars(
    shared: &Shared,
    collection: CollectionIx,
    fields: &model::record::Fields,
) -> Vec<Scalar> {
    let declared = &shared.schema.collections[collection].fields;
    let columns = shared.tables[collection].columns.iter();
    columns
        .map(|(place, _)| {
            let field = &declared[*place];
            fields.get(&field.name).map_or(Scalar::Null, |value| to_scalar(&field.kind, value))
        })
        .collect()
}

/// Turns a broken constraint into the violations it stands for: all of them, not the first.
fn not_unique(
    turn: &Turn<'_>,
    write: &Write,
    current: Option<&Record>,
    kept: &Kept,
    error: rusqlite::Error,
) -> Fault {
    if error.sqlite_error_code() != Some(rusqlite::ErrorCode::ConstraintViolation) {
        return Fault::Database(error);
    }
    let collection = &turn.shared.schema.collections[write.collection];
    let table = &turn.shared.tables[write.collection];
    // One that is to be made has no number yet.
    let number = current.map_or(0, |record| record.number);
    let mut violations = Vec::new();
    for (place, column) in &table.columns {
        let field = &collection.fields[*place];
        let Some(value) = kept.fields.get(&field.name).filter(|_| field.unique) else { continue };
        let sql = format!(
            "SELECT 1 FROM {} t WHERE t.scope = ?1 AND t.{column} = ?2 AND t.n <> ?3",
            table.name
        );
        let scalar = to_scalar(&field.kind, value);
        let found = turn.connection.prepare_cached(&sql).and_then(|mut statement| {
            statement.exists(params![write.scope.0, read::Bound(&scalar), number])
        });
        match found {
            Ok(true) => {
                let message = format!("Another {} has this {}.", collection.object, field.name);
                let mut violation = Violation::new(&field.name, Code::NotUnique, message);
                if !field.write_only {
                    violation = violation.value(value);
                }
                violations.push(violation);
            }
            Ok(false) => {}
            Err(error) => return Fault::Database(error),
        }
    }
    match violations.is_empty() {
        true => Fault::Write(Error::Failed(Box::new(error))),
        false => Fault::Problem(Problem::of(Code::ValidationFailed, violations)),
    }
}

/// Appends the events of a write and counts its collection as changed.
pub fn append(
    turn: &mut Turn<'_>,
    write: &Write,
    record: &str,
    events: Vec<Draft>,
    now: Timestamp,
) -> Result<(), rusqlite::Error> {
    let shared = turn.shared;
    for draft in events {
        let event = Event {
            seq: turn.next_seq,
            id: draft.id,
            scope: write.scope,
            kind: draft.kind,
            created: now,
            collection: shared.schema.collections[write.collection].name.clone(),
            record: record.to_owned(),
            api_version: shared.schema.service.version.clone(),
            object: draft.object,
            previous: draft.previous,
            hidden: draft.hidden,
            request: write.cause.request.clone(),
            idempotency_key: write.cause.idempotency_key.clone(),
        };
        log::append(turn.connection, &event)?;
        turn.touched.push((write.scope, write.collection, turn.next_seq));
        turn.next_seq += 1;
        turn.newest_time = now.0;
    }
    Ok(())
}

/// Keeps the answer under the write's idempotency key, if it has one.
pub fn remember(
    turn: &Turn<'_>,
    write: &Write,
    response: &Response,
    has_event: bool,
) -> Result<(), Fault> {
    let Some(Idempotency { key, fingerprint }) = &write.idempotency else { return Ok(()) };
    let keeping = idempotency::Keeping {
        scope: write.scope,
        key,
        fingerprint,
        request: write.cause.request.as_deref().unwrap_or_default(),
        now: (turn.shared.steady)(),
        has_event,
        about: write.id.as_deref(),
        hidden: match response {
            Response::Created(record) | Response::Updated(record) if !has_event => {
                shown_by_older_versions(turn, write, record)
            }
            _ => None,
        },
    };
    let newest = &turn.shared.schema.service.version;
    Ok(idempotency::keep(turn.connection, newest, &keeping, response)?)
}

fn shown_by_older_versions(turn: &Turn<'_>, write: &Write, record: &Record) -> Option<String> {
    let collection = &turn.shared.schema.collections[write.collection];
    let mut removed = collection.fields.iter().filter(|field| field.removed && !field.write_only);
    let first = removed.next()?;
    let hidden = parse_object(record.hidden.as_deref()?);
    let pair = |field: &Field| Some((field.name.clone(), hidden.get(&field.name)?.clone()));
    let shown = std::iter::once(first).chain(removed).filter_map(pair).collect();
    Some(serde_json::Value::Object(shown).to_string())
}
