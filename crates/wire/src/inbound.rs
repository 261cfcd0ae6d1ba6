//! The strict reading of what arrives. hyper accepts forms that another server in the chain may
//! read differently, and hides some of them from us (it deletes `Content-Length` beside
//! `Transfer-Encoding`, it takes bare line feeds). So the bytes are followed here as well: line by
//! line in heads, by length through bodies. One search per header line; no copy unless a line is
//! split between two reads. A fault is noted for the request it belongs to; answering it is the
//! business of `connection` and `call`.

use memchr::memchr;

use crate::fault::Fault;
use crate::limits::Limits;

/// Method, two spaces, version: what a request line has beside its target.
const LINE_SLACK_BYTES: usize = 64;
/// A chunk size with extensions; extensions are unused on the real web and a known way to attack.
const CHUNK_LINE_BYTES: usize = 256;

pub(crate) struct Inbound {
    state: State,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    head: Head,
    /// Requests whose head is complete.
    heads: u64,
    /// Requests that arrived completely, body included.
    received: u64,
    fault: Option<(u64, Fault)>,
    bounds: Bounds,
}

struct Bounds {
    header_bytes: usize,
    max_headers: usize,
    url_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    RequestLine,
    Headers,
    Sized(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// Nothing after a fault can be trusted.
    Lost,
}

/// What is known of the head being read.
#[derive(Default)]
struct Head {
    old_version: bool,
    header_bytes: usize,
    headers: usize,
    hosts: usize,
    lengths: usize,
    length: u64,
    encodings: usize,
}

impl Inbound {
    pub(crate) fn new(limits: &Limits) -> Inbound {
        Inbound {
            state: State::RequestLine,
            partial: Vec::new(),
            head: Head::default(),
            heads: 0,
            received: 0,
            fault: None,
            bounds: Bounds {
                header_bytes: limits.header_bytes,
                max_headers: limits.max_headers,
                url_bytes: limits.url_bytes,
            },
        }
    }

    /// A head has begun and not ended.
    pub(crate) fn in_head(&self) -> bool {
        match self.state {
            State::RequestLine => !self.partial.is_empty(),
            State::Headers => true,
            _ => false,
        }
    }

    /// Whether the request of this index arrived to its last byte.
    pub(crate) fn received(&self, index: u64) -> bool {
        self.received > index
    }

