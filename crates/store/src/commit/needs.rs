//! What the store must know before it can decide about a write, and what a backend found. The needs
//! follow from the write alone, so the needs of a whole batch can be loaded at once.

use crate::idempotency::{self, Key, Stored};
use crate::rendering::DeliveryRow;
use model::decide::{self, Reference};
use model::record::{Scalar, to_scalar};
use model::schema::{Builtin, Collection};
use model::write::{Change, LeaseNumber};
use model::{CollectionIx, Record, Schema, Scope, Timestamp, Write};
use serde_json::Value;

/// What one write needs.
#[derive(Debug)]
pub struct Needs<'w> {
    pub scope: Scope,
    pub collection: CollectionIx,
    /// The idempotency key. If it has a stored response, nothing else is needed.
    pub key: Option<Key>,
    /// The record that the write names, and its parent where the collection has one.
    pub record: Option<&'w str>,
    pub parent: Option<&'w str>,
    /// Whether the record was deleted, if it does not exist.
    pub tombstone: bool,
    /// The collection in which `parent` must exist.
    pub parent_in: Option<CollectionIx>,
    /// The records that the write refers to.
    pub references: Vec<Reference>,
    /// The record is a delivery, which has a table of its own.
    pub delivery: bool,
    /// The number of records that count towards a limit.
    pub limit: Option<&'static Limit>,
    /// The number of events about a resource after a sequence.
    pub events_about: Option<(&'w str, i64)>,
    /// Unique values that the write asks for.
    pub claims: Vec<Claim>,
    /// The lease that the node must still have.
    pub lease: Option<LeaseNumber>,
}

/// How many records an account may have in one mode.
#[derive(Debug)]
pub struct Limit {
    pub most: i64,
    /// Only records with one of these values of `status` count; empty: all.
    pub statuses: &'static [&'static str],
    /// Only records in which this field is null count.
    pub null: Option<&'static str>,
    pub message: &'static str,
}

/// A value of a unique field.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub scope: Scope,
    pub collection: CollectionIx,
    /// Place of the field in the collection.
    pub field: usize,
    pub value: Scalar,
}

/// What a backend found for the needs of one write.
#[derive(Debug, Default)]
pub struct Facts {
    pub stored: Option<Stored>,
    pub current: Option<Record>,
    pub was_deleted: bool,
    pub parent_exists: bool,
    /// The references that name no existing record.
    pub missing: Vec<Reference>,
    pub delivery: Option<DeliveryRow>,
    pub count: i64,
    pub events_about: i64,
    /// For each claim the number of the record that has the value.
    pub holders: Vec<Option<i64>>,
    /// Another node has the lease.
    pub lease_lost: bool,
}

/// The delivery engine keeps every endpoint in memory: each takes some kilobytes.
static ENDPOINTS: Limit = Limit {
    most: 2_000,
    statuses: &[],
    null: None,
    message: "An account has at most 2000 webhook endpoints in each mode. Delete some first.",
};
/// The delivery engine keeps every unfinished replay in memory. As many as endpoints, since each
/// endpoint may need one after an outage.
static OPEN_REPLAYS: Limit = Limit {
    most: 2_000,
    statuses: crate::open_replays::STATUSES,
    null: None,
    message: "An account has at most 2000 pending and running replays in each mode. Wait until \
              some have ended, or cancel them.",
};
/// Keys that clients create. Every change of a key makes the server look at its cached callers and
/// open connections again; no account has that many programs with a key each.
static KEYS: Limit = Limit {
    most: 1_000,
    statuses: &[],
    null: Some("revoked_at"),
    message: "An account has at most 1000 keys in each mode that are not revoked. Revoke some \
              first.",
};

impl<'w> Needs<'w> {
    /// `now` is the time by which stored responses expire.
    pub fn of(schema: &Schema, write: &'w Write, now: Timestamp) -> Needs<'w> {
        let collection = &schema.collections[write.collection];
        let creates = matches!(write.change, Change::Create { .. });
        Needs {
            scope: write.scope,
            collection: write.collection,
            key: write.idempotency.as_ref().map(|one| idempotency::key(&one.key, now)),
            record: write.id.as_deref(),
            parent: write.parent.as_deref(),
            tombstone: matches!(write.change, Change::Delete),
            parent_in: collection.parent,
            references: decide::references(schema, write),
            delivery: collection.builtin == Some(Builtin::Delivery),
            limit: match collection.builtin {
                Some(Builtin::Endpoint) if creates => Some(&ENDPOINTS),
                Some(Builtin::Replay) if creates => Some(&OPEN_REPLAYS),
                // The operator's commands have no key, and no limit.
                Some(Builtin::Key) if creates && write.cause.key.is_some() => Some(&KEYS),
                _ => None,
            },
            events_about: match collection.builtin {
                Some(Builtin::Erasure) => Some(super::erasure::uncounted(write)),
                _ => None,
            },
            claims: Vec::new(),
            lease: write.cause.lease,
        }
    }

    /// Adds the unique values that the request itself sets. What an action sets, or an older
    /// version names differently, is known only after the decision.
    pub fn with_claims(mut self, schema: &Schema, write: &Write) -> Needs<'w> {
        let values = match &write.change {
            Change::Create { fields }
            | Change::Replace { fields }
            | Change::Merge { patch: fields } => fields,
            _ => return self,
        };
        self.claims = claims(schema, write.scope, write.collection, |field| values.get(field));
        self
    }
}

/// The unique values among the fields of a record.
pub fn claims<'v>(
    schema: &Schema,
    scope: Scope,
    collection: CollectionIx,
    value: impl Fn(&str) -> Option<&'v Value>,
) -> Vec<Claim> {
    let fields = schema.collections[collection].fields.iter().enumerate();
    let claim = |(place, field): (usize, &model::Field)| {
        let value = to_scalar(&field.kind, value(&field.name)?);
        let claim = Claim { scope, collection, field: place, value };
        Some(claim).filter(|claim| field.unique && claim.value != Scalar::Null)
    };
    fields.filter_map(claim).collect()
}

/// Values of the typed columns of a record, in the order of the collection's columns.
pub fn columns(collection: &Collection, fields: &model::record::Fields) -> Vec<Scalar> {
    let scalar = |field: &model::Field| {
        fields.get(&field.name).map_or(Scalar::Null, |value| to_scalar(&field.kind, value))
    };
    collection.columns().map(scalar).collect()
}
