//! Identifiers: `<prefix>_` and 29 characters: 48 bits of time, so that new rows land at the end of
//! an index, and 96 random bits, so that nobody can guess or count them. Opaque to clients.

use crate::time::Timestamp;
use sha2::{Digest, Sha256};

/// Crockford's alphabet in lower case: its order is the order of the bits.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ENCODED_CHARS: usize = 29;

/// 256 random bits given to one write; every id the write makes is drawn from them.
#[derive(Clone, Copy)]
pub struct Entropy(pub [u8; 32]);

impl Entropy {
    /// The `n`-th independent 96 bits.
    fn draw(&self, n: u32) -> [u8; 12] {
        let mut out = [0; 12];
        match n {
            0 => out.copy_from_slice(&self.0[..12]),
            1 => out.copy_from_slice(&self.0[12..24]),
            _ => {
                let hash = Sha256::new_with_prefix(self.0).chain_update(n.to_be_bytes()).finalize();
                out.copy_from_slice(&hash[..12]);
            }
        }
        out
    }
}

impl Entropy {
    /// The `n`-th 192 bits for a secret, independent of all ids.
    pub fn secret(&self, n: u32) -> [u8; 24] {
        let hash = Sha256::new_with_prefix(b"secret")
            .chain_update(self.0)
            .chain_update(n.to_be_bytes())
            .finalize();
        let mut out = [0; 24];
        out.copy_from_slice(&hash[..24]);
        out
    }
}

/// Makes the `n`-th id of a write.
pub fn make(prefix: &str, now: Timestamp, entropy: &Entropy, n: u32) -> String {
    let mut bytes = [0u8; 18];
    bytes[..6].copy_from_slice(&now.0.max(0).to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&entropy.draw(n));
    let mut id = String::with_capacity(prefix.len() + 1 + ENCODED_CHARS);
    id.push_str(prefix);
    id.push('_');
    encode(&bytes, &mut id);
    id
}

/// Whether `id` has the form of an id with this prefix. Says nothing about its existence.
pub fn is_well_formed(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).is_some_and(|rest| {
        rest.len() == ENCODED_CHARS && rest.bytes().all(|b| ALPHABET.contains(&b))
    })
}

fn encode(bytes: &[u8], out: &mut String) {
    let mut window: u32 = 0;
    let mut bits = 0;
    for &byte in bytes {
        window = window << 8 | u32::from(byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(ALPHABET[(window >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        out.push(char::from(ALPHABET[(window << (5 - bits) & 31) as usize]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_differ_in_each_draw() {
        let entropy = Entropy([7; 32]);
        let early = make("book", Timestamp(1_000), &entropy, 0);
        let late = make("book", Timestamp(2_000), &entropy, 0);
        assert!(early < late);
        assert_eq!(early.len(), "book_".len() + ENCODED_CHARS);
        assert!(is_well_formed("book", &early));
        assert!(!is_well_formed("order", &early));
        let draws: std::collections::HashSet<_> =
            (2..50).map(|n| make("evt", Timestamp(1), &entropy, n)).collect();
        assert_eq!(draws.len(), 48);
    }
}
