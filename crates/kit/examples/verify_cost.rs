//! What verifying costs beside the bare HMAC of the same kibibyte: prints both and their ratio. The
//! rounds alternate, so that a slow phase of the machine affects both.
//!
//! `cargo run --release -p restive-kit --example verify_cost`

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use restive_kit::signature::{Scheme, Secret, Signer, Verifier};
use sha2::Sha256;

const BODY_BYTES: usize = 1024;
const CALLS: u32 = 20_000;
const ROUNDS: usize = 15;
const NOW: i64 = 1_760_000_000;
/// The most that verifying may cost.
const BAR: f64 = 1.3;

fn main() -> ExitCode {
    let secret = Secret::from_bytes([7; 24]);
    let body = vec![b'x'; BODY_BYTES];
    let signer = Signer::new(&secret, None);
    let (stripe, standard) =
        (signer.timestamped(NOW, &body), signer.standard("evt_01", NOW, &body));
    let headers = [
        ("webhook-id", "evt_01"),
        ("webhook-timestamp", "1760000000"),
        ("webhook-signature", &standard),
        ("stripe-signature", &stripe),
    ];
    let header = |name: &str| {
        headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_bytes())
    };
    let mut missed = false;
    for (name, scheme) in [
        ("Stripe's form", Scheme::stripe()),
        ("Standard Webhooks", Scheme::standard()),
        ("detected", Scheme::Detect),
    ] {
        let verifier = Verifier::new(scheme, [secret.clone()]);
        let (mut bare, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let hmac = timed(|| {
                let mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes());
                let mut mac = mac.expect("HMAC takes keys of any length");
                mac.update(black_box(&body));
                black_box(mac.finalize());
            });
            let verify = timed(|| {
                let result = verifier.verify(header, black_box(&body), NOW);
                assert!(black_box(result).is_ok());
            });
            ratios.push(verify.as_secs_f64() / hmac.as_secs_f64());
            bare.push(hmac);
            ours.push(verify);
        }
        bare.sort();
        ours.sort();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ROUNDS / 2];
        let (bare, ours) = (bare[ROUNDS / 2], ours[ROUNDS / 2]);
        println!("{name}: HMAC {bare:?}, verify {ours:?}, ratio {ratio:.2} (at most {BAR})");
        missed |= ratio > BAR;
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The time of one call.
fn timed(mut call: impl FnMut()) -> Duration {
    let began = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    began.elapsed() / CALLS
}
