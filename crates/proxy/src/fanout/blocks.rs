//! Splits an event stream into blocks and reads their positions. Knows the form in which restive
//! servers write blocks: lines end with a line feed, and an empty line ends a block. No I/O.

use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};

/// A block that is longer is not held: the stream of its client is passed on as it comes. 64 KiB:
/// most events have a few, and each client on a stream of its own may make the proxy hold as much.
pub(super) const MAX_BLOCK_BYTES: usize = 64 << 10;

/// The end of a block.
const END: &[u8] = b"\n\n";
/// The event that reports that a stream does not continue where its client was.
const RESET: &[u8] = b"stream.reset";
/// The event that says why the server ends the stream.
const CLOSING: &[u8] = b"stream.closing";

/// A place in the log of a backend: `<epoch>.<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(super) epoch: u32,
    pub(super) number: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}", self.epoch, self.number)
    }
}

impl Position {
    pub(super) fn parse(text: &str) -> Option<Position> {
        let (epoch, number) = text.split_once('.')?;
        let is_epoch = epoch.len() == 8 && epoch.bytes().all(|byte| byte.is_ascii_hexdigit());
        let epoch = u32::from_str_radix(epoch, 16).ok().filter(|_| is_epoch)?;
        Some(Position { epoch, number: number_of(number)? })
    }

    /// Whether a client that names its place in this way is here. A number alone is a place too.
    pub(super) fn is_named(self, text: &str) -> bool {
        match text.contains('.') {
            true => Position::parse(text) == Some(self),
            false => number_of(text) == Some(self.number),
        }
    }
}

fn number_of(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Whole blocks that arrived together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) bytes: Bytes,
    pub(super) marks: Vec<Mark>,
}

/// One block of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Where it ends in the batch.
    pub(super) end: usize,
    /// The position after it, if it has one. Messages that are not in the log have none.
    pub(super) id: Option<Position>,
    pub(super) is_reset: bool,
    /// The server ends the stream on purpose.
    pub(super) is_closing: bool,
    /// Without data it is a comment or a setting, and its position is that of the block before it.
    pub(super) has_data: bool,
}

impl Batch {
    /// Without the blocks that are neither events nor have a position, such as the `retry:` of a
    /// server that stops: all clients would come back at the same time. None if nothing is left.
    pub(super) fn without_settings(self) -> Option<Batch> {
        let is_setting = |mark: &Mark| mark.id.is_none() && !mark.has_data;
        match self.marks.iter().any(is_setting) {
            true => self.filtered(|_, mark| !is_setting(mark)),
            false => Some(self),
        }
    }

    /// Without its first block.
    pub(super) fn without_first(self) -> Option<Batch> {
        self.filtered(|place, _| place > 0)
    }

    fn filtered(&self, is_kept: impl Fn(usize, &Mark) -> bool) -> Option<Batch> {
        let (mut bytes, mut marks, mut begin) = (BytesMut::new(), Vec::new(), 0);
        for (place, mark) in self.marks.iter().enumerate() {
            if is_kept(place, mark) {
                bytes.extend_from_slice(&self.bytes[begin..mark.end]);
                marks.push(Mark { end: bytes.len(), ..*mark });
            }
            begin = mark.end;
        }
        (!marks.is_empty()).then(|| Batch { bytes: bytes.freeze(), marks })
    }
}

/// The stream has a block that is too long, or an id that is no position. With the bytes that were
/// held.
#[derive(Debug)]
pub(super) struct Unfit(pub(super) Bytes);

/// Collects the pieces of a stream into blocks.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    held: BytesMut,
    /// No block ends in this part of what is held.
    searched: usize,
}

impl Splitter {
    /// The blocks that are whole now.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Option<Batch>, Unfit> {
        self.held.extend_from_slice(piece);
        let mut marks = Vec::new();
        let mut begin = 0;
        while let Some(end) = self.next_end() {
            let Some(mark) = read(&self.held[begin..end], end) else { return Err(self.unfit()) };
            marks.push(mark);
            (begin, self.searched) = (end, end);
        }
        if self.held.len() - begin > MAX_BLOCK_BYTES {
            return Err(self.unfit());
        }
        // The last byte may be the first half of an end.
        self.searched = self.held.len().saturating_sub(1).max(begin) - begin;
        if begin == 0 {
            return Ok(None);
        }
        // A copy: a part of the buffer of the connection would keep all of it.
        let bytes = Bytes::copy_from_slice(&self.held[..begin]);
        self.held.advance(begin);
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
        Ok(Some(Batch { bytes, marks }))
    }

    fn next_end(&self) -> Option<usize> {
        let rest = &self.held[self.searched..];
        let found = rest.windows(END.len()).position(|two| two == END)?;
        Some(self.searched + found + END.len())
    }

    fn unfit(&mut self) -> Unfit {
        self.searched = 0;
        Unfit(self.held.split().freeze())
    }
}

