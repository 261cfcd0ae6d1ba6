//! The secret that sender and receiver share: `whsec_` and base64. Its text and its bytes are both
//! keys, each of one family, so the text is kept as it was given.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

pub(super) const PREFIX: &str = "whsec_";
/// The bounds of the Standard Webhooks specification.
const MIN_BYTES: usize = 24;
const MAX_BYTES: usize = 64;
/// 64 bytes in base64. Longer text is refused before it is decoded.
const MAX_TEXT: usize = PREFIX.len() + 88;

/// The standard alphabet. Providers differ on padding, so it may be there or not.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A shared secret. Shown by `expose` only.
#[derive(Clone)]
pub struct Secret {
    text: String,
    bytes: Vec<u8>,
}

impl Secret {
    /// A new secret from random bytes. 24 of them need no `=`, which some files and shells mangle.
    pub fn from_bytes(bytes: [u8; 24]) -> Self {
        let text = format!("{PREFIX}{}", BASE64.encode(bytes));
        Self { text, bytes: bytes.to_vec() }
    }

    /// `whsec_` and 24 to 64 bytes in standard base64, padded or not.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        if text.len() > MAX_TEXT {
            return Err(SecretError::TooLong);
        }
        let bytes = BASE64.decode(encoded).map_err(|_| SecretError::Base64)?;
        match bytes.len() {
            0..MIN_BYTES => Err(SecretError::TooShort { bytes: bytes.len() }),
            MIN_BYTES..=MAX_BYTES => Ok(Self { text: text.to_owned(), bytes }),
            _ => Err(SecretError::TooLong),
        }
    }

    /// A secret of a provider that does not use `whsec_`, such as GitHub: any text, which is the
    /// key of every form as it is. Not checked; an empty text verifies nothing.
    pub fn from_text(text: &str) -> Self {
        Self { text: text.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    /// The whole text, `whsec_` included. Anyone who has it can sign.
    pub fn expose(&self) -> &str {
        &self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Published examples do not keep the bounds.
    #[cfg(test)]
    pub(super) fn of_example(text: &str) -> Self {
        let encoded = text.strip_prefix(PREFIX).unwrap_or_default();
        Self { text: text.to_owned(), bytes: BASE64.decode(encoded).unwrap() }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret({PREFIX}…)")
    }
}

/// Why a text is no secret. Never repeats the text: errors end up in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretError {
    Prefix,
    Base64,
    TooShort { bytes: usize },
    TooLong,
}

impl fmt::Display for SecretError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => write!(out, "the secret does not begin with {PREFIX}"),
            Self::Base64 => write!(out, "the secret is not standard base64 after {PREFIX}"),
            Self::TooShort { bytes } => {
                write!(out, "the secret has {bytes} bytes, at least {MIN_BYTES} are needed")
            }
            Self::TooLong => write!(out, "the secret has more than {MAX_BYTES} bytes"),
        }
    }
}

impl std::error::Error for SecretError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoded: &str, expected: Result<usize, SecretError>) {
        let text = format!("{PREFIX}{encoded}");
        let parsed = Secret::parse(&text);
        assert_eq!(parsed.map(|secret| secret.bytes.len()), expected, "{text}");
    }

    #[test]
    fn a_made_secret_reads_back_and_has_no_padding() {
        let secret = Secret::from_bytes([7; 24]);
        assert_eq!(secret.expose(), "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH");
        assert_eq!(Secret::parse(secret.expose()).unwrap().bytes(), [7; 24]);
    }

    #[test]
    fn padding_is_optional_and_the_text_stays_as_given() {
        for text in [
            "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA",
            "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=",
        ] {
            let text = format!("{PREFIX}{text}");
            let secret = Secret::parse(&text).unwrap();
            assert_eq!(secret.expose(), text);
            assert_eq!(secret.bytes().len(), 32);
        }
    }

    #[test]
    fn only_secrets_of_24_to_64_bytes_pass() {
        for (bytes, expected) in [
            (0, Err(SecretError::TooShort { bytes: 0 })),
            (23, Err(SecretError::TooShort { bytes: 23 })),
            (24, Ok(24)),
            (64, Ok(64)),
            (65, Err(SecretError::TooLong)),
            (66, Err(SecretError::TooLong)),
            (100_000, Err(SecretError::TooLong)),
        ] {
            check(&BASE64.encode(vec![b'k'; bytes]), expected);
        }
    }

    #[test]
    fn invalid_base64_is_reported() {
        let good = BASE64.encode([0xFB; 24]);
        check(&good, Ok(24));
        check(&good.replace('+', "-"), Err(SecretError::Base64));
        check(&format!("{good} "), Err(SecretError::Base64));
        check(&format!("{good}="), Err(SecretError::Base64));
        check("ключ", Err(SecretError::Base64));
        assert_eq!(Secret::parse(&good).unwrap_err(), SecretError::Prefix);
        assert_eq!(Secret::parse("").unwrap_err(), SecretError::Prefix);
        assert_eq!(Secret::parse("WHSEC_").unwrap_err(), SecretError::Prefix);
    }

    #[test]
    fn neither_debug_nor_an_error_shows_the_secret() {
        let secret = Secret::from_bytes([7; 24]);
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(whsec_…) Secret(whsec_…)");
        let error = Secret::parse("whsec_c2hvcnQ=").unwrap_err();
        assert_eq!(error.to_string(), "the secret has 5 bytes, at least 24 are needed");
        let error = Secret::parse("hunter2").unwrap_err();
        assert_eq!(error.to_string(), "the secret does not begin with whsec_");
    }
}
