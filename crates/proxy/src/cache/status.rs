//! The `Cache-Status` field of a response (RFC 9211): whether it came from the cache, and why not.

use std::fmt::Write as _;

use http::header::{AGE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Why a request went to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Bypass,
    UriMiss,
    VaryMiss,
    Stale,
    Request,
    Partial,
}

/// What the cache did for a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// None: a hit.
    pub(crate) forwarded: Option<Why>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) ttl_seconds: Option<i64>,
    pub(crate) is_stored: bool,
    pub(crate) is_collapsed: bool,
    pub(crate) detail: Option<&'static str>,
}

impl Report {
    pub(crate) fn forwarded(why: Why) -> Report {
        Report { forwarded: Some(why), ..Report::default() }
    }

    /// Adds the field behind those of caches nearer to the backend.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let mut text = String::from("restive");
        match self.forwarded {
            None => text.push_str("; hit"),
            Some(why) => {
                text.push_str("; fwd=");
                text.push_str(why.name());
            }
        }
        if let Some(status) = self.status {
            // Writing to a string cannot fail.
            let _ = write!(text, "; fwd-status={}", status.as_u16());
        }
        if let Some(seconds) = self.ttl_seconds {
            let _ = write!(text, "; ttl={seconds}");
        }
        for (is_so, name) in [(self.is_stored, "; stored"), (self.is_collapsed, "; collapsed")] {
            if is_so {
                text.push_str(name);
            }
        }
        if let Some(detail) = self.detail {
            let _ = write!(text, "; detail={detail}");
        }
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.append(CACHE_STATUS, value);
        }
    }
}

impl Why {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Why::Bypass => "bypass",
            Why::UriMiss => "uri-miss",
            Why::VaryMiss => "vary-miss",
            Why::Stale => "stale",
            Why::Request => "request",
            Why::Partial => "partial",
        }
    }
}

/// Replaces `Age`.
pub(crate) fn set_age(headers: &mut HeaderMap, age: std::time::Duration) {
    headers.insert(AGE, HeaderValue::from(age.as_secs()));
}
