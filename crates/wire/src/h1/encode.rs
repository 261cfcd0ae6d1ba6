//! An answer's head as bytes, without any formatting machinery: it is on the way of every answer.

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::worker::Date;

/// How the client learns where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// There is no body and no word about one (204, 304, 1xx), unless the service says how long it
    /// would be.
    None,
    Bytes(u64),
    Chunked,
    /// With the connection.
    Close,
}

/// What the head says about the connection after this response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Kept, which is the default of HTTP/1.1.
    Keep,
    /// Kept, with a header for an HTTP/1.0 client.
    KeepOld,
    Close,
    Upgrade,
}

/// Appends the head with its empty line.
pub(crate) fn head(
    out: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    length: Length,
    after: After,
    date: &mut Date,
) {
    status_line(out, status);
    let (mut dated, mut upgrades) = (false, false);
    for (name, value) in headers {
        if *name == CONNECTION || *name == TRANSFER_ENCODING {
            continue;
        }
        if *name == CONTENT_LENGTH && length != Length::None {
            continue;
        }
        dated |= *name == DATE;
        upgrades |= *name == UPGRADE;
        line(out, name, value.as_bytes());
    }
    match length {
        Length::Bytes(bytes) => {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Length::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Length::None | Length::Close => {}
    }
    match after {
        // A 426 says what to change to (RFC 9110 7.8).
        After::Keep if upgrades => out.extend_from_slice(b"connection: upgrade\r\n"),
        After::Close if upgrades => out.extend_from_slice(b"connection: close, upgrade\r\n"),
        After::Keep => {}
        After::KeepOld => out.extend_from_slice(b"connection: keep-alive\r\n"),
        After::Close => out.extend_from_slice(b"connection: close\r\n"),
        After::Upgrade => out.extend_from_slice(b"connection: upgrade\r\n"),
    }
    if !dated {
        out.extend_from_slice(date.line());
    }
    out.extend_from_slice(b"\r\n");
}

/// An interim response with its headers.
pub(crate) fn interim(out: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap) {
    status_line(out, status);
    fields(out, headers);
}

/// Header lines and the empty line behind them.
pub(crate) fn fields(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        if *name != CONNECTION && *name != TRANSFER_ENCODING && *name != CONTENT_LENGTH {
            line(out, name, value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The size line of a chunk.
pub(crate) fn chunk_size(out: &mut Vec<u8>, bytes: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - bytes.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(DIGITS[(bytes >> (place * 4)) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

/// One header line.
pub(crate) fn line(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_are_hexadecimal_without_leading_zeros() {
        for bytes in [0, 1, 9, 15, 16, 255, 256, 4095, 4096, 65_536, 0x1234_5678] {
            let mut out = Vec::new();
            chunk_size(&mut out, bytes);
            assert_eq!(out, format!("{bytes:x}\r\n").into_bytes());
        }
    }
}
