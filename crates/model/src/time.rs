//! Instants as the service writes them: milliseconds since 1970 inside, ISO 8601 in UTC outside.
//! Nothing here reads a clock; whoever needs "now" is given it.

use jiff::fmt::temporal::DateTimePrinter;
use std::time::{Duration, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The first and the last instant that can be written.
    pub const MIN: Timestamp = Timestamp(-377_705_023_201_000);
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000);

    /// `2026-11-15T08:30:00.000Z`: always UTC, always three decimals, so text order is time order.
    pub fn to_iso(self) -> String {
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
        let instant = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        let mut text = String::with_capacity(24);
        // Writing to a string cannot fail.
        let _ = PRINTER.print_timestamp(&instant, &mut text);
        text
    }

    /// Reads any RFC 3339 date-time with an offset; the instant is kept, the offset is not.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let instant: jiff::Timestamp = text.parse().ok()?;
        Some(Timestamp(instant.as_millisecond()))
    }

    /// The form of `Last-Modified` and of `If-Unmodified-Since`, in whole seconds.
    pub fn to_http_date(self) -> String {
        let since = Duration::from_millis(u64::try_from(self.0).unwrap_or(0));
        httpdate::fmt_http_date(UNIX_EPOCH + since)
    }

    pub fn parse_http_date(text: &str) -> Option<Timestamp> {
        let instant = httpdate::parse_http_date(text).ok()?;
        let since = instant.duration_since(UNIX_EPOCH).ok()?;
        Some(Timestamp(i64::try_from(since.as_millis()).ok()?))
    }

    /// The moment so much later.
    pub fn plus(self, time: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How much later it is than another moment; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

/// A calendar date `YYYY-MM-DD` that exists.
pub fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc_with_three_decimals() {
        assert_eq!(Timestamp(1_763_195_400_007).to_iso(), "2025-11-15T08:30:00.007Z");
        assert_eq!(Timestamp(0).to_iso(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn the_first_and_the_last_instant_are_read_as_they_are_written() {
        for (instant, beyond) in [(Timestamp::MIN, -1), (Timestamp::MAX, 1)] {
            assert_eq!(Timestamp::parse(&instant.to_iso()), Some(instant));
            assert!(jiff::Timestamp::from_millisecond(instant.0 + beyond).is_err());
        }
    }

    #[test]
    fn offsets_are_understood_and_normalised() {
        let parsed = Timestamp::parse("2025-11-15T10:30:00.007+02:00").unwrap();
        assert_eq!(parsed.to_iso(), "2025-11-15T08:30:00.007Z");
        assert_eq!(Timestamp::parse("2025-11-15"), None);
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn http_dates_round_trip() {
        let date = Timestamp(784_111_777_000);
        assert_eq!(date.to_http_date(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(Timestamp::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(date));
        assert_eq!(Timestamp::parse_http_date("gestern"), None);
    }

    #[test]
    fn dates_must_exist() {
        assert!(is_date("2024-02-29"));
        assert!(!is_date("2025-02-29"));
        assert!(!is_date("2025-2-9"));
    }
}
