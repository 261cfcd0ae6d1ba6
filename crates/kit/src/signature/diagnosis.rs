//! Why a signature does not verify, in words that say what to do. Tries the mistakes that receivers
//! make: another header, another form, the secret in another encoding, a body that a framework has
//! parsed and written again, a clock that is wrong. For people and logs, never for a decision:
//! only [`Verifier::verify`] decides.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::mac::{Keyed, TAG_BYTES, tag_from_hex};
use super::scheme::{Resolved, STANDARD_HEADERS, TIMESTAMPED_HEADERS, Verifier};
use super::secret::{BASE64, PREFIX};
use super::verify::split_timestamped;
use super::verify::{Tag, agree, bounded, fresh, read_hex, read_plain, read_standard};
use super::{Family, Fault, Part, Scheme, Secret};
use crate::json::{self, Escapes, Layout, Spacing};

/// Larger bodies are not written in other layouts: each diagnosis hashes the body some 80 times.
pub const MAX_DIAGNOSED_BYTES: usize = 256 * 1024;
/// Headers of providers that a request may have instead of the expected one.
const OTHER_HEADERS: [&str; 7] = [
    "x-hub-signature-256",
    "x-hub-signature",
    "x-signature",
    "x-signature-256",
    "x-webhook-signature",
    "x-shopify-hmac-sha256",
    "signature",
];

/// What is wrong with a request, or that nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// The signature is right.
    Verified { family: Family },
    /// The signature is right, but the event was received before.
    Replayed,
    /// The expected header is not there. `found` is a header that looks like a signature.
    MissingHeader { part: Part, found: Option<String> },
    /// The header is there and cannot be read.
    MalformedHeader { part: Part, reason: &'static str },
    /// The header has a signature of another form than the one expected.
    OtherFamily { expected: Family, found: Family },
    /// The signature is right, but made long ago: an old request that was sent again, or the clock
    /// here is ahead.
    Stale { seconds: u64 },
    /// The signature is right, but made in the future: one of the clocks is wrong.
    Future { seconds: u64 },
    /// The sender's key and this one are the same secret in two encodings.
    SecretEncoding(SecretMistake),
    /// The body was parsed and written again, or changed in transit: it has the same value and
    /// other bytes. `original` describes the bytes that were signed.
    Reserialised { original: String },
    /// Nothing that was tried fits: another secret, or another body.
    WrongSecret { body_is_json: bool },
    /// There is no secret to verify with.
    NoSecret,
}

/// How two sides can read one secret differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretMistake {
    /// White space or a line end around it, as from a file.
    Whitespace,
    /// Quotes around it, as from an `.env` file.
    Quotes,
    /// `whsec_` is missing here.
    NoPrefix,
    /// The sender signs with the text, where its bytes are the key.
    TextAsKey,
    /// The sender signs with the decoded bytes, where the text is the key.
    BytesAsKey,
    /// The sender signs with the text behind `whsec_`.
    WithoutPrefix,
    /// It is base64 of the URL alphabet.
    UrlBase64,
    /// It is hex that the sender has decoded.
    HexDecoded,
}

impl Verifier {
    /// Why a request does not verify. Costs many times as much as [`Verifier::verify`], so limit
    /// how often strangers can cause it.
    pub fn diagnose<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h [u8]>,
        body: &[u8],
        now_seconds: i64,
    ) -> Diagnosis {
        let (scheme, tolerance, secrets) = self.parts();
        let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        diagnose(scheme, &secrets, header, body, now_seconds, tolerance)
    }
}

