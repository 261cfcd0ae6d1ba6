//! Panics and delays on demand, in this crate's own tests alone: what the writer does about a panic
//! cannot be seen without one.

use model::Write;
use model::write::Change;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// Places where the next pass panics.
#[derive(Default)]
pub struct Faults(Mutex<HashSet<&'static str>>);

impl Faults {
    pub fn set(&self, place: &'static str) {
        self.0.lock().insert(place);
    }

    pub fn strike(&self, place: &'static str) {
        let struck = self.0.lock().remove(place);
        assert!(!struck, "a panic was asked for: {place}");
    }
}

/// Writes ask for it themselves, by their title. A timed transition does by the id of its record.
pub fn after(write: &Write) {
    let title = match &write.change {
        Change::Create { fields } => fields.get("title").and_then(Value::as_str),
        Change::Timed { .. } => write.id.as_deref(),
        _ => None,
    };
    match title {
        Some(title) if title.starts_with("panic") => panic!("a write asked for a panic"),
        // waits for: the time of a batch to be over
        Some("slow") => std::thread::sleep(Duration::from_millis(20)),
        _ => {}
    }
}
