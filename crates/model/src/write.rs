//! One write to a store, and its result. The store runs `decide` inside its transaction; all
//! business rules are here or in `decide`.

pub use crate::cause::{Cause, LeaseNumber};

use crate::caller::Scope;
use crate::id::Entropy;
use crate::problem::{Problem, Violation};
use crate::record::{Fields, Record};
use crate::schema::{Collection, CollectionIx};
use crate::time::Timestamp;
use crate::version::{Lens, View};
use std::sync::Arc;

/// A request to change one record.
#[derive(Clone)]
pub struct Write {
    pub scope: Scope,
    pub collection: CollectionIx,
    /// The record; `None` for a create.
    pub id: Option<String>,
    /// The parent record, where the collection has one.
    pub parent: Option<String>,
    pub change: Change,
    /// The version of `Replace` and `Merge`, whose limits apply to the assigned values, and in
    /// whose words refusals are; `None`: the newest.
    pub view: Option<Arc<View>>,
    pub precondition: Precondition,
    pub idempotency: Option<Idempotency>,
    pub cause: Cause,
    pub now: Timestamp,
    pub entropy: Entropy,
}

impl Write {
    /// A refusal in the words of the caller's version. It is remembered in this form, because the
    /// words of the newest version may mean something else when the request is repeated.
    pub fn explain(&self, problem: Problem) -> Problem {
        match (&self.view, &self.change) {
            (Some(view), Change::Act { action, .. }) => {
                view.explain_rule(self.collection, *action, problem)
            }
            (Some(view), _) => view.explain(self.collection, &Fields::new(), problem),
            (None, _) => problem,
        }
    }

    /// Reports a value that an action may not set in the words of the caller's version.
    pub fn reword(&self, violation: &mut Violation, after: &Fields) {
        let lens = self.view.as_ref().and_then(|view| view.lens(self.collection));
        if let Some(lens) = lens {
            lens.reword(violation, &lens.down(after));
        }
    }

    /// The newest collection with the limits of the caller's version.
    pub(crate) fn held_to<'a>(&'a self, newest: &'a Collection) -> &'a Collection {
        let lens = self.view.as_ref().and_then(|view| view.lens(self.collection));
        lens.map_or(newest, |lens| &lens.stored)
    }

    /// How the version of a PUT or PATCH shows the collection, where it differs from the newest.
    pub fn lens(&self) -> Option<(&Collection, &Lens)> {
        let view = match self.change {
            Change::Replace { .. } | Change::Merge { .. } => self.view.as_deref()?,
            _ => return None,
        };
        Some((&view.schema.collections[self.collection], view.lens(self.collection)?))
    }
}

#[derive(Clone, Debug)]
pub enum Change {
    /// Fields already validated and with defaults applied.
    Create {
        fields: Fields,
    },
    /// PUT: erases the fields that are not in `fields`.
    Replace {
        fields: Fields,
    },
    /// PATCH: RFC 7396 merge.
    Merge {
        patch: Fields,
    },
    Delete,
    Act {
        action: usize,
        params: Fields,
        callout: Option<Callout>,
    },
    /// Set by the service itself, read-only fields included; the event is `updated` unless named.
    Assign {
        fields: Fields,
        event: Option<String>,
    },
    /// A timed transition of the collection, by its place in the schema.
    Timed {
        transition: usize,
    },
}

/// The response of an operator's HTTP handler to an action.
#[derive(Clone, Debug)]
pub enum Callout {
    Change(Fields),
    Refuse(Problem),
}

/// Conditions on the current version, from If-Match, If-Unmodified-Since and If-None-Match.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Precondition {
    #[default]
    None,
    /// `If-Match: *`: the record must exist, which every write demands anyway.
    Exists,
    /// One of these versions; an empty list never matches.
    Versions(Vec<i64>),
    UnmodifiedSince(Timestamp),
    /// `If-None-Match: *`: the record must not exist, which no write of a record can satisfy.
    Absent,
    /// None of these versions.
    NoneOf(Vec<i64>),
    /// Every one of these.
    All(Vec<Precondition>),
}

/// The caller's promise that this request and its repetitions are one.
#[derive(Clone, Debug)]
pub struct Idempotency {
    pub key: String,
    /// Digest of method, path, query, body and version: the same key must come with the same one.
    pub fingerprint: [u8; 32],
}

/// The response to a committed (or replayed) write. Rendered by `api::respond`, stored for replays.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    Created(Record),
    Updated(Record),
    Deleted {
        id: String,
    },
    /// Refused by a rule after execution began; remembered like a success, in the words of the
    /// caller's version.
    Refused(Problem),
}

/// The result of `Store::commit`.
#[derive(Clone, Debug, PartialEq)]
pub enum Committed {
    /// Durable now.
    Fresh(Response),
    /// The record was already as requested. The same request can be sent again.
    Unchanged(Response),
    /// This key was used for the same request before: here is what it answered, and which request
    /// it was.
    Replayed { response: Response, request: String },
}
