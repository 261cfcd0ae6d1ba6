//! Each mistake of a receiver is named, and nothing that fails is called verified.

use super::verify::TOLERANCE;
use super::*;

const NOW: i64 = 1_760_000_000;
const ID: &str = "evt_01";
const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const BODY: &str = r#"{"id":"evt_01","title":"Gödel / Bach","n":[1,2.5],"a":{"b":null}}"#;

type Headers = Vec<(&'static str, String)>;

/// All headers of one delivery.
fn signed(secret: &str, body: &str, seconds: i64) -> Headers {
    let secret = Secret::parse(secret).unwrap_or_else(|_| Secret::from_text(secret));
    let signer = Signer::new(&secret, None);
    let plain = signer.plain(body.as_bytes());
    vec![
        ("restive-signature", signer.timestamped(seconds, body.as_bytes())),
        ("webhook-id", ID.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", signer.standard(ID, seconds, body.as_bytes())),
        ("x-digest", plain["sha256=".len()..].to_owned()),
        ("x-hub-signature-256", plain),
    ]
}

fn schemes() -> [Scheme; 4] {
    [Scheme::restive(), Scheme::standard(), Scheme::github(), Scheme::hex("X-Digest")]
}

fn diagnosed(scheme: &Scheme, secret: &str, headers: &Headers, body: &str) -> Diagnosis {
    let header = |name: &str| {
        headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_bytes())
    };
    let found = diagnose(scheme, &[secret], header, body.as_bytes(), NOW, TOLERANCE);
    let known = Secret::parse(secret).unwrap_or_else(|_| Secret::from_text(secret));
    let verified =
        Verifier::new(scheme.clone(), [known]).verify(header, body.as_bytes(), NOW).is_ok();
    assert_eq!(found.is_verified(), verified, "{scheme:?}: {found}");
    assert!(!found.to_string().is_empty() && !found.advice().is_empty());
    assert!(!found.to_string().contains("AQID"), "a diagnosis shows the secret: {found}");
    found
}

#[test]
fn a_right_signature_is_called_right_in_every_form() {
    for scheme in schemes() {
        let found = diagnosed(&scheme, SECRET, &signed(SECRET, BODY, NOW), BODY);
        assert!(found.is_verified(), "{scheme:?}: {found}");
    }
    let found = diagnosed(&Scheme::Detect, SECRET, &signed(SECRET, BODY, NOW), BODY);
    assert_eq!(found, Diagnosis::Verified { family: Family::Standard });
}

#[test]
fn detection_takes_no_form_without_a_time() {
    let mut headers = signed(SECRET, BODY, NOW);
    headers.retain(|(name, _)| *name == "x-hub-signature-256");
    let found = diagnosed(&Scheme::Detect, SECRET, &headers, BODY);
    let header = Some("x-hub-signature-256".to_owned());
    assert_eq!(found, Diagnosis::MissingHeader { part: Part::Signature, found: header });
    headers = signed(SECRET, BODY, NOW);
    headers.retain(|(name, _)| *name == "restive-signature");
    let found = diagnosed(&Scheme::Detect, SECRET, &headers, BODY);
    assert_eq!(found, Diagnosis::Verified { family: Family::Timestamped });
}

#[test]
fn a_body_that_was_written_again_is_recognised_with_its_original_layout() {
    let value: serde_json::Value = serde_json::from_str(BODY).unwrap();
    let sorted_pretty = serde_json::to_string_pretty(&value).unwrap();
    let originals = [
        (BODY.to_owned(), "without spaces"),
        (BODY.replace("\":", "\": ").replace(",\"", ", \"").replace("1,2", "1, 2"), "a space"),
        (sorted_pretty.clone(), "indented by 2, its members sorted"),
        (format!("{BODY}\n"), "line end"),
        (BODY.replace('ö', "\\u00f6"), "\\u escapes for all but ASCII"),
        (BODY.replace('ö', "\\u00f6").replace('/', "\\/"), "\\/ for /"),
    ];
    let received = [BODY.to_owned(), sorted_pretty, BODY.replace("\":", "\": ")];
    for scheme in schemes() {
        for (original, told) in &originals {
            for body in received.iter().filter(|body| *body != original) {
                let found = diagnosed(&scheme, SECRET, &signed(SECRET, original, NOW), body);
                // A body in its original order cannot be made of a sorted one.
                if body.starts_with("{\n") && !original.starts_with("{\n") {
                    assert!(matches!(found, Diagnosis::WrongSecret { body_is_json: true }));
                    continue;
                }
                let Diagnosis::Reserialised { original: layout } = &found else {
                    panic!("{scheme:?}, {told}: {found}");
                };
                assert!(layout.contains(told), "{told}: {layout}");
            }
        }
    }
}

#[test]
fn line_ends_byte_order_marks_and_lost_bodies_are_recognised() {
    let lines = "{\n\"id\":1\n}";
    for (original, body) in [
        (lines.to_owned(), lines.replace('\n', "\r\n")),
        (lines.replace('\n', "\r\n"), lines.to_owned()),
        (lines.to_owned(), format!("\u{FEFF}{lines}")),
        (lines.to_owned(), format!(" {lines}\n")),
        (String::new(), "{}".to_owned()),
    ] {
        let found = diagnosed(&Scheme::restive(), SECRET, &signed(SECRET, &original, NOW), &body);
        assert_eq!(found.code(), "body_reserialised", "{original:?} {body:?}: {found}");
    }
}

#[test]
fn a_secret_in_another_encoding_is_recognised() {
    use SecretMistake::*;
    let behind = SECRET.strip_prefix("whsec_").unwrap();
    let quoted = format!("\"{SECRET}\"");
    let lined = format!("{SECRET}\n");
    for (scheme, signs, known, expected) in [
        (Scheme::restive(), SECRET, behind, NoPrefix),
        (Scheme::standard(), SECRET, behind, NoPrefix),
        (Scheme::restive(), SECRET, &*quoted, Quotes),
        (Scheme::standard(), SECRET, &*quoted, Quotes),
        (Scheme::restive(), SECRET, &*lined, Whitespace),
        (Scheme::standard(), SECRET, &*lined, Whitespace),
        (Scheme::restive(), behind, SECRET, WithoutPrefix),
        (Scheme::github(), behind, SECRET, WithoutPrefix),
    ] {
        let found = diagnosed(&scheme, known, &signed(signs, BODY, NOW), BODY);
        assert_eq!(found, Diagnosis::SecretEncoding(expected), "{scheme:?}");
    }
}

#[test]
fn a_key_that_the_sender_decodes_otherwise_is_recognised() {
    let tag = |key: &[u8], signed: &[&[u8]]| {
        let mut hex = String::new();
        mac::push_hex(&mut hex, &mac::Keyed::new(key).tag(signed));
        hex
    };
    let bytes: Vec<u8> = (1..=32).collect();
    let before = b"1760000000.";
    let stripe = |key: &[u8]| format!("t={NOW},v1={}", tag(key, &[before, BODY.as_bytes()]));
    for (known, key, expected) in [
        (SECRET, &bytes[..], SecretMistake::BytesAsKey),
        (
            "whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_",
            &[0xFB_u8, 0xFF, 0xBF].repeat(8)[..],
            SecretMistake::UrlBase64,
        ),
        ("0a0b0c0d", &[10, 11, 12, 13][..], SecretMistake::HexDecoded),
    ] {
        let headers = vec![("restive-signature", stripe(key))];
        let found = diagnosed(&Scheme::restive(), known, &headers, BODY);
        assert_eq!(found, Diagnosis::SecretEncoding(expected), "{known}");
    }
    // Standard Webhooks, signed with the text.
    let text = Secret::from_text(SECRET);
    let mut headers = signed(SECRET, BODY, NOW);
    headers[3].1 = Signer::new(&text, None).standard(ID, NOW, BODY.as_bytes());
    let found = diagnosed(&Scheme::standard(), SECRET, &headers, BODY);
    assert_eq!(found, Diagnosis::SecretEncoding(SecretMistake::TextAsKey));
}

#[test]
fn a_wrong_clock_is_told_by_its_seconds_and_only_if_the_signature_is_right() {
    for scheme in [Scheme::restive(), Scheme::standard()] {
        let at = |seconds| diagnosed(&scheme, SECRET, &signed(SECRET, BODY, seconds), BODY);
        assert_eq!(at(NOW - 301), Diagnosis::Stale { seconds: 301 });
        assert_eq!(at(NOW + 7200), Diagnosis::Future { seconds: 7200 });
        assert!(at(NOW - 300).is_verified());
        let foreign = signed("whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH", BODY, NOW - 301);
        let found = diagnosed(&scheme, SECRET, &foreign, BODY);
        assert_eq!(found, Diagnosis::WrongSecret { body_is_json: true });
    }
}

#[test]
fn missing_malformed_and_foreign_headers_are_told_apart() {
    let none: Headers = Vec::new();
    let missing = |part| Diagnosis::MissingHeader { part, found: None };
    for scheme in schemes().into_iter().filter(|scheme| *scheme != Scheme::standard()) {
        assert_eq!(diagnosed(&scheme, SECRET, &none, BODY), missing(Part::Signature));
    }
    assert_eq!(diagnosed(&Scheme::standard(), SECRET, &none, BODY), missing(Part::Id));
    let all = signed(SECRET, BODY, NOW);
    let value = |name: &str| all.iter().find(|(own, _)| *own == name).unwrap().1.clone();
    for (scheme, header, other, found) in [
        (Scheme::restive(), "restive-signature", "webhook-signature", Family::Standard),
        (Scheme::restive(), "restive-signature", "x-hub-signature-256", Family::Plain),
        (Scheme::restive(), "restive-signature", "x-digest", Family::Hex),
        (Scheme::github(), "x-hub-signature-256", "restive-signature", Family::Timestamped),
        (Scheme::hex("x-digest"), "x-digest", "x-hub-signature-256", Family::Plain),
    ] {
        let headers = vec![(header, value(other))];
        let expected = scheme.resolve(&|_| None).unwrap().family();
        let told = diagnosed(&scheme, SECRET, &headers, BODY);
        assert_eq!(told, Diagnosis::OtherFamily { expected, found }, "{other}");
    }
    for text in ["", "t=1760000000", "v1=00", "nonsense", "t=x,v1=", "sha1=00"] {
        let headers = vec![("restive-signature", text.to_owned())];
        let found = diagnosed(&Scheme::restive(), SECRET, &headers, BODY);
        assert_eq!(found.code(), "malformed_header", "{text}: {found}");
    }
    let long = vec![("restive-signature", "x".repeat(5_000))];
    assert_eq!(diagnosed(&Scheme::restive(), SECRET, &long, BODY).code(), "malformed_header");
}

#[test]
fn another_secret_or_body_is_called_that() {
    let headers = signed(SECRET, BODY, NOW);
    for scheme in schemes() {
        let other = diagnosed(&scheme, "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH", &headers, BODY);
        assert_eq!(other, Diagnosis::WrongSecret { body_is_json: true });
        let cut = diagnosed(&scheme, SECRET, &headers, &BODY[..20]);
        assert_eq!(cut, Diagnosis::WrongSecret { body_is_json: false });
        assert_eq!(diagnosed(&scheme, "", &headers, BODY), Diagnosis::NoSecret);
    }
}

#[test]
fn a_body_over_the_limit_is_not_written_again() {
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_DIAGNOSED_BYTES));
    let spaced = large.replace("\":", "\": ");
    let found = diagnosed(&Scheme::restive(), SECRET, &signed(SECRET, &large, NOW), &spaced);
    assert_eq!(found, Diagnosis::WrongSecret { body_is_json: true });
}

#[test]
fn a_verifier_accepts_any_of_its_secrets_and_tolerances_are_kept() {
    let secrets = [1, 2].map(|byte| Secret::from_bytes([byte; 24]));
    let verifier = Verifier::new(Scheme::restive(), secrets.clone());
    for secret in &secrets {
        let header = Signer::new(secret, None).timestamped(NOW, b"{}");
        let header = |_: &str| Some(header.as_bytes());
        assert!(verifier.verify(header, b"{}", NOW).is_ok());
        assert!(verifier.verify(header, b"{}", NOW + 301).is_err());
        let patient = verifier.clone().tolerance(std::time::Duration::from_secs(600));
        assert!(patient.verify(header, b"{}", NOW + 301).is_ok());
        assert!(patient.verify(header, b"{}", NOW + 601).is_err());
    }
    let none = Verifier::new(Scheme::restive(), [Secret::from_text("")]);
    let header = Signer::new(&Secret::from_text(""), None).timestamped(NOW, b"{}");
    let result = none.verify(|_| Some(header.as_bytes()), b"{}", NOW);
    assert_eq!(result, Err(Fault::NoMatch), "an empty secret verifies nothing");
    assert_eq!(format!("{verifier:?}").matches("AQEB").count(), 0);
}
