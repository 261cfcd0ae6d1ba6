//! HTTP/1.1 and 1.0, the server's side. The way of a request, in file order: `head` (where it ends,
//! what it says), `admission` (what is refused), `inflow` and `chunked` (its body), then the
//! service, then `encode` and `outflow` (the response), while `watch` notices a client that leaves.
//! `connection` drives them. `head`, `admission` and `chunked` do no I/O and hold no clock.

mod admission;
pub(crate) mod chunked;
mod connection;
pub(crate) mod encode;
mod head;
mod inflow;
pub mod offline;
mod outflow;
mod watch;

pub(crate) use connection::{Connection, Handover, refuse, refuse_overloaded};
