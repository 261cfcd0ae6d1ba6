//! Which heads are let in. Whatever another server in the chain might read differently is refused:
//! two lengths, a length beside an encoding, an encoding that is not exactly `chunked`, no host or
//! two. Fed with one header after the other; knows no bytes of the body.

use std::net::Ipv6Addr;

use memchr::memchr;

use crate::fault::Fault;

/// How long the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Sized(u64),
    Chunked,
}

/// What the headers of one request say about the request itself.
#[derive(Default)]
pub(crate) struct Admission {
    hosts: usize,
    lengths: usize,
    length: u64,
    encodings: usize,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) navigates: bool,
}

impl Admission {
    pub(crate) fn header(&mut self, name: &str, value: &[u8]) -> Result<(), Fault> {
        // The length sorts out nearly all names before any is compared.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                self.hosts += 1;
                if !is_host(value) {
                    return Err(Fault::Malformed("The Host header is not a valid host."));
                }
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case("connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case("content-length") => {
                self.lengths += 1;
                self.length = decimal(value)
                    .ok_or(Fault::Malformed("The Content-Length header is not a number."))?;
            }
            14 if name.eq_ignore_ascii_case("sec-fetch-mode") => {
                self.navigates |= value == b"navigate";
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                self.encodings += 1;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(not_chunked(value));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// The verdict after the last header.
    pub(crate) fn framing(&self, old_version: bool) -> Result<Framing, Fault> {
        if self.hosts > 1 || (self.hosts == 0 && !old_version) {
            return Err(Fault::Malformed("A request must carry exactly one Host header."));
        }
        if self.lengths > 1 {
            return Err(Fault::Malformed("A request must carry at most one Content-Length."));
        }
        if self.encodings > 1 || (self.encodings == 1 && old_version) {
            return Err(Fault::Malformed("Transfer-Encoding is not valid here."));
        }
        if self.encodings == 1 && self.lengths == 1 {
            return Err(Fault::Malformed(
                "Content-Length and Transfer-Encoding exclude each other.",
            ));
        }
        Ok(if self.encodings == 1 { Framing::Chunked } else { Framing::Sized(self.length) })
    }
}

/// RFC 9112 6.1: a coding that nobody knows is told from a list that is none.
fn not_chunked(value: &[u8]) -> Fault {
    let names = || value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_token = |name: &[u8]| !name.is_empty() && name.iter().all(|byte| is_token_byte(*byte));
    match names().all(is_token) && names().any(|name| !name.eq_ignore_ascii_case(b"chunked")) {
        true => Fault::UnknownCoding,
        false => Fault::Malformed("Transfer-Encoding must be chunked."),
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

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

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}
