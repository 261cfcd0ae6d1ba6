//! HTTP/1.1 and 1.0, the server's side. The way of a request, in file order: `buffer` (borrowed
//! when bytes arrive), `head` (where it ends, what it says), `admission` (what is refused),
//! `inflow` and `chunked` (its body), then the service, then `encode` and `outflow` (the answer).
//! `connection` drives them. `head`, `admission` and `chunked` do no I/O and hold no clock.

mod admission;
mod buffer;
mod chunked;
mod connection;
mod date;
mod encode;
mod head;
mod inflow;
mod link;
pub mod offline;
mod outflow;

pub(crate) use admission::is_host;
pub(crate) use buffer::{Buffers, Heads};
pub(crate) use chunked::is_forbidden;
pub(crate) use connection::{Connection, Leaving, refuse, turn_away};
pub(crate) use date::Date;
pub(crate) use head::METHOD_BYTES;
pub(crate) use link::{Link, Phase};
