//! Follows the event log of a restive server over any of its channels.
//!
//! ```no_run
//! use restive_kit::client::Client;
//! use restive_kit::follow::{Channel, Follower, PositionFile, Update};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("https://api.example.com").key("sk_live_…").build()?;
//! let mut follower = Follower::builder(client, Channel::ServerSentEvents)
//!     .types(&["order.*"])
//!     .store(PositionFile::new("orders.position"))
//!     .build();
//! loop {
//!     match follower.next().await? {
//!         Update::Event(event) => println!("{} {}", event.kind(), event.text()),
//!         Update::Gap(gap) => println!("events are missing: read {:?} again", gap.refetch),
//!         _ => {}
//!     }
//! }
//! # }
//! ```
//!
//! The follower reconnects by itself and continues from its position, so that no event is lost or
//! repeated. Delays double from 1 s to 30 s, with a random part, and start again after a success.
//! If the server cannot continue from the position, the follower returns [`Update::Gap`], and then
//! the events that the list `/v1/events` still has. An error of [`Follower::next`] is final: the
//! server refuses the credentials or the request, or the position cannot be stored.

mod backoff;
mod event;
mod follower;
mod position;
mod sse;
mod websocket;

pub use self::event::Event;
pub use self::follower::{Builder, Follower};
pub use self::position::{Checkpoint, PositionFile, PositionStore, StoreFuture};

use crate::client::{self, BoxError};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// How the follower receives events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Channel {
    /// Reads a feed, such as `messages`, periodically.
    ShortPoll {
        feed: String,
        interval: Duration,
    },
    /// Reads a feed; the server holds the request until there is a record.
    LongPoll {
        feed: String,
    },
    ServerSentEvents,
    WebSocket,
}

/// What a follower returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum Update {
    /// The next event of the log, each once and in order.
    Event(Event),
    /// Some events cannot be delivered. Those that the server still lists follow.
    Gap(Gap),
    /// A message that is not in the log: `typing`, `online`, `presence.reset`.
    Message { kind: String, text: String },
}

/// Why the server could not continue from the position.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Gap {
    /// `expired`, `other_epoch` or `ahead_of_log`.
    pub reason: String,
    pub requested: Option<String>,
    pub resumed_at: Option<String>,
    /// Lists to read again.
    pub refetch: Vec<String>,
}

/// For logs and user interfaces: see [`Builder::on_status`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Status<'a> {
    /// The server accepted the connection.
    Connected,
    /// The connection failed or ended.
    Disconnected { reason: &'a str, retry_in: Duration },
    /// After a gap: the server refuses to list events.
    RereadRefused { reason: &'a str },
}

/// An error that a repetition does not solve.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request or the credentials, or the request is not valid.
    Refused(client::Error),
    /// The server closed the connection and does not want another one.
    Closed { code: u16, reason: String },
    /// One event is larger than the limit.
    TooLarge { limit_bytes: usize },
    /// The position cannot be read or stored.
    Store(BoxError),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(error) => error.fmt(out),
            Error::Closed { code, reason } => {
                write!(out, "the server closed the connection for good: {code} {reason}")
            }
            Error::TooLarge { limit_bytes } => {
                write!(out, "an event has more than {limit_bytes} bytes")
            }
            Error::Store(error) => write!(out, "the position cannot be stored: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Refused(error) => Some(error),
            Error::Store(error) => Some(&**error),
            _ => None,
        }
    }
}

/// Whether a repetition cannot help: the server itself refused, in its own words. A proxy's error
/// page may go away.
fn is_final(error: &client::Error) -> bool {
    match error {
        client::Error::Invalid(_) => true,
        client::Error::Api(api) => {
            (400..500).contains(&api.status)
                && !matches!(api.status, 408 | 409 | 425 | 429)
                && !api.code.is_empty()
        }
        _ => false,
    }
}
