//! What is sent: the headers of one attempt, signed now. Everything that stays the same for an
//! endpoint is made once. Does not know how it travels, nor what comes back.

use crate::prepared::Prepared;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use model::Timestamp;
use model::webhook::{Endpoint, endpoint};
use restive_kit::signature::{Secret, Signer};
use std::cmp::Reverse;
use std::time::Duration;
use wire::outgoing::Target;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("restive/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TIMESTAMPED: HeaderName = HeaderName::from_static("restive-signature");
const PLAIN: HeaderName = HeaderName::from_static("x-hub-signature-256");
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// An endpoint as a place to post to.
pub struct Post {
    /// The number of its account.
    pub account: i64,
    pub target: Target,
    pub timeout: Duration,
    fixed: Vec<(HeaderName, HeaderValue)>,
    /// By how many older secrets sign together with the newest.
    signers: Vec<Signer>,
    /// When each older secret's overlap ends, the last to end first.
    overlaps: Vec<Timestamp>,
    thin: bool,
    /// Place of the version of its payloads.
    version: usize,
    plain: bool,
}

/// Why an endpoint cannot be posted to. Its record would have to change.
#[derive(Clone, Debug)]
pub struct EndpointFault {
    pub class: &'static str,
    pub message: String,
}

/// The second in which attempts are signed, ready as a header.
pub struct Stamp {
    seconds: i64,
    header: HeaderValue,
}

impl Stamp {
    pub fn new(now: Timestamp) -> Stamp {
        Stamp { seconds: now.seconds(), header: HeaderValue::from(now.seconds()) }
    }

    pub fn set(&mut self, now: Timestamp) {
        if now.seconds() != self.seconds {
            *self = Stamp::new(now);
        }
    }
}

impl Post {
    pub fn new(endpoint: &Endpoint, version: usize) -> Result<Post, EndpointFault> {
        let target = Target::parse(&endpoint.url)
            .map_err(|fault| EndpointFault { class: fault.class(), message: fault.to_string() })?;
        let secret = read(&endpoint.secret)?;
        let older = endpoint.previous_secrets.iter();
        let mut older: Vec<(Secret, Timestamp)> =
            older.filter_map(|(text, until)| Some((read(text).ok()?, *until))).collect();
        older.sort_by_key(|(_, until)| Reverse(*until));
        older.truncate(endpoint::MAX_SECRETS - 1);
        let with = |count: usize| Signer::new(&secret, older[..count].iter().map(|(old, _)| old));
        let mut fixed = vec![(CONTENT_TYPE, JSON), (USER_AGENT, AGENT)];
        for (name, value) in &endpoint.headers {
            // Checked when the endpoint was made; one that is no header is left out.
            if let (Ok(name), Ok(value)) = (name.parse(), value.parse()) {
                fixed.push((name, value));
            }
        }
        Ok(Post {
            account: endpoint.scope.account_number(),
            target,
            timeout: endpoint.timeout,
            fixed,
            signers: (0..=older.len()).map(with).collect(),
            overlaps: older.iter().map(|(_, until)| *until).collect(),
            thin: endpoint.thin,
            version,
            plain: endpoint.plain_signature,
        })
    }

    pub fn body(&self, event: &Prepared) -> Bytes {
        event.body(self.thin, self.version)
    }

    /// The headers of an attempt at this moment.
    pub fn headers(
        &self,
        event: &Prepared,
        body: &[u8],
        now: Timestamp,
        stamp: &Stamp,
    ) -> HeaderMap {
        let signer = &self.signers[self.overlaps.iter().filter(|until| now < **until).count()];
        let mut headers = self.target.headers();
        for (name, value) in &self.fixed {
            headers.insert(name, value.clone());
        }
        headers.insert(ID, event.id.clone());
        headers.insert(TIMESTAMP, stamp.header.clone());
        let standard = signer.standard(&event.event.id, stamp.seconds, body);
        headers.insert(SIGNATURE, value(standard));
        match self.plain {
            true => headers.insert(PLAIN, value(signer.plain(body))),
            false => headers.insert(TIMESTAMPED, value(signer.timestamped(stamp.seconds, body))),
        };
        headers
    }
}

fn read(secret: &str) -> Result<Secret, EndpointFault> {
    Secret::parse(secret).map_err(|error| EndpointFault {
        class: "secret",
        message: format!("cannot sign: {error}"),
    })
}

/// Signatures are letters and digits.
fn value(signature: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(signature))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::tests::{loaded, prepared};
    use model::{Record, Scope};
    use restive_kit::signature::verify;
    use serde_json::{Value, json};

    const OLD: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";
    const NEW: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    const OLDER: &str = "whsec_CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ";
    const NOW: Timestamp = Timestamp(1_760_000_000_500);

    fn endpoint(more: Value) -> Endpoint {
        let mut fields = json!({
            "url": "https://example.com/hook?x=1",
            "secret": NEW,
            "headers": { "X-Team": "blue" },
            "status": "enabled",
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let record = Record {
            id: "we_1".into(),
            number: 1,
            version: 1,
            updated: NOW,
            body: fields.to_string(),
            hidden: None,
        };
        Endpoint::read(Scope::new(1, false), &record)
    }

    fn headers(endpoint: &Endpoint) -> (HeaderMap, Bytes) {
        let prepared = prepared(7, "book_1", &loaded());
        let post = Post::new(endpoint, 0).unwrap_or_else(|broken| panic!("{broken:?}"));
        let body = post.body(&prepared);
        (post.headers(&prepared, &body, NOW, &Stamp::new(NOW)), body)
    }

    fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
        headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn every_attempt_has_an_id_and_both_kinds_of_signature() {
        let (headers, body) = headers(&endpoint(json!({})));
        for (name, expected) in [
            ("host", "example.com"),
            ("content-type", "application/json"),
            ("user-agent", concat!("restive/", env!("CARGO_PKG_VERSION"))),
            ("x-team", "blue"),
            ("webhook-id", "evt_7"),
            ("webhook-timestamp", "1760000000"),
            ("x-hub-signature-256", ""),
        ] {
            assert_eq!(text(&headers, name), expected, "{name}");
        }
        let signer = Signer::new(&Secret::parse(NEW).unwrap(), None);
        let timestamped = signer.timestamped(1_760_000_000, &body);
        assert_eq!(text(&headers, "restive-signature"), timestamped);
        let standard = signer.standard("evt_7", 1_760_000_000, &body);
        assert_eq!(text(&headers, "webhook-signature"), standard);
    }

    #[test]
    fn an_endpoint_with_a_damaged_filter_or_secret_gets_nothing() {
        let passes =
            |filter: Value| endpoint(json!({ "filter": filter })).passes(&serde_json::Map::new());
        for damaged in [json!(7), json!(true), json!(["true"]), json!({}), json!("1 +")] {
            assert!(passes(damaged.clone()).is_err(), "{damaged}");
        }
        assert_eq!(passes(Value::Null), Ok(true));
        assert_eq!((passes(json!("true")), passes(json!("false"))), (Ok(true), Ok(false)));
        for damaged in [Value::Null, json!(7), json!(""), json!("whsec_"), json!("secret")] {
            let post = Post::new(&endpoint(json!({ "secret": damaged })), 0);
            assert_eq!(post.err().map(|broken| broken.class), Some("secret"), "{damaged}");
        }
    }

    #[test]
    fn the_plain_signature_replaces_the_timestamped_one() {
        let (headers, body) = headers(&endpoint(json!({ "signature": "plain" })));
        let signer = Signer::new(&Secret::parse(NEW).unwrap(), None);
        assert_eq!(text(&headers, "x-hub-signature-256"), signer.plain(&body));
        assert_eq!(text(&headers, "restive-signature"), "");
        assert!(text(&headers, "webhook-signature").starts_with("v1,"));
    }

    #[test]
    fn the_old_secret_signs_until_it_expires() {
        let rotated = |until: i64| {
            let until = Timestamp(until).to_iso();
            let more = json!({ "previous_secret": OLD, "previous_secret_expires_at": until });
            let (headers, body) = headers(&endpoint(more));
            let header = text(&headers, "restive-signature").as_bytes();
            [NEW, OLD].map(|secret| {
                let secret = Secret::parse(secret).unwrap();
                let seconds = NOW.seconds();
                verify::timestamped(&[secret], Some(header), &body, seconds, verify::TOLERANCE)
                    .is_ok()
            })
        };
        assert_eq!((rotated(NOW.0 + 1), rotated(NOW.0)), ([true, true], [true, false]));
    }

    #[test]
    fn every_secret_signs_until_it_expires() {
        let ends = |second: i64, third: i64| {
            let kept = |secret: &str, until: i64| {
                let until = Timestamp(until).to_iso();
                json!({ "secret": secret, "expires_at": until })
            };
            let more = json!({ "previous_secrets": [kept(OLD, second), kept(OLDER, third)] });
            let (headers, body) = headers(&endpoint(more));
            let header = Some(text(&headers, "restive-signature").as_bytes());
            [NEW, OLD, OLDER].map(|secret| {
                let secret = [Secret::parse(secret).unwrap()];
                let now = NOW.seconds();
                verify::timestamped(&secret, header, &body, now, verify::TOLERANCE).is_ok()
            })
        };
        assert_eq!(ends(NOW.0 + 1, NOW.0 + 2), [true, true, true]);
        assert_eq!(ends(NOW.0 + 2, NOW.0 + 1), [true, true, true]);
        assert_eq!(ends(NOW.0, NOW.0 + 1), [true, false, true]);
        assert_eq!(ends(NOW.0 + 1, NOW.0), [true, true, false]);
        assert_eq!(ends(NOW.0, NOW.0), [true, false, false]);
    }

    #[test]
    fn the_reason_is_reported_for_an_endpoint_that_cannot_be_called() {
        for (more, class) in [
            (json!({ "url": "ftp://example.com" }), "url"),
            (json!({ "secret": "hunter2" }), "secret"),
        ] {
            let broken = Post::new(&endpoint(more), 0).err().unwrap();
            assert_eq!(broken.class, class);
            assert!(!broken.message.contains("hunter2"));
        }
    }
}
