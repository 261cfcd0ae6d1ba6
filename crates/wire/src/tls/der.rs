//! What we need from inside a certificate and no library at hand returns: when it ends, and whose
//! it is. Reads only as far as that (RFC 5280 4.1), and gives up on what it does not understand.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const NUMERIC: u8 = 0x12;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const VISIBLE: u8 = 0x1a;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a certificate.
pub(super) fn expiry(certificate: &[u8]) -> Option<SystemTime> {
    let (SEQUENCE, validity, _) = element(from_validity(certificate)?)? else { return None };
    let (_not_before, rest) = skip(validity)?;
    let (kind, text, _) = element(rest)?;
    time(kind, text)
}

/// The subject of a certificate as RFC 4514 writes it: the last part first, and nothing in it but
/// visible ASCII.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    let (_validity, rest) = skip(from_validity(certificate)?)?;
    let (SEQUENCE, mut names, _) = element(rest)? else { return None };
    let mut parts = Vec::new();
    while !names.is_empty() {
        let (SET, mut attributes, rest) = element(names)? else { return None };
        names = rest;
        let mut together = Vec::new();
        while !attributes.is_empty() {
            let (SEQUENCE, attribute, rest) = element(attributes)? else { return None };
            attributes = rest;
            let (OBJECT, kind, value) = element(attribute)? else { return None };
            let (tag, value, _) = element(value)?;
            together.push(format!("{}={}", attribute_name(kind)?, attribute_value(tag, value)));
        }
        parts.push(together.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

/// The usual short names, or the numbers of the type.
fn attribute_name(kind: &[u8]) -> Option<String> {
    let short = match kind {
        [0x55, 0x04, 3] => "CN",
        [0x55, 0x04, 5] => "serialNumber",
        [0x55, 0x04, 6] => "C",
        [0x55, 0x04, 7] => "L",
        [0x55, 0x04, 8] => "ST",
        [0x55, 0x04, 9] => "STREET",
        [0x55, 0x04, 10] => "O",
        [0x55, 0x04, 11] => "OU",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01] => "emailAddress",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 25] => "DC",
        _ => return numbers(kind),
    };
    Some(short.to_owned())
}

/// `1.2.840.113549`: the first byte holds two numbers, the others seven bits each.
fn numbers(kind: &[u8]) -> Option<String> {
    let (first, rest) = kind.split_first()?;
    let mut text = format!("{}.{}", first / 40, first % 40);
    let mut number: u32 = 0;
    for byte in rest {
        number = number.checked_mul(128)? + u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            text.push_str(&format!(".{number}"));
            number = 0;
        }
    }
    Some(text)
}

/// Texts are escaped, other values are hexadecimal.
fn attribute_value(tag: u8, value: &[u8]) -> String {
    const TEXTS: [u8; 5] = [UTF8, PRINTABLE, IA5, NUMERIC, VISIBLE];
    let mut text = String::with_capacity(value.len());
    if !TEXTS.contains(&tag) {
        text.push('#');
        // Lengths of two bytes are not written here: no name has them.
        for byte in [&[tag, value.len() as u8], value].concat() {
            text.push_str(&format!("{byte:02x}"));
        }
        return text;
    }
    let last = value.len().saturating_sub(1);
    for (place, byte) in value.iter().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' | b'=' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b' ' if place == 0 || place == last => text.push_str("\\ "),
            b'#' if place == 0 => text.push_str("\\#"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:02X}")),
        }
    }
    text
}

/// What follows the issuer of a certificate.
fn from_validity(certificate: &[u8]) -> Option<&[u8]> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, signed, _) = element(certificate)? else { return None };
    let rest = match element(signed)? {
        (VERSION, _, rest) => rest,
        _ => signed,
    };
    let (_serial, rest) = skip(rest)?;
    let (_algorithm, rest) = skip(rest)?;
    let (_issuer, rest) = skip(rest)?;
    Some(rest)
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
    fn subjects_are_written_without_anything_that_could_be_read_otherwise() {
        let check = |tag, value: &[u8], expected: &str| {
            assert_eq!(attribute_value(tag, value), expected);
        };
        check(UTF8, b"Example, Inc. ", "Example\\, Inc.\\ ");
        check(UTF8, "é\r\nX: y".as_bytes(), "\\C3\\A9\\0D\\0AX: y");
        check(UTF8, b"#a\\b=c", "\\#a\\\\b\\=c");
        check(0x1e, &[0, b'a'], "#1e020061");
        let kind = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1];
        assert_eq!(numbers(&kind).as_deref(), Some("1.2.840.113549.1"));
        let params = rcgen::CertificateParams::default();
        let mut params = params;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Shop+");
        params.distinguished_name.push(rcgen::DnType::CommonName, "billing");
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        assert_eq!(subject(made.der()).as_deref(), Some("CN=billing,O=Shop\\+"));
        for end in 0..made.der().len() {
            let _ = (subject(&made.der()[..end]), expiry(&made.der()[..end]));
        }
    }

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