/// The same for secrets as somebody has typed them, which may be no secrets at all.
///
/// ```
/// use restive_kit::signature::{Diagnosis, Scheme, Secret, Signer, diagnose, verify};
///
/// let secret = Secret::from_bytes([7; 24]);
/// let header = Signer::new(&secret, None).timestamped(1_760_000_000, br#"{"a":1}"#);
/// let headers = |name: &str| (name == "stripe-signature").then_some(header.as_bytes());
/// let parsed_and_written_again = br#"{"a": 1}"#;
/// let (scheme, secrets) = (Scheme::stripe(), [secret.expose()]);
/// let found = diagnose(
///     &scheme, &secrets, headers, parsed_and_written_again, 1_760_000_000, verify::TOLERANCE,
/// );
/// assert!(matches!(found, Diagnosis::Reserialised { .. }));
/// ```
pub fn diagnose<'h>(
    scheme: &Scheme,
    secrets: &[&str],
    header: impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
    now_seconds: i64,
    tolerance: Duration,
) -> Diagnosis {
    if secrets.iter().all(|secret| secret.is_empty()) {
        return Diagnosis::NoSecret;
    }
    let resolved = match scheme.resolve(&header) {
        Ok(resolved) => resolved,
        Err(_) => return missing(Part::Signature, &header),
    };
    let claim = match Claim::read(resolved, &header) {
        Ok(claim) => claim,
        Err(Fault::Missing(part)) => return missing(part, &header),
        Err(Fault::Malformed { part, reason }) => {
            return malformed(resolved, part, reason, &header);
        }
        Err(Fault::TooLong(part)) => {
            return Diagnosis::MalformedHeader { part, reason: "is too long" };
        }
        Err(_) => return Diagnosis::WrongSecret { body_is_json: false },
    };
    if secrets.iter().any(|secret| claim.fits(&claim.key(secret), body)) {
        let fresh = claim.seconds.map_or(Ok(()), |at| fresh(at, now_seconds, tolerance));
        return match fresh {
            Ok(()) => Diagnosis::Verified { family: claim.family },
            Err(Fault::TooOld { skew_seconds }) => Diagnosis::Stale { seconds: skew_seconds },
            Err(Fault::TooNew { skew_seconds }) => Diagnosis::Future { seconds: skew_seconds },
            Err(_) => Diagnosis::MalformedHeader {
                part: Part::Timestamp,
                reason: "is not a number of seconds",
            },
        };
    }
    let mistakes = secrets.iter().find_map(|secret| secret_mistake(&claim, secret, body));
    if let Some(mistake) = mistakes {
        return Diagnosis::SecretEncoding(mistake);
    }
    if let Some(original) = original_body(&claim, secrets, body) {
        return Diagnosis::Reserialised { original };
    }
    let text = std::str::from_utf8(body).ok();
    let body_is_json = text.is_some_and(|text| json::parse(text).is_ok());
    Diagnosis::WrongSecret { body_is_json }
}

/// What a header claims: that a key gives these tags for this text before the body.
struct Claim<'h> {
    family: Family,
    before: Vec<u8>,
    tags: Vec<Tag>,
    seconds: Option<&'h [u8]>,
}

impl<'h> Claim<'h> {
    fn read(
        scheme: Resolved<'_>,
        header: &impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<Claim<'h>, Fault> {
        let family = scheme.family();
        Ok(match scheme {
            Resolved::Timestamped(name) => {
                let (seconds, tags) = split_timestamped(bounded(Part::Signature, header(name))?)?;
                let before = [seconds, b"."].concat();
                Claim { family, before, tags, seconds: Some(seconds) }
            }
            Resolved::Standard(names) => {
                let (id, seconds, tags) = read_standard(names.of(header))?;
                let before = [id, b".", seconds, b"."].concat();
                Claim { family, before, tags, seconds: Some(seconds) }
            }
            Resolved::Plain(name) => {
                let tag = read_plain(bounded(Part::Signature, header(name))?)?;
                Claim { family, before: Vec::new(), tags: vec![tag], seconds: None }
            }
            Resolved::Hex(name) => {
                let tag = read_hex(bounded(Part::Signature, header(name))?)?;
                Claim { family, before: Vec::new(), tags: vec![tag], seconds: None }
            }
        })
    }

