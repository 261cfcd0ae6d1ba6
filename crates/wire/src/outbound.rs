//! Follows what the HTTP library writes, to know two things: when an answer has left completely,
//! and when bytes begin that are no answer of ours. hyper answers input it cannot parse by itself,
//! with an empty body; those bytes must not reach a client that was promised an error body.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::LazyLock;

use memchr::memmem::Finder;

const HEAD_END: &[u8; 4] = b"\r\n\r\n";
const INTERIM: &[u8] = b"HTTP/1.1 100 ";

/// Built once: building it costs more than searching a head.
static HEAD_END_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(HEAD_END));

#[derive(Default)]
pub(crate) struct Outbound {
    /// Body lengths of our answers whose head has not been written yet, in order.
    expected: VecDeque<usize>,
    cursor: Cursor,
    /// Where the last inspection ended, after so many bytes: the usual write takes them all.
    ahead: (Cursor, usize),
}

/// A place in the written bytes. Copied, moved ahead to inspect, kept only for what was written.
#[derive(Clone, Copy, Default)]
struct Cursor {
    at: At,
    /// Entries of `expected` used up on the way.
    taken: usize,
}

#[derive(Clone, Copy, Default)]
enum At {
    #[default]
    Boundary,
    /// Inside a head; so many bytes of `HEAD_END` have matched. A body of `body` bytes follows.
    Head {
        matched: usize,
        body: usize,
    },
    Body(usize),
}

/// Bytes that are not ours: where they begin, and the status they carry.
pub(crate) struct Foreign {
    pub(crate) offset: usize,
    pub(crate) status: u16,
}

impl Outbound {
    /// The service has answered; an answer with a body of this length will be written.
    pub(crate) fn expect(&mut self, body_bytes: usize) {
        self.expected.push_back(body_bytes);
    }

    /// Something of ours is announced or half written.
    pub(crate) fn unfinished(&self) -> bool {
        !self.expected.is_empty() || !matches!(self.cursor.at, At::Boundary)
    }

    /// Looks for foreign bytes in what is about to be written.
    pub(crate) fn inspect(&mut self, slices: &[IoSlice<'_>]) -> Option<Foreign> {
        let (cursor, foreign) = self.walk(slices, usize::MAX);
        let inspected = match &foreign {
            Some(foreign) => foreign.offset,
            None => slices.iter().map(|slice| slice.len()).sum(),
        };
        self.ahead = (cursor, inspected);
        foreign
    }

    /// So many of the bytes inspected last were written.
    pub(crate) fn written(&mut self, slices: &[IoSlice<'_>], bytes: usize) {
        let (ahead, inspected) = self.ahead;
        let cursor = if bytes == inspected { ahead } else { self.walk(slices, bytes).0 };
        self.expected.drain(..cursor.taken);
        self.cursor = Cursor { at: cursor.at, taken: 0 };
    }

    fn walk(&self, slices: &[IoSlice<'_>], limit: usize) -> (Cursor, Option<Foreign>) {
        let mut cursor = self.cursor;
        let mut offset = 0;
        for slice in slices {
            let mut rest = &slice[..slice.len().min(limit - offset)];
            while !rest.is_empty() {
                let step = match cursor.at {
                    At::Boundary if rest.starts_with(INTERIM) => {
                        cursor.at = At::Head { matched: 0, body: 0 };
                        INTERIM.len()
                    }
                    At::Boundary => {
                        let Some(body) = self.expected.get(cursor.taken) else {
                            return (cursor, Some(Foreign { offset, status: status_of(rest) }));
                        };
                        cursor.taken += 1;
                        cursor.at = At::Head { matched: 0, body: *body };
                        0
                    }
                    At::Head { matched, body } => {
                        let (step, at) = leave_head(rest, matched, body);
                        cursor.at = at;
                        step
                    }
                    At::Body(left) => {
                        let step = left.min(rest.len());
                        cursor.at = after_head(left - step);
                        step
                    }
                };
                rest = &rest[step..];
                offset += step;
            }
        }
        (cursor, None)
    }
}

fn after_head(body: usize) -> At {
    if body == 0 { At::Boundary } else { At::Body(body) }
}

/// Moves to the end of the head, or of the bytes: a head may be split between two writes.
fn leave_head(bytes: &[u8], mut matched: usize, body: usize) -> (usize, At) {
    let mut step = 0;
    if matched == 0 {
        if let Some(end) = HEAD_END_FINDER.find(bytes) {
            return (end + HEAD_END.len(), after_head(body));
        }
        step = bytes.len().saturating_sub(HEAD_END.len() - 1);
    }
    for byte in &bytes[step..] {
        step += 1;
        matched = match *byte {
            byte if byte == HEAD_END[matched] => matched + 1,
            b'\r' => 1,
            _ => 0,
        };
        if matched == HEAD_END.len() {
            return (step, after_head(body));
        }
    }
    (step, At::Head { matched, body })
}

/// The status of a head such as `HTTP/1.1 431 …`.
fn status_of(head: &[u8]) -> u16 {
    head.get(9..12)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(400)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n\r\n\r\nHT";
    const OWN_ERROR: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n";
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

    #[test]
    fn an_answer_is_followed_to_its_last_byte_however_it_is_cut() {
        for piece in 1..=ANSWER.len() {
            let mut outbound = Outbound::default();
            outbound.expect(6);
            let mut left = ANSWER;
            while !left.is_empty() {
                assert!(outbound.unfinished());
                assert!(outbound.inspect(&[IoSlice::new(left)]).is_none());
                outbound.written(&[IoSlice::new(left)], piece.min(left.len()));
                left = &left[piece.min(left.len())..];
            }
            assert!(!outbound.unfinished());
        }
    }

    #[test]
    fn the_librarys_own_error_is_found_behind_our_answer() {
        let mut outbound = Outbound::default();
        outbound.expect(6);
        let slices = [IoSlice::new(CONTINUE), IoSlice::new(ANSWER), IoSlice::new(OWN_ERROR)];
        let foreign = outbound.inspect(&slices).unwrap();
        assert_eq!((foreign.offset, foreign.status), (CONTINUE.len() + ANSWER.len(), 431));
        outbound.written(&slices, foreign.offset);
        assert!(!outbound.unfinished());
        assert_eq!(outbound.inspect(&[IoSlice::new(OWN_ERROR)]).unwrap().offset, 0);
    }
}
