//! HTTP/2, the server's side, on the `h2` crate: that one knows frames, HPACK and flow control;
//! what is here decides what is let in, what one client may cost, and how a stream becomes the same
//! `Exchange` and `Response` as on HTTP/1.1. The way of a request, in file order: `tap` (bytes in,
//! counted by `frames`, which has `fields` look at header blocks), `settings`, `connection`
//! (accepts streams), `stream` (has the head admitted, calls the service), `outflow` or `channel`
//! (the answer). Works over any byte stream, so TLS is nobody's business here.

mod channel;
mod connection;
mod fields;
mod frames;
mod outflow;
mod settings;
mod stream;
mod tap;

pub(crate) use channel::Channel;
pub(crate) use connection::{UnderWay, serve};
pub(crate) use fields::Flaws;

/// What a client of HTTP/2 sends first (RFC 9113 3.4). No request of HTTP/1.x can begin like it.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// From where on it is nothing else: `PRI * HTTP/2`, which HTTP/1.x refuses without waiting for the
/// rest. Less may become any request with a P.
pub(crate) const PREFACE_HEAD_BYTES: usize = 12;
