//! Compression of single messages (RFC 7692 7.2). Inflaters and deflaters are large (tens and
//! hundreds of KB), so each thread has one of each, and a message borrows it. No message depends on
//! an earlier one (`no_context_takeover`), so a connection keeps no state of them.

use std::cell::Cell;

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{ProtocolError, frame};

/// The compression that both sides agreed on. Each message always starts with an empty context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deflate {
    /// How far back the server's messages may refer, as a power of two: 9 to 15. Frames made for
    /// one number serve every client that agreed on the same or a larger one.
    pub server_window_bits: u8,
    /// The same of the client's messages: 8 to 15.
    pub client_window_bits: u8,
}

impl Deflate {
    /// The parameters that most clients agree on.
    pub const USUAL: Deflate = Deflate { server_window_bits: 15, client_window_bits: 15 };
}

/// The compression of a shorter message saves less than the head of a packet.
const LEAST_BYTES: usize = 128;
/// It compresses 1,000 bytes of JSON to 290 in 12 µs; level 1 to 373 in 6 µs; level 6, zlib's
/// default, to 285 in 18 µs. It compresses 20,000 bytes to 4,204 in 57 µs; level 1 to 5,930 in 39
/// µs; level 6 to 4,022 in 139 µs.
const LEVEL: u32 = 2;
/// Every message ends in these bytes, so nobody sends them (RFC 7692 7.2.1).
const FLUSH: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
/// The same, followed by an empty last block. An inflater that reaches its end was at the end of a
/// block before, not in the middle of one that was cut off.
const FLUSH_AND_END: [u8; 9] = [0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff];
/// A thread frees its output buffer if one message made it larger than this.
const KEPT_BYTES: usize = 64 * 1024;
const FIRST_BYTES: usize = 4 * 1024;

thread_local! {
    static INFLATER: Cell<Option<Decompress>> = const { Cell::new(None) };
    static DEFLATER: Cell<Option<Deflater>> = const { Cell::new(None) };
}

struct Deflater {
    compress: Compress,
    window_bits: u8,
    out: Vec<u8>,
}

/// A compressed text frame. None if the text is too short, or if compression does not make it
/// shorter.
pub fn deflated(payload: &str, deflate: &Deflate) -> Option<Bytes> {
    compressed(true, payload.as_bytes(), deflate)
}

/// The same for a binary frame.
pub fn deflated_binary(payload: &[u8], deflate: &Deflate) -> Option<Bytes> {
    compressed(false, payload, deflate)
}

fn compressed(is_text: bool, payload: &[u8], deflate: &Deflate) -> Option<Bytes> {
    if payload.len() < LEAST_BYTES {
        return None;
    }
    let window_bits = deflate.server_window_bits.clamp(9, 15);
    let mut deflater = DEFLATER
        .take()
        .filter(|deflater| deflater.window_bits == window_bits)
        .unwrap_or_else(|| Deflater::new(window_bits));
    let frame = deflater.run(payload).map(|shorter| frame::compressed(is_text, shorter));
    deflater.out.clear();
    deflater.out.shrink_to(KEPT_BYTES);
    DEFLATER.set(Some(deflater));
    frame
}

impl Deflater {
    fn new(window_bits: u8) -> Deflater {
        let level = Compression::new(LEVEL);
        let compress = Compress::new_with_window_bits(level, false, window_bits);
        Deflater { compress, window_bits, out: Vec::new() }
    }

    /// The payload deflated, if that is shorter.
    fn run(&mut self, payload: &[u8]) -> Option<&[u8]> {
        self.compress.reset();
        // If one byte stays free, the whole output has been written.
        self.out.reserve(payload.len() + FLUSH.len());
        self.compress.compress_vec(payload, &mut self.out, FlushCompress::Sync).ok()?;
        let is_complete = self.compress.total_in() == payload.len() as u64
            && self.out.len() < self.out.capacity();
        let shorter = self.out.strip_suffix(&FLUSH)?;
        (is_complete && shorter.len() < payload.len()).then_some(shorter)
    }
}

/// The most bytes of a compressed message: incompressible data grows by five bytes for every block
/// of the deflater.
pub(super) fn max_compressed_bytes(max_bytes: usize) -> usize {
    max_bytes.saturating_add(max_bytes / 16).saturating_add(256)
}

/// Inflates a client's message. Stops at the limit, even if more data follows.
pub(super) fn inflate(payload: &[u8], max_bytes: usize) -> Result<Vec<u8>, ProtocolError> {
    let mut inflater = INFLATER.take().unwrap_or_else(|| Decompress::new(false));
    inflater.reset(false);
    let mut inflating = Inflating { inflater, out: Vec::new(), max_bytes };
    let outcome = inflating.run(payload);
    INFLATER.set(Some(inflating.inflater));
    outcome.map(|()| inflating.out)
}

struct Inflating {
    inflater: Decompress,
    out: Vec<u8>,
    max_bytes: usize,
}

const NOT_DEFLATE: ProtocolError = ProtocolError::invalid("The compressed data is not valid.");

impl Inflating {
    fn run(&mut self, mut payload: &[u8]) -> Result<(), ProtocolError> {
        // A deflater that is flushed twice writes nothing the second time.
        if payload.is_empty() {
            return Ok(());
        }
        self.out.reserve_exact(payload.len().saturating_mul(4).min(FIRST_BYTES));
        // A client may mark its last block as the last one, and even begin again after it (RFC 7692
        // 7.2.3.4).
        while let Some(rest) = self.feed(payload)? {
            if rest.is_empty() {
                return Ok(());
            }
            self.inflater.reset(false);
            payload = rest;
        }
        match self.feed(&FLUSH_AND_END)? {
            Some([]) => Ok(()),
            _ => Err(NOT_DEFLATE),
        }
    }

    /// Inflates the input. Returns the rest of it if the stream ends before.
    fn feed<'i>(&mut self, mut input: &'i [u8]) -> Result<Option<&'i [u8]>, ProtocolError> {
        loop {
            self.make_room();
            let (taken, made) = (self.inflater.total_in(), self.out.len());
            let status = self
                .inflater
                .decompress_vec(input, &mut self.out, FlushDecompress::None)
                .map_err(|_| NOT_DEFLATE)?;
            let taken = (self.inflater.total_in() - taken) as usize;
            input = &input[taken..];
            if self.out.len() > self.max_bytes {
                return Err(ProtocolError::TOO_BIG);
            }
            let is_full = self.out.len() == self.out.capacity();
            match status {
                Status::StreamEnd => return Ok(Some(input)),
                _ if input.is_empty() && !is_full => return Ok(None),
                _ if taken == 0 && self.out.len() == made && !is_full => return Err(NOT_DEFLATE),
                _ => {}
            }
        }
    }

    /// Doubles the output buffer whenever it is full, up to one byte over the limit. That byte
    /// proves that the message is too large.
    fn make_room(&mut self) {
        let (length, capacity) = (self.out.len(), self.out.capacity());
        if length == capacity {
            let most = self.max_bytes.saturating_add(1);
            let wanted = capacity.saturating_mul(2).max(FIRST_BYTES).min(most);
            self.out.reserve_exact(wanted.saturating_sub(length).max(1));
        }
    }
}
