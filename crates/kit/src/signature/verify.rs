//! Verifying, for the receiver. Header values are bytes as they came; time is passed in. Whatever
//! the bytes are, the answer is a `Fault` and never a panic, and the work is bounded.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use base64::Engine;
use subtle::{Choice, ConstantTimeEq};

use super::Secret;
use super::mac::{Keyed, TAG_BYTES, tag_from_hex};
use super::secret::BASE64;

/// How far a timestamp may be off, either way, unless the receiver has reasons: what the libraries
/// of Stripe and Standard Webhooks allow.
pub const TOLERANCE: Duration = Duration::from_secs(300);
/// 16 signatures take some 1,200 bytes; a longer header is no signature.
pub const MAX_HEADER_BYTES: usize = 4096;
/// A rotation has two. Those beyond are not looked at.
pub const MAX_SIGNATURES: usize = 16;

/// `t=<seconds>,v1=<hex>[,v1=<hex>…]`. Other schemes than `v1` are ignored.
pub fn timestamped(
    secrets: &[Secret],
    header: Option<&[u8]>,
    body: &[u8],
    now_seconds: i64,
    tolerance: Duration,
) -> Result<(), Fault> {
    let (seconds, tags) = split_timestamped(bounded(Part::Signature, header)?)?;
    fresh(seconds, now_seconds, tolerance)?;
    agree(texts(secrets), &[seconds, b".", body], &tags)
}

/// The three headers of Standard Webhooks, as they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardHeaders<'a> {
    /// `webhook-id`
    pub id: Option<&'a [u8]>,
    /// `webhook-timestamp`
    pub timestamp: Option<&'a [u8]>,
    /// `webhook-signature`
    pub signature: Option<&'a [u8]>,
}

/// `v1,<base64>[ v1,<base64>…]` with id and time in headers of their own. Other versions beside
/// `v1` are passed over.
pub fn standard(
    secrets: &[Secret],
    headers: StandardHeaders<'_>,
    body: &[u8],
    now_seconds: i64,
    tolerance: Duration,
) -> Result<(), Fault> {
    let (id, seconds, tags) = read_standard(headers)?;
    fresh(seconds, now_seconds, tolerance)?;
    let keys = secrets.iter().map(|secret| Keyed::new(secret.bytes()));
    agree(keys, &[id, b".", seconds, b".", body], &tags)
}

/// `sha256=<hex>`. Says nothing of when the request was made.
pub fn plain(secrets: &[Secret], header: Option<&[u8]>, body: &[u8]) -> Result<(), Fault> {
    let tag = read_plain(bounded(Part::Signature, header)?)?;
    agree(texts(secrets), &[body], &[tag])
}

/// 64 hex digits alone. Says nothing of when the request was made.
pub fn hex(secrets: &[Secret], header: Option<&[u8]>, body: &[u8]) -> Result<(), Fault> {
    let tag = read_hex(bounded(Part::Signature, header)?)?;
    agree(texts(secrets), &[body], &[tag])
}

/// Why a request is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request has no such header.
    Missing(Part),
    /// Longer than `MAX_HEADER_BYTES`.
    TooLong(Part),
    Malformed {
        part: Part,
        reason: &'static str,
    },
    /// Signed that long ago: an old request sent again, or a slow clock there.
    TooOld {
        skew_seconds: u64,
    },
    /// Signed that far ahead: one of the two clocks is wrong.
    TooNew {
        skew_seconds: u64,
    },
    /// No signature fits the body and any of the secrets.
    NoMatch,
}

/// The header that a fault is about. In the timestamped form the timestamp is a part of the
/// signature header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Id,
    Timestamp,
    Signature,
}

impl Fault {
    pub(super) fn malformed(part: Part, reason: &'static str) -> Self {
        Self::Malformed { part, reason }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Id => "id",
            Self::Timestamp => "timestamp",
            Self::Signature => "signature",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(part) => write!(out, "the {part} header is missing"),
            Self::TooLong(part) => {
                write!(out, "the {part} header is longer than {MAX_HEADER_BYTES} bytes")
            }
            Self::Malformed { part, reason } => write!(out, "the {part} {reason}"),
            Self::TooOld { skew_seconds } => {
                write!(out, "the timestamp is too old, by the clock here {skew_seconds} s ago")
            }
            Self::TooNew { skew_seconds } => {
                write!(out, "the timestamp is too new, by the clock here {skew_seconds} s ahead")
            }
            Self::NoMatch => out.write_str("no signature fits the body and the secret"),
        }
    }
}

impl std::error::Error for Fault {}

pub(super) type Tag = [u8; TAG_BYTES];

/// The secrets as keys of the forms that sign with their text.
fn texts(secrets: &[Secret]) -> impl Iterator<Item = Keyed> {
    secrets.iter().map(|secret| Keyed::new(secret.expose().as_bytes()))
}

/// Id, seconds and signatures.
type StandardParts<'a> = (&'a [u8], &'a [u8], Vec<Tag>);

