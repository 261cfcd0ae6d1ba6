//! What goes to one client alone: greetings, answers, comments. Behind one pointer, and without any
//! memory while there is nothing: nearly all connections are silent nearly always.

use bytes::Bytes;
use std::collections::VecDeque;

/// Frames in their order. The owner keeps it short.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "eight bytes at rest instead of 32")]
pub struct ReplyQueue(Option<Box<VecDeque<Bytes>>>);

impl ReplyQueue {
    pub fn push_back(&mut self, frame: Bytes) {
        self.0.get_or_insert_default().push_back(frame);
    }

    pub fn push_front(&mut self, frame: Bytes) {
        self.0.get_or_insert_default().push_front(frame);
    }

    pub fn pop_front(&mut self) -> Option<Bytes> {
        let frame = self.0.as_mut()?.pop_front();
        self.0.take_if(|frames| frames.is_empty());
        frame
    }

    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().flat_map(|frames| frames.iter())
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |frames| frames.len())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
