//! Verifies requests of one provider: which form of signature it uses, in which headers, with which
//! secrets. Keys are prepared once. Reads no clock.

use std::fmt;
use std::time::Duration;

use super::Secret;
use super::mac::Keyed;
use super::verify::{
    Fault, Part, StandardHeaders, TOLERANCE, agree, bounded, fresh, read_hex, read_plain,
    read_standard, split_timestamped,
};

/// Headers with a timestamped signature that [`Scheme::Detect`] looks for.
pub(super) const TIMESTAMPED_HEADERS: [&str; 2] = ["restive-signature", "stripe-signature"];
/// The headers of Standard Webhooks; Svix had its own before.
pub(super) const STANDARD_HEADERS: [StandardNames<'static>; 2] = [
    StandardNames {
        id: "webhook-id",
        timestamp: "webhook-timestamp",
        signature: "webhook-signature",
    },
    StandardNames { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" },
];

/// The names of three headers, in lower case.
#[derive(Clone, Copy, Debug)]
pub(super) struct StandardNames<'a> {
    pub id: &'a str,
    pub timestamp: &'a str,
    pub signature: &'a str,
}

/// A form of signature and its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// By the headers of the request: Standard Webhooks (`webhook-…`, `svix-…`), otherwise
    /// `Restive-Signature` or `Stripe-Signature`. Forms without a time are not accepted, since an
    /// attacker could choose them to send an old request again.
    Detect,
    /// `t=<seconds>,v1=<hex>` in this header.
    Timestamped { header: String },
    /// `v1,<base64>` in the header `signature`, with headers for the id and the time.
    Standard { id: String, timestamp: String, signature: String },
    /// `sha256=<hex>` in this header.
    Plain { header: String },
    /// `<hex>` in this header.
    Hex { header: String },
}

impl Scheme {
    /// `Stripe-Signature`.
    pub fn stripe() -> Self {
        Self::timestamped("stripe-signature")
    }

    /// `Restive-Signature`.
    pub fn restive() -> Self {
        Self::timestamped("restive-signature")
    }

    /// `t=<seconds>,v1=<hex>` in a header of this name.
    pub fn timestamped(header: &str) -> Self {
        Self::Timestamped { header: header.to_ascii_lowercase() }
    }

    /// `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    pub fn standard() -> Self {
        Self::standard_named("webhook")
    }

    /// The same with another beginning, such as `svix`.
    pub fn standard_named(prefix: &str) -> Self {
        let name = |part: &str| format!("{}-{part}", prefix.to_ascii_lowercase());
        Self::Standard {
            id: name("id"),
            timestamp: name("timestamp"),
            signature: name("signature"),
        }
    }

    /// `X-Hub-Signature-256`.
    pub fn github() -> Self {
        Self::plain("x-hub-signature-256")
    }

    /// `sha256=<hex>` in a header of this name.
    pub fn plain(header: &str) -> Self {
        Self::Plain { header: header.to_ascii_lowercase() }
    }

    /// The hex digest of the body in a header of this name.
    pub fn hex(header: &str) -> Self {
        Self::Hex { header: header.to_ascii_lowercase() }
    }

    /// The scheme for a request with these headers: that of `Detect` is found.
    pub(super) fn resolve<'h>(
        &self,
        header: &impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<Resolved<'_>, Fault> {
        Ok(match self {
            Self::Timestamped { header } => Resolved::Timestamped(header),
            Self::Standard { id, timestamp, signature } => {
                Resolved::Standard(StandardNames { id, timestamp, signature })
            }
            Self::Plain { header } => Resolved::Plain(header),
            Self::Hex { header } => Resolved::Hex(header),
            Self::Detect => {
                let has = |names: &&StandardNames<'_>| header(names.signature).is_some();
                if let Some(names) = STANDARD_HEADERS.iter().find(has) {
                    return Ok(Resolved::Standard(*names));
                }
                let found = TIMESTAMPED_HEADERS.iter().find(|name| header(name).is_some());
                Resolved::Timestamped(found.ok_or(Fault::Missing(Part::Signature))?)
            }
        })
    }
}

/// A scheme with its headers, for one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resolved<'a> {
    Timestamped(&'a str),
    Standard(StandardNames<'a>),
    Plain(&'a str),
    Hex(&'a str),
}

impl Resolved<'_> {
    pub fn family(self) -> Family {
        match self {
            Self::Timestamped(_) => Family::Timestamped,
            Self::Standard(_) => Family::Standard,
            Self::Plain(_) => Family::Plain,
            Self::Hex(_) => Family::Hex,
        }
    }
}

/// The forms of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Stripe, restive.
    Timestamped,
    /// Standard Webhooks, Svix.
    Standard,
    /// GitHub.
    Plain,
    /// A bare digest.
    Hex,
}

impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Timestamped => "Stripe's form (t=…,v1=…)",
            Self::Standard => "Standard Webhooks (v1,…)",
            Self::Plain => "GitHub's form (sha256=…)",
            Self::Hex => "a bare hex digest",
        })
    }
}

