//! How much a client may send ahead of its readers: each stream with a body widens the window of
//! its connection by what it may hold, if there is memory for that. So a body that nobody reads
//! stops no other stream, and a connection holds no more than was charged for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::{Connection, VarInt};

use super::settings::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};
use crate::memory::{Charge, Key, Memory};

/// A frame's head, and what else may stand around a body of declared length.
const FRAMING_BYTES: u64 = 1024;
/// A stream widens the window by this part more than it may hold. quinn announces room that was
/// given back only when it is an eighth of the window: without the surplus the others would wait
/// for room that is there and that their client does not know of.
const SURPLUS_PART: u64 = 4;

/// The window of a connection.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    connection: Connection,
    memory: Arc<Memory>,
    /// What the streams have added to it.
    added: Arc<Mutex<u64>>,
}

/// What one stream has added.
#[derive(Debug)]
pub(super) struct Window {
    windows: Windows,
    bytes: u64,
    charge: Charge,
}

impl Windows {
    pub(super) fn new(connection: Connection, memory: Arc<Memory>) -> Windows {
        Windows { connection, memory, added: Arc::default() }
    }

    /// The room for a body of this length, if it is known; none if there is no memory for it.
    pub(super) fn open(&self, declared_bytes: Option<u64>, key: Key) -> Option<Window> {
        let most = u64::from(STREAM_WINDOW_BYTES);
        let bytes = declared_bytes.map_or(most, |bytes| bytes.saturating_add(FRAMING_BYTES));
        let bytes = bytes.min(most) + bytes.min(most) / SURPLUS_PART;
        let charges = self.memory.charges(key);
        let charge = charges.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let mut added = self.lock();
        *added += bytes;
        self.set(*added);
        drop(added);
        Some(Window { windows: self.clone(), bytes, charge })
    }

    fn set(&self, added: u64) {
        let bytes = u64::from(CONNECTION_WINDOW_BYTES) + added;
        self.connection.set_receive_window(VarInt::from_u64(bytes).unwrap_or(VarInt::MAX));
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    pub(super) fn charge_to(&mut self, key: Key) -> bool {
        self.charge.move_to(key)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let mut added = self.windows.lock();
        *added -= self.bytes;
        self.windows.set(*added);
    }
}