    /// The key that this family makes of a secret.
    fn key(&self, secret: &str) -> Vec<u8> {
        match self.family {
            Family::Standard => Secret::parse(secret)
                .map_or_else(|_| secret.as_bytes().to_vec(), |secret| secret.bytes().to_vec()),
            _ => secret.as_bytes().to_vec(),
        }
    }

    fn fits(&self, key: &[u8], body: &[u8]) -> bool {
        let keys = std::iter::once(Keyed::new(key));
        agree(keys, &[&self.before, body], &self.tags).is_ok()
    }
}

fn missing<'h>(part: Part, header: &impl Fn(&str) -> Option<&'h [u8]>) -> Diagnosis {
    let standard = STANDARD_HEADERS.iter().map(|names| names.signature);
    let mut known = TIMESTAMPED_HEADERS.into_iter().chain(standard).chain(OTHER_HEADERS);
    let found = known.find(|name| header(name).is_some());
    let found = found.filter(|_| part == Part::Signature);
    Diagnosis::MissingHeader { part, found: found.map(str::to_owned) }
}

fn malformed<'h>(
    scheme: Resolved<'_>,
    part: Part,
    reason: &'static str,
    header: &impl Fn(&str) -> Option<&'h [u8]>,
) -> Diagnosis {
    let name = match scheme {
        Resolved::Timestamped(name) | Resolved::Plain(name) | Resolved::Hex(name) => name,
        Resolved::Standard(names) => names.signature,
    };
    let expected = scheme.family();
    match header(name).and_then(shape).filter(|found| *found != expected) {
        Some(found) if part == Part::Signature => Diagnosis::OtherFamily { expected, found },
        _ => Diagnosis::MalformedHeader { part, reason },
    }
}

/// The form that a value has.
fn shape(value: &[u8]) -> Option<Family> {
    let base64 = |value: &[u8]| {
        let item = value.strip_prefix(b"v1,").or(value.strip_prefix(b"v1a,"))?;
        let item = item.split(|byte| *byte == b' ').next()?;
        BASE64.decode(item).ok()
    };
    if split_timestamped(value).is_ok() {
        return Some(Family::Timestamped);
    }
    if base64(value).is_some() {
        return Some(Family::Standard);
    }
    if read_plain(value).is_ok() {
        return Some(Family::Plain);
    }
    (value.len() == 2 * TAG_BYTES && tag_from_hex(value).is_some()).then_some(Family::Hex)
}

