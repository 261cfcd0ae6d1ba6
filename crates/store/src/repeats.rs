//! Messages that repeat, such as those of a full disk: the first one is logged, the following ones
//! are counted and logged with their number at most once per interval.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// A message that keeps coming is logged this often.
const INTERVAL: Duration = Duration::from_secs(60);
/// Different messages that are counted; all further ones are counted as one.
const MESSAGES: usize = 16;
/// In place of the text of a further message.
const FURTHER: &str = "";

/// The messages of one place in the code.
#[derive(Debug, Default)]
pub struct Repeats(Mutex<Vec<Message>>);

#[derive(Debug)]
struct Message {
    text: String,
    logged: Instant,
    /// How often it came since it was logged.
    unlogged: u64,
}

impl Repeats {
    pub const fn new() -> Repeats {
        Repeats(Mutex::new(Vec::new()))
    }

    /// How often the message came since it was last logged, this time included; `None` when it was
    /// logged a short time ago.
    pub fn note(&self, text: &str) -> Option<u64> {
        self.note_at(text, Instant::now())
    }

    fn note_at(&self, text: &str, now: Instant) -> Option<u64> {
        let mut messages = self.0.lock();
        if messages.len() >= MESSAGES && !messages.iter().any(|message| message.text == text) {
            messages.retain(|one| now.saturating_duration_since(one.logged) < INTERVAL);
        }
        let is_known = |text: &str| messages.iter().any(|message| message.text == text);
        let text = if is_known(text) || messages.len() < MESSAGES { text } else { FURTHER };
        let Some(known) = messages.iter_mut().find(|message| message.text == text) else {
            messages.push(Message { text: text.to_owned(), logged: now, unlogged: 0 });
            return Some(1);
        };
        known.unlogged += 1;
        if now.saturating_duration_since(known.logged) < INTERVAL {
            return None;
        }
        known.logged = now;
        Some(std::mem::take(&mut known.unlogged))
    }

    /// The cause is gone: how many messages were not logged, if there were any at all. The next one
    /// is logged again.
    pub fn clear(&self) -> Option<u64> {
        let messages = std::mem::take(&mut *self.0.lock());
        let unlogged = messages.iter().map(|message| message.unlogged).sum();
        (!messages.is_empty()).then_some(unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_repeats_is_logged_once_per_interval_with_its_number() {
        let (repeats, start) = (Repeats::new(), Instant::now());
        assert_eq!(repeats.note_at("full", start), Some(1));
        for _ in 0..9 {
            assert_eq!(repeats.note_at("full", start), None);
        }
        assert_eq!(repeats.note_at("broken", start), Some(1), "another message");
        assert_eq!(repeats.note_at("full", start + INTERVAL), Some(10));
        assert_eq!(repeats.note_at("full", start + INTERVAL), None);
        assert_eq!(repeats.clear(), Some(1));
        assert_eq!(repeats.clear(), None);
        assert_eq!(repeats.note_at("full", start + INTERVAL), Some(1), "the cause came back");
        for n in 0..MESSAGES * 2 {
            repeats.note_at(&n.to_string(), start);
        }
        assert_eq!(repeats.0.lock().len(), MESSAGES + 1);
        assert_eq!(repeats.note_at("another", start + INTERVAL / 2), None);
        assert_eq!(repeats.note_at("another", start + INTERVAL * 3), Some(1), "there is room");
    }
}
