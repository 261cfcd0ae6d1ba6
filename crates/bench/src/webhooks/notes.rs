//! The measured service, and requests to it: notes whose events have 1 KB, the endpoints that
//! receive them, replays. The only file of the bench that knows these formats.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http::Client;
use crate::load::{Load, Source};

/// One collection only: the bench measures delivery. With `development`, because the sink is on
/// this machine and without TLS, like that of the bare limit. Pages are long because the results
/// are read in them.
pub const SCHEMA: &str = "\
[service]
name = \"bench\"
max_page = 1000

[webhooks]
development = true

[collections.notes.fields]
number = { type = \"integer\", required = true }
text = { type = \"string\", required = true }
";
/// Rows per page when reading results.
pub const PAGE: usize = 1_000;
/// The only enabled event type, so that nothing else is delivered except pings.
pub const EVENT: &str = "note.created";
/// With its envelope such a note is an event of 1,024 bytes, give or take its number.
const TEXT_CHARS: usize = 610;
/// Time limit of a load: at 2,000 a second a million takes 500 s.
const FILL_LIMIT: Duration = Duration::from_secs(900);

#[derive(Clone)]
pub struct Requests {
    key: Arc<str>,
    text: Arc<str>,
    /// Numbers the notes, so that all are different.
    next: Arc<AtomicU64>,
}

impl Requests {
    pub fn new(key: &str) -> Self {
        let text = "All the notes of this bench are alike. ".chars().cycle().take(TEXT_CHARS);
        let text: String = text.collect();
        Self { key: key.into(), text: text.into(), next: Arc::new(AtomicU64::new(1)) }
    }

    pub fn get(&self, target: &str) -> Vec<u8> {
        let head = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
        format!("{head}Authorization: Bearer {}\r\n\r\n", self.key).into_bytes()
    }

    pub fn post(&self, target: &str, body: &str) -> Vec<u8> {
        format!(
            "POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        )
        .into_bytes()
    }

    /// The next note.
    pub fn create(&self) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.post("/v1/notes", &format!("{{\"number\":{number},\"text\":\"{}\"}}", self.text))
    }

    /// Endless creates for one connection.
    pub fn creates(&self) -> Source {
        let own = self.clone();
        Box::new(move |request| request.extend_from_slice(&own.create()))
    }

    /// Creates an endpoint for events of notes, with additional fields.
    pub fn endpoint(&self, url: &str, more: &Value) -> Vec<u8> {
        let mut body = json!({ "url": url, "enabled_events": [EVENT] });
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        self.post("/v1/webhook-endpoints", &body.to_string())
    }

    /// Creates this many notes through the API.
    pub fn fill(&self, address: &str, count: u64, in_flight: usize) -> Result<()> {
        let made = self.fill_within(address, count, in_flight, FILL_LIMIT)?;
        ensure!(made == count, "only {made} of {count} notes within {FILL_LIMIT:?}");
        Ok(())
    }

    /// The same with a time limit; returns the number of notes created.
    pub fn fill_within(
        &self,
        address: &str,
        count: u64,
        in_flight: usize,
        duration: Duration,
    ) -> Result<u64> {
        let connections = in_flight.min(usize::try_from(count)?);
        let (expect, count, label) = (201, Some(count), Some("creating notes"));
        let load = Load { address, connections, expect, duration, count, label };
        Ok(load.run(&|_| self.creates())?.latency.count())
    }

    /// Sends one request and returns the id of the created record.
    pub fn made(client: &mut Client, request: &[u8]) -> Result<String> {
        let answer = client.expect(201, request)?;
        let made: Value = serde_json::from_slice(&answer.body)?;
        Ok(made["id"].as_str().context("no id in the answer")?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &[u8]) -> Value {
        let text = std::str::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn a_create_is_one_complete_request_and_all_are_different() {
        let requests = Requests::new("sk_test_1");
        let notes = [0, 1].map(|_| body(&requests.create()));
        assert_eq!((&notes[0]["number"], &notes[1]["number"]), (&json!(1), &json!(2)));
        assert_eq!(notes[0]["text"].as_str().unwrap().len(), TEXT_CHARS);
    }

    #[test]
    fn an_endpoint_enables_only_notes() {
        let requests = Requests::new("sk_test_1");
        let made = body(&requests.endpoint("http://127.0.0.1:1/e/0", &json!({ "timeout": 30 })));
        assert_eq!(made["enabled_events"], json!([EVENT]));
        assert_eq!(made["timeout"], 30);
    }
}