/// Reads a block; none if its id is no position.
fn read(block: &[u8], end: usize) -> Option<Mark> {
    let mut mark = Mark { end, id: None, is_reset: false, is_closing: false, has_data: false };
    for line in block.split(|byte| *byte == b'\n') {
        if let Some(value) = field(line, b"id") {
            mark.id = Some(Position::parse(std::str::from_utf8(value).ok()?)?);
        } else if field(line, b"data").is_some() {
            mark.has_data = true;
        } else if let Some(name) = field(line, b"event") {
            mark.is_reset |= name == RESET;
            mark.is_closing |= name == CLOSING;
        }
    }
    Some(mark)
}

/// The value of a line, if it has this name.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"retry: 3000\nid: 0000002a.3\n\nevent: typing\ndata: {}\n\n\
        event: message\nid: 0000002a.4\ndata: a\ndata: id: 9\n\n: still here\nid: 0000002a.7\n\n\
        event: stream.reset\nid: 0000002a.9\ndata: {}\n\n";

    fn at(number: u64) -> Option<Position> {
        Some(Position { epoch: 42, number })
    }

    #[test]
    fn blocks_are_found_however_the_stream_is_cut() {
        for size in [1, 2, 3, 7, 40, STREAM.len()] {
            let mut splitter = Splitter::default();
            let (mut bytes, mut found) = (Vec::new(), Vec::new());
            for piece in STREAM.chunks(size) {
                let Some(batch) = splitter.push(piece).unwrap() else { continue };
                found
                    .extend(batch.marks.iter().map(|mark| (mark.id, mark.is_reset, mark.has_data)));
                assert_eq!(batch.marks.last().unwrap().end, batch.bytes.len());
                bytes.extend_from_slice(&batch.bytes);
            }
            assert_eq!(bytes, STREAM, "{size}");
            let expected = [
                (at(3), false, false),
                (None, false, true),
                (at(4), false, true),
                (at(7), false, false),
                (at(9), true, true),
            ];
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn settings_are_removed_and_events_stay() {
        let batch = |text: &[u8]| Splitter::default().push(text).unwrap().unwrap();
        let text =
            b"retry: 5\n\nid: 0000002a.4\ndata: a\n\nretry: 9\n\nevent: typing\ndata: {}\n\n";
        let left = batch(text).without_settings().unwrap();
        let expected = b"id: 0000002a.4\ndata: a\n\nevent: typing\ndata: {}\n\n";
        assert_eq!(left.bytes, expected[..]);
        assert_eq!(left.marks.last().unwrap().end, expected.len());
        assert!(batch(b"retry: 5\n\n").without_settings().is_none());
        let rest =
            batch(b"retry: 5\nid: 0000002a.4\n\nid: 0000002a.5\ndata: b\n\n").without_first();
        assert_eq!(rest.unwrap().bytes, b"id: 0000002a.5\ndata: b\n\n"[..]);
        let closing = batch(b"event: stream.closing\ndata: {}\n\n");
        assert!(closing.marks[0].is_closing);
        assert_eq!(at(7).unwrap().to_string(), "0000002a.7");
    }

    #[test]
    fn a_stream_that_cannot_be_shared_gives_back_what_was_held() {
        let mut splitter = Splitter::default();
        assert!(splitter.push(b"id: 0000002a.3\n").unwrap().is_none());
        let Unfit(held) = splitter.push(b"id: seven\n\nx").unwrap_err();
        assert_eq!(held, "id: 0000002a.3\nid: seven\n\nx");
        let long = vec![b'x'; MAX_BLOCK_BYTES];
        assert!(splitter.push(&long).unwrap().is_none());
        let Unfit(held) = splitter.push(b"y").unwrap_err();
        assert_eq!(held.len(), MAX_BLOCK_BYTES + 1);
    }

    #[test]
    fn positions_are_read_as_the_server_reads_them() {
        for (text, expected) in [
            ("0000002a.7", at(7)),
            ("2a.7", None),
            ("0000002a.", None),
            ("0000002a.+7", None),
            ("7", None),
            ("", None),
        ] {
            assert_eq!(Position::parse(text), expected, "{text}");
        }
        let here = at(7).unwrap();
        for (text, is_here) in
            [("0000002A.7", true), ("7", true), ("007", true), ("8", false), ("0000002b.7", false)]
        {
            assert_eq!(here.is_named(text), is_here, "{text}");
        }
    }
}
