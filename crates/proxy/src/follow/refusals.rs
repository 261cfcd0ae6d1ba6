//! Refusals of keys that a backend would repeat: an unknown key (401) and a key without quota
//! (429). Bounded: a table in which a newer refusal replaces an older one in its place.

use std::sync::Arc;
use std::time::Instant;

use http::header::{HeaderName, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;

use super::evidence::Evidence;
use super::link::{Held, Link};
use crate::error::Failure;

/// Refusals that are remembered. 4,096: clients that try wrong keys replace one another's, and cost
/// what they cost without the table.
const PLACES: usize = 4_096;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// What a refusal tells the client, besides its body.
const KEPT: [HeaderName; 2] = [WWW_AUTHENTICATE, HeaderName::from_static("restive-error-code")];
/// The same for a key without quota.
const KEPT_LIMITS: [HeaderName; 4] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
    HeaderName::from_static("ratelimit-policy"),
];
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

pub(super) struct Refusals(Box<[Mutex<Option<Refusal>>]>);

struct Refusal {
    number: u64,
    /// Requests below this path are refused.
    path: Box<str>,
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    evidence: Evidence,
}

/// A request as refusals see it.
pub(super) struct Request<'a> {
    /// For the credential, the server, the method, the beginning of the path and `Accept`.
    pub(super) number: u64,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
}

/// What of a path is in the number of a request: its first two segments, and how many there are. A
/// list and a record have different methods.
pub(super) fn shape(path: &str) -> (&str, usize) {
    let second = path.char_indices().filter(|(_, letter)| *letter == '/').nth(2);
    let end = second.map_or(path.len(), |(at, _)| at);
    (&path[..end], path.matches('/').count())
}

impl Refusals {
    pub(super) fn new(is_on: bool) -> Refusals {
        let places = if is_on { PLACES } else { 0 };
        Refusals((0..places).map(|_| Mutex::new(None)).collect())
    }

    pub(super) fn learn(
        &self,
        request: Request<'_>,
        path: &str,
        evidence: Evidence,
        (status, headers): (StatusCode, &HeaderMap),
    ) {
        let is_refusal = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS);
        if !is_refusal || !is_below(request.path, path) {
            return;
        }
        // Those of an unknown key are about the client's address.
        let limits = KEPT_LIMITS.into_iter().filter(|_| status == StatusCode::TOO_MANY_REQUESTS);
        let kept = KEPT.into_iter().chain(limits).filter_map(|name| {
            let value = headers.get(&name)?.clone();
            Some((name, value))
        });
        if let Some(place) = self.place(request.number) {
            let (number, headers) = (request.number, kept.collect());
            *place.lock() = Some(Refusal { number, path: path.into(), status, headers, evidence });
        }
    }

    pub(super) fn find(
        &self,
        request: Request<'_>,
        link: &Arc<Link>,
        now: Instant,
    ) -> Option<Failure> {
        let mut place = self.place(request.number)?.lock();
        let refusal = place.as_ref().filter(|refusal| {
            refusal.number == request.number
                && is_below(request.path, &refusal.path)
                && Arc::ptr_eq(refusal.evidence.link(), link)
        })?;
        match refusal.evidence.held(now) {
            Held::Yes => {}
            // The feed may be behind for a moment.
            Held::InDoubt if now < refusal.evidence.until => return None,
            Held::Changed | Held::InDoubt => {
                *place = None;
                return None;
            }
        }
        // Without quota a key still gets the responses to requests that it repeats.
        let is_limited = refusal.status == StatusCode::TOO_MANY_REQUESTS;
        if is_limited && request.headers.contains_key(IDEMPOTENCY_KEY) {
            return None;
        }
        Some(refusal.failure(now))
    }

    fn place(&self, number: u64) -> Option<&Mutex<Option<Refusal>>> {
        self.0.get(number as usize % PLACES)
    }
}

impl Refusal {
    fn failure(&self, now: Instant) -> Failure {
        let mut headers = self.headers.clone();
        let mut failure = match self.status {
            StatusCode::TOO_MANY_REQUESTS => {
                // The backend keeps the last second of the window for itself.
                let seconds = self.evidence.seconds_left(now) + 1;
                let left = HeaderValue::try_from(format!("\"default\";r=0;t={seconds}"));
                headers.extend(left.ok().map(|left| (RATE_LIMIT, left)));
                let message =
                    format!("The limit of requests is exceeded. Try again in {seconds} s.");
                let failure = Failure::new(self.status, "rate_limited", message);
                failure.retry_after(u32::try_from(seconds).unwrap_or(u32::MAX))
            }
            _ => {
                let message = "The API key is unknown, expired or revoked.";
                Failure::new(self.status, "invalid_api_key", message)
            }
        };
        failure.headers = headers;
        failure
    }
}

/// Whether a path is this one or below it.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_for_one_collection_and_one_depth() {
        for (path, expected) in [
            ("/v1/books", ("/v1/books", 2)),
            ("/v1/books/b1", ("/v1/books", 3)),
            ("/v1/books/b1/reviews", ("/v1/books", 4)),
            ("/health", ("/health", 1)),
            ("", ("", 0)),
        ] {
            assert_eq!(shape(path), expected, "{path}");
        }
        for (path, expected) in
            [("/v1/books", true), ("/v1/books/b1", true), ("/v1/bookshops", false), ("/v1", false)]
        {
            assert_eq!(is_below(path, "/v1/books"), expected, "{path}");
        }
    }
}
