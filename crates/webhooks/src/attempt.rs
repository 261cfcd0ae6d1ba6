//! An attempt as it is served: its JSON text, fields in the order of `attempts` in the schema.
//! Written on the path of every delivery, so by hand and not through a tree of values.

use crate::limits::Limits;
use http::HeaderMap;
use model::Timestamp;
use model::record::push_text;
use std::net::SocketAddr;
use std::time::Duration;
use wire::outgoing::Timing;

/// What made it happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The event, for the first time.
    Event,
    Schedule,
    /// A client requested a retry of this delivery.
    Retry,
    Replay,
}

impl Trigger {
    fn word(self) -> &'static str {
        match self {
            Trigger::Event => "event",
            Trigger::Schedule => "schedule",
            Trigger::Retry => "retry",
            Trigger::Replay => "replay",
        }
    }
}

pub struct Attempt<'a> {
    pub delivery: &'a str,
    pub number: u32,
    pub trigger: Trigger,
    pub status: Option<u16>,
    /// Class and text of the failure.
    pub error: Option<(&'a str, &'a str)>,
    pub timing: Option<Timing>,
    pub remote: Option<SocketAddr>,
    pub headers: Option<&'a HeaderMap>,
    pub body: Option<&'a [u8]>,
    pub next: Option<(Timestamp, &'a str)>,
    pub created: &'a str,
    pub updated: &'a str,
}

impl Attempt<'_> {
    pub fn text(&self, limits: &Limits) -> String {
        let mut out = String::with_capacity(768);
        let body = self.delivery.split_once('_').map_or(self.delivery, |(_, body)| body);
        out.push_str("{\"id\":\"att_");
        out.push_str(body);
        out.push('_');
        push_integer(&mut out, u64::from(self.number));
        out.push_str("\",\"object\":\"attempt\",\"delivery\":\"");
        out.push_str(self.delivery);
        out.push_str("\",\"number\":");
        push_integer(&mut out, u64::from(self.number));
        out.push_str(",\"trigger\":\"");
        out.push_str(self.trigger.word());
        out.push_str("\",\"status\":");
        match self.status {
            Some(status) => push_integer(&mut out, u64::from(status)),
            None => out.push_str("null"),
        }
        self.push_error(&mut out);
        self.push_latency(&mut out);
        out.push_str(",\"remote_address\":");
        match self.remote {
            Some(remote) => push_display(&mut out, remote.ip()),
            None => out.push_str("null"),
        }
        out.push_str(",\"response_headers\":");
        match self.headers {
            Some(headers) => push_headers(&mut out, headers, limits),
            None => out.push_str("null"),
        }
        out.push_str(",\"response_body\":");
        match self.body {
            Some(bytes) => {
                let kept = &bytes[..bytes.len().min(limits.kept_body_bytes)];
                push_text(&mut out, &String::from_utf8_lossy(kept));
            }
            None => out.push_str("null"),
        }
        self.push_end(&mut out);
        out
    }

    fn push_error(&self, out: &mut String) {
        match self.error {
            None => out.push_str(",\"error\":null,\"error_message\":null"),
            Some((class, message)) => {
                out.push_str(",\"error\":");
                push_text(out, class);
                out.push_str(",\"error_message\":");
                push_text(out, message);
            }
        }
    }

    fn push_latency(&self, out: &mut String) {
        out.push_str(",\"latency\":");
        let Some(timing) = &self.timing else {
            out.push_str("null");
            return;
        };
        for (name, time) in [
            ("{\"dns_ms\":", timing.resolve),
            (",\"connect_ms\":", timing.connect),
            (",\"tls_ms\":", timing.tls),
            (",\"first_byte_ms\":", timing.first_byte),
            (",\"total_ms\":", Some(timing.total)),
        ] {
            out.push_str(name);
            match time {
                Some(time) => push_millis(out, time),
                None => out.push_str("null"),
            }
        }
        out.push('}');
    }

    fn push_end(&self, out: &mut String) {
        match &self.next {
            None => out.push_str(",\"next_attempt_at\":null,\"next_attempt_reason\":null"),
            Some((at, reason)) => {
                out.push_str(",\"next_attempt_at\":\"");
                out.push_str(&at.to_iso());
                out.push_str("\",\"next_attempt_reason\":");
                push_text(out, reason);
            }
        }
        out.push_str(",\"created_at\":\"");
        out.push_str(self.created);
        out.push_str("\",\"updated_at\":\"");
        out.push_str(self.updated);
        out.push_str("\"}");
    }
}

/// Names sorted, values of the same name joined; what is beyond the limits is left out.
fn push_headers(out: &mut String, headers: &HeaderMap, limits: &Limits) {
    let mut names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    out.push('{');
    let mut bytes = 0;
    let mut first = true;
    for name in names.into_iter().take(limits.kept_headers) {
        let mut values = headers.get_all(name).iter();
        let alone = values.next().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let mut value = alone.unwrap_or_default();
        for more in values {
            let joined = value.to_mut();
            joined.push_str(", ");
            joined.push_str(&String::from_utf8_lossy(more.as_bytes()));
        }
        bytes += name.len() + value.len();
        if bytes > limits.kept_header_bytes {
            break;
        }
        out.push_str(if first { "\"" } else { ",\"" });
        first = false;
        // Letters, digits and a few marks: nothing to escape.
        out.push_str(name);
        out.push_str("\":");
        push_text(out, &value);
    }
    out.push('}');
}

