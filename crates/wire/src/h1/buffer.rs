//! Read buffers. A connection borrows one when bytes have arrived and gives it back when they are
//! used up, so idle connections hold none. While it waits for the rest of a head it keeps only the
//! bytes it has.

use std::cell::RefCell;

/// One read: a head with a usual body in one go. Larger heads grow it: to 64 KiB at the most, since
/// `Limits::url_bytes` and `Limits::header_bytes` end them before.
const BUFFER_BYTES: usize = 16 * 1024;
/// Spare buffers a worker keeps; more are needed only while many requests are half read.
const MAX_SPARE: usize = 16;

/// Bytes read and not yet used, and room behind them.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn new(capacity: usize) -> Box<Buffer> {
        Box::new(Buffer { bytes: vec![0; capacity], start: 0, end: 0 })
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where the next bytes go; not empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                let doubled = (self.bytes.len() * 2).max(BUFFER_BYTES);
                self.bytes.resize(doubled, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were read into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }
}

/// A worker's spare buffers. Boxed as connections hold them: handed on, they are not moved.
#[derive(Debug, Default)]
#[allow(clippy::vec_box)]
pub(crate) struct Buffers(RefCell<Vec<Box<Buffer>>>);

impl Buffers {
    pub(crate) fn take(&self) -> Box<Buffer> {
        self.0.borrow_mut().pop().unwrap_or_else(|| Buffer::new(BUFFER_BYTES))
    }

    pub(crate) fn give(&self, mut buffer: Box<Buffer>) {
        let mut spare = self.0.borrow_mut();
        if buffer.bytes.len() == BUFFER_BYTES && spare.len() < MAX_SPARE {
            (buffer.start, buffer.end) = (0, 0);
            spare.push(buffer);
        }
    }

    /// Before a wait: gives a buffer back, and keeps the bytes in it, if any, in one of their size.
    pub(crate) fn shrink(&self, held: &mut Option<Box<Buffer>>) {
        let Some(buffer) = held.take() else { return };
        let data = buffer.data();
        if data.len() > BUFFER_BYTES / 2 {
            *held = Some(buffer);
            return;
        }
        if !data.is_empty() {
            *held = Some(Box::new(Buffer { bytes: data.to_vec(), start: 0, end: data.len() }));
        }
        self.give(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &mut Buffer, bytes: &[u8]) {
        for byte in bytes {
            buffer.room()[0] = *byte;
            buffer.filled(1);
        }
    }

    #[test]
    fn bytes_come_out_as_they_went_in_however_full_it_is() {
        let mut buffer = Buffer { bytes: vec![0; 4], start: 0, end: 0 };
        put(&mut buffer, b"abcd");
        buffer.consume(3);
        put(&mut buffer, b"efg");
        assert_eq!(buffer.data(), b"defg");
        put(&mut buffer, b"h");
        assert_eq!(buffer.data(), b"defgh");
        buffer.consume(5);
        assert!(buffer.data().is_empty() && buffer.room().len() >= BUFFER_BYTES);
    }

    #[test]
    fn a_waiting_connection_keeps_no_more_than_its_bytes() {
        let buffers = Buffers::default();
        let mut held = Some(buffers.take());
        buffers.shrink(&mut held);
        assert!(held.is_none(), "nothing to keep");
        let mut held = Some(buffers.take());
        put(held.as_mut().unwrap(), b"GET /");
        buffers.shrink(&mut held);
        let mut kept = held.unwrap();
        assert_eq!((kept.data(), kept.bytes.capacity()), (&b"GET /"[..], 5));
        put(&mut kept, b"x");
        assert_eq!(kept.data(), b"GET /x");
        assert_eq!(buffers.0.borrow().len(), 1, "the large one went back");
    }
}
