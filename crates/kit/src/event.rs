//! What a receiver needs to know of an event: its id, its type, and the version of the resource
//! that it is about. Reads the envelope of restive and Stripe; other providers may lack any of it.
//! Does no I/O.

use std::fmt;

use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

use crate::json::{self, Node};
use crate::signature::{Family, Verified};

/// Longer ids are refused: they are the key of an index.
pub const MAX_ID_BYTES: usize = 255;
/// Begin of an id that was made from the body.
const BODY_ID: &str = "sha256:";
/// The one member that differs between two deliveries of an event.
const VARYING: &str = "pending_webhooks";

/// An event, ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The same in every delivery of the event.
    pub id: String,
    /// `type` of the envelope.
    pub kind: Option<String>,
    /// Id of the resource that changed.
    pub resource: Option<String>,
    /// Which state of the resource the event has.
    pub revision: Option<Revision>,
    /// XXH3 of the body, without what may differ between deliveries. It tells two bodies of one
    /// provider apart, who signed both; it is no protection against one who looks for collisions.
    pub digest: [u8; 8],
    /// The bytes as they came.
    pub body: Vec<u8>,
}

/// A place in the history of a resource. Two are comparable if they were read from the same field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(String);

/// Why a body is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventFault {
    NotUtf8,
    NotJson { at_byte: usize, reason: &'static str },
    NotAnObject,
    NoId,
    IdTooLong,
}

impl Received {
    /// Reads the body of a request that was verified. Its id is the first of:
    ///
    /// 1. the id that Standard Webhooks sign with the body (`webhook-id`),
    /// 2. the member `id` of the body, if it is a text,
    /// 3. for signatures without a time (GitHub's form, bare hex) `sha256:` and the SHA-256 of the
    ///    body: an id in another header is not signed, so an old request could be sent again with
    ///    a new one.
    ///
    /// The first counts before the second, because the body of a third party may be a record with
    /// the id of that record. For restive both are the id of the event, as in `GET /v1/events`.
    pub fn verified(body: Vec<u8>, verified: &Verified<'_>) -> Result<Self, EventFault> {
        let message_id = verified.message_id.map(std::str::from_utf8).transpose();
        let message_id = message_id.map_err(|_| EventFault::NoId)?;
        let has_no_time = matches!(verified.family, Family::Plain | Family::Hex);
        Self::read_with(body, message_id, has_no_time)
    }

    /// Reads an event of another origin, such as a list. `id` counts before the member `id` of the
    /// body.
    pub fn read(body: Vec<u8>, id: Option<&str>) -> Result<Self, EventFault> {
        Self::read_with(body, id, false)
    }

    fn read_with(body: Vec<u8>, id: Option<&str>, or_body_id: bool) -> Result<Self, EventFault> {
        let text = std::str::from_utf8(&body).map_err(|_| EventFault::NotUtf8)?;
        let document = json::parse(text).map_err(|fault| EventFault::NotJson {
            at_byte: fault.at_byte,
            reason: fault.reason,
        })?;
        if !matches!(document, Node::Object(_)) {
            return Err(EventFault::NotAnObject);
        }
        let id = match id {
            Some(id) => Some(id.to_owned()),
            None => document.member("id").and_then(Node::text),
        };
        let id = id.filter(|id| !id.is_empty());
        let id = id.or_else(|| or_body_id.then(|| body_id(text))).ok_or(EventFault::NoId)?;
        if id.len() > MAX_ID_BYTES {
            return Err(EventFault::IdTooLong);
        }
        let object = document.member("data").and_then(|data| data.member("object"));
        let received = Self {
            id,
            kind: document.member("type").and_then(Node::text),
            resource: object.and_then(|object| object.member("id")).and_then(Node::text),
            revision: Revision::read(&document, object),
            digest: digest(text, &document),
            body: Vec::new(),
        };
        Ok(Self { body, ..received })
    }
}

impl Revision {
    /// The time of the change, as restive writes it: `version` and `updated` can be fields of such
    /// a resource that mean something else. Then what other providers have, from the most to the
    /// least precise; last the second of the event.
    fn read(document: &Node<'_>, object: Option<&Node<'_>>) -> Option<Self> {
        let of_object = |name: &str| object.and_then(|object| object.member(name));
        let number = |mark: char, node: Option<&Node<'_>>| {
            let number = node.and_then(Node::integer).filter(|number| *number >= 0)?;
            Some(Self(format!("{mark}{number:020}")))
        };
        let time = || {
            let time = of_object("updated_at").and_then(Node::text)?;
            // Without the Z, a time with fewer digits sorts before one with more.
            let time = time.strip_suffix('Z')?;
            Some(Self(format!("t{time}")))
        };
        time()
            .or_else(|| number('v', of_object("version")))
            .or_else(|| number('s', document.member("sequence")))
            .or_else(|| number('u', of_object("updated")))
            .or_else(|| number('u', of_object("updated_at")))
            .or_else(|| number('c', document.member("created")))
    }

    /// As it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a resource with the other revision has a newer state than this. False if they cannot
    /// be compared.
    pub fn is_before(&self, other: &str) -> bool {
        self.0.chars().next() == other.chars().next() && self.0.as_str() < other
    }

    #[cfg(feature = "inbox")]
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }
}

