//! The head of a response on HTTP/1.1: where it ends, what it says, and how its body ends. Anything
//! that two readers could understand differently is refused, because the next response on the
//! connection would then begin in the middle of this one. No I/O.
//!
//! `Reading::Lenient` is for one call on a connection that nobody uses again: there the same
//! responses are taken as other clients take them, and `Head::tainted` reports it.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use memchr::memchr_iter;

use super::fault::OutgoingFault;
use crate::fields::{decimal, has_no_body};

/// Header lines of one response. 100, as for requests; the parser holds them on its stack.
const MAX_HEADERS: usize = 100;
const START: &[u8] = b"HTTP/1.";

/// How responses that are not quite valid are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Not at all.
    Strict,
    /// As far as they can be understood; the connection is not used again.
    Lenient,
}

/// How the body of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    None,
    Sized(u64),
    Chunked,
    /// With the connection.
    Close,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    /// So long the server says that it keeps the connection without a request.
    pub(super) rest: Option<Duration>,
    /// Only lenient reading understood it.
    pub(super) tainted: bool,
}

/// How far the search for the end of a head has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    seen: usize,
    /// Where the status line begins.
    start: usize,
    /// Where the line being read begins.
    line: usize,
    lines: usize,
}

impl Scan {
    /// The end of the head in `data`, which begins with the bytes given before.
    pub(super) fn find(
        &mut self,
        data: &[u8],
        reading: Reading,
    ) -> Result<Option<usize>, OutgoingFault> {
        let strict = reading == Reading::Strict;
        let base = self.seen;
        let mut found = None;
        for offset in memchr_iter(b'\n', &data[base..]) {
            let end = base + offset;
            let line = &data[self.line..end];
            self.line = end + 1;
            if strict && !line.ends_with(b"\r") {
                return Err(invalid("a line ends with a bare LF"));
            }
            if !line.is_empty() && line != b"\r" {
                self.lines += 1;
            } else if self.lines > 0 {
                found = Some(self.line);
                break;
            } else if strict {
                return Err(invalid("an empty line stands before the status line"));
            } else {
                self.start = self.line;
            }
        }
        self.seen = data.len();
        // A server of another protocol is recognised without waiting for the end of its head.
        let begun = &data[self.start..];
        let count = begun.len().min(START.len());
        let is_half_empty_line = !strict && begun == b"\r";
        match begun[..count] == START[..count] || is_half_empty_line {
            true => Ok(found),
            false => Err(invalid("it does not begin with HTTP/1.")),
        }
    }
}

/// Reads a complete head; the values are slices of its bytes. `is_head`: the request was `HEAD`.
/// `headers` is an empty map whose memory is used.
pub(super) fn read(
    bytes: &Bytes,
    is_head: bool,
    reading: Reading,
    headers: HeaderMap,
) -> Result<Head, OutgoingFault> {
    match parse(bytes, is_head, reading, false, headers) {
        Err(OutgoingFault::Protocol(_)) if reading == Reading::Lenient => {
            let mut head = parse(bytes, is_head, reading, true, HeaderMap::new())?;
            head.tainted = true;
            Ok(head)
        }
        outcome => outcome,
    }
}

/// `skips`: header lines that are none are skipped.
fn parse(
    bytes: &Bytes,
    is_head: bool,
    reading: Reading,
    skips: bool,
    mut headers: HeaderMap,
) -> Result<Head, OutgoingFault> {
    let mut config = httparse::ParserConfig::default();
    config.ignore_invalid_headers_in_responses(skips);
    let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    match config.parse_response_with_uninit_headers(&mut response, bytes, &mut room) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(invalid("its head is not valid")),
        Err(httparse::Error::TooManyHeaders) => return Err(OutgoingFault::TooLarge),
        Err(error) => return Err(OutgoingFault::Protocol(error.into())),
    }
    let (Some(code), Some(minor)) = (response.code, response.version) else {
        return Err(invalid("its status line is not valid"));
    };
    let status = StatusCode::from_u16(code).map_err(|_| invalid("its status is not valid"))?;
    let mut message = Message::default();
    headers.reserve(response.headers.len());
    for header in response.headers.iter() {
        message.header(header.name, header.value)?;
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(header.value));
        match (name, value) {
            (Ok(name), Ok(value)) => drop(headers.append(name, value)),
            _ if skips => {}
            _ => return Err(invalid("a header line is not valid")),
        }
    }
    let mut tainted = false;
    let framing = match message.framing(minor == 0, reading) {
        // Neither has a body, whatever its head says.
        Ok(_) if is_head || has_no_body(status) => Framing::None,
        Ok((framing, is_tainted)) => {
            tainted = is_tainted;
            framing
        }
        Err(fault) => return Err(fault),
    };
    if message.lengths > 1 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(message.length));
    }
    Ok(Head {
        status,
        headers,
        framing,
        keep_alive: minor == 1 && !message.close,
        rest: message.rest,
        tainted,
    })
}

