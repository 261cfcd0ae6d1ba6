//! Any bytes, read whole and in pieces: no panic, the same requests either way, and the same as
//! hyper reads. The first byte says how the rest is cut.

#![no_main]

#[path = "../../tests/wire/hyper_reading.rs"]
mod hyper_reading;

use libfuzzer_sys::fuzz_target;
use wire::Limits;
use wire::offline::{self, Verdict};

use hyper_reading::{compare, hyper_reads};

/// As much as the pipe to hyper holds; no request of the corpus comes near.
const MAX_BYTES: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((cut, bytes)) = data.split_first().filter(|_| data.len() <= MAX_BYTES) else { return };
    let limits = Limits::default();
    let whole = offline::read([bytes], &limits);
    let pieces = offline::read(bytes.chunks(usize::from(*cut).max(1)), &limits);
    assert_eq!(whole.len(), pieces.len());
    for pair in whole.iter().zip(&pieces) {
        match pair {
            // Half a head may be refused for less than the whole one has wrong with it, and is not
            // looked at with every piece of it.
            (Verdict::Refused(_), Verdict::Refused(_) | Verdict::Incomplete)
            | (Verdict::Incomplete, Verdict::Refused(_)) => {}
            (one, other) => assert_eq!(one, other),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let theirs = runtime.block_on(hyper_reads(bytes));
    if let Err(difference) = compare(bytes, &whole, &theirs) {
        panic!("{difference}\nours: {whole:#?}");
    }
});
