//! The chunked body of a message, taken apart strictly: CR LF only, plain hexadecimal sizes,
//! bounded extensions, bounded trailers without any field that means something before the body.
//! No I/O: it is shown the bytes that have arrived and says what they are.

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memchr;

use crate::fields::is_forbidden_trailer;

/// A chunk size with extensions; extensions are unused on the real web and a known way to attack.
const LINE_BYTES: usize = 256;
/// All extensions of one body together: a byte of data must not cost a line of them for ever.
const EXTENSION_BYTES: usize = 16 * 1024;
/// All trailers of one body. Checksums and timings are what they are used for.
const TRAILER_BYTES: usize = 8 * 1024;
const MAX_TRAILERS: usize = 32;

#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    extension_bytes: usize,
    /// Fields that may not stand behind a body are dropped. Else they are an error.
    filters: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// What comes next in the bytes shown.
#[derive(Debug)]
pub(crate) enum Piece {
    /// So many bytes are used up; more must arrive.
    More(usize),
    /// Data: so many bytes behind so many that are used up.
    Data { skip: usize, length: usize },
    /// The end of the body, after so many bytes.
    End { length: usize, trailers: Option<HeaderMap> },
}

/// Nothing behind it can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkError {
    Framing,
    /// The framing is whole, but a field behind the body may not stand there.
    Trailer,
}

impl Chunked {
    pub(crate) fn new() -> Chunked {
        Chunked { state: State::Size, extension_bytes: 0, filters: false }
    }

    /// Of a response that is passed on: what stands behind it and may not, is dropped.
    pub(crate) fn of_response() -> Chunked {
        Chunked { filters: true, ..Chunked::new() }
    }

    /// Looks at the bytes that follow those used up before.
    pub(crate) fn next(&mut self, data: &[u8]) -> Result<Piece, ChunkError> {
        let mut at = 0;
        loop {
            let rest = &data[at..];
            match self.state {
                State::Size => {
                    let Some(line) = line(rest)? else { return Ok(Piece::More(at)) };
                    at += line.len() + 2;
                    self.size(line)?;
                }
                State::Data(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    if length == 0 {
                        return Ok(Piece::More(at));
                    }
                    let left = left - length as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Ok(Piece::Data { skip: at, length });
                }
                State::DataEnd => match rest {
                    [] | [b'\r'] => return Ok(Piece::More(at)),
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.state = State::Size;
                    }
                    _ => return Err(ChunkError::Framing),
                },
                State::Trailers => {
                    let Some(length) = section(rest)? else { return Ok(Piece::More(at)) };
                    let trailers = trailers(&rest[..length], self.filters)?;
                    return Ok(Piece::End { length: at + length, trailers });
                }
            }
        }
    }

    fn size(&mut self, line: &[u8]) -> Result<(), ChunkError> {
        let digits = memchr(b';', line).unwrap_or(line.len());
        let extension = &line[digits..];
        self.extension_bytes += extension.len();
        let strange = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        if self.extension_bytes > EXTENSION_BYTES || extension.iter().any(strange) {
            return Err(ChunkError::Framing);
        }
        let size = hexadecimal(&line[..digits]).ok_or(ChunkError::Framing)?;
        self.state = if size == 0 { State::Trailers } else { State::Data(size) };
        Ok(())
    }
}

/// The first line without its end; none if that has not arrived.
fn line(data: &[u8]) -> Result<Option<&[u8]>, ChunkError> {
    let window = &data[..data.len().min(LINE_BYTES)];
    match memchr(b'\n', window) {
        Some(end) => window[..end].strip_suffix(b"\r").map(Some).ok_or(ChunkError::Framing),
        None if data.len() >= LINE_BYTES => Err(ChunkError::Framing),
        None => Ok(None),
    }
}

/// The length of the trailer section with its empty line.
fn section(data: &[u8]) -> Result<Option<usize>, ChunkError> {
    let mut start = 0;
    while let Some(length) = memchr(b'\n', &data[start..]) {
        if !data[start..start + length].ends_with(b"\r") || start + length > TRAILER_BYTES {
            return Err(ChunkError::Framing);
        }
        start += length + 1;
        if length == 1 {
            return Ok(Some(start));
        }
    }
    if data.len() > TRAILER_BYTES { Err(ChunkError::Framing) } else { Ok(None) }
}

fn trailers(section: &[u8], filters: bool) -> Result<Option<HeaderMap>, ChunkError> {
    if section.len() == 2 {
        return Ok(None);
    }
    let mut room = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(section, &mut room)
    else {
        return Err(ChunkError::Framing);
    };
    let mut fields = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| ChunkError::Framing)?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_| ChunkError::Framing)?;
        match is_forbidden_trailer(&name) {
            false => drop(fields.append(name, value)),
            true if filters => {}
            true => return Err(ChunkError::Trailer),
        }
    }
    Ok(Some(fields))
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
