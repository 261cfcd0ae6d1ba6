//! Why a call brought no answer, and how far it had come. Knows hyper's errors so that nobody else
//! has to; does not judge whether to try again.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// What a call was doing; says where a timeout struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Resolve,
    Connect,
    Tls,
    Head,
    Body,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum OutgoingFault {
    /// The URL is not one we can call. A retry does not help.
    Url(&'static str),
    /// The host name has no address.
    Resolve(io::Error),
    /// The caller does not want this address talked to. Nothing was connected.
    Forbidden(IpAddr),
    /// No address of the host accepted a connection.
    Connect(io::Error),
    /// The TLS handshake failed: certificate, name or protocol.
    Tls(io::Error),
    /// The deadline passed during this stage.
    Timeout(Stage),
    /// The response is larger than we take: its head, or a body that was wanted whole.
    TooLarge,
    /// The other side closed or reset the connection before it had answered.
    Reset(Box<dyn Error + Send + Sync>),
    /// What came is no HTTP/1.1 response, or ended before its own length.
    Protocol(Box<dyn Error + Send + Sync>),
}

impl OutgoingFault {
    /// A name for logs and records. These never change.
    pub fn class(&self) -> &'static str {
        match self {
            OutgoingFault::Url(_) => "url",
            OutgoingFault::Resolve(_) => "dns",
            OutgoingFault::Forbidden(_) => "forbidden_address",
            OutgoingFault::Connect(_) => "connect",
            OutgoingFault::Tls(_) => "tls",
            OutgoingFault::Timeout(_) => "timeout",
            OutgoingFault::TooLarge => "too_large",
            OutgoingFault::Reset(_) => "reset",
            OutgoingFault::Protocol(_) => "invalid_response",
        }
    }
}

/// What hyper says went wrong before the head of the response was whole.
pub(super) fn in_head(error: hyper::Error) -> OutgoingFault {
    let too_large = |kind| kind == io::ErrorKind::FileTooLarge;
    if error.is_parse_too_large() || carried(&error).is_some_and(too_large) {
        return OutgoingFault::TooLarge;
    }
    let broke_off = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    if broke_off || carried(&error).is_some_and(|kind| !is_about_content(kind)) {
        return OutgoingFault::Reset(error.into());
    }
    OutgoingFault::Protocol(error.into())
}

/// What hyper says went wrong while the body was read. A body that ends early contradicts the
/// head, which is not the same as a connection that was torn down.
pub(super) fn in_body(error: hyper::Error) -> OutgoingFault {
    let torn = |kind| kind != io::ErrorKind::UnexpectedEof && !is_about_content(kind);
    if carried(&error).is_some_and(torn) {
        return OutgoingFault::Reset(error.into());
    }
    OutgoingFault::Protocol(error.into())
}

pub(super) fn refused_tls(error: impl Into<Box<dyn Error + Send + Sync>>) -> OutgoingFault {
    OutgoingFault::Tls(io::Error::other(error))
}

/// The kind of the system's error within.
fn carried(error: &hyper::Error) -> Option<io::ErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}

/// Bytes that came but could not be understood: bad chunks, bad TLS records.
fn is_about_content(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Resolve => "looking up the host name",
            Stage::Connect => "connecting",
            Stage::Tls => "shaking hands over TLS",
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
            OutgoingFault::Connect(error) => write!(f, "no connection: {error}"),
            OutgoingFault::Tls(error) => write!(f, "no secure connection: {error}"),
            OutgoingFault::Timeout(stage) => write!(f, "the deadline passed while {stage}"),
            OutgoingFault::TooLarge => write!(f, "the response is too large"),
            OutgoingFault::Reset(error) => write!(f, "the connection broke off: {error}"),
            OutgoingFault::Protocol(error) => write!(f, "no valid HTTP response: {error}"),
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
            | OutgoingFault::Timeout(_)
            | OutgoingFault::TooLarge => None,
        }
    }
}
