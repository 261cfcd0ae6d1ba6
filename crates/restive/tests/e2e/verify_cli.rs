//! `restive verify signature`: the diagnosis on the command line, and its exit status.

use crate::harness::run;
use restive_kit::signature::{Secret, Signer};
use serde_json::Value;
use tempfile::TempDir;

const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const NOW: i64 = 1_760_000_000;
const BODY: &str = r#"{"id":"evt_01","object":"event"}"#;
/// Of the published example.
const STRIPE: &str =
    "t=1760000000,v1=fa3006d66abdcdf1bcf6a2cc76e57b5fe3fb21fedc7fc0a121cea98f56aa5a8c";

#[test]
fn the_diagnosis_names_each_mistake_and_only_a_valid_signature_exits_with_0() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, body: &str| std::fs::write(folder.path().join(name), body).unwrap();
    file("body", BODY);
    file("spaced", &BODY.replace(":", ": ").replace(",", ", "));
    file("cut", &BODY[..20]);
    let check = |secret: &str, headers: &[&str], body: &str, at: i64, code: &str| {
        let at = at.to_string();
        let mut arguments = vec!["verify", "signature", "--secret", secret, "--body", body];
        arguments.extend(["--at", &at, "--format", "json"]);
        headers.iter().for_each(|header| arguments.extend(["--header", header]));
        let (out, err, status) = run(folder.path(), &arguments);
        let found: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        assert_eq!(found["code"], code, "{headers:?}: {out}");
        assert_eq!(found["verified"], code == "verified");
        assert_eq!(status, i32::from(code != "verified"), "{out}");
        assert!(!out.contains("AQIDBA"), "the output shows the secret: {out}");
    };
    let signer = Signer::new(&Secret::parse(SECRET).unwrap(), None);
    let standard = signer.standard("evt_01", NOW, BODY.as_bytes());
    let standard = format!("webhook-signature: {standard}");
    let all = ["webhook-id: evt_01", "Webhook-Timestamp: 1760000000", &*standard];
    let plain = signer.plain(BODY.as_bytes());
    let named = format!("Stripe-Signature: {STRIPE}");
    let quoted = format!("'{SECRET}'");
    check(SECRET, &[STRIPE], "body", NOW, "verified");
    check(SECRET, &[&named], "body", NOW, "verified");
    check(SECRET, &all, "body", NOW, "verified");
    check(SECRET, &[&plain], "body", NOW, "verified");
    check(SECRET, &[&format!("x-mac: {}", &plain[7..])], "body", NOW, "verified");
    check(SECRET, &[STRIPE], "spaced", NOW, "body_reserialised");
    check(SECRET, &all, "spaced", NOW, "body_reserialised");
    check(SECRET, &[STRIPE], "cut", NOW, "wrong_secret");
    check("whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH", &[STRIPE], "body", NOW, "wrong_secret");
    check(&quoted, &[STRIPE], "body", NOW, "secret_encoding");
    check(&SECRET[6..], &[STRIPE], "body", NOW, "secret_encoding");
    check(SECRET, &[STRIPE], "body", NOW + 301, "stale");
    check(SECRET, &[STRIPE], "body", NOW - 301, "future");
    check(SECRET, &["t=1760000000"], "body", NOW, "malformed_header");
    check(SECRET, &all[1..], "body", NOW, "missing_header");
    check(SECRET, &[], "body", NOW, "missing_header");
}

#[test]
fn the_readable_form_says_what_to_do() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("body"), BODY).unwrap();
    std::fs::write(folder.path().join("secrets"), SECRET).unwrap();
    let with = |more: &[&str]| {
        let common = ["verify", "signature", "--secret-file", "secrets", "--body", "body"];
        run(folder.path(), &[&common, more].concat())
    };
    let (out, _, status) = with(&["--header", STRIPE, "--at", "1760000000"]);
    assert_eq!(
        (&*out, status),
        ("verified: the signature is valid: Stripe's form (t=…,v1=…)\n", 0)
    );
    let (out, _, status) = with(&["--header", STRIPE]);
    assert!(out.starts_with("not verified: the signature is right, but was made"), "{out}");
    assert!(out.contains("\nwhat to do: If the clock here is right"), "{out}");
    assert_eq!(status, 1);
    let missing = ["verify", "signature", "--body", "body", "--header", STRIPE];
    let (_, err, status) = run(folder.path(), &missing);
    assert!(status == 1 && err.contains("there is no secret"), "{err}");
    let nobody = ["verify", "signature", "--secret", SECRET, "--body", "none"];
    let (_, err, status) = run(folder.path(), &nobody);
    assert!(status == 1 && err.contains("the body in none cannot be read"), "{err}");
}

#[test]
fn a_part_of_a_body_and_a_repeated_header_do_not_verify() {
    let folder = TempDir::new().unwrap();
    let limit = 64 << 20;
    let signed = vec![b' '; limit];
    std::fs::write(folder.path().join("longer"), [&*signed, b"TAMPERED"].concat()).unwrap();
    std::fs::write(folder.path().join("body"), BODY).unwrap();
    let signer = Signer::new(&Secret::parse(SECRET).unwrap(), None);
    let header = |body: &[u8]| format!("restive-signature: {}", signer.timestamped(NOW, body));
    let (of_longer, of_body) = (header(&signed), header(BODY.as_bytes()));
    let verify = |body: &str, headers: &[&str]| {
        let mut arguments = vec!["verify", "signature", "--secret", SECRET, "--body", body];
        arguments.extend(["--at", "1760000000"]);
        headers.iter().for_each(|header| arguments.extend(["--header", header]));
        let (_, error, code) = run(folder.path(), &arguments);
        (code, error)
    };
    let (code, error) = verify("longer", &[&of_longer]);
    assert!(code == 1 && error.contains("more than 67108864 bytes"), "{error}");
    let (code, error) = verify("body", &[&of_body, &of_body]);
    assert!(code == 1 && error.contains("given twice"), "{error}");
    assert_eq!(verify("body", &[&of_body]).0, 0);
}
