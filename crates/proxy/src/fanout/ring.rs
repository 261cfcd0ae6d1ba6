//! The newest blocks of a shared stream, from which its clients read. Bounded in blocks and bytes.
//! No I/O.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::blocks::{Batch, Mark, Position};

/// Blocks in a ring. 4,096: a client that is away for some seconds resumes from it, at a thousand
/// events a second.
pub(super) const MAX_BLOCKS: usize = 4_096;
/// Batches are joined for one write up to this size: a client that is behind needs few writes.
const JOINED_BYTES: usize = 16 * 1024;

pub(super) struct Ring {
    batches: VecDeque<Entry>,
    /// The number of the oldest batch. Batches are numbered from 0.
    first: u64,
    blocks: usize,
    bytes: usize,
    /// The ring has every block after this position.
    floor: Position,
    /// The position after the newest block.
    head: Position,
}

struct Entry {
    batch: Batch,
    arrived: Instant,
    /// The position after this batch.
    last: Position,
}

/// Which blocks a client has had before it joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) at: Position,
    /// Messages without a position that arrived before are not for it.
    pub(super) since: Instant,
}

/// What a client reads.
#[derive(Debug)]
pub(super) enum Read {
    Bytes(Bytes),
    /// It has had everything.
    Nothing,
    /// What it has to read next is gone.
    Behind,
}

impl Ring {
    pub(super) fn new(floor: Position) -> Ring {
        let batches = VecDeque::new();
        Ring { batches, first: 0, blocks: 0, bytes: 0, floor, head: floor }
    }

    /// Adds a batch, and removes old ones beyond the limits. The newest one always stays. False if
    /// the stream is one of another log now, which ends it.
    pub(super) fn push(&mut self, batch: Batch, most_bytes: usize, now: Instant) -> bool {
        let mut floor = None;
        for mark in &batch.marks {
            let Some(id) = mark.id else { continue };
            if id.epoch != self.head.epoch {
                return false;
            }
            self.head = id;
            if mark.is_reset {
                floor = Some(id);
            }
        }
        if let Some(floor) = floor {
            // There is a gap before it.
            self.floor = floor;
        }
        self.blocks += batch.marks.len();
        self.bytes += batch.bytes.len();
        self.batches.push_back(Entry { batch, arrived: now, last: self.head });
        while self.batches.len() > 1 && (self.blocks > MAX_BLOCKS || self.bytes > most_bytes) {
            self.evict();
        }
        true
    }

    fn evict(&mut self) {
        let Some(Entry { batch, last, .. }) = self.batches.pop_front() else { return };
        self.first += 1;
        self.blocks -= batch.marks.len();
        self.bytes -= batch.bytes.len();
        if last.number > self.floor.number {
            self.floor = last;
        }
    }

    /// Where a client begins that has had what `joined` says; none if the ring does not follow.
    pub(super) fn begin(&self, joined: Joined) -> Option<u64> {
        if joined.at.epoch != self.floor.epoch || joined.at.number < self.floor.number {
            return None;
        }
        let is_had =
            |entry: &&Entry| entry.last.number <= joined.at.number && entry.arrived < joined.since;
        let new = self.batches.iter().rev().take_while(|entry| !is_had(entry)).count();
        Some(self.end() - new as u64)
    }

    /// The position after the newest block.
    pub(super) fn head(&self) -> Position {
        self.head
    }

    /// The number of the next batch.
    pub(super) fn end(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    /// The bytes of all batches from this one on.
    pub(super) fn bytes_from(&self, number: u64) -> usize {
        let newer = self.end().saturating_sub(number) as usize;
        self.batches.iter().rev().take(newer).map(|entry| entry.batch.bytes.len()).sum()
    }

    /// The next blocks of a client, whose place moves behind them. `joined` becomes none when all
    /// further blocks are for it.
    pub(super) fn read(&self, next: &mut u64, joined: &mut Option<Joined>) -> Read {
        if *next < self.first {
            // Nothing was lost if the client had all of it before it joined.
            if joined.is_none_or(|joined| joined.at.number < self.floor.number) {
                return Read::Behind;
            }
            *next = self.first;
        }
        // One batch is passed on without a copy.
        let (mut found, mut more) = (Bytes::new(), BytesMut::new());
        while let Some(entry) = self.batches.get((*next - self.first) as usize) {
            let bytes = entry.bytes_for(*joined);
            let total = found.len() + more.len() + bytes.len();
            if total > JOINED_BYTES && total > bytes.len() {
                break;
            }
            if found.is_empty() {
                found = bytes;
            } else {
                more.extend_from_slice(&bytes);
            }
            *next += 1;
            if joined.is_some_and(|joined| entry.ends(joined)) {
                *joined = None;
            }
        }
        match (found.is_empty(), more.is_empty()) {
            (true, _) => Read::Nothing,
            (false, true) => Read::Bytes(found),
            (false, false) => Read::Bytes([found, more.freeze()].concat().into()),
        }
    }
}

impl Entry {
    /// Whether all blocks after this batch are for the client.
    fn ends(&self, joined: Joined) -> bool {
        self.last.number > joined.at.number && self.arrived >= joined.since
    }

