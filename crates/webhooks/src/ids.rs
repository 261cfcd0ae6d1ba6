//! Ids of deliveries and the chance in retry times, from the entropy that is passed in.

use crate::Outside;
use model::Timestamp;
use model::id::{self, Entropy};
use std::sync::Arc;

/// Ids drawn from one piece of entropy.
const DRAWS: u32 = 64;

pub struct Ids {
    outside: Arc<dyn Outside>,
    entropy: Entropy,
    drawn: u32,
    state: u64,
}

impl Ids {
    pub fn new(outside: Arc<dyn Outside>) -> Ids {
        let entropy = outside.entropy();
        let mut seed = [0; 8];
        seed.copy_from_slice(&outside.entropy().0[..8]);
        Ids { outside, entropy, drawn: 0, state: u64::from_le_bytes(seed) | 1 }
    }

    pub fn delivery(&mut self, now: Timestamp) -> String {
        if self.drawn == DRAWS {
            (self.entropy, self.drawn) = (self.outside.entropy(), 0);
        }
        self.drawn += 1;
        id::make("dlv", now, &self.entropy, self.drawn - 1)
    }

    /// For a write of its own.
    pub fn entropy(&self) -> Entropy {
        self.outside.entropy()
    }

    /// Between 0 and 1, by xorshift: nobody gains by guessing a jitter.
    pub fn chance(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1u64 << 53) as f64
    }
}
