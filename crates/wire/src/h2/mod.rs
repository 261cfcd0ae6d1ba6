//! HTTP/2, the server's side, on the `h2` crate: that one knows frames, HPACK and flow control;
//! what is here decides what is let in, what one client may cost, and how a stream becomes the same
//! `Exchange` and `Response` as on HTTP/1.1. The way of a request, in file order: `tap` (bytes in,
//! counted by `frames`, which has `blocks` read header blocks), `settings`, `connection`
//! (accepts streams), `stream` (has the head admitted, calls the service), `outflow` or `channel`
//! (the answer). Works over any byte stream, so TLS is not known here.

mod blocks;
mod channel;
mod connection;
mod frames;
mod outflow;
mod remainder;
mod settings;
mod stream;
mod tap;

pub(crate) use connection::serve;
