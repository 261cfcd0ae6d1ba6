//! Which responses are stored, for how long they are fresh, and when one is used again (RFC 9111 3
//! and 4). No I/O; the time is a parameter.

use std::time::{Duration, Instant, SystemTime};

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, EXPIRES,
    HeaderName, LAST_MODIFIED, SET_COOKIE,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::control::{Directives, seconds};

/// Names of one request: a later client has its own.
const PER_REQUEST: [HeaderName; 4] = [
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("cache-status"),
    HeaderName::from_static("restive-edge"),
];

/// When a request was sent and its response came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    pub(crate) date: SystemTime,
}

/// What of the request decides about the response to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requester {
    pub(crate) has_authorization: bool,
    /// The key has the credential: the entry is for its holder alone.
    pub(crate) is_private: bool,
}

/// How a stored response may be used.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    received: Instant,
    initial_age: Duration,
    lifetime: Duration,
    /// Every use needs a validation.
    always_validate: bool,
    /// It is never used after its lifetime without a validation.
    never_stale: bool,
    while_revalidate: Duration,
    if_error: Duration,
    /// Requests with `Authorization` may have it (RFC 9111 3.5).
    pub(crate) is_shared: bool,
    /// Fields that are not stored.
    dropped: Vec<HeaderName>,
}

/// Why a response is not stored. The text is the `detail` of `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotStored(pub(crate) &'static str);

/// What to do with a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fresh,
    /// Used, and revalidated in the background.
    StaleWhileRevalidate,
    /// The client takes a stale response.
    StaleAccepted,
    /// The lifetime is over.
    Stale,
    /// The client wants a newer one.
    Refused,
}

impl Rules {
    /// Decides whether the response to a GET is stored. Only explicit lifetimes count.
    pub(crate) fn of(
        status: StatusCode,
        headers: &HeaderMap,
        requester: Requester,
        times: Times,
    ) -> Result<Rules, NotStored> {
        let control = Directives::of_response(headers);
        let has_validator = headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED);
        if !is_known(status) {
            return Err(NotStored("status"));
        }
        if control.no_store {
            return Err(NotStored("no-store"));
        }
        if control.private && !requester.is_private {
            return Err(NotStored("private"));
        }
        let is_shared = control.public || control.must_revalidate || control.s_maxage.is_some();
        if requester.has_authorization && !requester.is_private && !is_shared {
            return Err(NotStored("authorization"));
        }
        let mut dropped = control.no_cache_fields.clone();
        dropped.extend(control.private_fields.iter().cloned());
        if headers.contains_key(SET_COOKIE) && !dropped.contains(&SET_COOKIE) {
            return Err(NotStored("set-cookie"));
        }
        let lifetime = lifetime(&control, headers, times.date);
        if lifetime.is_none() && !control.no_cache && !requester.is_private {
            return Err(NotStored("no-lifetime"));
        }
        let lifetime = lifetime.unwrap_or_default();
        if requester.is_private && !headers.contains_key(ETAG) {
            return Err(NotStored("no-etag"));
        }
        let initial_age = initial_age(headers, times);
        let is_usable = lifetime > initial_age && !control.no_cache;
        if !is_usable && !has_validator {
            return Err(NotStored("expired"));
        }
        let span = |seconds: Option<u64>| Duration::from_secs(seconds.unwrap_or(0));
        Ok(Rules {
            received: times.received,
            initial_age,
            lifetime,
            always_validate: control.no_cache || requester.is_private,
            never_stale: control.must_revalidate
                || control.proxy_revalidate
                || control.s_maxage.is_some(),
            while_revalidate: span(control.stale_while_revalidate),
            if_error: span(control.stale_if_error),
            is_shared,
            dropped,
        })
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.initial_age + now.saturating_duration_since(self.received)
    }

    /// Seconds until it is stale; negative after that.
    pub(crate) fn ttl_seconds(&self, now: Instant) -> i64 {
        let whole = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        whole(self.lifetime).saturating_sub(whole(self.age(now)))
    }

    pub(crate) fn verdict(&self, asked: &Directives, now: Instant) -> Verdict {
        let age = self.age(now);
        let stale_by = (age + Duration::from_nanos(1)).saturating_sub(self.lifetime);
        let is_stale = self.always_validate || !stale_by.is_zero();
        if asked.no_cache || asked.max_age.is_some_and(|most| age > Duration::from_secs(most)) {
            return if is_stale { Verdict::Stale } else { Verdict::Refused };
        }
        if !is_stale {
            let left = self.lifetime.saturating_sub(age);
            let needed = Duration::from_secs(asked.min_fresh.unwrap_or(0));
            return if left >= needed { Verdict::Fresh } else { Verdict::Refused };
        }
        if self.always_validate || self.never_stale || asked.min_fresh.is_some() {
            return Verdict::Stale;
        }
        match asked.max_stale {
            Some(most) if stale_by <= Duration::from_secs(most) => Verdict::StaleAccepted,
            _ if stale_by <= self.while_revalidate => Verdict::StaleWhileRevalidate,
            _ => Verdict::Stale,
        }
    }

    /// Whether it may be used because the backend fails (RFC 5861 4).
    pub(crate) fn covers_errors(&self, now: Instant) -> bool {
        let may = !self.always_validate && !self.never_stale;
        may && self.age(now).saturating_sub(self.lifetime) < self.if_error
    }

    /// The headers to store: without those of one request, and copied, because a part of a shared
    /// buffer would hold all of it.
    pub(crate) fn stored_headers(&self, headers: &HeaderMap, times: Times) -> HeaderMap {
        let mut stored = HeaderMap::with_capacity(headers.len() + 1);
        for (name, value) in headers {
            let is_dropped = *name == CONTENT_LENGTH
                || *name == AGE
                || *name == SET_COOKIE
                || PER_REQUEST.contains(name)
                || self.dropped.contains(name);
            if !is_dropped && let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                stored.append(name.clone(), value);
            }
        }
        if !stored.contains_key(DATE)
            && let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(times.date))
        {
            stored.insert(DATE, date);
        }
        stored
    }
}

