//! The one thing we need from inside a certificate that no library at hand tells: when it ends.
//! Reads only as far as that (RFC 5280 4.1), and gives up on what it does not understand.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a certificate.
pub(super) fn expiry(certificate: &[u8]) -> Option<SystemTime> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, signed, _) = element(certificate)? else { return None };
    let rest = match element(signed)? {
        (VERSION, _, rest) => rest,
        _ => signed,
    };
    let (_serial, rest) = skip(rest)?;
    let (_algorithm, rest) = skip(rest)?;
    let (_issuer, rest) = skip(rest)?;
    let (SEQUENCE, validity, _) = element(rest)? else { return None };
    let (_not_before, rest) = skip(validity)?;
    let (kind, text, _) = element(rest)?;
    time(kind, text)
}

fn skip(bytes: &[u8]) -> Option<(u8, &[u8])> {
    element(bytes).map(|(tag, _, rest)| (tag, rest))
}

/// The first element: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // One to four bytes of length; no certificate has more.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(kind: u8, text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match kind {
        GENERALIZED_TIME => text.split_at_checked(4)?,
        UTC_TIME => text.split_at_checked(2)?,
        _ => return None,
    };
    let mut year: u64 = year.parse().ok()?;
    if kind == UTC_TIME {
        // RFC 5280 4.1.2.5.1: two digits mean 1950 to 2049.
        year += if year < 50 { 2000 } else { 1900 };
    }
    let number = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (number(0)?, number(2)?);
    let (hour, minute, second) = (number(4)?, number(6)?, number(8)?);
    let seconds = days(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Days since 1970-01-01 in the Gregorian calendar, with years that begin in March so that the
/// day that may be missing is the last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    (before + (153 * month + 2) / 5 + day - 1).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_times_are_parsed_and_invalid_ones_refused() {
        let check = |kind, text: &str, expected: Option<u64>| {
            let expected = expected.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(time(kind, text.as_bytes()), expected, "{text}");
        };
        check(UTC_TIME, "700101000000Z", Some(0));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000));
        check(GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799));
        check(UTC_TIME, "500101000000Z", None); // before 1970
        check(UTC_TIME, "2401010000Z", None);
        check(UTC_TIME, "24010100000+1", None);
        check(GENERALIZED_TIME, "20241301000000Z", None);
        check(GENERALIZED_TIME, "00000101000000Z", None);
        check(SEQUENCE, "20240101000000Z", None);
    }

    #[test]
    fn a_truncated_certificate_causes_no_panic() {
        let whole = [SEQUENCE, 0x82, 0, 6, SEQUENCE, 4, 2, 1, 1, SEQUENCE];
        for end in 0..=whole.len() {
            assert_eq!(expiry(&whole[..end]), None);
        }
    }
}
