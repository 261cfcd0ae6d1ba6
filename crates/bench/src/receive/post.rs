//! Signed webhooks as bytes of HTTP/1.1. The signature is made here, by the recipe: the bench knows
//! nothing of the kit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::load::Source;

/// The text of the secret is the key of this form.
pub const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

/// Requests with ids that are never repeated.
pub struct Posts {
    next: Arc<AtomicU64>,
    filling: Arc<str>,
    run: u64,
}

impl Posts {
    pub fn new(body_bytes: usize) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // What the rest of the body takes.
        let filling = "x".repeat(body_bytes.saturating_sub(150));
        Self { next: Arc::default(), filling: filling.into(), run: since.as_millis() as u64 }
    }

    /// The requests of one connection.
    pub fn source(&self) -> Source {
        let (next, filling, run) = (self.next.clone(), self.filling.clone(), self.run);
        Box::new(move |request| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let body = format!(
                "{{\"id\":\"evt_{run:x}{number:016x}\",\"object\":\"event\",\"type\":\
                 \"order.created\",\"data\":{{\"object\":{{\"id\":\"ord_{number:x}\",\
                 \"note\":\"{filling}\"}}}}}}"
            );
            request.extend_from_slice(post(&body).as_bytes());
        })
    }
}

fn post(body: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes());
    let mut mac = mac.expect("HMAC takes keys of any length");
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body.as_bytes());
    let hex: String =
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let length = body.len();
    format!(
        "POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Restive-Signature: t={seconds},v1={hex}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
