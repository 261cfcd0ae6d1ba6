//! WebSocket (RFC 6455) with compression (RFC 7692), the server's side, without I/O: checks the
//! opening handshake, reads the bytes of a client, and builds the frames for clients. The owner of
//! a connection that was taken over ([`crate::Payload::TakeOver`]) drives it.
//!
//! Only [`Incoming`] lives as long as a connection; it holds no buffer while no message is partly
//! received. Frames for clients are complete, and any number of clients may share them: a server's
//! frames are not masked, and none depends on an earlier one, because both sides always agree to
//! compress each message alone (`no_context_takeover`).

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

/// An event from a client. It borrows from the received bytes if it is contiguous there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'b> {
    Text(Cow<'b, str>),
    Binary(Cow<'b, [u8]>),
    /// The server answers with a [`pong`] with the same bytes.
    Ping(Cow<'b, [u8]>),
    Pong,
    /// The client closes, perhaps with a code and a reason. The server reads nothing after that.
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
