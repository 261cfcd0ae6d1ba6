//! Decide, then write. Given the schema, the wish and the facts a store has loaded, say what shall be
//! kept, which events tell of it and what is answered, or why not. Pure: a store calls this inside its
//! transaction, tests call it without one.

use crate::problem::Problem;
use crate::record::{Fields, Record};
use crate::schema::{CollectionIx, Schema};
use crate::time::Timestamp;
use crate::write::Write;

/// What the store found out before it asked.
pub struct Facts<'a> {
    /// The record the write names, if it exists in the write's scope (and under its parent).
    pub current: Option<&'a Record>,
    /// Whether the write's record existed once and was deleted; only asked for deletes.
    pub was_deleted: bool,
    /// Whether the write's parent exists; true for collections without one.
    pub parent_exists: bool,
    /// Those of `references(…)` that name no existing record.
    pub missing: &'a [Reference],
    /// The commit sequence that the first event of this write will get.
    pub next_seq: i64,
    /// Never earlier than that of any earlier commit.
    pub now: Timestamp,
}

/// A record that a write refers to and that must exist in the same scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub field: String,
    pub collection: CollectionIx,
    pub id: String,
}

#[derive(Debug)]
pub struct Decision {
    pub effect: Effect,
    /// Empty exactly when `effect` is `Nothing`.
    pub events: Vec<Draft>,
    /// Timed transitions to schedule; those of the record that waited before are void once `effect`
    /// is not `Nothing`.
    pub timers: Vec<TimerDraft>,
    pub answer: Answer,
}

#[derive(Debug)]
pub enum Effect {
    Nothing,
    Put(Kept),
    Erase,
}

/// A record as it shall be kept.
#[derive(Debug)]
pub struct Kept {
    pub id: String,
    pub fields: Fields,
    pub body: String,
    pub hidden: Option<String>,
}

/// An event before it has its place in the log.
#[derive(Debug)]
pub struct Draft {
    pub id: String,
    pub kind: String,
    /// Public JSON text of the record at the event.
    pub object: String,
    pub previous: Option<String>,
}

#[derive(Debug)]
pub struct TimerDraft {
    pub transition: usize,
    pub due: Timestamp,
}

/// Which response the store shall build around the record.
#[derive(Debug)]
pub enum Answer {
    Created,
    Updated,
    Deleted,
    Refused(Problem),
}

/// The records this write refers to.
pub fn references(_schema: &Schema, _write: &Write) -> Vec<Reference> {
    Vec::new()
}

/// The heart of the service.
pub fn decide(_schema: &Schema, _write: &Write, _facts: &Facts<'_>) -> Result<Decision, Problem> {
    Err(Problem::new(crate::Code::Internal, "not written yet"))
}
