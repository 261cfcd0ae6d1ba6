//! Frames and numbers as they stand on a stream (RFC 9114 7, RFC 9000 16), and the codes in which
//! errors are told. No I/O.

use quinn::VarInt;

pub(super) const DATA: u64 = 0x0;
pub(super) const HEADERS: u64 = 0x1;
pub(super) const CANCEL_PUSH: u64 = 0x3;
pub(super) const SETTINGS: u64 = 0x4;
pub(super) const PUSH_PROMISE: u64 = 0x5;
pub(super) const GOAWAY: u64 = 0x7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;

/// The types of streams that go one way (RFC 9114 6.2, RFC 9204 4.2).
pub(super) const CONTROL_STREAM: u64 = 0x0;
pub(super) const PUSH_STREAM: u64 = 0x1;
pub(super) const ENCODER_STREAM: u64 = 0x2;
pub(super) const DECODER_STREAM: u64 = 0x3;

pub(super) const SETTING_MAX_FIELD_SECTION_SIZE: u64 = 0x6;
pub(super) const SETTING_ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// Beyond every request: what a first GOAWAY says (RFC 9114 5.2).
pub(super) const LAST_STREAM: u64 = (1 << 62) - 4;

/// The longest head of a frame: two numbers of eight bytes.
pub(super) const HEAD_BYTES: usize = 16;

pub(super) struct Code;

/// The names of the standard (RFC 9114 8.1, RFC 9204 6).
impl Code {
    pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0x100);
    pub(super) const INTERNAL_ERROR: VarInt = VarInt::from_u32(0x102);
    pub(super) const STREAM_CREATION_ERROR: VarInt = VarInt::from_u32(0x103);
    pub(super) const CLOSED_CRITICAL_STREAM: VarInt = VarInt::from_u32(0x104);
    pub(super) const FRAME_UNEXPECTED: VarInt = VarInt::from_u32(0x105);
    pub(super) const FRAME_ERROR: VarInt = VarInt::from_u32(0x106);
    pub(super) const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
    pub(super) const ID_ERROR: VarInt = VarInt::from_u32(0x108);
    pub(super) const SETTINGS_ERROR: VarInt = VarInt::from_u32(0x109);
    pub(super) const MISSING_SETTINGS: VarInt = VarInt::from_u32(0x10a);
    pub(super) const REQUEST_REJECTED: VarInt = VarInt::from_u32(0x10b);
    pub(super) const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10c);
    pub(super) const REQUEST_INCOMPLETE: VarInt = VarInt::from_u32(0x10d);
    pub(super) const MESSAGE_ERROR: VarInt = VarInt::from_u32(0x10e);
    pub(super) const DECOMPRESSION_FAILED: VarInt = VarInt::from_u32(0x200);
    pub(super) const ENCODER_STREAM_ERROR: VarInt = VarInt::from_u32(0x201);
    pub(super) const DECODER_STREAM_ERROR: VarInt = VarInt::from_u32(0x202);
}

/// The types that HTTP/2 had and nobody may use again (RFC 9114 7.2.8).
pub(super) fn is_reserved(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Whether the type is one of those the standard defines, and so has its place.
pub(super) fn is_known(kind: u64) -> bool {
    matches!(kind, DATA | HEADERS | CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY | MAX_PUSH_ID)
        || is_reserved(kind)
}

/// A number at the beginning of the bytes, and how many it takes.
pub(super) fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let start = u64::from(first & 0x3f);
    Some((rest.iter().fold(start, |value, byte| (value << 8) | u64::from(*byte)), length))
}

/// The type and the length of a frame, once all of both is there.
pub(super) fn head(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, taken) = number(bytes)?;
    let (length, _) = number(&bytes[taken..])?;
    Some((kind, length))
}

pub(super) fn write_number(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

pub(super) fn write_head(out: &mut Vec<u8>, kind: u64, length: u64) {
    write_number(out, kind);
    write_number(out, length);
}

/// Appends a HEADERS frame around what `fields` appends.
pub(super) fn write_headers(out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    out.push(HEADERS as u8);
    // Four bytes whatever the length is: it is known afterwards.
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    fields(out);
    let length = (out.len() - length_at - 4) as u32 | 0x8000_0000;
    out[length_at..][..4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_integers_decode_to_the_same_values() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, LAST_STREAM] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, value);
            assert_eq!(number(&bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(number(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn a_headers_frame_starts_with_its_length() {
        let mut bytes = Vec::new();
        write_headers(&mut bytes, |out| out.extend_from_slice(&[7; 300]));
        assert_eq!(head(&bytes), Some((HEADERS, 300)));
        assert_eq!(bytes.len(), 5 + 300);
    }
}
