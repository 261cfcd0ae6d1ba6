//! The `Date` header, made once a second and copied into each answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

const NAME: &[u8] = b"date: ";
/// `Sun, 06 Nov 1994 08:49:37 GMT`.
const VALUE_BYTES: usize = 29;
const LINE_BYTES: usize = NAME.len() + VALUE_BYTES + 2;

/// The header line of the second it was last asked for.
#[derive(Debug)]
pub(crate) struct Date {
    second: u64,
    line: [u8; LINE_BYTES],
    /// The value alone, for HTTP/2.
    value: Option<HeaderValue>,
}

impl Date {
    pub(crate) fn new() -> Date {
        Date { second: u64::MAX, line: [b' '; LINE_BYTES], value: None }
    }

    /// The line with its end.
    pub(crate) fn line(&mut self) -> &[u8] {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        if second != self.second {
            self.second = second;
            let moment = UNIX_EPOCH + Duration::from_secs(second);
            let text = httpdate::fmt_http_date(moment);
            debug_assert_eq!(text.len(), VALUE_BYTES);
            self.line[..NAME.len()].copy_from_slice(NAME);
            let value = &mut self.line[NAME.len()..][..VALUE_BYTES];
            value.copy_from_slice(&text.as_bytes()[..VALUE_BYTES]);
            self.line[LINE_BYTES - 2..].copy_from_slice(b"\r\n");
            self.value = None;
        }
        &self.line
    }

    pub(crate) fn value(&mut self) -> HeaderValue {
        self.line();
        let text = &self.line[NAME.len()..][..VALUE_BYTES];
        let make = || HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static(""));
        self.value.get_or_insert_with(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_line_is_current_and_always_has_the_same_length() {
        let mut date = Date::new();
        let line = String::from_utf8(date.line().to_vec()).unwrap();
        let text = line.strip_prefix("date: ").unwrap().strip_suffix("\r\n").unwrap();
        let told = httpdate::parse_http_date(text).unwrap();
        let age = SystemTime::now().duration_since(told).unwrap();
        assert!(age < Duration::from_secs(5), "{line}");
        date.second = u64::MAX;
        assert_eq!(date.line().len(), line.len());
    }
}
