//! How bytes travel. The seam: a [`Service`] is given an [`Exchange`] and returns a [`Response`].
//! Nothing above this crate knows which HTTP library or protocol version carried it; the shared
//! vocabulary is the `http` crate. Wire knows no resource, no store and no error format: even the
//! body of a `400` for bytes that are no request comes from [`Service::refuse`].
//!
//! The way of a request: `listen` → `worker` (one per core) → `tls` where the listener has it →
//! `h1` or `h2` (the bytes become an exchange) → `call` → the service → `h1` or `h2` again (the
//! answer becomes bytes). HTTP/3 has a thread and a socket of its own: `listen` → `h3`.

mod budget;
mod body;
mod channel;
mod exchange;
mod fault;
mod hints;
mod huffman;
mod limits;
mod memory;
mod pace;
mod payload;
mod pipe;
mod raw;
mod shutdown;
mod peer;
mod stream;
mod terms;

mod listen;
mod serve;
mod worker;

pub mod tls;

mod accept;
mod admission;
mod answering;
mod call;
mod fields;
mod host;
mod preface;
mod h1;
mod h2;
mod h3;

pub mod outgoing;
pub mod websocket;

use std::future::Future;
use std::pin::Pin;

pub use body::Body;
pub use budget::{Budget, Share};
pub use exchange::{Exchange, Response};
pub use fault::{BodyFault, Fault, accepted, wants_events};
#[doc(hidden)]
pub use h1::offline;
pub use hints::{EarlyHints, Hints};
pub use limits::Limits;
pub use listen::{Listener, Running, Usage};
pub use memory::Holder;
pub use outgoing::{Client, OutgoingFault};
pub use payload::{Chunks, Cut, Gone, Payload, Sender, TakeOver};
pub use peer::{Networks, NetworksFault, client_network};
pub use raw::Raw;
pub use shutdown::{Shutdown, Trigger};
pub use tls::Tls;

/// The future of one answer.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Response> + Send + 'a>>;

/// What is served. One value serves every connection, thread and protocol version.
pub trait Service: Send + Sync + 'static {
    /// Answers one request.
    ///
    /// The future is dropped unfinished when the connection breaks or the drain time is over, so
    /// work that must complete belongs into a task of its own. A panic becomes
    /// `refuse(Fault::Internal)`.
    fn call(&self, exchange: Exchange) -> Answer<'_>;

    /// The answer to bytes that never became an [`Exchange`]: a complete response with the status
    /// of [`Fault::status`], or for [`Fault::OverloadedStream`] perhaps another. Wire adds
    /// `Connection: close` where the connection cannot go on.
    fn refuse(&self, fault: Fault) -> Response;

    /// Whether [`Service::call`] is given up when an HTTP/1.1 client has closed its side of the
    /// connection, as it is when it resets the connection. For services that only pass requests on.
    fn stops_with_client(&self) -> bool {
        false
    }
}