    /// The blocks of the batch that the client has not had.
    fn bytes_for(&self, joined: Option<Joined>) -> Bytes {
        let Batch { bytes, marks } = &self.batch;
        let Some(joined) = joined else { return bytes.clone() };
        let is_new = |mark: &Mark| match mark.id {
            Some(id) if mark.has_data => id.number > joined.at.number,
            Some(id) => id.number >= joined.at.number && self.arrived >= joined.since,
            None => self.arrived >= joined.since,
        };
        if marks.iter().all(is_new) {
            return bytes.clone();
        }
        let mut found = BytesMut::new();
        let mut begin = 0;
        for mark in marks {
            if is_new(mark) {
                found.extend_from_slice(&bytes[begin..mark.end]);
            }
            begin = mark.end;
        }
        found.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Splitter;
    use super::*;
    use std::time::Duration;

    const LARGE: usize = 1 << 20;

    fn at(number: u64) -> Position {
        Position { epoch: 1, number }
    }

    fn batch(text: &str) -> Batch {
        Splitter::default().push(text.as_bytes()).unwrap().unwrap()
    }

    fn event(number: u64) -> String {
        format!("id: 00000001.{number}\ndata: {number}\n\n")
    }

    /// What a client reads that joins with this position, now.
    fn read(ring: &Ring, number: u64, since: Instant) -> Option<String> {
        let mut joined = Some(Joined { at: at(number), since });
        let mut next = ring.begin(joined?)?;
        let mut text = String::new();
        loop {
            match ring.read(&mut next, &mut joined) {
                Read::Bytes(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Read::Nothing => return Some(text),
                Read::Behind => panic!("it has just begun"),
            }
        }
    }

    #[test]
    fn a_client_reads_each_block_after_its_position_once() {
        let began = Instant::now();
        let later = began + Duration::from_secs(1);
        let mut ring = Ring::new(at(10));
        let typing = "event: typing\ndata: {}\n\n";
        ring.push(batch(&[event(11), typing.to_owned(), event(13)].concat()), LARGE, began);
        ring.push(batch(": still here\nid: 00000001.13\n\n"), LARGE, began);
        ring.push(batch(&[event(15), typing.to_owned()].concat()), LARGE, later);
        let (e11, e13, e15) = (event(11), event(13), event(15));
        for (number, expected) in [
            (9, None),
            (10, Some([&e11, &e13, &e15, typing].concat())),
            (11, Some([&e13, &e15, typing].concat())),
            (12, Some([&e13, &e15, typing].concat())),
            (13, Some([&e15, typing].concat())),
            (15, Some(typing.to_owned())),
            (16, Some(typing.to_owned())),
        ] {
            assert_eq!(read(&ring, number, later), expected, "{number}");
        }
        let all = read(&ring, 13, began).unwrap();
        assert_eq!(all.matches("typing").count(), 2);
        assert!(all.contains(": still here"), "a silent stream goes on to have its comments");
        let other = Joined { at: Position { epoch: 2, number: 12 }, since: began };
        assert_eq!(ring.begin(other), None);
    }

    #[test]
    fn the_ring_is_bounded_and_a_client_that_is_too_slow_is_behind() {
        let now = Instant::now();
        let mut ring = Ring::new(at(0));
        let size = event(1).len();
        let (mut slow, mut ahead) = (0, 0);
        // It has had everything up to 3 on another stream.
        let mut joined = Some(Joined { at: at(3), since: now });
        for number in 1..=5 {
            assert!(ring.push(batch(&event(number)), 2 * size, now));
        }
        assert_eq!((ring.bytes, ring.blocks, ring.floor), (2 * size, 2, at(3)));
        assert!(matches!(ring.read(&mut slow, &mut None), Read::Behind));
        let Read::Bytes(bytes) = ring.read(&mut ahead, &mut joined) else { panic!() };
        assert_eq!(bytes, [event(4), event(5)].concat());
        assert!(joined.is_none());
        assert_eq!(ring.begin(Joined { at: at(2), since: now }), None);
        for number in 6..=MAX_BLOCKS as u64 + 20 {
            ring.push(batch(&event(number)), LARGE, now);
        }
        assert_eq!(ring.blocks, MAX_BLOCKS);
        // One that is larger than the ring stays alone.
        let large = format!("id: 00000001.9999\ndata: {}\n\n", "x".repeat(4 * size));
        ring.push(batch(&large), 2 * size, now);
        assert_eq!((ring.batches.len(), ring.bytes), (1, large.len()));
    }

    #[test]
    fn nobody_joins_before_a_gap_and_another_log_ends_the_stream() {
        let now = Instant::now();
        let mut ring = Ring::new(at(5));
        ring.push(batch("event: stream.reset\nid: 00000001.50\ndata: {}\n\n"), LARGE, now);
        assert_eq!(ring.begin(Joined { at: at(5), since: now }), None);
        assert!(ring.begin(Joined { at: at(50), since: now }).is_some());
        assert!(!ring.push(batch("id: 00000002.51\ndata: 1\n\n"), LARGE, now));
    }

    #[test]
    fn a_client_that_is_behind_reads_joined_blocks() {
        let now = Instant::now();
        let mut ring = Ring::new(at(0));
        for number in 1..=2_000 {
            ring.push(batch(&event(number)), LARGE, now);
        }
        let (mut next, mut reads) = (0, 0);
        while let Read::Bytes(bytes) = ring.read(&mut next, &mut None) {
            assert!(bytes.len() <= JOINED_BYTES);
            reads += 1;
        }
        assert!(reads <= 2_000 * event(2_000).len() / JOINED_BYTES + 2, "{reads}");
        assert_eq!(ring.bytes_from(next), 0);
        assert_eq!(ring.bytes_from(1_999), event(2_000).len());
    }
}
