//! Reads the header blocks of a client as they go by, for what h2 lets pass and the standard
//! forbids: a fragment in a path, which h2 cuts off, and pseudo fields behind a body, which it
//! drops. Keeps lengths and kinds of what stands in the table of HPACK (RFC 7541), never the texts.
//! No I/O.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::huffman;

/// What the table may hold: h2 offers what the standard begins with (RFC 9113 6.5.2).
const TABLE_BYTES: usize = 4096;
/// What each entry counts beside its name and value (RFC 7541 4.1).
const ENTRY_BYTES: usize = 32;
/// Requests of one connection that were found and are not answered yet; twice the streams that it
/// may have. More are an attack.
const MAX_VIOLATIONS: usize = 256;
/// The lengths of the names in the static table (RFC 7541 appendix A), from its first entry on.
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];

/// What is wrong with a request that h2 has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Its path has a fragment.
    Fragment,
    /// There are pseudo fields behind its body.
    LatePseudo,
}

/// The requests of a connection in which something was found, by the numbers of their streams.
#[derive(Debug, Default)]
pub(crate) struct Violations(Mutex<Vec<(u32, Violation)>>);

impl Violations {
    /// False if there are too many.
    pub(super) fn note(&self, stream: u32, violation: Violation) -> bool {
        let mut violations = self.lock();
        violations.push((stream, violation));
        violations.len() <= MAX_VIOLATIONS
    }

    pub(crate) fn has(&self, stream: u32) -> bool {
        self.lock().iter().any(|(other, _)| *other == stream)
    }

    pub(super) fn take(&self, stream: u32) -> Option<Violation> {
        let mut violations = self.lock();
        let place = violations.iter().position(|(other, _)| *other == stream)?;
        Some(violations.swap_remove(place).1)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u32, Violation)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pseudo: bool,
    pub(super) fragment: bool,
}

/// The block is no HPACK: what follows on the connection cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodeError;

/// The table of one connection, for what its client sends.
#[derive(Debug)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
    most_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Name,
    value_bytes: u16,
    has_fragment: bool,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    kind: Kind,
    bytes: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Path,
    Pseudo,
    Other,
}

impl Entry {
    fn bytes(&self) -> usize {
        usize::from(self.name.bytes) + usize::from(self.value_bytes) + ENTRY_BYTES
    }
}

impl Table {
    pub(super) fn new() -> Table {
        Table { entries: VecDeque::new(), bytes: 0, most_bytes: TABLE_BYTES }
    }

    /// Reads a whole block.
    pub(super) fn read(&mut self, mut block: &[u8]) -> Result<Found, DecodeError> {
        let mut found = Found::default();
        while let Some(first) = block.first().copied() {
            let (kind, has_fragment) = match first {
                0b1000_0000.. => {
                    let entry = self.entry(integer(&mut block, 7)?)?;
                    (entry.name.kind, entry.has_fragment)
                }
                0b0100_0000.. => {
                    let entry = self.literal(&mut block, 6, true)?;
                    self.insert(entry);
                    (entry.name.kind, entry.has_fragment)
                }
                0b0010_0000.. => {
                    self.resize(integer(&mut block, 5)?)?;
                    continue;
                }
                _ => {
                    let entry = self.literal(&mut block, 4, false)?;
                    (entry.name.kind, entry.has_fragment)
                }
            };
            found.pseudo |= kind != Kind::Other;
            found.fragment |= kind == Kind::Path && has_fragment;
        }
        Ok(found)
    }

    /// A name, by its number or in letters, and a value. The length of a value that is not kept is
    /// of no concern.
    fn literal(
        &self,
        block: &mut &[u8],
        prefix_bits: u32,
        is_kept: bool,
    ) -> Result<Entry, DecodeError> {
        let name = match integer(block, prefix_bits)? {
            0 => Text::read(block)?.name(),
            number => self.entry(number)?.name,
        };
        let is_path = name.kind == Kind::Path;
        let (value_bytes, has_fragment) = match is_kept || is_path {
            true => {
                let value = Text::read(block)?;
                (value.bytes, value.has_fragment)
            }
            false => {
                text(block)?;
                (0, false)
            }
        };
        let value_bytes = u16::try_from(value_bytes).unwrap_or(u16::MAX);
        Ok(Entry { name, value_bytes, has_fragment })
    }

    /// The entry with this number, those of the static table before ours.
    fn entry(&self, number: usize) -> Result<Entry, DecodeError> {
        let index = number.checked_sub(1).ok_or(DecodeError)?;
        let Some(bytes) = STATIC_NAMES.get(index) else {
            return self.entries.get(index - STATIC_NAMES.len()).copied().ok_or(DecodeError);
        };
        let kind = match number {
            4 | 5 => Kind::Path,
            1..=14 => Kind::Pseudo,
            _ => Kind::Other,
        };
        let name = Name { kind, bytes: u16::from(*bytes) };
        Ok(Entry { name, value_bytes: 0, has_fragment: false })
    }

    fn insert(&mut self, entry: Entry) {
        self.shrink(self.most_bytes.saturating_sub(entry.bytes()));
        // One that is larger than the table empties it (RFC 7541 4.4).
        if entry.bytes() <= self.most_bytes {
            self.bytes += entry.bytes();
            self.entries.push_front(entry);
        }
    }