    /// The fault of the request of this index (or of an earlier one), if it has one.
    pub(crate) fn fault(&self, index: u64) -> Option<Fault> {
        self.fault.filter(|(at, _)| *at <= index).map(|(_, fault)| fault)
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.state {
                State::Lost => return,
                State::Sized(left) => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    self.state = State::Sized(left - taken);
                    if left == taken {
                        self.complete();
                    }
                }
                State::ChunkData(left) => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    let left = left - taken;
                    self.state = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                }
                _ => bytes = self.take_line(bytes),
            }
        }
    }

    /// Reads one line off the front, or keeps the rest until its end arrives.
    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(end) = memchr(b'\n', bytes) else {
            self.partial.extend_from_slice(bytes);
            self.check_partial();
            return &[];
        };
        let result = if self.partial.is_empty() {
            self.line(&bytes[..end])
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&bytes[..end]);
            self.line(&whole)
        };
        if let Err(fault) = result {
            self.fail(fault);
        }
        &bytes[end + 1..]
    }

    fn check_partial(&mut self) {
        let held = self.partial.len();
        match self.state {
            State::RequestLine if held > self.bounds.url_bytes + LINE_SLACK_BYTES => {
                self.fail(Fault::UrlTooLong);
            }
            State::Headers | State::Trailers if held > self.bounds.header_bytes => {
                self.fail(Fault::HeadTooLarge);
            }
            State::ChunkSize | State::ChunkEnd if held > CHUNK_LINE_BYTES => {
                self.fail(Fault::Malformed("The chunk size line is too long."));
            }
            _ => {}
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert((self.heads, fault));
        self.state = State::Lost;
        self.partial = Vec::new();
    }

    /// One line without its line feed.
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(Fault::Malformed("Lines must end with CR LF, not with a bare LF."));
        };
        match self.state {
            // RFC 9112 2.2: empty lines before a request are to be ignored.
            State::RequestLine if line.is_empty() => Ok(()),
            State::RequestLine => self.request_line(line),
            State::Headers if line.is_empty() => self.end_head(),
            State::Headers => self.header(line),
            State::ChunkSize => self.chunk_size(line),
            State::ChunkEnd if line.is_empty() => {
                self.state = State::ChunkSize;
                Ok(())
            }
            State::ChunkEnd => Err(Fault::Malformed("A chunk is longer than its size says.")),
            State::Trailers if line.is_empty() => {
                self.complete();
                Ok(())
            }
            State::Trailers => self.count(line),
            State::Sized(_) | State::ChunkData(_) | State::Lost => Ok(()),
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let target_start = memchr(b' ', line).map_or(line.len(), |space| space + 1);
        let target_bytes = line.len().saturating_sub(target_start + " HTTP/1.1".len());
        if target_bytes > self.bounds.url_bytes {
            return Err(Fault::UrlTooLong);
        }
        if line.starts_with(b"CONNECT ") {
            return Err(Fault::Tunnel);
        }
        self.head = Head::default();
        self.head.old_version = match line.get(line.len().saturating_sub(9)..) {
            Some(b" HTTP/1.1") => false,
            Some(b" HTTP/1.0") => true,
            Some(version) if version.starts_with(b" HTTP/") => {
                return Err(Fault::Malformed("This port speaks HTTP/1.1 and HTTP/1.0 only."));
            }
            _ => return Err(Fault::Malformed("The request line is not valid.")),
        };
        self.state = State::Headers;
        Ok(())
    }

    fn count(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.head.headers += 1;
        self.head.header_bytes += line.len() + 2;
        if self.head.headers > self.bounds.max_headers
            || self.head.header_bytes > self.bounds.header_bytes
        {
            return Err(Fault::HeadTooLarge);
        }
        Ok(())
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.count(line)?;
        // The first letter sorts out nearly all lines before any name is compared.
        match line[0] | 0x20 {
            b'h' => {
                if let Some(value) = value_of(line, b"host:") {
                    self.head.hosts += 1;
                    if !value.iter().all(|byte| host_byte(*byte)) {
                        return Err(Fault::Malformed("The Host header is not a valid host."));
                    }
                }
            }
            b'c' => {
                if let Some(value) = value_of(line, b"content-length:") {
                    self.head.lengths += 1;
                    self.head.length = decimal(value)
                        .ok_or(Fault::Malformed("The Content-Length header is not a number."))?;
                }
            }
            b't' => {
                if let Some(value) = value_of(line, b"transfer-encoding:") {
                    self.head.encodings += 1;
                    if !value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Fault::Malformed("Transfer-Encoding must be chunked."));
                    }
                }
            }
            // A space, or a tab with the bit set.
            b' ' | b')' => {
                return Err(Fault::Malformed("A header must not continue on a further line."));
            }
            _ => {}
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), Fault> {
        let head = &self.head;
        if head.hosts > 1 || (head.hosts == 0 && !head.old_version) {
            return Err(Fault::Malformed("A request must carry exactly one Host header."));
        }
        if head.lengths > 1 {
            return Err(Fault::Malformed("A request must carry at most one Content-Length."));
        }
        if head.encodings > 1 || (head.encodings == 1 && head.old_version) {
            return Err(Fault::Malformed("Transfer-Encoding is not valid here."));
        }
        if head.encodings == 1 && head.lengths == 1 {
            return Err(Fault::Malformed(
                "Content-Length and Transfer-Encoding exclude each other.",
            ));
        }
        self.heads += 1;
        match (head.encodings, head.length) {
            (0, 0) => self.complete(),
            (0, length) => self.state = State::Sized(length),
            _ => self.state = State::ChunkSize,
        }
        Ok(())
    }

    fn chunk_size(&mut self, line: &[u8]) -> Result<(), Fault> {
        let digits = memchr(b';', line).map_or(line, |end| &line[..end]);
        let size = hexadecimal(digits).ok_or(Fault::Malformed("A chunk size is not valid."))?;
        self.state = if size == 0 { State::Trailers } else { State::ChunkData(size) };
        Ok(())
    }

    fn complete(&mut self) {
        self.received = self.heads;
        self.state = State::RequestLine;
    }
}

/// The value of a header line that has this name (in lower case, with its colon).
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// RFC 3986 host and port, IPv6 literals included; loose about their order.
fn host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(sum.checked_mul(16)? + u64::from(value))
    })
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
