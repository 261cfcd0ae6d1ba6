//! For programs on the other side of a restive server: consumers of its API, its streams and its
//! webhooks. The crate depends on nothing of the service, so that a consumer can use it alone.
//!
//! | feature | module | content |
//! |---|---|---|
//! | none | [`signature`] | sign, verify and diagnose webhooks; no I/O, no clock, no randomness |
//! | `receiver` | `receiver` | the contract of a receiver: verify, store, answer |
//! | `inbox` | `inbox` | a durable queue of events in SQLite, with workers |
//! | `client` | `client` | API client: retries, idempotency keys, paging, ETags, typed errors |
//! | `follow` | `follow` | followers of the event log: polling, server-sent events, WebSocket |
//! | `reconcile` | `reconcile` | fetches events that webhooks did not deliver |
//! | `aws-lc` | | signatures by AWS-LC, twice as fast on CPUs without instructions for SHA |

mod json;

pub mod signature;

#[cfg(any(feature = "receiver", feature = "inbox"))]
pub mod event;
#[cfg(feature = "inbox")]
pub mod inbox;
#[cfg(feature = "receiver")]
pub mod receiver;

#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "follow", feature = "reconcile"))]
mod own;
#[cfg(feature = "follow")]
pub mod follow;
#[cfg(feature = "reconcile")]
pub mod reconcile;
