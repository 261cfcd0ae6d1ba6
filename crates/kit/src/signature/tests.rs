//! Signing and verifying against each other and against published examples. Whether the libraries
//! of others agree is shown in tests/interop.

use std::time::Duration;

use super::verify::{MAX_HEADER_BYTES, MAX_SIGNATURES, TOLERANCE};
use super::*;

const NOW: i64 = 1_760_000_000;
const ID: &str = "evt_01";
const BODY: &[u8] = br#"{"id":"evt_01","object":"event"}"#;

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 24])
}

fn alone(secret: &Secret) -> Signer {
    Signer::new(secret, None)
}

fn timestamped(secret: &Secret, header: &str, body: &[u8], now: i64) -> Result<(), Fault> {
    let secrets = std::slice::from_ref(secret);
    verify::timestamped(secrets, Some(header.as_bytes()), body, now, TOLERANCE)
}

fn standard(secret: &Secret, signature: &str, body: &[u8], now: i64) -> Result<(), Fault> {
    let headers = StandardHeaders {
        id: Some(ID.as_bytes()),
        timestamp: Some(b"1760000000"),
        signature: Some(signature.as_bytes()),
    };
    verify::standard(std::slice::from_ref(secret), headers, body, now, TOLERANCE)
}

fn plain(secret: &Secret, header: &str, body: &[u8]) -> Result<(), Fault> {
    verify::plain(std::slice::from_ref(secret), Some(header.as_bytes()), body)
}

fn malformed(part: Part, result: Result<(), Fault>, told: &str) {
    match result {
        Err(Fault::Malformed { part: found, reason }) => {
            assert_eq!(found, part, "{reason}");
            assert!(reason.contains(told), "{reason:?} does not say {told:?}");
        }
        other => panic!("expected a malformed {part} ({told}), got {other:?}"),
    }
}

#[test]
fn published_timestamped_signature_is_ours_too() {
    let secret = Secret::parse("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=").unwrap();
    let header = "t=1760000000,v1=fa3006d66abdcdf1bcf6a2cc76e57b5fe3fb21fedc7fc0a121cea98f56aa5a8c";
    assert_eq!(alone(&secret).timestamped(NOW, BODY), header);
    assert_eq!(timestamped(&secret, header, BODY, NOW), Ok(()));
}

