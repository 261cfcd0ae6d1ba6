//! A message that arrives in pieces. Its memory grows with the received bytes, not with the
//! announced length, and never beyond the limit.

use std::borrow::Cow;

use super::deflate;
use super::head::Opcode;
use super::utf8::Text;
use super::{ProtocolError, Received};

/// More bytes usually follow a first piece of a few bytes.
const LEAST_CAPACITY: usize = 64;

#[derive(Debug)]
pub(super) enum Message {
    Text(Text),
    Binary(Vec<u8>),
    /// Inflated when it is complete: an inflater is larger than most messages, so incomplete
    /// messages have none.
    Deflated {
        is_text: bool,
        bytes: Vec<u8>,
    },
}

impl Message {
    pub(super) fn new(opcode: Opcode, is_compressed: bool) -> Message {
        let is_text = opcode == Opcode::Text;
        match (is_compressed, is_text) {
            (true, _) => Message::Deflated { is_text, bytes: Vec::new() },
            (false, true) => Message::Text(Text::default()),
            (false, false) => Message::Binary(Vec::new()),
        }
    }

    pub(super) fn is_compressed(&self) -> bool {
        matches!(self, Message::Deflated { .. })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) | Message::Deflated { bytes, .. } => bytes.len(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        match self {
            Message::Text(text) => text.capacity(),
            Message::Binary(bytes) | Message::Deflated { bytes, .. } => bytes.capacity(),
        }
    }

    /// Adds a piece. The message has at most `most` bytes, as far as is known.
    pub(super) fn push(&mut self, piece: &[u8], most: usize) -> Result<(), ProtocolError> {
        let needed = self.len() + piece.len();
        match self {
            Message::Text(text) => {
                if needed > text.capacity() {
                    text.reserve_to(room(text.capacity(), needed, most));
                }
                text.push(piece)
            }
            Message::Binary(bytes) | Message::Deflated { bytes, .. } => {
                if needed > bytes.capacity() {
                    bytes.reserve_exact(room(bytes.capacity(), needed, most) - bytes.len());
                }
                bytes.extend_from_slice(piece);
                Ok(())
            }
        }
    }

    pub(super) fn finish<'b>(self, max_bytes: usize) -> Result<Received<'b>, ProtocolError> {
        Ok(match self {
            Message::Text(text) => Received::Text(text.finish()?.into()),
            Message::Binary(bytes) => Received::Binary(bytes.into()),
            Message::Deflated { is_text, bytes } => inflated(is_text, &bytes, max_bytes)?,
        })
    }
}

/// A message that is contiguous in the received bytes.
pub(super) fn whole<'b>(is_text: bool, payload: &'b [u8]) -> Result<Received<'b>, ProtocolError> {
    if !is_text {
        return Ok(Received::Binary(Cow::Borrowed(payload)));
    }
    let text = str::from_utf8(payload).map_err(|_| ProtocolError::NOT_UTF_8)?;
    Ok(Received::Text(Cow::Borrowed(text)))
}

pub(super) fn inflated<'b>(
    is_text: bool,
    payload: &[u8],
    max_bytes: usize,
) -> Result<Received<'b>, ProtocolError> {
    let bytes = deflate::inflate(payload, max_bytes)?;
    if !is_text {
        return Ok(Received::Binary(bytes.into()));
    }
    let text = String::from_utf8(bytes).map_err(|_| ProtocolError::NOT_UTF_8)?;
    Ok(Received::Text(text.into()))
}

/// Doubles the capacity, so that many small pieces are not copied repeatedly.
fn room(capacity: usize, needed: usize, most: usize) -> usize {
    capacity.saturating_mul(2).max(LEAST_CAPACITY).min(most).max(needed)
}
