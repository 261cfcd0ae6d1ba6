//! Wire through its public door: real sockets, raw bytes.

// The helpers of tests state expectations too; clippy exempts only the test functions.
#![allow(clippy::unwrap_used)]

mod admission;
mod chance;
mod corpus;
mod differential;
mod drain;
mod eviction;
mod exchanges;
mod h2;
mod h2_client;
mod h2_hostile;
mod h2_tls;
mod h3;
mod h3_client;
mod h3_hostile;
mod h3_identity;
mod hints;
mod holders;
mod hyper_reading;
mod limits;
mod memory;
mod outgoing;
mod outgoing_hostile;
mod outgoing_kept;
mod pace;
mod peer;
mod proxy;
mod refusals;
mod server;
mod sink;
mod streams;
mod take_over;
mod tls;
mod tls_hostile;
mod upstream;
mod upstream_h2;
mod upstream_hostile;
mod upstream_kept;
mod upstream_tls;
mod websocket;
mod websocket_chance;
mod websocket_client;
mod websocket_echo;
mod websocket_handshake;