#[test]
fn published_standard_signatures_match_ours() {
    let ours = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
    let body = std::str::from_utf8(BODY).unwrap();
    for (secret, id, seconds, body, base64) in [
        (ours, ID, NOW, body, "bdPrhT9a9e2XHg0LHIjMhFTurK32cpZm+Ekd5USy3Ik="),
        (
            // From the documentation of Svix.
            "whsec_plJ3nmyCDGBKInavdOK15jsl",
            "msg_loFOjxBNrRLzqYUf",
            1_731_705_121,
            r#"{"event_type":"ping","data":{"success":true}}"#,
            "rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        ),
        (
            // From the tests of the Standard Webhooks library.
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            r#"{"email":"test@example.com","username":"test_user"}"#,
            "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
    ] {
        let secret = Secret::of_example(secret);
        let signature = alone(&secret).standard(id, seconds, body.as_bytes());
        assert_eq!(signature, format!("v1,{base64}"));
        let headers = StandardHeaders {
            id: Some(id.as_bytes()),
            timestamp: Some(&seconds.to_string().into_bytes()),
            signature: Some(signature.as_bytes()),
        };
        let result = verify::standard(&[secret], headers, body.as_bytes(), seconds, TOLERANCE);
        assert_eq!(result, Ok(()));
    }
}

#[test]
fn published_plain_signature_is_ours_too() {
    let secret = Secret::of_example("It's a Secret to Everybody");
    let header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(alone(&secret).plain(b"Hello, World!"), header);
    assert_eq!(plain(&secret, header, b"Hello, World!"), Ok(()));
}

#[test]
fn during_a_rotation_receivers_with_either_secret_agree() {
    let (new, old, stranger) = (secret(2), secret(1), secret(3));
    let signer = Signer::new(&new, [&old]);
    let header = signer.timestamped(NOW, BODY);
    let signature = signer.standard(ID, NOW, BODY);
    let hex = |secret| alone(secret).timestamped(NOW, BODY)[13..].to_owned();
    assert_eq!(header, format!("t=1760000000,{},{}", hex(&new), hex(&old)));
    let base64 = |secret| alone(secret).standard(ID, NOW, BODY);
    assert_eq!(signature, format!("{} {}", base64(&new), base64(&old)));
    assert_eq!(signer.plain(BODY), alone(&new).plain(BODY));
    for known in [&new, &old] {
        assert_eq!(timestamped(known, &header, BODY, NOW), Ok(()));
        assert_eq!(standard(known, &signature, BODY, NOW), Ok(()));
    }
    assert_eq!(timestamped(&stranger, &header, BODY, NOW), Err(Fault::NoMatch));
    assert_eq!(standard(&stranger, &signature, BODY, NOW), Err(Fault::NoMatch));
    assert_eq!(plain(&old, &signer.plain(BODY), BODY), Err(Fault::NoMatch));
}

#[test]
fn a_receiver_may_know_two_secrets_while_the_sender_has_one() {
    let both = [secret(2), secret(1)];
    for known in &both {
        let header = alone(known).timestamped(NOW, BODY);
        let result = verify::timestamped(&both, Some(header.as_bytes()), BODY, NOW, TOLERANCE);
        assert_eq!(result, Ok(()));
        let result = verify::plain(&both, Some(alone(known).plain(BODY).as_bytes()), BODY);
        assert_eq!(result, Ok(()));
    }
}

#[test]
fn without_a_secret_nothing_is_trusted() {
    let header = alone(&secret(1)).plain(BODY);
    assert_eq!(verify::plain(&[], Some(header.as_bytes()), BODY), Err(Fault::NoMatch));
}

#[test]
fn every_changed_bit_of_body_or_signature_is_noticed() {
    let secret = secret(1);
    let signer = alone(&secret);
    let (header, signature) = (signer.timestamped(NOW, BODY), signer.standard(ID, NOW, BODY));
    let sum = signer.plain(BODY);
    for bit in 0..BODY.len() * 8 {
        let mut body = BODY.to_vec();
        body[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(timestamped(&secret, &header, &body, NOW), Err(Fault::NoMatch));
        assert_eq!(standard(&secret, &signature, &body, NOW), Err(Fault::NoMatch));
        assert_eq!(plain(&secret, &sum, &body), Err(Fault::NoMatch));
    }
    for bit in 0..header.len() * 8 {
        let mut changed = header.clone().into_bytes();
        changed[bit / 8] ^= 1 << (bit % 8);
        // A letter of another case is the same digit.
        if changed.to_ascii_lowercase() == header.as_bytes() {
            continue;
        }
        let secrets = std::slice::from_ref(&secret);
        let result = verify::timestamped(secrets, Some(&changed), BODY, NOW, TOLERANCE);
        assert!(result.is_err(), "{}", String::from_utf8_lossy(&changed));
    }
}

#[test]
fn id_and_time_are_signed_too() {
    let secret = secret(1);
    let signature = alone(&secret).standard(ID, NOW, BODY).into_bytes();
    let good = StandardHeaders {
        id: Some(ID.as_bytes()),
        timestamp: Some(b"1760000000"),
        signature: Some(&signature),
    };
    let verified =
        |headers| verify::standard(std::slice::from_ref(&secret), headers, BODY, NOW, TOLERANCE);
    assert_eq!(verified(good), Ok(()));
    assert_eq!(verified(StandardHeaders { id: Some(b"evt_02"), ..good }), Err(Fault::NoMatch));
    let later = StandardHeaders { timestamp: Some(b"1760000001"), ..good };
    assert_eq!(verified(later), Err(Fault::NoMatch));
    let header = alone(&secret).timestamped(NOW, BODY).replace("t=1760000000", "t=1760000001");
    assert_eq!(timestamped(&secret, &header, BODY, NOW), Err(Fault::NoMatch));
}

#[test]
fn a_timestamp_may_be_off_by_the_tolerance_and_no_more() {
    let secret = secret(1);
    let header = alone(&secret).timestamped(NOW, BODY);
    let signature = alone(&secret).standard(ID, NOW, BODY);
    for (now, expected) in [
        (NOW, Ok(())),
        (NOW + 300, Ok(())),
        (NOW - 300, Ok(())),
        (NOW + 301, Err(Fault::TooOld { skew_seconds: 301 })),
        (NOW - 301, Err(Fault::TooNew { skew_seconds: 301 })),
        (i64::MAX, Err(Fault::TooOld { skew_seconds: i64::MAX.abs_diff(NOW) })),
        (i64::MIN, Err(Fault::TooNew { skew_seconds: i64::MIN.abs_diff(NOW) })),
    ] {
        assert_eq!(timestamped(&secret, &header, BODY, now), expected, "{now}");
        assert_eq!(standard(&secret, &signature, BODY, now), expected, "{now}");
    }
    let secrets = [secret];
    for (tolerance, expected) in [
        (Duration::ZERO, Err(Fault::TooOld { skew_seconds: 1 })),
        (Duration::from_secs(1), Ok(())),
        (Duration::MAX, Ok(())),
    ] {
        let header = Some(header.as_bytes());
        let result = verify::timestamped(&secrets, header, BODY, NOW + 1, tolerance);
        assert_eq!(result, expected);
    }
}

#[test]
fn a_missing_header_is_named() {
    let secrets = [secret(1)];
    let missing = |part| Err(Fault::Missing(part));
    let none = verify::timestamped(&secrets, None, BODY, NOW, TOLERANCE);
    assert_eq!(none, missing(Part::Signature));
    assert_eq!(verify::plain(&secrets, None, BODY), missing(Part::Signature));
    let full =
        StandardHeaders { id: Some(b"x"), timestamp: Some(b"1"), signature: Some(b"v1,eA==") };
    for (headers, part) in [
        (StandardHeaders { id: None, ..full }, Part::Id),
        (StandardHeaders { timestamp: None, ..full }, Part::Timestamp),
        (StandardHeaders { signature: None, ..full }, Part::Signature),
    ] {
        let result = verify::standard(&secrets, headers, BODY, NOW, TOLERANCE);
        assert_eq!(result, missing(part));
    }
}

#[test]
fn a_malformed_timestamped_header_has_its_own_error() {
    let secret = secret(1);
    let good = alone(&secret).timestamped(NOW, BODY);
    let v1 = &good["t=1760000000,".len()..];
    for (header, part, told) in [
        ("".to_owned(), Part::Signature, "item without ="),
        ("nonsense".to_owned(), Part::Signature, "item without ="),
        (format!("{good},"), Part::Signature, "item without ="),
        (v1.to_owned(), Part::Signature, "no t="),
        ("t=1760000000".to_owned(), Part::Signature, "no v1="),
        (good.replace(",v1", ",v0"), Part::Signature, "no v1="),
        // The libraries of others do not find it either.
        (good.replace(",v1", ", v1"), Part::Signature, "no v1="),
        (good.replace(",v1=", ",v1=="), Part::Signature, "64 hex digits"),
        (good[..good.len() - 1].to_owned(), Part::Signature, "64 hex digits"),
        (format!("t=1,{good}"), Part::Signature, "two times"),
        (format!("t=,{v1}"), Part::Timestamp, "not a number"),
        (format!("t=+1760000000,{v1}"), Part::Timestamp, "not a number"),
        (format!("t=-1,{v1}"), Part::Timestamp, "not a number"),
        (format!("t=1760000000.0,{v1}"), Part::Timestamp, "not a number"),
        (format!("t=99999999999999999999,{v1}"), Part::Timestamp, "not a number"),
        (format!("t=１,{v1}"), Part::Timestamp, "not a number"),
    ] {
        malformed(part, timestamped(&secret, &header, BODY, NOW), told);
    }
}

#[test]
fn a_malformed_standard_header_has_its_own_error() {
    let secret = secret(1);
    let good = alone(&secret).standard(ID, NOW, BODY);
    for (signature, told) in [
        ("".to_owned(), "without a comma"),
        (format!("{good} "), "without a comma"),
        (good.replace("v1,", ""), "without a comma"),
        (good.replace("v1,", "v2,"), "no v1"),
        (good.replace("v1,", "v1a,"), "no v1"),
        ("v1,".to_owned(), "32 bytes"),
        ("v1,eA==".to_owned(), "32 bytes"),
        (good.replace("v1,", "v1,!"), "32 bytes"),
    ] {
        malformed(Part::Signature, standard(&secret, &signature, BODY, NOW), told);
    }
    let secrets = [secret];
    for (id, timestamp, part, told) in [
        ("", "1760000000", Part::Id, "no dot"),
        ("evt.01", "1760000000", Part::Id, "no dot"),
        (ID, "", Part::Timestamp, "not a number"),
        (ID, " 1760000000", Part::Timestamp, "not a number"),
        (ID, "soon", Part::Timestamp, "not a number"),
    ] {
        let headers = StandardHeaders {
            id: Some(id.as_bytes()),
            timestamp: Some(timestamp.as_bytes()),
            signature: Some(good.as_bytes()),
        };
        malformed(part, verify::standard(&secrets, headers, BODY, NOW, TOLERANCE), told);
    }
}

#[test]
fn a_malformed_plain_header_is_reported() {
    let secret = secret(1);
    let good = alone(&secret).plain(BODY);
    let short = &good[..good.len() - 1];
    for header in ["", "sha256=", "sha1=00", short, &good.replace("sha256=", "SHA256=")] {
        malformed(Part::Signature, plain(&secret, header, BODY), "64 hex digits");
    }
}

#[test]
fn other_schemes_and_versions_are_passed_over() {
    let secret = secret(1);
    let header = alone(&secret).timestamped(NOW, BODY);
    for header in [format!("v0=zz,{header},v2=="), format!("{header},=")] {
        assert_eq!(timestamped(&secret, &header, BODY, NOW), Ok(()), "{header}");
    }
    let signature = alone(&secret).standard(ID, NOW, BODY);
    for signature in [format!("v1a,zz {signature} v2,,"), format!("{signature} ,")] {
        assert_eq!(standard(&secret, &signature, BODY, NOW), Ok(()), "{signature}");
    }
    // Some leave the padding out.
    assert_eq!(standard(&secret, signature.trim_end_matches('='), BODY, NOW), Ok(()));
}

#[test]
fn no_more_than_sixteen_signatures_are_looked_at() {
    let secret = secret(1);
    let good = alone(&secret).timestamped(NOW, BODY);
    let bad = |count| format!(",v1={}", "0".repeat(64)).repeat(count);
    let within = good.replace(",v1=", &format!("{},v1=", bad(MAX_SIGNATURES - 1)));
    assert_eq!(timestamped(&secret, &within, BODY, NOW), Ok(()));
    let beyond = good.replace(",v1=", &format!("{},v1=", bad(MAX_SIGNATURES)));
    assert_eq!(timestamped(&secret, &beyond, BODY, NOW), Err(Fault::NoMatch));
    let good = alone(&secret).standard(ID, NOW, BODY);
    let bad = |count| format!("v1,{}= ", "A".repeat(43)).repeat(count);
    let within = format!("{}{good}", bad(MAX_SIGNATURES - 1));
    assert_eq!(standard(&secret, &within, BODY, NOW), Ok(()));
    let beyond = format!("{}{good}", bad(MAX_SIGNATURES));
    assert_eq!(standard(&secret, &beyond, BODY, NOW), Err(Fault::NoMatch));
}

#[test]
fn a_header_of_more_than_four_kibibytes_is_refused() {
    let secrets = [secret(1)];
    let good = alone(&secrets[0]).timestamped(NOW, BODY);
    let filled = |bytes: usize| format!("{good},v0={}", "z".repeat(bytes - good.len() - 4));
    assert_eq!(timestamped(&secrets[0], &filled(MAX_HEADER_BYTES), BODY, NOW), Ok(()));
    let refused = |part| Err(Fault::TooLong(part));
    let result = timestamped(&secrets[0], &filled(MAX_HEADER_BYTES + 1), BODY, NOW);
    assert_eq!(result, refused(Part::Signature));
    let long = vec![b'1'; MAX_HEADER_BYTES + 1];
    assert_eq!(verify::plain(&secrets, Some(&long), BODY), refused(Part::Signature));
    let full =
        StandardHeaders { id: Some(b"x"), timestamp: Some(b"1"), signature: Some(b"v1,eA==") };
    for (headers, part) in [
        (StandardHeaders { id: Some(&long), ..full }, Part::Id),
        (StandardHeaders { timestamp: Some(&long), ..full }, Part::Timestamp),
        (StandardHeaders { signature: Some(&long), ..full }, Part::Signature),
    ] {
        let result = verify::standard(&secrets, headers, BODY, NOW, TOLERANCE);
        assert_eq!(result, refused(part));
    }
}

/// A small generator with a fixed seed (xorshift): the same bytes in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }
}

#[test]
fn no_bytes_make_the_verifier_panic_or_agree() {
    const PIECES: [&[u8]; 16] = [
        b"t=",
        b"v1=",
        b"v1,",
        b"v1a,",
        b",",
        b"=",
        b" ",
        b".",
        b"1760000000",
        b"sha256=",
        b"\0",
        b"\xFF",
        b"-",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        b"whsec_",
        b"0000000000000000000000000000000000000000000000000000000000000000",
    ];
    let mut noise = Noise(0x5EED);
    let secrets = [secret(1), secret(2)];
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..noise.next() % 8 {
            match noise.next() % 4 {
                0 => bytes.push(noise.next() as u8),
                _ => bytes.extend(PIECES[noise.next() % PIECES.len()]),
            }
        }
        let now = NOW + (noise.next() % 1000) as i64 - 500;
        assert!(verify::plain(&secrets, Some(&bytes), BODY).is_err());
        assert!(verify::timestamped(&secrets, Some(&bytes), BODY, now, TOLERANCE).is_err());
        let good =
            StandardHeaders { id: Some(b"x"), timestamp: Some(b"1760000000"), signature: None };
        for headers in [
            StandardHeaders { signature: Some(&bytes), ..good },
            StandardHeaders { id: Some(&bytes), signature: Some(b"v1,eA=="), ..good },
            StandardHeaders { timestamp: Some(&bytes), signature: Some(b"v1,eA=="), ..good },
        ] {
            assert!(verify::standard(&secrets, headers, BODY, now, TOLERANCE).is_err());
        }
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let known = Secret::parse(text);
            assert!(known.is_err() || text.starts_with("whsec_"), "{text}");
        }
    }
}