/// Id, seconds and signatures of the three headers.
pub(super) fn read_standard<'a>(headers: StandardHeaders<'a>) -> Result<StandardParts<'a>, Fault> {
    let id = bounded(Part::Id, headers.id)?;
    let seconds = bounded(Part::Timestamp, headers.timestamp)?;
    let signature = bounded(Part::Signature, headers.signature)?;
    if id.is_empty() || id.contains(&b'.') {
        // With a dot in it, id and time could be cut out of the same signed text elsewhere.
        return Err(Fault::malformed(Part::Id, "must have letters and no dot"));
    }
    Ok((id, seconds, split_standard(signature)?))
}

pub(super) fn read_plain(header: &[u8]) -> Result<Tag, Fault> {
    let hex = header.strip_prefix(b"sha256=");
    let tag = hex.and_then(tag_from_hex);
    tag.ok_or(Fault::malformed(Part::Signature, "is not sha256= and 64 hex digits"))
}

pub(super) fn read_hex(header: &[u8]) -> Result<Tag, Fault> {
    tag_from_hex(header).ok_or(Fault::malformed(Part::Signature, "is not 64 hex digits"))
}

pub(super) fn bounded(part: Part, header: Option<&[u8]>) -> Result<&[u8], Fault> {
    match header {
        None => Err(Fault::Missing(part)),
        Some(value) if value.len() > MAX_HEADER_BYTES => Err(Fault::TooLong(part)),
        Some(value) => Ok(value),
    }
}

pub(super) fn split_timestamped(header: &[u8]) -> Result<(&[u8], Vec<Tag>), Fault> {
    let malformed = |reason| Fault::malformed(Part::Signature, reason);
    let mut seconds = None;
    let mut tags = Vec::new();
    for item in header.split(|byte| *byte == b',') {
        let (scheme, value) = cut(item, b'=').ok_or(malformed("has an item without ="))?;
        match scheme {
            b"t" if seconds.replace(value).is_some() => return Err(malformed("has two times")),
            b"v1" if tags.len() < MAX_SIGNATURES => {
                let tag = tag_from_hex(value);
                tags.push(tag.ok_or(malformed("has a v1 that is not 64 hex digits"))?);
            }
            _ => {}
        }
    }
    let seconds = seconds.ok_or(malformed("has no t="))?;
    if tags.is_empty() {
        return Err(malformed("has no v1="));
    }
    Ok((seconds, tags))
}

fn split_standard(header: &[u8]) -> Result<Vec<Tag>, Fault> {
    let malformed = |reason| Fault::malformed(Part::Signature, reason);
    let mut tags = Vec::new();
    for item in header.split(|byte| *byte == b' ') {
        let (version, value) = cut(item, b',').ok_or(malformed("has an item without a comma"))?;
        if version == b"v1" && tags.len() < MAX_SIGNATURES {
            let tag = tag_from_base64(value);
            tags.push(tag.ok_or(malformed("has a v1 that is not 32 bytes in base64"))?);
        }
    }
    if tags.is_empty() {
        return Err(malformed("has no v1"));
    }
    Ok(tags)
}

/// What stands before and after the first `mark`.
fn cut(item: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = item.iter().position(|byte| *byte == mark)?;
    Some((&item[..at], &item[at + 1..]))
}

fn tag_from_base64(text: &[u8]) -> Option<Tag> {
    BASE64.decode(text).ok()?.try_into().ok()
}

/// Digits alone: the signed text has the very bytes of the header, and no sign or space in them.
pub(super) fn fresh(seconds: &[u8], now_seconds: i64, tolerance: Duration) -> Result<(), Fault> {
    let malformed = Fault::malformed(Part::Timestamp, "is not a number of seconds");
    if !seconds.iter().all(u8::is_ascii_digit) {
        return Err(malformed);
    }
    let text = std::str::from_utf8(seconds).map_err(|_| malformed)?;
    let signed_at: i64 = text.parse().map_err(|_| malformed)?;
    let skew_seconds = now_seconds.abs_diff(signed_at);
    match skew_seconds > tolerance.as_secs() {
        true if signed_at < now_seconds => Err(Fault::TooOld { skew_seconds }),
        true => Err(Fault::TooNew { skew_seconds }),
        false => Ok(()),
    }
}

/// Whether any of the tags is that of the signed text under any of the keys. All pairs are
/// compared to the end, so that the time does not reveal where they differ.
pub(super) fn agree<K: Borrow<Keyed>>(
    keys: impl Iterator<Item = K>,
    signed: &[&[u8]],
    tags: &[Tag],
) -> Result<(), Fault> {
    let mut found = Choice::from(0);
    for key in keys {
        let expected = key.borrow().tag(signed);
        for tag in tags {
            found |= expected[..].ct_eq(&tag[..]);
        }
    }
    if bool::from(found) { Ok(()) } else { Err(Fault::NoMatch) }
}
