//! HTTP/3, the server's side, on `quinn`: that one knows QUIC, its packets, windows, losses and
//! keys; what is here decides what is let in, what one client may cost, and how a stream becomes
//! the same `Exchange` and `Response` as on HTTP/1.1. The way of a request, in file order:
//! `endpoint` (connections), `settings`, `connection` and `control` (accepts streams),
//! `context` (what the tasks of a connection share), `inflow` (`frames` become heads and bodies,
//! within `window`), `message` (over `qpack`), `stream` (has the head admitted, calls the service),
//! `outflow` or `channel` (the answer).
//!
//! The layer above QUIC is our own: the `h3` crate (0.0.8) keeps whole frames of any size in
//! memory, takes a body that is cut off in the middle of a frame for complete, and does not tell
//! which pseudo-header fields came twice. Only its client is used, by tests and measurements.

mod channel;
mod connection;
mod context;
mod control;
mod endpoint;
mod frames;
mod inflow;
mod message;
mod outflow;
mod qpack;
mod settings;
mod stream;
mod window;

pub(crate) use endpoint::{bind, serve};