/// What the headers say about the message itself.
#[derive(Default)]
struct Message {
    lengths: usize,
    length: u64,
    encodings: usize,
    is_chunked: bool,
    /// The only coding is `chunked`.
    is_only_chunked: bool,
    close: bool,
    rest: Option<Duration>,
}

impl Message {
    fn header(&mut self, name: &str, value: &[u8]) -> Result<(), OutgoingFault> {
        // The length sorts out nearly all names before any is compared.
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => {
                let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                self.close |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
            }
            10 if name.eq_ignore_ascii_case("keep-alive") => {
                let mut parameters = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                let seconds = parameters.find_map(|it| decimal(it.strip_prefix(b"timeout=")?));
                self.rest = seconds.map(Duration::from_secs).or(self.rest);
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                for value in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    let length = decimal(value);
                    let length = length.ok_or(invalid("its Content-Length is not a number"))?;
                    if self.lengths > 0 && length != self.length {
                        return Err(invalid("it has two different values of Content-Length"));
                    }
                    self.lengths += 1;
                    self.length = length;
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                self.encodings += 1;
                self.is_only_chunked = value.eq_ignore_ascii_case(b"chunked");
                let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                self.is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
        Ok(())
    }

    /// How the body ends, and whether only lenient reading says so.
    fn framing(&self, is_old: bool, reading: Reading) -> Result<(Framing, bool), OutgoingFault> {
        if self.encodings == 0 {
            let sized = Framing::Sized(self.length);
            return Ok((if self.lengths > 0 { sized } else { Framing::Close }, false));
        }
        let what = match () {
            () if self.lengths > 0 => "it has both Content-Length and Transfer-Encoding",
            () if is_old => "it is of HTTP/1.0 and has a Transfer-Encoding",
            () if self.encodings > 1 || !self.is_only_chunked => {
                "its Transfer-Encoding is not chunked"
            }
            () => return Ok((Framing::Chunked, false)),
        };
        match reading {
            Reading::Strict => Err(invalid(what)),
            Reading::Lenient if self.is_chunked && !is_old => Ok((Framing::Chunked, true)),
            Reading::Lenient => Ok((Framing::Close, true)),
        }
    }
}

fn invalid(what: &'static str) -> OutgoingFault {
    OutgoingFault::Protocol(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(head: &str) -> Result<Head, OutgoingFault> {
        let end = Scan::default().find(head.as_bytes(), Reading::Strict)?;
        assert_eq!(end, Some(head.len()), "{head}");
        read(&Bytes::copy_from_slice(head.as_bytes()), false, Reading::Strict, HeaderMap::new())
    }

    #[test]
    fn the_body_ends_as_the_head_says() {
        for (fields, framing) in [
            ("", Framing::Close),
            ("Content-Length: 0\r\n", Framing::Sized(0)),
            ("content-length:  12 \r\n", Framing::Sized(12)),
            ("Content-Length: 7\r\nContent-Length: 7\r\n", Framing::Sized(7)),
            ("Content-Length: 7, 7\r\n", Framing::Sized(7)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ] {
            let head = strict(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).unwrap();
            assert_eq!((head.framing, head.keep_alive, head.tainted), (framing, true, false));
            assert!(head.headers.get_all(CONTENT_LENGTH).iter().count() <= 1);
        }
        for status in [204, 304] {
            let head = strict(&format!("HTTP/1.1 {status} \r\nContent-Length: 5\r\n\r\n"));
            assert_eq!(head.unwrap().framing, Framing::None);
        }
        let text = Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        let head = read(&text, true, Reading::Strict, HeaderMap::new()).unwrap();
        assert_eq!(
            (head.framing, &head.headers[CONTENT_LENGTH]),
            (Framing::None, &"5".parse().unwrap())
        );
    }

    #[test]
    fn only_http_1_1_without_close_keeps_the_connection() {
        for (line, kept) in [
            ("HTTP/1.1 200 OK\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", false),
        ] {
            assert_eq!(strict(&format!("{line}\r\n")).unwrap().keep_alive, kept, "{line}");
        }
        for (value, seconds) in [("timeout=5", Some(5)), ("max=9, timeout=7", Some(7)), ("x", None)]
        {
            let head = strict(&format!("HTTP/1.1 200 OK\r\nKeep-Alive: {value}\r\n\r\n")).unwrap();
            assert_eq!(head.rest, seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn ambiguous_responses_are_refused() {
        for head in [
            "HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
            "HTTP/1.1 200 OK\r\nBad : x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            // Also where the status or the method says that there is no body.
            "HTTP/1.1 204 No\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            let fault = strict(head).map(|head| head.framing);
            let fault = fault.map_err(|fault| fault.class());
            assert_eq!(fault, Err("invalid_response"), "{head:?}");
        }
    }

    #[test]
    fn the_lenient_reader_accepts_more_and_reports_it() {
        for (fields, framing) in [
            ("Bad Header\r\nContent-Length: 2\r\n", Framing::Sized(2)),
            ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", Framing::Chunked),
            ("Transfer-Encoding: identity\r\n", Framing::Close),
            ("Transfer-Encoding: gzip, chunked\r\n", Framing::Chunked),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let end = Scan::default().find(text.as_bytes(), Reading::Lenient).unwrap();
            assert_eq!(end, Some(text.len()));
            let head = read(&text.into(), false, Reading::Lenient, HeaderMap::new()).unwrap();
            assert_eq!((head.framing, head.tainted), (framing, true), "{fields}");
        }
        let differing = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        let outcome = read(&differing.into(), false, Reading::Lenient, HeaderMap::new());
        assert_eq!(outcome.unwrap_err().class(), "invalid_response");
    }

    /// Bytes of a valid head with some of them changed, removed or doubled.
    fn changed(head: &[u8], mut chance: u64) -> Vec<u8> {
        let mut next = |most: usize| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(chance >> 33).unwrap() % most
        };
        let mut bytes = head.to_vec();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = b"\r\n \t:,;\x00019aH\x80\xff"[next(15)],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        bytes
    }

    #[test]
    fn the_strict_reader_accepts_only_what_the_lenient_one_accepts() {
        let heads: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n",
            b"HTTP/1.0 204 No\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        ];
        for chance in 0..60_000 {
            let bytes = changed(heads[chance % heads.len()], chance as u64);
            let [strict, lenient] = [Reading::Strict, Reading::Lenient].map(|reading| {
                let end = Scan::default().find(&bytes, reading).ok()??;
                let head = Bytes::copy_from_slice(&bytes[..end]);
                let head = read(&head, false, reading, HeaderMap::new()).ok()?;
                Some((end, head.status, head.framing, head.tainted))
            });
            assert!(strict.is_none() || strict == lenient, "{}", bytes.escape_ascii());
            assert!(strict.is_none_or(|(_, _, _, tainted)| !tainted));
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_in_any_split_of_its_bytes() {
        let head = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n";
        for cut in 0..head.len() {
            let mut scan = Scan::default();
            let first = scan.find(&head[..cut], Reading::Strict).unwrap();
            let end = first.or_else(|| scan.find(head, Reading::Strict).unwrap());
            assert_eq!(end, Some(25), "{cut}");
        }
    }
}