/// Verifies the requests of one provider.
///
/// ```
/// use restive_kit::signature::{Scheme, Secret, Signer, Verifier};
///
/// let secret = Secret::parse("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=")?;
/// let body = br#"{"id":"evt_01","object":"event"}"#;
/// let now = 1_760_000_000;
/// let signature = Signer::new(&secret, None).timestamped(now, body);
///
/// let verifier = Verifier::new(Scheme::stripe(), [secret]);
/// let headers = |name: &str| (name == "stripe-signature").then_some(signature.as_bytes());
/// assert!(verifier.verify(headers, body, now).is_ok());
/// assert!(verifier.verify(headers, b"{}", now).is_err());
/// # Ok::<(), restive_kit::signature::SecretError>(())
/// ```
#[derive(Clone)]
pub struct Verifier {
    scheme: Scheme,
    tolerance: Duration,
    secrets: Vec<Secret>,
    texts: Vec<Keyed>,
    bytes: Vec<Keyed>,
}

/// What a valid signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified<'h> {
    pub family: Family,
    /// The id that Standard Webhooks sign with the body.
    pub message_id: Option<&'h [u8]>,
}

impl Verifier {
    /// Accepts signatures of any of the secrets: during a rotation there are two.
    pub fn new(scheme: Scheme, secrets: impl IntoIterator<Item = Secret>) -> Self {
        let secrets: Vec<Secret> = secrets.into_iter().filter(|one| !one.is_empty()).collect();
        let texts = secrets.iter().map(|secret| Keyed::new(secret.expose().as_bytes())).collect();
        let bytes = secrets.iter().map(|secret| Keyed::new(secret.bytes())).collect();
        Self { scheme, tolerance: TOLERANCE, secrets, texts, bytes }
    }

    /// How far a timestamp may be off, either way; five minutes unless set.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Verifies the bytes of a body as they came. `header` returns the value of a header by its
    /// name in lower case.
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h [u8]>,
        body: &[u8],
        now_seconds: i64,
    ) -> Result<Verified<'h>, Fault> {
        let scheme = self.scheme.resolve(&header)?;
        let family = scheme.family();
        let mut message_id = None;
        match scheme {
            Resolved::Timestamped(name) => {
                let value = bounded(Part::Signature, header(name))?;
                let (seconds, tags) = split_timestamped(value)?;
                fresh(seconds, now_seconds, self.tolerance)?;
                agree(self.texts.iter(), &[seconds, b".", body], &tags)?;
            }
            Resolved::Standard(names) => {
                let (id, seconds, tags) = read_standard(names.of(&header))?;
                fresh(seconds, now_seconds, self.tolerance)?;
                agree(self.bytes.iter(), &[id, b".", seconds, b".", body], &tags)?;
                message_id = Some(id);
            }
            Resolved::Plain(name) => {
                let tag = read_plain(bounded(Part::Signature, header(name))?)?;
                agree(self.texts.iter(), &[body], &[tag])?;
            }
            Resolved::Hex(name) => {
                let tag = read_hex(bounded(Part::Signature, header(name))?)?;
                agree(self.texts.iter(), &[body], &[tag])?;
            }
        }
        Ok(Verified { family, message_id })
    }

    /// The names of the headers that are read, in lower case: none of them may come twice.
    pub fn headers(&self) -> Vec<&str> {
        match &self.scheme {
            Scheme::Timestamped { header } | Scheme::Plain { header } | Scheme::Hex { header } => {
                vec![header]
            }
            Scheme::Standard { id, timestamp, signature } => vec![id, timestamp, signature],
            Scheme::Detect => {
                let standard = STANDARD_HEADERS.iter();
                let names = standard.flat_map(|names| [names.id, names.timestamp, names.signature]);
                names.chain(TIMESTAMPED_HEADERS).collect()
            }
        }
    }

    pub(super) fn parts(&self) -> (&Scheme, Duration, &[Secret]) {
        (&self.scheme, self.tolerance, &self.secrets)
    }
}

impl StandardNames<'_> {
    /// Their values in a request.
    pub fn of<'h>(self, header: &impl Fn(&str) -> Option<&'h [u8]>) -> StandardHeaders<'h> {
        StandardHeaders {
            id: header(self.id),
            timestamp: header(self.timestamp),
            signature: header(self.signature),
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Verifier({:?}, {} secrets)", self.scheme, self.secrets.len())
    }
}
