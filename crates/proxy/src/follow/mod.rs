//! What restive backends report about their commits. With it, a stored response of one credential
//! is used without a validation while nothing that it depends on has changed, and refusals of keys
//! are repeated without asking.
//!
//! `feeds` reads the feed of each backend into its `link`; the backend says on each response what
//! it depends on (`evidence`), and the `cache` asks here before it uses a stored response.
//! `refusals` has what backends said about keys. Whatever is in doubt is validated: a feed that is
//! silent, a response without evidence, a write whose effect is not known.

mod evidence;
mod link;
mod metrics;
mod refusals;

use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::header::{ACCEPT, AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Method};

use crate::error::Failure;
pub(crate) use evidence::{Evidence, Exact, Said};
use link::Held;
pub(crate) use link::{Basis, Link, MAX_SILENCE};
use metrics::Metrics;
use refusals::{Refusals, Request};

/// In a request to a backend: the secret or the token. In its response: the evidence. Clients
/// neither send nor receive it.
pub(crate) const RESTIVE_EDGE: HeaderName = HeaderName::from_static("restive-edge");
/// Places for credentials whose last write has no known result. 4,096: two credentials that share
/// one cost a validation.
const CREDENTIALS: usize = 4_096;

/// What the proxy knows by the feeds. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Follow(Arc<Shared>);

struct Shared {
    secret: Option<HeaderValue>,
    refusals: Refusals,
    /// By credential: when the last write ended whose effect is not known.
    doubtful: Box<[AtomicU64]>,
    /// Random, so that clients cannot choose credentials that share a place.
    hasher: RandomState,
    began: Instant,
    metrics: Metrics,
}

impl Follow {
    pub(crate) fn new(secret: Option<HeaderValue>) -> Follow {
        let places = if secret.is_some() { CREDENTIALS } else { 0 };
        Follow(Arc::new(Shared {
            refusals: Refusals::new(secret.is_some()),
            doubtful: (0..places).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            began: Instant::now(),
            metrics: Metrics::default(),
            secret,
        }))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.secret.is_some()
    }

    /// What opens the feeds.
    pub(crate) fn secret(&self) -> Option<HeaderValue> {
        self.0.secret.clone()
    }

    /// What a request to a server is sent with, if its feed is open.
    pub(crate) fn basis(&self, link: &Link, now: Instant) -> Option<Basis> {
        if self.is_on() { link.basis(now) } else { None }
    }

    pub(crate) fn render(&self, out: &mut String) {
        self.0.metrics.render(out);
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        // From 1 on: 0 is before everything.
        at.saturating_duration_since(self.0.began).as_millis() as u64 + 1
    }

    fn doubt(&self, credential: u64) -> Option<&AtomicU64> {
        self.0.doubtful.get(credential as usize % CREDENTIALS)
    }

    /// The number of the credential of a request.
    fn credential(&self, headers: &HeaderMap) -> u64 {
        let mut hasher = self.0.hasher.build_hasher();
        headers.get_all(AUTHORIZATION).iter().for_each(|value| value.as_bytes().hash(&mut hasher));
        hasher.finish()
    }

    /// Watches a write: unless its effect becomes known, what was asked for before its end with the
    /// same credential is validated. None for requests that change nothing.
    pub(crate) fn write(&self, method: &Method, headers: &HeaderMap) -> Option<Effect> {
        let is_safe =
            matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
        if is_safe || !self.is_on() {
            return None;
        }
        let credential = self.credential(headers);
        Some(Effect { follow: self.clone(), credential, is_known: false })
    }

    /// Evidence for the response to a request, as the cache keeps it.
    pub(crate) fn exact(&self, evidence: Option<Evidence>, asked: &HeaderMap) -> Option<Exact> {
        let evidence = evidence?;
        let sent_ms = self.milliseconds(evidence.sent);
        let request = evidence::fingerprint(asked);
        Some(Exact { credential: self.credential(asked), request, sent_ms, evidence })
    }

    /// Whether a stored response is what the backend would send now.
    pub(crate) fn confirms(&self, exact: &Exact, asked: &HeaderMap, now: Instant) -> bool {
        let Exact { evidence, credential, request, sent_ms } = exact;
        if *request != evidence::fingerprint(asked) {
            return false;
        }
        let doubt = self.doubt(*credential).map_or(u64::MAX, |at| at.load(Ordering::Acquire));
        let held = match doubt < *sent_ms {
            true => evidence.held(now),
            false => Held::InDoubt,
        };
        self.0.metrics.count(held);
        held == Held::Yes
    }

