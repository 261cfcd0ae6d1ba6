//! Watches the frames of a client go by and counts those that cost us and not them: pings and
//! settings want an answer each, a reset throws away work that was begun. h2 keeps their memory
//! bounded, not their number. Reads frame headers, and the header blocks for what h2 lets pass
//! (`fields`); no I/O, and time is passed in as ticks.

use std::sync::Arc;

use super::blocks::{Table, Violation, Violations};
use crate::preface::PREFACE;

const HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
/// Of the stream on which it depends, and its weight.
const PRIORITY_BYTES: usize = 5;
/// A header block. 128 KiB: h2 takes six frames of 16 KiB for one, and then ends the connection.
const BLOCK_BYTES: usize = 128 * 1024;

/// Resets a client may send at once and then each second: what nghttp2 allows.
const RESETS: Rate = Rate { burst: 1000, each_second: 33 };
/// Pings, settings, priorities and frames nobody knows. Clients that measure the line with pings
/// send a few for each round trip.
const CONTROLS: Rate = Rate { burst: 1000, each_second: 100 };
/// DATA frames with fewer bytes than `SMALL_BYTES` that do not end their stream: for each of them
/// h2 holds some 300 bytes more than the windows count until somebody reads it. More than a proxy
/// needs that sends many short bodies over one connection.
const SMALL_DATA: Rate = Rate { burst: 40_000, each_second: 40_000 };
const SMALL_BYTES: usize = 256;

#[derive(Clone, Copy)]
struct Rate {
    burst: u32,
    each_second: u32,
}

#[derive(Debug)]
pub(super) struct Frames {
    preface_left: usize,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    payload_left: usize,
    block_open: bool,
    /// The payload is a part of a head.
    in_head: bool,
    /// The length of its frame.
    frame_bytes: usize,
    resets: u32,
    controls: u32,
    small_data: u32,
    excess: bool,
    /// The stream of the block, and the newest that there is.
    stream: u32,
    newest_stream: u32,
    /// Whether the request ends with the block.
    is_last: bool,
    /// The parts of a block that has not arrived whole, and where the last frame begins in it.
    block: Vec<u8>,
    frame_start: usize,
    table: Table,
    is_broken: bool,
    violations: Arc<Violations>,
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames {
            stream: 0,
            newest_stream: 0,
            is_last: false,
            block: Vec::new(),
            frame_start: 0,
            table: Table::new(),
            is_broken: false,
            violations: Arc::default(),
            preface_left: PREFACE.len(),
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            payload_left: 0,
            block_open: false,
            in_head: false,
            frame_bytes: 0,
            resets: RESETS.burst,
            controls: CONTROLS.burst,
            small_data: SMALL_DATA.burst,
            excess: false,
        }
    }

    /// The bytes that arrived next.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        skip(&mut bytes, &mut self.preface_left);
        while !bytes.is_empty() {
            let payload = skip(&mut bytes, &mut self.payload_left);
            if self.in_head && !payload.is_empty() {
                self.collect(payload);
            }
            let taken = bytes.len().min(HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.header_bytes += taken;
            bytes = &bytes[taken..];
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                self.frame();
            }
        }
    }

    /// So many seconds have passed.
    pub(super) fn refill(&mut self, seconds: u32) {
        for (left, rate) in [
            (&mut self.resets, RESETS),
            (&mut self.controls, CONTROLS),
            (&mut self.small_data, SMALL_DATA),
        ] {
            let more = rate.each_second.saturating_mul(seconds);
            *left = left.saturating_add(more).min(rate.burst);
        }
    }

    /// Whether the client has sent more of something than anybody needs.
    pub(super) fn excess(&self) -> bool {
        self.excess
    }

    /// Whether the client's compression cannot be read, so that nothing more of it can be checked.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// What was found in the client's requests.
    pub(super) fn violations(&self) -> &Arc<Violations> {
        &self.violations
    }

    /// Whether a head has begun and not ended: meanwhile no other stream can say anything.
    pub(super) fn half_head(&self) -> bool {
        self.block_open || self.header_bytes > 0 || (self.in_head && self.payload_left > 0)
    }

    /// What is held of a head that has begun and not ended, by h2 and here. h2 reads the fields of
    /// each frame as soon as it is complete: what they are then may be as much as the largest head,
    /// `most`.
    pub(super) fn half_head_bytes(&self, most: usize) -> usize {
        match self.in_head && self.payload_left > 0 {
            _ if self.block_open => 2 * most,
            true => HEADER_BYTES + 2 * self.frame_bytes,
            false => self.header_bytes,
        }
    }

    fn frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload_left = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.in_head = matches!(kind, HEADERS | CONTINUATION);
        self.frame_bytes = self.payload_left;
        let budget = match kind {
            HEADERS | CONTINUATION => {
                self.block_open = flags & END_HEADERS == 0;
                self.begin_block(kind, flags);
                return;
            }
            DATA if self.payload_left < SMALL_BYTES && flags & END_STREAM == 0 => {
                &mut self.small_data
            }
            // These are bounded by the windows, by h2, or cost nothing.
            DATA | WINDOW_UPDATE => return,
            SETTINGS | PING if flags & ACK != 0 => return,
            RESET => &mut self.resets,
            _ => &mut self.controls,
        };
        match budget.checked_sub(1) {
            Some(left) => *budget = left,
            None => self.excess = true,
        }
    }
}

