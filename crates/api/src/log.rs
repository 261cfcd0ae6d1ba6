//! One line of JSON per request. Lines gather in a buffer that a thread of the binary empties a few
//! times a second: writing each for itself would cost more than answering. Never logged: keys,
//! queries, bodies.

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A log that cannot be written loses lines beyond this, counted, instead of memory.
const MAX_BUFFERED_BYTES: usize = 4 << 20;

#[derive(Default)]
pub struct AccessLog {
    buffer: Mutex<String>,
    lost: AtomicU64,
}

/// What a line tells.
pub struct Line<'a> {
    pub time: &'a str,
    pub request_id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub duration_us: u128,
    pub bytes: usize,
    pub peer: std::net::IpAddr,
    pub account: Option<&'a str>,
    pub key: Option<&'a str>,
    pub error: Option<&'a str>,
}

impl AccessLog {
    pub fn write(&self, line: &Line<'_>) {
        let mut buffer = self.buffer.lock();
        if buffer.len() > MAX_BUFFERED_BYTES {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let _ = write!(
            buffer,
            "{{\"time\":\"{}\",\"level\":\"info\",\"event\":\"request\",\"request_id\":\"{}\",\
             \"method\":\"{}\",\"path\":",
            line.time, line.request_id, line.method
        );
        push_text(&mut buffer, line.path);
        let _ = write!(
            buffer,
            ",\"status\":{},\"duration_us\":{},\"bytes\":{},\"peer\":\"{}\"",
            line.status, line.duration_us, line.bytes, line.peer
        );
        for (name, value) in [("account", line.account), ("key", line.key), ("error", line.error)] {
            if let Some(value) = value {
                let _ = write!(buffer, ",\"{name}\":");
                push_text(&mut buffer, value);
            }
        }
        buffer.push_str("}\n");
    }

    /// Takes what has gathered, and how many lines were lost.
    pub fn take(&self) -> (String, u64) {
        let text = std::mem::take(&mut *self.buffer.lock());
        (text, self.lost.swap(0, Ordering::Relaxed))
    }
}

/// JSON string; the everyday text needs no escaping.
fn push_text(out: &mut String, text: &str) {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_stay_inside_their_string() {
        let log = AccessLog::default();
        log.write(&Line {
            time: "2026-01-01T00:00:00.000Z",
            request_id: "req_1",
            method: "GET",
            path: "/v1/\"}\n{\"level\":\"fake\\",
            status: 404,
            duration_us: 12,
            bytes: 3,
            peer: "127.0.0.1".parse().unwrap(),
            account: None,
            key: Some("key_1"),
            error: Some("route_not_found"),
        });
        let (text, lost) = log.take();
        assert_eq!((text.lines().count(), lost), (1, 0));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["path"], "/v1/\"}\n{\"level\":\"fake\\");
        assert_eq!(line["key"], "key_1");
    }
}
