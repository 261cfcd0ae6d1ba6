//! Instants as the service writes them: milliseconds since 1970 inside, ISO 8601 in UTC outside.
//! Nothing here reads a clock: the caller passes "now".

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::fmt::temporal::{DateTimePrinter, Pieces, PiecesOffset};
use std::time::{Duration, UNIX_EPOCH};

/// The first of January 1970.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The first and the last instant that can be written.
    pub const MIN: Timestamp = Timestamp(-377_705_023_201_000);
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// `2026-11-15T08:30:00.000Z`: always UTC, always three decimals, so text order is time order.
    pub fn to_iso(self) -> String {
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
        let mut text = String::with_capacity(24);
        // Writing to a string cannot fail.
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => _ = PRINTER.print_timestamp(&instant, &mut text),
            Err(_) => {
                let since = SignedDuration::from_millis(self.0);
                let date = EPOCH.checked_add(since).unwrap_or(EPOCH);
                _ = PRINTER.print_datetime(&date, &mut text);
                text.push('Z');
            }
        }
        text
    }

    /// Reads any RFC 3339 date-time with an offset, as an instant without the offset.
    pub fn parse(text: &str) -> Option<Timestamp> {
        match text.parse::<jiff::Timestamp>() {
            Ok(instant) => Some(Timestamp(instant.as_millisecond())),
            Err(_) => Timestamp::parse_last_day(text),
        }
    }

    /// The library leaves room for every offset at the end of its years: the last 26 hours of 9999
    /// are read by their parts.
    fn parse_last_day(text: &str) -> Option<Timestamp> {
        if !text.starts_with("9999-12-3") {
            return None;
        }
        let pieces = Pieces::parse(text).ok()?;
        let offset = match (pieces.offset()?, pieces.time_zone_annotation()) {
            (PiecesOffset::Numeric(numeric), None) => numeric.offset().seconds(),
            (PiecesOffset::Zulu, None) => 0,
            _ => return None,
        };
        let date = pieces.date().to_datetime(pieces.time()?);
        let since = date.duration_since(EPOCH).as_millis();
        let instant = i64::try_from(since).ok()? - i64::from(offset) * 1000;
        (instant <= Timestamp::MAX.0).then_some(Timestamp(instant))
    }

    /// The form of `Last-Modified` and of `If-Unmodified-Since`, in whole seconds.
    pub fn to_http_date(self) -> String {
        const WEEKDAYS: &str = "ThuFriSatSunMonTueWed";
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let name = |names: &'static str, place: usize| &names[place * 3..place * 3 + 3];
        let seconds = usize::try_from(self.seconds().clamp(0, Timestamp::MAX.seconds()));
        let (days, time) = (seconds.unwrap_or(0) / 86_400, seconds.unwrap_or(0) % 86_400);
        let (year, month, day) = civil(days);
        // Piece by piece and without spare capacity: every read of a record has one.
        let mut text = String::with_capacity(29);
        text.push_str(name(WEEKDAYS, days % 7));
        text.push_str(", ");
        push_two(&mut text, day);
        text.push(' ');
        text.push_str(name(MONTHS, month - 1));
        text.push(' ');
        push_two(&mut text, year / 100);
        push_two(&mut text, year % 100);
        for (before, number) in [(' ', time / 3_600), (':', time / 60 % 60), (':', time % 60)] {
            text.push(before);
            push_two(&mut text, number);
        }
        text.push_str(" GMT");
        text
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

/// Year, month and day of a number of days since 1970-01-01. Counts from 1 March, so that the day
/// that a leap year adds is the last of its year.
fn civil(days: usize) -> (usize, usize, usize) {
    const DAYS_OF_400_YEARS: usize = 146_097;
    // Days from 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (era, of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

fn push_two(text: &mut String, number: usize) {
    for digit in [number / 10 % 10, number % 10] {
        text.push(char::from(b'0' + digit as u8));
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
        for instant in [Timestamp::MIN, Timestamp::MAX] {
            assert_eq!(Timestamp::parse(&instant.to_iso()), Some(instant));
        }
        assert!(jiff::Timestamp::from_millisecond(Timestamp::MIN.0 - 1).is_err());
        assert_eq!(Timestamp::MAX.to_iso(), "9999-12-31T23:59:59.999Z");
        // Where the library's own instants end.
        for millis in 253_402_207_199_990..253_402_207_201_010 {
            assert_eq!(Timestamp::parse(&Timestamp(millis).to_iso()), Some(Timestamp(millis)));
        }
        for bad in [
            "9999-12-31T23:59:59.999-00:01",
            "9999-12-31T23:59:59.999",
            "9999-12-31",
            "9999-12-31T24:00:00Z",
            "9999-12-31T23:59:59Z[Europe/Rome]",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
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
    fn http_dates_agree_with_the_library_up_to_the_year_9999() {
        // A prime number of seconds, about eleven days: all days and times of the day occur.
        for seconds in (0..Timestamp::MAX.seconds()).step_by(1_000_003) {
            let since = Duration::from_secs(seconds as u64);
            let expected = httpdate::fmt_http_date(std::time::UNIX_EPOCH + since);
            assert_eq!(Timestamp(seconds * 1000 + 999).to_http_date(), expected);
        }
        let [first, last] = ["Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"];
        assert_eq!(Timestamp::MAX.to_http_date(), last);
        assert_eq!(Timestamp(i64::MAX).to_http_date(), last);
        assert_eq!(Timestamp::MIN.to_http_date(), first);
    }

    #[test]
    fn dates_must_exist() {
        assert!(is_date("2024-02-29"));
        assert!(!is_date("2025-02-29"));
        assert!(!is_date("2025-2-9"));
    }
}
