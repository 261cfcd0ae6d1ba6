//! The vectors in clients/vectors.json, which the clients in TypeScript and Python verify too: one
//! secret and one request mean the same in all three languages.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use restive_kit::signature::{Fault, Secret, Signer, StandardHeaders, verify};
use serde_json::Value;

fn vectors() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors.json");
    let text = std::fs::read_to_string(path).expect("clients/vectors.json is in the repository");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name].as_str().unwrap_or_else(|| panic!("{name} is a text: {vector}"))
}

fn list<'a>(vector: &'a Value, name: &str) -> &'a [Value] {
    vector[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {vector}"))
}

fn secrets(vector: &Value) -> Result<Vec<Secret>, String> {
    let texts = list(vector, "secrets").iter().map(|secret| secret.as_str().expect("a secret"));
    texts.map(|secret| Secret::parse(secret).map_err(|error| error.to_string())).collect()
}

fn body(vector: &Value) -> Vec<u8> {
    match vector["body_base64"].as_str() {
        Some(encoded) => STANDARD.decode(encoded).expect("body_base64 is base64"),
        None => text(vector, "body").as_bytes().to_vec(),
    }
}

fn judge(vector: &Value, secrets: &[Secret]) -> Result<(), Fault> {
    let header = |name: &str| vector["headers"][name].as_str().map(str::as_bytes);
    let now = vector["now"].as_i64().expect("seconds");
    let tolerance = Duration::from_secs(vector["tolerance"].as_u64().expect("seconds"));
    let body = body(vector);
    match text(vector, "family") {
        "timestamped" => {
            verify::timestamped(secrets, header("Restive-Signature"), &body, now, tolerance)
        }
        "standard" => {
            let headers = StandardHeaders {
                id: header("webhook-id"),
                timestamp: header("webhook-timestamp"),
                signature: header("webhook-signature"),
            };
            verify::standard(secrets, headers, &body, now, tolerance)
        }
        "plain" => verify::plain(secrets, header("X-Hub-Signature-256"), &body),
        // The bare digest is the plain form without its prefix.
        "hex" => {
            let prefixed = header("X-Signature").map(|hex| [&b"sha256="[..], hex].concat());
            verify::plain(secrets, prefixed.as_deref(), &body)
        }
        other => panic!("no such family: {other}"),
    }
}

fn name(result: Result<(), Fault>) -> (&'static str, Option<u64>) {
    match result {
        Ok(()) => ("ok", None),
        Err(Fault::Missing(_)) => ("missing", None),
        Err(Fault::TooLong(_)) => ("too_long", None),
        Err(Fault::Malformed { .. }) => ("malformed", None),
        Err(Fault::TooOld { skew_seconds }) => ("too_old", Some(skew_seconds)),
        Err(Fault::TooNew { skew_seconds }) => ("too_new", Some(skew_seconds)),
        Err(Fault::NoMatch) => ("no_match", None),
        Err(other) => panic!("no name for {other:?}"),
    }
}

#[test]
fn every_shared_vector_is_judged_as_expected() {
    let vectors = vectors();
    for vector in list(&vectors, "verify") {
        let known = match secrets(vector) {
            Ok(known) => known,
            // `Secret::parse` is strict; the unit tests of `signature` verify these published
            // examples.
            Err(_) if vector["short_secret"] == true || vector["text_secret"] == true => continue,
            Err(error) => panic!("{error}: {vector}"),
        };
        let expected = (text(vector, "expect"), vector["skew_seconds"].as_u64());
        assert_eq!(name(judge(vector, &known)), expected, "{vector}");
    }
}

#[test]
fn signatures_are_the_same_bytes_in_all_languages() {
    let vectors = vectors();
    for vector in list(&vectors, "sign") {
        let known = secrets(vector).expect("secrets within the bounds");
        let signer = Signer::new(&known[0], &known[1..]);
        let (id, seconds) = (text(vector, "id"), vector["timestamp"].as_i64().expect("seconds"));
        let body = body(vector);
        let headers = &vector["headers"];
        assert_eq!(headers["Restive-Signature"], signer.timestamped(seconds, &body));
        assert_eq!(headers["webhook-signature"], signer.standard(id, seconds, &body));
        assert_eq!(headers["X-Hub-Signature-256"], signer.plain(&body));
    }
}

#[test]
fn what_the_clients_refuse_as_a_secret_is_refused_here_too() {
    let vectors = vectors();
    for refused in list(&vectors, "refused_secrets") {
        assert!(Secret::parse(text(refused, "secret")).is_err(), "{refused}");
    }
}
