//! Open connections that follow the log: short and long polls, server-sent events, WebSockets, and
//! who is online by them. The log is followed once (`hub`), its newest part stands in memory
//! (`ring`), encoded once per kind of channel and version (`entry`). A connection (`subscription`)
//! has a cursor in the log and no queue; it is parked in the shard of its thread (`slot`) until
//! there is an event that it wants (`index`). What is shared is shared fairly by accounts: the
//! ring, the turns of a shard, the readers of the log, the threads that convert events to older
//! versions (`conversions`) and the buffers of ephemeral messages (`ephemeral`).

mod ask;
mod permission;
mod bounds;
mod conversions;
mod kind;
mod entry;
mod hub;
mod index;
mod interest;
mod limits;
mod subscription;
mod metrics;
mod replies;
mod ephemeral;
mod poll;
mod position;
mod presence;
mod readers;
mod reset;
mod ring;
mod slot;
mod shard;
mod socket;
mod sse;
mod wheel;

pub use ask::{
    ChannelCaller, Feeds, MAX_TYPES, SubscribeRequest, VERSION, Validity, ValidityCheck, types,
    version as asked_version,
};
pub use bounds::Bounds;
pub use conversions::{Conversions, INLINE_UNITS};
pub use hub::{Full, Hub, PerChannel};
pub use interest::{Interest, Permit};
pub use kind::{EPHEMERAL, TYPING};
pub use limits::Limits;
pub use permission::check_token;
pub use poll::{LIMIT as POLL_LIMIT, PollRequest, PollResponse, Polled, hold_time, poll};
pub use position::{Epoch, Position, ResumePoint};
pub use presence::SCOPE as PRESENCE_SCOPE;
pub use socket::{PROTOCOL, PendingPost, Posted, RecordWriter, admit, open as open_socket};
pub use sse::{headers as sse_headers, open as open_sse, retry_later};
