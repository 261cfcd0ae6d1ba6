//! The access log: one line of JSON per request. Lines collect in a buffer that a thread of the
//! binary writes out a few times a second, because one write per line would cost more than handling
//! the request. Keys, queries and bodies are never logged.

use model::Timestamp;
use model::record::push_text;
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// If the log cannot be written, lines beyond this limit are dropped and counted, so that memory
/// stays bounded.
const MAX_BUFFERED_BYTES: usize = 4 << 20;

#[derive(Default)]
pub struct AccessLog {
    buffer: Mutex<Buffer>,
    lost: AtomicU64,
}

#[derive(Default)]
struct Buffer {
    text: String,
    /// The second of the latest line, and its text up to the decimals: thousands of lines share it.
    second: i64,
    second_text: String,
}

/// The content of a line. All texts except the path come from the service itself and need no
/// escaping.
pub struct Line<'a> {
    pub time: Timestamp,
    pub request_id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub duration_us: u64,
    pub bytes: usize,
    pub client: IpAddr,
    pub account: Option<&'a str>,
    pub key: Option<&'a str>,
    pub error: Option<&'a str>,
    /// The server that a proxy forwarded the request to.
    pub backend: Option<&'a str>,
}

impl AccessLog {
    /// Pushes piece by piece: `format!` would cost a tenth of a read.
    pub fn write(&self, line: &Line<'_>) {
        let mut buffer = self.buffer.lock();
        if buffer.text.len() > MAX_BUFFERED_BYTES {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        buffer.push_time(line.time);
        let out = &mut buffer.text;
        for (name, value) in [
            ("\",\"level\":\"info\",\"event\":\"request\",\"request_id\":\"", line.request_id),
            ("\",\"method\":\"", line.method),
        ] {
            out.push_str(name);
            out.push_str(value);
        }
        out.push_str("\",\"path\":");
        push_text(out, line.path);
        let mut digits = itoa::Buffer::new();
        out.push_str(",\"status\":");
        out.push_str(digits.format(line.status));
        out.push_str(",\"duration_us\":");
        out.push_str(digits.format(line.duration_us));
        out.push_str(",\"bytes\":");
        out.push_str(digits.format(line.bytes));
        out.push_str(",\"client\":\"");
        push_address(out, line.client);
        for (name, value) in [
            ("\",\"account\":\"", line.account),
            ("\",\"key\":\"", line.key),
            ("\",\"error\":\"", line.error),
            ("\",\"backend\":\"", line.backend),
        ] {
            if let Some(value) = value {
                out.push_str(name);
                out.push_str(value);
            }
        }
        out.push_str("\"}\n");
    }

    /// Swaps the collected text with `written`, the text of the last call, whose memory is used
    /// again: growing a new text would copy each line about twice. Returns the number of lost
    /// lines.
    pub fn take(&self, written: &mut String) -> u64 {
        // Enough for an interval with twice as many lines: after a burst, the rest is freed.
        let needed = written.len() * 2;
        written.clear();
        written.shrink_to(needed);
        std::mem::swap(&mut self.buffer.lock().text, written);
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Buffer {
    /// Pushes the beginning of a line with the time.
    fn push_time(&mut self, time: Timestamp) {
        if self.second != time.seconds() || self.second_text.is_empty() {
            let iso = time.to_iso();
            self.second = time.seconds();
            self.second_text = iso.get(..20).unwrap_or_default().to_owned();
        }
        self.text.push_str("{\"time\":\"");
        self.text.push_str(&self.second_text);
        let millis = time.0.rem_euclid(1000);
        let mut digits = itoa::Buffer::new();
        self.text.push_str(match millis {
            0..10 => "00",
            10..100 => "0",
            _ => "",
        });
        self.text.push_str(digits.format(millis));
        self.text.push('Z');
    }
}

fn push_address(out: &mut String, address: IpAddr) {
    let IpAddr::V4(v4) = address else {
        // Writing to a string cannot fail.
        let _ = write!(out, "{address}");
        return;
    };
    let mut digits = itoa::Buffer::new();
    for (place, octet) in v4.octets().into_iter().enumerate() {
        if place > 0 {
            out.push('.');
        }
        out.push_str(digits.format(octet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_path_cannot_inject_log_lines_or_fields() {
        let log = AccessLog::default();
        log.write(&Line {
            time: Timestamp(1_800_000_000_007),
            request_id: "req_1",
            method: "GET",
            path: "/v1/\"}\n{\"level\":\"fake\\",
            status: 404,
            duration_us: 12,
            bytes: 3,
            client: "127.0.0.1".parse().unwrap(),
            account: None,
            key: Some("key_1"),
            error: Some("route_not_found"),
            backend: None,
        });
        let mut text = String::new();
        let lost = log.take(&mut text);
        assert_eq!((text.lines().count(), lost), (1, 0));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["path"], "/v1/\"}\n{\"level\":\"fake\\");
        assert_eq!(line["key"], "key_1");
        assert_eq!(line["time"], "2027-01-15T08:00:00.007Z");
        assert_eq!(line["client"], "127.0.0.1");
    }
}
