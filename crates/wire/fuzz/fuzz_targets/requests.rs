//! Any bytes, read whole and in pieces: no panic, and the same requests either way. The first byte
//! says how the rest is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Limits;
use wire::offline::{self, Verdict};

fuzz_target!(|data: &[u8]| {
    let Some((cut, bytes)) = data.split_first() else { return };
    let limits = Limits::default();
    let whole = offline::read([bytes], &limits);
    let pieces = offline::read(bytes.chunks(usize::from(*cut).max(1)), &limits);
    assert_eq!(whole.len(), pieces.len());
    for pair in whole.iter().zip(&pieces) {
        match pair {
            // Half a head may be refused for less than the whole one has wrong with it.
            (Verdict::Refused(_), Verdict::Refused(_)) => {}
            (one, other) => assert_eq!(one, other),
        }
    }
});
