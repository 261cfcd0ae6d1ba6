//! HMAC-SHA256 with the key worked in once. Signing starts from a copy of that state, which saves
//! two rounds of SHA-256 per message, four for a key longer than a block.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub(super) const TAG_BYTES: usize = 32;

#[derive(Clone)]
pub(super) struct Keyed(Hmac<Sha256>);

impl Keyed {
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// The tag of all parts, one after the other.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// A tag from its 64 hex digits; both cases, since senders differ.
pub(super) fn tag_from_hex(text: &[u8]) -> Option<[u8; TAG_BYTES]> {
    if text.len() != 2 * TAG_BYTES {
        return None;
    }
    let mut tag = [0; TAG_BYTES];
    for (byte, pair) in tag.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(tag)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        b'A'..=b'F' => Some(letter - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_hex() {
        for start in (0..=255).step_by(TAG_BYTES) {
            let tag: [u8; TAG_BYTES] = std::array::from_fn(|at| start + at as u8);
            let mut text = String::new();
            push_hex(&mut text, &tag);
            assert_eq!(tag_from_hex(text.as_bytes()), Some(tag));
            assert_eq!(tag_from_hex(text.to_uppercase().as_bytes()), Some(tag));
        }
    }

    #[test]
    fn an_invalid_tag_is_not_accepted() {
        let good = "0f".repeat(TAG_BYTES);
        assert!(tag_from_hex(good.as_bytes()).is_some());
        for bad in [&good[1..], &format!("{good}0"), &good.replace("0f", "0g"), ""] {
            assert_eq!(tag_from_hex(bad.as_bytes()), None, "{bad}");
        }
    }
}
