//! What we sign is what others verify: requests signed by `Signer` are shown to the libraries that
//! consumers use, in Python and in Node. They must accept the good ones and refuse the bad ones for
//! the right reason.

mod receivers;

use std::time::SystemTime;

use receivers::{Case, Language};
use restive_kit::signature::{Secret, Signer};

const TIMED: [&str; 3] = ["stripe", "standardwebhooks", "svix"];
const FAMILIES: [&str; 4] = ["stripe", "standardwebhooks", "svix", "github"];
const ID: &str = "evt_01";
const BODY: &str =
    r#"{"id":"evt_01","object":"event","data":{"title":"Gödel, Escher, Bach – 音"}}"#;

/// All headers of one delivery, so that each family finds its own.
fn sign(signer: &Signer, seconds: i64) -> [(&'static str, String); 5] {
    let body = BODY.as_bytes();
    [
        ("Restive-Signature", signer.timestamped(seconds, body)),
        ("webhook-id", ID.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", signer.standard(ID, seconds, body)),
        ("X-Hub-Signature-256", signer.plain(body)),
    ]
}

/// The libraries read the clock of the machine.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.expect("the clock is past 1970").as_secs();
    i64::try_from(seconds).expect("the clock is before the end of time")
}

fn secret(byte: u8) -> Secret {
    // High bytes bring + and / into the text, which careless decoding would spoil.
    Secret::from_bytes(std::array::from_fn(|at| byte ^ (0xFB_u8.wrapping_add(at as u8))))
}

/// What an answer must contain one of.
const ACCEPTED: &[&str] = &["ok"];
const NO_MATCH: &[&str] =
    &["No signatures found matching", "No matching signature", "signatures differ"];
const TOO_OLD: &[&str] = &["outside the tolerance zone", "timestamp too old"];

/// Shows a request, signed at `seconds`, to the given families in both languages. The receivers
/// know the one secret `known`.
fn check(
    families: &[&str],
    known: &Secret,
    signer: &Signer,
    seconds: i64,
    body: &str,
    expected: &[&str],
) {
    let headers = sign(signer, seconds);
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let secret = known.expose();
    let case = |family| Case { family, secret, headers: &headers, body };
    let cases: Vec<Case<'_>> = families.iter().copied().map(case).collect();
    for language in Language::ALL {
        for (family, answer) in families.iter().zip(language.verify(&cases)) {
            let accepted = answer == "ok";
            let fits = expected.iter().any(|part| answer.contains(part));
            assert!(
                fits && accepted == (expected == ACCEPTED),
                "{family} in {language:?} said {answer:?}, expected {expected:?}"
            );
        }
    }
}

#[test]
fn every_library_accepts_what_we_sign() {
    let secret = secret(1);
    check(&FAMILIES, &secret, &Signer::new(&secret, None), now(), BODY, ACCEPTED);
}

#[test]
fn a_secret_with_padding_works_for_every_library() {
    let secret = Secret::parse("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=").unwrap();
    check(&FAMILIES, &secret, &Signer::new(&secret, None), now(), BODY, ACCEPTED);
}

#[test]
fn during_a_rotation_every_library_accepts_with_either_secret() {
    let (new, old) = (secret(2), secret(1));
    let signer = Signer::new(&new, [&old]);
    check(&FAMILIES, &new, &signer, now(), BODY, ACCEPTED);
    // The plain form has room for the newest secret only.
    check(&TIMED, &old, &signer, now(), BODY, ACCEPTED);
    check(&["github"], &old, &signer, now(), BODY, NO_MATCH);
}

#[test]
fn every_library_refuses_a_changed_body() {
    let secret = secret(1);
    let changed = BODY.replace("Bach", "Back");
    check(&FAMILIES, &secret, &Signer::new(&secret, None), now(), &changed, NO_MATCH);
}

#[test]
fn every_library_refuses_when_the_secret_is_another() {
    let signer = Signer::new(&secret(2), [&secret(3)]);
    check(&FAMILIES, &secret(1), &signer, now(), BODY, NO_MATCH);
}

#[test]
fn every_library_with_a_clock_refuses_an_old_request() {
    let secret = secret(1);
    let signer = Signer::new(&secret, None);
    check(&TIMED, &secret, &signer, now() - 310, BODY, TOO_OLD);
    // The plain form has no time: an old request passes, which is why it is not the default.
    check(&["github"], &secret, &signer, now() - 310, BODY, ACCEPTED);
}