/// Whether another reading of the secret fits.
fn secret_mistake(claim: &Claim<'_>, secret: &str, body: &[u8]) -> Option<SecretMistake> {
    let trimmed = secret.trim();
    let unquoted = trimmed.trim_matches(['"', '\'', '`']);
    for (text, mistake) in [(trimmed, SecretMistake::Whitespace), (unquoted, SecretMistake::Quotes)]
    {
        if text != secret && claim.fits(&claim.key(text), body) {
            return Some(mistake);
        }
    }
    let behind = unquoted.strip_prefix(PREFIX);
    let encoded = behind.unwrap_or(unquoted);
    let prefixed = format!("{PREFIX}{encoded}");
    let decoded = BASE64.decode(encoded).ok();
    let url = URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok();
    let text_is_key = claim.family != Family::Standard;
    let candidates = [
        (behind.is_none().then(|| claim.key(&prefixed)), SecretMistake::NoPrefix),
        // A secret without the prefix that is too short for a `whsec_` one.
        (decoded.clone().filter(|_| behind.is_none() && !text_is_key), SecretMistake::NoPrefix),
        (decoded.filter(|_| text_is_key), SecretMistake::BytesAsKey),
        ((!text_is_key).then(|| unquoted.as_bytes().to_vec()), SecretMistake::TextAsKey),
        ((!text_is_key).then(|| prefixed.clone().into_bytes()), SecretMistake::TextAsKey),
        (behind.map(|behind| behind.as_bytes().to_vec()), SecretMistake::WithoutPrefix),
        (url, SecretMistake::UrlBase64),
        (from_hex(encoded), SecretMistake::HexDecoded),
    ];
    let fitting = |key: &Option<Vec<u8>>| key.as_ref().is_some_and(|key| claim.fits(key, body));
    candidates.into_iter().find(|(key, _)| fitting(key)).map(|(_, mistake)| mistake)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Other bytes of the same body that fit.
fn original_body(claim: &Claim<'_>, secrets: &[&str], body: &[u8]) -> Option<String> {
    if body.len() > MAX_DIAGNOSED_BYTES {
        return None;
    }
    let keys: Vec<Vec<u8>> = secrets.iter().map(|secret| claim.key(secret)).collect();
    let fits = |body: &[u8]| keys.iter().any(|key| claim.fits(key, body));
    let text = std::str::from_utf8(body).ok()?;
    let stripped = text.trim_end_matches(['\n', '\r']);
    let byte_changes = [
        (stripped.to_owned(), "the same without the line end at the end"),
        (format!("{text}\n"), "the same with a line end at the end"),
        (format!("{text}\r\n"), "the same with a line end (CR LF) at the end"),
        (text.replace("\r\n", "\n"), "the same with LF instead of CR LF"),
        (text.replace("\r\n", "\n").replace('\n', "\r\n"), "the same with CR LF instead of LF"),
        (text.trim_start_matches('\u{FEFF}').to_owned(), "the same without a byte order mark"),
        (text.trim().to_owned(), "the same without white space around it"),
        (String::new(), "an empty body"),
    ];
    for (candidate, change) in byte_changes {
        if candidate != text && fits(candidate.as_bytes()) {
            return Some(change.to_owned());
        }
    }
    let document = json::parse(text.trim_start_matches('\u{FEFF}')).ok()?;
    let mut written = Layout::texts(&document);
    let (found, _) = written.find(|(_, text)| fits(text.as_bytes()))?;
    Some(describe(&found))
}

fn describe(layout: &Layout) -> String {
    let mut parts = vec![match layout.spacing {
        Spacing::Compact => "JSON without spaces",
        Spacing::Spaced => "JSON with a space after each comma and colon",
        Spacing::Pretty(2) => "JSON with one member per line, indented by 2",
        Spacing::Pretty(_) => "JSON with one member per line, indented by 4",
    }];
    if layout.sorted {
        parts.push("its members sorted by name");
    }
    match layout.escapes {
        Escapes::Least => {}
        Escapes::Ascii => parts.push("\\u escapes for all but ASCII"),
        Escapes::AsciiAndSlashes => parts.push("\\u escapes for all but ASCII and \\/ for /"),
        Escapes::Html => parts.push("\\u escapes for <, > and &"),
    }
    if layout.newline {
        parts.push("a line end at the end");
    }
    parts.join(", ")
}

impl Diagnosis {
    pub fn is_verified(&self) -> bool {
        matches!(self, Self::Verified { .. })
    }

    /// A name for programs. These never change.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Verified { .. } => "verified",
            Self::Replayed => "replayed",
            Self::MissingHeader { .. } => "missing_header",
            Self::MalformedHeader { .. } => "malformed_header",
            Self::OtherFamily { .. } => "other_family",
            Self::Stale { .. } => "stale",
            Self::Future { .. } => "future",
            Self::SecretEncoding(_) => "secret_encoding",
            Self::Reserialised { .. } => "body_reserialised",
            Self::WrongSecret { .. } => "wrong_secret",
            Self::NoSecret => "no_secret",
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Verified { .. } => "Nothing is to be done.",
            Self::Replayed => "Answer 200 and do nothing: the event was processed.",
            Self::MissingHeader { found: Some(_), .. } => {
                "Verify the header that is there, or have the provider send the expected one."
            }
            Self::MissingHeader { found: None, .. } => {
                "Check that the request is a webhook and that no proxy removes its headers."
            }
            Self::MalformedHeader { .. } => {
                "Pass the value of the header as it came: whole, unquoted and not decoded."
            }
            Self::OtherFamily { .. } => "Verify with the form that the provider sends.",
            Self::Stale { .. } => {
                "If the clock here is right (compare it with NTP), refuse the request: it was \
                 recorded and sent again, or it waited in a queue in front of the verification."
            }
            Self::Future { .. } => "Set the clocks of both sides by NTP.",
            Self::SecretEncoding(mistake) => mistake.advice(),
            Self::Reserialised { .. } => {
                "Verify the bytes of the body as they came, before any middleware parses them \
                 (express.raw(), request.get_data(), axum's Bytes)."
            }
            Self::WrongSecret { body_is_json: true } => {
                "Check the secret: each endpoint has its own, test and live mode differ, and a \
                 rotated secret ends with its overlap. If it is right, the body was changed."
            }
            Self::WrongSecret { body_is_json: false } => {
                "Check the secret, and that the body is the whole body as it came: this one is \
                 not JSON. It may be cut off, compressed or decoded."
            }
            Self::NoSecret => "Give the secret of the endpoint, whsec_….",
        }
    }
}

