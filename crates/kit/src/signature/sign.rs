//! Signing, for the sender. A signer is made once per set of secrets and kept; a signature then
//! costs the hashing of the message and one string.

use std::fmt;
use std::io::Write;

use base64::Engine;

use super::Secret;
use super::mac::{Keyed, TAG_BYTES, push_hex};
use super::secret::BASE64;

/// The secrets in force. During rotations there are several, and every signature is given for each,
/// so that receivers with any of them agree.
#[derive(Clone)]
pub struct Signer {
    newest: Keys,
    older: Box<[Keys]>,
}

/// One secret, ready for each family.
#[derive(Clone)]
struct Keys {
    text: Keyed,
    bytes: Keyed,
}

impl Signer {
    /// `older` secrets follow the newest, in their order; `[]` or `None` when there are none.
    pub fn new<'a>(newest: &Secret, older: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self { newest: Keys::new(newest), older: older.into_iter().map(Keys::new).collect() }
    }

    /// `t=<seconds>,v1=<hex>`, with one `v1` per secret. No space after a comma: Stripe's
    /// libraries would not find what follows it.
    pub fn timestamped(&self, unix_seconds: i64, body: &[u8]) -> String {
        let seconds = Decimal::new(unix_seconds);
        let each = ",v1=".len() + 2 * TAG_BYTES;
        let mut out = String::with_capacity(2 + Decimal::MAX + each * self.count());
        out.push_str("t=");
        out.push_str(seconds.text());
        for keys in self.all() {
            out.push_str(",v1=");
            push_hex(&mut out, &keys.text.tag(&[seconds.text().as_bytes(), b".", body]));
        }
        out
    }

    /// `v1,<base64>`, one per secret with spaces between. `id` must not contain a dot, since dots
    /// part the signed text; it stays the same when a message is sent again, the time does not.
    pub fn standard(&self, id: &str, unix_seconds: i64, body: &[u8]) -> String {
        debug_assert!(!id.contains('.'), "an id with a dot makes the signed text ambiguous");
        let seconds = Decimal::new(unix_seconds);
        let each = " v1,".len() + TAG_BYTES.div_ceil(3) * 4;
        let mut out = String::with_capacity(each * self.count());
        for keys in self.all() {
            out.push_str(if out.is_empty() { "v1," } else { " v1," });
            let parts = [id.as_bytes(), b".", seconds.text().as_bytes(), b".", body];
            BASE64.encode_string(keys.bytes.tag(&parts), &mut out);
        }
        out
    }

    /// `sha256=<hex>`, by the newest secret alone: the form has room for one.
    pub fn plain(&self, body: &[u8]) -> String {
        let mut out = String::with_capacity("sha256=".len() + 2 * TAG_BYTES);
        out.push_str("sha256=");
        push_hex(&mut out, &self.newest.text.tag(&[body]));
        out
    }

    fn all(&self) -> impl Iterator<Item = &Keys> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    fn count(&self) -> usize {
        1 + self.older.len()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Signer({} secrets)", self.count())
    }
}

impl Keys {
    fn new(secret: &Secret) -> Self {
        let text = Keyed::new(secret.expose().as_bytes());
        Self { text, bytes: Keyed::new(secret.bytes()) }
    }
}

/// A number as text, off the heap.
struct Decimal {
    digits: [u8; Self::MAX],
    length: usize,
}

impl Decimal {
    /// The longest number is i64::MIN: a sign and 19 digits.
    const MAX: usize = 20;

    fn new(number: i64) -> Self {
        let mut digits = [0; Self::MAX];
        let mut rest = &mut digits[..];
        write!(rest, "{number}").expect("every i64 fits in 20 letters");
        let length = Self::MAX - rest.len();
        Self { digits, length }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[..self.length]).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_rust_writes_them() {
        for number in [0, 1, -1, 1_760_000_000, i64::MAX, i64::MIN] {
            assert_eq!(Decimal::new(number).text(), number.to_string());
        }
    }

    #[test]
    fn a_signature_never_outgrows_the_string_made_for_it() {
        let secrets = [1, 2, 3].map(|byte| Secret::from_bytes([byte; 24]));
        let signer = Signer::new(&secrets[0], &secrets[1..]);
        let each = 4 + 64;
        assert!(signer.timestamped(i64::MIN, b"").capacity() <= 2 + 20 + 3 * each);
        assert!(signer.standard("evt_1", i64::MIN, b"").capacity() <= 3 * (4 + 44));
        assert!(signer.plain(b"").capacity() <= 7 + 64);
    }

    #[test]
    fn debug_shows_no_key() {
        let signer = Signer::new(&Secret::from_bytes([7; 24]), None);
        assert_eq!(format!("{signer:?}"), "Signer(1 secrets)");
    }
}
