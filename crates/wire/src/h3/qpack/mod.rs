//! Header fields as they stand in a frame (QPACK, RFC 9204), with the static table alone: we offer
//! no dynamic one, so that a head is read by itself, costs no memory beside it and never waits for
//! another stream. `table` holds the constants. No I/O.

mod table;

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode};

use self::table::Found;
use crate::huffman;

/// The bytes are no fields: the connection cannot go on (RFC 9204 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodeError;

/// Reads the fields of one block, one after the other.
#[derive(Debug)]
pub(super) struct Fields(Bytes);

impl Fields {
    pub(super) fn read(mut block: Bytes) -> Result<Fields, DecodeError> {
        let insertions = integer(&mut block, 8)?;
        let _base = integer(&mut block, 7)?;
        // What is not in the static table cannot be: there is no other.
        if insertions == 0 { Ok(Fields(block)) } else { Err(DecodeError) }
    }

    /// The next name and value, as they were sent: nothing says that they are valid.
    pub(super) fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, DecodeError> {
        let block = &mut self.0;
        let Some(first) = block.first().copied() else { return Ok(None) };
        let (name, value) = match first {
            0b1100_0000.. => {
                let (name, value) = table::entry(integer(block, 6)?).ok_or(DecodeError)?;
                (name.into(), value.into())
            }
            0b0101_0000..=0b0101_1111 | 0b0111_0000..=0b0111_1111 => {
                let (name, _) = table::entry(integer(block, 4)?).ok_or(DecodeError)?;
                (name.into(), text(block, 7)?)
            }
            0b0010_0000..=0b0011_1111 => {
                let name = text(block, 3)?;
                (name, text(block, 7)?)
            }
            // These point into the dynamic table.
            _ => return Err(DecodeError),
        };
        Ok(Some((name, value)))
    }
}

/// A number behind the last bits of a first byte (RFC 7541 5.1).
fn integer(block: &mut Bytes, prefix_bits: u32) -> Result<u64, DecodeError> {
    if block.is_empty() {
        return Err(DecodeError);
    }
    let full = (1_u64 << prefix_bits) - 1;
    let mut value = u64::from(block.get_u8()) & full;
    if value < full {
        return Ok(value);
    }
    // 63 bits: far beyond any length that can be true, and no sum here can overflow.
    for shift in (0..56).step_by(7) {
        if block.is_empty() {
            return Err(DecodeError);
        }
        let byte = u64::from(block.get_u8());
        value += (byte & 127) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    Err(DecodeError)
}

/// A text with its length, the bit above the length says whether it is coded.
fn text(block: &mut Bytes, prefix_bits: u32) -> Result<Bytes, DecodeError> {
    let coded = block.first().is_some_and(|first| first & (1 << prefix_bits) != 0);
    let length = usize::try_from(integer(block, prefix_bits)?).map_err(|_| DecodeError)?;
    if length > block.len() {
        return Err(DecodeError);
    }
    let bytes = block.split_to(length);
    match coded {
        true => huffman::decode(&bytes).map(Bytes::from).ok_or(DecodeError),
        false => Ok(bytes),
    }
}

/// Appends the head of an answer.
pub(super) fn write_head(out: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap) {
    out.extend_from_slice(&[0, 0]);
    write_field(out, ":status", status.as_str().as_bytes());
    write_fields(out, headers);
}

/// Appends trailers.
pub(super) fn write_trailers(out: &mut Vec<u8>, headers: &HeaderMap) {
    out.extend_from_slice(&[0, 0]);
    write_fields(out, headers);
}

fn write_fields(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        write_field(out, name.as_str(), value.as_bytes());
    }
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    match table::find(name, value) {
        Found::Both(number) => return write_integer(out, 0b1100_0000, 6, number),
        Found::Name(number) => write_integer(out, 0b0101_0000, 4, number),
        Found::Nothing => {
            write_integer(out, 0b0010_0000, 3, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
        }
    }
    write_integer(out, 0, 7, value.len() as u64);
    out.extend_from_slice(value);
}

fn write_integer(out: &mut Vec<u8>, first: u8, prefix_bits: u32, value: u64) {
    let full = (1_u64 << prefix_bits) - 1;
    if value < full {
        out.push(first | value as u8);
        return;
    }
    out.push(first | full as u8);
    let mut left = value - full;
    while left >= 128 {
        out.push((left % 128) as u8 | 128);
        left /= 128;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::{CONTENT_TYPE, DATE, HeaderName};

    fn read(block: &[u8]) -> Result<Vec<(String, String)>, DecodeError> {
        let mut fields = Fields::read(Bytes::copy_from_slice(block))?;
        let mut all = Vec::new();
        let string = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        while let Some((name, value)) = fields.next()? {
            all.push((string(name), string(value)));
        }
        Ok(all)
    }

    #[test]
    fn encoded_heads_decode_to_the_same_fields() {
        let long = "x".repeat(1000);
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT")),
            (HeaderName::from_static("x-long-name-of-ours"), HeaderValue::from_str(&long).unwrap()),
        ]);
        let mut block = Vec::new();
        write_head(&mut block, StatusCode::IM_A_TEAPOT, &headers);
        let expected = [
            (":status", "418"),
            ("content-type", "application/json"),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("x-long-name-of-ours", &long),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(&block).unwrap(), expected);
    }

    #[test]
    fn the_example_of_the_standard_is_read() {
        // RFC 9204 B.1: a literal with the name of a static entry.
        let block = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(read(block).unwrap(), [(":path".to_owned(), "/index.html".to_owned())]);
    }

    #[test]
    fn random_bytes_cause_no_panic() {
        let mut state = 1_u64;
        let mut random = || {
            // Knuth's; good enough to reach every branch.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        for _ in 0..20_000 {
            let length = usize::from(random() % 64);
            let block: Vec<u8> = [0, 0].into_iter().chain((0..length).map(|_| random())).collect();
            let mut fields = Fields::read(block.into()).unwrap();
            while let Ok(Some(_)) = fields.next() {}
        }
    }

    #[test]
    fn broken_blocks_are_refused() {
        let endless = [&[0, 0, 0x27][..], &[0xff; 12]].concat();
        for block in [
            &b""[..],
            b"\x00",
            b"\x02\x00",                     // needs an insertion
            b"\x00\x00\x80",                 // dynamic entry
            b"\x00\x00\x40\x00",             // dynamic name
            b"\x00\x00\x10",                 // behind the base
            b"\x00\x00\x00\x00",             // name behind the base
            b"\x00\x00\xff\x24",             // static entry 99
            b"\x00\x00\x51\x0b/in",          // short value
            b"\x00\x00\x51\x82\x00\x00\x00", // wrong code
            &endless,
        ] {
            assert_eq!(read(block), Err(DecodeError), "{block:?}");
        }
    }
}
