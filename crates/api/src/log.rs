//! One line of JSON per request. Lines gather in a buffer that a thread of the binary empties a few
//! times a second: writing each for itself would cost more than answering. Never logged: keys,
//! queries, bodies.

use model::Timestamp;
use model::record::push_text;
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A log that cannot be written loses lines beyond this, counted, instead of memory.
const MAX_BUFFERED_BYTES: usize = 4 << 20;

#[derive(Default)]
pub struct AccessLog {
    buffer: Mutex<Buffer>,
    lost: AtomicU64,
}

#[derive(Default)]
struct Buffer {
    text: String,
    /// The second that was written last, and its text up to the decimals: thousands of lines share
    /// it.
    second: i64,
    second_text: String,
}

/// What a line tells. All texts but the path are the service's own and need no escaping.
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
}

impl AccessLog {
    /// Written piece by piece: formatting machinery would cost a tenth of a read.
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
        ] {
            if let Some(value) = value {
                out.push_str(name);
                out.push_str(value);
            }
        }
        out.push_str("\"}\n");
    }

    /// Takes what has gathered, and how many lines were lost.
    pub fn take(&self) -> (String, u64) {
        let text = std::mem::take(&mut self.buffer.lock().text);
        (text, self.lost.swap(0, Ordering::Relaxed))
    }
}

impl Buffer {
    /// The beginning of a line, up to the time's last digits.
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
    fn hostile_paths_stay_inside_their_string() {
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
        });
        let (text, lost) = log.take();
        assert_eq!((text.lines().count(), lost), (1, 0));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["path"], "/v1/\"}\n{\"level\":\"fake\\");
        assert_eq!(line["key"], "key_1");
        assert_eq!(line["time"], "2027-01-15T08:00:00.007Z");
        assert_eq!(line["client"], "127.0.0.1");
    }
}
