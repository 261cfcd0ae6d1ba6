//! Why a call brought no response, and how far it had come. Does not judge whether to try again.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;

use crate::fault::BodyFault;

/// What a call was doing; says where a timeout struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for one of the backend's other calls to end.
    Queue,
    Resolve,
    Connect,
    Tls,
    Send,
    Head,
    Body,
}

/// Why there is no response.
#[derive(Debug)]
pub enum OutgoingFault {
    /// The URL is not one we can call. A retry does not help.
    Url(&'static str),
    /// The host name has no address.
    Resolve(io::Error),
    /// The caller does not want this address talked to. Nothing was connected.
    Forbidden(IpAddr),
    /// The backend has as many calls as it may have, and as many wait for it as may wait.
    QueueFull,
    /// No address of the host accepted a connection.
    Connect(io::Error),
    /// The TLS handshake failed: certificate, name or protocol.
    Tls(io::Error),
    /// The time for this stage, or for the whole call, was over.
    Timeout(Stage),
    /// The response is larger than we take: its head, or a body that was wanted whole.
    TooLarge,
    /// The other side closed or reset the connection before it had answered.
    Reset(Box<dyn Error + Send + Sync>),
    /// What came is no HTTP response, or ended before its own length.
    Protocol(Box<dyn Error + Send + Sync>),
    /// The body of the request broke off or was wrong. The other side is not to blame.
    RequestBody(BodyFault),
}

impl OutgoingFault {
    /// A name for logs and records. These never change.
    pub fn class(&self) -> &'static str {
        match self {
            OutgoingFault::Url(_) => "url",
            OutgoingFault::Resolve(_) => "dns",
            OutgoingFault::Forbidden(_) => "forbidden_address",
            OutgoingFault::QueueFull => "queue_full",
            OutgoingFault::Connect(_) => "connect",
            OutgoingFault::Tls(_) => "tls",
            OutgoingFault::Timeout(_) => "timeout",
            OutgoingFault::TooLarge => "too_large",
            OutgoingFault::Reset(_) => "reset",
            OutgoingFault::Protocol(_) => "invalid_response",
            OutgoingFault::RequestBody(_) => "request_body",
        }
    }

    /// Whether no byte of the request was sent, by the kind of the fault: then any request may be
    /// sent elsewhere.
    pub fn is_unsent(&self) -> bool {
        match self {
            OutgoingFault::Url(_)
            | OutgoingFault::Resolve(_)
            | OutgoingFault::Forbidden(_)
            | OutgoingFault::QueueFull
            | OutgoingFault::Connect(_)
            | OutgoingFault::Tls(_) => true,
            OutgoingFault::Timeout(stage) => {
                matches!(stage, Stage::Queue | Stage::Resolve | Stage::Connect | Stage::Tls)
            }
            OutgoingFault::TooLarge
            | OutgoingFault::Reset(_)
            | OutgoingFault::Protocol(_)
            | OutgoingFault::RequestBody(_) => false,
        }
    }
}

/// What the system says went wrong before the head of the response was whole.
pub(super) fn in_head(error: io::Error) -> OutgoingFault {
    match is_about_content(error.kind()) {
        true => OutgoingFault::Protocol(error.into()),
        false => OutgoingFault::Reset(error.into()),
    }
}

/// What the system says went wrong while the body was read. A body that ends early contradicts the
/// head, which is not the same as a connection that was torn down.
pub(super) fn in_body(error: io::Error) -> OutgoingFault {
    let kind = error.kind();
    match kind == io::ErrorKind::UnexpectedEof || is_about_content(kind) {
        true => OutgoingFault::Protocol(error.into()),
        false => OutgoingFault::Reset(error.into()),
    }
}

pub(super) fn refused_tls(error: impl Into<Box<dyn Error + Send + Sync>>) -> OutgoingFault {
    OutgoingFault::Tls(io::Error::other(error))
}

/// Bytes that came but could not be understood, such as bad TLS records.
fn is_about_content(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Queue => "waiting for the server's other calls",
            Stage::Resolve => "looking up the host name",
            Stage::Connect => "connecting",
            Stage::Tls => "shaking hands over TLS",
            Stage::Send => "sending the request",
            Stage::Head => "waiting for the response",
            Stage::Body => "reading the response body",
        })
    }
}

impl fmt::Display for OutgoingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutgoingFault::Url(what) => write!(f, "the URL {what}"),
            OutgoingFault::Resolve(error) => write!(f, "the host name has no address: {error}"),
            OutgoingFault::Forbidden(address) => {
                write!(f, "the address {address} must not be called")
            }
            OutgoingFault::QueueFull => write!(f, "too many calls wait for the server"),
            OutgoingFault::Connect(error) => write!(f, "no connection: {error}"),
            OutgoingFault::Tls(error) => write!(f, "no secure connection: {error}"),
            OutgoingFault::Timeout(stage) => write!(f, "the deadline passed while {stage}"),
            OutgoingFault::TooLarge => write!(f, "the response is too large"),
            OutgoingFault::Reset(error) => write!(f, "the connection broke off: {error}"),
            OutgoingFault::Protocol(error) => write!(f, "no valid HTTP response: {error}"),
            OutgoingFault::RequestBody(fault) => {
                write!(f, "the request body could not be read: {fault:?}")
            }
        }
    }
}

impl Error for OutgoingFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OutgoingFault::Resolve(error)
            | OutgoingFault::Connect(error)
            | OutgoingFault::Tls(error) => Some(error),
            OutgoingFault::Reset(error) | OutgoingFault::Protocol(error) => Some(&**error),
            OutgoingFault::Url(_)
            | OutgoingFault::Forbidden(_)
            | OutgoingFault::QueueFull
            | OutgoingFault::Timeout(_)
            | OutgoingFault::TooLarge
            | OutgoingFault::RequestBody(_) => None,
        }
    }
}
