//! Cursors: the sealed position at which a page ended. A fingerprint binds a cursor to its list
//! (scope, route, filters, order, version), and a MAC binds it to this database, so an altered or
//! foreign cursor is refused. It holds the values of the stored rows. It is never an authorisation:
//! every page checks the caller again.

use crate::query::Position;
use crate::record::Scalar;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Of the format. A cursor that an earlier release sealed is outdated.
const VERSION: u8 = 3;
/// Key number, for rotation: there is one key so far.
const KEY_ID: u8 = 1;
const MAC_BYTES: usize = 16;
/// Longer than any cursor over eight sort keys of text.
pub const MAX_CHARS: usize = 16_384;

/// Identifies one list: pages of another have another fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 8]);

impl Fingerprint {
    /// Parts are hashed with their lengths, so that no two lists of parts run together.
    pub fn of(parts: &[&[u8]]) -> Fingerprint {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash.finalize()[..8]);
        Fingerprint(bytes)
    }

    pub fn bytes(&self) -> [u8; 8] {
        self.0
    }
}

/// Why a cursor cannot be walked on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// This database did not seal it for this very list.
    Foreign,
    /// The rows have been rewritten since: its values are not theirs any more.
    Outdated,
}

/// `rewrites` says how often the rows have been rewritten.
pub fn seal(
    position: &Position,
    rewrites: i64,
    fingerprint: Fingerprint,
    key: &[u8; 32],
) -> String {
    let mut bytes = vec![VERSION, KEY_ID];
    bytes.extend_from_slice(&fingerprint.0);
    for number in [rewrites, position.number, position.snapshot] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for scalar in &position.keys {
        push_scalar(&mut bytes, scalar);
    }
    let mac = mac(&bytes, key);
    bytes.extend_from_slice(&mac);
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn open(
    text: &str,
    rewrites: i64,
    fingerprint: Fingerprint,
    key: &[u8; 32],
) -> Result<Position, Unusable> {
    match read(text, fingerprint, key).ok_or(Unusable::Foreign)? {
        Some((sealed, position)) if sealed == rewrites => Ok(position),
        _ => Err(Unusable::Outdated),
    }
}

/// How often the rows had been rewritten, and the position; the inner none if an earlier release
/// sealed it.
fn read(text: &str, list: Fingerprint, key: &[u8; 32]) -> Option<Option<(i64, Position)>> {
    if text.len() > MAX_CHARS {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (payload, sent_mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    if !bool::from(mac(payload, key).as_slice().ct_eq(sent_mac)) {
        return None;
    }
    let mut reader = Reader(payload);
    let format = reader.take(2)?;
    if reader.take(8)? != list.0 {
        return None;
    }
    if format != [VERSION, KEY_ID] {
        return Some(None);
    }
    let rewrites = reader.integer()?;
    let (number, snapshot) = (reader.integer()?, reader.integer()?);
    let mut keys = Vec::new();
    while !reader.0.is_empty() {
        keys.push(reader.scalar()?);
    }
    Some(Some((rewrites, Position { keys, number, snapshot })))
}

fn mac(bytes: &[u8], key: &[u8; 32]) -> [u8; MAC_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(bytes);
    let mut out = [0; MAC_BYTES];
    out.copy_from_slice(&mac.finalize().into_bytes()[..MAC_BYTES]);
    out
}

fn push_scalar(bytes: &mut Vec<u8>, scalar: &Scalar) {
    match scalar {
        Scalar::Null => bytes.push(0),
        Scalar::Integer(value) => {
            bytes.push(1);
            bytes.extend_from_slice(&value.to_be_bytes());
        }
        Scalar::Number(value) => {
            bytes.push(2);
            bytes.extend_from_slice(&value.to_bits().to_be_bytes());
        }
        Scalar::Text(text) => {
            bytes.push(3);
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn integer(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn scalar(&mut self) -> Option<Scalar> {
        Some(match self.take(1)?[0] {
            0 => Scalar::Null,
            1 => Scalar::Integer(self.integer()?),
            2 => Scalar::Number(f64::from_bits(self.integer()? as u64)),
            3 => {
                let length = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
                let text = self.take(usize::try_from(length).ok()?)?;
                Scalar::Text(std::str::from_utf8(text).ok()?.to_owned())
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> Position {
        Position {
            keys: vec![
                Scalar::Null,
                Scalar::Integer(-3),
                Scalar::Number(1.5),
                Scalar::Text("naïve".into()),
            ],
            number: 42,
            snapshot: 77,
        }
    }

    #[test]
    fn a_sealed_position_is_opened_unchanged() {
        let list = Fingerprint::of(&[b"books", b"sort"]);
        let text = seal(&position(), 5, list, &[9; 32]);
        assert_eq!(open(&text, 5, list, &[9; 32]), Ok(position()));
        assert_eq!(open(&text, 6, list, &[9; 32]), Err(Unusable::Outdated));
    }

    #[test]
    fn one_of_an_older_release_is_outdated() {
        let list = Fingerprint::of(&[b"books"]);
        let mut bytes = vec![VERSION - 1, KEY_ID];
        bytes.extend_from_slice(&list.0);
        bytes.extend_from_slice(&[0; 24]);
        let mac = mac(&bytes, &[9; 32]);
        bytes.extend_from_slice(&mac);
        let text = URL_SAFE_NO_PAD.encode(bytes);
        assert_eq!(open(&text, 0, list, &[9; 32]), Err(Unusable::Outdated));
    }

    #[test]
    fn altered_foreign_and_invented_cursors_are_noticed() {
        let list = Fingerprint::of(&[b"books", b"sort"]);
        let text = seal(&position(), 0, list, &[9; 32]);
        let open = |text: &str, list, key: u8| open(text, 0, list, &[key; 32]);
        let foreign = Err(Unusable::Foreign);
        assert_eq!(open(&text, list, 8), foreign, "another database");
        assert_eq!(open(&text, Fingerprint::of(&[b"bookss", b"ort"]), 9), foreign, "another list");
        for (place, _) in text.char_indices() {
            let mut altered = text.clone().into_bytes();
            altered[place] = if altered[place] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(altered).unwrap();
            // The last character carries unused bits: base64 itself refuses those.
            assert_eq!(open(&altered, list, 9), foreign, "place {place}");
        }
        for text in ["", "A", "AAAA", "not base64!", &"A".repeat(20_000)] {
            assert_eq!(open(text, list, 9), foreign);
        }
    }
}
