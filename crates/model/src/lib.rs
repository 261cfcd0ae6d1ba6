//! The rules of the service. Everything here is pure: no I/O, no clock, no randomness; time and
//! entropy are arguments. The rest of the program asks this crate what a request means (`schema`,
//! `query`, `validate`), what has to happen (`decide`), and what to answer if it must not
//! (`problem`).

pub mod caller;
mod cause;
pub mod cursor;
pub mod decide;
pub mod event;
pub mod evolve;
pub mod expand;
pub mod id;
pub mod outgoing;
pub mod parse;
pub mod plan;
pub mod problem;
pub mod query;
mod raw;
pub mod record;
pub mod schema;
mod spelling;
pub mod time;
pub mod validate;
pub mod value;
pub mod version;
pub mod webhook;
pub mod write;

pub use caller::{Caller, Scope};
pub use problem::{Code, Problem, Violation};
pub use record::Record;
pub use schema::{Collection, CollectionIx, Field, Schema};
pub use time::Timestamp;
pub use write::{Change, Write};
