//! The client's side of the WebSocket codec, as bytes: good frames and bad ones.

use wire::websocket::{Incoming, ProtocolError, Received};

pub const LAST: u8 = 0x80;
pub const DEFLATED: u8 = 0x40;
pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// A frame as a client sends it, with this first byte.
pub fn masked(first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = head(first, payload.len());
    frame[1] |= 0x80;
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A head without a mask.
pub fn head(first: u8, length: usize) -> Vec<u8> {
    let mut head = vec![first];
    match length {
        0..126 => head.push(length as u8),
        126..0x1_0000 => {
            head.push(126);
            head.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head
}

/// Everything that is received from bytes that arrive in these pieces.
pub fn read<'p>(
    mut incoming: Incoming,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Vec<Result<Received<'static>, ProtocolError>> {
    let mut received = Vec::new();
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut bytes = &mut piece[..];
        loop {
            match incoming.next(&mut bytes) {
                Ok(Some(one)) => received.push(Ok(owned(one))),
                Ok(None) => break,
                Err(broken) => received.push(Err(broken)),
            }
        }
        assert!(bytes.is_empty(), "all is taken before more is asked for");
    }
    received
}

fn owned(received: Received<'_>) -> Received<'static> {
    match received {
        Received::Text(text) => Received::Text(text.into_owned().into()),
        Received::Binary(bytes) => Received::Binary(bytes.into_owned().into()),
        Received::Ping(bytes) => Received::Ping(bytes.into_owned().into()),
        Received::Pong => Received::Pong,
        Received::Close(said) => {
            Received::Close(said.map(|(code, reason)| (code, reason.into_owned().into())))
        }
    }
}
