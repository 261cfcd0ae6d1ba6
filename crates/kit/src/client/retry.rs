//! When a request is repeated, and after which delay.

use super::Error;
use http::{HeaderMap, Method};
use std::time::{Duration, SystemTime};

/// Delay before the first repetition without `Retry-After`; it doubles.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LAST_DELAY: Duration = Duration::from_secs(8);

/// Codes of a 409 that goes away by itself.
const IN_FLIGHT: [&str; 2] = ["idempotency_key_in_use", "action_in_progress"];

/// Whether the server may receive the request twice.
pub(super) fn is_repeatable(method: &Method, headers: &HeaderMap) -> bool {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => true,
        // With If-Match, the repetition of a request that succeeded would report a conflict.
        Method::PUT | Method::DELETE => !headers.contains_key(http::header::IF_MATCH),
        _ => headers.contains_key("idempotency-key"),
    }
}

/// The delay before the request is repeated; `None` if it must not be, or if that would not help.
pub(super) fn delay(error: &Error, repeatable: bool, attempt: u32) -> Option<Duration> {
    let backoff = || {
        let limit = FIRST_DELAY.saturating_mul(1 << attempt.min(10)).min(LAST_DELAY);
        Some(between(limit / 2, limit))
    };
    match error {
        Error::Network { sent: false, .. } => backoff(),
        Error::Network { .. } | Error::Timeout(_) if repeatable => backoff(),
        Error::Api(api) => {
            let helps = match api.status {
                // The server refused it before it did anything.
                429 => true,
                409 => repeatable && IN_FLIGHT.contains(&&*api.code),
                408 | 500 | 502..=504 => repeatable,
                _ => false,
            };
            match (helps, api.retry_after) {
                (false, _) => None,
                // Clients that were refused together do not come back together.
                (true, Some(wait)) => Some(wait + between(Duration::ZERO, FIRST_DELAY)),
                (true, None) => backoff(),
            }
        }
        _ => None,
    }
}

/// `Retry-After`: seconds, or a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// A random time span between two limits.
pub(crate) fn between(least: Duration, most: Duration) -> Duration {
    let mut bytes = [0; 4];
    // Without randomness the delays are equal, which is worse only under load.
    let _ = getrandom::fill(&mut bytes);
    let part = f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX);
    least + most.saturating_sub(least).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ApiError;
    use http::HeaderValue;

    fn api(status: u16, code: &str, retry_after: Option<u64>) -> Error {
        let retry_after = retry_after.map(Duration::from_secs);
        let code = code.to_owned();
        Error::Api(Box::new(ApiError { status, code, retry_after, ..ApiError::default() }))
    }

    #[test]
    fn only_errors_that_may_go_away_are_repeated_and_only_where_that_is_safe() {
        for (error, safe, unsafe_) in [
            (Error::network(false, "refused"), true, true),
            (Error::network(true, "reset"), true, false),
            (Error::Timeout(Duration::ZERO), true, false),
            (api(429, "rate_limited", None), true, true),
            (api(503, "overloaded", None), true, false),
            (api(500, "internal", None), true, false),
            (api(502, "", None), true, false),
            (api(409, "idempotency_key_in_use", None), true, false),
            (api(409, "invalid_state", None), false, false),
            (api(422, "validation_failed", None), false, false),
            (api(401, "invalid_api_key", None), false, false),
            (api(501, "not_implemented", None), false, false),
            (Error::TooLarge { limit_bytes: 1 }, false, false),
        ] {
            assert_eq!(delay(&error, true, 0).is_some(), safe, "{error}");
            assert_eq!(delay(&error, false, 0).is_some(), unsafe_, "{error}");
        }
    }

    #[test]
    fn delays_double_with_jitter_up_to_a_limit_and_retry_after_takes_precedence() {
        for attempt in 0..40 {
            let limit = FIRST_DELAY.saturating_mul(1 << attempt.min(10)).min(LAST_DELAY);
            let delay = delay(&Error::network(false, ""), true, attempt).unwrap();
            assert!(delay >= limit / 2 && delay <= limit, "{attempt}: {delay:?}");
        }
        let wait = delay(&api(503, "", Some(7)), true, 0).unwrap();
        assert!(wait >= Duration::from_secs(7) && wait <= Duration::from_secs(8));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("12"), Some(Duration::from_secs(12)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        assert!(read(&later).unwrap() > Duration::from_secs(50));
        for bad in ["", "-1", "soon", "1.5", "99999999999"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