    /// Remembers that a backend has refused a key.
    pub(crate) fn refused(
        &self,
        asked: (&Method, &str, &HeaderMap),
        said: &Said,
        evidence: Evidence,
        response: (http::StatusCode, &HeaderMap),
    ) {
        let Some(path) = said.refused.as_deref() else { return };
        let request = self.request(asked, evidence.link());
        self.0.refusals.learn(request, path, evidence, response);
    }

    /// The refusal that the only server of a pool would send.
    pub(crate) fn refusal(
        &self,
        link: &Arc<Link>,
        asked: (&Method, &str, &HeaderMap),
        now: Instant,
    ) -> Option<Failure> {
        if !link.is_open() || !asked.2.contains_key(AUTHORIZATION) {
            return None;
        }
        let request = self.request(asked, link);
        let failure = self.0.refusals.find(request, link, now)?;
        self.0.metrics.refused(failure.status);
        Some(failure)
    }

    fn request<'a>(
        &self,
        (method, path, headers): (&'a Method, &'a str, &'a HeaderMap),
        link: &Arc<Link>,
    ) -> Request<'a> {
        let path = path.split('?').next().unwrap_or_default();
        let server = Arc::as_ptr(link) as usize;
        let mut hasher = self.0.hasher.build_hasher();
        (self.credential(headers), server, method, refusals::shape(path)).hash(&mut hasher);
        headers.get_all(ACCEPT).iter().for_each(|value| value.as_bytes().hash(&mut hasher));
        Request { number: hasher.finish(), path, headers }
    }
}

/// A write in progress.
pub(crate) struct Effect {
    follow: Follow,
    credential: u64,
    is_known: bool,
}

impl Effect {
    /// The backend has said up to which position the feed includes the effect.
    pub(crate) fn known(&mut self) {
        self.is_known = true;
    }
}

impl Drop for Effect {
    fn drop(&mut self) {
        if self.is_known {
            return;
        }
        let now = self.follow.milliseconds(Instant::now());
        if let Some(doubt) = self.follow.doubt(self.credential) {
            doubt.fetch_max(now, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn headers(key: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, key.parse().unwrap())])
    }

    #[test]
    fn a_write_whose_effect_is_not_known_puts_what_was_read_before_in_doubt() {
        let follow = Follow::new(Some(HeaderValue::from_static("secret")));
        let link = Arc::new(Link::default());
        link.open(HeaderValue::from_static("token"), 1);
        let own = headers("Bearer a");
        let read = |headers: &HeaderMap, sent: Instant| {
            let basis = link.basis(sent).unwrap();
            let said = HeaderValue::from_static("position=1; scope=1; seconds=60; depends=7");
            let said = Said::parse(&said).unwrap();
            follow.exact(Evidence::new(&link, &basis, &said), headers).unwrap()
        };
        let place = |headers: &HeaderMap| follow.credential(headers) as usize % CREDENTIALS;
        let others = (0..).map(|number| headers(&format!("Bearer b{number}")));
        let other = others.into_iter().find(|other| place(other) != place(&own)).unwrap();
        let sent = Instant::now();
        let (before, foreign) = (read(&own, sent), read(&other, sent));
        let holds =
            |exact: &Exact, headers: &HeaderMap| follow.confirms(exact, headers, Instant::now());
        assert!(follow.write(&Method::GET, &own).is_none(), "it changes nothing");
        let mut known = follow.write(&Method::POST, &own).unwrap();
        known.known();
        drop(known);
        assert!(holds(&before, &own));
        drop(follow.write(&Method::POST, &own).unwrap());
        assert!(!holds(&before, &own));
        assert!(holds(&foreign, &other), "another credential");
        // What is read after the write shows its effect, or the feed reports it.
        let after = read(&own, Instant::now() + Duration::from_millis(5));
        assert!(holds(&after, &own));
        assert!(follow.write(&Method::POST, &own).is_some());
        assert!(Follow::new(None).write(&Method::POST, &own).is_none());
    }
}