    fn resize(&mut self, bytes: usize) -> Result<(), DecodeError> {
        if bytes > TABLE_BYTES {
            return Err(DecodeError);
        }
        self.most_bytes = bytes;
        self.shrink(bytes);
        Ok(())
    }

    fn shrink(&mut self, most_bytes: usize) {
        while self.bytes > most_bytes
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

/// What is to be known of a text.
struct Text {
    bytes: usize,
    has_fragment: bool,
    start: [u8; 5],
}

impl Text {
    fn read(block: &mut &[u8]) -> Result<Text, DecodeError> {
        let (bytes, is_coded) = text(block)?;
        let mut text = Text { bytes: 0, has_fragment: false, start: [0; 5] };
        let mut look = |byte: u8| {
            if let Some(place) = text.start.get_mut(text.bytes) {
                *place = byte;
            }
            text.bytes += 1;
            text.has_fragment |= byte == b'#';
        };
        match is_coded {
            true => huffman::each(bytes, look).ok_or(DecodeError)?,
            false => bytes.iter().for_each(|byte| look(*byte)),
        }
        Ok(text)
    }

    fn name(&self) -> Name {
        let kind = match &self.start {
            b":path" if self.bytes == 5 => Kind::Path,
            [b':', ..] => Kind::Pseudo,
            _ => Kind::Other,
        };
        Name { kind, bytes: u16::try_from(self.bytes).unwrap_or(u16::MAX) }
    }
}

/// The bytes of a text, and whether they are in Huffman's code.
fn text<'b>(block: &mut &'b [u8]) -> Result<(&'b [u8], bool), DecodeError> {
    let is_coded = block.first().is_some_and(|first| first & 128 != 0);
    let length = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length).ok_or(DecodeError)?;
    *block = rest;
    Ok((bytes, is_coded))
}

/// A number behind the last bits of a first byte (RFC 7541 5.1).
fn integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, DecodeError> {
    let mut next = || {
        let (first, rest) = block.split_first().ok_or(DecodeError)?;
        *block = rest;
        Ok(usize::from(*first))
    };
    let full = (1 << prefix_bits) - 1;
    let mut value = next()? & full;
    if value < full {
        return Ok(value);
    }
    // 28 bits: more than any block has bytes.
    for shift in (0..28).step_by(7) {
        let byte = next()?;
        value += (byte & 127) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    Err(DecodeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Found = Found { pseudo: false, fragment: false };
    const PSEUDO: Found = Found { pseudo: true, fragment: false };

    /// The requests of RFC 7541 C.3 and C.4, with and without Huffman's code.
    #[test]
    fn the_examples_of_the_standard_are_read_with_their_table() {
        let plain: [&[u8]; 3] = [
            b"\x82\x86\x84\x41\x0fwww.example.com",
            b"\x82\x86\x84\xbe\x58\x08no-cache",
            b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
        ];
        let coded: [&[u8]; 3] = [
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
            b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\
              \xe8\xb4\xbf",
        ];
        for blocks in [plain, coded] {
            let mut table = Table::new();
            for (block, bytes) in blocks.into_iter().zip([57, 110, 164]) {
                assert_eq!(table.read(block), Ok(PSEUDO));
                assert_eq!(table.bytes, bytes, "{block:?}");
            }
            assert_eq!(table.entries.len(), 3);
        }
    }

    #[test]
    fn a_full_table_evicts_entries_and_unknown_indexes_are_errors() {
        let mut table = Table::new();
        let one = [&[0x40, 1, b'x', 0x7f, 0x81, 0x1e][..], &[b'y'; 3968]].concat();
        assert_eq!((table.read(&one), table.bytes), (Ok(NOTHING), 4001));
        assert_eq!((table.read(&one), table.entries.len()), (Ok(NOTHING), 1));
        assert_eq!(table.read(&[0xbe]), Ok(NOTHING));
        assert_eq!(table.read(&[0xbf]), Err(DecodeError));
        assert_eq!((table.read(&[0x20]), table.bytes), (Ok(NOTHING), 0));
        assert_eq!((table.read(&one), table.entries.len()), (Ok(NOTHING), 0));
        for block in [&[0x80][..], &[0xbe], &[0x3f, 0xe2, 0x1f], &[0x00], &[0x00, 5, b'x'], &[0xff]]
        {
            assert_eq!(table.read(block), Err(DecodeError), "{block:?}");
        }
    }

    #[test]
    fn random_bytes_cause_no_panic() {
        let mut state = 1_u64;
        let mut random = || {
            // Knuth's; good enough to reach every branch.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        for _ in 0..5000 {
            let mut table = Table::new();
            for _ in 0..8 {
                let length = usize::from(random() % 64);
                let block: Vec<u8> = (0..length).map(|_| random()).collect();
                let _ = table.read(&block);
                let sum: usize = table.entries.iter().map(Entry::bytes).sum();
                assert!(table.bytes == sum && sum <= TABLE_BYTES);
            }
        }
    }

    #[test]
    fn flaws_are_reported_once_and_limited() {
        let violations = Violations::default();
        assert!(violations.note(1, Violation::Fragment));
        assert!(violations.has(1) && !violations.has(3));
        assert_eq!((violations.take(1), violations.take(1)), (Some(Violation::Fragment), None));
        let all =
            (0..).take_while(|stream| violations.note(*stream, Violation::LatePseudo)).count();
        assert_eq!(all, MAX_VIOLATIONS);
    }
}
