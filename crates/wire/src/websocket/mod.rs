//! WebSocket (RFC 6455) with compression (RFC 7692), the server's side, without I/O: whether an
//! opening handshake is one, what bytes mean that came from a client, and what is sent to one.
//! The owner of a connection that was taken over ([`crate::Payload::TakeOver`]) drives it.
//!
//! Nothing here lives as long as a connection but [`Incoming`], which holds no buffer while no
//! message is half received. What is sent is complete frames that any number of clients may share:
//! a server's frames are not masked, and none depends on one before it, because both sides always
//! agree to forget what they compressed before (`no_context_takeover`).

mod handshake;
mod extensions;
mod close;
mod head;
mod mask;
mod utf8;
mod message;
mod incoming;
mod deflate;
mod frame;

use std::borrow::Cow;

pub use close::code;
pub use deflate::{Deflate, deflated, deflated_binary};
pub use frame::{binary, close, ping, pong, text};
pub use handshake::{Accepted, Options, Refused, accept, offered_protocols};
pub use incoming::Incoming;

/// What a client has sent. It borrows from the bytes it came in wherever it stands there in one
/// piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'b> {
    Text(Cow<'b, str>),
    Binary(Cow<'b, [u8]>),
    /// To be answered by a [`pong`] with the same bytes.
    Ping(Cow<'b, [u8]>),
    Pong,
    /// The client closes, perhaps with a code and a reason. Nothing it sends afterwards is
    /// read.
    Close(Option<(u16, Cow<'b, str>)>),
}

/// The client broke a rule: the connection ends with this code and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    pub code: u16,
    pub reason: &'static str,
}

impl ProtocolError {
    const fn protocol(reason: &'static str) -> ProtocolError {
        ProtocolError { code: code::PROTOCOL_ERROR, reason }
    }

    const fn invalid(reason: &'static str) -> ProtocolError {
        ProtocolError { code: code::INVALID_DATA, reason }
    }

    const TOO_BIG: ProtocolError = ProtocolError {
        code: code::TOO_BIG,
        reason: "The message is larger than this server takes.",
    };
    const NOT_UTF_8: ProtocolError = ProtocolError::invalid("The text is not valid UTF-8.");
}
