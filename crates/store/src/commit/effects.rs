//! What a decision writes: a list of effects, in the order in which a backend carries them out.
//! Assigns sequences. Knows no backend.

use super::needs::columns;
use crate::UnknownTimer;
use crate::idempotency::NewRow;
use model::decide::{Draft, StoredRecord, TimerDraft};
use model::event::{Event, Origin};
use model::record::{Fields, Scalar};
use model::write::Change;
use model::{CollectionIx, Record, Schema, Scope, Timestamp, Write};

#[derive(Debug)]
pub enum Effect {
    /// Inserts or updates a record. The only effect that can break a unique index; always the first
    /// of its write, so that a write that is refused has written nothing.
    Put(Put),
    /// Deletes a record and leaves a tombstone.
    Delete { scope: Scope, collection: CollectionIx, id: String, number: i64, seq: i64 },
    /// Appends an event to the log.
    Append { collection: CollectionIx, event: Event },
    /// Replaces the timers of a record.
    SetTimers {
        scope: Scope,
        collection: CollectionIx,
        parent: Option<String>,
        id: String,
        timers: Vec<TimerDraft>,
    },
    /// Removes one timer of a record.
    RemoveTimer { collection: CollectionIx, id: String, transition: usize },
    /// Keeps a timer that cannot fire, but never reports it as due.
    SetTimerAside(UnknownTimer),
    /// Stores the response to an idempotency key.
    Remember(Box<NewRow>),
    /// Makes a delivery due now.
    RetryDelivery { number: i64, now: Timestamp },
    /// Hides what events before `upto` show of a resource; the rows are cleaned later.
    Erase { scope: Scope, resource: String, upto: i64 },
}

impl Effect {
    /// Bytes of the texts that it writes.
    pub fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Effect::Put(Put { record, .. }) => record.body.len() + length(&record.hidden),
            Effect::Append { event, .. } => {
                event.object.len() + length(&event.previous) + length(&event.hidden)
            }
            Effect::Remember(row) => length(&row.text) + length(&row.hidden),
            _ => 0,
        }
    }
}

/// A record to be inserted or updated.
#[derive(Debug)]
pub struct Put {
    pub scope: Scope,
    pub collection: CollectionIx,
    pub parent: Option<String>,
    pub record: Record,
    pub fields: Fields,
    pub is_new: bool,
    /// Values of the typed columns; `None` if an update leaves them as they are.
    pub columns: Option<Vec<Scalar>>,
    /// It gets a unique value that another record has given up in the same batch.
    pub takes_over: bool,
}

/// The effects of one write, while they are collected.
pub struct Effects<'s> {
    schema: &'s Schema,
    pub list: Vec<Effect>,
    pub next_seq: i64,
    pub now: Timestamp,
}

impl<'s> Effects<'s> {
    pub fn new(schema: &'s Schema, next_seq: i64, now: Timestamp) -> Effects<'s> {
        Effects { schema, list: Vec::with_capacity(4), next_seq, now }
    }

    /// The record as decided, with the events about it.
    pub fn put(
        &mut self,
        write: &Write,
        current: Option<&Record>,
        kept: StoredRecord,
        events: Vec<Draft>,
        timers: Option<Vec<TimerDraft>>,
    ) {
        let collection = &self.schema.collections[write.collection];
        let StoredRecord { id, fields, body, hidden, same_columns } = kept;
        let columns = (!same_columns).then(|| columns(collection, &fields));
        let record = Record {
            id: id.clone(),
            number: current.map_or(self.next_seq, |record| record.number),
            version: self.next_seq + events.len() as i64 - 1,
            updated: self.now,
            body,
            hidden,
        };
        self.list.push(Effect::Put(Put {
            scope: write.scope,
            collection: write.collection,
            parent: write.parent.clone(),
            record,
            fields,
            is_new: current.is_none(),
            columns,
            takes_over: false,
        }));
        self.append(write, &id, events);
        if let Some(timers) = timers.filter(|_| !collection.timed.is_empty()) {
            self.list.push(Effect::SetTimers {
                scope: write.scope,
                collection: write.collection,
                parent: write.parent.clone(),
                id,
                timers,
            });
        }
    }

    /// Deletes a record, with the events about it.
    pub fn delete(&mut self, write: &Write, record: Record, events: Vec<Draft>) {
        let (scope, collection) = (write.scope, write.collection);
        let (id, number, seq) = (record.id, record.number, self.next_seq);
        self.list.push(Effect::Delete { scope, collection, id: id.clone(), number, seq });
        if !self.schema.collections[collection].timed.is_empty() {
            let (parent, timers) = (None, Vec::new());
            let id = id.clone();
            self.list.push(Effect::SetTimers { scope, collection, parent, id, timers });
        }
        self.append(write, &id, events);
    }

    pub fn append(&mut self, write: &Write, record: &str, events: Vec<Draft>) {
        for draft in events {
            let event = Event {
                seq: self.next_seq,
                id: draft.id,
                scope: write.scope,
                kind: draft.kind,
                created: self.now,
                collection: self.schema.collections[write.collection].name.clone(),
                record: record.to_owned(),
                api_version: self.schema.service.version.clone(),
                object: draft.object,
                previous: draft.previous,
                hidden: draft.hidden,
                request: Origin::of(&write.cause).text(),
                idempotency_key: write.cause.idempotency_key.clone(),
            };
            self.list.push(Effect::Append { collection: write.collection, event });
            self.next_seq += 1;
        }
    }

    /// A timed transition that changed nothing does not fire again.
    pub fn remove_timer(&mut self, write: &Write) {
        self.list.extend(timer_removed(write));
    }

    /// The record that the first effect puts.
    pub fn record(&self) -> Option<&Record> {
        match self.list.first() {
            Some(Effect::Put(put)) => Some(&put.record),
            _ => None,
        }
    }
}

pub fn timer_removed(write: &Write) -> Option<Effect> {
    let (Change::Timed { transition }, Some(id)) = (&write.change, &write.id) else {
        return None;
    };
    let (collection, id) = (write.collection, id.clone());
    Some(Effect::RemoveTimer { collection, id, transition: *transition })
}

/// A timed transition that failed by itself, not because of the disk, does not become due again.
pub fn timer_set_aside(schema: &Schema, write: &Write) -> Option<Effect> {
    let (Change::Timed { transition }, Some(id)) = (&write.change, &write.id) else {
        return None;
    };
    let collection = &schema.collections[write.collection];
    let transition = crate::upkeep::transition_name(collection, *transition)?;
    let (collection, id) = (collection.name.clone(), id.clone());
    Some(Effect::SetTimerAside(UnknownTimer { collection, id, transition }))
}
