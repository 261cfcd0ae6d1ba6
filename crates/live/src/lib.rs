//! Open connections that follow the log: short and long polls, server-sent events, WebSockets, and
//! who is online by them. The log is followed once (`hub`), its newest part stands in memory
//! (`ring`), encoded once per kind of channel and version (`entry`). A connection (`line`) has a
//! place in the log and no queue; it is parked in the shard of its thread (`seat`) until something
//! is there that it wants (`index`). What is shared is shared fairly by accounts: the ring, the
//! turns of a shard, the readers of the log and the buffers of ephemeral messages (`passing`).

mod ask;
mod bounds;
mod entry;
mod hub;
mod index;
mod interest;
mod limits;
mod line;
mod metrics;
mod own;
mod passing;
mod poll;
mod position;
mod presence;
mod readers;
mod reset;
mod ring;
mod seat;
mod shard;
mod socket;
mod sse;
mod wheel;

pub use ask::{
    Asked, Feeds, Held, MAX_TYPES, PASSING, Standing, TYPING, VERSION, Visitor, types,
    version as asked_version,
};
pub use bounds::Bounds;
pub use hub::{Full, Hub};
pub use interest::{Interest, Permit};
pub use limits::Limits;
pub use poll::{Answer, Asking, LIMIT as POLL_LIMIT, Polled, poll};
pub use position::{Epoch, Place, Position};
pub use presence::{Present, SCOPE as PRESENCE_SCOPE};
pub use socket::{Desk, PROTOCOL, Posted, Posting, admit, open as open_socket};
pub use sse::{come_again, headers as sse_headers, open as open_sse};
