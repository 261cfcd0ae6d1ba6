//! The head of a client's frame (RFC 6455 5.2), and every rule that can be checked with one head
//! alone.

use super::ProtocolError;

/// Two bytes, eight for the length, four for the mask.
pub(super) const MAX_BYTES: usize = 14;
const MAX_CONTROL_BYTES: usize = 125;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    pub(super) fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) opcode: Opcode,
    /// The last frame of its message.
    pub(super) is_last: bool,
    /// Begins a compressed message.
    pub(super) is_compressed: bool,
    pub(super) length: usize,
    pub(super) mask: [u8; 4],
    /// Its own length.
    pub(super) bytes: usize,
}

impl Head {
    /// Reads the head at the start of these bytes. None if it is incomplete. A fault in the first
    /// two bytes is reported at once, before the rest arrives.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Head>, ProtocolError> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let (opcode, is_compressed) = kind(*first)?;
        let is_last = first & 0x80 != 0;
        let short = usize::from(second & 0x7f);
        if second & 0x80 == 0 {
            return Err(ProtocolError::protocol("A client must mask its frames."));
        }
        if opcode.is_control() && !is_last {
            return Err(ProtocolError::protocol("A control frame must not be fragmented."));
        }
        if opcode.is_control() && short > MAX_CONTROL_BYTES {
            return Err(ProtocolError::protocol("A control frame has at most 125 bytes."));
        }
        let Some((length, rest)) = length(short, rest)? else { return Ok(None) };
        let Some((mask, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let bytes = bytes.len() - rest.len();
        Ok(Some(Head { opcode, is_last, is_compressed, length, mask: *mask, bytes }))
    }
}

fn kind(first: u8) -> Result<(Opcode, bool), ProtocolError> {
    let opcode = match first & 0xf {
        0x0 => Opcode::Continuation,
        0x1 => Opcode::Text,
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xa => Opcode::Pong,
        _ => return Err(ProtocolError::protocol("The opcode of the frame is reserved.")),
    };
    let begins = matches!(opcode, Opcode::Text | Opcode::Binary);
    match first & 0x70 {
        0x00 => Ok((opcode, false)),
        // RFC 7692 6: on the first frame of a message, and on no other.
        0x40 if begins => Ok((opcode, true)),
        _ => Err(ProtocolError::protocol("A reserved bit of the frame is set.")),
    }
}

/// The length, and the bytes after it. A length that does not fit the type is larger than any
/// limit.
fn length(short: usize, rest: &[u8]) -> Result<Option<(usize, &[u8])>, ProtocolError> {
    let (length, least, rest) = match short {
        126 => {
            let Some((two, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (u64::from(u16::from_be_bytes(*two)), 126, rest)
        }
        127 => {
            let Some((eight, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (u64::from_be_bytes(*eight), 1 << 16, rest)
        }
        _ => return Ok(Some((short, rest))),
    };
    if length < least {
        return Err(ProtocolError::protocol(
            "The length of the frame is not in its shortest form.",
        ));
    }
    if length >> 63 != 0 {
        return Err(ProtocolError::protocol("The length of the frame has more than 63 bits."));
    }
    Ok(Some((usize::try_from(length).unwrap_or(usize::MAX), rest)))
}
