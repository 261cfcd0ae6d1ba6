//! The writing side: complete frames of a server, not masked, which all receivers share.

use bytes::Bytes;

use super::close::code;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const LAST: u8 = 0x80;
const COMPRESSED: u8 = 0x40;

const MAX_CONTROL_BYTES: usize = 125;
const MAX_HEAD_BYTES: usize = 10;

pub fn text(payload: &str) -> Bytes {
    whole(LAST | TEXT, payload.as_bytes())
}

pub fn binary(payload: &[u8]) -> Bytes {
    whole(LAST | BINARY, payload)
}

/// The first 125 bytes of the payload: a ping has room for no more.
pub fn ping(payload: &[u8]) -> Bytes {
    whole(LAST | PING, &payload[..payload.len().min(MAX_CONTROL_BYTES)])
}

/// The answer to a ping with this payload.
pub fn pong(payload: &[u8]) -> Bytes {
    whole(LAST | PONG, &payload[..payload.len().min(MAX_CONTROL_BYTES)])
}

/// A close frame with as much of the reason as fits. [`code::NO_CODE`] makes a frame without code
/// and reason.
pub fn close(code: u16, reason: &str) -> Bytes {
    if code == code::NO_CODE {
        return whole(LAST | CLOSE, &[]);
    }
    let end = reason.floor_char_boundary(MAX_CONTROL_BYTES - 2);
    let payload = [&code.to_be_bytes(), &reason.as_bytes()[..end]].concat();
    whole(LAST | CLOSE, &payload)
}

/// A message whose payload is deflated already.
pub(super) fn compressed(is_text: bool, payload: &[u8]) -> Bytes {
    whole(LAST | COMPRESSED | if is_text { TEXT } else { BINARY }, payload)
}

fn whole(first: u8, payload: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(MAX_HEAD_BYTES + payload.len());
    frame.push(first);
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length @ 126..0x1_0000 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame.into()
}
