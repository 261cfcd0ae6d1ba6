//! Any bytes as a client's frames, read whole and in pieces: no panic, the same messages either
//! way, and no more held than a message may have. The first byte says how the rest is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::websocket::{ProtocolError, Deflate, Incoming};

const LIMIT: usize = 4096;
/// A compressed message may be a little longer than what it is inflated to.
const MOST_HELD: usize = LIMIT + LIMIT / 16 + 256;

fuzz_target!(|data: &[u8]| {
    let Some((cut, bytes)) = data.split_first() else { return };
    for deflate in [None, Some(Deflate::USUAL)] {
        let whole = read(deflate, [bytes]);
        let pieces = read(deflate, bytes.chunks(usize::from(*cut).max(1)));
        assert_eq!(whole, pieces);
    }
});

fn read<'p>(
    deflate: Option<Deflate>,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Vec<Result<String, ProtocolError>> {
    let mut incoming = Incoming::new(LIMIT, deflate);
    let mut received = Vec::new();
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut rest = &mut piece[..];
        while let Some(one) = incoming.next(&mut rest).transpose() {
            received.push(one.map(|received| format!("{received:?}")));
        }
        assert!(rest.is_empty() && incoming.held_bytes() <= MOST_HELD);
    }
    received
}
