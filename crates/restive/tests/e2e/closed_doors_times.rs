//! Comparisons of times, dates and addresses with texts that can never be equal to one, or that
//! are ordered differently than they read: they are refused where they are written.

use crate::harness::{Start, run};
use serde_json::json;
use tempfile::TempDir;

const FIELDS: &str = "[collections.notes.fields]
at = { type = \"timestamp\", required = true }
day = { type = \"date\", required = true }
times = { type = \"array\", items = \"timestamp\", required = true }
title = { type = \"string\", required = true }
";

/// Each expression with what the message about it says; nothing where it is accepted.
const CASES: &[(&str, &str)] = &[
    ("record.at == '2026-01-02T01:04:05.000Z'", ""),
    ("record.at >= '2026-01-02T01:04:05.000Z' && record.at < now", ""),
    ("record.at in ['2026-01-02T01:04:05.000Z']", ""),
    ("record.day > '2026-01-31'", ""),
    ("record.at.startsWith('2026-01')", ""),
    ("record.title == '2026-1-1' || record.title > 'soon'", ""),
    ("record.at == request.at && record.title == client", ""),
    ("client == '127.0.0.1' || client in ['2001:db8::7', '192.0.2.1']", ""),
    ("client != null && client.startsWith('10.')", ""),
    ("record.at == '2026-01-02T01:04:05Z'", "'2026-01-02T01:04:05.000Z'"),
    ("record.at >= '2026-01-02T01:04:05Z'", "'2026-01-02T01:04:05.000Z'"),
    ("'2026-01-02T01:04:05Z' != record.at", "'2026-01-02T01:04:05.000Z'"),
    ("record.at < '2026-01-02T01:04:05.000+02:00'", "'2026-01-01T23:04:05.000Z'"),
    ("record.at in ['2026-01-02T01:04:05Z']", "'2026-01-02T01:04:05.000Z'"),
    ("'2026-01-02T01:04:05Z' in record.times", "'2026-01-02T01:04:05.000Z'"),
    ("record.times.exists(t, t == '2026-01-02T01:04:05Z')", "'2026-01-02T01:04:05.000Z'"),
    ("(now > record.at ? '2026-01-02T01:04:05Z' : now) == record.at", "01:04:05.000Z'"),
    ("now > 'soon'", "'2026-01-31T08:30:00.000Z'"),
    ("record.at > 'soon'", "'2026-01-31T08:30:00.000Z'"),
    ("record.at > '2026-01-02'", "a timestamp"),
    ("record.at == '2026-01-02'", "a timestamp"),
    ("record.day > '2026-1-1'", "'2026-01-31'"),
    ("record.day == '2026-02-30'", "'2026-01-31'"),
    ("record.day == '2026-01-02T01:04:05.000Z'", "a date"),
    ("record.at == record.day", "a timestamp and a date"),
    ("record.at < record.day", "a timestamp and a date"),
    ("record.day in record.times", "a date is never in"),
    ("now == client", "an address"),
    ("client == 'localhost'", "'192.0.2.7'"),
    ("client != 'localhost'", "'192.0.2.7'"),
    ("client in ['10.0.0.0/8']", "startsWith"),
    ("client == '::ffff:127.0.0.1'", "'127.0.0.1'"),
    ("client == '2001:DB8::1'", "'2001:db8::1'"),
    ("client == '010.0.0.1'", "'192.0.2.7'"),
    ("client > '10.0.0.0'", "`>`"),
];

#[test]
fn rules_compare_times_and_addresses_only_with_texts_in_their_form() {
    let folder = TempDir::new().unwrap();
    let mut wrong = Vec::new();
    for (expression, says) in CASES {
        let schema = format!(
            "{FIELDS}[collections.notes.actions.go]\nparams.at = {{ type = \"timestamp\", \
             required = true }}\n[[collections.notes.actions.go.rules]]\nwhen = \"{expression}\"\n\
             status = 403\ncode = \"no\"\nmessage = \"No.\"\n"
        );
        std::fs::write(folder.path().join("restive.toml"), schema).unwrap();
        let (out, told, code) = run(folder.path(), &["check", "restive.toml"]);
        let is_right = match says.is_empty() {
            true => code == 0,
            false => code == 1 && told.contains(says),
        };
        if !is_right {
            wrong.push(format!("{expression}: {code} {out}{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn filters_compare_times_only_with_texts_in_their_form() {
    let server = Start::schema(&format!("[webhooks]\ndevelopment = true\n{FIELDS}")).go();
    for (filter, says) in [
        ("event.data.object.at == '2026-01-02T01:04:05.000Z'", None),
        ("event.data.object.day >= '2026-01-02'", None),
        ("event.data.object.at == '2026-01-02T01:04:05Z'", Some("'2026-01-02T01:04:05.000Z'")),
        ("event.data.object.created_at > '2026'", Some("'2026-01-31T08:30:00.000Z'")),
        ("event.data.object.day > '2026-1-1'", Some("'2026-01-31'")),
        ("event.data.object.at == event.data.object.day", Some("a timestamp and a date")),
    ] {
        let body = json!({
            "url": "http://127.0.0.1:9/", "enabled_events": ["note.created"], "filter": filter,
        });
        let answer = server.post("/v1/webhook-endpoints", body);
        match says {
            None => assert_eq!(answer.status, 201, "{filter}: {}", answer.text),
            Some(says) => {
                assert_eq!(answer.status, 422, "{filter}: {}", answer.text);
                assert!(answer.text.contains(says), "{filter}: {}", answer.text);
            }
        }
    }
}
