//! Which heads are let in. Whatever another server in the chain might read differently is refused:
//! two lengths, a length beside an encoding, an encoding that is not exactly `chunked`, no host or
//! two. Fed with one header after the other; knows no bytes of the body.

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
                    return Err(Fault::Malformed("Transfer-Encoding must be chunked."));
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

/// RFC 3986 host and port, IPv6 literals included; loose about their order.
pub(crate) fn is_host(value: &[u8]) -> bool {
    value.iter().all(|byte| HOST_BYTES[usize::from(*byte)])
}

/// A table: every request has a host.
const HOST_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut marks: &[u8] = b"-._~%!$&'()*+,;=:[]";
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
