//! Which texts are a valid host with an optional port, for every protocol. No I/O.

use std::net::Ipv6Addr;

use memchr::memchr;

use crate::fields::decimal;

/// A host with or without a port, as RFC 9110 7.2 has them: a name (RFC 3986 3.2.2) that is not
/// empty, or an address of IPv6 (or of a later version) in brackets. No user.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value {
        [b'[', rest @ ..] => {
            let Some(end) = memchr(b']', rest) else { return false };
            let (literal, behind) = rest.split_at(end);
            (is_literal(literal), &behind[1..])
        }
        _ => {
            let end = memchr(b':', value).unwrap_or(value.len());
            let (name, behind) = value.split_at(end);
            (is_name(name), behind)
        }
    };
    let port = match port {
        [] => true,
        [b':', digits @ ..] => digits.is_empty() || decimal(digits).is_some_and(|n| n <= MAX_PORT),
        _ => false,
    };
    host && port
}

const MAX_PORT: u64 = u16::MAX as u64;

fn is_name(name: &[u8]) -> bool {
    // Names with a percent sign are rare enough to be looked at twice.
    let is_coded = || {
        let mut rest = name;
        while let Some(at) = memchr(b'%', rest) {
            match rest.get(at + 1..at + 3) {
                Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => rest = &rest[at + 3..],
                _ => return false,
            }
        }
        true
    };
    !name.is_empty()
        && name.iter().all(|byte| HOST_BYTES[usize::from(*byte)])
        && (memchr(b'%', name).is_none() || is_coded())
}

/// What may stand in brackets: RFC 3986 IPv6address and IPvFuture.
fn is_literal(literal: &[u8]) -> bool {
    if let [b'v' | b'V', rest @ ..] = literal {
        let Some(point) = memchr(b'.', rest) else { return false };
        let (version, address) = rest.split_at(point);
        let allowed =
            |byte: &u8| *byte != b'%' && (*byte == b':' || HOST_BYTES[usize::from(*byte)]);
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && address.len() > 1
            && address[1..].iter().all(allowed);
    }
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// What a name consists of. A table: every request has a host.
const HOST_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut marks: &[u8] = b"-._~%!$&'()*+,;=";
    while let [mark, rest @ ..] = marks {
        allowed[*mark as usize] = true;
        marks = rest;
    }
    allowed
};