/// The headers of a stored response after a 304 (RFC 9111 3.2). Fields about the content stay: they
/// describe the stored bytes.
pub(crate) fn freshened(stored: &HeaderMap, newer: &HeaderMap) -> HeaderMap {
    let mut headers = stored.clone();
    let keeps = [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, CONTENT_RANGE, SET_COOKIE];
    for name in newer.keys().filter(|name| !keeps.contains(name)) {
        headers.remove(name);
        for value in newer.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    // The age of the stored response says nothing about the new one.
    if !newer.contains_key(AGE) {
        headers.remove(AGE);
    }
    if !newer.contains_key(DATE) {
        headers.remove(DATE);
    }
    headers
}

/// Final statuses whose meaning allows to use the response again.
fn is_known(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300..=303 | 307 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// RFC 9111 4.2.1, without heuristics. None if nothing says how long.
fn lifetime(control: &Directives, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    if let Some(seconds) = control.s_maxage.or(control.max_age) {
        return Some(Duration::from_secs(seconds));
    }
    let mut expires = headers.get_all(EXPIRES).iter();
    let first = expires.next()?;
    // Two values, or one that is no date: it has expired (RFC 9111 5.3).
    let (Some(end), None) = (date(first), expires.next()) else { return Some(Duration::ZERO) };
    let begin = headers.get(DATE).and_then(date).unwrap_or(now);
    Some(end.duration_since(begin).unwrap_or_default())
}

/// RFC 9111 4.2.3.
fn initial_age(headers: &HeaderMap, times: Times) -> Duration {
    let made = headers.get(DATE).and_then(date);
    let apparent = made.and_then(|made| times.date.duration_since(made).ok()).unwrap_or_default();
    // A date has whole seconds: parts of one are no age.
    let apparent = Duration::from_secs(apparent.as_secs());
    let told = headers.get(AGE).and_then(|value| value.to_str().ok());
    // RFC 9111 5.1: of several values the first counts, and one that is no number is ignored.
    let told = told.and_then(|text| seconds(text.split(',').next()?.trim()));
    let told = Duration::from_secs(told.unwrap_or(0));
    let delay = times.received.saturating_duration_since(times.sent);
    apparent.max(told + delay)
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(fields: &[(&'static str, String)], delay: Duration) -> Result<Rules, NotStored> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let received = Instant::now();
        let times = Times { sent: received - delay, received, date: SystemTime::now() };
        Rules::of(StatusCode::OK, &headers, Requester::default(), times)
    }

    fn date(ahead_seconds: i64) -> String {
        let span = Duration::from_secs(ahead_seconds.unsigned_abs());
        let now = SystemTime::now();
        let time = if ahead_seconds < 0 { now - span } else { now + span };
        httpdate::fmt_http_date(time)
    }

    #[test]
    fn the_age_counts_what_other_caches_the_date_and_the_delay_say() {
        let control = ("cache-control", "max-age=100".to_owned());
        let alone = std::slice::from_ref(&control);
        for (fields, delay, least) in [
            (alone, 0, 0),
            (alone, 7, 7),
            (&[control.clone(), ("age", "30".to_owned())], 7, 37),
            (&[control.clone(), ("date", date(-50))], 7, 50),
            (&[control.clone(), ("date", date(-50)), ("age", "60".to_owned())], 0, 60),
            (&[control.clone(), ("date", date(50))], 0, 0),
            (&[control.clone(), ("age", "soon".to_owned())], 0, 0),
        ] {
            let rules = rules(fields, SECOND * delay).unwrap();
            let age = rules.age(rules.received).as_secs();
            // The date may be a second older than the clock.
            assert!((least..=least + 1).contains(&age), "{fields:?} {delay}: {age}");
            let later = rules.received + SECOND * 10;
            assert_eq!(rules.age(later), rules.age(rules.received) + SECOND * 10);
        }
        let endless = [control.clone(), ("age", "99999999999999999999".to_owned())];
        assert_eq!(rules(&endless, Duration::ZERO).unwrap_err(), NotStored("expired"));
    }

    #[test]
    fn a_lifetime_ends_at_its_second() {
        let control = "max-age=10, stale-while-revalidate=5, stale-if-error=20".to_owned();
        let rules = rules(&[("cache-control", control)], Duration::ZERO).unwrap();
        let at = |seconds: u32| rules.received + SECOND * seconds;
        let asked = Directives::default();
        for (seconds, verdict, covers, ttl) in [
            (0, Verdict::Fresh, true, 10),
            (9, Verdict::Fresh, true, 1),
            (10, Verdict::StaleWhileRevalidate, true, 0),
            (14, Verdict::StaleWhileRevalidate, true, -4),
            (15, Verdict::Stale, true, -5),
            (29, Verdict::Stale, true, -19),
            (30, Verdict::Stale, false, -20),
        ] {
            assert_eq!(rules.verdict(&asked, at(seconds)), verdict, "{seconds}");
            assert_eq!(rules.covers_errors(at(seconds)), covers, "{seconds}");
            assert_eq!(rules.ttl_seconds(at(seconds)), ttl, "{seconds}");
        }
    }

    #[test]
    fn expires_counts_from_the_date_of_the_server() {
        let fields =
            [("date", date(-1000)), ("expires", date(-1000 + 60)), ("etag", "\"a\"".into())];
        let slow_clock = rules(&fields, Duration::ZERO).unwrap();
        assert_eq!(slow_clock.lifetime.as_secs(), 60);
        assert_eq!(slow_clock.verdict(&Directives::default(), Instant::now()), Verdict::Stale);
    }
}
