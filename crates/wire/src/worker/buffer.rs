//! Read buffers. A connection borrows one when bytes have arrived and gives it back when they are
//! used up, so idle connections hold none. While it waits for the rest of a head it keeps only the
//! bytes it has.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

/// One read: a head with a usual body in one go. Larger heads grow it: to 64 KiB at the most, since
/// `Limits::url_bytes` and `Limits::header_bytes` end them before.
const BUFFER_BYTES: usize = 16 * 1024;
/// Spare buffers a worker keeps; more are needed only while many requests are half read.
const MAX_SPARE: usize = 16;

/// The room that heads are copied to, some of usual size at a time. Small: who holds one value of a
/// head holds all of it.
const HEADS_BYTES: usize = 4 * 1024;

/// Where heads are kept while their requests live: one allocation for several of them, used again
/// once they are gone.
#[derive(Debug, Default)]
pub(crate) struct Heads(RefCell<BytesMut>);

impl Heads {
    pub(crate) fn copy(&self, head: &[u8]) -> Bytes {
        let mut room = self.0.borrow_mut();
        if room.capacity() - room.len() < head.len() {
            room.reserve(head.len().max(HEADS_BYTES));
        }
        room.extend_from_slice(head);
        room.split().freeze()
    }
}

/// Bytes read and not yet used, and room behind them.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The memory of all buffers that are counted together, this one included.
    total: Rc<Cell<usize>>,
}

impl Buffer {
    pub(crate) fn new(capacity: usize, total: &Rc<Cell<usize>>) -> Box<Buffer> {
        Buffer::with(vec![0; capacity], 0, total)
    }

    fn with(bytes: Vec<u8>, end: usize, total: &Rc<Cell<usize>>) -> Box<Buffer> {
        total.set(total.get() + bytes.len());
        Box::new(Buffer { bytes, start: 0, end, total: total.clone() })
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
                let length = self.bytes.len();
                let doubled = (length * 2).max(BUFFER_BYTES);
                self.bytes.resize(doubled, 0);
                self.total.set(self.total.get() + doubled - length);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were read into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.bytes.len());
    }
}

/// A worker's buffers: the spare ones, and the memory of all. Boxed as connections hold them:
/// handed on, they are not moved.
#[derive(Debug, Default)]
#[allow(clippy::vec_box)]
pub(crate) struct Buffers {
    spare: RefCell<Vec<Box<Buffer>>>,
    total: Rc<Cell<usize>>,
}

impl Buffers {
    /// What all buffers of the worker occupy.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total.get()
    }

    pub(crate) fn take(&self) -> Box<Buffer> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Buffer::new(BUFFER_BYTES, &self.total))
    }

    pub(crate) fn give(&self, mut buffer: Box<Buffer>) {
        let mut spare = self.spare.borrow_mut();
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
            *held = Some(Buffer::with(data.to_vec(), data.len(), &self.total));
        }
        self.give(buffer);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn put(buffer: &mut Buffer, bytes: &[u8]) {
        for byte in bytes {
            buffer.room()[0] = *byte;
            buffer.filled(1);
        }
    }

    #[test]
    fn bytes_come_out_in_order_at_every_fill_level() {
        let total = Rc::default();
        let mut buffer = Buffer::new(4, &total);
        put(&mut buffer, b"abcd");
        buffer.consume(3);
        put(&mut buffer, b"efg");
        assert_eq!(buffer.data(), b"defg");
        put(&mut buffer, b"h");
        assert_eq!(buffer.data(), b"defgh");
        buffer.consume(5);
        assert!(buffer.data().is_empty() && buffer.room().len() >= BUFFER_BYTES);
        assert_eq!(total.get(), buffer.bytes.len());
        drop(buffer);
        assert_eq!(total.get(), 0);
    }

    #[test]
    fn heads_share_a_buffer_and_release_it() {
        let heads = Heads::default();
        let large = vec![b'x'; 2 * HEADS_BYTES];
        let kept = [heads.copy(b"GET /1"), heads.copy(&large), heads.copy(b"GET /2")];
        assert_eq!(kept, [&b"GET /1"[..], &large, b"GET /2"]);
        drop(kept);
        let count = 100 * HEADS_BYTES / 8;
        let places: HashSet<_> = (0..count).map(|_| heads.copy(b"GET /abc").as_ptr()).collect();
        assert!(places.len() < count / 10, "{} places for {count} heads", places.len());
    }

    #[test]
    fn a_waiting_connection_holds_only_its_unread_bytes() {
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
        assert_eq!(buffers.spare.borrow().len(), 1, "the large one went back");
        assert_eq!(buffers.total_bytes(), 2 * BUFFER_BYTES);
    }
}
