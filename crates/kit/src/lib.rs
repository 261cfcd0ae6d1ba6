//! For programs on the other side of a restive server: consumers of its API, its streams and its
//! webhooks. The crate depends on nothing of the service, so that a consumer can use it alone.
//!
//! | feature | module | content |
//! |---|---|---|
//! | none | [`signature`] | sign and verify webhooks; pure functions without I/O or clocks |
//! | `client` | `client` | API client: retries, idempotency keys, paging, ETags, typed errors |
//! | `follow` | `follow` | followers of the event log: polling, server-sent events, WebSocket |
//! | `reconcile` | `reconcile` | fetches events that webhooks did not deliver |

pub mod signature;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "follow")]
pub mod follow;
#[cfg(feature = "reconcile")]
pub mod reconcile;