/// The id of an event that has none: equal bodies are one event.
fn body_id(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().fold(BODY_ID.to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

/// Everything but the number of pending deliveries.
fn digest(text: &str, document: &Node<'_>) -> [u8; 8] {
    let hash = match document.member(VARYING) {
        Some(Node::Bare(number)) => {
            // A part of the text, so the difference of their addresses is its place.
            let start = number.as_ptr() as usize - text.as_ptr() as usize;
            let before = XxHash3_64::oneshot(&text.as_bytes()[..start]);
            let after = &text.as_bytes()[start + number.len()..];
            XxHash3_64::oneshot_with_seed(before, after)
        }
        _ => XxHash3_64::oneshot(text.as_bytes()),
    };
    hash.to_be_bytes()
}

impl fmt::Display for EventFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => write!(out, "the body is not UTF-8"),
            Self::NotJson { at_byte, reason } => {
                write!(out, "the body is not JSON: {reason} (byte {at_byte})")
            }
            Self::NotAnObject => write!(out, "the body is JSON, but not an object"),
            Self::NoId => write!(
                out,
                "the event has no id, or two: neither a signed header nor \
                                       the member `id` names it"
            ),
            Self::IdTooLong => write!(out, "the id of the event exceeds {MAX_ID_BYTES} bytes"),
        }
    }
}

impl std::error::Error for EventFault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Received, EventFault> {
        Received::read(body.as_bytes().to_vec(), None)
    }

    #[test]
    fn the_members_of_an_envelope_are_read() {
        let event = read(
            r#"{"id":"evt_1","type":"book.updated","created":5,"pending_webhooks":2,
                "data":{"object":{"id":"book_1","updated_at":"2026-11-01T00:00:00.5Z"}}}"#,
        )
        .unwrap();
        assert_eq!(event.id, "evt_1");
        assert_eq!(event.kind.as_deref(), Some("book.updated"));
        assert_eq!(event.resource.as_deref(), Some("book_1"));
        assert_eq!(event.revision.unwrap().as_str(), "t2026-11-01T00:00:00.5");
    }

    #[test]
    fn a_signed_id_counts_before_that_of_the_body() {
        let body = br#"{"id":"user_1"}"#.to_vec();
        assert_eq!(Received::read(body, Some("msg_1")).unwrap().id, "msg_1");
    }

    #[test]
    fn what_is_no_event_is_refused_with_a_reason() {
        let not_utf8 = Received::read(vec![b'{', 0xFF, b'}'], None);
        assert_eq!(not_utf8, Err(EventFault::NotUtf8));
        assert!(matches!(read("{\"id\":"), Err(EventFault::NotJson { at_byte: 6, .. })));
        assert_eq!(read("[]"), Err(EventFault::NotAnObject));
        assert_eq!(read("\"evt_1\""), Err(EventFault::NotAnObject));
        for body in ["{}", r#"{"id":7}"#, r#"{"id":""}"#, r#"{"id":"a","id":"b"}"#] {
            assert_eq!(read(body), Err(EventFault::NoId), "{body}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(MAX_ID_BYTES + 1));
        assert_eq!(read(&long), Err(EventFault::IdTooLong));
    }

    #[test]
    fn deliveries_of_one_event_have_one_digest_and_others_do_not() {
        let digest = |body: &str| read(body).unwrap().digest;
        let one = digest(r#"{"id":"e","pending_webhooks":2,"a":1}"#);
        assert_eq!(one, digest(r#"{"id":"e","pending_webhooks":10,"a":1}"#));
        assert_ne!(one, digest(r#"{"id":"e","pending_webhooks":2,"a":2}"#));
    }

    #[test]
    fn revisions_of_one_kind_are_ordered() {
        let revision = |object: &str| {
            let body = format!(r#"{{"id":"e","created":7,"data":{{"object":{object}}}}}"#);
            read(&body).unwrap().revision.unwrap()
        };
        for (older, newer) in [
            (r#"{"version":9}"#, r#"{"version":10}"#),
            (r#"{"updated":9}"#, r#"{"updated":10}"#),
            (
                r#"{"updated_at":"2026-11-01T00:00:00Z"}"#,
                r#"{"updated_at":"2026-11-01T00:00:00.1Z"}"#,
            ),
        ] {
            assert!(revision(older).is_before(revision(newer).as_str()), "{older}");
            assert!(!revision(newer).is_before(revision(older).as_str()), "{older}");
            assert!(!revision(older).is_before(revision(older).as_str()), "{older}");
        }
        // `version` is a field of the resource, which has a time of change as well.
        let older = revision(r#"{"version":5,"updated_at":"2026-11-01T00:00:00.000Z"}"#);
        let newer = revision(r#"{"version":3,"updated_at":"2026-11-01T00:00:01.000Z"}"#);
        assert!(older.is_before(newer.as_str()) && !newer.is_before(older.as_str()));
        let (version, second) = (revision(r#"{"version":9}"#), revision("{}"));
        assert_eq!(second.as_str(), "c00000000000000000007");
        assert!(!version.is_before(second.as_str()) && !second.is_before(version.as_str()));
    }
}
