//! Wire through its public door: real sockets, raw bytes.

mod drain;
mod exchanges;
mod limits;
mod outgoing;
mod refusals;
mod server;