#[test]
fn every_signed_body_verifies_for_any_secret_and_time() {
    let mut noise = Noise(0xB0D7);
    for _ in 0..2_000 {
        let secret = Secret::from_bytes(std::array::from_fn(|_| noise.next() as u8));
        let length = noise.next() % 300;
        let body: Vec<u8> = (0..length).map(|_| noise.next() as u8).collect();
        let now = (noise.next() % 4_000_000_000) as i64;
        let signer = alone(&secret);
        assert_eq!(timestamped(&secret, &signer.timestamped(now, &body), &body, now), Ok(()));
        assert_eq!(plain(&secret, &signer.plain(&body), &body), Ok(()));
        let headers = StandardHeaders {
            id: Some(ID.as_bytes()),
            timestamp: Some(&now.to_string().into_bytes()),
            signature: Some(&signer.standard(ID, now, &body).into_bytes()),
        };
        assert_eq!(verify::standard(&[secret], headers, &body, now, TOLERANCE), Ok(()));
    }
}

#[test]
fn each_fault_has_a_message() {
    for (fault, text) in [
        (Fault::Missing(Part::Id), "the id header is missing"),
        (Fault::TooLong(Part::Signature), "the signature header is longer than 4096 bytes"),
        (
            Fault::Malformed { part: Part::Timestamp, reason: "is not a number of seconds" },
            "the timestamp is not a number of seconds",
        ),
        (
            Fault::TooOld { skew_seconds: 301 },
            "the timestamp is too old, by the clock here 301 s ago",
        ),
        (
            Fault::TooNew { skew_seconds: 301 },
            "the timestamp is too new, by the clock here 301 s ahead",
        ),
        (Fault::NoMatch, "no signature fits the body and the secret"),
    ] {
        assert_eq!(fault.to_string(), text);
    }
}
