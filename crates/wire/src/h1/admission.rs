//! Which heads are let in. Whatever another server in the chain might read differently is refused:
//! two lengths, a length beside an encoding, an encoding that is not exactly `chunked`, no host or
//! two. Fed with one header after the other; knows no bytes of the body.

use crate::fault::Fault;
use crate::fields::{TWO_LENGTHS, length};
use crate::host::is_host;

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
                self.length = length(value)?;
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
            return Err(TWO_LENGTHS);
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

/// RFC 9112 6.1: an unknown coding is not the same as a malformed list.
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