impl SecretMistake {
    fn advice(self) -> &'static str {
        match self {
            Self::Whitespace => "Remove white space and line ends around the secret.",
            Self::Quotes => "Remove the quotes around the secret.",
            Self::NoPrefix => "Use the whole secret with whsec_.",
            Self::TextAsKey => {
                "The sender uses the text of the secret as the key: use a raw secret for it."
            }
            Self::BytesAsKey => {
                "The sender signs with the bytes behind whsec_, decoded from base64: decode it."
            }
            Self::WithoutPrefix => "The sender signs with the secret without whsec_: remove it.",
            Self::UrlBase64 => {
                "The secret is base64 of the URL alphabet: replace - by + and _ by /."
            }
            Self::HexDecoded => "The sender decodes the secret from hex: decode it here, too.",
        }
    }
}

impl fmt::Display for SecretMistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Whitespace => "the secret has white space around it",
            Self::Quotes => "the secret has quotes around it",
            Self::NoPrefix => "the secret lacks whsec_ at its beginning",
            Self::TextAsKey => "the sender signs with the text of the secret, not with its bytes",
            Self::BytesAsKey => "the sender signs with the decoded bytes of the secret",
            Self::WithoutPrefix => "the sender signs with the secret without whsec_",
            Self::UrlBase64 => "the sender decodes the secret from base64 of the URL alphabet",
            Self::HexDecoded => "the sender decodes the secret from hex",
        })
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verified { family } => write!(out, "the signature is valid: {family}"),
            Self::Replayed => write!(out, "the signature is valid, and the event is known"),
            Self::MissingHeader { part, found: None } => {
                write!(out, "the {part} header is missing")
            }
            Self::MissingHeader { part, found: Some(found) } => {
                write!(out, "the {part} header is missing; the request has {found} instead")
            }
            Self::MalformedHeader { part, reason } => write!(out, "the {part} {reason}"),
            Self::OtherFamily { expected, found } => {
                write!(out, "the header has {found}, and {expected} is expected")
            }
            Self::Stale { seconds } => write!(
                out,
                "the signature is right, but was made {seconds} s ago by the clock here: a replay, \
                 or this clock is ahead"
            ),
            Self::Future { seconds } => write!(
                out,
                "the signature is right, but was made {seconds} s in the future by the clock \
                 here: one of the clocks is wrong"
            ),
            Self::SecretEncoding(mistake) => write!(out, "{mistake}"),
            Self::Reserialised { original } => write!(
                out,
                "the body was changed in its bytes, not in its value. The signed body was \
                 {original}"
            ),
            Self::WrongSecret { .. } => {
                write!(out, "no signature fits: the secret or the body is another one")
            }
            Self::NoSecret => write!(out, "there is no secret"),
        }
    }
}