impl Frames {
    /// A frame with a part of a block begins.
    fn begin_block(&mut self, kind: u8, flags: u8) {
        if kind == HEADERS {
            let [.., a, b, c, d] = self.header;
            self.stream = u32::from_be_bytes([a & 127, b, c, d]);
            self.is_last = flags & END_STREAM != 0;
            self.block = Vec::new();
        }
        self.frame_start = self.block.len();
        if self.payload_left == 0 {
            self.collect(&[]);
        }
    }

    /// Takes a part of a block; reads the block at its end. Most are in one piece, which is not
    /// copied.
    fn collect(&mut self, payload: &[u8]) {
        if self.is_broken {
            return;
        }
        let [_, _, _, kind, flags, ..] = self.header;
        let flags = if kind == HEADERS { flags } else { flags & END_HEADERS };
        let is_whole = self.payload_left == 0 && self.block.is_empty() && !self.block_open;
        if is_whole {
            match without_padding(payload, flags) {
                Some(block) => self.read(block),
                None => self.is_broken = true,
            }
            return;
        }
        self.block.extend_from_slice(payload);
        self.excess |= self.block.len() > BLOCK_BYTES;
        if self.payload_left > 0 {
            return;
        }
        let Some(part) = without_padding(&self.block[self.frame_start..], flags) else {
            self.is_broken = true;
            return;
        };
        let part = part.to_vec();
        self.block.truncate(self.frame_start);
        self.block.extend_from_slice(&part);
        if !self.block_open {
            let block = std::mem::take(&mut self.block);
            self.read(&block);
        }
    }

    /// Reads a whole block: the head of a new stream, or what stands behind its body.
    fn read(&mut self, block: &[u8]) {
        let Ok(found) = self.table.read(block) else {
            self.is_broken = true;
            return;
        };
        let is_new = self.stream > self.newest_stream;
        self.newest_stream = self.newest_stream.max(self.stream);
        let violation = match is_new {
            true => found.fragment.then_some(Violation::Fragment),
            // h2 itself resets the stream if it goes on behind them.
            false => (found.pseudo && self.is_last).then_some(Violation::LatePseudo),
        };
        if let Some(violation) = violation {
            self.excess |= !self.violations.note(self.stream, violation);
        }
    }
}

/// The part of a block in the payload of a frame; none if there is less than its flags say.
fn without_padding(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let (padding, payload) = match flags & PADDED {
        0 => (0, payload),
        _ => payload.split_first().map(|(padding, rest)| (usize::from(*padding), rest))?,
    };
    let fixed = if flags & PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
    payload.get(fixed..payload.len().checked_sub(padding)?)
}

/// What was skipped.
fn skip<'b>(bytes: &mut &'b [u8], left: &mut usize) -> &'b [u8] {
    let (skipped, rest) = bytes.split_at(bytes.len().min(*left));
    *left -= skipped.len();
    *bytes = rest;
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&head, payload].concat()
    }

    fn pass(pieces: &[Vec<u8>], piece_bytes: usize) -> Frames {
        let mut frames = Frames::new();
        let bytes = [&PREFACE[..], &pieces.concat()].concat();
        bytes.chunks(piece_bytes).for_each(|piece| frames.pass(piece));
        frames
    }

    #[test]
    fn counts_do_not_depend_on_how_bytes_are_split() {
        // Payloads full of what would be resets if they were taken for frames.
        let decoy = frame(RESET, 0, &[0; 4]).repeat(50);
        let pieces = [
            frame(SETTINGS, 0, &[0; 6]),
            frame(SETTINGS, ACK, &[]),
            frame(HEADERS, END_HEADERS, &decoy),
            frame(DATA, 0, &decoy),
            frame(RESET, 0, &[0; 4]),
            frame(PING, 0, &[0; 8]),
            frame(PING, ACK, &[0; 8]),
            frame(HEADERS, 0, b"half"),
        ];
        for piece_bytes in [1, 2, 7, 9, 10, 64, 100_000] {
            let frames = pass(&pieces, piece_bytes);
            assert_eq!(frames.resets, RESETS.burst - 1);
            assert_eq!(frames.controls, CONTROLS.burst - 2);
            assert!(frames.half_head() && !frames.excess());
            assert_eq!(frames.half_head_bytes(7000), 14_000);
        }
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate_is_limited() {
        let burst = vec![frame(RESET, 0, &[0; 4]); RESETS.burst as usize];
        let mut frames = pass(&burst, 1000);
        assert!(!frames.excess());
        frames.refill(1);
        for _ in 0..RESETS.each_second {
            frames.pass(&burst[0]);
        }
        assert!(!frames.excess());
        frames.pass(&burst[0]);
        assert!(frames.excess());
    }
}
