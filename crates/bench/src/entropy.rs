//! Random letters for ids, keys and texts: seeded from the system once, then xorshift, so that the
//! generator spends hardly any time on them.

use anyhow::{Result, anyhow};

const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

pub struct Entropy {
    state: u64,
}

impl Entropy {
    pub fn new() -> Result<Self> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| anyhow!("no entropy: {error}"))?;
        // Zero is the only state that xorshift never leaves.
        Ok(Self { state: u64::from_le_bytes(seed) | 1 })
    }

    pub fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub fn letters(&mut self, count: usize) -> String {
        let letter = |_| char::from(LETTERS[(self.next() >> 32) as usize % LETTERS.len()]);
        (0..count).map(letter).collect()
    }
}
