//! HMAC-SHA256 with the key worked in once. Signing starts from a copy of that state, which saves
//! two rounds of SHA-256 per message, four for a key longer than a block.

pub(super) const TAG_BYTES: usize = 32;

#[cfg(not(feature = "aws-lc"))]
mod state {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;

    #[derive(Clone)]
    pub struct State(Hmac<Sha256>);

    impl State {
        pub fn new(key: &[u8]) -> Self {
            Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
        }

        pub fn update(&mut self, part: &[u8]) {
            self.0.update(part);
        }

        pub fn tag(self) -> [u8; super::TAG_BYTES] {
            self.0.finalize().into_bytes().into()
        }
    }
}

#[cfg(feature = "aws-lc")]
mod state {
    use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};

    #[derive(Clone)]
    pub struct State(Context);

    impl State {
        pub fn new(key: &[u8]) -> Self {
            Self(Context::with_key(&Key::new(HMAC_SHA256, key)))
        }

        pub fn update(&mut self, part: &[u8]) {
            self.0.update(part);
        }

        pub fn tag(self) -> [u8; super::TAG_BYTES] {
            self.0.sign().as_ref().try_into().expect("a tag of SHA-256 has 32 bytes")
        }
    }
}

#[derive(Clone)]
pub(super) struct Keyed(state::State);

impl Keyed {
    pub fn new(key: &[u8]) -> Self {
        Self(state::State::new(key))
    }

    /// The tag of all parts, one after the other.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut state = self.0.clone();
        for part in parts {
            state.update(part);
        }
        state.tag()
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
    let (mut tag, mut all) = ([0; TAG_BYTES], 0);
    for (byte, pair) in tag.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (VALUES[usize::from(pair[0])], VALUES[usize::from(pair[1])]);
        *byte = high << 4 | (low & 15);
        all |= high | low;
    }
    (all < 16).then_some(tag)
}

/// The value of each byte as a hex digit.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let digit = DIGITS[value as usize];
        values[digit as usize] = value;
        values[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    values
};
const NO_DIGIT: u8 = 0xFF;

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