/// Milliseconds to the microsecond, no more digits than it takes.
fn push_millis(out: &mut String, time: Duration) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    push_integer(out, micros / 1000);
    let rest = micros % 1000;
    if rest > 0 {
        let digits = [rest / 100, rest / 10 % 10, rest % 10];
        let used = digits.iter().rposition(|digit| *digit > 0).map_or(0, |at| at + 1);
        out.push('.');
        for digit in &digits[..used] {
            out.push(char::from(b'0' + u8::try_from(*digit).unwrap_or(0)));
        }
    }
}

fn push_integer(out: &mut String, number: u64) {
    out.push_str(itoa::Buffer::new().format(number));
}

fn push_display(out: &mut String, shown: impl std::fmt::Display) {
    use std::fmt::Write;
    // Writing to a string cannot fail.
    let _ = write!(out, "\"{shown}\"");
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use serde_json::{Value, json};

    fn plain<'a>() -> Attempt<'a> {
        Attempt {
            delivery: "dlv_abc",
            number: 1,
            trigger: Trigger::Event,
            status: None,
            error: None,
            timing: None,
            remote: None,
            headers: None,
            body: None,
            next: None,
            created: "2025-10-09T08:53:20.000Z",
            updated: "2025-10-09T08:53:20.012Z",
        }
    }

    fn read(attempt: &Attempt<'_>) -> Value {
        serde_json::from_str(&attempt.text(&Limits::default())).unwrap()
    }

    #[test]
    fn an_attempt_has_all_known_details() {
        let mut headers = HeaderMap::new();
        headers.insert("x-b", HeaderValue::from_static("2 \"two\""));
        headers.append("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_static("one"));
        let attempt = Attempt {
            status: Some(500),
            error: Some(("status", "answered 500")),
            timing: Some(Timing {
                resolve: None,
                connect: Some(Duration::from_micros(1500)),
                tls: None,
                first_byte: Some(Duration::from_micros(12_034)),
                total: Duration::from_millis(13),
            }),
            remote: Some("[2001:db8::1]:443".parse().unwrap()),
            headers: Some(&headers),
            body: Some(b"oh \xff\n"),
            next: Some((Timestamp(0), "retry schedule")),
            ..plain()
        };
        let expected = json!({
            "id": "att_abc_1", "object": "attempt", "delivery": "dlv_abc", "number": 1,
            "trigger": "event", "status": 500, "error": "status", "error_message": "answered 500",
            "latency": { "dns_ms": null, "connect_ms": 1.5, "tls_ms": null,
                "first_byte_ms": 12.034, "total_ms": 13 },
            "remote_address": "2001:db8::1",
            "response_headers": { "x-a": "1, one", "x-b": "2 \"two\"" },
            "response_body": "oh \u{fffd}\n",
            "next_attempt_at": "1970-01-01T00:00:00.000Z", "next_attempt_reason": "retry schedule",
            "created_at": "2025-10-09T08:53:20.000Z", "updated_at": "2025-10-09T08:53:20.012Z",
        });
        assert_eq!(read(&attempt), expected);
    }

    #[test]
    fn fields_are_in_the_order_of_the_schema() {
        let schema = model::parse::parse(model::schema::BOOKSHOP).unwrap();
        let attempts = &schema.collections[schema.own(model::schema::Builtin::Attempt)];
        let text = plain().text(&Limits::default());
        let places: Vec<_> = attempts
            .public_names()
            .map(|name| text.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}")))
            .collect();
        assert!(places.is_sorted(), "{text}");
        let count = read(&plain()).as_object().unwrap().len();
        assert_eq!(places.len(), count);
    }

    #[test]
    fn the_recorded_response_of_an_endpoint_is_limited() {
        let mut headers = HeaderMap::new();
        for n in 0..200 {
            let name: http::HeaderName = format!("x-{n}").parse().unwrap();
            headers.insert(name, HeaderValue::from_static("v"));
        }
        headers.insert("zz", HeaderValue::from_str(&"v".repeat(9000)).unwrap());
        let body = [b'x'; 10_000];
        let read = read(&Attempt { headers: Some(&headers), body: Some(&body), ..plain() });
        let limits = Limits::default();
        assert_eq!(read["response_headers"].as_object().unwrap().len(), limits.kept_headers);
        assert_eq!(read["response_body"].as_str().unwrap().len(), limits.kept_body_bytes);
        let mut big = HeaderMap::new();
        big.insert("a", HeaderValue::from_static("1"));
        big.insert("b", HeaderValue::from_str(&"v".repeat(9000)).unwrap());
        let text = Attempt { headers: Some(&big), ..plain() }.text(&limits);
        assert!(text.contains("\"response_headers\":{\"a\":\"1\"}"), "{text}");
    }
}
